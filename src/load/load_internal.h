/* What the files of load/ share. */
#pragma once
#include "base/budget.h"
#include "base/fatal.h"
#include "load/fates.h"
#include "load/load.h"
#include "load/undecided.h"

#include <pthread.h>
#include <stdatomic.h>

/* Blocks, two-level: pages of 32768 bits. */
struct block_set {
    uint64_t **pages;
    uint32_t npages;
};
bool block_set_has(const struct block_set *s, BlockNumber block);
bool block_set_add(struct block_set *s, BlockNumber block); /* false: it was there */
void block_set_free(struct block_set *s);

struct load_rel {
    struct rel_desc *desc;
    struct rel_file_locator locator;
    bool chunks; /* the file is desc's TOAST table */
    atomic_bool stopped;
    /* guarded by load_window.lock */
    struct block_set covered; /* an image or INIT is in the WAL: the tar copy does not count */
    uint32_t *accepted;       /* per segment file: blocks below it were accepted from the tar */
    uint32_t nsegments;
    struct page_batch *images; /* guarded by load_window.images_lock */
    struct buf toasted_rows;   /* guarded by the lock of load->toasted */
};

/* blocks of one segment file: RELSEG_SIZE of every stock build (1 GiB) */
#define LOAD_SEGMENT_BLOCKS 131072u

/* A speculative row that was taken back. */
struct super_delete {
    const struct load_rel *rel;
    uint64_t tid;
    TransactionId xid;
};

struct load_window {
    struct load *load;
    pthread_mutex_t images_lock; /* before lock; guards the rels' images and what follows */
    uint32_t pending_pages;      /* of all rels' images */
    bool images_done;            /* the tar is through: images of later records are not needed */
    pthread_mutex_t lock;        /* guards the rels' sets, super_deletes, waiting on `moved` */
    pthread_cond_t moved;        /* passed has reached `awaited`, or the load is cancelled */
    _Atomic XLogRecPtr passed, awaited;
    struct super_delete *super_deletes;
    size_t nsuper_deletes, cap_super_deletes;
    /* of the backup's checkpoint; 0 before it was seen. The window's thread's, then load_finish's
     */
    MultiXactId next_multi;
    MultiXactOffset next_multi_offset;
};
void window_init(struct load_window *w, struct load *l);
void window_fini(struct load_window *w);
/* Blocks until passed >= lsn; ERR_CANCELLED. */
enum status window_wait(struct load_window *w, XLogRecPtr lsn, struct error *err) CHECKED;
/* Takes the blocks out of the batch whose images are walked instead and notes the rest as accepted.
 * The batch is one run of a file, as it came from the tar. */
void window_accept(struct load_window *w, struct page_batch *batch);
/* A speculative row of a transaction below N was taken back. */
void window_super_delete_note(struct load_window *w, const struct load_rel *rel, uint64_t tid,
                              TransactionId xid);
bool window_super_deleted(struct load_window *w, const struct load_rel *rel, uint64_t tid,
                          TransactionId xid);
/* No image counts any more; submits what is pending. */
enum status window_images_finish(struct load_window *w, struct error *err) CHECKED;

/* Members of multixacts, from the pg_multixact that has landed in data_dir (members.c). One thread.
 */
struct members;
struct members *members_new(const char *data_dir, MultiXactId next_multi,
                            MultiXactOffset next_offset);
void members_free(struct members *m);
/* Who updates in a multixact below next_multi; *ret_xid only for UPDATER_XID. UPDATER_LOST: the
 * files do not have it. ERR_CONFIG if a file cannot be read, ERR_DATA if it is damaged. */
enum status members_updater(struct members *m, MultiXactId multi, enum updater_fact *ret,
                            TransactionId *ret_xid, struct error *err) CHECKED;

/* Rows that wait for their values (toasted.c). */
struct toasted;
struct toasted *toasted_new(const char *spill_dir, size_t max_bytes);
void toasted_free(struct toasted *t);
uint64_t toasted_count(const struct toasted *t);

/* The split thread: archives from the pipe, pages to release (heap_sink.c). */
struct heap_sink;
struct heap_sink *heap_sink_new(struct load *l);
void heap_sink_free(struct heap_sink *s);
/* Reads archives until the pipe ends. */
enum status heap_sink_run(struct heap_sink *s, struct error *err) CHECKED;

/* Batches that wait for the window (release.c). */
struct release;
struct release *release_new(struct load *l, size_t max_bytes);
enum status release_start(struct release *r, struct error *err) CHECKED;
/* Takes the batch, also on failure; blocks while too many bytes wait. */
enum status release_push(struct release *r, struct page_batch *batch, struct error *err) CHECKED;
/* No more batches: waits until all have been submitted, returns the thread's outcome. */
enum status release_join(struct release *r, struct error *err) CHECKED;
void release_cancel(struct release *r);
void release_free(struct release *r);

/* Tests, in builds with fault points (tear.c): spoils pages that the WAL has too; loses the members
 * of multixacts. */
void load_tear_pages(struct load *l, struct page_batch *batch);
bool load_members_lost(void);

struct load {
    struct load_options options;
    char *shadow_dir;
    struct load_rel *rels;
    size_t nrels;
    struct load_rel **by_locator; /* open addressing, a power of two */
    size_t by_locator_mask;
    struct fates *fates;
    struct undecided *undecided;
    struct toasted *toasted;
    struct load_window window;
    struct release *release;
    struct byte_pipe *pipe;
    struct heap_sink *sink;
    TransactionId next_xid; /* N; set before the window starts */
    atomic_bool cancelled;
    atomic_bool finishing;  /* from load_finish on the window submits what a fate decides */
    uint64_t saved_version; /* of undecided, as the file has it; of the status thread */
    atomic_uint submitting; /* calls between taking decided tuples and having submitted them */
    struct fatal failure;
    atomic_uint_least64_t bytes_done, bytes_total, pages, rows;
    _Atomic XLogRecPtr start_lsn, end_lsn;
};

/* A thread of the load failed: notes the first error, ends the others. Any thread. */
void load_fail(struct load *l, const struct error *err);

struct load_rel *load_rel_find(const struct load *l, struct rel_file_locator locator);
/* Calls table_stopped the first time. */
void load_rel_stop(struct load *l, struct load_rel *rel, const char *fmt, ...) PRINTF(3, 4);
struct page_batch *page_batch_new(struct load_rel *rel);
/* One more page, in room of the batch's own that the caller fills, or in lent memory. At most
 * PAGE_BATCH_PAGES. */
uint8_t *page_batch_add(struct page_batch *b, BlockNumber block);
void page_batch_lend(struct page_batch *b, BlockNumber block, uint8_t *page, struct byte_memory *m);
void page_batch_drop(struct page_batch *b, uint64_t dropped); /* pages, one bit each */
enum status load_submit(struct load *l, struct page_batch *batch, struct error *err) CHECKED;
/* Asks the source; answers other than "in progress" are noted in fates. */
enum status load_ask(struct load *l, const TransactionId *xids, size_t n,
                     struct error *err) CHECKED;
static inline enum status load_check(const struct load *l, struct error *err)
{
    if (atomic_load_explicit(&l->cancelled, memory_order_acquire))
        return error_set(err, ERR_CANCELLED, "the initial load was cancelled");
    return OK;
}
