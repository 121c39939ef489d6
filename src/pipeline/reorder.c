#include "pipeline/resync.h"
#include "base/fault.h"
#include "base/log.h"

#include <stdlib.h>

#define LARGE_BYTES ((uint64_t)64 << 20) /* worth a word while it takes its time */
#define SLICE_BUILT_MAX ((size_t)4 << 20)
#define SLICE_WORTH_BYTES ((size_t)512 << 10)
#define PG_EPOCH_US INT64_C(946684800000000)

void reorder_init(struct reorder *r)
{
    r->xacts = xact_buffer_new(r->options.spill_dir, r->options.xact_buffer_max, r->budget);
    r->routes = routes_new(r->tables, r->history);
    r->toast = toast_index_new(r->options.spill_dir);
    r->commits = commit_window_new();
    r->toast_feed = toast_feed_new(r->toast_store, r->history);
    atomic_store(&r->load_guard, r->options.load_xid != InvalidTransactionId);
}

void reorder_fini(struct reorder *r)
{
    slice_free(r->slice);
    xact_buffer_free(r->xacts);
    routes_free(r->routes);
    toast_index_free(r->toast);
    free(r->commits);
    toast_feed_free(r->toast_feed);
    generations_forget(r);
    free(r->datums);
}

/* What was built so far goes on its way once it is large: a few frames may make many bytes. The
 * frames stay charged as long as they are there. */
static enum status flush_large(struct worker *w, struct slice *s, struct ack *const *acks,
                               struct error *err)
{
    return worker_built_bytes(w) < SLICE_BUILT_MAX
               ? OK
               : worker_send(w, acks, s->seqs, &s->permit, s->frames.len, err);
}

static void slice_run(struct worker *w, struct job *job)
{
    struct slice *s = (struct slice *)job;
    struct error err = {0};
    struct ack **acks = xcalloc(s->ndestinations, sizeof(struct ack *));
    for (size_t d = 0; d < s->ndestinations; d++)
        acks[d] = w->shared->destinations[d]->ack;
    w->rows_hint = s->nrows / MAX(s->nroutes, 1) + 16;
    stored_note_slice(w, s);
    enum status st = stored_ask(w, &err);
    uint32_t rows = 0, plain;
    for (size_t at = 0; at < s->frames.len && st == OK;) {
        at += row_run_add(w, s->routes, s->frames.data + at, s->frames.len - at, &plain);
        if (plain > 0) {
            st = flush_large(w, s, acks, &err);
            continue;
        }
        const struct change_frame *f = (const struct change_frame *)(s->frames.data + at);
        const struct aux_frame *aux = (const struct aux_frame *)((const uint8_t *)f + f->head.len);
        at += f->head.len;
        for (unsigned i = 0; i < f->naux; i++)
            at += ((const struct frame_head *)(s->frames.data + at))->len;
        st = worker_add_change(w, s->routes[f->route], f, aux, &err);
        if (st == ERR_DATA) /* a value's own bytes are damaged: this table ends, not the stream */
            st = tables_stop(w->shared->tables, s->routes[f->route]->table->oid, f->head.lsn,
                             err.message, &err);
        if (st == OK && (++rows % 64 == 0 || change_frame_has_external(f)))
            st = flush_large(w, s, acks, &err);
    }
    if (st == OK)
        st = worker_finish(w, acks, s->seqs, &s->permit, &err);
    else
        worker_discard(w);
    free(acks);
    slice_free(s);
    if (st != OK)
        fatal_raise(w->shared->fatal, &err);
}

static void slice_discard(struct job *job, struct budget *budget)
{
    (void)budget;
    slice_free((struct slice *)job);
}

enum status reorder_slice_open(struct reorder *r, XLogRecPtr first_lsn, struct error *err)
{
    (void)err;
    if (r->slice != NULL) {
        for (size_t d = 0; d < r->ndestinations; d++)
            ack_lower_first(r->destinations[d]->ack, r->slice->seqs[d], first_lsn);
        return OK;
    }
    r->slice = slice_new(r->ndestinations, r->budget);
    r->slice->job.run = slice_run;
    r->slice->job.discard = slice_discard;
    for (size_t d = 0; d < r->ndestinations; d++)
        r->slice->seqs[d] = ack_register(r->destinations[d]->ack, first_lsn);
    return OK;
}

enum status reorder_slice_dispatch(struct reorder *r, struct error *err)
{
    struct slice *s = r->slice;
    if (s == NULL)
        return OK;
    /* the columns made of it take about as much as the raw tuples */
    size_t bytes = 2 * s->frames.len + s->value_bytes + sizeof *s;
    TRY(budget_admit(r->budget, bytes, &s->permit, err));
    s->job.bytes = bytes;
    r->slice = NULL;
    enum status st = queue_push(r->jobs, s, bytes, err);
    if (st != OK)
        slice_free(s);
    FAULT_POINT("slice-dispatched");
    return st;
}

enum status reorder_barrier(struct reorder *r, struct error *err)
{
    TRY(reorder_slice_dispatch(r, err));
    for (size_t d = 0; d < r->ndestinations; d++)
        TRY(destination_barrier(r->destinations[d], r->destinations[d]->ack, err));
    return r->options.hooks.barrier == NULL ? OK
                                            : r->options.hooks.barrier(r->options.hooks.ctx, err);
}

enum status reorder_fence(struct reorder *r, struct error *err)
{
    TRY(reorder_barrier(r, err));
    return r->options.hooks.save == NULL ? OK
                                         : r->options.hooks.save(r->options.hooks.save_ctx, err);
}

static enum status tell_fates(struct reorder *r, const struct xact_frame *f, bool committed,
                              struct error *err)
{
    const struct reorder_hooks *h = &r->options.hooks;
    const TransactionId *subs = xact_frame_subs(f);
    if (h->fate == NULL)
        return OK;
    TRY(h->fate(h->ctx, f->head.xid, committed, err));
    for (uint32_t i = 0; i < f->nsub; i++)
        TRY(h->fate(h->ctx, subs[i], committed, err));
    return OK;
}

static void tell_super_delete(struct reorder *r, const struct change_frame *f)
{
    const struct reorder_hooks *h = &r->options.hooks;
    if (f->kind == CHANGE_SPEC_DELETE && h->super_delete != NULL)
        h->super_delete(h->ctx, f->locator, f->old_tid, f->head.xid);
}

static enum status commit(struct reorder *r, const struct xact_frame *f, struct error *err)
{
    /* rows of the initial load that waited for it are durable before it can be acknowledged */
    TRY(tell_fates(r, f, true, err));
    struct xact *x = xact_buffer_take(r->xacts, f->head.xid, xact_frame_subs(f), f->nsub);
    bool durable = f->end <= r->options.skip_until;
    commit_window_add(r->commits, f->head.xid);
    enum status st = OK;
    if (f->head.flags & XACT_BOUNDARY)
        routes_forget(r->routes);
    if (x != NULL && xact_bytes(x) >= LARGE_BYTES) {
        atomic_store(&r->draining_bytes, xact_bytes(x));
        atomic_store(&r->draining, f->head.xid);
    }
    if (x != NULL || (f->head.flags & XACT_BOUNDARY))
        st = durable ? drain_chunks(r, x, f, err) : drain_xact(r, x, f, err);
    /* also one that put no row into a slice holds the floor until the ack has passed its end: a
     * restart reads it whole or not at all. Shape changes are not followed by what was before them.
     */
    if (st == OK && !durable && x != NULL && xact_bytes(x) > 0)
        st = reorder_slice_open(r, xact_first_lsn(x), err);
    else if (st == OK && !durable && (f->head.flags & XACT_BOUNDARY))
        st = reorder_slice_open(r, f->head.lsn, err);
    if (st == OK && r->slice != NULL)
        for (size_t d = 0; d < r->ndestinations; d++)
            ack_set_lsn(r->destinations[d]->ack, r->slice->seqs[d], f->end,
                        f->commit_ts + PG_EPOCH_US);
    xact_buffer_release(r->xacts, x);
    atomic_store_explicit(&r->draining, 0, memory_order_relaxed);
    TRY(st);
    if (f->head.flags & XACT_BOUNDARY)
        routes_forget(r->routes);
    atomic_store(&r->commit_lsn, f->end);
    atomic_fetch_add(&r->committed, 1);
    FAULT_POINT("reorder-after-commit");
    return OK;
}

static enum status running(struct reorder *r, const struct running_frame *f, struct error *err)
{
    const struct reorder_hooks *h = &r->options.hooks;
    xact_buffer_running(r->xacts, f->oldest_running);
    commit_window_running(r->commits, f->next_xid);
    if (atomic_load(&r->load_guard) && !xid_precedes(f->oldest_running, r->options.load_xid))
        atomic_store(&r->load_guard, false);
    return h->running == NULL ? OK : h->running(h->ctx, f->oldest_running, err);
}

static enum status shapes_known(struct reorder *r, const struct shapes_frame *f, struct error *err)
{
    routes_forget(r->routes);
    /* the position may have been acknowledged before the look */
    if (f->end > r->options.skip_until ||
        history_next_seen(r->history, f->end - 1, UINT64_MAX) == f->end)
        TRY(ddl_shapes_known(r, f->end, err));
    routes_forget(r->routes);
    return history_seen_done(r->history, f->end, err);
}

/* The first frame, or several; *ret_len: the bytes taken. */
static enum status take_frames(struct reorder *r, const struct frame_head *head, size_t len,
                               size_t *ret_len, struct error *err)
{
    const struct xact_frame *xf = (const struct xact_frame *)head;
    *ret_len = head->len;
    switch ((enum frame_type)head->type) {
    case FRAME_CHANGE:
        tell_super_delete(r, (const struct change_frame *)head);
        return xact_buffer_add_run(r->xacts, head, len, ret_len, err);
    case FRAME_TRUNCATE:
    case FRAME_PAGES:
        return xact_buffer_add(r->xacts, head, err);
    case FRAME_SEEN:
        xact_buffer_seen(r->xacts, head->xid, head->top_xid, head->lsn);
        return OK;
    case FRAME_COMMIT:
        return commit(r, xf, err);
    case FRAME_ABORT:
        xact_buffer_abort(r->xacts, head->xid, xact_frame_subs(xf), xf->nsub);
        atomic_fetch_add(&r->aborted, 1);
        return tell_fates(r, xf, false, err);
    case FRAME_PREPARE:
        xact_buffer_prepare(r->xacts, xf);
        return OK;
    case FRAME_RUNNING:
        return running(r, (const struct running_frame *)head, err);
    case FRAME_SHAPES:
        return shapes_known(r, (const struct shapes_frame *)head, err);
    case FRAME_AUX:
        break;
    }
    return error_lsn(err, ERR_BUG, head->lsn, "frame of type %u in the feed", head->type);
}

static enum status take_batch(struct reorder *r, const struct feed_batch *b, struct error *err)
{
    for (size_t at = 0; at < b->frames.len;) {
        const struct frame_head *head = (const struct frame_head *)(b->frames.data + at);
        size_t taken;
        TRY(take_frames(r, head, b->frames.len - at, &taken, err));
        at += taken;
    }
    atomic_store(&r->read_lsn, b->end);
    for (size_t d = 0; d < r->ndestinations; d++)
        ack_dispatched(r->destinations[d]->ack, b->end);
    /* an idle pipeline gets the slice at once; under load it grows until a worker is free and what
     * it costs to hand it over is little */
    if (b->idle ||
        (r->slice != NULL && r->slice->frames.len >= SLICE_WORTH_BYTES && queue_is_empty(r->jobs)))
        return reorder_slice_dispatch(r, err);
    return OK;
}

static void run_call(struct reorder *r, struct feed_call *call)
{
    call->status = fatal_is_set(r->fatal) ? error_set(call->err, ERR_CANCELLED, "stopping")
                                          : call->fn(r, call->ctx, call->err);
    pthread_mutex_lock(&call->lock);
    call->done = true;
    pthread_cond_signal(&call->ended);
    pthread_mutex_unlock(&call->lock);
}

void *reorder_main(void *arg)
{
    struct reorder *r = arg;
    struct feed_batch *b;
    struct error err;
    pthread_setname_np(pthread_self(), "reorder");
    while ((b = queue_pop(r->feed)) != NULL) {
        if (b->call != NULL) {
            run_call(r, b->call);
        } else if (!fatal_is_set(r->fatal) && take_batch(r, b, &err) != OK) {
            fatal_raise(r->fatal, &err);
            queue_close(r->feed);
        }
        budget_buffered_sub(r->budget, b->frames.len);
        feed_batch_free(b);
    }
    if (!fatal_is_set(r->fatal) && reorder_slice_dispatch(r, &err) != OK)
        fatal_raise(r->fatal, &err);
    return NULL;
}
