/* Records → frames: what the reorder stage needs of each WAL record of our database. */
#pragma once
#include "catalog/history.h"
#include "pg/xact_record.h"
#include "xact/frame.h"

struct records_options {
    unsigned major;
    Oid database;
    XLogRecPtr changes_from; /* row changes before it are in the initial load */
    TransactionId load_xid;  /* catalog writes of older transactions may lie before our start */
    struct history *history; /* tells which relations use a type; NULL: none does */
    const Oid *temporary;    /* relations known to be so at the start; read by records_new only */
    size_t ntemporary;
    /* The oid of the catalog that has this filenode; 0: not known, or none. */
    Oid (*catalog_oid)(void *ctx, struct rel_file_locator locator);
    /* The file is a user's, whatever the locks of the transaction that made it let believe (notes
     * C1). NULL: nobody asks. */
    void (*user_file)(void *ctx, Oid filenode);
    /* A commit changed the shape of these relations (all: perhaps of any), one of which at least is
     * not temporary. Runs with the filter flushed up to the commit's end; returns once the catalog
     * at that moment is known. */
    enum status (*boundary)(void *ctx, XLogRecPtr commit_end, const Oid *oids, size_t n, bool all,
                            struct error *err);
    void *ctx;
};

struct records;
struct records *records_new(const struct records_options *options);
void records_free(struct records *r);
/* Appends frames to out. forwarded: the record goes to the shadow (a catalog's). */
enum status records_take(struct records *r, const struct wal_record *record, bool forwarded,
                         struct buf *out, struct error *err) CHECKED;
