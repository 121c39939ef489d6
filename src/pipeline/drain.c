/* A committed transaction: planned in one pass over its frames without any effect (every checksum,
 * frame, route and tuple is looked at, TOAST chunks are indexed), then sliced in a second one. */
#include "pipeline/resync.h"
#include "base/log.h"

#include <stdlib.h>

#define SLICE_BYTES ((size_t)1 << 20)
#define SLICE_ROWS 16384u

struct drain {
    struct reorder *r;
    struct xact *x;
    struct xact_reader *reader;
    const struct xact_frame *commit;
    struct ddl_facts facts;
    bool sliced;    /* its rows have entered a slice */
    bool last_plan; /* the boundary is applied: what is not known now never will be */
};

static bool is_dropped_file(const struct xact_frame *commit, struct rel_file_locator locator)
{
    const struct rel_file_locator *dropped = xact_frame_dropped(commit);
    for (uint32_t i = 0; i < commit->ndropped; i++)
        if (rel_file_locator_equal(dropped[i], locator))
            return true;
    return false;
}

static void note_unknown_file(struct drain *d, const struct change_frame *f)
{
    if (f->locator.rel_number < FirstNormalObjectId || d->commit->end <= d->r->options.load_end)
        return; /* pg_largeobject; or dropped before the load ended */
    if (history_any_unseen(d->r->history, d->commit->end))
        return; /* its table is copied again once it is known */
    atomic_fetch_add(&d->r->unknown_files, 1);
    for (size_t i = 0; i < d->r->nunknown; i++)
        if (rel_file_locator_equal(d->r->unknown[i], f->locator))
            return;
    if (d->r->nunknown == LENGTH(d->r->unknown))
        return;
    d->r->unknown[d->r->nunknown++] = f->locator;
    log_error(
        "msg=\"rows of a file that no table has are lost: a copy may be incomplete, which one "
        "is not known (after VACUUM FULL pg_largeobject: none). Compare with walshadow verify\" "
        "file=%u/%u/%u xid=%u lsn=" LSN_FMT,
        f->locator.spc_oid, f->locator.db_oid, f->locator.rel_number, d->commit->head.xid,
        LSN_ARGS(f->head.lsn));
}

/* The route of a change, NULL if its row is discarded. */
static struct route *route_of(struct drain *d, const struct change_frame *f)
{
    if (d->commit->ndropped > 0 && is_dropped_file(d->commit, f->locator))
        return NULL;
    struct route *route = routes_get(d->r->routes, f->locator, d->commit->end);
    if (route == NULL) {
        if (d->last_plan) /* once a change */
            note_unknown_file(d, f);
        return NULL;
    }
    return route_is_live(route) ? route : NULL;
}

static enum status stop(struct drain *d, const struct route *route, XLogRecPtr lsn,
                        const char *reason, struct error *err)
{
    return tables_stop(d->r->tables, route->table->oid, lsn, reason, err);
}

static enum status deform_new(struct reorder *r, const struct rel_desc *desc,
                              const struct change_frame *f, struct error *err)
{
    struct raw_tuple tuple = change_frame_new(f);
    if (r->datums_cap < desc->natts) {
        r->datums_cap = desc->natts;
        r->datums = xrealloc(r->datums, r->datums_cap * sizeof *r->datums);
    }
    return tuple_deform(desc->shape, &tuple, r->datums, err);
}

/* Pointers to external values must be sound; whether the value is known shows when it is needed. */
static enum status check_external(struct drain *d, const struct route *route,
                                  const struct change_frame *f, struct error *err)
{
    TRY(deform_new(d->r, route->desc, f, err));
    for (unsigned i = 0; i < route->desc->natts; i++) {
        struct toast_pointer p;
        if (d->r->datums[i].state == DATUM_EXTERNAL)
            TRY(toast_pointer_parse(&d->r->datums[i], &p, err));
    }
    return OK;
}

static enum status check_tuples(struct drain *d, const struct route *route,
                                const struct change_frame *f, struct error *err)
{
    enum status st = OK;
    if (f->head.flags & FRAME_HAS_NEW) {
        struct raw_tuple tuple = change_frame_new(f);
        st = change_frame_has_external(f) ? check_external(d, route, f, err)
                                          : tuple_check(route->desc->shape, &tuple, err);
    }
    if (st == OK && (f->head.flags & FRAME_HAS_OLD)) {
        struct raw_tuple tuple = change_frame_old(f);
        st = tuple_check(route->desc->shape, &tuple, err);
    }
    return st;
}

static bool has_what_it_needs(const struct route *route, const struct change_frame *f)
{
    if (f->kind == CHANGE_DELETE && route->desc->identity == IDENTITY_KEY)
        return (f->head.flags & FRAME_HAS_OLD) != 0;
    return f->kind == CHANGE_DELETE || (f->head.flags & FRAME_HAS_NEW) != 0;
}

/* A change in a TOAST table: for the store, and for this transaction's own rows. */
static enum status plan_chunk(struct drain *d, const struct route *route,
                              const struct change_frame *f, struct error *err)
{
    if (!d->last_plan)
        return OK;
    if (f->kind == CHANGE_INSERT && (f->head.flags & FRAME_HAS_NEW))
        TRY(toast_index_add(d->r->toast, route->desc->oid, f, d->reader, err));
    return toast_feed_change(d->r->toast_feed, route->desc->oid, f, err);
}

static enum status plan_change(struct drain *d, const struct change_frame *f, struct error *err)
{
    struct route *route = route_of(d, f);
    enum status st;
    if (route == NULL)
        return OK;
    if (route->toast) {
        st = plan_chunk(d, route, f, err);
    } else if (f->kind == CHANGE_SPEC_DELETE) {
        return OK; /* its INSERT lies before our start */
    } else if (route->key_differs && f->kind != CHANGE_INSERT) {
        return stop(d, route, f->head.lsn,
                    "a partition's replica identity is not the key of its root", err);
    } else if (!has_what_it_needs(route, f)) {
        return stop(d, route, f->head.lsn, "a change without the old key or the new row in the WAL",
                    err);
    } else {
        st = check_tuples(d, route, f, err);
    }
    /* damage ends this table, not the stream */
    return st == ERR_DATA ? stop(d, route, f->head.lsn, err->message, err) : st;
}

static void plan_truncate(struct drain *d, const struct truncate_frame *f)
{
    struct ddl_facts *facts = &d->facts;
    size_t n = facts->ntruncated + f->nrelids;
    facts->truncated = xrealloc(facts->truncated, n * sizeof *facts->truncated);
    for (uint32_t i = 0; i < f->nrelids; i++)
        facts->truncated[facts->ntruncated++] = f->relids[i];
}

/* Rows of one file come in runs: a new run of a file already known is looked for. */
static void note_file(struct rel_file_locator **files, size_t *n, struct rel_file_locator file)
{
    for (size_t i = *n; i > 0; i--)
        if (rel_file_locator_equal((*files)[i - 1], file))
            return;
    *files = xrealloc(*files, (*n + 1) * sizeof **files);
    (*files)[(*n)++] = file;
}

/* Files that got rows, and removed ones in which anything changed. */
static void note_insert(struct drain *d, const struct change_frame *f)
{
    if ((d->commit->head.flags & XACT_BOUNDARY) &&
        (f->kind == CHANGE_INSERT || is_dropped_file(d->commit, f->locator)))
        note_file(&d->facts.inserted, &d->facts.ninserted, f->locator);
}

static enum status plan(struct drain *d, struct error *err)
{
    struct frame_head *head;
    for (;;) {
        TRY(xact_reader_next(d->reader, &head, err));
        if (head == NULL)
            return OK;
        if (head->type == FRAME_CHANGE) {
            note_insert(d, (struct change_frame *)head);
            TRY(plan_change(d, (struct change_frame *)head, err));
        } else if (head->type == FRAME_TRUNCATE) {
            plan_truncate(d, (struct truncate_frame *)head);
            if (d->last_plan)
                TRY(toast_feed_truncate(d->r->toast_feed, (struct truncate_frame *)head, err));
        } else if (head->type == FRAME_PAGES) {
            note_file(&d->facts.pages, &d->facts.npages, ((struct pages_frame *)head)->locator);
        }
    }
}

static enum status put_aux(struct drain *d, const struct route *route, int16_t attnum,
                           const struct toast_pointer *p, XLogRecPtr lsn, struct error *err)
{
    struct buf *out = &d->r->slice->frames;
    size_t len = frame_align(sizeof(struct aux_frame) + p->extsize);
    struct aux_frame aux = {
        .head = {.len = (uint32_t)len, .type = FRAME_AUX, .lsn = lsn},
        .attnum = attnum,
        .state = p->compressed ? AUX_COMPRESSED : AUX_PLAIN,
        .data_len = p->extsize,
    };
    uint8_t *at = buf_reserve(out, len);
    memset(at + len - 8, 0, 8);
    memcpy(at, &aux, sizeof aux);
    TRY(toast_index_fetch(d->r->toast, route->desc->oid, p, d->x, at + sizeof aux, err));
    out->len += len;
    return OK;
}

/* External values: those written by this transaction go with the row; the worker takes the others
 * from the store. Either way they count for the slice, which has to be held in memory. */
static enum status put_external(struct drain *d, const struct route *route,
                                const struct change_frame *f, uint16_t *ret_naux, struct error *err)
{
    struct reorder *r = d->r;
    XLogRecPtr lsn = f->head.lsn;
    TRY(deform_new(r, route->desc, f, err));
    for (unsigned i = 0; i < route->desc->natts; i++) {
        struct toast_pointer p;
        if (r->datums[i].state != DATUM_EXTERNAL)
            continue;
        TRY(toast_pointer_parse(&r->datums[i], &p, err));
        if (p.extsize > r->options.inline_value_max || p.rawsize > r->options.inline_value_max)
            continue;
        r->slice->value_bytes += p.rawsize;
        if (!toast_index_has(r->toast, route->desc->oid, &p))
            continue;
        TRY(put_aux(d, route, (int16_t)(i + 1), &p, lsn, err));
        (*ret_naux)++;
    }
    return OK;
}

static enum status slice_change(struct drain *d, const struct change_frame *f, struct error *err)
{
    struct reorder *r = d->r;
    struct route *route = route_of(d, f);
    if (route == NULL || route->toast || f->kind == CHANGE_SPEC_DELETE)
        return OK;
    if (r->slice != NULL && (r->slice->frames.len + r->slice->value_bytes >= SLICE_BYTES ||
                             r->slice->nrows >= SLICE_ROWS)) {
        TRY(reorder_slice_dispatch(r, err));
        d->sliced = false;
    }
    if (!d->sliced) {
        TRY(reorder_slice_open(r, xact_first_lsn(d->x), err));
        d->sliced = true;
    }
    struct slice *s = r->slice;
    size_t at = s->frames.len;
    uint16_t naux = 0;
    uint32_t index = slice_route(s, route);
    buf_put(&s->frames, f, f->head.len);
    if (change_frame_has_external(f))
        TRY(put_external(d, route, f, &naux, err));
    struct change_frame *copy = (struct change_frame *)(s->frames.data + at);
    copy->head.xid = d->commit->head.xid;
    copy->route = index;
    copy->commit_ts = d->commit->commit_ts;
    copy->naux = naux;
    s->nrows++;
    return OK;
}

static enum status execute(struct drain *d, struct error *err)
{
    struct frame_head *head;
    xact_reader_rewind(d->reader);
    for (;;) {
        TRY(xact_reader_next(d->reader, &head, err));
        if (head == NULL)
            return OK;
        if (head->type == FRAME_CHANGE) {
            TRY(slice_change(d, (struct change_frame *)head, err));
        } else if (head->type == FRAME_TRUNCATE) {
            TRY(ddl_truncate(d->r, (struct truncate_frame *)head, d->commit->end, err));
            d->sliced = false; /* the barrier dispatched the slice */
        }
    }
}

/* Also one that is not durable by the saved ack may be read in part: if it had no rows to send, the
 * floor was no longer held by it before the ack had passed it. */
static bool may_be_cut(const struct reorder *r, TransactionId xid)
{
    TransactionId begun_since = r->commits->known_from;
    return begun_since == InvalidTransactionId || xid_precedes(xid, begun_since);
}

/* With every route known: from here on nothing is looked at twice. */
static enum status last_plan(struct drain *d, struct error *err)
{
    d->last_plan = true;
    toast_feed_begin(d->r->toast_feed, d->commit, may_be_cut(d->r, d->commit->head.xid));
    enum status st = d->x == NULL ? OK : plan(d, err);
    d->last_plan = false;
    return st == OK ? toast_feed_end(d->r->toast_feed, err) : st;
}

enum status drain_xact(struct reorder *r, struct xact *x, const struct xact_frame *commit,
                       struct error *err)
{
    struct drain d = {.r = r, .x = x, .commit = commit};
    enum status st = OK;
    bool boundary = (commit->head.flags & XACT_BOUNDARY) != 0;
    if (x != NULL)
        d.reader = xact_reader_open(x);
    /* the plan only reads; new relations must exist for its routes, so their targets come first */
    if (x != NULL && boundary)
        st = plan(&d, err);
    if (st == OK && boundary) {
        st = ddl_apply(r, commit, &d.facts, err);
        routes_forget(r->routes);
        if (x != NULL)
            xact_reader_rewind(d.reader);
        toast_index_clear(r->toast);
        d.facts.ntruncated = d.facts.ninserted = d.facts.npages = 0;
    }
    if (st == OK)
        st = last_plan(&d, err);
    if (st == OK && x != NULL)
        st = execute(&d, err);
    if (st == OK)
        st = generation_end(r, commit->end, err);
    toast_index_clear(r->toast);
    xact_reader_close(d.reader);
    free(d.facts.truncated);
    free(d.facts.inserted);
    free(d.facts.pages);
    if (st != OK && st != ERR_CANCELLED)
        error_prefix(err, "transaction %u committed at " LSN_FMT, commit->head.xid,
                     LSN_ARGS(commit->end));
    return st;
}

static enum status chunks_again(struct drain *d, struct error *err)
{
    struct frame_head *head;
    for (;;) {
        TRY(xact_reader_next(d->reader, &head, err));
        if (head == NULL)
            return OK;
        if (head->type == FRAME_TRUNCATE) {
            TRY(toast_feed_truncate(d->r->toast_feed, (struct truncate_frame *)head, err));
        } else if (head->type == FRAME_CHANGE) {
            const struct change_frame *f = (const struct change_frame *)head;
            struct route *route = route_of(d, f);
            enum status st = route != NULL && route->toast
                                 ? toast_feed_change(d->r->toast_feed, route->desc->oid, f, err)
                                 : OK;
            if (st == ERR_DATA)
                st = stop(d, route, f->head.lsn, err->message, err);
            TRY(st);
        }
    }
}

enum status drain_chunks(struct reorder *r, struct xact *x, const struct xact_frame *commit,
                         struct error *err)
{
    struct drain d = {.r = r, .x = x, .commit = commit};
    enum status st = OK;
    toast_feed_begin(r->toast_feed, commit, true);
    if (x != NULL) {
        d.reader = xact_reader_open(x);
        st = chunks_again(&d, err);
        xact_reader_close(d.reader);
    }
    return st == OK ? toast_feed_end(r->toast_feed, err) : st;
}
