/* What the load hands to the pipeline's workers: pages of one relation, or rows that had to wait
 * for the fate of a transaction. Belongs to one thread at a time; ownership moves with the pointer.
 */
#pragma once
#include "catalog/descriptor.h"
#include "pg/page.h"

#define PAGE_BATCH_PAGES 64 /* bits of page_batch.own */

struct load;
struct load_rel;
struct byte_memory;

struct page_batch {
    struct rel_desc *desc; /* a reference of the batch's own */
    struct load_rel *rel;  /* private to load/ */
    uint32_t npages;
    BlockNumber
        blocks[PAGE_BATCH_PAGES];     /* not always contiguous: blocks with an image are left out */
    uint8_t *pages[PAGE_BATCH_PAGES]; /* not aligned */
    uint64_t own;                     /* pages that are its own, the others lie in lent memory */
    struct byte_memory *lent[PAGE_BATCH_PAGES]; /* references */
    uint32_t nlent;
    size_t lent_bytes;
    XLogRecPtr accept_lsn; /* released once the window has passed it */
    bool chunks;           /* its rows are chunks of desc's TOAST table */
    bool toasted;          /* rows are for load_toasted_next, not for page_batch_walk */
    size_t value_bytes;    /* plain bytes of external values they refer to */
    uint8_t *rows;         /* instead of pages: tuples that waited (private form) */
    size_t rows_len;
    uint64_t nrows;
};

/* Bytes to account for a batch that is queued. */
static inline size_t page_batch_bytes(const struct page_batch *b)
{
    return sizeof *b + (size_t)__builtin_popcountll(b->own) * PG_BLCKSZ + b->lent_bytes +
           b->rows_len;
}
void page_batch_free(struct page_batch *b); /* NULL is fine */

/* A row that is updated or deleted by a transaction that runs is there until that commits, as it is
 * at the source. What comes later must win: these are in the order of the _lsn they are given, the
 * last one of the backup's start - 1, so that the stream wins over all. */
enum load_row_kind {
    LOAD_ROW_DELETING, /* live; LOAD_ROW_DELETED may follow */
    LOAD_ROW_DELETED,  /* the transaction has committed */
    LOAD_ROW_LIVE,
};

/* One tuple. It points into the batch. tid: tid_make. xid: who inserted it, or deleted it. The
 * row's _commit_ts is 1970-01-01. */
typedef enum status (*load_emit_fn)(void *ctx, enum load_row_kind kind,
                                    const struct raw_tuple *tuple, uint64_t tid, TransactionId xid,
                                    struct error *err);

/* Emits every live tuple of the batch; those that wait for a transaction, or for the members of a
 * multixact, are copied into the load's store. Runs in any number of threads at once, on batches of
 * their own; may ask the source for fates (load_options.ask_fates). Does not free the batch. A
 * table that has been stopped emits nothing. ERR_DATA for a damaged page names relation, block and
 * reason; emit's failure is returned. */
enum status page_batch_walk(const struct page_batch *batch, struct load *load, load_emit_fn emit,
                            void *emit_ctx, struct error *err) CHECKED;
