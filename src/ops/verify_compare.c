/* Two ordered streams are merged on the key; what differs is looked at again after both sides have
 * moved on, and only what differs while the source row stands still is a difference. */
#include "ops/verify_internal.h"
#include "clickhouse/sql_quote.h"
#include "table/target.h"

#include <stdlib.h>
#include <string.h>

#define SUSPECTS_MAX 100000
#define CHUNK 200
#define ROUNDS 6
#define SAMPLES 10
#define SHOWN 80

/* Rows that differed; only their keys are used again. */
struct suspects {
    struct verify_row *rows;
    size_t len, cap;
    bool overflow;
};

/* Cells that on_bad_value replaced: (column, _lsn) of this table. */
struct rejects {
    struct reject {
        char *column;
        uint64_t lsn;
    } * items;
    size_t len;
};

struct compare {
    const struct verify_run *run;
    const struct verify_plan *plan;
    struct verify_table *table;
    struct rejects rejects;
    unsigned block_rows; /* of the engine's answers, 0 = its own choice */
};

static void suspects_fini(struct suspects *s)
{
    for (size_t i = 0; i < s->len; i++)
        verify_row_fini(&s->rows[i]);
    free(s->rows);
    *s = (struct suspects){0};
}

static void suspects_add(struct suspects *s, const struct verify_row *row)
{
    if (s->len == SUSPECTS_MAX) {
        s->overflow = true;
        return;
    }
    if (s->len == s->cap) {
        s->cap = MAX(s->cap * 2, (size_t)64);
        s->rows = xrealloc(s->rows, s->cap * sizeof *s->rows);
    }
    verify_row_copy(row, &s->rows[s->len++]);
}

static void rejects_fini(struct rejects *r)
{
    for (size_t i = 0; i < r->len; i++)
        free(r->items[i].column);
    free(r->items);
}

static int reject_order(const void *a, const void *b)
{
    const struct reject *x = a, *y = b;
    return x->lsn != y->lsn ? (x->lsn < y->lsn ? -1 : 1) : strcmp(x->column, y->column);
}

/* The table may not exist: nothing was ever rejected. */
static enum status rejects_load(struct compare *c, struct error *err)
{
    CLEANUP_BUF struct buf sql = {0}, name = {0};
    const struct config_destination *d = &c->run->options->config->destinations[0];
    struct verify_stream *s;
    const struct verify_row *row;
    struct error ignored;
    if (d->database == NULL)
        return OK;
    sql_quote_ident(&name, d->database);
    buf_printf(&sql, "SELECT DISTINCT `column`, `lsn` FROM %s.`walshadow_rejects` WHERE `table` = ",
               buf_cstr(&name));
    sql_quote_string(&sql, c->plan->name);
    buf_printf(&sql, " ORDER BY `lsn`, `column` FORMAT TSV");
    if (verify_stream_open_engine(c->run->options->http_socket, buf_cstr(&sql), 2, 0, &s,
                                  &ignored) != OK)
        return OK;
    enum status st;
    size_t cap = 0;
    while ((st = verify_stream_next(s, &row, err)) == OK && row != NULL) {
        if (c->rejects.len == cap) {
            cap = MAX(cap * 2, (size_t)64);
            c->rejects.items = xrealloc(c->rejects.items, cap * sizeof *c->rejects.items);
        }
        c->rejects.items[c->rejects.len++] = (struct reject){
            xstrdup(verify_row_text(row, 0)), strtoull(verify_row_text(row, 1), NULL, 10)};
    }
    verify_stream_close(s);
    /* our order, not the engine's idea of it */
    if (c->rejects.len > 0)
        qsort(c->rejects.items, c->rejects.len, sizeof *c->rejects.items, reject_order);
    return st;
}

static bool is_rejected(const struct compare *c, size_t column, const struct verify_row *engine)
{
    struct reject key = {c->plan->columns[column].name,
                         strtoull(verify_row_text(engine, c->plan->ncolumns), NULL, 10)};
    return c->rejects.len > 0 && bsearch(&key, c->rejects.items, c->rejects.len,
                                         sizeof *c->rejects.items, reject_order) != NULL;
}

enum row_verdict { ROW_EQUAL, ROW_REJECTED, ROW_DIFFERENT };

/* *ret_column: the first column that differs without having been rejected. */
static enum row_verdict judge_row(const struct compare *c, const struct verify_row *source,
                                  const struct verify_row *engine, size_t *ret_column)
{
    enum row_verdict verdict = ROW_EQUAL;
    for (size_t i = 0; i < c->plan->ncolumns; i++) {
        if (verify_field_equal(source, i, engine, i))
            continue;
        if (!is_rejected(c, i, engine)) {
            *ret_column = i;
            return ROW_DIFFERENT;
        }
        verdict = ROW_REJECTED;
    }
    return verdict;
}

/* ---- the whole table ---- */

static enum status open_both(const struct compare *c, const char *pg_where, const char *ch_where,
                             struct verify_stream **source, struct verify_stream **engine,
                             struct error *err)
{
    CLEANUP_BUF struct buf pg = {0}, ch = {0};
    verify_plan_source_sql(c->plan, pg_where, &pg);
    verify_plan_engine_sql(c->plan, ch_where, &ch);
    TRY(verify_stream_open_source(c->run->source, buf_cstr(&pg), c->plan->ncolumns, source, err));
    return verify_stream_open_engine(c->run->options->http_socket, buf_cstr(&ch),
                                     c->plan->ncolumns + 1, c->block_rows, engine, err);
}

static enum status merge(struct compare *c, struct verify_stream *source,
                         struct verify_stream *engine, struct suspects *suspects, struct error *err)
{
    const struct verify_row *s, *e;
    size_t column;
    TRY(verify_stream_next(source, &s, err));
    TRY(verify_stream_next(engine, &e, err));
    while (s != NULL || e != NULL) {
        int order = s == NULL ? 1 : e == NULL ? -1 : verify_plan_compare(c->plan, s, e);
        c->table->rows += order <= 0;
        if (order == 0) {
            enum row_verdict verdict = judge_row(c, s, e, &column);
            c->table->rejected += verdict == ROW_REJECTED;
            if (verdict == ROW_DIFFERENT)
                suspects_add(suspects, s);
        } else {
            suspects_add(suspects, order < 0 ? s : e);
        }
        if (order <= 0)
            TRY(verify_stream_next(source, &s, err));
        if (order >= 0)
            TRY(verify_stream_next(engine, &e, err));
    }
    return OK;
}

static enum status one_pass(struct compare *c, struct suspects *suspects, struct error *err)
{
    struct verify_stream *source = NULL, *engine = NULL;
    c->table->rows = c->table->rejected = 0;
    enum status st = open_both(c, NULL, NULL, &source, &engine, err);
    if (st == OK)
        st = merge(c, source, engine, suspects, err);
    verify_stream_close(source);
    verify_stream_close(engine);
    return st;
}

/* 241 is MEMORY_LIMIT_EXCEEDED; an answer that ran out of memory half way ends with that text, or
 * is cut short. */
static bool is_out_of_memory(const struct error *err)
{
    return strstr(err->message, "Code: 241.") != NULL || strstr(err->message, "cut short") != NULL;
}

/* A query's memory is limited, and the engine's blocks are counted in rows: large values take
 * smaller blocks. */
static enum status first_pass(struct compare *c, struct suspects *suspects, struct error *err)
{
    static const unsigned steps[] = {0, 1024, 128, 16, 1};
    enum status st = OK;
    for (size_t i = 0; i < LENGTH(steps); i++) {
        c->block_rows = steps[i];
        st = one_pass(c, suspects, err);
        if (st == OK || !is_out_of_memory(err))
            return st;
        if (i + 1 < LENGTH(steps))
            suspects_fini(suspects);
    }
    return st;
}

/* ---- suspects, again ---- */

struct row_set {
    struct verify_row rows[CHUNK];
    size_t len;
};

static void row_set_fini(struct row_set *set)
{
    for (size_t i = 0; i < set->len; i++)
        verify_row_fini(&set->rows[i]);
    set->len = 0;
}

static enum status row_set_read(struct row_set *set, struct verify_stream *s, struct error *err)
{
    const struct verify_row *row;
    enum status st;
    while ((st = verify_stream_next(s, &row, err)) == OK && row != NULL) {
        if (set->len == CHUNK)
            return error_set(err, ERR_DATA, "a key is there more than once");
        verify_row_copy(row, &set->rows[set->len++]);
    }
    return st;
}

static const struct verify_row *row_set_find(const struct verify_plan *plan,
                                             const struct row_set *set,
                                             const struct verify_row *key)
{
    for (size_t i = 0; i < set->len; i++) {
        if (verify_plan_compare(plan, &set->rows[i], key) == 0)
            return &set->rows[i];
    }
    return NULL;
}

static enum status read_source(const struct compare *c, const struct verify_row *const *keys,
                               size_t n, struct row_set *ret, struct error *err)
{
    CLEANUP_BUF struct buf where = {0}, sql = {0};
    struct verify_stream *s;
    verify_plan_source_where(c->plan, c->run->source, keys, n, &where);
    verify_plan_source_sql(c->plan, buf_cstr(&where), &sql);
    TRY(verify_stream_open_source(c->run->source, buf_cstr(&sql), c->plan->ncolumns, &s, err));
    enum status st = row_set_read(ret, s, err);
    verify_stream_close(s);
    return st;
}

static enum status read_engine(const struct compare *c, const struct verify_row *const *keys,
                               size_t n, struct row_set *ret, struct error *err)
{
    CLEANUP_BUF struct buf where = {0}, sql = {0};
    struct verify_stream *s;
    verify_plan_engine_where(c->plan, keys, n, &where);
    verify_plan_engine_sql(c->plan, buf_cstr(&where), &sql);
    TRY(verify_stream_open_engine(c->run->options->http_socket, buf_cstr(&sql),
                                  c->plan->ncolumns + 1, c->block_rows, &s, err));
    enum status st = row_set_read(ret, s, err);
    verify_stream_close(s);
    return st;
}

static bool rows_equal(const struct verify_row *a, const struct verify_row *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    for (size_t i = 0; i < a->nfields; i++) {
        if (!verify_field_equal(a, i, b, i))
            return false;
    }
    return true;
}

static void put_value(struct buf *out, const struct verify_row *row, size_t i)
{
    const char *text = verify_row_text(row, i);
    if (text == NULL)
        buf_printf(out, "NULL");
    else
        buf_printf(out, "'%.*s'%s", SHOWN, text, row->fields[i].len > SHOWN ? "…" : "");
}

static void add_sample(struct compare *c, const struct verify_row *source,
                       const struct verify_row *engine, size_t column)
{
    struct buf *out = &c->table->sample;
    const struct verify_row *key = source != NULL ? source : engine;
    if (c->table->missing + c->table->extra + c->table->different > SAMPLES)
        return;
    for (size_t i = 0; i < c->plan->nkeys; i++) {
        buf_printf(out, "%s%s=", i > 0 ? " " : "  ", c->plan->columns[i].name);
        put_value(out, key, i);
    }
    if (engine == NULL) {
        buf_printf(out, ": missing at the destination\n");
    } else if (source == NULL) {
        buf_printf(out, ": not at the source\n");
    } else {
        buf_printf(out, ": %s is ", c->plan->columns[column].name);
        put_value(out, source, column);
        buf_printf(out, " at the source, ");
        put_value(out, engine, column);
        buf_printf(out, " at the destination\n");
    }
}

/* The row stood still at the source: what the destination has is final. */
static void settle(struct compare *c, const struct verify_row *source,
                   const struct verify_row *engine)
{
    size_t column = 0;
    enum row_verdict verdict = ROW_DIFFERENT;
    if (source == NULL && engine == NULL)
        return;
    if (source != NULL && engine != NULL)
        verdict = judge_row(c, source, engine, &column);
    c->table->rejected += verdict == ROW_REJECTED;
    if (verdict != ROW_DIFFERENT)
        return;
    c->table->missing += engine == NULL;
    c->table->extra += source == NULL;
    c->table->different += source != NULL && engine != NULL;
    add_sample(c, source, engine, column);
}

/* One chunk of keys; those whose source row moved meanwhile go to `moving`. */
static enum status recheck_chunk(struct compare *c, const struct verify_row *const *keys, size_t n,
                                 struct suspects *moving, struct error *err)
{
    struct row_set *sets = xcalloc(3, sizeof *sets);
    XLogRecPtr lsn;
    enum status st = read_source(c, keys, n, &sets[0], err);
    if (st == OK)
        st = verify_source_lsn(c->run->source, &lsn, err);
    if (st == OK)
        st = c->run->options->wait(c->run->options->ctx, lsn, err);
    if (st == OK)
        st = read_engine(c, keys, n, &sets[1], err);
    if (st == OK)
        st = read_source(c, keys, n, &sets[2], err);
    for (size_t i = 0; st == OK && i < n; i++) {
        const struct verify_row *before = row_set_find(c->plan, &sets[0], keys[i]);
        const struct verify_row *engine = row_set_find(c->plan, &sets[1], keys[i]);
        const struct verify_row *after = row_set_find(c->plan, &sets[2], keys[i]);
        if (rows_equal(before, after))
            settle(c, before, engine);
        else
            suspects_add(moving, keys[i]);
    }
    for (size_t i = 0; i < 3; i++)
        row_set_fini(&sets[i]);
    free(sets);
    return st;
}

static enum status recheck(struct compare *c, struct suspects *suspects, struct error *err)
{
    for (unsigned round = 0; round < ROUNDS && suspects->len > 0; round++) {
        struct suspects moving = {0};
        enum status st = OK;
        for (size_t at = 0; st == OK && at < suspects->len; at += CHUNK) {
            const struct verify_row *keys[CHUNK];
            size_t n = MIN((size_t)CHUNK, suspects->len - at);
            for (size_t i = 0; i < n; i++)
                keys[i] = &suspects->rows[at + i];
            st = recheck_chunk(c, keys, n, &moving, err);
        }
        suspects_fini(suspects);
        *suspects = moving;
        TRY(st);
    }
    if (suspects->len > 0)
        buf_printf(&c->table->sample,
                   "  %zu rows changed at the source at every look and could not be judged\n",
                   suspects->len);
    return OK;
}

enum status verify_table_compare(const struct verify_run *run, const struct verify_plan *plan,
                                 struct verify_table *table, struct error *err)
{
    struct compare c = {.run = run, .plan = plan, .table = table};
    struct suspects suspects = {0};
    enum status st = rejects_load(&c, err);
    if (st == OK)
        st = first_pass(&c, &suspects, err);
    bool overflow = suspects.overflow;
    if (st == OK)
        st = recheck(&c, &suspects, err);
    if (st == OK && overflow)
        st = error_set(err, ERR_DATA,
                       "more than %d rows differ; the first of them were looked at again",
                       SUSPECTS_MAX);
    suspects_fini(&suspects);
    rejects_fini(&c.rejects);
    return st;
}
