#include "pipeline/worker.h"

#include <stdlib.h>
#include <string.h>

#define SCRATCH_KEEP ((size_t)1 << 20)
#define PG_EPOCH_US INT64_C(946684800000000)

static void scratch_reserve(struct worker *w, size_t natts)
{
    if (natts <= w->datums_cap)
        return;
    size_t cap = MAX(natts, (size_t)64);
    w->datums = xrealloc(w->datums, cap * sizeof *w->datums);
    w->old_datums = xrealloc(w->old_datums, cap * sizeof *w->old_datums);
    w->plain = xrealloc(w->plain, cap * sizeof *w->plain);
    w->old_plain = xrealloc(w->old_plain, cap * sizeof *w->old_plain);
    memset(w->plain + w->datums_cap, 0, (cap - w->datums_cap) * sizeof *w->plain);
    memset(w->old_plain + w->datums_cap, 0, (cap - w->datums_cap) * sizeof *w->old_plain);
    w->datums_cap = cap;
}

static enum status append_everywhere(struct worker *w, const struct route *route,
                                     const struct datum *datums, const struct row_meta *meta,
                                     struct error *err)
{
    for (; route != NULL; route = route->fresh)
        for (size_t d = 0; d < route->ndestinations; d++)
            if (route->targets[d].target != NULL)
                TRY(row_append(w, route, d, datums, meta, err));
    return OK;
}

struct datum *worker_datums(struct worker *w, size_t natts, struct buf **ret_room)
{
    scratch_reserve(w, natts);
    *ret_room = w->plain;
    return w->datums;
}

enum status worker_add_datums(struct worker *w, const struct route *route,
                              const struct row_meta *meta, struct error *err)
{
    return append_everywhere(w, route, w->datums, meta, err);
}

enum status worker_add_new(struct worker *w, const struct route *route,
                           const struct raw_tuple *tuple, const struct aux_frame *aux,
                           unsigned naux, const struct row_meta *meta, struct error *err)
{
    scratch_reserve(w, route->desc->natts);
    TRY(tuple_deform(route->desc->shape, tuple, w->datums, err));
    TRY(row_resolve(w, route, meta->lsn, w->datums, aux, naux, w->plain, err));
    return append_everywhere(w, route, w->datums, meta, err);
}

static enum status append_tombstone(struct worker *w, const struct route *route, size_t d,
                                    const struct row_meta *meta, bool has_old,
                                    const struct datum *new_datums, struct error *err)
{
    bool differs = true;
    if (!route->targets[d].target->has_ctid) {
        if (!has_old)
            return OK; /* an UPDATE that did not touch the key */
        if (new_datums != NULL)
            TRY(row_key_differs(w, route, d, w->old_datums, new_datums, &differs, err));
    }
    return differs ? row_append(w, route, d, w->old_datums, meta, err) : OK;
}

/* The row's old version goes away under its key: the key of the old tuple, or its TID. */
static enum status add_tombstone(struct worker *w, const struct route *route,
                                 const struct change_frame *f, struct row_meta meta,
                                 const struct datum *new_datums, struct error *err)
{
    bool has_old = (f->head.flags & FRAME_HAS_OLD) != 0;
    meta.lsn = f->head.lsn; /* ordinal 0 */
    meta.tid = f->old_tid;
    meta.deleted = true;
    if (has_old) {
        struct raw_tuple old = change_frame_old(f);
        TRY(tuple_deform(route->desc->shape, &old, w->old_datums, err));
        /* old keys are flattened by PostgreSQL; a whole old row may hold pointers outside the key
         */
        for (unsigned i = 0; i < route->desc->natts; i++)
            if (w->old_datums[i].state == DATUM_EXTERNAL)
                w->old_datums[i].state = DATUM_NULL;
        TRY(row_resolve(w, route, f->head.lsn, w->old_datums, NULL, 0, w->old_plain, err));
    }
    for (; route != NULL; route = route->fresh)
        for (size_t d = 0; d < route->ndestinations; d++)
            if (route->targets[d].target != NULL)
                TRY(append_tombstone(w, route, d, &meta, has_old, new_datums, err));
    return OK;
}

enum status worker_add_change(struct worker *w, const struct route *route,
                              const struct change_frame *f, const struct aux_frame *aux,
                              struct error *err)
{
    struct row_meta meta = {
        .lsn = f->head.lsn + 1 + f->head.ordinal,
        .xid = f->head.xid,
        .commit_us = f->commit_ts + PG_EPOCH_US,
        .tid = f->new_tid,
    };
    scratch_reserve(w, route->desc->natts);
    if (f->kind == CHANGE_DELETE)
        return add_tombstone(w, route, f, meta, NULL, err);
    struct raw_tuple tuple = change_frame_new(f);
    TRY(tuple_deform(route->desc->shape, &tuple, w->datums, err));
    TRY(row_resolve(w, route, f->head.lsn, w->datums, aux, f->naux, w->plain, err));
    if (f->kind == CHANGE_UPDATE)
        TRY(add_tombstone(w, route, f, meta, w->datums, err));
    return append_everywhere(w, route, w->datums, &meta, err);
}

static void builder_fini(struct worker *w, struct builder *b)
{
    block_pool_give(w->shared->blocks, b->block);
    target_unref(b->target);
}

void worker_discard(struct worker *w)
{
    for (size_t i = 0; i < w->nbuilders; i++)
        builder_fini(w, &w->builders[i]);
    w->nbuilders = 0;
    stored_clear(&w->stored);
}

static bool builder_is_sent(const struct builder *b)
{
    return !b->spoiled && b->block->rows > 0 &&
           (b->table == NULL || (table_is_live(b->table) && target_is_open(b->target)));
}

/* The block's bytes: from the permit what it can give, the rest is waited for. */
static enum status block_charge(struct worker *w, struct block_item *item,
                                struct budget_permit *permit, size_t keep, struct error *err)
{
    size_t held = budget_permit_bytes(permit);
    size_t moved =
        budget_permit_move(permit, &item->permit, MIN(item->bytes, held - MIN(held, keep)));
    return budget_grow(w->shared->budget, item->bytes - moved, &item->permit, err);
}

static enum status builder_send(struct worker *w, struct builder *b, struct ack *ack, uint64_t seq,
                                struct budget_permit *permit, size_t keep, struct error *err)
{
    struct block_item *item = xcalloc(1, sizeof *item);
    *item = (struct block_item){
        .block = b->block,
        .target = b->target,
        .ack = ack,
        .seq = seq,
        .bytes = block_bytes(b->block) + sizeof *item,
        .rows_counter = b->table == NULL ? NULL : &b->table->rows[b->destination],
    };
    enum status st = block_charge(w, item, permit, keep, err);
    if (st != OK) {
        block_item_free(w->shared->blocks, w->shared->budget, item);
        return st;
    }
    ack_add(ack, seq, 1);
    return destination_push(w->shared->destinations[b->destination], item, err);
}

size_t worker_built_bytes(const struct worker *w)
{
    size_t bytes = 0;
    for (size_t i = 0; i < w->nbuilders; i++)
        bytes += block_bytes(w->builders[i].block);
    return bytes;
}

enum status worker_send(struct worker *w, struct ack *const *acks, const uint64_t *seqs,
                        struct budget_permit *permit, size_t keep, struct error *err)
{
    enum status st = OK;
    for (size_t i = 0; i < w->nbuilders; i++) {
        struct builder *b = &w->builders[i];
        if (st == OK && builder_is_sent(b))
            st = builder_send(w, b, acks[b->destination], seqs[b->destination], permit, keep, err);
        else
            builder_fini(w, b);
    }
    w->nbuilders = 0;
    return st;
}

/* Large values need not come again soon. */
static void scratch_shrink(struct worker *w)
{
    for (size_t i = 0; i < w->datums_cap; i++) {
        if (w->plain[i].cap > SCRATCH_KEEP)
            buf_free(&w->plain[i]);
        if (w->old_plain[i].cap > SCRATCH_KEEP)
            buf_free(&w->old_plain[i]);
    }
    stored_clear(&w->stored);
}

enum status worker_finish(struct worker *w, struct ack *const *acks, const uint64_t *seqs,
                          struct budget_permit *permit, struct error *err)
{
    TRY(worker_send(w, acks, seqs, permit, 0, err));
    scratch_shrink(w);
    budget_release(w->shared->budget, permit);
    for (size_t d = 0; d < w->shared->ndestinations; d++)
        ack_done(acks[d], seqs[d], 1);
    return OK;
}

void *worker_main(void *arg)
{
    struct worker w = {.shared = arg};
    struct job *job;
    pthread_setname_np(pthread_self(), "decode");
    while ((job = queue_pop(w.shared->jobs)) != NULL) {
        if (fatal_is_set(w.shared->fatal))
            job->discard(job, w.shared->budget);
        else
            job->run(&w, job);
    }
    worker_discard(&w);
    for (size_t i = 0; i < w.datums_cap; i++) {
        buf_free(&w.plain[i]);
        buf_free(&w.old_plain[i]);
    }
    free(w.plain);
    stored_fini(&w.stored);
    free(w.old_plain);
    free(w.datums);
    free(w.old_datums);
    free(w.builders);
    buf_free(&w.key_old.data);
    buf_free(&w.key_old.nulls);
    buf_free(&w.key_new.data);
    buf_free(&w.key_new.nulls);
    return NULL;
}
