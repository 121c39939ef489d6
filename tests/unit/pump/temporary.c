#include "base/crc32c.h"
#include "harness.h"

#define TEMP 20001u
#define TABLE 20002u
#define NEW_FILE 30000u
#define NAMESPACE_FILE 2615u

static void relmap_take(struct harness *h, XLogRecPtr lsn, Oid db, Oid filenode)
{
    CLEANUP_BUF struct buf map = {0}, main = {0};
    buf_put_u32(&map, 0x592717);
    buf_put_u32(&map, 1);
    buf_put_u32(&map, 1259);
    buf_put_u32(&map, filenode);
    buf_put_zeros(&map, 504 - map.len);
    buf_put_u32(&map, crc32c(map.data, map.len));
    buf_put_u32(&map, 0);
    buf_put_u32(&main, db);
    buf_put_u32(&main, 1663);
    buf_put_u32(&main, (uint32_t)map.len);
    buf_put(&main, map.data, map.len);
    struct wal_record r = record_of(RM_RELMAP_ID, 0, 0, lsn, &main);
    take(h, &r, true);
}

static void commit_of(struct harness *h, TransactionId xid, XLogRecPtr lsn, Oid a, Oid b)
{
    CLEANUP_BUF struct buf invals = {0};
    inval_put(&invals, RELCACHE, OUR_DB, a);
    if (b != 0)
        inval_put(&invals, RELCACHE, OUR_DB, b);
    outcome(h, INFO_COMMIT, xid, lsn, (struct outcome){.db = OUR_DB, .invals = &invals});
}

static void test_only_temporary(void **state)
{
    (void)state;
    for (unsigned major = 15; major <= 18; major++) {
        struct harness h;
        harness_init(&h, major, 0, 0);
        class_insert(&h, major, 700, 1000, 1259,
                     (struct class_put){.oid = TEMP, .persistence = 't'});
        commit_of(&h, 700, 1100, TEMP, 0);
        assert_int_equal(h.calls, 0); /* created */
        harness_fini(&h);

        harness_init(&h, major, 0, 0);
        class_insert(&h, major, 700, 1000, 1259,
                     (struct class_put){.oid = TEMP, .persistence = 't'});
        class_insert(&h, major, 700, 1050, 1259,
                     (struct class_put){.oid = TABLE, .persistence = 'p'});
        commit_of(&h, 700, 1100, TEMP, TABLE);
        assert_int_equal(h.calls, 1); /* not alone */
        assert_int_equal(h.call[0].n, 2);
        insert_at(&h, 701, 0, 1200, table_file(OUR_DB, 1249), true);
        commit_of(&h, 701, 1240, TEMP, 0);
        assert_int_equal(h.calls, 1); /* altered or dropped, in another transaction */
        insert_at(&h, 702, 0, 1300, table_file(OUR_DB, 1249), true);
        commit_of(&h, 702, 1340, TEMP + 7, 0);
        assert_int_equal(h.calls, 2); /* one nobody knows */
        class_insert(&h, major, 703, 1400, 1259,
                     (struct class_put){.oid = TEMP, .persistence = 'p'});
        commit_of(&h, 703, 1440, TEMP, 0);
        assert_int_equal(h.calls, 3); /* its oid came round */
        class_insert(&h, major, 704, 1500, 1259,
                     (struct class_put){.oid = TABLE, .persistence = 'u'});
        commit_of(&h, 704, 1540, TABLE, 0);
        assert_int_equal(h.calls, 4);
        harness_fini(&h);
    }
}

/* A row that cannot be read may be that of any relation. */
static void test_unreadable_row(void **state)
{
    struct harness h;
    (void)state;
    harness_init(&h, 15, 0, 0);
    class_insert(&h, 15, 700, 1000, 1259, (struct class_put){.oid = TEMP, .persistence = 't'});
    catalog_insert(&h, 701, 1050); /* three bytes of a row */
    commit_of(&h, 700, 1100, TEMP, 0);
    assert_int_equal(h.calls, 1);
    harness_fini(&h);
}

static void test_known_at_start(void **state)
{
    struct harness h = {0};
    const Oid known[] = {TEMP, TEMP + 100000};
    (void)state;
    h.r = records_new(&(struct records_options){.major = 15,
                                                .database = OUR_DB,
                                                .temporary = known,
                                                .ntemporary = 2,
                                                .catalog_oid = catalog_oid,
                                                .boundary = boundary,
                                                .ctx = &h});
    insert_at(&h, 700, 0, 1000, table_file(OUR_DB, 1249), true);
    commit_of(&h, 700, 1100, TEMP, TEMP + 100000);
    assert_int_equal(h.calls, 0);
    harness_fini(&h);
}

/* VACUUM FULL pg_class: rows of the old file are none of pg_class any more. */
static void test_pg_class_moves(void **state)
{
    struct harness h;
    (void)state;
    harness_init(&h, 16, 0, 0);
    relmap_take(&h, 900, OTHER_DB, 40000);
    class_insert(&h, 16, 700, 1000, 1259, (struct class_put){.oid = TEMP, .persistence = 't'});
    relmap_take(&h, 1100, OUR_DB, NEW_FILE);
    class_insert(&h, 16, 700, 1200, NEW_FILE,
                 (struct class_put){.oid = TEMP + 1, .persistence = 't'});
    class_insert(&h, 16, 700, 1300, 1259, (struct class_put){.oid = TEMP + 2, .persistence = 't'});
    commit_of(&h, 700, 1400, TEMP, TEMP + 1);
    assert_int_equal(h.calls, 0);
    insert_at(&h, 701, 0, 1500, table_file(OUR_DB, 1249), true);
    commit_of(&h, 701, 1600, TEMP + 2, 0);
    assert_int_equal(h.calls, 1);
    harness_fini(&h);
}

/* More oids than are remembered: the oldest are unknown again, never wrong. */
static void test_bounds(void **state)
{
    struct harness h;
    const Oid last = TEMP + 300u * 32768u;
    (void)state;
    harness_init(&h, 15, 0, 0);
    for (Oid oid = TEMP; oid <= last; oid += 32768)
        class_insert(&h, 15, 700, 1000, 1259, (struct class_put){.oid = oid, .persistence = 't'});
    commit_of(&h, 700, 1100, last, last - 200 * 32768);
    assert_int_equal(h.calls, 0);
    insert_at(&h, 701, 0, 1200, table_file(OUR_DB, 1249), true);
    commit_of(&h, 701, 1300, TEMP, 0);
    assert_int_equal(h.calls, 1);
    harness_fini(&h);
}

static void schema_messages(struct buf *out, unsigned major, unsigned by_name, unsigned by_oid)
{
    for (unsigned i = 0; i < by_name; i++)
        inval_put(out, major >= 18 ? 37 : 35, OUR_DB, i);
    for (unsigned i = 0; i < by_oid; i++)
        inval_put(out, major >= 18 ? 38 : 36, OUR_DB, i);
}

/* The first temporary table of a session makes its schemas; a new schema has no table yet. */
static void test_schemas_made(void **state)
{
    static const struct {
        unsigned inserts, by_name, by_oid, calls;
    } cases[] = {{1, 1, 1, 0}, {2, 2, 2, 0}, {0, 2, 1, 1},
                 {1, 3, 2, 1}, {1, 2, 1, 1}, {0, 1, 1, 1}};
    (void)state;
    for (unsigned major = 15; major <= 18; major++)
        for (size_t i = 0; i < LENGTH(cases); i++) {
            struct harness h;
            CLEANUP_BUF struct buf invals = {0};
            harness_init(&h, major, 0, 0);
            insert_at(&h, 700, 0, 900, table_file(OUR_DB, 1249), true);
            for (unsigned k = 0; k < cases[i].inserts; k++)
                insert_at(&h, 700, 0, 1000, table_file(OUR_DB, NAMESPACE_FILE), true);
            schema_messages(&invals, major, cases[i].by_name, cases[i].by_oid);
            outcome(&h, INFO_COMMIT, 700, 1100, (struct outcome){.db = OUR_DB, .invals = &invals});
            assert_int_equal(h.calls, cases[i].calls);
            harness_fini(&h);
        }
}

/* What a rolled back subtransaction made does not count. */
static void test_schema_of_a_subtransaction(void **state)
{
    const TransactionId kept[] = {701};
    (void)state;
    for (TransactionId sub = 701; sub <= 702; sub++) {
        struct harness h;
        CLEANUP_BUF struct buf invals = {0};
        harness_init(&h, 15, 0, 0);
        insert_at(&h, 700, 0, 900, table_file(OUR_DB, 1249), true);
        insert_at(&h, sub, 700, 1000, table_file(OUR_DB, NAMESPACE_FILE), true);
        schema_messages(&invals, 15, 1, 1);
        outcome(&h, INFO_COMMIT, 700, 1100,
                (struct outcome){.db = OUR_DB, .subs = kept, .nsub = 1, .invals = &invals});
        assert_int_equal(h.calls, sub == 701 ? 0 : 1);
        harness_fini(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_temporary),
        cmocka_unit_test(test_unreadable_row),
        cmocka_unit_test(test_known_at_start),
        cmocka_unit_test(test_pg_class_moves),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_schemas_made),
        cmocka_unit_test(test_schema_of_a_subtransaction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
