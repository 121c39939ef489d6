/* The reorder stage: one thread that turns frames in WAL order into committed transactions in
 * commit order: plans each (no effect on anything outside), then slices it for the workers, with
 * DDL and TRUNCATE behind barriers at their place. */
#pragma once
#include "pipeline/toast_feed.h"
#include "pipeline/toast_index.h"
#include "pipeline/worker.h"

struct reorder;
struct commit_window;
struct generation;

struct reorder_hooks { /* for the initial load, called on the reorder thread; NULL members are
                          skipped */
    void *ctx;
    enum status (*fate)(void *ctx, TransactionId xid, bool committed, struct error *err);
    enum status (*running)(void *ctx, TransactionId oldest_running, struct error *err);
    /* A speculative row was taken back (super-delete); comes before the fate of xid. */
    void (*super_delete)(void *ctx, struct rel_file_locator locator, uint64_t tid,
                         TransactionId xid);
    /* Part of every barrier: rows of the load that are on their way are durable (notes D5). */
    enum status (*barrier)(void *ctx, struct error *err);
    /* What is acknowledged now is so after a restart. */
    enum status (*save)(void *ctx, struct error *err);
    void *save_ctx;
};

struct reorder_options {
    const char *spill_dir;
    size_t xact_buffer_max, inline_value_max;
    XLogRecPtr skip_until;  /* commits ending at or below it are durable already */
    XLogRecPtr load_end;    /* files unknown in commits up to here were gone by then */
    TransactionId load_xid; /* transactions before it may have begun before the load; 0 = none */
    struct reorder_hooks hooks;
};

/* Something that runs on the reorder thread between two batches, while its caller waits. */
typedef enum status (*reorder_fn)(struct reorder *r, void *ctx, struct error *err);
struct feed_call {
    reorder_fn fn;
    void *ctx;
    struct error *err;
    enum status status;
    pthread_mutex_t lock; /* guards done */
    pthread_cond_t ended;
    bool done;
};

struct reorder {
    struct reorder_options options;
    struct queue *feed; /* of struct feed_batch */
    struct queue *jobs;
    struct destination **destinations;
    size_t ndestinations;
    struct tables *tables;
    struct history *history;
    struct budget *budget;
    struct fatal *fatal;
    struct xact_buffer *xacts;
    struct routes *routes;
    struct toast_store *toast_store;
    struct toast_index *toast; /* of the transaction at hand */
    struct toast_feed *toast_feed;
    struct generation *generations; /* of the transaction at hand */
    size_t ngenerations;
    struct commit_window *commits; /* which transactions have committed (resync.h) */
    struct slice *slice;           /* open, NULL if none */
    struct datum *datums;          /* scratch of planning */
    size_t datums_cap;
    atomic_ullong commit_lsn, read_lsn;
    atomic_ulong committed, aborted;
    atomic_ulong unknown_files;          /* changes of files that no table has (notes B9) */
    struct rel_file_locator unknown[16]; /* the first of those files, each named in the log once */
    size_t nunknown;
    atomic_uint draining; /* xid of a large transaction that is being planned and sent, else 0 */
    atomic_ullong draining_bytes;
    atomic_bool load_guard; /* load_xid still matters */
};

void reorder_init(struct reorder *r);
void reorder_fini(struct reorder *r);
void *reorder_main(void *arg); /* struct reorder; ends when feed is closed and drained */

/* drain.c: a committed transaction into slices. */
enum status drain_xact(struct reorder *r, struct xact *x, const struct xact_frame *commit,
                       struct error *err) CHECKED;
/* One that is durable already and comes again, perhaps only in part: its rows are passed over, but
 * the chunk store is durable only up to the floor. */
enum status drain_chunks(struct reorder *r, struct xact *x, const struct xact_frame *commit,
                         struct error *err) CHECKED;
/* The slice that takes rows now; a new one registers with every destination. */
enum status reorder_slice_open(struct reorder *r, XLogRecPtr first_lsn, struct error *err) CHECKED;
enum status reorder_slice_dispatch(struct reorder *r, struct error *err) CHECKED;
/* All earlier rows are durable when it returns. */
enum status reorder_barrier(struct reorder *r, struct error *err) CHECKED;
/* The same, and no restart sends them again: what follows may make targets unfit for them. */
enum status reorder_fence(struct reorder *r, struct error *err) CHECKED;

/* generation.c: a table whose rows all are among those of the transaction at hand, which rewrote
 * it: they go to a fresh table that takes the target's place behind them. Behind a fence.
 * *ret_reason, malloc'd:
 * NULL if the table is open for them, else why it cannot be. */
enum status generation_begin(struct reorder *r, struct table_entry *e, const struct rel_desc *now,
                             XLogRecPtr lsn, char **ret_reason, struct error *err) CHECKED;
bool generation_is_begun(const struct reorder *r, const struct table_entry *e);
/* The transaction's rows are sent: the tables begun take their places. */
enum status generation_end(struct reorder *r, XLogRecPtr lsn, struct error *err) CHECKED;
void generations_forget(struct reorder *r);

/* ddl.c: what the boundary changed, applied to tables and targets. */
struct ddl_facts { /* of the transaction's rows */
    Oid *truncated;
    size_t ntruncated;
    struct rel_file_locator *inserted; /* files that got rows; removed ones: any change counts */
    size_t ninserted;
    struct rel_file_locator *pages; /* files that got rows which are not among its changes */
    size_t npages;
};
enum status ddl_apply(struct reorder *r, const struct xact_frame *commit,
                      const struct ddl_facts *facts, struct error *err) CHECKED;
/* What could not be seen at its boundary is known for commits from lsn on. */
enum status ddl_shapes_known(struct reorder *r, XLogRecPtr lsn, struct error *err) CHECKED;
enum status ddl_truncate(struct reorder *r, const struct truncate_frame *f, XLogRecPtr lsn,
                         struct error *err) CHECKED;
