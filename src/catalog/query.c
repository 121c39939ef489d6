#include "catalog/query_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Columns of the two answers, in the order of the SELECT lists below. */
enum {
    R_OID,
    R_NAMESPACE,
    R_SCHEMA,
    R_NAME,
    R_KIND,
    R_PERSISTENCE,
    R_IDENTITY,
    R_AM,
    R_NATTS,
    R_SPC,
    R_DB,
    R_FILENODE,
    R_TOAST,
    R_TOAST_SPC,
    R_TOAST_FILENODE,
    R_ROOT,
    R_KEY,
    R_NKEY,
    R_COLUMNS
};
enum {
    A_REL,
    A_NUM,
    A_NAME,
    A_LEN,
    A_ALIGN,
    A_STORAGE,
    A_GENERATED,
    A_DROPPED,
    A_NOT_NULL,
    A_HAS_MISSING,
    A_MISSING,
    A_MISSING_TEXT,
    A_TYPE,
    A_TYPMOD,
    A_TYPTYPE,
    A_CATEGORY,
    A_ELEM,
    A_BASE,
    A_FORMAT,
    A_COLUMNS
};

/* Key (notes B4). An index counts as PostgreSQL's RelationGetIndexList counts it (relcache.c):
 * valid, unique, immediate, without a predicate. */
static const char relations_sql[] =
    "SELECT c.oid, c.relnamespace, n.nspname, c.relname, c.relkind, c.relpersistence, "
    "c.relreplident, c.relam, c.relnatts, "
    "CASE WHEN c.reltablespace = 0 THEN d.dattablespace ELSE c.reltablespace END, d.oid, "
    "CASE WHEN c.relfilenode <> 0 THEN c.relfilenode "
    "ELSE coalesce(pg_catalog.pg_relation_filenode(c.oid), 0) END, "
    "c.reltoastrelid, "
    "CASE WHEN t.reltablespace = 0 THEN d.dattablespace ELSE t.reltablespace END, t.relfilenode, "
    "CASE WHEN c.relispartition THEN pg_catalog.pg_partition_root(c.oid)::pg_catalog.oid ELSE "
    "c.oid "
    "END, "
    "k.indkey, k.indnkeyatts "
    "FROM pg_catalog.pg_class c "
    "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "JOIN pg_catalog.pg_database d ON d.datname = pg_catalog.current_database() "
    "LEFT JOIN pg_catalog.pg_class t ON t.oid = c.reltoastrelid "
    "LEFT JOIN LATERAL (SELECT i.indkey, i.indnkeyatts FROM pg_catalog.pg_index i "
    "WHERE i.indrelid = c.oid AND i.indisvalid AND i.indisunique AND i.indimmediate "
    "AND i.indpred IS NULL AND CASE c.relreplident WHEN 'i' THEN i.indisreplident "
    "WHEN 'd' THEN i.indisprimary WHEN 'f' THEN i.indisprimary ELSE false END "
    "AND " CATALOG_KEY_IS_NOT_NULL " LIMIT 1) k ON true "
    "WHERE c.relkind IN ('r', 'p', 'm', 't') AND c.relpersistence <> 't' AND ";

/* not_null: 18 has attnotnull also while a constraint is NOT VALID (F7); earlier majors have no
 * constraints of type 'n'. Arrays are "true" if they are stored as arrays. */
static const char attributes_sql[] =
    "SELECT a.attrelid, a.attnum, a.attname, a.attlen, a.attalign, a.attstorage, a.attgenerated, "
    "a.attisdropped, "
    "a.attnotnull AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint x WHERE x.conrelid = "
    "a.attrelid AND x.contype = 'n' AND NOT x.convalidated AND x.conkey[1] = a.attnum), "
    "a.atthasmissing AND NOT a.attisdropped, "
    "CASE WHEN a.atthasmissing AND NOT a.attisdropped AND coalesce(bt.typtype, t.typtype) = 'b' "
    "AND "
    "coalesce(bt.oid, t.oid) < 16384 AND coalesce(bt.typsend, t.typsend) <> 0 THEN "
    "pg_catalog.array_send(a.attmissingval) END, "
    "CASE WHEN a.atthasmissing AND NOT a.attisdropped THEN a.attmissingval::pg_catalog.text END, "
    "a.atttypid, coalesce(b.typmod, a.atttypmod), t.typtype, coalesce(bt.typcategory, "
    "t.typcategory), "
    "CASE WHEN coalesce(bt.typlen, t.typlen) = -1 AND coalesce(bt.typsubscript, t.typsubscript) = "
    "'pg_catalog.array_subscript_handler'::pg_catalog.regproc THEN coalesce(bt.typelem, t.typelem) "
    "ELSE 0 END, "
    "coalesce(bt.oid, a.atttypid), "
    "CASE WHEN t.oid IS NOT NULL THEN pg_catalog.format_type(a.atttypid, a.atttypmod) END "
    "FROM pg_catalog.pg_attribute a "
    "JOIN pg_catalog.pg_class c ON c.oid = a.attrelid "
    "LEFT JOIN pg_catalog.pg_type t ON t.oid = a.atttypid "
    "LEFT JOIN LATERAL (WITH RECURSIVE w (oid, typmod) AS ("
    "SELECT t.typbasetype, CASE WHEN a.atttypmod >= 0 THEN a.atttypmod ELSE t.typtypmod END "
    "UNION ALL "
    "SELECT y.typbasetype, CASE WHEN w.typmod >= 0 THEN w.typmod ELSE y.typtypmod END "
    "FROM w JOIN pg_catalog.pg_type y ON y.oid = w.oid WHERE y.typtype = 'd') "
    "SELECT w.oid, w.typmod FROM w JOIN pg_catalog.pg_type y ON y.oid = w.oid "
    "WHERE y.typtype <> 'd') b ON t.typtype = 'd' "
    "LEFT JOIN pg_catalog.pg_type bt ON bt.oid = b.oid "
    "WHERE a.attnum > 0 AND c.relkind IN ('r', 'p', 'm', 't') AND c.relpersistence <> 't' AND ";

/* Missing values in the text form of contract: for the transaction. */
#define SETTINGS_COLUMNS 6
static const char settings_sql[] = "SELECT pg_catalog.set_config('DateStyle', 'ISO, MDY', true), "
                                   "pg_catalog.set_config('IntervalStyle', 'postgres', true), "
                                   "pg_catalog.set_config('TimeZone', 'UTC', true), "
                                   "pg_catalog.set_config('extra_float_digits', '1', true), "
                                   "pg_catalog.set_config('bytea_output', 'hex', true), "
                                   "pg_catalog.set_config('lc_monetary', 'C', true)";

static enum status failed(PGconn *conn, const PGresult *result, const char *what, struct error *err)
{
    const char *state = result == NULL ? NULL : PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *text = result == NULL ? NULL : PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    bool broken = PQstatus(conn) != CONNECTION_OK || state == NULL || state[0] == '5' ||
                  strncmp(state, "08", 2) == 0 || strncmp(state, "40", 2) == 0;
    if (text == NULL)
        text = PQerrorMessage(conn);
    error_set(err, broken ? ERR_RETRY : ERR_DATA, "cannot read %s: %.*s", what,
              (int)strcspn(text, "\n"), text);
    if (err != NULL && state != NULL && strlen(state) == 5)
        memcpy(err->sqlstate, state, 6);
    return broken ? ERR_RETRY : ERR_DATA;
}

enum status catalog_query_run(PGconn *conn, const char *sql, const char *param, const char *what,
                              int columns, PGresult **ret, struct error *err)
{
    const char *params[] = {param};
    PGresult *result = PQexecParams(conn, sql, param != NULL, NULL, params, NULL, NULL, 0);
    if (PQresultStatus(result) == PGRES_TUPLES_OK && PQnfields(result) == columns) {
        *ret = result;
        return OK;
    }
    if (columns == 0 && PQresultStatus(result) == PGRES_COMMAND_OK) {
        PQclear(result);
        return OK;
    }
    enum status st = failed(conn, result, what, err);
    PQclear(result);
    return st;
}

static const char *text(const PGresult *r, int row, int column)
{
    return PQgetvalue(r, row, column);
}

Oid catalog_query_oid(const PGresult *r, int row, int column)
{
    return (Oid)strtoul(text(r, row, column), NULL, 10); /* NULL has an empty text: 0 */
}

static char char_at(const PGresult *r, int row, int column)
{
    return text(r, row, column)[0];
}

static bool bool_at(const PGresult *r, int row, int column)
{
    return char_at(r, row, column) == 't';
}

static void name_at(const PGresult *r, int row, int column, char ret[NAMEDATALEN])
{
    snprintf(ret, NAMEDATALEN, "%s", text(r, row, column));
}

/* int2vector text "1 3"; a column that is an expression is 0 and makes no key. */
static void fill_key(struct rel_desc *d, const PGresult *r, int row)
{
    const char *at = text(r, row, R_KEY);
    long n = strtol(text(r, row, R_NKEY), NULL, 10);
    d->identity = IDENTITY_TID;
    if (PQgetisnull(r, row, R_KEY) || n < 1 || n > (long)LENGTH(d->key_attnums))
        return;
    for (long i = 0; i < n; i++) {
        char *end;
        long attnum = strtol(at, &end, 10);
        if (end == at || attnum < 1 || attnum > d->natts)
            return;
        d->key_attnums[i] = (int16_t)attnum;
        at = end;
    }
    d->nkeys = (uint16_t)n;
    d->identity = IDENTITY_KEY;
}

static enum status read_relation(const PGresult *r, int row, struct rel_desc **ret,
                                 struct error *err)
{
    long natts = strtol(text(r, row, R_NATTS), NULL, 10);
    if (natts < 0 || natts > 1600)
        return error_set(err, ERR_DATA, "relation %u has %ld attributes",
                         catalog_query_oid(r, row, R_OID), natts);
    struct rel_desc *d = rel_desc_new((unsigned)natts);
    d->oid = catalog_query_oid(r, row, R_OID);
    d->namespace_oid = catalog_query_oid(r, row, R_NAMESPACE);
    name_at(r, row, R_SCHEMA, d->schema);
    name_at(r, row, R_NAME, d->name);
    d->relkind = char_at(r, row, R_KIND);
    d->relpersistence = char_at(r, row, R_PERSISTENCE);
    d->relreplident = char_at(r, row, R_IDENTITY);
    d->relam = catalog_query_oid(r, row, R_AM);
    d->locator.rel_number = catalog_query_oid(r, row, R_FILENODE);
    if (d->locator.rel_number != 0) {
        d->locator.spc_oid = catalog_query_oid(r, row, R_SPC);
        d->locator.db_oid =
            d->locator.spc_oid == GLOBALTABLESPACE_OID ? 0 : catalog_query_oid(r, row, R_DB);
    }
    d->toast_oid = catalog_query_oid(r, row, R_TOAST);
    d->toast_locator.rel_number = catalog_query_oid(r, row, R_TOAST_FILENODE);
    if (d->toast_locator.rel_number != 0) {
        d->toast_locator.spc_oid = catalog_query_oid(r, row, R_TOAST_SPC);
        d->toast_locator.db_oid = catalog_query_oid(r, row, R_DB);
    }
    d->root_oid = catalog_query_oid(r, row, R_ROOT);
    if (d->root_oid == 0) /* detached in the meantime */
        d->root_oid = d->oid;
    fill_key(d, r, row);
    *ret = d;
    return OK;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* bytea in hex text form */
static bool unhex(const char *hex, size_t len, struct buf *out)
{
    if (len < 2 || len % 2 != 0 || hex[0] != '\\' || hex[1] != 'x')
        return false;
    for (size_t i = 2; i < len; i += 2) {
        int hi = hex_digit(hex[i]), lo = hex_digit(hex[i + 1]);
        if (hi < 0 || lo < 0)
            return false;
        buf_put_u8(out, (uint8_t)(hi << 4 | lo));
    }
    return true;
}

static enum status fill_missing(struct att_desc *a, const PGresult *r, int row, struct error *err)
{
    CLEANUP_BUF struct buf array = {0};
    CLEANUP_BUF struct buf datum = {0};
    bool known = false;
    a->has_missing = bool_at(r, row, A_HAS_MISSING) && !PQgetisnull(r, row, A_MISSING_TEXT);
    if (!a->has_missing)
        return OK;
    bool binary = !PQgetisnull(r, row, A_MISSING);
    if (binary && !unhex(text(r, row, A_MISSING), (size_t)PQgetlength(r, row, A_MISSING), &array))
        return error_set(err, ERR_DATA, "attmissingval of column %s is not bytea in hex form",
                         a->name);
    if (binary)
        TRY(catalog_missing_datum(a->base_typid, array.data, array.len, &datum, &known, err));
    a->missing_is_text = !known;
    if (!known && !catalog_missing_text(text(r, row, A_MISSING_TEXT),
                                        (size_t)PQgetlength(r, row, A_MISSING_TEXT), &datum))
        return error_set(err, ERR_DATA, "attmissingval of column %s is not the text of an array",
                         a->name);
    a->missing = xmalloc(datum.len);
    a->missing_len = (uint32_t)datum.len;
    if (datum.len > 0)
        memcpy(a->missing, datum.data, datum.len);
    return OK;
}

static enum status read_attribute(struct att_desc *a, const PGresult *r, int row, struct error *err)
{
    a->attnum = (int16_t)atoi(text(r, row, A_NUM));
    a->attlen = (int16_t)atoi(text(r, row, A_LEN));
    a->attalign = char_at(r, row, A_ALIGN);
    a->attstorage = char_at(r, row, A_STORAGE);
    a->generated = char_at(r, row, A_GENERATED);
    a->dropped = bool_at(r, row, A_DROPPED);
    a->not_null = bool_at(r, row, A_NOT_NULL) && !a->dropped;
    a->typtype = char_at(r, row, A_TYPTYPE);
    a->typcategory = char_at(r, row, A_CATEGORY);
    a->typid = catalog_query_oid(r, row, A_TYPE);
    a->typmod = atoi(text(r, row, A_TYPMOD));
    a->elem_typid = catalog_query_oid(r, row, A_ELEM);
    a->base_typid = catalog_query_oid(r, row, A_BASE);
    name_at(r, row, A_NAME, a->name);
    if (!PQgetisnull(r, row, A_FORMAT))
        a->type_name = xstrdup(text(r, row, A_FORMAT));
    if (strchr("csid", a->attalign) == NULL ||
        (a->attlen <= 0 && a->attlen != -1 && a->attlen != -2))
        return error_set(err, ERR_DATA, "column %s: length %d, alignment \"%c\"", a->name,
                         a->attlen, a->attalign);
    return fill_missing(a, r, row, err);
}

/* Both answers are in oid order; the attributes of one relation are complete and in order, or the
 * relation changed between the two statements, which one snapshot rules out. */
static enum status fill_attributes(struct rel_desc *d, const PGresult *r, int *at,
                                   struct error *err)
{
    while (*at < PQntuples(r) && catalog_query_oid(r, *at, A_REL) < d->oid)
        (*at)++;
    for (unsigned i = 0; i < d->natts; i++, (*at)++) {
        if (*at >= PQntuples(r) || catalog_query_oid(r, *at, A_REL) != d->oid ||
            atoi(text(r, *at, A_NUM)) != (int)i + 1)
            return error_set(err, ERR_DATA, "relation %s.%s (oid %u) lacks attribute %u of %u",
                             d->schema, d->name, d->oid, i + 1, d->natts);
        TRY(read_attribute(&d->atts[i], r, *at, err));
    }
    return OK;
}

void catalog_query_free(struct rel_desc **descs, size_t n)
{
    for (size_t i = 0; descs != NULL && i < n; i++)
        rel_desc_unref(descs[i]);
    free(descs);
}

/* Leaves of tables that are split; their roots may not be among the relations read. */
static enum status split_roots(PGconn *conn, const struct catalog_split *split,
                               struct rel_desc **descs, size_t n, struct error *err)
{
    CLEANUP_BUF struct buf list = {0};
    PGresult *r = NULL;
    for (size_t i = 0; i < n; i++)
        if (descs[i]->relkind == 'r' && descs[i]->root_oid != descs[i]->oid)
            buf_printf(&list, "%c%u", list.len == 0 ? '{' : ',', descs[i]->root_oid);
    if (list.len == 0)
        return OK;
    buf_printf(&list, "}");
    TRY(catalog_query_run(conn,
                          "SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c "
                          "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
                          "WHERE c.oid = ANY ($1::pg_catalog.oid[])",
                          buf_cstr(&list), "the roots of partitions", 3, &r, err));
    for (int row = 0; row < PQntuples(r); row++) {
        Oid root = catalog_query_oid(r, row, 0);
        if (!split->is_split(split->ctx, text(r, row, 1), text(r, row, 2)))
            continue;
        for (size_t i = 0; i < n; i++)
            if (descs[i]->relkind == 'r' && descs[i]->root_oid == root)
                descs[i]->root_oid = descs[i]->oid;
    }
    PQclear(r);
    return OK;
}

static enum status build(PGconn *conn, const struct catalog_split *split, const PGresult *rels,
                         const PGresult *atts, struct rel_desc ***ret, size_t *ret_n,
                         struct error *err)
{
    size_t n = (size_t)PQntuples(rels);
    struct rel_desc **descs = xcalloc(n, sizeof *descs);
    enum status st = OK;
    int at = 0;
    for (size_t i = 0; st == OK && i < n; i++) {
        st = read_relation(rels, (int)i, &descs[i], err);
        if (st == OK)
            st = fill_attributes(descs[i], atts, &at, err);
    }
    if (st == OK)
        st = catalog_query_types(conn, descs, n, err);
    if (st == OK && split != NULL)
        st = split_roots(conn, split, descs, n, err);
    if (st != OK) {
        catalog_query_free(descs, n);
        return st;
    }
    for (size_t i = 0; i < n; i++)
        rel_desc_seal(descs[i]);
    *ret = descs;
    *ret_n = n;
    return OK;
}

static enum status read_both(PGconn *conn, const struct catalog_split *split, const char *list,
                             struct rel_desc ***ret, size_t *ret_n, struct error *err)
{
    const char *which = list != NULL ? "c.oid = ANY ($1::pg_catalog.oid[])" : "c.oid >= 16384";
    CLEANUP_FREE char *rels_sql = xasprintf("%s%s ORDER BY c.oid", relations_sql, which);
    CLEANUP_FREE char *atts_sql =
        xasprintf("%s%s ORDER BY a.attrelid, a.attnum", attributes_sql, which);
    PGresult *rels = NULL, *atts = NULL, *settings = NULL;
    TRY(catalog_query_run(conn, settings_sql, NULL, "settings", SETTINGS_COLUMNS, &settings, err));
    PQclear(settings);
    enum status st = catalog_query_run(conn, rels_sql, list, "pg_class", R_COLUMNS, &rels, err);
    if (st == OK)
        st = catalog_query_run(conn, atts_sql, list, "pg_attribute", A_COLUMNS, &atts, err);
    if (st == OK)
        st = build(conn, split, rels, atts, ret, ret_n, err);
    PQclear(rels);
    PQclear(atts);
    return st;
}

enum status catalog_query_read(PGconn *conn, unsigned major, const Oid *oids, size_t noids,
                               struct rel_desc ***ret, size_t *ret_n, struct error *err)
{
    return catalog_query_read_split(conn, major, NULL, oids, noids, ret, ret_n, err);
}

enum status catalog_query_read_split(PGconn *conn, unsigned major,
                                     const struct catalog_split *split, const Oid *oids,
                                     size_t noids, struct rel_desc ***ret, size_t *ret_n,
                                     struct error *err)
{
    CLEANUP_BUF struct buf list = {0};
    bool own = PQtransactionStatus(conn) == PQTRANS_IDLE;
    if (major < PG_MAJOR_MIN || major > PG_MAJOR_MAX)
        return error_set(err, ERR_CONFIG, "PostgreSQL %u: 15 to 18 are supported", major);
    for (size_t i = 0; i < noids; i++)
        buf_printf(&list, "%c%u", i == 0 ? '{' : ',', oids[i]);
    buf_printf(&list, noids == 0 ? "{}" : "}");
    if (own)
        TRY(catalog_query_run(conn, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY", NULL,
                              "the catalog", 0, NULL, err));
    enum status st = read_both(conn, split, oids != NULL ? buf_cstr(&list) : NULL, ret, ret_n, err);
    if (own) { /* nothing was written: what COMMIT says changes nothing about what was read */
        PGresult *ended = PQexec(conn, st == OK ? "COMMIT" : "ROLLBACK");
        PQclear(ended);
    }
    return st;
}

enum status catalog_query_filenodes(PGconn *conn, struct catalog_filenode **ret, size_t *ret_n,
                                    struct error *err)
{
    PGresult *r = NULL;
    TRY(catalog_query_run(
        conn,
        "SELECT c.oid, CASE WHEN c.reltablespace = 0 THEN d.dattablespace ELSE c.reltablespace "
        "END, CASE WHEN c.relisshared THEN 0 ELSE d.oid END, "
        "pg_catalog.pg_relation_filenode(c.oid) FROM pg_catalog.pg_class c "
        "JOIN pg_catalog.pg_database d ON d.datname = pg_catalog.current_database() "
        "WHERE c.oid < 16384 AND c.oid NOT IN (2613, 2683) "
        "AND c.relkind IN ('r', 'i', 't', 'm', 'S') "
        "AND pg_catalog.pg_relation_filenode(c.oid) IS NOT NULL ORDER BY c.oid",
        NULL, "the catalog's filenodes", 4, &r, err));
    size_t n = (size_t)PQntuples(r);
    struct catalog_filenode *nodes = xcalloc(n, sizeof *nodes);
    for (size_t i = 0; i < n; i++)
        nodes[i] = (struct catalog_filenode){catalog_query_oid(r, (int)i, 0),
                                             {catalog_query_oid(r, (int)i, 1),
                                              catalog_query_oid(r, (int)i, 2),
                                              catalog_query_oid(r, (int)i, 3)}};
    PQclear(r);
    *ret = nodes;
    *ret_n = n;
    return OK;
}

enum status catalog_query_temporary(PGconn *conn, struct buf *oids, struct error *err)
{
    PGresult *r = NULL;
    TRY(catalog_query_run(conn,
                          "SELECT c.oid FROM pg_catalog.pg_class c WHERE c.relpersistence = 't'",
                          NULL, "the temporary relations", 1, &r, err));
    for (int i = 0; i < PQntuples(r); i++)
        buf_put_u32(oids, catalog_query_oid(r, i, 0));
    PQclear(r);
    return OK;
}

enum status catalog_query_database(PGconn *conn, struct catalog_database *ret, struct error *err)
{
    PGresult *r = NULL;
    struct catalog_database db = {0};
    TRY(catalog_query_run(
        conn,
        "SELECT oid, dattablespace, encoding, pg_catalog.pg_encoding_to_char(encoding), datname, "
        "datcollate FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()",
        NULL, "pg_database", 6, &r, err));
    if (PQntuples(r) != 1) {
        PQclear(r);
        return error_set(err, ERR_DATA, "pg_database has no row of the current database");
    }
    db.oid = catalog_query_oid(r, 0, 0);
    db.spc_oid = catalog_query_oid(r, 0, 1);
    db.encoding = atoi(text(r, 0, 2));
    name_at(r, 0, 3, db.encoding_name);
    name_at(r, 0, 4, db.name);
    snprintf(db.collate, sizeof db.collate, "%s", text(r, 0, 5));
    PQclear(r);
    *ret = db;
    return OK;
}
