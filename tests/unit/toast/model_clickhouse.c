/* The store in ClickHouse against the model, with an embedded engine of the test's own. */
#include "model.h"

#include "clickhouse/client.h"
#include "clickhouse/supervisor.h"

#define SKIPPED 77 /* to Meson */
#define UNKNOWN_TABLE 60

static char socket_path[100];
static struct ch_endpoint endpoint = {.unix_path = socket_path};

static struct toast_store *model_open(bool fresh, size_t pending, unsigned reclaim_rows)
{
    const struct toast_clickhouse_options o = {
        .endpoint = &endpoint,
        .database = "chunks",
        .comment = "of this test",
        .empty = fresh,
        .pending_bytes_max = 4 * pending, /* an INSERT takes longer */
        .reclaim_pause_ns = 1,
    };
    struct toast_store *store;
    (void)reclaim_rows;
    assert_ok(toast_store_open_clickhouse(&o, &store, &err));
    return store;
}

/* What was put again after a restart is there twice until it is merged. */
static uint64_t model_rows(struct toast_store *store)
{
    struct toast_stats stats;
    struct ch_client *c;
    char sql[200];
    assert_ok(ch_client_open(&endpoint, &c, &err));
    for (unsigned owner = 1; owner <= OWNERS; owner++) {
        snprintf(sql, sizeof sql, "OPTIMIZE TABLE chunks.walshadow_toast_%u FINAL", owner);
        if (ch_client_execute(c, sql, NULL, 0, &err) != OK)
            assert_int_equal(err.ch_code, UNKNOWN_TABLE); /* it was empty */
    }
    ch_client_close(c);
    assert_ok(toast_store_stats(store, &stats, &err));
    return stats.chunks;
}

static void test_model(void **state)
{
    (void)state;
    model_run_seeds(1, 1, 200, 3);
}

static void test_another_source(void **state)
{
    struct toast_clickhouse_options o = {
        .endpoint = &endpoint, .database = "chunks", .comment = "of another test"};
    struct toast_store *store = model_open(true, 1, 0);
    uint8_t byte = 1;
    struct toast_event e = {.kind = TOAST_BIRTH,
                            .owner = 1,
                            .lsn = 100,
                            .tid = 1,
                            .value_id = 1,
                            .len = 1,
                            .data = &byte};
    (void)state;
    assert_ok(toast_store_put(store, &e, 1, &err));
    toast_store_close(store);
    assert_int_equal(toast_store_open_clickhouse(&o, &store, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "belongs to another source (of this test)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_another_source),
    };
    const char *root = getenv("SOURCE_ROOT");
    CLEANUP_FREE char *program = xasprintf("%s/build/walshadow", root == NULL ? "." : root);
    CLEANUP_FREE char *libchdb = xasprintf("%s/.deps/libchdb.so", root == NULL ? "." : root);
    if (!file_exists(program) || !file_exists(libchdb))
        return SKIPPED;
    toast_dir_make();
    CLEANUP_FREE char *path = xasprintf("%s/chdb", toast_parent);
    snprintf(socket_path, sizeof socket_path, "%s/engine.sock", toast_parent);
    const struct ch_supervisor_options options = {
        .engine_bin = program, .path = path, .listen = socket_path, .libchdb = libchdb};
    struct ch_supervisor *engine;
    if (ch_supervisor_start(&options, &engine, &err) != OK ||
        ch_supervisor_wait(engine, 1, &err) != OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ch_supervisor_stop(engine);
    toast_dir_remove();
    return failed;
}
