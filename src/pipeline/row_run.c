/* Runs of plain rows: new rows of one table, without NULLs, whose values lie at the same places in
 * every tuple and are only copied. They go into their columns column by column: what a column needs
 * to know is looked up once a run, not once a value. */
#include "pipeline/worker.h"

#define RUN_ROWS 64u
#define RUN_MIN 4u /* fewer are not worth the look at the columns */

#define PG_EPOCH_US INT64_C(946684800000000)

struct row_run {
    const struct route *route;
    uint32_t n;
    const struct change_frame *frames[RUN_ROWS];
    const uint8_t *data[RUN_ROWS]; /* of the tuple: where its first attribute is */
};

/* Every column of every target is copied from one place; sets *ret_ctid if a target goes by TIDs.
 */
static bool route_is_plain(const struct route *route, bool *ret_ctid)
{
    uint32_t offset;
    for (size_t d = 0; d < route->ndestinations; d++) {
        const struct target *target = route->targets[d].target;
        if (target == NULL)
            continue;
        *ret_ctid = *ret_ctid || target->has_ctid;
        for (unsigned c = 0; c < target->ncols; c++)
            if (!tuple_shape_place(route->desc->shape, route->targets[d].att[c],
                                   target->cols[c].encoder.copy, &offset))
                return false;
    }
    return route->fresh == NULL || route_is_plain(route->fresh, ret_ctid);
}

/* An update that kept the key needs no tombstone, except of the TID. */
static bool frame_is_plain(const struct change_frame *f, const struct route *route, bool ctid)
{
    bool kind = f->kind == CHANGE_INSERT ||
                (f->kind == CHANGE_UPDATE && !ctid && !(f->head.flags & FRAME_HAS_OLD));
    return kind && f->naux == 0 && (f->head.flags & FRAME_HAS_NEW) &&
           !(f->new_infomask & (HEAP_HASNULL | HEAP_HASEXTERNAL)) &&
           (f->new_infomask2 & HEAP_NATTS_MASK) == route->desc->natts;
}

/* Collects the plain rows at the front; returns their bytes. */
static size_t run_collect(struct row_run *run, struct route *const *routes, const uint8_t *frames,
                          size_t len)
{
    const struct change_frame *f = (const struct change_frame *)frames;
    uint32_t index = f->route;
    bool ctid = false;
    size_t at = 0;
    run->route = routes[index];
    run->n = 0;
    if (!frame_is_plain(f, run->route, false) || !route_is_plain(run->route, &ctid))
        return 0;
    while (at < len && run->n < RUN_ROWS) {
        f = (const struct change_frame *)(frames + at);
        if (f->route != index || !frame_is_plain(f, run->route, ctid))
            break;
        struct raw_tuple tuple = change_frame_new(f);
        if (tuple_check(run->route->desc->shape, &tuple, NULL) != OK)
            break; /* its error is found again, and told, on the way of other rows */
        run->frames[run->n] = f;
        run->data[run->n++] = tuple.body + (tuple.hoff - SizeofHeapTupleHeader);
        at += f->head.len;
    }
    return at;
}

#define COPY_COLUMN(width)                                                                         \
    static void copy_column##width(const struct row_run *run, uint32_t offset, uint8_t *to)        \
    {                                                                                              \
        for (uint32_t i = 0; i < run->n; i++, to += width)                                         \
            memcpy(to, run->data[i] + offset, width);                                              \
    }
COPY_COLUMN(2)
COPY_COLUMN(4)
COPY_COLUMN(8)

static void append_column(const struct row_run *run, const struct encoder *e, uint16_t att,
                          struct column_buf *out)
{
    uint32_t offset = 0;
    uint8_t *to = buf_reserve(&out->data, (size_t)run->n * e->copy);
    CHECK(tuple_shape_place(run->route->desc->shape, att, e->copy, &offset));
    switch (e->copy) {
    case 2:
        copy_column2(run, offset, to);
        break;
    case 4:
        copy_column4(run, offset, to);
        break;
    default:
        CHECK(e->copy == 8);
        copy_column8(run, offset, to);
        break;
    }
    out->data.len += (size_t)run->n * e->copy;
    if (e->nullable)
        buf_put_zeros(&out->nulls, run->n);
}

#define SYNTHETIC_COLUMN(name, type, value)                                                        \
    static void name(const struct row_run *run, struct column_buf *out)                            \
    {                                                                                              \
        uint8_t *to = buf_reserve(&out->data, run->n * sizeof(type));                              \
        for (uint32_t i = 0; i < run->n; i++) {                                                    \
            const struct change_frame *f = run->frames[i];                                         \
            type v = (value);                                                                      \
            memcpy(to + i * sizeof v, &v, sizeof v);                                               \
        }                                                                                          \
        out->data.len += run->n * sizeof(type);                                                    \
    }
SYNTHETIC_COLUMN(append_ctid, uint64_t, f->new_tid)
SYNTHETIC_COLUMN(append_lsn, uint64_t, f->head.lsn + 1 + f->head.ordinal)
SYNTHETIC_COLUMN(append_xid, uint32_t, f->head.xid)
SYNTHETIC_COLUMN(append_commit, int64_t, f->commit_ts + PG_EPOCH_US)

static void append_part(const struct row_run *run, struct column_buf *out)
{
    for (uint32_t i = 0; i < run->n; i++)
        buf_put_u32(&out->data, run->route->desc->oid);
}

static void run_append(struct worker *w, const struct row_run *run, const struct route *route,
                       size_t d)
{
    struct builder *b = worker_builder(w, route, d);
    const struct target *target = b->target;
    struct column_buf *col = b->block->cols;
    if (b->spoiled)
        return;
    for (unsigned c = 0; c < target->ncols; c++)
        append_column(run, &target->cols[c].encoder, route->targets[d].att[c], col++);
    if (target->has_part)
        append_part(run, col++);
    if (target->has_ctid)
        append_ctid(run, col++);
    append_lsn(run, col++);
    append_xid(run, col++);
    append_commit(run, col++);
    buf_put_zeros(&col->data, run->n); /* _is_deleted */
    b->block->rows += run->n;
}

size_t row_run_add(struct worker *w, struct route *const *routes, const uint8_t *frames, size_t len,
                   uint32_t *ret_rows)
{
    struct row_run run;
    size_t bytes = run_collect(&run, routes, frames, len);
    *ret_rows = 0;
    if (run.n < RUN_MIN)
        return 0;
    for (const struct route *route = run.route; route != NULL; route = route->fresh)
        for (size_t d = 0; d < route->ndestinations; d++)
            if (route->targets[d].target != NULL)
                run_append(w, &run, route, d);
    *ret_rows = run.n;
    return bytes;
}
