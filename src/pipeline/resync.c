#include "pipeline/resync.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

struct commit_window *commit_window_new(void)
{
    return xcalloc(1, sizeof(struct commit_window));
}

static void bit_set(struct commit_window *w, TransactionId xid, bool on)
{
    uint64_t bit = UINT64_C(1) << (xid % 64);
    uint64_t *word = &w->bits[xid % COMMIT_WINDOW_XIDS / 64];
    *word = on ? *word | bit : *word & ~bit;
}

void commit_window_add(struct commit_window *w, TransactionId xid)
{
    if (w->newest != InvalidTransactionId && !xid_precedes(w->newest, xid)) {
        if (w->newest - xid < COMMIT_WINDOW_XIDS)
            bit_set(w, xid, true);
        return; /* else too old for the window: not known */
    }
    if (w->newest == InvalidTransactionId || xid - w->newest >= COMMIT_WINDOW_XIDS)
        memset(w->bits, 0, sizeof w->bits);
    else
        for (TransactionId x = w->newest + 1; x != xid; x++)
            bit_set(w, x, false);
    bit_set(w, xid, true);
    w->newest = xid;
    /* it must stay comparable with what is in the window */
    if (w->known_from != InvalidTransactionId && w->newest - w->known_from > UINT32_C(1) << 30)
        w->known_from = w->newest - COMMIT_WINDOW_XIDS;
}

void commit_window_running(struct commit_window *w, TransactionId next_xid)
{
    if (w->known_from == InvalidTransactionId)
        w->known_from = next_xid;
}

enum commit_seen commit_window_get(const struct commit_window *w, TransactionId xid)
{
    bool known = w->known_from != InvalidTransactionId && !xid_precedes(xid, w->known_from);
    if (w->newest == InvalidTransactionId || xid_precedes(w->newest, xid))
        return known ? COMMIT_NOT_SEEN : COMMIT_UNKNOWN;
    if (w->newest - xid >= COMMIT_WINDOW_XIDS)
        return COMMIT_UNKNOWN;
    if (w->bits[xid % COMMIT_WINDOW_XIDS / 64] & UINT64_C(1) << (xid % 64))
        return COMMIT_SEEN;
    return known ? COMMIT_NOT_SEEN : COMMIT_UNKNOWN;
}

static void shape_free(struct resync *s)
{
    for (size_t i = 0; i < s->nparts; i++)
        rel_desc_unref(s->parts[i]);
    free(s->parts);
    rel_desc_unref(s->desc);
    s->parts = NULL;
    s->desc = NULL;
    s->nparts = 0;
}

/* Rows of the table lie in it. */
static bool is_part(const struct rel_desc *d, Oid root)
{
    return d->relkind == 'r' && (d->oid == root || d->root_oid == root);
}

bool resync_take_shape(struct resync *s, struct rel_desc *const *all, size_t n)
{
    shape_free(s);
    s->parts = xcalloc(n, sizeof(struct rel_desc *));
    for (size_t i = 0; i < n; i++) {
        if (all[i]->oid == s->table->oid)
            s->desc = rel_desc_ref(all[i]);
        if (is_part(all[i], s->table->oid))
            s->parts[s->nparts++] = rel_desc_ref(all[i]);
    }
    return s->desc != NULL && (s->desc->root_oid == 0 || s->desc->root_oid == s->desc->oid);
}

bool resync_has_shape(const struct resync *s, struct rel_desc *const *all, size_t n)
{
    size_t parts = 0, same = 0;
    bool has_desc = false;
    for (size_t i = 0; i < n; i++) {
        parts += is_part(all[i], s->desc->oid);
        has_desc = has_desc || rel_desc_equal(all[i], s->desc, true);
        for (size_t p = 0; p < s->nparts; p++)
            same += all[i]->oid == s->parts[p]->oid && rel_desc_equal(all[i], s->parts[p], true);
    }
    return has_desc && parts == s->nparts && same == s->nparts;
}

static bool same_at(struct history *h, const struct rel_desc *d, XLogRecPtr lsn)
{
    struct rel_desc *known = history_by_oid(h, d->oid, lsn);
    bool same =
        known != NULL && !history_is_unseen(h, d->oid, lsn) && rel_desc_equal(known, d, true);
    rel_desc_unref(known);
    return same;
}

/* The table has this shape and these parts at lsn, no more and no fewer. */
static bool is_shape_at(const struct resync *s, struct history *h, XLogRecPtr lsn)
{
    struct rel_desc **all;
    size_t n, parts = 0;
    if (!same_at(h, s->desc, lsn))
        return false;
    for (size_t i = 0; i < s->nparts; i++)
        if (!same_at(h, s->parts[i], lsn))
            return false;
    if (s->desc->relkind == 'r')
        return true;
    history_all(h, lsn, &all, &n);
    for (size_t i = 0; i < n; i++) {
        parts += is_part(all[i], s->desc->oid);
        rel_desc_unref(all[i]);
    }
    free(all);
    return parts == s->nparts;
}

static struct tables *tables_of(const struct resync *s)
{
    return pipeline_tables(s->pipeline);
}

bool resync_is_current(const struct resync *s)
{
    struct history *h = tables_options_of(tables_of(s))->history;
    return is_shape_at(s, h, atomic_load(&pipeline_reorder(s->pipeline)->read_lsn));
}

/* What a snapshot taken from now on is compared with. */
static enum status note_position(struct reorder *r, struct resync *s, struct error *err)
{
    XLogRecPtr p = atomic_load(&r->read_lsn);
    if (p == 0 || p < r->options.skip_until)
        return error_set(err, ERR_RETRY, "the stream is not yet where it was at the last stop");
    if (atomic_load(&s->table->life) != TABLE_LIFE_RESYNCING || !is_shape_at(s, r->history, p))
        return error_set(err, ERR_RETRY, "the stream has not the table's newest shape yet");
    s->opened = p;
    s->lsn = MIN(xact_buffer_oldest_lsn(r->xacts), p) - 1;
    if (s->window == NULL)
        s->window = xmalloc(sizeof *s->window);
    memcpy(s->window, r->commits, sizeof *s->window);
    free(s->open_xids);
    s->nopen_xids = xact_buffer_xids(r->xacts, &s->open_xids);
    s->changes = atomic_load(&s->table->changes);
    routes_forget(r->routes);
    return OK;
}

static enum status open_here(struct reorder *r, void *ctx, struct error *err)
{
    struct resync *s = ctx;
    TRY(note_position(r, s, err));
    tables_fresh_attach(r->tables, s->table, s->fresh);
    s->attached = true;
    return OK;
}

enum status resync_open(struct resync *s, struct error *err)
{
    s->nfresh = tables_options_of(tables_of(s))->ndestinations;
    TRY(tables_fresh_make(tables_of(s), s->table, s->desc, "", &s->fresh, err));
    return pipeline_call(s->pipeline, open_here, s, err);
}

static enum status open_chunks_here(struct reorder *r, void *ctx, struct error *err)
{
    return note_position(r, ctx, err); /* chunks of a table that is live go to the store */
}

enum status resync_open_chunks(struct resync *s, struct error *err)
{
    return pipeline_call(s->pipeline, open_chunks_here, s, err);
}

bool resync_chunks_known(struct resync *s)
{
    if (!resync_is_valid(s))
        return false;
    atomic_store(&s->table->chunks_known, true);
    return resync_is_valid(s); /* a change in between has taken it back, or will be seen */
}

bool resync_is_valid(const struct resync *s)
{
    return atomic_load(&s->table->life) == TABLE_LIFE_RESYNCING &&
           atomic_load(&s->table->changes) == s->changes;
}

static bool was_open(const struct resync *s, TransactionId xid)
{
    for (size_t i = 0; i < s->nopen_xids; i++)
        if (s->open_xids[i] == xid)
            return true;
    return false;
}

bool resync_is_older_than_load(const struct resync *s, TransactionId xid)
{
    const struct reorder *r = pipeline_reorder(s->pipeline);
    return atomic_load(&r->load_guard) && xid_precedes(xid, r->options.load_xid);
}

size_t resync_doubtful_xids(const struct resync *s, TransactionId *xids, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (resync_is_older_than_load(s, xids[i]) ||
            (commit_window_get(s->window, xids[i]) != COMMIT_NOT_SEEN && !was_open(s, xids[i])))
            xids[kept++] = xids[i];
    return kept;
}

bool resync_stream_passed(const struct resync *s, XLogRecPtr lsn)
{
    return atomic_load(&pipeline_reorder(s->pipeline)->read_lsn) >= lsn;
}

static enum status exchange_here(struct reorder *r, void *ctx, struct error *err)
{
    struct resync *s = ctx;
    if (!resync_is_valid(s))
        return error_set(err, ERR_RETRY, "the table changed while it was copied");
    TRY(reorder_barrier(r, err));
    if (!resync_is_valid(s)) /* a worker stopped it */
        return error_set(err, ERR_RETRY, "the table changed while it was copied");
    TRY(tables_fresh_exchange(r->tables, s->table, s->desc, s->opened, atomic_load(&r->read_lsn),
                              err));
    routes_forget(r->routes);
    s->attached = false;
    return OK;
}

enum status resync_exchange(struct resync *s, struct error *err)
{
    TRY(pipeline_call(s->pipeline, exchange_here, s, err));
    log_info("msg=\"table copied again\" table=%s rows=%lu opened=" LSN_FMT, LOG_Q(s->table->name),
             atomic_load(&s->table->copied), LSN_ARGS(s->opened));
    return OK;
}

/* Rows of the stream are no longer added, and none is on its way, when it returns. */
static enum status abandon_here(struct reorder *r, void *ctx, struct error *err)
{
    struct resync *s = ctx;
    tables_fresh_detach(r->tables, s->table);
    routes_forget(r->routes);
    s->attached = false;
    return reorder_barrier(r, err);
}

void resync_forget(struct resync *s)
{
    for (size_t i = 0; s->fresh != NULL && !s->attached && i < s->nfresh; i++)
        target_unref(s->fresh[i]);
    if (!s->attached)
        free(s->fresh);
    s->fresh = NULL;
    shape_free(s);
    free(s->window);
    free(s->open_xids);
    s->window = NULL;
    s->open_xids = NULL;
}

enum status resync_close(struct resync *s, struct error *err)
{
    enum status st = s->attached ? pipeline_call(s->pipeline, abandon_here, s, err) : OK;
    if (st == OK && s->fresh != NULL) {
        st = tables_fresh_drop(tables_of(s), s->fresh, err);
        s->fresh = NULL;
    }
    resync_forget(s);
    return st;
}
