/* Collects finished blocks per table and seals a batch (one INSERT) on rows, bytes, deadline, or at
 * once while a barrier waits. One thread a destination. */
#include "pipeline/destination.h"

#include <stdlib.h>
#include <uthash.h>

#define WINDOW_MAX_NS 2000000000u
#define BATCH_ROWS_MAX 1000000u /* below the squashing limit: one INSERT is one part (B3) */

struct open_batch {
    struct target *target; /* key: by pointer, a new shape is a new target */
    struct batch *batch;
    uint64_t last_ns;
    UT_hash_handle hh;
};

struct batcher {
    struct destination *d;
    struct open_batch *tables;
};

void block_item_free(struct block_pool *blocks, struct budget *budget, struct block_item *item)
{
    block_pool_give(blocks, item->block);
    target_unref(item->target);
    budget_release(budget, &item->permit);
    free(item);
}

void batch_free(struct block_pool *blocks, struct budget *budget, struct batch *b)
{
    if (b == NULL)
        return;
    for (struct block_item *i = b->items, *next; i != NULL; i = next) {
        next = i->next;
        block_item_free(blocks, budget, i);
    }
    target_unref(b->target);
    free(b);
}

/* Clickhouse-notes 18: the more tables are written at once, the longer a table's rows wait. */
static uint64_t window_ns(const struct batcher *b)
{
    const struct destination *d = b->d;
    uint64_t mean = atomic_load(&d->insert_ns);
    unsigned n = MAX(d->options.inserters, 1u);
    uint64_t spread = HASH_COUNT(b->tables) * mean * 2 / n;
    return MIN(MAX(d->options.flush_ns, spread), (uint64_t)WINDOW_MAX_NS);
}

static enum status seal(struct batcher *b, struct open_batch *o, struct error *err)
{
    struct batch *batch = o->batch;
    o->batch = NULL;
    enum status st = queue_push(&b->d->batches, batch, batch->bytes, err);
    if (st != OK)
        batch_free(b->d->options.blocks, b->d->options.budget, batch);
    return st;
}

static struct open_batch *table_get(struct batcher *b, struct target *target)
{
    struct open_batch *o;
    HASH_FIND_PTR(b->tables, &target, o);
    if (o == NULL) {
        o = xcalloc(1, sizeof *o);
        o->target = target_ref(target);
        HASH_ADD_PTR(b->tables, target, o);
    }
    return o;
}

static void batch_add(struct batch *batch, struct block_item *item)
{
    item->next = NULL;
    *batch->tail = item;
    batch->tail = &item->next;
    batch->nblocks++;
    batch->rows += item->block->rows;
    batch->bytes += item->bytes;
}

/* A barrier waits. What is queued already still goes together: one INSERT a block would take it
 * long. */
static bool is_flushing(struct destination *d)
{
    return atomic_load(&d->flush_now) > 0 && queue_is_empty(&d->blocks);
}

static enum status take_block(struct batcher *b, struct block_item *item, struct error *err)
{
    struct destination *d = b->d;
    struct open_batch *o = table_get(b, item->target);
    uint64_t now = clock_now_ns();
    if (o->batch != NULL && o->batch->rows + item->block->rows > BATCH_ROWS_MAX)
        TRY(seal(b, o, err));
    if (o->batch == NULL) {
        o->batch = xcalloc(1, sizeof *o->batch);
        o->batch->target = target_ref(item->target);
        o->batch->tail = &o->batch->items;
        o->batch->deadline_ns = now + window_ns(b);
    }
    o->last_ns = now;
    batch_add(o->batch, item);
    if (o->batch->rows >= d->options.row_budget || o->batch->bytes >= d->options.byte_budget ||
        is_flushing(d))
        return seal(b, o, err);
    return OK;
}

/* Seals what is due; *ret_next is the nearest deadline. Tables idle for long are forgotten. */
static enum status seal_due(struct batcher *b, bool all, uint64_t *ret_next, struct error *err)
{
    uint64_t now = clock_now_ns();
    struct open_batch *o, *next;
    *ret_next = UINT64_MAX;
    HASH_ITER (hh, b->tables, o, next) {
        if (o->batch != NULL && (all || o->batch->deadline_ns <= now))
            TRY(seal(b, o, err));
        if (o->batch != NULL) {
            *ret_next = MIN(*ret_next, o->batch->deadline_ns);
        } else if (now - o->last_ns > WINDOW_MAX_NS) {
            HASH_DEL(b->tables, o);
            target_unref(o->target);
            free(o);
        }
    }
    return OK;
}

static void tables_free(struct batcher *b)
{
    struct open_batch *o, *next;
    HASH_ITER (hh, b->tables, o, next) {
        HASH_DEL(b->tables, o);
        batch_free(b->d->options.blocks, b->d->options.budget, o->batch);
        target_unref(o->target);
        free(o);
    }
}

static struct block_item flush_marker; /* wakes the batcher when a barrier begins to wait */

void destination_batcher_wake(struct destination *d)
{
    enum status st = queue_push_urgent(&d->blocks, &flush_marker, NULL);
    (void)st; /* closed: it is flushing everything anyway */
}

static void discard_rest(struct destination *d)
{
    struct block_item *item;
    queue_close(&d->blocks);
    while ((item = queue_pop(&d->blocks)) != NULL)
        if (item != &flush_marker)
            block_item_free(d->options.blocks, d->options.budget, item);
}

void *destination_batcher_main(void *arg)
{
    struct batcher b = {.d = arg};
    struct error err;
    uint64_t next = UINT64_MAX;
    enum status st = OK;
    pthread_setname_np(pthread_self(), "batcher");
    while (st == OK) {
        bool closed = false;
        struct block_item *item = queue_pop_until(&b.d->blocks, next, &closed);
        if (item != NULL && item != &flush_marker)
            st = take_block(&b, item, &err);
        if (st == OK)
            st = seal_due(&b, closed || is_flushing(b.d), &next, &err);
        if (closed)
            break;
    }
    if (st != OK)
        discard_rest(b.d);
    queue_close(&b.d->batches);
    tables_free(&b);
    return NULL;
}
