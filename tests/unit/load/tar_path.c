#include "load/tar_path.h"

#include "test.h"

/* Catalogs rewritten to 17000 (anywhere) exist; user tables 20001 in pg_default, 20002 in 16999. */
static bool is_catalog(void *ctx, struct rel_file_locator l)
{
    (void)ctx;
    return l.rel_number == 17000;
}
static bool is_wanted(void *ctx, struct rel_file_locator l)
{
    (void)ctx;
    return l.db_oid == 5 && ((l.rel_number == 20001 && l.spc_oid == 1663) ||
                             (l.rel_number == 20002 && l.spc_oid == 16999));
}

struct path_case {
    Oid tablespace;
    const char *path;
    enum tar_kind kind;
    enum tar_action want;
    const char *want_path; /* DIR, LAND; NULL = the same */
};

#define F TAR_KIND_FILE
#define D TAR_KIND_DIR

/* database 5 in pg_default */
static const struct path_case usual[] = {
    {0, "backup_label", F, TAR_LAND, NULL},
    {0, "PG_VERSION", F, TAR_LAND, NULL},
    {0, "./PG_VERSION", F, TAR_LAND, "PG_VERSION"},
    {0, "tablespace_map", F, TAR_SKIP, NULL},
    {0, "backup_manifest", F, TAR_SKIP, NULL},
    {0, "postgresql.conf", F, TAR_SKIP, NULL},
    {0, "postgresql.auto.conf", F, TAR_SKIP, NULL},
    {0, "pg_hba.conf", F, TAR_SKIP, NULL},
    {0, "pg_ident.conf", F, TAR_SKIP, NULL},
    {0, "postmaster.pid", F, TAR_SKIP, NULL},
    {0, "server.key", F, TAR_SKIP, NULL},
    {0, "standby.signal", F, TAR_SKIP, NULL},
    {0, "log", D, TAR_SKIP, NULL},
    {0, "log/postgresql.log", F, TAR_SKIP, NULL},
    {0, "global", D, TAR_DIR, NULL},
    {0, "global/", D, TAR_DIR, "global"},
    {0, "global/pg_control", F, TAR_LAND, NULL},
    {0, "global/pg_filenode.map", F, TAR_LAND, NULL},
    {0, "global/pg_internal.init", F, TAR_SKIP, NULL},
    {0, "global/1262", F, TAR_LAND, NULL},
    {0, "global/1262_fsm", F, TAR_LAND, NULL},
    {0, "global/25000_vm", F, TAR_LAND, NULL},
    {0, "global/../1262", F, TAR_SKIP, "error"},
    {0, "base", D, TAR_DIR, NULL},
    {0, "base/5", D, TAR_DIR, NULL},
    {0, "base/1", D, TAR_SKIP, NULL},
    {0, "base/1/1259", F, TAR_SKIP, NULL},
    {0, "base/5/1259", F, TAR_LAND, NULL},
    {0, "base/5/1259.3", F, TAR_LAND, NULL},
    {0, "base/5/1259_fsm.1", F, TAR_LAND, NULL},
    {0, "base/5/17000", F, TAR_LAND, NULL},
    {0, "base/5/17000_vm", F, TAR_LAND, NULL},
    {0, "base/5/17000_init", F, TAR_SKIP, NULL},
    {0, "base/5/2613", F, TAR_SKIP, NULL},
    {0, "base/5/2613.1", F, TAR_SKIP, NULL},
    {0, "base/5/2613_vm", F, TAR_SKIP, NULL},
    {0, "base/5/2683", F, TAR_SKIP, NULL},
    {0, "base/5/PG_VERSION", F, TAR_LAND, NULL},
    {0, "base/5/pg_filenode.map", F, TAR_LAND, NULL},
    {0, "base/5/pg_internal.init", F, TAR_SKIP, NULL},
    {0, "base/5/20001", F, TAR_HEAP, NULL},
    {0, "base/5/20001.2", F, TAR_HEAP, NULL},
    {0, "base/5/20001_fsm", F, TAR_SKIP, NULL},
    {0, "base/5/20001_init", F, TAR_SKIP, NULL},
    {0, "base/5/20002", F, TAR_SKIP, NULL},
    {0, "base/5/t3_20001", F, TAR_SKIP, NULL},
    {0, "base/5/020001", F, TAR_SKIP, NULL},
    {0, "base/5/20001.", F, TAR_SKIP, NULL},
    {0, "base/5/20001.0", F, TAR_SKIP, NULL},
    {0, "base/5/20001x", F, TAR_SKIP, NULL},
    {0, "base/5/99999999999", F, TAR_SKIP, NULL},
    {0, "base/5/1259", TAR_KIND_OTHER, TAR_SKIP, NULL},
    {0, "base/5/1259/x", F, TAR_SKIP, NULL},
    {0, "base/pgsql_tmp", D, TAR_SKIP, NULL},
    {0, "base/pgsql_tmp/pgsql_tmp1.0", F, TAR_SKIP, NULL},
    {0, "pg_wal", D, TAR_DIR, NULL},
    {0, "pg_wal/archive_status", D, TAR_DIR, NULL},
    {0, "pg_wal/summaries", D, TAR_DIR, NULL},
    {0, "pg_wal/000000010000000000000001", F, TAR_SKIP, NULL},
    {0, "pg_wal/archive_status/x.done", F, TAR_SKIP, NULL},
    {0, "pg_replslot", D, TAR_DIR, NULL},
    {0, "pg_replslot/s", D, TAR_SKIP, NULL},
    {0, "pg_replslot/s/state", F, TAR_SKIP, NULL},
    {0, "pg_subtrans", D, TAR_DIR, NULL},
    {0, "pg_subtrans/0000", F, TAR_SKIP, NULL},
    {0, "pg_stat_tmp/x", F, TAR_SKIP, NULL},
    {0, "pg_stat/pgstat.stat", F, TAR_SKIP, NULL},
    {0, "pg_notify/0000", F, TAR_SKIP, NULL},
    {0, "pg_xact/0000", F, TAR_LAND, NULL},
    {0, "pg_commit_ts/0000", F, TAR_LAND, NULL},
    {0, "pg_twophase/000002F1", F, TAR_LAND, NULL},
    {0, "pg_multixact/members/0000", F, TAR_LAND, NULL},
    {0, "pg_multixact/offsets/0000", F, TAR_LAND, NULL},
    {0, "pg_multixact/other/0000", F, TAR_SKIP, NULL},
    {0, "pg_logical/replorigin_checkpoint", F, TAR_LAND, NULL},
    {0, "pg_logical/mappings/map-1", F, TAR_LAND, NULL},
    {0, "pg_logical/snapshots/0-1.snap", F, TAR_LAND, NULL},
    {0, "pg_tblspc", D, TAR_DIR, NULL},
    {0, "pg_tblspc/16999", TAR_KIND_OTHER, TAR_SKIP, NULL},
    {0, "pg_tblspc/16999", D, TAR_SKIP, NULL},
    {0, "pg_tblspc/16999/PG_15_202209061/5/20002", F, TAR_HEAP, NULL}, /* in-place tablespace */
    {16999, "PG_15_202209061", D, TAR_SKIP, NULL},
    {16999, "PG_15_202209061/5", D, TAR_SKIP, NULL},
    {16999, "PG_15_202209061/5/20002", F, TAR_HEAP, NULL},
    {16999, "PG_15_202209061/5/20001", F, TAR_SKIP, NULL},
    {16999, "PG_15_202209061/6/20002", F, TAR_SKIP, NULL},
    {16999, "PG_15_202209061/5/PG_VERSION", F, TAR_SKIP, NULL},
    {16999, "PG_x_1/5/20002", F, TAR_SKIP, NULL},
    {16999, "backup_label", F, TAR_SKIP, NULL},
    {0, "/etc/passwd", F, TAR_SKIP, "error"},
    {0, "..", F, TAR_SKIP, "error"},
    {0, "base/../../x", F, TAR_SKIP, "error"},
    {0, "base//5", D, TAR_SKIP, "error"},
    {16999, "../../x", F, TAR_SKIP, "error"},
};

/* database 5 with its catalogs in tablespace 16999 (A1) */
static const struct path_case moved[] = {
    {0, "base/5", D, TAR_DIR, NULL},
    {0, "base/5/PG_VERSION", F, TAR_SKIP, NULL},
    {0, "base/5/20001", F, TAR_HEAP, NULL},
    {0, "pg_tblspc/16999", TAR_KIND_OTHER, TAR_SKIP, NULL},
    {16999, "PG_15_202209061", D, TAR_DIR, "pg_tblspc/16999/PG_15_202209061"},
    {16999, "PG_15_202209061/5", D, TAR_DIR, "pg_tblspc/16999/PG_15_202209061/5"},
    {16999, "PG_15_202209061/6", D, TAR_SKIP, NULL},
    {16999, "PG_15_202209061/5/PG_VERSION", F, TAR_LAND,
     "pg_tblspc/16999/PG_15_202209061/5/PG_VERSION"},
    {16999, "PG_15_202209061/5/1259", F, TAR_LAND, "pg_tblspc/16999/PG_15_202209061/5/1259"},
    {16999, "PG_15_202209061/5/20002", F, TAR_HEAP, NULL},
    {17001, "PG_15_202209061", D, TAR_SKIP, NULL},
};

static void cases_run(const struct path_case *cases, size_t n, Oid db_tablespace)
{
    const struct tar_rules rules = {5, db_tablespace, NULL, is_catalog, is_wanted};
    for (size_t i = 0; i < n; i++) {
        const struct path_case *c = &cases[i];
        struct error err;
        struct tar_target got = {0};
        bool error = c->want_path != NULL && strcmp(c->want_path, "error") == 0;
        enum status status = tar_path_classify(&rules, c->tablespace, c->path, c->kind, &got, &err);
        if (status != (error ? ERR_DATA : OK))
            fail_msg("%s: status %d", c->path, status);
        if (error)
            continue;
        if (got.action != c->want)
            fail_msg("%s: action %d", c->path, got.action);
        if (got.action == TAR_DIR || got.action == TAR_LAND)
            assert_string_equal(got.path, c->want_path != NULL ? c->want_path : c->path);
    }
}

static void test_names(void **state)
{
    (void)state;
    cases_run(usual, LENGTH(usual), 1663);
    cases_run(moved, LENGTH(moved), 16999);
}

static void test_heap_target(void **state)
{
    const struct tar_rules rules = {5, 1663, NULL, is_catalog, is_wanted};
    struct error err;
    struct tar_target got;
    (void)state;
    assert_ok(tar_path_classify(&rules, 16999, "PG_15_202209061/5/20002.17", F, &got, &err));
    assert_int_equal(got.action, TAR_HEAP);
    assert_int_equal(got.locator.spc_oid, 16999);
    assert_int_equal(got.locator.db_oid, 5);
    assert_int_equal(got.locator.rel_number, 20002);
    assert_int_equal(got.segment, 17);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_heap_target),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
