/* What lands of a real server's archives (pg_basebackup -Ft): the list of files, and their bytes.
 */
#include "load/tar_split.h"

#include "base/file.h"
#include "scratch_pg.h"

#include <fcntl.h>

struct split_test {
    struct scratch_pg pg;
    Oid db, space, table; /* the table's filenode, in the tablespace */
    FILE *tar;
    uint8_t chunk[5000]; /* not a multiple of anything */
    struct buf pages;
    unsigned files;
    bool catalogs_moved;
};

static bool is_catalog(void *ctx, struct rel_file_locator l)
{
    (void)ctx, (void)l;
    return false;
}
static bool is_wanted(void *ctx, struct rel_file_locator l)
{
    const struct split_test *t = ctx;
    return l.rel_number == t->table && l.db_oid == t->db && l.spc_oid == t->space;
}
static enum status tar_read(void *ctx, const uint8_t **ret, size_t *ret_len, struct error *err)
{
    struct split_test *t = ctx;
    (void)err;
    *ret = t->chunk;
    *ret_len = fread(t->chunk, 1, sizeof t->chunk, t->tar);
    return OK;
}
static enum status heap_begin(void *ctx, struct rel_file_locator locator, uint32_t segment,
                              uint64_t size, struct error *err)
{
    struct split_test *t = ctx;
    (void)err, (void)size;
    assert_int_equal(locator.rel_number, t->table);
    assert_int_equal(segment, 0);
    t->files++;
    return OK;
}
static enum status heap_data(void *ctx, const uint8_t *bytes, size_t len, struct error *err)
{
    struct split_test *t = ctx;
    (void)err;
    buf_put(&t->pages, bytes, len);
    return OK;
}
static enum status heap_end(void *ctx, struct error *err)
{
    (void)ctx, (void)err;
    return OK;
}

static void number(PGconn *c, const char *sql, Oid *ret)
{
    char text[64];
    *ret = (Oid)strtoul(value(c, sql, text, sizeof text), NULL, 10);
}

/* Everything that must not land exists: another database, an unlogged and a temporary table, a
 * large object, a slot, a stored statistics file, a server key, a prepared transaction (which
 * lands). */
static void source_make(struct split_test *t, PGconn **ret_keep_open)
{
    char sql[256];
    scratch_pg_start(&t->pg);
    PGconn *c = scratch_pg_connect(&t->pg);
    assert_int_equal(shell("%s sh -c 'mkdir %s/space; echo secret > %s/pg/server.key'",
                           as_postgres(), t->pg.dir, t->pg.dir),
                     0);
    snprintf(sql, sizeof sql, "create tablespace space location '%s/space'", t->pg.dir);
    run(c, sql);
    run(c, "create database other");
    if (t->catalogs_moved) {
        run(c, "create database moved tablespace space");
        PQfinish(c);
        snprintf(t->pg.conninfo, sizeof t->pg.conninfo, "host=%s user=postgres dbname=moved",
                 t->pg.dir);
        c = scratch_pg_connect(&t->pg);
    }
    run(c, "create table t (id int4, s text) tablespace space; create table x (id int4);"
           "insert into t select g, repeat('t', 100) from generate_series(1, 3000) g;"
           "insert into x select generate_series(1, 1000); create unlogged table n (id int4);"
           "create temporary table tmp (id int4); select lo_from_bytea(0, 'large object');"
           "select pg_create_physical_replication_slot('s', true)");
    PGconn *prepares = scratch_pg_connect(&t->pg);
    run(prepares, "begin; insert into x values (1); prepare transaction 'g'");
    PQfinish(prepares);
    run(c, "checkpoint");
    number(c, "select oid from pg_database where datname = current_database()", &t->db);
    number(c, "select oid from pg_tablespace where spcname = 'space'", &t->space);
    number(c, "select pg_relation_filenode('t')", &t->table);
    *ret_keep_open = c; /* the temporary table's files stay */
}

static void archive_split(struct split_test *t, const char *name, Oid tablespace_oid)
{
    struct error err;
    CLEANUP_FREE char *shadow = xasprintf("%s/shadow", t->pg.dir);
    CLEANUP_FREE char *path = xasprintf("%s/tars/%s", t->pg.dir, name);
    const struct tar_split split = {
        .rules = {t->db, t->catalogs_moved ? t->space : 1663u, t, is_catalog, is_wanted},
        .shadow_dir = shadow,
        .ctx = t,
        .read = tar_read,
        .heap_begin = heap_begin,
        .heap_data = heap_data,
        .heap_end = heap_end};
    t->tar = fopen(path, "rb");
    assert_non_null(t->tar);
    assert_ok(tar_split_run(&split, tablespace_oid, &err));
    assert_int_equal(fgetc(t->tar), EOF); /* read to its end */
    fclose(t->tar);
}

/* Catalog files by the source's own directory: filenodes below 16384 without the large objects'. */
#define CATALOG_FILES                                                                              \
    "grep -E '/(PG_VERSION|pg_filenode.map|[0-9]{1,4}(_fsm|_vm)?|1[0-5][0-9]{3}(_fsm|_vm)?)$' | "  \
    "grep -vE '/(2613|2683)(_fsm|_vm)?$'"

static void landed_is_exact(const struct split_test *t)
{
    const char *dir = t->pg.dir;
    CLEANUP_FREE char *home = t->catalogs_moved
                                  ? xasprintf("pg_tblspc/%u/PG_15_202209061/%u", t->space, t->db)
                                  : xasprintf("base/%u", t->db);
    assert_int_equal(shell("(cd %s/pg && { find %s/ -type f | " CATALOG_FILES
                           "; find global -type f | grep -v pg_internal.init;"
                           " find pg_xact pg_multixact pg_twophase pg_logical -type f;"
                           " echo PG_VERSION; echo backup_label; }) | sort > %s/want",
                           dir, home, dir),
                     0);
    assert_int_equal(
        shell("(cd %s/shadow && find . ! -type d | sed 's,^./,,' | sort) > %s/got", dir, dir), 0);
    assert_int_equal(shell("diff %s/want %s/got", dir, dir), 0);
    assert_int_equal(shell("test $(wc -l < %s/want) -gt 300", dir), 0);
    assert_int_equal(shell("test -z \"$(find %s/shadow -type l)\"", dir), 0);
    for (const char *const *d =
             (const char *const[]){"pg_wal/archive_status", "pg_replslot", "pg_notify",
                                   "pg_subtrans", "pg_tblspc", "pg_dynshmem", NULL};
         *d != NULL; d++)
        assert_int_equal(shell("test -d %s/shadow/%s", dir, *d), 0);
    /* the bytes of those that do not change any more */
    assert_int_equal(shell("cmp %s/shadow/%s/1259 %s/pg/%s/1259", dir, home, dir, home), 0);
    assert_int_equal(shell("cmp %s/shadow/global/1262 %s/pg/global/1262", dir, dir), 0);
}

static void split_run(bool catalogs_moved)
{
    struct split_test t = {.catalogs_moved = catalogs_moved};
    struct error err;
    struct buf want = {0};
    PGconn *keep;
    source_make(&t, &keep);
    assert_int_equal(
        shell("pg_basebackup -h %s -U postgres -Ft -X none -c fast -D %s/tars 2>/dev/null",
              t.pg.dir, t.pg.dir),
        0);
    assert_int_equal(shell("mkdir %s/shadow", t.pg.dir), 0);
    CLEANUP_FREE char *space_tar = xasprintf("%u.tar", t.space);
    archive_split(&t, space_tar, t.space);
    assert_int_equal(t.files, 1);
    archive_split(&t, "base.tar", 0);
    assert_int_equal(t.files, 1);
    CLEANUP_FREE char *heap =
        xasprintf("%s/pg/pg_tblspc/%u/PG_15_202209061/%u/%u", t.pg.dir, t.space, t.db, t.table);
    assert_ok(file_read_all(heap, 1 << 24, &want, &err));
    assert_int_equal(t.pages.len, want.len);
    assert_memory_equal(t.pages.data, want.data, want.len);
    landed_is_exact(&t);
    PQfinish(keep);
    buf_free(&want);
    buf_free(&t.pages);
    scratch_pg_clean();
}

static void test_catalogs_in_pg_default(void **state)
{
    (void)state;
    split_run(false);
}

static void test_catalogs_in_a_tablespace(void **state)
{
    (void)state;
    split_run(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_catalogs_in_pg_default),
        cmocka_unit_test(test_catalogs_in_a_tablespace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
