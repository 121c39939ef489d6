/* Defaults as documented, precedence, refusals that name key and line, masking, routing. */
#include "test.h"

#include "base/file.h"
#include "config/config.h"

#include <unistd.h>

static char file_path[64];

static int setup(void **state)
{
    (void)state;
    snprintf(file_path, sizeof file_path, "/tmp/walshadow-config-%d.toml", (int)getpid());
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(file_path);
    return 0;
}

static void write_file(const char *text)
{
    FILE *f = fopen(file_path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static struct config *load(const struct config_args *args)
{
    struct error err = {0};
    struct config *c = NULL;
    assert_ok(config_load(args, &c, &err));
    return c;
}

static struct config *load_text(const char *text)
{
    write_file(text);
    return load(&(struct config_args){.file = file_path, .source_url = "postgresql://u@h/app"});
}

/* The message begins with file:line if line > 0. */
static void refuse_text(const char *text, unsigned line, const char *want)
{
    struct error err = {0};
    struct config *c = NULL;
    char prefix[100];
    write_file(text);
    struct config_args args = {.file = file_path, .source_url = "postgresql://u@h/app"};
    if (config_load(&args, &c, &err) != ERR_CONFIG)
        fail_msg("accepted: %s", text);
    snprintf(prefix, sizeof prefix, "%s:%u: ", file_path, line);
    if (line > 0 && strncmp(err.message, prefix, strlen(prefix)) != 0)
        fail_msg("\"%s\" does not begin with \"%s\"", err.message, prefix);
    if (strstr(err.message, want) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.message, want);
}

static void test_defaults(void **state)
{
    (void)state;
    struct config *c = load(&(struct config_args){.source_url = "postgresql://u@h/My-App"});
    const struct config_destination *d = &c->destinations[0];
    char cwd[1024], want[1100];
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(want, sizeof want, "%s/walshadow-state", cwd);
    assert_string_equal(c->state_dir, want);
    assert_string_equal(c->source.database, "My-App");
    assert_string_equal(c->source.slot, "walshadow_my_app");
    assert_int_equal(c->source.tables, SOURCE_TABLES_ALL);
    assert_null(c->shadow.bin_dir);
    assert_int_equal(c->ndestinations, 1);
    assert_string_equal(d->name, "default");
    assert_int_equal(d->kind, DESTINATION_CHDB);
    snprintf(want, sizeof want, "%s/walshadow-state/chdb", cwd);
    assert_string_equal(d->path, want);
    assert_string_equal(d->database, "My-App");
    assert_int_equal(d->compression, COMPRESSION_NONE);
    assert_int_equal(d->row_budget, 65536);
    assert_int_equal(d->byte_budget, 8 << 20);
    assert_int_equal(d->flush_timeout_ms, 40);
    assert_int_equal(d->insert_timeout_ms, 30000);
    assert_int_equal(d->drop_table_strategy, DROP_RETAIN);
    assert_false(d->soft_delete || d->views);
    assert_int_equal(d->fsync, FSYNC_FLOOR);
    assert_int_equal(d->memory_max, 512 << 20);
    assert_string_equal(d->listen, "");
    assert_string_equal(d->engine_bin, "");
    assert_string_equal(d->libchdb, "");
    assert_int_equal(d->max_lag_bytes, 0);
    assert_true(c->pipeline.decoder_pool_size >= 1 && c->pipeline.decoder_pool_size <= 8);
    assert_int_equal(c->pipeline.inserter_pool_size, 2);
    assert_int_equal(c->memory.resident_payload_max, 512 << 20);
    assert_int_equal(c->memory.inline_value_max, 64 << 20);
    assert_int_equal(c->memory.xact_buffer_max, 64 << 20);
    assert_int_equal(c->toast.mode, TOAST_LOCAL);
    assert_string_equal(c->http.host, "127.0.0.1");
    assert_int_equal(c->http.port, 9484);
    assert_int_equal(c->ops.status_interval_ms, 10000);
    assert_int_equal(c->ops.retention_bytes, 256 << 20);
    assert_int_equal(c->log.level, LOG_INFO);
    config_free(c);
}

static void test_clickhouse_defaults(void **state)
{
    (void)state;
    struct config *c = load_text("[ch]\nurl = \"clickhouse://al:p%40ss@[::1]:9001/target\"\n");
    const struct config_destination *d = &c->destinations[0];
    assert_string_equal(d->name, "default");
    assert_int_equal(d->kind, DESTINATION_CLICKHOUSE);
    assert_string_equal(d->host, "::1");
    assert_int_equal(d->port, 9001);
    assert_string_equal(d->user, "al");
    assert_string_equal(d->password, "p@ss");
    assert_string_equal(d->database, "target");
    assert_int_equal(d->compression, COMPRESSION_LZ4);
    assert_int_equal(d->flush_timeout_ms, 1000);
    config_free(c);
    c = load_text("[destination.default]\nhost = \"h\"\ndatabase = \"x\"\n");
    assert_int_equal(c->destinations[0].kind, DESTINATION_CLICKHOUSE);
    assert_int_equal(c->destinations[0].port, 9000);
    assert_string_equal(c->destinations[0].user, "default");
    config_free(c);
}

static void test_precedence(void **state)
{
    (void)state;
    char *env[] = {"WALSHADOW_PIPELINE_INSERTER_POOL_SIZE=5",
                   "WALSHADOW_DESTINATION_DEFAULT_ROW_BUDGET=500",
                   "WALSHADOW_HTTP_BIND=127.0.0.1:2",
                   "WALSHADOW_STATE_DIR=/from/env",
                   "WALSHADOW_TABLE_PUBLIC_FOO_TARGET_TABLE=envfoo",
                   "WALSHADOW_TEST_ANYTHING=1",
                   NULL};
    struct config_set sets[] = {{"http.bind", "127.0.0.1:3"},
                                {"table.public.foo.on_bad_value", "error"},
                                {"log.level", "\"debug\""}};
    write_file("[pipeline]\ninserter_pool_size = 3\ndecoder_pool_size = 4\n"
               "[destination.default]\nrow_budget = 300\n[http]\nbind = \"127.0.0.1:1\"\n"
               "[table.public.foo]\ntarget_table = \"filefoo\"\n");
    struct config *c = load(&(struct config_args){.file = file_path,
                                                  .source_url = "postgresql://u@h/app",
                                                  .sets = sets,
                                                  .nsets = 3,
                                                  .env = env});
    assert_int_equal(c->pipeline.decoder_pool_size, 4);
    assert_int_equal(c->origin[OPT_PIPELINE_DECODER_POOL_SIZE], ORIGIN_FILE);
    assert_int_equal(c->pipeline.inserter_pool_size, 5);
    assert_int_equal(c->origin[OPT_PIPELINE_INSERTER_POOL_SIZE], ORIGIN_ENV);
    assert_int_equal(c->destinations[0].row_budget, 500);
    assert_int_equal(c->http.port, 3);
    assert_int_equal(c->origin[OPT_HTTP_BIND], ORIGIN_FLAG);
    assert_string_equal(c->state_dir, "/from/env");
    assert_string_equal(c->tables[0].target_table, "envfoo");
    assert_int_equal(c->tables[0].on_bad_value, CONFIG_BAD_VALUE_ERROR);
    assert_int_equal(c->log.level, LOG_DEBUG);
    config_free(c);
}

static void test_unknown_keys(void **state)
{
    (void)state;
    refuse_text("\n\nfoo = 1\n", 3, "unknown key \"foo\"");
    refuse_text("[pipeline]\ninserters = 3\n", 2, "unknown key \"pipeline.inserters\"");
    refuse_text("[destination.default]\n\nurll = \"chdb:\"\n", 3,
                "unknown key \"destination.default.urll\"");
    refuse_text("[ch]\nurll = \"chdb:\"\n", 2, "unknown key \"ch.urll\"");
    refuse_text("[namespace.public]\nreplicate = true\n", 2,
                "unknown key \"namespace.public.replicate\"");
    refuse_text("[table.public.foo]\nx = true\n", 2, "unknown key \"table.public.foo.x\"");
    refuse_text("[table.foo]\nreplicate = true\n", 2, "[table.SCHEMA.TABLE]");
    refuse_text("[nosuch]\na = 1\n", 1, "unknown key \"nosuch\"");
    refuse_text("[table.public.foo]\ncolumns = [{attnum = 1,\n name = \"x\"}]\n", 0, ":");
    refuse_text("[table.public.foo]\ncolumns = [{attnum = 1, nam = \"x\"}]\n", 2,
                "unknown key \"table.columns.nam\"");
}

static void test_bad_values(void **state)
{
    (void)state;
    refuse_text("[memory]\nresident_payload_max = \"12 apples\"\n", 2, "must be a size");
    refuse_text("[memory]\nresident_payload_max = \"99999999999TiB\"\n", 2, "must be a size");
    refuse_text("[memory]\nresident_payload_max = \"1KiB\"\n", 2, "must be between 64KiB and");
    refuse_text("[ops]\nstatus_interval = 10\n", 2, "must be a duration");
    refuse_text("[ops]\nstatus_interval = \"10\"\n", 2, "must be a duration");
    refuse_text("[log]\nlevel = \"loud\"\n", 2, "must be one of error|warn|info|debug");
    refuse_text("state_dir = \"\"\n", 1, "must not be empty");
    refuse_text("state_dir = 7\n", 1, "must be a string, not integer");
    refuse_text("[pipeline]\ninserter_pool_size = \"two\"\n", 2, "must be an integer");
    refuse_text("[http]\nbind = \"0.0.0.0:9484\"\n", 0, "is not loopback");
    refuse_text("[http]\nbind = \"9484\"\n", 0, "HOST:PORT");
    refuse_text("[destination.default]\nurl = \"mysql://x\"\n", 0, "must be chdb:");
    refuse_text("[ch]\nurl = \"clickhouse://a@h/d\"\nhost = \"other\"\n", 0, "url and host");
    refuse_text("[ch]\nurl = \"clickhouse://a@h/d?x=1\"\n", 0, "no parameter but secure");
    refuse_text("[ch]\nurl = \"clickhouse://a@h:99999/d\"\n", 0, "must be clickhouse://");
    refuse_text("[ch]\nurl = \"null:\"\nlisten = \"127.0.0.1:1\"\n", 0, "for chdb: only");
    refuse_text("[ch]\ndatabase = \"default\"\n", 0, "cannot be the target database");
    refuse_text("[memory]\nresident_payload_max = \"1MiB\"\nxact_buffer_max = \"2MiB\"\n", 0,
                "xact_buffer_max");
    refuse_text("[table.public.a]\ntarget_table = \"b\"\n[table.public.b]\n", 0, "same target");
    refuse_text("[source]\nslot = \"Bad-Name\"\n", 0, "lower-case");
}

static void test_unsupported(void **state)
{
    static const char *const texts[] = {
        "[table.public.t]\ninitial_load = \"object_store\"\n",
        "[ch]\nsoft_delete = true\n",
        "[ch]\ncluster = \"c\"\n",
        "[ch]\nengine = \"MergeTree\"\n",
        "[ch]\norder_by = \"a\"\n",
        "[ch]\npartition_by = \"a\"\n",
        "[ch]\nsettings = \"a=1\"\n",
        "[ch]\nhosts = [\"a\"]\n",
        "[ch]\nsecure = true\n",
        "[ch]\nmax_lag_bytes = 1\n",
        "[ch]\nurl = \"clickhouse://a@h/d?secure=1\"\n",
        "[destination.a]\n[destination.b]\nurl = \"null:\"\n",
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(texts); i++)
        refuse_text(texts[i], 0, "not supported by this version");
    refuse_text("[destination.a]\n[destination.b]\n", 0, "only one of them can be chdb:");
    /* the defaults of the same keys pass */
    config_free(
        load_text("[ch]\nsoft_delete = false\nviews = false\nmax_lag_bytes = 0\nhosts = []\n"
                  "[toast]\nmode = \"local\"\n[table.public.t]\npartitions = \"root\"\n"
                  "initial_load = \"none\"\n"));
    config_free(load_text("[toast]\nmode = \"disabled\"\n"));
    config_free(load_text("[toast]\nmode = \"clickhouse\"\n"));
}

static void test_texts(void **state)
{
    (void)state;
    int64_t v;
    char buf[40];
    assert_true(size_parse("8MiB", &v) && v == 8 << 20);
    assert_true(size_parse("0", &v) && v == 0);
    assert_true(size_parse("3 GiB", &v) && v == INT64_C(3) << 30);
    assert_false(size_parse("-1", &v) || size_parse("", &v) || size_parse("1e3", &v));
    assert_true(duration_parse("100ms", &v) && v == 100);
    assert_true(duration_parse("2h", &v) && v == 7200000);
    assert_false(duration_parse("10", &v) || duration_parse("ms", &v));
    size_format(8 << 20, buf, sizeof buf);
    assert_string_equal(buf, "8MiB");
    size_format(1500, buf, sizeof buf);
    assert_string_equal(buf, "1500");
    duration_format(300000, buf, sizeof buf);
    assert_string_equal(buf, "300s");
    duration_format(40, buf, sizeof buf);
    assert_string_equal(buf, "40ms");
    for (size_t i = 0; i < OPTION_COUNT; i++)
        assert_ptr_equal(
            option_find(option_table[i].scope, option_table[i].section, option_table[i].key),
            &option_table[i]);
}

static void check_mask(const char *text, const char *want)
{
    CLEANUP_FREE char *got = config_mask_secret(text);
    assert_string_equal(got, want);
}

static void test_masking(void **state)
{
    (void)state;
    check_mask("postgresql://u:secret@h/d", "postgresql://u:***@h/d");
    check_mask("postgresql://u@h/d?password=secret&x=1", "postgresql://u@h/d?password=***&x=1");
    check_mask("host=h password=secret dbname=d", "host=h password=*** dbname=d");
    check_mask("host=h password = 'se cr\\'et' dbname=d", "host=h password = *** dbname=d");
    check_mask("clickhouse://u:a:b@h/d", "clickhouse://u:***@h/d");
    check_mask("chdb:", "chdb:");
    struct config *c = load_text("[http]\nuser = \"u\"\npassword = \"hidden1\"\n"
                                 "[ch]\nurl = \"clickhouse://u:hidden2@h/d\"\n");
    CLEANUP_BUF struct buf out = {0};
    config_print(c, &out);
    assert_null(strstr(buf_cstr(&out), "hidden"));
    assert_non_null(strstr((char *)out.data, "# file"));
    config_free(c);
}

/* What `config` prints is a configuration again, with the same values. */
static void test_print_round_trip(void **state)
{
    (void)state;
    struct config *a =
        load_text("[source]\ntables = \"listed\"\n[memory]\ninline_value_max = \"3MiB\"\n"
                  "[namespace.\"odd \\\"name\"]\nauto_create = false\n[table.public.foo]\n"
                  "columns = [{attnum = 2, target = \"x\", type = \"String\"}]\n");
    CLEANUP_BUF struct buf one = {0}, two = {0};
    config_print(a, &one);
    struct config *b = load_text(buf_cstr(&one));
    char key[CONFIG_KEY_MAX];
    assert_false(config_boot_difference(a, b, key));
    config_print(b, &two);
    /* only the origins differ */
    assert_int_equal(b->memory.inline_value_max, 3 << 20);
    assert_string_equal(b->namespaces[0].name, "odd \"name");
    assert_false(b->namespaces[0].auto_create);
    assert_int_equal(b->tables[0].columns.items[0].attnum, 2);
    b->memory.inline_value_max++;
    assert_true(config_boot_difference(a, b, key));
    assert_string_equal(key, "memory.inline_value_max");
    config_free(a);
    config_free(b);
}

/* Two files; NULL: a reload may swap them. */
static void expect_difference(const char *from, const char *to, const char *key)
{
    char found[CONFIG_KEY_MAX];
    struct config *a = load_text(from), *b = load_text(to);
    assert_int_equal(config_boot_difference(a, b, found), key != NULL);
    if (key != NULL)
        assert_string_equal(found, key);
    config_free(a);
    config_free(b);
}

static void test_boot_difference(void **state)
{
    (void)state;
    expect_difference("", "state_dir = \"/elsewhere\"\n", "state_dir");
    expect_difference("", "[source]\nslot = \"other\"\n", "source.slot");
    expect_difference("", "[toast]\nmode = \"disabled\"\n", "toast.mode");
    expect_difference("", "[destination.default]\ndatabase = \"x\"\n",
                      "destination.default.database");
    expect_difference("", "[destination.default]\nviews = true\n", "destination.default.views");
    expect_difference("[destination.a]\nurl = \"chdb:\"\n", "[destination.b]\nurl = \"chdb:\"\n",
                      "destination");
    expect_difference("", "[http]\nuser = \"u\"\npassword = \"p\"\n", "http.user");
    expect_difference("",
                      "[source]\ntables = \"listed\"\n[log]\nlevel = \"debug\"\n[ops]\n"
                      "status_interval = \"1s\"\n[destination.default]\n"
                      "drop_table_strategy = \"drop\"\n[namespace.x]\n"
                      "target_database = \"y\"\n[table.public.t]\nreplicate = false\n"
                      "columns = [{attnum = 1, target = \"z\"}]\n",
                      NULL);
}

static void test_resolve(void **state)
{
    (void)state;
    struct config_target t;
    struct config *c = load_text(
        "[namespace.sales]\ntarget_database = \"s\"\nauto_create = false\n[table.public.foo]\n"
        "target_table = \"bar\"\non_bad_value = \"clamp\"\n[table.public.no]\nreplicate = false\n");
    config_table_resolve(c, &c->destinations[0], "public", "foo", &t);
    assert_true(t.replicate && t.auto_create && t.on_bad_value_set);
    assert_string_equal(t.database, "app");
    assert_string_equal(t.table, "bar");
    assert_int_equal(t.initial_load, LOAD_BASE_BACKUP);
    config_table_resolve(c, &c->destinations[0], "sales", "x", &t);
    assert_string_equal(t.database, "s");
    assert_false(t.auto_create || t.on_bad_value_set);
    config_table_resolve(c, &c->destinations[0], "other", "x", &t);
    assert_string_equal(t.database, "app_other");
    config_table_resolve(c, &c->destinations[0], "public", "no", &t);
    assert_false(t.replicate);
    config_free(c);
    c = load_text("[source]\ntables = \"listed\"\n[table.public.foo]\n");
    config_table_resolve(c, &c->destinations[0], "public", "foo", &t);
    assert_true(t.replicate);
    config_table_resolve(c, &c->destinations[0], "public", "bar", &t);
    assert_false(t.replicate);
    config_free(c);
}

static void test_source(void **state)
{
    struct error err = {0};
    struct config *c = NULL;
    (void)state;
    assert_int_equal(config_load(&(struct config_args){.need_source = true}, &c, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "no source"));
    assert_int_equal(
        config_load(&(struct config_args){.source_url = "host=h password='geheim"}, &c, &err),
        ERR_CONFIG);
    assert_null(strstr(err.message, "geheim"));
    assert_int_equal(config_load(&(struct config_args){.initial_load = "object_store"}, &c, &err),
                     ERR_CONFIG);
    assert_int_equal(config_load(&(struct config_args){.file = "/nonexistent"}, &c, &err),
                     ERR_CONFIG);
    assert_non_null(strstr(err.message, "/nonexistent"));
    c = load(&(struct config_args){0});
    assert_null(c->source.conninfo);
    config_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_clickhouse_defaults),
        cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_unknown_keys),
        cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_unsupported),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_masking),
        cmocka_unit_test(test_print_round_trip),
        cmocka_unit_test(test_boot_difference),
        cmocka_unit_test(test_resolve),
        cmocka_unit_test(test_source),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
