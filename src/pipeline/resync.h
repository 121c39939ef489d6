/* Copying one table again while the stream runs, the part that belongs to the stream: at which
 * position rows begin to go to the fresh target, whether a snapshot has everything from before it,
 * the exchange (docs/resync.md; notes E1). */
#pragma once
#include "pipeline/pipeline.h"

/* Which transactions the stream has seen the commit of: one bit for each of the newest. */
#define COMMIT_WINDOW_XIDS (1u << 20)
enum commit_seen { COMMIT_SEEN, COMMIT_NOT_SEEN, COMMIT_UNKNOWN };
struct commit_window {
    TransactionId newest;     /* that committed; 0 = none */
    TransactionId known_from; /* commits of it and later ones are all seen; 0 = not known */
    uint64_t bits[COMMIT_WINDOW_XIDS / 64];
};
struct commit_window *commit_window_new(void);
void commit_window_add(struct commit_window *w, TransactionId xid);
/* A RUNNING_XACTS record: transactions from next_xid on begin after it. */
void commit_window_running(struct commit_window *w, TransactionId next_xid);
enum commit_seen commit_window_get(const struct commit_window *w, TransactionId xid);

/* One copy of one table; of one thread, the copier. */
struct resync {
    struct pipeline *pipeline;
    struct table_entry *table;
    struct rel_desc *desc;   /* the relation or root, as it was read from the source */
    struct rel_desc **parts; /* what has rows: itself, or its leaves */
    size_t nparts;
    struct target **fresh;
    size_t nfresh;
    bool attached;                /* fresh is the registry's too */
    unsigned changes;             /* of the table, when the fresh target was attached */
    XLogRecPtr opened;            /* P */
    XLogRecPtr lsn;               /* B: _lsn of copied rows */
    struct commit_window *window; /* as of P */
    TransactionId *open_xids;     /* at P */
    size_t nopen_xids;
};

/* What of the source's descriptors belongs to the table: desc and parts get references. False: it
 * is not among them. */
bool resync_take_shape(struct resync *s, struct rel_desc *const *all, size_t n);
/* True if that is still exactly what the source has. */
bool resync_has_shape(const struct resync *s, struct rel_desc *const *all, size_t n);
/* True if the history has exactly this shape, with these files, at the stream's position. */
bool resync_is_current(const struct resync *s);
/* Makes the fresh tables and opens them at P. ERR_RETRY: the stream is not there yet, or the shape
 * is another at P. */
enum status resync_open(struct resync *s, struct error *err) CHECKED;
/* Before that, for a table whose chunks the store does not know: from P on it follows them; what
 * was there before is for a snapshot, as of lsn. Rows are decoded only once it has both. */
enum status resync_open_chunks(struct resync *s, struct error *err) CHECKED;
/* The store knows the chunks; false: the table changed meanwhile. */
bool resync_chunks_known(struct resync *s);
/* True as long as nothing has made the copy void. */
bool resync_is_valid(const struct resync *s);
/* The first changes of such a transaction may lie before the stream's beginning. */
bool resync_is_older_than_load(const struct resync *s, TransactionId xid);
/* Of a snapshot's running transactions, those that may have committed at or below P, or changed
 * rows before the stream began: what remains in xids, their number is returned. */
size_t resync_doubtful_xids(const struct resync *s, TransactionId *xids, size_t n);
/* The stream has read everything before lsn. */
bool resync_stream_passed(const struct resync *s, XLogRecPtr lsn);
/* All copied rows are durable: the fresh tables become the targets, the old ones are dropped.
 * ERR_RETRY: the copy is void. */
enum status resync_exchange(struct resync *s, struct error *err) CHECKED;
/* Takes the fresh tables away, if there are any, and frees what belongs to s. No copied row may be
 * on its way. */
enum status resync_close(struct resync *s, struct error *err) CHECKED;
/* Instead, once the pipeline is closed: only frees. */
void resync_forget(struct resync *s);
