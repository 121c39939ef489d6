/* The initial load: BASE_BACKUP's tar bytes, split between the shadow's data directory and the walk
 * of user heap pages, beside a reader of the WAL window from the backup's start on.
 *
 *   load_new → load_backup_run (backup thread; calls `started`, whereupon the caller lets a WAL
 * reader feed load_window_record from start_lsn on) → all batches walked, window past end_lsn →
 * load_finish → the stream calls load_fate, load_super_delete and load_running_xacts while
 * load_undecided_count > 0 → load_free.
 *
 * Threads: load_backup_run one (it starts two of its own), the window one, page_batch_walk any
 * number, load_fate, load_super_delete and load_running_xacts one (the stream). load_cancel,
 * load_progress_get and load_undecided_count from any. */
#pragma once
#include "load/page_batch.h"
#include "load/window.h"
#include "pg/visibility.h"
#include "source/base_backup.h"

struct load_options {
    struct rel_desc *const
        *rels; /* what is loaded: ordinary heap tables of our database; referenced */
    size_t nrels;
    Oid db_oid;
    Oid db_tablespace; /* pg_database.dattablespace */
    unsigned major;
    const char *shadow_dir;     /* exists, empty */
    const char *spill_dir;      /* exists; for undecided tuples beyond the memory limit */
    size_t waiting_max_bytes;   /* tar pages waiting for the window; 0 = 64 MiB */
    size_t undecided_max_bytes; /* undecided tuples in memory; 0 = 16 MiB */
    bool chunks; /* TOAST tables are loaded too, into the chunk store: rows with values there are
                    kept aside until load_toasted_submit */

    void *ctx; /* of all callbacks */
    /* Is this filenode (≥ 16384) one of a catalog of our database? false for pg_largeobject's. */
    bool (*is_catalog)(void *ctx, struct rel_file_locator locator);
    /* Runs BASE_BACKUP with these callbacks (source_base_backup_run), blocking. */
    enum status (*run_backup)(void *ctx, const struct source_backup_callbacks *callbacks,
                              struct error *err);
    /* N: pg_control_checkpoint().next_xid at the source. Asked once, after the backup's start; a
     * value from a later checkpoint does no harm, an earlier one would. */
    enum status (*sample_next_xid)(void *ctx, TransactionId *ret, struct error *err);
    /* The backup has started: feed the window from start_lsn on. */
    enum status (*started)(void *ctx, XLogRecPtr start_lsn, uint32_t timeline, struct error *err);
    /* pg_current_wal_flush_lsn(), now. Called from one thread of the load. */
    enum status (*sample_flush_lsn)(void *ctx, XLogRecPtr *ret, struct error *err);
    /* pg_xact_status of n transactions below N, now, into ret[i] (enum xid_fate; in progress =
     * FATE_UNKNOWN; NULL = an error that says so). Called from workers, the window's and the
     * stream's thread, several at once: the caller serialises. */
    enum status (*ask_fates)(void *ctx, const TransactionId *xids, size_t n, uint8_t *ret,
                             struct error *err);
    /* A batch for the workers; may block. Takes the batch, also if it fails. */
    enum status (*submit)(void *ctx, struct page_batch *batch, struct error *err);
    /* The relation's file of the seed is gone (TRUNCATE …): its rows are discarded by the stream,
     * so their values need not be there. NULL: none is. Called by load_toasted_submit. */
    bool (*rows_obsolete)(void *ctx, const struct rel_desc *desc);
    /* This table cannot be loaded exactly, its load ends; called once a table, from any thread. */
    void (*table_stopped)(void *ctx, const struct rel_desc *desc, const char *reason);
};

struct load_progress {
    uint64_t bytes_done, bytes_total; /* as the source counts; total is its estimate */
    uint64_t pages, rows;             /* walked, emitted */
    XLogRecPtr start_lsn, end_lsn;    /* 0 = not yet known */
};

struct load;
struct load *load_new(const struct load_options *options);
void load_free(struct load *l); /* after all its threads have left; NULL is fine */

/* What is loaded, replacing what load_new was told: the catalog is read after the backup's start
 * (notes D6), so this is called within `started`, before any page or record has come. */
void load_set_relations(struct load *l, struct rel_desc *const *rels, size_t n);

struct load_window *load_window(struct load *l);

/* Returns once all tar bytes are consumed, what belongs to the shadow is on disk (synced) and every
 * batch has been submitted: needs a running window. ERR_CANCELLED after load_cancel. */
enum status load_backup_run(struct load *l, struct error *err) CHECKED;

/* Wakes every wait of the load; its functions return ERR_CANCELLED from then on. run_backup is the
 * caller's to interrupt. */
void load_cancel(struct load *l);

void load_progress_get(struct load *l, struct load_progress *ret);

/* After load_backup_run has returned, every submitted batch been walked and the window passed
 * end_lsn, before anything changes the shadow's directory: reads the members of older multixacts
 * there, asks for the fates of what is still undecided and submits what they decide. */
enum status load_finish(struct load *l, struct error *err) CHECKED;

/* Tuples that wait for a transaction or for their values, and calls between load_settle_begin and
 * its end. 0 after load_finish and load_toasted_submit and a walk of all batches: it is complete.
 */
uint64_t load_undecided_count(struct load *l);
/* Around what a transaction's end makes: load_fate, the wait for its rows, load_toasted_submit. */
void load_settle_begin(struct load *l);
void load_settle_end(struct load *l);

/* A row whose values lie out of line. */
struct load_toasted_row {
    struct raw_tuple raw;
    uint64_t tid, value_bytes; /* of its values in all */
    TransactionId xid;
    uint8_t kind; /* enum load_row_kind */
};
/* Keeps a row of the batch; copies the tuple. Any thread. */
enum status load_toasted_add(struct load *l, const struct page_batch *batch,
                             const struct load_toasted_row *row, struct error *err) CHECKED;
/* Submits the rows that were kept, as batches with `toasted` set. To be called when the chunks of
 * all batches submitted before are in the store: after the pages have been walked, after
 * load_finish, after what load_fate or load_running_xacts submitted. One thread at a time. */
enum status load_toasted_submit(struct load *l, struct error *err) CHECKED;
/* The rows of such a batch; they point into it. *pos begins at 0. */
enum status load_toasted_next(const struct page_batch *batch, size_t *pos, bool *ret_more,
                              struct load_toasted_row *ret, struct error *err) CHECKED;

/* What is undecided when all pages have been walked, for a restart. Writes it under `path` if it is
 * another than last time. *ret_saved: the file has all that is neither decided nor durable; false:
 * rows are under way, ask again. durable(ctx): whether what was submitted is. */
typedef enum status (*load_durable_fn)(void *ctx, bool *ret_durable, struct error *err);
enum status load_undecided_save(struct load *l, const char *path, load_durable_fn durable,
                                void *ctx, bool *ret_saved, struct error *err) CHECKED;
/* After load_new and load_set_relations, in place of load_backup_run and load_finish. Rows of
 * relations that are not among them are left out, with a warning. */
enum status load_resume(struct load *l, const char *path, TransactionId next_xid,
                        struct error *err) CHECKED;

/* From the stream, for every commit or abort, top-level and listed subtransactions alike. Cheap if
 * nothing waits for the xid; else submits its tuples. */
enum status load_fate(struct load *l, TransactionId xid, bool committed, struct error *err) CHECKED;

/* From the stream, before the fate of xid: it took a speculative row back. */
void load_super_delete(struct load *l, struct rel_file_locator locator, uint64_t tid,
                       TransactionId xid);

/* From the stream at each RUNNING_XACTS: transactions before oldest that have neither committed nor
 * aborted in the stream died with the server. Asked of the source to be sure (a commit may have
 * been logged before the backup's start and yet count as running while it waits for a standby). */
enum status load_running_xacts(struct load *l, TransactionId oldest, struct error *err) CHECKED;
