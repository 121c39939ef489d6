/* The file behind the history: a header, then frames of length, CRC-32C and body.
 * Opening cuts a torn tail (a frame that the file's end cuts short or whose checksum fails and
 * behind which nothing but zeros follows); damage anywhere else is ERR_DATA and names the offset.
 */
#pragma once
#include "base/error.h"
#include "catalog/descriptor.h"

struct catalog_log;

enum catalog_log_kind {
    CATALOG_LOG_DESC = 1,
    CATALOG_LOG_CAPTURED = 2,
    CATALOG_LOG_STOP = 3,     /* of what stands in the log about one table, the last entry counts */
    CATALOG_LOG_RESYNC = 4,   /* it must be copied again */
    CATALOG_LOG_RESYNCED = 5, /* it was, with everything that had committed at lsn */
    CATALOG_LOG_UNSEEN = 6,   /* the boundary at lsn was passed without a look (unseen.h) */
    CATALOG_LOG_SEEN = 7,     /* as CAPTURED, and what was not known is known from lsn on */
    CATALOG_LOG_DONE = 8,     /* what came of that look at lsn is durable */
};

struct catalog_log_entry {
    enum catalog_log_kind kind;
    struct rel_desc *desc; /* DESC; the reader keeps the reference if it takes one */
    XLogRecPtr lsn;        /* all but DESC */
    Oid oid;               /* STOP, RESYNC, RESYNCED */
    const char *reason;    /* STOP, RESYNC; "" for RESYNCED */
    const Oid *oids;       /* UNSEEN: n of them */
    size_t n;
    bool all; /* UNSEEN */
};
typedef enum status (*catalog_log_fn)(void *ctx, const struct catalog_log_entry *entry,
                                      struct error *err);

/* Gives every entry to fn, then stands ready to append. */
enum status catalog_log_open(const char *path, catalog_log_fn fn, void *ctx,
                             struct catalog_log **ret, struct error *err) CHECKED;
void catalog_log_close(struct catalog_log *log);
enum status catalog_log_put_desc(struct catalog_log *log, const struct rel_desc *d,
                                 struct error *err) CHECKED;
enum status catalog_log_put_captured(struct catalog_log *log, XLogRecPtr lsn,
                                     struct error *err) CHECKED;
enum status catalog_log_put_seen(struct catalog_log *log, XLogRecPtr lsn,
                                 struct error *err) CHECKED;
enum status catalog_log_put_done(struct catalog_log *log, XLogRecPtr lsn,
                                 struct error *err) CHECKED;
enum status catalog_log_put_unseen(struct catalog_log *log, XLogRecPtr lsn, const Oid *oids,
                                   size_t n, bool all, struct error *err) CHECKED;
/* kind: STOP, RESYNC or RESYNCED. */
enum status catalog_log_put_state(struct catalog_log *log, enum catalog_log_kind kind, Oid oid,
                                  XLogRecPtr lsn, const char *reason, struct error *err) CHECKED;
enum status catalog_log_sync(struct catalog_log *log, struct error *err) CHECKED;
