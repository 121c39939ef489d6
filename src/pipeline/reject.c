/* walshadow_rejects: one row for each value that on_bad_value replaced, durable before the row
 * itself is acknowledged (it travels under the same number). */
#include "pipeline/worker.h"
#include "clickhouse/sql_quote.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
    const char *name, *type;
} columns[] = {
    {"at", "DateTime64(6, 'UTC')"}, {"lsn", "UInt64"}, {"xid", "UInt32"},   {"table", "String"},
    {"column", "String"},           {"key", "String"}, {"value", "String"}, {"reason", "String"},
    {"action", "String"},
};
#define REJECT_TEXT_MAX 1024u

enum status reject_target_new(const char *database, struct target **ret, struct error *err)
{
    struct target *t = xcalloc(1, sizeof *t);
    unsigned n = LENGTH(columns);
    (void)err;
    atomic_init(&t->refs, 1);
    t->database = xstrdup(database);
    t->table = xstrdup("walshadow_rejects");
    t->header = xcalloc(1, sizeof *t->header + n * sizeof t->header->cols[0]);
    t->header->ncols = n;
    CLEANUP_BUF struct buf sql = {0};
    buf_printf(&sql, "INSERT INTO ");
    sql_quote_ident(&sql, database);
    buf_printf(&sql, ".`walshadow_rejects` (");
    for (unsigned i = 0; i < n; i++) {
        t->header->cols[i].name = xstrdup(columns[i].name);
        t->header->cols[i].type = xstrdup(columns[i].type);
        buf_printf(&sql, "%s`%s`", i == 0 ? "" : ", ", columns[i].name);
    }
    buf_printf(&sql, ") FORMAT Native");
    t->insert_sql = xstrdup(buf_cstr(&sql));
    *ret = t;
    return OK;
}

void reject_create_sql(const struct target *t, struct buf *out)
{
    buf_printf(out, "CREATE TABLE IF NOT EXISTS ");
    sql_quote_ident(out, t->database);
    buf_printf(out, ".`walshadow_rejects` (");
    for (unsigned i = 0; i < LENGTH(columns); i++)
        buf_printf(out, "%s`%s` %s", i == 0 ? "" : ", ", columns[i].name, columns[i].type);
    buf_printf(out, ") ENGINE = ReplacingMergeTree ORDER BY (`table`, `lsn`, `column`)");
}

static struct builder *reject_builder(struct worker *w, size_t d)
{
    struct route *fake;
    struct target *target = w->shared->rejects[d];
    for (size_t i = 0; i < w->nbuilders; i++)
        if (w->builders[i].target == target && w->builders[i].destination == d)
            return &w->builders[i];
    fake = xcalloc(1, sizeof *fake + w->shared->ndestinations * sizeof fake->targets[0]);
    fake->targets[d].target = target;
    struct builder *b = worker_builder(w, fake, d);
    free(fake);
    return b;
}

static void put_text(struct column_buf *col, const void *text, size_t n)
{
    buf_put_varint(&col->data, n);
    buf_put(&col->data, text, n);
}

static void key_text(const struct reject *r, const struct target *target, struct buf *out)
{
    const struct rel_desc *desc = r->route->desc;
    if (target->has_ctid) {
        buf_printf(out, "(%u,%u)", (unsigned)(r->meta->tid >> 16),
                   (unsigned)(r->meta->tid & 0xffff));
        return;
    }
    for (unsigned k = 0; k < desc->nkeys; k++) {
        unsigned at = (unsigned)desc->key_attnums[k] - 1;
        if (k > 0)
            buf_put_u8(out, ',');
        if (at < desc->natts && r->datums[at].state == DATUM_VALUE)
            datum_text(&desc->atts[at], r->datums[at].data, r->datums[at].len, REJECT_TEXT_MAX,
                       out);
        else if (at < desc->natts && r->datums[at].state == DATUM_TEXT)
            buf_put(out, r->datums[at].data, MIN(r->datums[at].len, REJECT_TEXT_MAX));
    }
}

void reject_append(struct worker *w, size_t d, const struct reject *r)
{
    CLEANUP_BUF struct buf key = {0};
    CLEANUP_BUF struct buf value = {0};
    struct timespec now;
    struct builder *b = reject_builder(w, d);
    const char *table = r->route->table->name;
    struct column_buf *col = b->block->cols;
    clock_gettime(CLOCK_REALTIME, &now);
    key_text(r, r->route->targets[d].target, &key);
    if (r->value->state == DATUM_VALUE)
        datum_text(r->att, r->value->data, r->value->len, REJECT_TEXT_MAX, &value);
    buf_put_i64(&(col++)->data, (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    buf_put_u64(&(col++)->data, r->meta->lsn);
    buf_put_u32(&(col++)->data, r->meta->xid);
    put_text(col++, table, strlen(table));
    put_text(col++, r->att->name, strlen(r->att->name));
    put_text(col++, key.data, key.len);
    put_text(col++, value.data, value.len);
    put_text(col++, r->reason, strlen(r->reason));
    put_text(col, r->action, strlen(r->action));
    b->block->rows++;
}
