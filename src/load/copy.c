#include "load/copy.h"

#include "load/copy_value.h"
#include "types/family.h"

#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES ((size_t)256 << 10)
#define PIECE_ROWS 8192u
#define FIELDS_FIRST 2u /* xmin, ctid */

struct copy_field {
    uint16_t att; /* index into the part's attributes */
    bool text;    /* comes as its text form, else in send format */
    Oid typid;
};

struct copy_part {
    struct rel_desc *desc;
    struct route *route;
    struct copy_field *fields;
    unsigned nfields;
    bool begun; /* its header was read */
};

struct copy {
    struct resync *resync;
    struct ack **acks; /* per destination */
    struct destination **destinations;
    size_t ndestinations;
    struct copy_part *parts;
    size_t nparts;
    struct buf rows; /* of the next job */
    uint32_t nrows;
};

struct copy_job {
    struct job job;
    struct copy *copy;
    const struct copy_part *part;
    struct buf rows;
    uint32_t nrows;
    struct budget_permit permit;
    uint64_t seqs[];
};

/* Some target has the attribute; *ret_text: all that do hold its text form. */
static bool wanted(const struct route *route, uint16_t att, bool *ret_text)
{
    bool any = false;
    *ret_text = true;
    for (size_t d = 0; d < route->ndestinations; d++) {
        const struct target *t = route->targets[d].target;
        for (unsigned c = 0; t != NULL && c < t->ncols; c++)
            if (route->targets[d].att[c] == att) {
                any = true;
                *ret_text = *ret_text && encoder_is_text(&t->cols[c].encoder);
            }
    }
    return any;
}

static enum status part_fields(struct copy_part *p, struct error *err)
{
    p->fields = xcalloc(p->desc->natts, sizeof *p->fields);
    for (uint16_t i = 0; i < p->desc->natts; i++) {
        const struct att_desc *att = &p->desc->atts[i];
        bool text;
        if (!wanted(p->route, i, &text))
            continue;
        bool known = copy_value_known(att_typid(att));
        if (!text && !known)
            return error_set(err, ERR_CONFIG,
                             "column \"%s\": a value of type %s cannot be copied into its target "
                             "by this version",
                             att->name, att->type_name);
        p->fields[p->nfields++] =
            (struct copy_field){.att = i, .text = !known, .typid = att_typid(att)};
    }
    return OK;
}

enum status copy_new(struct resync *resync, struct copy **ret, struct error *err)
{
    struct copy *c = xcalloc(1, sizeof *c);
    struct tables *tables = pipeline_tables(resync->pipeline);
    enum status st = OK;
    c->resync = resync;
    c->ndestinations = pipeline_destinations(resync->pipeline, &c->destinations);
    c->acks = xcalloc(c->ndestinations, sizeof(struct ack *));
    for (size_t d = 0; d < c->ndestinations; d++)
        c->acks[d] = ack_new(0);
    c->parts = xcalloc(resync->nparts + 1, sizeof *c->parts);
    for (size_t i = 0; i < resync->nparts && st == OK; i++) {
        struct copy_part *p = &c->parts[c->nparts++];
        p->desc = rel_desc_ref(resync->parts[i]);
        p->route = route_new_fresh(tables, resync->table, p->desc, resync->desc, resync->fresh);
        st = p->route == NULL ? error_set(err, ERR_RETRY, "the table changed while it was copied")
                              : part_fields(p, err);
    }
    if (st != OK) {
        copy_free(c);
        return st;
    }
    *ret = c;
    return OK;
}

void copy_free(struct copy *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < c->nparts; i++) {
        route_unref(c->parts[i].route);
        rel_desc_unref(c->parts[i].desc);
        free(c->parts[i].fields);
    }
    for (size_t d = 0; d < c->ndestinations; d++)
        ack_free(c->acks[d]);
    buf_free(&c->rows);
    free(c->parts);
    free(c->acks);
    free(c);
}

size_t copy_parts(const struct copy *c)
{
    return c->nparts;
}

void copy_put_ident(const char *name, struct buf *out)
{
    buf_put_u8(out, '"');
    for (; *name != '\0'; name++) {
        if (*name == '"')
            buf_put_u8(out, '"');
        buf_put_u8(out, (uint8_t)*name);
    }
    buf_put_u8(out, '"');
}

void copy_sql(const struct copy *c, size_t part, struct buf *out)
{
    const struct copy_part *p = &c->parts[part];
    buf_printf(out, "COPY (SELECT xmin, ctid");
    for (unsigned i = 0; i < p->nfields; i++) {
        const char *name = p->desc->atts[p->fields[i].att].name;
        buf_printf(out, p->fields[i].text ? ", CASE WHEN pg_catalog.num_nulls(" : ", ");
        copy_put_ident(name, out);
        if (!p->fields[i].text)
            continue;
        buf_printf(out, ") = 0 THEN pg_catalog.format('%%s', ");
        copy_put_ident(name, out);
        buf_printf(out, ") END");
    }
    buf_printf(out, " FROM ONLY ");
    copy_put_ident(p->desc->schema, out);
    buf_put_u8(out, '.');
    copy_put_ident(p->desc->name, out);
    buf_printf(out, ") TO STDOUT (FORMAT binary)");
}

static enum status read_place(struct cursor *c, struct row_meta *meta, struct error *err)
{
    const uint8_t *xmin, *tid;
    uint32_t xmin_len, tid_len;
    TRY(copy_field_next(c, &xmin, &xmin_len, err));
    TRY(copy_field_next(c, &tid, &tid_len, err));
    if (xmin == NULL || xmin_len != 4 || tid == NULL || tid_len != 6)
        return error_set(err, ERR_DATA, "a row of COPY without xmin and ctid");
    meta->xid = (TransactionId)xmin[0] << 24 | (TransactionId)xmin[1] << 16 |
                (TransactionId)xmin[2] << 8 | xmin[3];
    BlockNumber block =
        (BlockNumber)tid[0] << 24 | (BlockNumber)tid[1] << 16 | (BlockNumber)tid[2] << 8 | tid[3];
    meta->tid = tid_make(block, (OffsetNumber)(tid[4] << 8 | tid[5]));
    return OK;
}

static enum status read_field(const struct copy_field *f, struct cursor *c, size_t max_bytes,
                              struct buf *room, struct datum *ret, struct error *err)
{
    const uint8_t *data;
    uint32_t len;
    TRY(copy_field_next(c, &data, &len, err));
    if (data == NULL) {
        *ret = (struct datum){.state = DATUM_NULL};
        return OK;
    }
    if (f->text) {
        *ret = (struct datum){.data = data, .len = len, .state = DATUM_TEXT};
    } else {
        *ret = (struct datum){.state = DATUM_VALUE};
        TRY(copy_value_get(f->typid, data, len, room, &ret->data, &ret->len, err));
    }
    if (ret->len > max_bytes)
        *ret = (struct datum){.state = DATUM_TOO_LARGE};
    return OK;
}

static enum status read_row(struct worker *w, const struct copy_job *j, struct cursor *c,
                            bool *ret_end, struct error *err)
{
    const struct copy_part *p = j->part;
    struct row_meta meta = {.lsn = j->copy->resync->lsn};
    struct buf *room;
    struct datum *datums = worker_datums(w, p->desc->natts, &room);
    TRY(copy_row_begin(c, p->nfields + FIELDS_FIRST, ret_end, err));
    if (*ret_end)
        return OK;
    for (unsigned i = 0; i < p->desc->natts; i++)
        datums[i] = (struct datum){.state = DATUM_NULL};
    TRY(read_place(c, &meta, err));
    for (unsigned i = 0; i < p->nfields; i++) {
        uint16_t att = p->fields[i].att;
        TRY(read_field(&p->fields[i], c, w->shared->inline_value_max, &room[att], &datums[att],
                       err));
    }
    return worker_add_datums(w, p->route, &meta, err);
}

static enum status read_rows(struct worker *w, const struct copy_job *j, struct error *err)
{
    struct cursor c = cursor_of(j->rows.data, j->rows.len);
    bool end = false;
    while (cursor_left(&c) > 0 && !end)
        TRY(read_row(w, j, &c, &end, err));
    if (cursor_left(&c) > 0)
        return error_set(err, ERR_DATA, "COPY went on behind its end");
    return OK;
}

static void job_free(struct copy_job *j, struct budget *budget)
{
    budget_release(budget, &j->permit);
    buf_free(&j->rows);
    free(j);
}

static void job_discard(struct job *job, struct budget *budget)
{
    job_free((struct copy_job *)job, budget);
}

/* The copy is not touched any more once its last number is acknowledged. */
static void job_run(struct worker *w, struct job *job)
{
    struct copy_job *j = (struct copy_job *)job;
    struct table_entry *table = j->copy->resync->table;
    struct error err = {0};
    enum status st = OK;
    w->rows_hint = j->nrows + 16;
    if (resync_is_valid(j->copy->resync))
        st = read_rows(w, j, &err);
    if (st == ERR_DATA) {
        worker_discard(w);
        st = tables_stop(w->shared->tables, table->oid, j->copy->resync->lsn, err.message, &err);
    }
    atomic_fetch_add(&table->copied, j->nrows);
    if (st == OK) {
        st = worker_finish(w, j->copy->acks, j->seqs, &j->permit, &err);
    } else {
        worker_discard(w);
    }
    job_free(j, w->shared->budget);
    if (st != OK)
        fatal_raise(w->shared->fatal, &err);
}

/* What has been put so far becomes a job. */
static enum status submit(struct copy *c, const struct copy_part *part, struct error *err)
{
    if (c->rows.len == 0)
        return OK;
    size_t bytes = 2 * c->rows.len + sizeof(struct copy_job);
    struct budget_permit permit = {0};
    TRY(budget_admit(pipeline_budget(c->resync->pipeline), bytes, &permit, err));
    struct copy_job *j = xcalloc(1, sizeof *j + c->ndestinations * sizeof j->seqs[0]);
    j->job = (struct job){.run = job_run, .discard = job_discard, .bytes = bytes};
    j->copy = c;
    j->part = part;
    j->rows = c->rows;
    j->nrows = c->nrows;
    j->permit = permit;
    c->rows = (struct buf){0};
    c->nrows = 0;
    for (size_t d = 0; d < c->ndestinations; d++)
        j->seqs[d] = ack_register(c->acks[d], c->resync->lsn);
    return pipeline_submit(c->resync->pipeline, &j->job, err);
}

enum status copy_put(struct copy *c, size_t part, const uint8_t *data, size_t len,
                     struct error *err)
{
    struct copy_part *p = &c->parts[part];
    struct cursor cursor = cursor_of(data, len);
    if (!p->begun)
        TRY(copy_header_skip(&cursor, err));
    p->begun = true;
    if (cursor_left(&cursor) <= 2) /* the trailer, or nothing behind the header */
        return OK;
    buf_put(&c->rows, data + cursor.pos, cursor_left(&cursor));
    c->nrows++;
    return c->rows.len >= PIECE_BYTES || c->nrows >= PIECE_ROWS ? submit(c, p, err) : OK;
}

enum status copy_part_end(struct copy *c, size_t part, struct error *err)
{
    return submit(c, &c->parts[part], err);
}

enum status copy_wait(struct copy *c, struct error *err)
{
    for (size_t d = 0; d < c->ndestinations; d++)
        TRY(ack_wait_all(c->acks[d], err));
    return OK;
}

void copy_cancel(struct copy *c)
{
    for (size_t d = 0; d < c->ndestinations; d++)
        ack_cancel(c->acks[d]);
}
