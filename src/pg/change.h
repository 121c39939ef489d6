/* One row operation found in a heap record. */
#pragma once
#include "pg/tuple.h"
#include "pg/wal_record.h"

enum change_kind {
    CHANGE_INSERT,
    CHANGE_UPDATE,
    CHANGE_DELETE,
    CHANGE_SPEC_CONFIRM, /* the speculative insert at new_tid counts (XLOG_HEAP_CONFIRM) */
    CHANGE_SPEC_DELETE, /* the speculative insert at old_tid never was (super-delete, no key: B7) */
};

#define CHANGE_SPECULATIVE 1 /* an INSERT that waits for its confirmation */
#define CHANGE_OLD_FULL 2    /* old_tuple is the whole row (REPLICA IDENTITY FULL) */
#define CHANGE_OLD_KEY 4     /* old_tuple has the key attributes, others NULL */

struct change {
    uint8_t kind;     /* enum change_kind */
    uint8_t flags;    /* CHANGE_* */
    uint16_t ordinal; /* position within the record: of a multi-insert tuple, else 0 */
    XLogRecPtr lsn;   /* start of the record */
    struct rel_file_locator locator;
    uint64_t new_tid, old_tid; /* tid_make; 0 if there is none */
    bool has_new, has_old;
    struct raw_tuple new_tuple, old_tuple; /* point into the record */
};

/* Calls emit for each row operation of a RM_HEAP_ID or RM_HEAP2_ID record (UPDATE and HOT_UPDATE,
 * INSERT, DELETE, MULTI_INSERT, CONFIRM); other opcodes yield none. The row of an INSERT that is
 * only in the page's image (a TOAST rewrite) is taken from there. A record whose tuple is not in it
 * (prefix/suffix compression: wal_level below logical, a catalog) sets *ret_incomplete instead and
 * emits nothing: the caller decides by relation.
 * Blocks are found by id, never by count (F1). emit's failure is returned. */
typedef enum status (*change_fn)(void *ctx, const struct change *change, struct error *err);
enum status heap_record_changes(const struct wal_record *record, change_fn emit, void *ctx,
                                bool *ret_incomplete, struct error *err) CHECKED;

/* XLOG_HEAP_TRUNCATE: database, relation oids (in the record's bytes, unaligned). */
struct heap_truncate {
    Oid db_oid;
    uint32_t nrelids;
    uint8_t flags; /* 1 CASCADE, 2 RESTART_SEQS */
    const uint8_t *relids;
};
bool heap_record_is_truncate(const struct wal_record *record);
enum status heap_truncate_parse(const struct wal_record *record, struct heap_truncate *ret,
                                struct error *err) CHECKED;
