/* What of the database is replicated and what is not, by name. */
#include "ops/preflight_internal.h"
#include "catalog/query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_SHOWN 20

/* "a.b, c.d, … and 5 more", of column 0 of a result. */
static void put_names(struct buf *out, const PGresult *r)
{
    int n = PQntuples(r);
    for (int i = 0; i < n && i < NAMES_SHOWN; i++)
        buf_printf(out, "%s%s", i > 0 ? ", " : "", PQgetvalue(r, i, 0));
    if (n > NAMES_SHOWN)
        buf_printf(out, " and %d more", n - NAMES_SHOWN);
}

/* Relations outside the system schemas that are not copied, each kind with its reason. */
static void check_kinds(struct preflight_run *run)
{
    static const struct kind {
        const char *code, *what, *condition;
        enum preflight_severity severity;
    } kinds[] = {
        {"unlogged_tables", "UNLOGGED tables write no WAL",
         "c.relkind IN ('r', 'p') AND c.relpersistence = 'u'", PREFLIGHT_WARNING},
        {"temporary_tables", "temporary tables write no WAL",
         "c.relkind IN ('r', 'p') AND c.relpersistence = 't'", PREFLIGHT_INFO},
        {"materialized_views", "materialized views", "c.relkind = 'm'", PREFLIGHT_INFO},
        {"foreign_tables", "foreign tables hold no rows here", "c.relkind = 'f'", PREFLIGHT_INFO},
        {"sequences", "sequences", "c.relkind = 'S'", PREFLIGHT_INFO},
        {"access_methods", "tables of an access method other than heap",
         "c.relkind = 'r' AND c.relpersistence = 'p' AND c.relam NOT IN (0, 2)", PREFLIGHT_WARNING},
    };
    for (size_t i = 0; i < LENGTH(kinds); i++) {
        CLEANUP_BUF struct buf sql = {0}, names = {0};
        buf_printf(&sql,
                   "SELECT n.nspname || '.' || c.relname FROM pg_catalog.pg_class c JOIN "
                   "pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid >= 16384 AND "
                   "n.nspname NOT LIKE 'pg\\_toast%%' AND n.nspname <> 'information_schema' AND %s "
                   "ORDER BY 1",
                   kinds[i].condition);
        PGresult *r = preflight_query(run, kinds[i].code, buf_cstr(&sql), NULL);
        if (r != NULL && PQntuples(r) > 0) {
            put_names(&names, r);
            preflight_add(run->report, kinds[i].severity, kinds[i].code, "not replicated (%s): %s",
                          kinds[i].what, buf_cstr(&names));
        }
        PQclear(r);
    }
}

static bool is_replicated(struct preflight_run *run, const char *schema, const char *table)
{
    const struct config *c = run->options->config;
    struct config_target target;
    for (size_t i = 0; i < c->ndestinations; i++) {
        config_table_resolve(c, &c->destinations[i], schema, table, &target);
        if (target.replicate)
            return true;
    }
    return false;
}

/* Every plain type that the column's is made of: oids, separated by blanks. */
static bool parts_supported(struct preflight_run *run, const char *oids, const char *type)
{
    for (char *end; *oids != '\0'; oids = end) {
        unsigned oid = (unsigned)strtoul(oids, &end, 10);
        if (end == oids || !run->options->type_supported(run->options->ctx, oid, type))
            return false;
    }
    return true;
}

/* Tables with a column nobody can carry are skipped, each with its first such column. */
static void check_column_types(struct preflight_run *run)
{
    static const char sql[] =
        "SELECT n.nspname, c.relname, a.attname, (WITH RECURSIVE part (oid) AS (SELECT a.atttypid "
        "UNION SELECT p.oid FROM part JOIN pg_catalog.pg_type t ON t.oid = part.oid JOIN LATERAL ("
        "SELECT t.typelem WHERE t.typlen = -1 AND t.typsubscript = "
        "'pg_catalog.array_subscript_handler'::pg_catalog.regproc AND t.oid NOT IN (22, 30) "
        "UNION ALL SELECT t.typbasetype WHERE t.typtype = 'd' UNION ALL SELECT r.rngsubtype FROM "
        "pg_catalog.pg_range r WHERE t.oid IN (r.rngtypid, r.rngmultitypid) UNION ALL SELECT "
        "x.atttypid FROM pg_catalog.pg_attribute x WHERE t.typtype = 'c' AND x.attrelid = "
        "t.typrelid AND x.attnum > 0 AND NOT x.attisdropped) p (oid) ON true) "
        "SELECT pg_catalog.string_agg(part.oid::pg_catalog.text, ' ') FROM part JOIN "
        "pg_catalog.pg_type t ON t.oid = part.oid WHERE t.typtype IN ('b', 'p') AND NOT (t.typlen "
        "= -1 AND t.typsubscript = 'pg_catalog.array_subscript_handler'::pg_catalog.regproc AND "
        "t.oid NOT IN (22, 30))), "
        "pg_catalog.format_type(a.atttypid, a.atttypmod), a.attgenerated FROM pg_catalog.pg_class "
        "c "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT "
        "a.attisdropped "
        "WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition AND "
        "c.oid >= "
        "16384 AND n.nspname <> 'information_schema' ORDER BY n.nspname, c.relname, a.attnum";
    if (run->options->type_supported == NULL)
        return;
    PGresult *r = preflight_query(run, "column_types", sql, NULL);
    int n = r == NULL ? 0 : PQntuples(r);
    for (int i = 0; i < n; i++) {
        const char *schema = PQgetvalue(r, i, 0), *table = PQgetvalue(r, i, 1);
        const char *column = PQgetvalue(r, i, 2), *type = PQgetvalue(r, i, 4);
        if (!is_replicated(run, schema, table))
            continue;
        if (PQgetvalue(r, i, 5)[0] == 'v')
            preflight_add(run->report, PREFLIGHT_INFO, "virtual_column",
                          "%s.%s: column %s is a virtual generated column and is left out", schema,
                          table, column);
        else if (!parts_supported(run, PQgetvalue(r, i, 3), type)) {
            preflight_add(run->report, PREFLIGHT_WARNING, "column_type",
                          "%s.%s is skipped: column %s of type %s is not supported by this version",
                          schema, table, column, type);
            while (i + 1 < n && strcmp(PQgetvalue(r, i + 1, 0), schema) == 0 &&
                   strcmp(PQgetvalue(r, i + 1, 1), table) == 0)
                i++;
        }
    }
    PQclear(r);
}

/* B4: what becomes of tables whose identity is no key. Fine, but worth knowing. */
static void check_identities(struct preflight_run *run)
{
    static const char sql[] =
        "SELECT n.nspname || '.' || c.relname, c.relreplident, coalesce(i.indimmediate, false), "
        "i.indexrelid IS NOT NULL FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON "
        "n.oid = "
        "c.relnamespace LEFT JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND CASE "
        "c.relreplident WHEN "
        "'i' THEN i.indisreplident ELSE i.indisprimary END "
        "AND " CATALOG_KEY_IS_NOT_NULL " WHERE c.relkind IN ('r', 'p') AND "
        "c.relpersistence = 'p' AND NOT c.relispartition AND c.oid >= 16384 AND n.nspname <> "
        "'information_schema' AND (c.relreplident = 'n' OR i.indexrelid IS NULL OR NOT "
        "i.indimmediate) "
        "ORDER BY 1";
    CLEANUP_BUF struct buf keyless = {0};
    PGresult *r = preflight_query(run, "replica_identity", sql, NULL);
    if (r != NULL && PQntuples(r) > 0) {
        put_names(&keyless, r);
        preflight_add(
            run->report, PREFLIGHT_INFO, "replica_identity",
            "tables without a usable key are identified by row position (_ctid): %s. A PRIMARY "
            "KEY, or ALTER TABLE … REPLICA IDENTITY USING INDEX, gives them one",
            buf_cstr(&keyless));
    }
    PQclear(r);
}

/* A section of the configuration for a table that is not there is most likely a mistyped name. */
static void check_configured(struct preflight_run *run)
{
    const struct config *c = run->options->config;
    for (size_t i = 0; i < c->ntables; i++) {
        CLEANUP_FREE char *schema = PQescapeIdentifier(run->options->source, c->tables[i].schema,
                                                       strlen(c->tables[i].schema));
        CLEANUP_FREE char *table =
            PQescapeIdentifier(run->options->source, c->tables[i].name, strlen(c->tables[i].name));
        if (schema == NULL || table == NULL)
            continue;
        CLEANUP_FREE char *name = xasprintf("%s.%s", schema, table);
        PGresult *r = preflight_query(run, "configured_table",
                                      "SELECT pg_catalog.to_regclass($1) IS NOT NULL", name);
        if (r != NULL && PQgetvalue(r, 0, 0)[0] != 't')
            preflight_add(run->report, PREFLIGHT_WARNING, "configured_table",
                          "[table.%s.%s] is configured but the source has no such table",
                          c->tables[i].schema, c->tables[i].name);
        PQclear(r);
    }
}

/* Without a chunk store an UPDATE of another column loses what lies out of line. */
static void check_toast(struct preflight_run *run)
{
    static const char sql[] =
        "SELECT n.nspname || '.' || c.relname FROM pg_catalog.pg_class c "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND "
        "c.relpersistence = 'p' AND c.oid >= 16384 AND c.reltoastrelid <> 0 AND n.nspname <> "
        "'information_schema' ORDER BY 1";
    CLEANUP_BUF struct buf names = {0};
    if (run->options->config->toast.mode != TOAST_DISABLED)
        return;
    PGresult *r = preflight_query(run, "toast_disabled", sql, NULL);
    if (r != NULL && PQntuples(r) > 0) {
        put_names(&names, r);
        preflight_add(run->report, PREFLIGHT_WARNING, "toast_disabled",
                      "toast.mode = disabled: a large value that an UPDATE does not touch is lost "
                      "(on_bad_value decides, see walshadow_rejects) in %s",
                      buf_cstr(&names));
    }
    PQclear(r);
}

void preflight_check_tables(struct preflight_run *run)
{
    check_kinds(run);
    check_column_types(run);
    check_identities(run);
    check_toast(run);
    check_configured(run);
}
