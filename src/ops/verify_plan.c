#include "ops/verify_plan.h"
#include "catalog/query.h"
#include "clickhouse/sql_quote.h"

#include "table/target.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* pg_type.h: the types whose destination may be typed. Every other type is compared in text form.
 */
enum {
    TYPE_BOOL = 16,
    TYPE_BYTEA = 17,
    TYPE_INT8 = 20,
    TYPE_INT2 = 21,
    TYPE_INT4 = 23,
    TYPE_TEXT = 25,
    TYPE_OID = 26,
    TYPE_FLOAT4 = 700,
    TYPE_FLOAT8 = 701,
    TYPE_VARCHAR = 1043,
    TYPE_DATE = 1082,
    TYPE_TIME = 1083,
    TYPE_TIMESTAMP = 1114,
    TYPE_TIMESTAMPTZ = 1184,
    TYPE_NUMERIC = 1700,
    TYPE_UUID = 2950,
    TYPE_PG_LSN = 3220,
};

/* reg*: a name as text, an oid at the destination */
static bool is_reg_type(Oid type)
{
    static const Oid types[] = {24, 2202, 2203, 2204, 2205, 2206, 3734, 3769, 4089, 4096, 4191};
    for (size_t i = 0; i < LENGTH(types); i++)
        if (types[i] == type)
            return true;
    return false;
}

/* A column of the destination as DESCRIBE gives it. */
struct engine_column {
    char *name, *type;
};

struct engine_table {
    struct engine_column *columns;
    size_t len;
};

static void engine_table_fini(struct engine_table *t)
{
    for (size_t i = 0; i < t->len; i++) {
        free(t->columns[i].name);
        free(t->columns[i].type);
    }
    free(t->columns);
}

static const char *engine_type(const struct engine_table *t, const char *name)
{
    for (size_t i = 0; i < t->len; i++) {
        if (strcmp(t->columns[i].name, name) == 0)
            return t->columns[i].type;
    }
    return NULL;
}

/* The type inside Nullable( and LowCardinality(; begins in type, ends at the closing parentheses.
 */
static const char *inner_type(const char *type)
{
    static const char *const wrappers[] = {"Nullable(", "LowCardinality("};
    for (size_t i = 0; i < LENGTH(wrappers);) {
        size_t n = strlen(wrappers[i]);
        bool hit = strncmp(type, wrappers[i], n) == 0;
        type += hit ? n : 0;
        i = hit ? 0 : i + 1;
    }
    return type;
}

static bool starts(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static char *quote_pg(PGconn *source, const char *name)
{
    char *quoted = PQescapeIdentifier(source, name, strlen(name));
    char *copy = xstrdup(quoted != NULL ? quoted : name);
    PQfreemem(quoted);
    return copy;
}

static char *quote_ch(const char *name)
{
    CLEANUP_BUF struct buf out = {0};
    sql_quote_ident(&out, name);
    return xstrdup(buf_cstr(&out));
}

/* A value's expression at the destination that keeps NULL as NULL. */
static char *when_set(const char *column, const char *before, const char *after)
{
    return xasprintf("if(isNull(%s), NULL, %sassumeNotNull(%s)%s)", column, before, column, after);
}

/* Where the destination is typed, both sides are turned into the exact thing the type holds: days,
 * microseconds, the bits of a float. */
static void typed_expressions(struct verify_column *c, Oid type, const char *v, const char *t,
                              const char *ch_type)
{
    const char *inner = inner_type(ch_type);
    int scale = 0;
    if (type == TYPE_BYTEA) {
        c->pg = xasprintf("pg_catalog.encode(%s, 'hex')", v);
        c->ch = when_set(t, "lower(hex(", "))");
    } else if (starts(inner, "Bool")) {
        c->ch = when_set(t, "if(", ", 't', 'f')");
    } else if (type == TYPE_FLOAT4 && starts(inner, "Float32")) {
        c->pg = xasprintf(
            "('x' || pg_catalog.encode(pg_catalog.float4send(%s), 'hex'))::bit(32)::int4", v);
        c->ch = when_set(t, "toString(reinterpretAsInt32(", "))");
    } else if (type == TYPE_FLOAT8 && starts(inner, "Float64")) {
        c->pg = xasprintf(
            "('x' || pg_catalog.encode(pg_catalog.float8send(%s), 'hex'))::bit(64)::int8", v);
        c->ch = when_set(t, "toString(reinterpretAsInt64(", "))");
    } else if (type == TYPE_DATE && starts(inner, "Date")) {
        c->pg =
            xasprintf("CASE WHEN pg_catalog.isfinite(%s) THEN (%s - DATE '1970-01-01')::text ELSE "
                      "%s::text END",
                      v, v, v);
        c->ch = when_set(t, "toString(toInt32(", "))");
    } else if ((type == TYPE_TIMESTAMP || type == TYPE_TIMESTAMPTZ) &&
               starts(inner, "DateTime64")) {
        c->pg = xasprintf("CASE WHEN pg_catalog.isfinite(%s) THEN (EXTRACT(epoch FROM %s) * "
                          "1000000)::int8::text ELSE %s::text END",
                          v, v, v);
        c->ch = when_set(t, "toString(toUnixTimestamp64Micro(", "))");
    } else if (type == TYPE_TIME && starts(inner, "Time64")) {
        c->pg = xasprintf("pg_catalog.to_char(%s, 'HH24:MI:SS.US')", v);
        c->ch = when_set(t, "toString(CAST(", " AS Time64(6)))");
    } else if (type == TYPE_NUMERIC && sscanf(inner, "Decimal(%*d, %d)", &scale) == 1) {
        CLEANUP_FREE char *after = xasprintf(", %d)", scale);
        c->ch = when_set(t, "toDecimalString(", after);
    } else if (!starts(inner, "String")) {
        c->ch = when_set(t, "toString(", ")");
        if (is_reg_type(type))
            c->pg = xasprintf("%s::pg_catalog.oid", v);
        else if (type == TYPE_PG_LSN)
            c->pg = xasprintf("(%s - '0/0')", v);
    }
    if (c->pg == NULL)
        c->pg = xstrdup(v);
    if (c->ch == NULL)
        c->ch = xstrdup(t);
}

static bool is_integer_type(Oid type)
{
    return type == TYPE_INT2 || type == TYPE_INT4 || type == TYPE_INT8 || type == TYPE_OID;
}

static void key_expressions(struct verify_column *c, Oid type, const char *v, const char *t,
                            const char *ch_type)
{
    const char *inner = inner_type(ch_type);
    bool plain = type == TYPE_TEXT || type == TYPE_VARCHAR || type == TYPE_UUID;
    c->is_number = is_integer_type(type) && (starts(inner, "Int") || starts(inner, "UInt"));
    if (c->is_number) { /* both sides can use their key */
        c->pg_order = xstrdup(v);
        c->ch_order = xstrdup(t);
        c->pg_key = xstrdup(v);
        c->ch_key = xstrdup(t);
        return;
    }
    bool as_is = strcmp(c->pg, v) == 0;
    c->pg_order = as_is ? xasprintf("pg_catalog.format('%%s', %s) COLLATE \"C\"", v)
                        : xasprintf("(%s)::text COLLATE \"C\"", c->pg);
    c->ch_order = xstrdup(c->ch);
    c->pg_key = plain   ? xstrdup(v)
                : as_is ? xasprintf("pg_catalog.format('%%s', %s)", v)
                        : xasprintf("(%s)::text", c->pg);
    c->ch_key = starts(inner, "String") && type != TYPE_BYTEA ? xstrdup(t) : xstrdup(c->ch);
}

/* _ctid and _part: the row's place is the key (notes B6, B7). */
static void place_columns(struct verify_plan *plan, bool has_part)
{
    struct verify_column *c = &plan->columns[plan->ncolumns];
    if (has_part) {
        *c = (struct verify_column){.name = xstrdup("_part"), .is_number = true};
        c->pg = xstrdup("tableoid");
        c->ch = xstrdup("toString(`_part`)");
        c->pg_order = xstrdup("tableoid");
        c->pg_key = xstrdup("tableoid");
        c->ch_order = xstrdup("`_part`");
        c->ch_key = xstrdup("`_part`");
        c++;
    }
    *c = (struct verify_column){.name = xstrdup("_ctid"), .is_number = true};
    c->pg = xstrdup("((ctid::text::point)[0]::int8 << 16) | (ctid::text::point)[1]::int8");
    c->ch = xstrdup("toString(`_ctid`)");
    c->pg_order = xstrdup("ctid");
    c->pg_key = xstrdup("ctid");
    c->ch_order = xstrdup("`_ctid`");
    c->ch_key = xstrdup("`_ctid`");
    plan->nkeys = has_part ? 2 : 1;
    plan->ncolumns += plan->nkeys;
}

/* ---- what both sides have ---- */

static enum status read_engine_table(const char *http_socket, const char *from,
                                     struct engine_table *ret, struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    struct verify_stream *s;
    const struct verify_row *row = NULL;
    buf_printf(&sql, "DESCRIBE TABLE %s FORMAT TSV", from);
    /* name, type, default kind and expression, comment, codec, ttl */
    TRY(verify_stream_open_engine(http_socket, buf_cstr(&sql), 7, 0, &s, err));
    enum status st;
    while ((st = verify_stream_next(s, &row, err)) == OK && row != NULL) {
        ret->columns = xrealloc(ret->columns, (ret->len + 1) * sizeof *ret->columns);
        ret->columns[ret->len++] = (struct engine_column){xstrdup(verify_row_text(row, 0)),
                                                          xstrdup(verify_row_text(row, 1))};
    }
    verify_stream_close(s);
    return st;
}

/* Rows: schema, table, relkind, attname, attnum, base type, position in the key (0 = none). */
static enum status read_source_table(PGconn *source, const char *name, PGresult **ret,
                                     struct error *err)
{
    static const char sql[] =
        "SELECT n.nspname, c.relname, c.relkind, a.attname, a.attnum, (WITH RECURSIVE b(oid, "
        "typtype, base) "
        "AS (SELECT t.oid, t.typtype, t.typbasetype UNION ALL SELECT i.oid, i.typtype, "
        "i.typbasetype FROM b "
        "JOIN pg_catalog.pg_type i ON i.oid = b.base WHERE b.typtype = 'd') SELECT oid FROM b "
        "WHERE typtype "
        "<> 'd'), coalesce(k.place, 0) FROM pg_catalog.pg_class c "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT "
        "a.attisdropped AND "
        "a.attgenerated <> 'v' JOIN pg_catalog.pg_type t ON t.oid = a.atttypid "
        "LEFT JOIN LATERAL (SELECT u.place FROM pg_catalog.pg_index i, unnest(i.indkey::int2[]) "
        "WITH "
        "ORDINALITY u(attnum, place) WHERE i.indrelid = c.oid AND u.attnum = a.attnum AND u.place "
        "<= "
        "i.indnkeyatts AND CASE c.relreplident WHEN 'i' THEN i.indisreplident WHEN 'n' THEN false "
        "ELSE "
        "i.indisprimary AND i.indimmediate END AND " CATALOG_KEY_IS_NOT_NULL ") k ON true "
        "WHERE n.nspname || '.' || c.relname = $1 AND c.relkind IN ('r', 'p') ORDER BY a.attnum";
    const char *params[] = {name};
    PGresult *r = PQexecParams(source, sql, 1, NULL, params, NULL, NULL, 0);
    enum status st = OK;
    if (PQresultStatus(r) != PGRES_TUPLES_OK)
        st = error_set(err, ERR_RETRY, "source: %s", PQerrorMessage(source));
    else if (PQntuples(r) == 0)
        st = error_set(err, ERR_CONFIG, "the source has no table %s", name);
    if (st != OK) {
        PQclear(r);
        return st;
    }
    *ret = r;
    return OK;
}

static const char *target_name(const struct config_target *t, int attnum, const char *name)
{
    for (size_t i = 0; i < t->ncolumns; i++) {
        if (t->columns[i].attnum == attnum && t->columns[i].target != NULL)
            return t->columns[i].target;
    }
    return name;
}

struct plan_input {
    PGconn *source;
    const PGresult *rows;
    const struct engine_table *engine;
    struct config_target target;
};

static enum status add_column(struct verify_plan *plan, const struct plan_input *in, int row,
                              bool as_key, struct error *err)
{
    const char *name = PQgetvalue(in->rows, row, 3);
    const char *target = target_name(&in->target, atoi(PQgetvalue(in->rows, row, 4)), name);
    const char *ch_type = engine_type(in->engine, target);
    Oid type = (Oid)strtoul(PQgetvalue(in->rows, row, 5), NULL, 10);
    if (ch_type == NULL)
        return error_set(err, ERR_CONFIG, "the destination has no column %s", target);
    struct verify_column *c = &plan->columns[plan->ncolumns++];
    CLEANUP_FREE char *v = quote_pg(in->source, name);
    CLEANUP_FREE char *t = quote_ch(target);
    *c = (struct verify_column){.name = xstrdup(name)};
    typed_expressions(c, type, v, t, ch_type);
    if (as_key)
        key_expressions(c, type, v, t, ch_type);
    return OK;
}

static enum status fill_plan(struct verify_plan *plan, const struct plan_input *in,
                             struct error *err)
{
    int n = PQntuples(in->rows);
    bool keyless = engine_type(in->engine, "_ctid") != NULL;
    plan->columns = xcalloc((size_t)n + 2, sizeof *plan->columns);
    if (keyless)
        place_columns(plan, engine_type(in->engine, "_part") != NULL);
    for (int place = 1; !keyless && place <= n; place++) {
        for (int i = 0; i < n; i++) {
            if (atoi(PQgetvalue(in->rows, i, 6)) != place)
                continue;
            TRY(add_column(plan, in, i, true, err));
            plan->nkeys++;
        }
    }
    for (int i = 0; i < n; i++) {
        if (keyless || atoi(PQgetvalue(in->rows, i, 6)) == 0)
            TRY(add_column(plan, in, i, false, err));
    }
    if (plan->nkeys == 0)
        return error_set(err, ERR_CONFIG,
                         "the source table has no key and the destination no _ctid");
    return OK;
}

enum status verify_plan_make(PGconn *source, const char *http_socket, const struct config *config,
                             const char *name, const char *target, struct verify_plan *ret,
                             struct error *err)
{
    const char *dot = strchr(target, '.');
    struct engine_table engine = {0};
    PGresult *rows = NULL;
    *ret = (struct verify_plan){0};
    if (dot == NULL)
        return error_set(err, ERR_CONFIG, "no target is known");
    TRY(read_source_table(source, name, &rows, err));
    struct plan_input in = {.source = source, .rows = rows, .engine = &engine};
    config_table_resolve(config, &config->destinations[0], PQgetvalue(rows, 0, 0),
                         PQgetvalue(rows, 0, 1), &in.target);
    /* names may hold dots: the configuration's halves decide if they make up the target */
    CLEANUP_FREE char *joined = xasprintf("%s.%s", in.target.database, in.target.table);
    bool known = strcmp(joined, target) == 0;
    CLEANUP_FREE char *first = xasprintf("%.*s", (int)(dot - target), target);
    CLEANUP_FREE char *database = quote_ch(known ? in.target.database : first);
    CLEANUP_FREE char *table = quote_ch(known ? in.target.table : dot + 1);
    CLEANUP_FREE char *schema_pg = quote_pg(source, PQgetvalue(rows, 0, 0));
    CLEANUP_FREE char *table_pg = quote_pg(source, PQgetvalue(rows, 0, 1));
    ret->name = xstrdup(name);
    /* inheritance children are tables of their own; partitions belong to their root */
    ret->pg_from =
        xasprintf("%s%s.%s", PQgetvalue(rows, 0, 2)[0] == 'p' ? "" : "ONLY ", schema_pg, table_pg);
    ret->ch_from = xasprintf("%s.%s", database, table);
    enum status st = read_engine_table(http_socket, ret->ch_from, &engine, err);
    if (st == OK)
        st = fill_plan(ret, &in, err);
    engine_table_fini(&engine);
    PQclear(rows);
    if (st != OK)
        verify_plan_fini(ret);
    return st;
}

void verify_plan_fini(struct verify_plan *plan)
{
    for (size_t i = 0; i < plan->ncolumns; i++) {
        struct verify_column *c = &plan->columns[i];
        char *const all[] = {c->name, c->pg, c->ch, c->pg_order, c->ch_order, c->pg_key, c->ch_key};
        for (size_t j = 0; j < LENGTH(all); j++)
            free(all[j]);
    }
    free(plan->columns);
    free(plan->name);
    free(plan->pg_from);
    free(plan->ch_from);
    *plan = (struct verify_plan){0};
}
