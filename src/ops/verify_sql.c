/* Statements and key order of a plan. */
#include "ops/verify_plan.h"
#include "clickhouse/sql_quote.h"
#include "table/target.h"

#include <stdlib.h>
#include <string.h>

void verify_plan_source_sql(const struct verify_plan *plan, const char *where, struct buf *out)
{
    buf_printf(out, "COPY (SELECT ");
    for (size_t i = 0; i < plan->ncolumns; i++)
        buf_printf(out, "%s%s", i > 0 ? ", " : "", plan->columns[i].pg);
    buf_printf(out, " FROM %s", plan->pg_from);
    if (where != NULL)
        buf_printf(out, " WHERE %s", where);
    for (size_t i = 0; i < plan->nkeys; i++)
        buf_printf(out, "%s%s", i > 0 ? ", " : " ORDER BY ", plan->columns[i].pg_order);
    buf_printf(out, ") TO STDOUT");
}

void verify_plan_engine_sql(const struct verify_plan *plan, const char *where, struct buf *out)
{
    buf_printf(out, "SELECT ");
    for (size_t i = 0; i < plan->ncolumns; i++)
        buf_printf(out, "%s, ", plan->columns[i].ch);
    buf_printf(out, "`_lsn` FROM %s FINAL", plan->ch_from);
    if (where != NULL)
        buf_printf(out, " WHERE %s", where);
    for (size_t i = 0; i < plan->nkeys; i++)
        buf_printf(out, "%s%s", i > 0 ? ", " : " ORDER BY ", plan->columns[i].ch_order);
    buf_printf(out, " FORMAT TSV");
}

/* A key's text as the literal its side compares with. Numbers are digits only by their type. */
static void put_source_literal(const struct verify_column *c, PGconn *source, const char *text,
                               struct buf *out)
{
    char *literal = PQescapeLiteral(source, text, strlen(text));
    if (strcmp(c->pg_key, "ctid") == 0) {
        unsigned long long ctid = strtoull(text, NULL, 10);
        buf_printf(out, "'(%llu,%llu)'::tid", ctid >> 16, ctid & 0xffff);
    } else {
        buf_printf(out, "%s", literal != NULL ? literal : "NULL");
    }
    PQfreemem(literal);
}

void verify_plan_source_where(const struct verify_plan *plan, PGconn *source,
                              const struct verify_row *const *rows, size_t nrows, struct buf *out)
{
    buf_printf(out, "(");
    for (size_t i = 0; i < plan->nkeys; i++)
        buf_printf(out, "%s%s", i > 0 ? ", " : "", plan->columns[i].pg_key);
    buf_printf(out, ") IN (");
    for (size_t r = 0; r < nrows; r++) {
        buf_printf(out, r > 0 ? ", (" : "(");
        for (size_t i = 0; i < plan->nkeys; i++) {
            buf_printf(out, i > 0 ? ", " : "");
            put_source_literal(&plan->columns[i], source, verify_row_text(rows[r], i), out);
        }
        buf_printf(out, ")");
    }
    buf_printf(out, ")");
}

void verify_plan_engine_where(const struct verify_plan *plan, const struct verify_row *const *rows,
                              size_t nrows, struct buf *out)
{
    buf_printf(out, "(");
    for (size_t i = 0; i < plan->nkeys; i++)
        buf_printf(out, "%s%s", i > 0 ? ", " : "", plan->columns[i].ch_key);
    buf_printf(out, ") IN (");
    for (size_t r = 0; r < nrows; r++) {
        buf_printf(out, r > 0 ? ", (" : "(");
        for (size_t i = 0; i < plan->nkeys; i++) {
            buf_printf(out, i > 0 ? ", " : "");
            if (plan->columns[i].is_number)
                buf_printf(out, "%s", verify_row_text(rows[r], i));
            else
                sql_quote_string(out, verify_row_text(rows[r], i));
        }
        buf_printf(out, ")");
    }
    buf_printf(out, ")");
}

static int compare_numbers(const char *a, const char *b)
{
    long long x = strtoll(a, NULL, 10), y = strtoll(b, NULL, 10);
    return x < y ? -1 : x > y;
}

static int compare_bytes(const struct verify_row *a, const struct verify_row *b, size_t i)
{
    const struct verify_field *x = &a->fields[i], *y = &b->fields[i];
    int c = memcmp(a->text.data + x->at, b->text.data + y->at, MIN(x->len, y->len));
    return c != 0 ? c : x->len < y->len ? -1 : x->len > y->len;
}

int verify_plan_compare(const struct verify_plan *plan, const struct verify_row *a,
                        const struct verify_row *b)
{
    for (size_t i = 0; i < plan->nkeys; i++) {
        int c = plan->columns[i].is_number
                    ? compare_numbers(verify_row_text(a, i), verify_row_text(b, i))
                    : compare_bytes(a, b, i);
        if (c != 0)
            return c;
    }
    return 0;
}
