#include "load/page_batch.h"

#include "load/byte_pipe.h"
#include "load/load_internal.h"

#include <stdlib.h>

struct page_batch *page_batch_new(struct load_rel *rel)
{
    struct page_batch *b = xcalloc(1, sizeof *b);
    b->rel = rel;
    b->desc = rel_desc_ref(rel->desc);
    b->chunks = rel->chunks;
    return b;
}

uint8_t *page_batch_add(struct page_batch *b, BlockNumber block)
{
    uint8_t *page = xmalloc(PG_BLCKSZ);
    CHECK(b->npages < PAGE_BATCH_PAGES);
    b->own |= UINT64_C(1) << b->npages;
    b->blocks[b->npages] = block;
    b->pages[b->npages++] = page;
    return page;
}

void page_batch_lend(struct page_batch *b, BlockNumber block, uint8_t *page, struct byte_memory *m)
{
    CHECK(b->npages < PAGE_BATCH_PAGES);
    if (b->nlent == 0 || b->lent[b->nlent - 1] != m) {
        b->lent[b->nlent++] = byte_memory_ref(m);
        b->lent_bytes += byte_memory_len(m);
    }
    b->blocks[b->npages] = block;
    b->pages[b->npages++] = page;
}

void page_batch_drop(struct page_batch *b, uint64_t dropped)
{
    uint32_t kept = 0;
    uint64_t own = 0;
    for (uint32_t i = 0; i < b->npages; i++) {
        bool is_own = b->own >> i & 1;
        if (dropped >> i & 1) {
            if (is_own)
                free(b->pages[i]);
            continue;
        }
        own |= (uint64_t)is_own << kept;
        b->pages[kept] = b->pages[i];
        b->blocks[kept++] = b->blocks[i];
    }
    b->npages = kept;
    b->own = own;
}

void page_batch_free(struct page_batch *b)
{
    if (b == NULL)
        return;
    rel_desc_unref(b->desc);
    page_batch_drop(b, UINT64_MAX);
    for (uint32_t i = 0; i < b->nlent; i++)
        byte_memory_unref(b->lent[i]);
    free(b->rows);
    free(b);
}

/* A tuple that hint bits and known fates did not decide; its bytes are the batch's. */
struct pending {
    struct page_tuple tuple;
    uint64_t tid;
    struct awaited awaited;
    bool deleting;         /* live until the awaited transaction commits */
    TransactionId deleter; /* it was sent so; else 0 */
};

struct walk {
    const struct page_batch *batch;
    struct load *load;
    load_emit_fn emit;
    void *emit_ctx;
    struct visibility_facts facts;
    struct pending *pending;
    size_t npending, cap_pending;
    uint64_t rows;
};

static enum xid_fate known_fate(void *ctx, TransactionId xid)
{
    return fates_get(ctx, xid);
}

static bool known_end(void *ctx, TransactionId xid)
{
    return fates_has_ended(ctx, xid);
}

static enum updater_fact known_updater(void *ctx, MultiXactId multi, TransactionId *ret_xid)
{
    return fates_updater_get(ctx, multi, ret_xid);
}

static void pending_push(struct walk *w, struct pending pending)
{
    if (w->npending == w->cap_pending) {
        w->cap_pending = MAX(2 * w->cap_pending, 256u);
        w->pending = xrealloc(w->pending, w->cap_pending * sizeof *w->pending);
    }
    w->pending[w->npending++] = pending;
}

static enum status live_emit(struct walk *w, enum load_row_kind kind, const struct page_tuple *t,
                             uint64_t tid, struct error *err)
{
    if (tuple_is_speculative(t) &&
        window_super_deleted(&w->load->window, w->batch->rel, tid, t->xmin))
        return OK;
    w->rows++;
    return w->emit(w->emit_ctx, kind, &t->raw, tid, t->xmin, err);
}

/* deleter: it was sent as LOAD_ROW_DELETING; else 0. */
static enum status tuple_decide(struct walk *w, const struct page_tuple *t, uint64_t tid,
                                TransactionId deleter, struct error *err)
{
    struct awaited awaited;
    const char *reason;
    enum tuple_verdict v = tuple_visibility(t, w->load->next_xid, &w->facts, &awaited, &reason);
    switch (v) {
    case TUPLE_LIVE:
        return deleter != 0 ? OK : live_emit(w, LOAD_ROW_LIVE, t, tid, err);
    case TUPLE_DEAD:
        return deleter == 0 ? OK
                            : w->emit(w->emit_ctx, LOAD_ROW_DELETED, &t->raw, tid, deleter, err);
    case TUPLE_SKIP:
        return OK;
    case TUPLE_UNDECIDED:
    case TUPLE_DELETING:
        pending_push(w, (struct pending){*t, tid, awaited, v == TUPLE_DELETING, deleter});
        return OK;
    case TUPLE_UNSUPPORTED:
        load_rel_stop(w->load, w->batch->rel, "block %u offset %u: %s", (uint32_t)(tid >> 16),
                      (uint32_t)(tid & 0xffff), reason);
        return OK;
    }
    return error_set(err, ERR_BUG, "no such verdict");
}

static enum status page_walk(struct walk *w, const uint8_t *bytes, BlockNumber block,
                             struct error *err)
{
    struct heap_page page;
    struct page_tuple t;
    bool normal;
    if (heap_page_open(bytes, &page, err) != OK)
        return error_prefix(err, "block %u", block);
    for (OffsetNumber i = 1; i <= page.nlines; i++) {
        if (heap_page_tuple(&page, i, &t, &normal, err) != OK)
            return error_prefix(err, "block %u", block);
        if (normal)
            TRY(tuple_decide(w, &t, tid_make(block, i), 0, err));
    }
    return OK;
}

static enum status rows_walk(struct walk *w, struct error *err)
{
    struct undecided_tuple u;
    bool more = true;
    for (size_t pos = 0;;) {
        TRY(undecided_next(w->batch->rows, w->batch->rows_len, &pos, &more, &u, err));
        if (!more)
            return OK;
        TRY(tuple_decide(w, &u.tuple, u.tid, u.deleter, err));
    }
}

static int xid_compare(const void *a, const void *b)
{
    TransactionId x = *(const TransactionId *)a, y = *(const TransactionId *)b;
    return x < y ? -1 : x > y;
}

/* The transactions the pending tuples need, each once. */
static size_t xids_collect(const struct walk *w, TransactionId *ret)
{
    size_t n = 0, unique = 0;
    for (size_t i = 0; i < w->npending; i++)
        if (w->pending[i].awaited.kind == AWAIT_FATE &&
            (n == 0 || w->pending[i].awaited.number != ret[n - 1]))
            ret[n++] = w->pending[i].awaited.number;
    qsort(ret, n, sizeof *ret, xid_compare);
    for (size_t i = 0; i < n; i++)
        if (unique == 0 || ret[i] != ret[unique - 1])
            ret[unique++] = ret[i];
    return unique;
}

/* Decides the pending tuples again; those still without a fate are pending anew. */
static enum status pending_decide(struct walk *w, struct error *err)
{
    struct pending *list = w->pending;
    size_t n = w->npending;
    enum status status = OK;
    w->pending = NULL;
    w->npending = w->cap_pending = 0;
    for (size_t i = 0; i < n && status == OK; i++)
        status = tuple_decide(w, &list[i].tuple, list[i].tid, list[i].deleter, err);
    free(list);
    return status;
}

/* Puts tuples that have to wait into the store; those that are live meanwhile are sent. A fate that
 * arrives meanwhile leaves the tuple pending: it is decided again. */
static enum status pending_store(struct walk *w, struct error *err)
{
    while (w->npending > 0) {
        size_t kept = 0;
        for (size_t i = 0; i < w->npending; i++) {
            struct pending *p = &w->pending[i];
            bool added;
            if (p->deleting && p->deleter == 0) {
                TRY(live_emit(w, LOAD_ROW_DELETING, &p->tuple, p->tid, err));
                p->deleter = p->awaited.number;
            }
            tuple_updater_settle(&p->tuple, &w->facts); /* a restart does not know the members */
            const struct undecided_tuple u = {p->tuple, p->tid, p->deleter};
            TRY(undecided_add(w->load->undecided, w->batch->rel, p->awaited, &u, &added, err));
            if (!added)
                w->pending[kept++] = *p;
        }
        w->npending = kept;
        TRY(pending_decide(w, err));
    }
    return OK;
}

/* What the hint bits left open is asked for once a batch: first the inserting, then, for rows whose
 * insert turns out committed, the deleting transactions. */
static enum status pending_settle(struct walk *w, struct error *err)
{
    for (int round = 0; round < 2 && w->npending > 0; round++) {
        CLEANUP_FREE TransactionId *xids = xmalloc(w->npending * sizeof *xids);
        size_t n = xids_collect(w, xids);
        TRY(load_ask(w->load, xids, n, err));
        TRY(pending_decide(w, err));
    }
    return pending_store(w, err);
}

static enum status batch_walk(struct walk *w, struct error *err)
{
    const struct page_batch *b = w->batch;
    for (uint32_t i = 0; i < b->npages; i++) {
        TRY(load_check(w->load, err));
        if (atomic_load_explicit(&b->rel->stopped, memory_order_relaxed))
            break;
        TRY(page_walk(w, b->pages[i], b->blocks[i], err));
    }
    if (b->rows != NULL)
        TRY(rows_walk(w, err));
    return pending_settle(w, err);
}

enum status page_batch_walk(const struct page_batch *batch, struct load *load, load_emit_fn emit,
                            void *emit_ctx, struct error *err)
{
    struct walk w = {
        .batch = batch,
        .load = load,
        .emit = emit,
        .emit_ctx = emit_ctx,
        .facts = {load->fates, known_fate, known_end, known_updater},
    };
    if (atomic_load(&batch->rel->stopped))
        return OK;
    enum status status = batch_walk(&w, err);
    free(w.pending);
    atomic_fetch_add(&load->pages, batch->npages);
    atomic_fetch_add(&load->rows, w.rows);
    if (status == ERR_DATA)
        return error_prefix(err, "initial load of %s.%s", batch->desc->schema, batch->desc->name);
    return status;
}
