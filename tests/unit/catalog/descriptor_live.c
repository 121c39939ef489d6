/* Descriptors read from a real server. The oracles are the server's own: the bytes of a heap page
 * (pageinspect) for missing values, its functions for filenodes, pg_relation_filepath for the seed.
 */
#include "source/live_server.h"

#include "catalog/query.h"

static struct live_server server;
static bool have_server;
static PGconn *conn;

#define NEED_SERVER()                                                                              \
    do {                                                                                           \
        if (!have_server)                                                                          \
            skip();                                                                                \
    } while (0)

static void ask(char *out, size_t cap, const char *sql)
{
    PGresult *r = PQexec(conn, sql);
    if (PQresultStatus(r) != PGRES_TUPLES_OK || PQntuples(r) != 1)
        fail_msg("%s: %s", sql, PQerrorMessage(conn));
    snprintf(out, cap, "%s", PQgetvalue(r, 0, 0));
    PQclear(r);
}

static void run(const char *sql)
{
    PGresult *r = PQexec(conn, sql);
    if (PQresultStatus(r) != PGRES_COMMAND_OK && PQresultStatus(r) != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(conn));
    PQclear(r);
}

static struct rel_desc *read_one(const char *name)
{
    struct error err = {0};
    struct rel_desc **descs = NULL;
    size_t n = 0;
    char sql[200], text[32];
    snprintf(sql, sizeof sql, "SELECT '%s'::regclass::oid", name);
    ask(text, sizeof text, sql);
    Oid oid = (Oid)strtoul(text, NULL, 10);
    assert_ok(catalog_query_read(conn, 15, &oid, 1, &descs, &n, &err));
    assert_int_equal(n, 1);
    struct rel_desc *d = descs[0];
    free(descs);
    assert_int_equal(d->oid, oid);
    return d;
}

static const char *const missing[] = {
    "bool DEFAULT true",
    "\"char\" DEFAULT 'q'",
    "int2 DEFAULT -2",
    "int4 DEFAULT 2147483647",
    "int8 DEFAULT -9000000000000000001",
    "oid DEFAULT 4294967295",
    "float4 DEFAULT 'NaN'",
    "float8 DEFAULT -0.1",
    "numeric DEFAULT 0",
    "numeric DEFAULT -12345.6789",
    "numeric DEFAULT 1e100",
    "numeric DEFAULT 1e300",
    "numeric DEFAULT 1e-300",
    "numeric DEFAULT 0.00000000000000000000000000000000000000000000000000000000000000000000001",
    "numeric DEFAULT 'NaN'",
    "numeric DEFAULT 'Infinity'",
    "numeric DEFAULT '-Infinity'",
    "numeric(10, 2) DEFAULT 100",
    "text DEFAULT ''",
    "text DEFAULT E'a\\u00e9\\\\b'",
    "varchar(20) DEFAULT 'abc'",
    "char(5) DEFAULT 'ab'",
    "name DEFAULT 'nm'",
    "bytea DEFAULT '\\x00ff00'",
    "json DEFAULT '{\"a\" : 1}'",
    "date DEFAULT '1999-12-31'",
    "date DEFAULT 'infinity'",
    "time DEFAULT '23:59:59.999999'",
    "timetz DEFAULT '12:00:00+05:30'",
    "timestamp DEFAULT '1970-01-01 00:00:00'",
    "timestamptz DEFAULT '2024-02-29 12:34:56.789+00'",
    "interval DEFAULT '1 year -3 days 04:05:06'",
    "uuid DEFAULT 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
    "dom2 DEFAULT 7.5",
};

/* A row inserted after the columns were added holds the same datums, as the server forms them. */
static void test_missing_values(void **state)
{
    NEED_SERVER();
    char sql[400], want[4096], hex[4096];
    (void)state;
    run("CREATE EXTENSION pageinspect");
    run("CREATE DOMAIN dom1 AS numeric(8, 3)");
    run("CREATE DOMAIN dom2 AS dom1");
    run("CREATE TABLE m (id int)");
    run("INSERT INTO m VALUES (1)");
    for (size_t i = 0; i < LENGTH(missing); i++) {
        snprintf(sql, sizeof sql, "ALTER TABLE m ADD COLUMN c%zu %s", i, missing[i]);
        run(sql);
    }
    run("INSERT INTO m VALUES (2)");
    struct rel_desc *d = read_one("m");
    assert_int_equal(d->natts, LENGTH(missing) + 1);
    assert_false(d->atts[0].has_missing);
    for (size_t i = 0; i < LENGTH(missing); i++) {
        const struct att_desc *a = &d->atts[i + 1];
        snprintf(sql, sizeof sql,
                 "SELECT encode((tuple_data_split('m'::regclass, t_data, t_infomask, t_infomask2, "
                 "t_bits))"
                 "[%zu], 'hex') FROM heap_page_items(get_raw_page('m', 0)) WHERE lp = 2",
                 i + 2);
        ask(want, sizeof want, sql);
        if (!a->has_missing || a->missing == NULL)
            fail_msg("%s: no missing value", missing[i]);
        size_t n = 0;
        hex[0] = '\0';
        if (a->attlen == -1) /* its one-byte header: length with header, shifted, lowest bit set */
            n = (size_t)snprintf(hex, sizeof hex, "%02x", (a->missing_len + 1) << 1 | 1);
        for (uint32_t k = 0; k < a->missing_len; k++)
            n += (size_t)snprintf(hex + n, sizeof hex - n, "%02x", a->missing[k]);
        if (strcmp(hex, want) != 0)
            fail_msg("%s: %s, the server has %s", missing[i], hex, want);
    }
    const struct att_desc *domain = &d->atts[LENGTH(missing)];
    assert_int_equal(domain->typtype, 'd');
    assert_int_equal(domain->base_typid, 1700);
    assert_int_equal(domain->typmod, ((8 << 16) | 3) + 4);
    assert_string_equal(domain->type_name, "dom2");
    rel_desc_unref(d);
}

/* Types whose datum is not made here: their text, as the server prints it. */
static void test_text_missing(void **state)
{
    static const char *const defaults[] = {
        "jsonb DEFAULT '{\"a\": \"b\\\\\\\"c\", \"n\": [1.50, null]}'",
        "jsonb DEFAULT '1'",
        "int[] DEFAULT '{1,NULL,3}'",
        "text[] DEFAULT ARRAY['x y', '', 'q\"\\', NULL, 'NULL']",
        "tmood DEFAULT 'very \"glad\"'",
        "tpair DEFAULT ROW(1, 'a,b')",
        "int4range DEFAULT '[1,5)'",
        "interval[] DEFAULT '{1 day -00:00:01}'",
        "inet DEFAULT '1.2.3.4'",
        "varbit DEFAULT '101'",
        "point DEFAULT '(1,-0.1)'",
        "aclitem DEFAULT 'postgres=r/postgres'",
    };
    char sql[400], want[200];
    NEED_SERVER();
    (void)state;
    run("CREATE TYPE tmood AS ENUM ('sad', 'very \"glad\"')");
    run("CREATE TYPE tpair AS (a int, b text)");
    run("CREATE TABLE um (id int)");
    run("INSERT INTO um VALUES (1)");
    for (size_t i = 0; i < LENGTH(defaults); i++) {
        snprintf(sql, sizeof sql, "ALTER TABLE um ADD COLUMN c%zu %s", i, defaults[i]);
        run(sql);
    }
    struct rel_desc *d = read_one("um");
    for (size_t i = 0; i < LENGTH(defaults); i++) {
        const struct att_desc *a = &d->atts[i + 1];
        snprintf(sql, sizeof sql, "SELECT format('%%s', c%zu) FROM um", i);
        ask(want, sizeof want, sql);
        assert_true(a->has_missing && a->missing_is_text);
        if (a->missing_len != strlen(want) || memcmp(a->missing, want, a->missing_len) != 0)
            fail_msg("%s: %.*s, the server has %s", defaults[i], (int)a->missing_len,
                     (char *)a->missing, want);
    }
    assert_int_equal(d->atts[3].elem_typid, 23);
    assert_int_equal(d->atts[3].typcategory, 'A');
    rel_desc_unref(d);
}

/* The types of a column's type, whatever their order, each once. */
static void test_type_closure(void **state)
{
    static const char *const wanted[] = {"dmoods", "_vmood", "vmood",     "vpair",         "dnum",
                                         "_vpair", "int4",   "int4range", "int4multirange"};
    NEED_SERVER();
    (void)state;
    run("CREATE TYPE vmood AS ENUM ('b', 'a')");
    run("ALTER TYPE vmood ADD VALUE 'first' BEFORE 'b'");
    run("CREATE DOMAIN dnum AS int");
    run("CREATE DOMAIN dmoods AS vmood[]");
    run("CREATE TYPE vpair AS (n dnum, gone text, m dmoods)");
    run("ALTER TYPE vpair DROP ATTRIBUTE gone");
    run("CREATE TABLE vt (id int, ps vpair[], m int4multirange, v int2vector, t text)");
    struct rel_desc *d = read_one("vt");
    assert_non_null(d->types);
    assert_int_equal(d->types->n, LENGTH(wanted));
    for (size_t i = 0; i < LENGTH(wanted); i++) {
        bool found = false;
        for (unsigned t = 0; t < d->types->n; t++)
            found = found || strcmp(d->types->types[t].name, wanted[i]) == 0;
        if (!found)
            fail_msg("no %s", wanted[i]);
    }
    for (unsigned t = 0; t < d->types->n; t++) {
        const struct type_desc *desc = &d->types->types[t];
        assert_true(t == 0 || desc[-1].oid < desc->oid);
        if (strcmp(desc->name, "vmood") == 0) {
            assert_int_equal(desc->kind, TYPE_DESC_ENUM);
            assert_int_equal(desc->nlabels, 3);
        } else if (strcmp(desc->name, "vpair") == 0) {
            assert_int_equal(desc->kind, TYPE_DESC_COMPOSITE);
            assert_int_equal(desc->natts, 3);
            assert_true(desc->atts[1].dropped && !desc->atts[2].dropped);
            assert_true(type_closure_has_rows_of(d->types, desc->relid));
        }
    }
    assert_ptr_equal(d->atts[1].types, d->types);
    assert_null(d->atts[0].types);
    assert_null(d->atts[3].types);
    assert_null(d->atts[4].types);
    rel_desc_unref(d);
    d = read_one("um");
    assert_non_null(d);
    rel_desc_unref(d);
}

static void assert_key(const char *table, const char *want)
{
    struct rel_desc *d = read_one(table);
    char text[100] = "";
    for (unsigned i = 0; i < d->nkeys; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", i > 0 ? " " : "",
                 d->key_attnums[i]);
    if (strcmp(text, want) != 0)
        fail_msg("%s: key %s, wanted %s", table, text, want);
    assert_int_equal(d->identity, want[0] == '\0' ? IDENTITY_TID : IDENTITY_KEY);
    rel_desc_unref(d);
}

/* Notes B4. */
static void test_keys(void **state)
{
    NEED_SERVER();
    (void)state;
    run("CREATE TABLE k1 (a int, b int, c int, PRIMARY KEY (c, a) INCLUDE (b))");
    assert_key("k1", "3 1");
    run("ALTER TABLE k1 REPLICA IDENTITY FULL");
    assert_key("k1", "3 1");
    run("ALTER TABLE k1 REPLICA IDENTITY NOTHING");
    assert_key("k1", "");
    run("CREATE TABLE k2 (a int PRIMARY KEY DEFERRABLE, b int NOT NULL)");
    assert_key("k2", "");
    run("CREATE UNIQUE INDEX k2_b ON k2 (b)");
    run("ALTER TABLE k2 REPLICA IDENTITY USING INDEX k2_b");
    assert_key("k2", "2");
    run("CREATE TABLE k3 (a int UNIQUE)");
    assert_key("k3", "");
    run("ALTER TABLE k3 REPLICA IDENTITY FULL");
    assert_key("k3", "");
}

static void test_shapes(void **state)
{
    NEED_SERVER();
    char text[64];
    (void)state;
    run("CREATE TABLE s1 (a int NOT NULL, b varchar(10), c text, d int GENERATED ALWAYS AS (a * 2) "
        "STORED)");
    run("ALTER TABLE s1 DROP COLUMN b");
    struct rel_desc *d = read_one("s1");
    assert_int_equal(d->natts, 4);
    assert_true(d->atts[0].not_null && !d->atts[2].not_null);
    assert_true(d->atts[1].dropped);
    assert_int_equal(d->atts[1].attlen, -1);
    assert_null(d->atts[1].type_name);
    assert_int_equal(d->atts[3].generated, 's');
    assert_string_equal(d->schema, "public");
    assert_int_equal(d->relkind, 'r');
    assert_int_equal(d->relam, 2);
    assert_int_equal(d->root_oid, d->oid);
    assert_int_equal(d->locator.spc_oid, 1663);
    ask(text, sizeof text, "SELECT pg_relation_filenode('s1')");
    assert_int_equal(d->locator.rel_number, strtoul(text, NULL, 10));
    ask(text, sizeof text,
        "SELECT pg_relation_filenode(reltoastrelid) FROM pg_class WHERE relname = 's1'");
    assert_int_equal(d->toast_locator.rel_number, strtoul(text, NULL, 10));
    ask(text, sizeof text, "SELECT oid FROM pg_database WHERE datname = 'postgres'");
    assert_int_equal(d->locator.db_oid, strtoul(text, NULL, 10));
    rel_desc_unref(d);
    run("CREATE TABLE pr (a int, b int) PARTITION BY LIST (a)");
    run("CREATE TABLE pm PARTITION OF pr FOR VALUES IN (1) PARTITION BY LIST (b)");
    run("CREATE TABLE pl PARTITION OF pm FOR VALUES IN (1)");
    struct rel_desc *root = read_one("pr"), *leaf = read_one("pl");
    assert_int_equal(leaf->root_oid, root->oid);
    assert_int_equal(root->locator.rel_number, 0);
    assert_int_equal(root->relkind, 'p');
    run("ALTER TABLE pm DETACH PARTITION pl");
    rel_desc_unref(leaf);
    leaf = read_one("pl");
    assert_int_equal(leaf->root_oid, leaf->oid);
    rel_desc_unref(root);
    rel_desc_unref(leaf);
}

/* GRANT, CREATE INDEX, storage parameters change nothing; a rename does; CLUSTER changes storage
 * only. */
static void test_what_changes(void **state)
{
    NEED_SERVER();
    (void)state;
    run("CREATE TABLE w (a int PRIMARY KEY, b text)");
    struct rel_desc *before = read_one("w"), *after;
    run("GRANT SELECT ON w TO PUBLIC");
    run("CREATE INDEX w_b ON w (b)");
    run("ALTER TABLE w SET (fillfactor = 70)");
    run("COMMENT ON TABLE w IS 'x'");
    run("REINDEX TABLE w");
    run("ANALYZE w");
    after = read_one("w");
    assert_true(rel_desc_equal(before, after, true));
    rel_desc_unref(after);
    run("VACUUM FULL w");
    after = read_one("w");
    assert_true(rel_desc_equal(before, after, false));
    assert_false(rel_desc_equal(before, after, true));
    rel_desc_unref(after);
    run("ALTER TABLE w RENAME b TO c");
    after = read_one("w");
    assert_false(rel_desc_equal(before, after, false));
    rel_desc_unref(after);
    rel_desc_unref(before);
}

static void test_read_all(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    struct rel_desc **descs = NULL;
    size_t n = 0;
    char text[32];
    const Oid gone[] = {999999, 1259};
    (void)state;
    ask(text, sizeof text,
        "SELECT count(*) FROM pg_class WHERE oid >= 16384 AND relkind IN ('r', 'p', 'm', 't')");
    assert_ok(catalog_query_read(conn, 15, NULL, 0, &descs, &n, &err));
    assert_int_equal(n, strtoul(text, NULL, 10));
    for (size_t i = 1; i < n; i++)
        assert_true(descs[i - 1]->oid < descs[i]->oid);
    catalog_query_free(descs, n);
    assert_ok(catalog_query_read(conn, 15, gone, 2, &descs, &n, &err));
    assert_int_equal(n, 1);
    assert_string_equal(descs[0]->name, "pg_class");
    assert_true(descs[0]->locator.rel_number != 0);
    catalog_query_free(descs, n);
    assert_ok(catalog_query_read(conn, 15, gone, 0, &descs, &n, &err));
    assert_int_equal(n, 0);
    free(descs);
    assert_int_equal(PQtransactionStatus(conn), PQTRANS_IDLE);
}

static void test_filenodes(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    struct catalog_filenode *nodes = NULL;
    struct catalog_database db;
    size_t n = 0;
    char sql[200], want[200], path[200];
    (void)state;
    run("VACUUM FULL pg_class"); /* a mapped relation with a file above 16383 */
    assert_ok(catalog_query_database(conn, &db, &err));
    assert_string_equal(db.name, "postgres");
    assert_string_equal(db.encoding_name, "UTF8");
    assert_string_equal(db.collate, "C");
    assert_int_equal(db.spc_oid, 1663);
    assert_ok(catalog_query_filenodes(conn, &nodes, &n, &err));
    assert_true(n > 150);
    bool moved = false;
    for (size_t i = 0; i < n; i++) {
        assert_int_not_equal(nodes[i].oid, 2613);
        snprintf(sql, sizeof sql, "SELECT pg_relation_filepath(%u)", nodes[i].oid);
        ask(want, sizeof want, sql);
        if (nodes[i].locator.db_oid == 0)
            snprintf(path, sizeof path, "global/%u", nodes[i].locator.rel_number);
        else
            snprintf(path, sizeof path, "base/%u/%u", nodes[i].locator.db_oid,
                     nodes[i].locator.rel_number);
        assert_string_equal(path, want);
        moved |= nodes[i].oid == 1259 && nodes[i].locator.rel_number >= 16384;
    }
    assert_true(moved);
    free(nodes);
}

static void test_broken_connection(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    struct rel_desc **descs = NULL;
    size_t n = 0;
    (void)state;
    PGconn *other = PQconnectdb(server.conninfo);
    char sql[80];
    snprintf(sql, sizeof sql, "SELECT pg_terminate_backend(%d, 5000)", PQbackendPID(other));
    run(sql);
    assert_int_equal(catalog_query_read(other, 15, NULL, 0, &descs, &n, &err), ERR_RETRY);
    assert_null(strchr(err.message, '\n'));
    PQfinish(other);
}

static int set_up(void **state)
{
    (void)state;
    have_server = live_server_start(&server, "");
    if (have_server) {
        conn = PQconnectdb(server.conninfo);
        run("SET search_path = public");
        run("SET client_min_messages = warning");
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    PQfinish(conn);
    if (have_server)
        live_server_remove(&server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_values),
        cmocka_unit_test(test_text_missing),
        cmocka_unit_test(test_type_closure),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_what_changes),
        cmocka_unit_test(test_read_all),
        cmocka_unit_test(test_filenodes),
        cmocka_unit_test(test_broken_connection),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
