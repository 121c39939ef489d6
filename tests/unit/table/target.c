/* Targets made from descriptors: columns, keys, names that clash, and the SQL. */
#include "test.h"
#include "clickhouse/sql_quote.h"

#include "table/insert_settings.h"
#include "table/target.h"

#include <stdbool.h>

static const struct ch_caps caps = {.wide_dates = true, .time64 = true};

/* A relation of int4 columns a, b, c … */
struct relation {
    struct rel_desc desc;
    struct att_desc atts[300];
};

static void relation_init(struct relation *r, unsigned natts)
{
    memset(r, 0, sizeof *r);
    r->desc = (struct rel_desc){.oid = 16400,
                                .relkind = 'r',
                                .relam = 2,
                                .natts = (uint16_t)natts,
                                .identity = IDENTITY_TID,
                                .atts = r->atts};
    for (unsigned i = 0; i < natts; i++) {
        r->atts[i] = (struct att_desc){.attnum = (int16_t)(i + 1),
                                       .typid = 23,
                                       .base_typid = 23,
                                       .typmod = -1,
                                       .attlen = 4,
                                       .attalign = 'i'};
        snprintf(r->atts[i].name, NAMEDATALEN, i < 26 ? "%c" : "%c%u", 'a' + (int)(i % 26), i / 26);
    }
}

static void set_key(struct relation *r, unsigned n, const int16_t *attnums)
{
    r->desc.identity = IDENTITY_KEY;
    r->desc.nkeys = (uint16_t)n;
    memcpy(r->desc.key_attnums, attnums, n * sizeof *attnums);
}

static void assert_create(const struct relation *r, const struct target_options *options,
                          const char *expected)
{
    struct target *t;
    struct error err;
    struct buf sql = {0};
    assert_ok(target_new(&r->desc, options, &caps, &t, &err));
    target_create_sql(t, options, &sql);
    assert_string_equal(buf_cstr(&sql), expected);
    buf_free(&sql);
    target_unref(t);
}

static void test_create(void **state)
{
    struct relation r;
    struct target_options options = {
        .database = "db", .table = "t`x", .comment = "walshadow 1/2/3"};
    (void)state;
    relation_init(&r, 3);
    r.atts[0].not_null = true;
    r.atts[1].dropped = true;
    assert_create(&r, &options,
                  "CREATE TABLE IF NOT EXISTS `db`.`t\\`x` (`a` Int32, `c` Nullable(Int32), "
                  "`_ctid` UInt64, `_lsn` UInt64, `_xid` UInt32, "
                  "`_commit_ts` DateTime64(6, 'UTC'), `_is_deleted` Bool) "
                  "ENGINE = ReplacingMergeTree(`_lsn`, `_is_deleted`) ORDER BY (`_ctid`) "
                  "COMMENT 'walshadow 1/2/3'");
    r.desc.relkind = 'p';
    options.soft_delete = true;
    options.comment = NULL;
    options.chdb_fsync = true;
    assert_create(&r, &options,
                  "CREATE TABLE IF NOT EXISTS `db`.`t\\`x` (`a` Int32, `c` Nullable(Int32), "
                  "`_part` UInt32, `_ctid` UInt64, `_lsn` UInt64, `_xid` UInt32, "
                  "`_commit_ts` DateTime64(6, 'UTC'), `_is_deleted` Bool) "
                  "ENGINE = ReplacingMergeTree(`_lsn`) ORDER BY (`_part`, `_ctid`) "
                  "SETTINGS min_rows_to_fsync_after_merge = 1, "
                  "min_compressed_bytes_to_fsync_after_merge = 1");
    set_key(&r, 2, (const int16_t[]){3, 1});
    r.atts[2].generated = 's';
    options.fsync_each_insert = true;
    options.soft_delete = false;
    assert_create(&r, &options,
                  "CREATE TABLE IF NOT EXISTS `db`.`t\\`x` (`a` Int32, `c` Int32, "
                  "`_lsn` UInt64, `_xid` UInt32, "
                  "`_commit_ts` DateTime64(6, 'UTC'), `_is_deleted` Bool) "
                  "ENGINE = ReplacingMergeTree(`_lsn`, `_is_deleted`) ORDER BY (`c`, `a`) "
                  "SETTINGS min_rows_to_fsync_after_merge = 1, "
                  "min_compressed_bytes_to_fsync_after_merge = 1, fsync_after_insert = 1, "
                  "fsync_part_directory = 1");
}

static void test_wide_table(void **state)
{
    static struct relation r;
    struct target_options options = {.database = "db", .table = "t"};
    struct target *t;
    struct error err;
    struct buf sql = {0};
    (void)state;
    relation_init(&r, 300);
    assert_ok(target_new(&r.desc, &options, &caps, &t, &err));
    target_create_sql(t, &options, &sql);
    assert_non_null(strstr(buf_cstr(&sql), " SETTINGS min_bytes_for_wide_part = 1073741824"));
    buf_free(&sql);
    target_unref(t);
}

static void test_columns(void **state)
{
    struct relation r;
    const struct target_override columns[] = {{3, "c2", "Int64"}, {1, NULL, NULL}};
    struct target_options options = {.database = "d",
                                     .table = "t",
                                     .columns = columns,
                                     .ncolumns = 2,
                                     .on_bad_value = BAD_VALUE_ERROR};
    struct target *t, *later;
    struct error err;
    (void)state;
    relation_init(&r, 4);
    set_key(&r, 1, (const int16_t[]){3});
    assert_ok(target_new(&r.desc, &options, &caps, &t, &err));
    assert_int_equal(t->ncols, 2);
    assert_int_equal(t->cols[0].attnum, 1);
    assert_int_equal(t->cols[0].key_index, 0);
    assert_int_equal(t->cols[1].attnum, 3);
    assert_int_equal(t->cols[1].key_index, 1);
    assert_int_equal(t->header->ncols, 6);
    assert_string_equal(t->header->cols[0].type, "Nullable(Int32)");
    assert_string_equal(t->header->cols[1].name, "c2");
    assert_string_equal(t->header->cols[1].type, "Int64");
    assert_string_equal(t->header->cols[2].name, "_lsn");
    assert_string_equal(t->insert_sql,
                        "INSERT INTO `d`.`t` (`a`, `c2`, `_lsn`, `_xid`, `_commit_ts`, "
                        "`_is_deleted`) FORMAT Native");
    assert_false(t->has_ctid);
    assert_int_equal(t->rel_oid, 16400);
    assert_int_equal(t->on_bad_value, BAD_VALUE_ERROR);
    assert_ok(target_new(&r.desc, &options, &caps, &later, &err));
    assert_true(later->epoch > t->epoch);
    target_unref(later);
    assert_ptr_equal(target_ref(t), t);
    target_unref(t);
    target_unref(t);
    target_unref(NULL);
}

static void assert_refused(const struct relation *r, const struct target_override *columns,
                           size_t n, const char *message)
{
    const struct target_options options = {
        .database = "d", .table = "t", .columns = columns, .ncolumns = n};
    struct target *t = NULL;
    struct error err;
    assert_int_equal(target_new(&r->desc, &options, &caps, &t, &err), ERR_CONFIG);
    assert_null(t);
    if (strstr(err.message, message) == NULL)
        fail_msg("%s: %s", message, err.message);
}

static void test_refused(void **state)
{
    struct relation r;
    (void)state;
    relation_init(&r, 3);
    set_key(&r, 1, (const int16_t[]){1});
    r.atts[1].typid = r.atts[1].base_typid = 1033;
    assert_refused(&r, NULL, 0, "column \"b\": type with oid 1033 is not supported yet");
    assert_refused(&r, (const struct target_override[]){{3, NULL, NULL}}, 1,
                   "all 1 columns of the key");
    assert_refused(&r, (const struct target_override[]){{9, NULL, NULL}}, 1, "no attnum 9");
    assert_refused(&r, (const struct target_override[]){{1, NULL, NULL}, {1, NULL, NULL}}, 2,
                   "named twice");
    assert_refused(&r, (const struct target_override[]){{1, "x", NULL}, {3, "x", NULL}}, 2,
                   "target name \"x\"");
    assert_refused(&r, (const struct target_override[]){{1, "", NULL}}, 1, "empty target name");
    strcpy(r.atts[0].name, "_xid");
    assert_refused(&r, (const struct target_override[]){{1, NULL, NULL}}, 1,
                   "column \"_xid\" has a name");
    r.atts[0].generated = 'v';
    assert_refused(&r, (const struct target_override[]){{1, NULL, NULL}}, 1, "virtual generated");
    r.atts[0].dropped = true; /* a mapping outlives its column, but not that of the key */
    assert_refused(&r, (const struct target_override[]){{1, NULL, NULL}}, 1,
                   "all 1 columns of the key");
}

/* A name of ours is free where the target does not have that column; virtual columns are left out.
 */
static void test_free_names(void **state)
{
    struct relation r;
    struct target_options options = {.database = "d", .table = "t"};
    struct target *t;
    struct error err;
    (void)state;
    relation_init(&r, 2);
    set_key(&r, 1, (const int16_t[]){1});
    strcpy(r.atts[0].name, "_ctid");
    r.atts[1].generated = 'v';
    r.atts[1].typid = 3802; /* its type does not matter */
    assert_ok(target_new(&r.desc, &options, &caps, &t, &err));
    assert_int_equal(t->ncols, 1);
    target_unref(t);
    r.desc.identity = IDENTITY_TID;
    assert_refused(&r, NULL, 0, "column \"_ctid\" has a name");
}

static void test_quoting(void **state)
{
    struct buf out = {0};
    (void)state;
    sql_quote_ident(&out, "a`b\\c\"d'e");
    sql_quote_string(&out, "a`b\\c'd");
    assert_string_equal(buf_cstr(&out), "`a\\`b\\\\c\"d'e`'a`b\\\\c\\'d'");
    buf_free(&out);
}

static void test_settings(void **state)
{
    (void)state;
    assert_int_equal(insert_settings_count, 11);
    assert_string_equal(insert_settings[0].name, "async_insert");
    assert_string_equal(insert_settings[0].value, "0");
    assert_null(insert_settings[insert_settings_count].name);
    assert_null(ddl_settings[ddl_settings_count].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create),     cmocka_unit_test(test_wide_table),
        cmocka_unit_test(test_columns),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_free_names), cmocka_unit_test(test_quoting),
        cmocka_unit_test(test_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
