/* One row into the columns of one target. */
#include "base/log.h"
#include "base/metrics.h"
#include "pg/compress.h"
#include "pipeline/worker.h"

#include <stdlib.h>
#include <string.h>

/* Room for the fixed-width columns at once: growing step by step would copy them again and again.
 */
static void block_reserve(struct block *block, const struct target *target, uint32_t rows)
{
    for (unsigned c = 0; c < target->ncols; c++) {
        const struct encoder *e = &target->cols[c].encoder;
        if (e->nullable)
            buf_reserve(&block->cols[c].nulls, rows);
        buf_reserve(&block->cols[c].data, (size_t)rows * MAX(e->width, 4));
    }
    for (unsigned c = target->ncols; c < block->ncols; c++)
        buf_reserve(&block->cols[c].data, (size_t)rows * 8);
}

struct builder *worker_builder(struct worker *w, const struct route *route, size_t d)
{
    struct target *target = route->targets[d].target;
    for (size_t i = w->nbuilders; i > 0; i--)
        if (w->builders[i - 1].target == target && w->builders[i - 1].destination == d)
            return &w->builders[i - 1];
    if (w->nbuilders == w->builders_cap) {
        w->builders_cap = w->builders_cap == 0 ? 16 : 2 * w->builders_cap;
        w->builders = xrealloc(w->builders, w->builders_cap * sizeof *w->builders);
    }
    struct builder *b = &w->builders[w->nbuilders++];
    *b = (struct builder){
        .target = target_ref(target),
        .table = route->table,
        .block = block_pool_take(w->shared->blocks, target->header),
        .destination = d,
    };
    block_reserve(b->block, target, w->rows_hint);
    return b;
}

const struct aux_frame *aux_find(const struct aux_frame *aux, unsigned naux, int16_t attnum)
{
    for (unsigned i = 0; i < naux; i++) {
        if (aux->attnum == attnum)
            return aux;
        aux = (const struct aux_frame *)((const uint8_t *)aux + aux->head.len);
    }
    return NULL;
}

/* data: from the word of raw size and method on. */
static enum status decompress(const uint8_t *data, uint32_t len, size_t max_bytes,
                              struct buf *plain, struct datum *datum, struct error *err)
{
    uint32_t word = 0;
    if (len >= sizeof word)
        memcpy(&word, data, sizeof word);
    if ((word & 0x3fffffff) > max_bytes) {
        *datum = (struct datum){.state = DATUM_TOO_LARGE};
        return OK;
    }
    buf_reset(plain);
    TRY(varlena_decompress(data, len, max_bytes, plain, err));
    *datum = (struct datum){.data = plain->data, .len = (uint32_t)plain->len, .state = DATUM_VALUE};
    return OK;
}

static enum status resolve_aux(size_t max_bytes, const struct aux_frame *aux, struct buf *plain,
                               struct datum *datum, struct error *err)
{
    const uint8_t *data = (const uint8_t *)(aux + 1);
    switch ((enum aux_state)aux->state) {
    case AUX_PLAIN:
        *datum = (struct datum){.data = data, .len = aux->data_len, .state = DATUM_VALUE};
        return OK;
    case AUX_COMPRESSED:
        return decompress(data, aux->data_len, max_bytes, plain, datum, err);
    }
    return error_set(err, ERR_BUG, "unknown state of a TOAST value");
}

/* A value that the row's transaction did not write. */
static enum status resolve_stored(struct worker *w, const struct route *route, XLogRecPtr lsn,
                                  struct buf *plain, struct datum *datum, struct error *err)
{
    size_t max_bytes = w->shared->inline_value_max;
    struct toast_pointer p;
    struct toast_request value;
    TRY(toast_pointer_parse(datum, &p, err));
    if (p.extsize > max_bytes || p.rawsize > max_bytes) {
        *datum = (struct datum){.state = DATUM_TOO_LARGE};
        return OK;
    }
    TRY(stored_take(w, route, &p, lsn, plain, &value, err));
    if (value.found == TOAST_FOUND && p.compressed)
        return decompress(value.ret, p.extsize, max_bytes, plain, datum, err);
    if (value.found == TOAST_FOUND) {
        *datum = (struct datum){.data = value.ret, .len = p.extsize, .state = DATUM_VALUE};
        return OK;
    }
    metric_inc(METRIC_TOAST_UNRESOLVED, 1);
    *datum = (struct datum){.state = value.found == TOAST_MISSING ? DATUM_LOST : DATUM_TORN};
    return tables_value_lost(w->shared->tables, route->table, lsn, err);
}

enum status row_resolve(struct worker *w, const struct route *route, XLogRecPtr lsn,
                        struct datum *datums, const struct aux_frame *aux, unsigned naux,
                        struct buf *plain, struct error *err)
{
    const struct rel_desc *desc = route->desc;
    size_t max_bytes = w->shared->inline_value_max;
    for (unsigned i = 0; i < desc->natts; i++) {
        struct datum *datum = &datums[i];
        if (datum->state == DATUM_MISSING) {
            const struct att_desc *att = &desc->atts[i];
            *datum = att->has_missing && att->missing != NULL
                         ? (struct datum){.data = att->missing,
                                          .len = att->missing_len,
                                          .state = att->missing_is_text ? DATUM_TEXT : DATUM_VALUE}
                         : (struct datum){.state = DATUM_NULL};
        } else if (datum->state == DATUM_COMPRESSED) {
            TRY(decompress(datum->data, datum->len, max_bytes, &plain[i], datum, err));
        } else if (datum->state == DATUM_EXTERNAL) {
            const struct aux_frame *found = aux_find(aux, naux, (int16_t)(i + 1));
            TRY(found != NULL ? resolve_aux(max_bytes, found, &plain[i], datum, err)
                              : resolve_stored(w, route, lsn, &plain[i], datum, err));
        }
    }
    return OK;
}

/* The table stops: what is built of it in this job is not sent. */
static enum status stop_table(struct worker *w, const struct route *route, struct builder *b,
                              const struct row_meta *meta, const char *reason, struct error *err)
{
    b->spoiled = true;
    return tables_stop(w->shared->tables, route->table->oid, meta->lsn, reason, err);
}

static bool is_lost(const struct datum *value)
{
    return value->state == DATUM_LOST || value->state == DATUM_TORN;
}

/* As text any value can be had: the table is copied again so, unless its type was asked for. */
static enum status key_unfit(struct worker *w, const struct route *route, struct builder *b,
                             const struct target_column *col, const struct att_desc *att,
                             const struct datum *value, const struct row_meta *meta,
                             const char *reason, struct error *err)
{
    const struct target_text_key key = {col->attnum, att->typid};
    bool done = false;
    if (value->state == DATUM_VALUE && !col->type_given &&
        strcmp(col->encoder.ch_type, "String") != 0)
        TRY(tables_key_unfit(w->shared->tables, route->table, key, meta->lsn, reason, &done, err));
    b->spoiled = true;
    return done ? OK : stop_table(w, route, b, meta, reason, err);
}

/* A value that the target cannot hold. */
static enum status append_bad(struct worker *w, const struct route *route, struct builder *b,
                              unsigned c, const struct datum *datums, const struct row_meta *meta,
                              const char *reason, struct error *err)
{
    const struct target_column *col = &b->target->cols[c];
    uint16_t at = route->targets[b->destination].att[c];
    const struct att_desc *att = &route->desc->atts[at];
    const struct datum *value = &datums[at];
    const char *action = "error";
    size_t place = (size_t)(b - w->builders);
    char text[300];
    if (col->key_index > 0 && is_lost(value) && !target_is_open(b->target)) {
        b->spoiled = true; /* the table is copied again */
        return OK;
    }
    if (col->key_index > 0) {
        snprintf(text, sizeof text, "key column %s holds a value its target cannot: %s", att->name,
                 reason);
        return key_unfit(w, route, b, col, att, value, meta, text, err);
    }
    encoder_append_bad(&col->encoder, b->target->on_bad_value,
                       value->state == DATUM_VALUE ? value->data : NULL, value->len,
                       &b->block->cols[c], &action);
    atomic_fetch_add(&route->table->rejects, 1);
    reject_append(w, b->destination,
                  &(struct reject){.route = route,
                                   .datums = datums,
                                   .meta = meta,
                                   .att = att,
                                   .value = value,
                                   .reason = reason,
                                   .action = action});
    if (strcmp(action, "error") != 0)
        return OK;
    snprintf(text, sizeof text, "column %s holds a value its target cannot: %s", att->name, reason);
    b = &w->builders[place]; /* the reject may have added a builder */
    return stop_table(w, route, b, meta, text, err);
}

static const char *lost_reason(uint8_t state)
{
    switch (state) {
    case DATUM_TOO_LARGE:
        return "larger than memory.inline_value_max";
    case DATUM_TORN:
        return "its chunks in the chunk store do not add up";
    default:
        return "the value is not in the chunk store";
    }
}

static enum status append_value(struct worker *w, const struct route *route, struct builder *b,
                                unsigned c, const struct datum *datums, const struct row_meta *meta,
                                struct error *err)
{
    const struct target_column *col = &b->target->cols[c];
    uint16_t at = route->targets[b->destination].att[c];
    const struct datum *datum = &datums[at];
    const char *reason = NULL;
    if (__builtin_expect(datum->state == DATUM_VALUE, 1)) {
        if (__builtin_expect(col->encoder.append(&col->encoder, datum->data, datum->len,
                                                 &b->block->cols[c], &reason) == ENCODE_OK,
                             1))
            return OK;
        return append_bad(w, route, b, c, datums, meta, reason, err);
    }
    if (datum->state == DATUM_NULL) {
        if (col->encoder.nullable) {
            encoder_append_null_or_default(&col->encoder, &b->block->cols[c]);
            return OK;
        }
        return append_bad(w, route, b, c, datums, meta, "NULL where the target is not Nullable",
                          err);
    }
    if (datum->state == DATUM_TEXT) {
        encoder_append_text(&col->encoder, datum->data, datum->len, &b->block->cols[c]);
        return OK;
    }
    return append_bad(w, route, b, c, datums, meta, lost_reason(datum->state), err);
}

static void append_synthetic(struct builder *b, const struct route *route,
                             const struct row_meta *meta)
{
    struct column_buf *col = &b->block->cols[b->target->ncols];
    if (b->target->has_part)
        buf_put_u32(&(col++)->data, route->desc->oid);
    if (b->target->has_ctid)
        buf_put_u64(&(col++)->data, meta->tid);
    buf_put_u64(&(col++)->data, meta->lsn);
    buf_put_u32(&(col++)->data, meta->xid);
    buf_put_i64(&(col++)->data, meta->commit_us);
    buf_put_u8(&col->data, meta->deleted);
    b->block->rows++;
}

enum status row_append(struct worker *w, const struct route *route, size_t d,
                       const struct datum *datums, const struct row_meta *meta, struct error *err)
{
    struct builder *b = worker_builder(w, route, d);
    size_t at = (size_t)(b - w->builders);
    for (unsigned c = 0; c < b->target->ncols && !b->spoiled; c++) {
        const struct target_column *col = &b->target->cols[c];
        if (meta->deleted && col->key_index == 0) {
            encoder_append_null_or_default(&col->encoder, &b->block->cols[c]);
            continue;
        }
        TRY(append_value(w, route, b, c, datums, meta, err));
        b = &w->builders[at]; /* a reject may have added a builder */
    }
    if (!b->spoiled)
        append_synthetic(b, route, meta);
    return OK;
}

/* A NULL or a value that does not fit counts as differing: the append that follows deals with it.
 */
static bool encode_key(const struct target_column *col, const struct datum *datum,
                       struct column_buf *out)
{
    const char *reason;
    return datum->state == DATUM_VALUE &&
           col->encoder.append(&col->encoder, datum->data, datum->len, out, &reason) == ENCODE_OK;
}

enum status row_key_differs(struct worker *w, const struct route *route, size_t d,
                            const struct datum *old_datums, const struct datum *new_datums,
                            bool *ret, struct error *err)
{
    const struct target *target = route->targets[d].target;
    (void)err;
    *ret = false;
    for (unsigned c = 0; c < target->ncols && !*ret; c++) {
        const struct target_column *col = &target->cols[c];
        uint16_t at = route->targets[d].att[c];
        if (col->key_index == 0)
            continue;
        buf_reset(&w->key_old.data);
        buf_reset(&w->key_new.data);
        if (!encode_key(col, &old_datums[at], &w->key_old) ||
            !encode_key(col, &new_datums[at], &w->key_new) ||
            w->key_old.data.len != w->key_new.data.len ||
            memcmp(w->key_old.data.data, w->key_new.data.data, w->key_old.data.len) != 0)
            *ret = true;
    }
    return OK;
}
