/* The transaction buffer: raw changes of open transactions by top-level xid, in WAL order, in
 * memory up to xact_buffer_max and then in spill files. Owned by the reorder thread; the accessors
 * marked so are safe from others.
 *
 * Changes of a subtransaction go to the buffer of its top-level transaction, known from the first
 * record of the subtransaction (XLR_BLOCK_ID_TOPLEVEL_XID at wal_level logical). Where that record
 * was before our start, the subtransaction is buffered alone and joined by the commit's list. */
#pragma once
#include "base/budget.h"
#include "xact/frame.h"

#include <stdatomic.h>

struct xact_buffer;

/* What it holds in memory is told to the budget (NULL: nobody), in steps. */
struct xact_buffer *xact_buffer_new(const char *spill_dir, size_t max_bytes, struct budget *budget);
void xact_buffer_free(struct xact_buffer *b);

/* The xid (and its parent) exists from lsn on: pins the floor. */
void xact_buffer_seen(struct xact_buffer *b, TransactionId xid, TransactionId top, XLogRecPtr lsn);
/* Takes a copy of a CHANGE or TRUNCATE frame; may spill. Speculative inserts wait for their
 * confirmation outside the stream. */
enum status xact_buffer_add(struct xact_buffer *b, const struct frame_head *frame,
                            struct error *err) CHECKED;
/* The same for the frames at the front that are of one transaction, as far as they can be taken at
 * once; *ret_len: their bytes, at least those of the first one. len: what is there, whole frames.
 */
enum status xact_buffer_add_run(struct xact_buffer *b, const struct frame_head *frames, size_t len,
                                size_t *ret_len, struct error *err) CHECKED;
/* An abort of a top-level or subtransaction with its children: their changes never were. */
void xact_buffer_abort(struct xact_buffer *b, TransactionId xid, const TransactionId *subs,
                       uint32_t nsub);
void xact_buffer_prepare(struct xact_buffer *b, const struct xact_frame *frame);
/* RUNNING_XACTS (B3): what is older and has neither committed nor aborted died with the server. */
void xact_buffer_running(struct xact_buffer *b, TransactionId oldest_running);

/* The transactions that are open or prepared: a malloc'd array. */
size_t xact_buffer_xids(const struct xact_buffer *b, TransactionId **ret);

/* The committed transaction (children joined by the list); it pins the floor until
 * xact_buffer_release. NULL: nothing of it concerned our database. */
struct xact;
struct xact *xact_buffer_take(struct xact_buffer *b, TransactionId xid, const TransactionId *subs,
                              uint32_t nsub);
/* Unpins and frees; call it once its slices are registered for acknowledgement. NULL is fine. */
void xact_buffer_release(struct xact_buffer *b, struct xact *x);
XLogRecPtr xact_first_lsn(const struct xact *x);
uint64_t xact_bytes(const struct xact *x);
TransactionId xact_xid(const struct xact *x);

/* Reads the frames of a taken transaction in order, without those of aborted subtransactions. The
 * frame stays valid until the next call. *ret NULL at the end. Spilled blocks are checked by CRC.
 */
struct xact_reader;
struct xact_reader *xact_reader_open(struct xact *x);
enum status xact_reader_next(struct xact_reader *r, struct frame_head **ret,
                             struct error *err) CHECKED;
void xact_reader_rewind(struct xact_reader *r);
void xact_reader_close(struct xact_reader *r);
/* Where the last frame lies, and reading part of it again later: for TOAST chunks. */
struct xact_place {
    uint32_t stream;
    uint32_t len;
    uint64_t offset;
};
struct xact_place xact_reader_place(const struct xact_reader *r, const void *at, uint32_t len);
enum status xact_read_at(struct xact *x, struct xact_place place, uint8_t *ret,
                         struct error *err) CHECKED;

/* Safe from any thread: the transactions that wait for COMMIT PREPARED. The callback runs under a
 * lock that the reorder thread takes: copy and return. */
struct xact_prepared {
    TransactionId xid;
    XLogRecPtr first_lsn; /* holds the floor */
    int64_t prepared_at;  /* µs since 2000-01-01 UTC */
    char *gid;
};
void xact_buffer_prepared_each(struct xact_buffer *b,
                               void (*each)(void *ctx, const struct xact_prepared *p), void *ctx);
/* Safe from any thread: the first LSN of the oldest transaction in the buffer, UINT64_MAX if none.
 */
XLogRecPtr xact_buffer_oldest_lsn(const struct xact_buffer *b);
size_t xact_buffer_count(const struct xact_buffer *b);
size_t xact_buffer_bytes(const struct xact_buffer *b);
uint64_t xact_buffer_spills(const struct xact_buffer *b);
/* Transactions that have bytes on disk, and how many bytes. */
size_t xact_buffer_spilled_count(const struct xact_buffer *b);
uint64_t xact_buffer_spilled_bytes(const struct xact_buffer *b);
/* Spilled blocks read again: a large transaction moves although none of its rows is sent yet. */
uint64_t xact_buffer_blocks_read(const struct xact_buffer *b);
/* One of them has more than the 64 subtransactions that the server keeps in memory: a standby that
 * starts meanwhile cannot know them (notes C5). */
bool xact_buffer_has_many_subs(const struct xact_buffer *b);
