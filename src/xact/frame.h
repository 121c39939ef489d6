/* Frames: the form in which changes and transaction events travel from the pump to the reorder
 * stage and rest in the transaction buffer. In memory and in spill files of one run only, so a
 * plain copy of the structure. Every length is a multiple of 8. */
#pragma once
#include "base/buf.h"
#include "pg/change.h"

enum frame_type {
    FRAME_CHANGE = 1, /* struct change_frame, new body, old body */
    FRAME_AUX,        /* struct aux_frame: a TOAST value of the change frame before it */
    FRAME_TRUNCATE,   /* struct truncate_frame, relation oids */
    FRAME_PAGES,      /* struct pages_frame */
    FRAME_SEEN,       /* struct frame_head: first record of an xid that concerns our database */
    FRAME_COMMIT,     /* struct xact_frame … */
    FRAME_ABORT,
    FRAME_PREPARE,
    FRAME_RUNNING, /* struct running_frame */
    FRAME_SHAPES,  /* struct shapes_frame */
};

struct frame_head {
    uint32_t len; /* of the whole frame */
    uint8_t type; /* enum frame_type */
    uint8_t flags;
    uint16_t ordinal;
    TransactionId xid;     /* as in the record: a subtransaction's own */
    TransactionId top_xid; /* 0 = as known, or none */
    XLogRecPtr lsn;        /* start of the record */
};

struct change_frame {
    struct frame_head head; /* flags: CHANGE_* | FRAME_HAS_NEW | FRAME_HAS_OLD */
    uint32_t kind;          /* enum change_kind */
    uint32_t route;         /* slices: index into the slice's routes */
    int64_t commit_ts;      /* slices: µs since 2000-01-01 */
    struct rel_file_locator locator;
    uint32_t new_len, old_len;
    uint16_t new_infomask2, new_infomask, old_infomask2, old_infomask;
    uint8_t new_hoff, old_hoff;
    uint16_t naux; /* FRAME_AUX frames that follow in a slice */
    uint64_t new_tid, old_tid;
};
#define FRAME_HAS_NEW 0x40
#define FRAME_HAS_OLD 0x80

/* A TOAST value put together for one attribute of the new tuple. */
struct aux_frame {
    struct frame_head head;
    int16_t attnum;
    uint16_t state;    /* enum aux_state */
    uint32_t data_len; /* bytes that follow */
};
enum aux_state {
    AUX_PLAIN,
    AUX_COMPRESSED, /* from the word of raw size and method on, as stored in the chunks */
};

struct truncate_frame {
    struct frame_head head;
    uint32_t nrelids;
    uint32_t options; /* 1 CASCADE, 2 RESTART_SEQS */
    Oid relids[];
};

/* The transaction wrote rows to this file that are not among its changes: as whole pages, mostly.
 */
struct pages_frame {
    struct frame_head head;
    struct rel_file_locator locator;
};

/* Commit, abort, prepare; two-phase ends come as COMMIT / ABORT of the prepared xid. */
struct xact_frame {
    struct frame_head head; /* flags: XACT_* */
    XLogRecPtr end;         /* end of the record: the commit's LSN in acks and catalog lookups */
    int64_t commit_ts;
    uint32_t nsub, ndropped, nrels;
    uint32_t gid_len; /* PREPARE: of its name, without the NUL behind it; else 0 */
    /* then TransactionId sub[nsub], struct rel_file_locator dropped[ndropped], Oid rels[nrels],
     * char gid[gid_len + 1] */
};
#define XACT_BOUNDARY                                                                              \
    1                    /* changed the shape of the relations in rels (nrels 0 = perhaps of all)  \
                          */
#define XACT_TWO_PHASE 2 /* COMMIT PREPARED or ROLLBACK PREPARED */
#define XACT_ALL_RELS 4  /* every relation is to be compared */

struct running_frame {
    struct frame_head head;
    TransactionId oldest_running;
    TransactionId next_xid;
};

/* Shapes that could not be seen at their boundaries are known for commits that end at or behind
 * `end` (catalog/unseen.h). */
struct shapes_frame {
    struct frame_head head;
    XLogRecPtr end;
};

static inline const TransactionId *xact_frame_subs(const struct xact_frame *f)
{
    return (const TransactionId *)(f + 1);
}
static inline const struct rel_file_locator *xact_frame_dropped(const struct xact_frame *f)
{
    return (const struct rel_file_locator *)(xact_frame_subs(f) + f->nsub);
}
static inline const Oid *xact_frame_rels(const struct xact_frame *f)
{
    return (const Oid *)(xact_frame_dropped(f) + f->ndropped);
}
static inline const char *xact_frame_gid(const struct xact_frame *f)
{
    return f->gid_len == 0 ? "" : (const char *)(xact_frame_rels(f) + f->nrels);
}

static inline size_t frame_align(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

/* Appends a change as a frame. */
void frame_put_change(struct buf *out, const struct change *change, TransactionId xid,
                      TransactionId top_xid);
/* The tuples of a change frame, pointing into it. */
struct raw_tuple change_frame_new(const struct change_frame *f);
struct raw_tuple change_frame_old(const struct change_frame *f);
/* True if the new tuple has an attribute stored out of line (HEAP_HASEXTERNAL). */
static inline bool change_frame_has_external(const struct change_frame *f)
{
    return (f->head.flags & FRAME_HAS_NEW) != 0 && (f->new_infomask & 0x0004) != 0;
}

/* What the pump hands over at once: frames in WAL order. */
struct feed_batch {
    struct buf frames;
    XLogRecPtr end; /* everything before it has been read */
    bool idle; /* rows leave at once: the source had nothing more, or they have waited enough */
    struct feed_call *call; /* in place of frames: run on the reorder thread at this place */
};
void feed_batch_free(struct feed_batch *b);
