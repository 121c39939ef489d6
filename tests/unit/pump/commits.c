/* Which commits are boundaries, and of which relations; how transactions end. */
#include "harness.h"

static void test_boundary(void **state)
{
    struct harness h;
    size_t at = 0;
    CLEANUP_BUF struct buf invals = {0};
    (void)state;
    harness_init(&h, 15, 0, 0);
    catalog_insert(&h, 700, 1000);
    inval_put(&invals, RELCACHE, OUR_DB, 16500);
    inval_put(&invals, 55, OUR_DB, 12345); /* a catalog cache that does not matter */
    inval_put(&invals, RELCACHE, OUR_DB, 16400);
    inval_put(&invals, RELCACHE, OUR_DB, 16500); /* once */
    inval_put(&invals, RELCACHE, OUR_DB, 1259);  /* a catalog's own */
    inval_put(&invals, RELCACHE, OTHER_DB, 16600);
    inval_put(&invals, RELCACHE, 0, 16700); /* shared */
    outcome(&h, INFO_COMMIT, 700, 1100, (struct outcome){.db = OUR_DB, .invals = &invals});
    assert_int_equal(h.calls, 1);
    assert_int_equal(h.call[0].end, 1140); /* the end of the commit, not its start */
    assert_false(h.call[0].all);
    assert_int_equal(h.call[0].n, 2);
    assert_int_equal(h.call[0].oids[0], 16400);
    assert_int_equal(h.call[0].oids[1], 16500);
    expect(&h, &at, FRAME_SEEN, 700, 1000);
    assert_int_equal(h.call[0].out_len, at); /* the commit is told only after it */
    const struct xact_frame *c =
        (const struct xact_frame *)expect(&h, &at, FRAME_COMMIT, 700, 1100);
    assert_int_equal(c->head.flags, XACT_BOUNDARY);
    assert_int_equal(c->nrels, 2);
    assert_int_equal(xact_frame_rels(c)[0], 16400);
    assert_int_equal(xact_frame_rels(c)[1], 16500);
    expect_end(&h, at);
    harness_fini(&h);
}

/* ANALYZE, VACUUM: the relation cache is told, but no shape changed. */
static void test_no_catalog_write_no_boundary(void **state)
{
    struct harness h;
    (void)state;
    harness_init(&h, 15, 0, 0);
    commit_inval(&h, 700, 1000, 16400); /* wrote nothing at all */
    user_insert(&h, 701, 1100);
    commit_inval(&h, 701, 1140, 16400);
    insert_at(&h, 702, 0, 1200, table_file(OUR_DB, STATISTICS_FILE), true);
    commit_inval(&h, 702, 1240, 16400);
    /* an in-place update of pg_class (statistics), a lock of its row, a cleaned page */
    static const uint8_t infos[] = {0x70, 0x60};
    for (size_t i = 0; i < LENGTH(infos); i++) {
        struct wal_record r = record_of(RM_HEAP_ID, infos[i], 703, 1300 + 40 * i, NULL);
        record_block(&r, table_file(OUR_DB, 1259), NULL);
        take(&h, &r, true);
    }
    struct wal_record prune = record_of(RM_HEAP2_ID, 0x10, 703, 1400, NULL);
    record_block(&prune, table_file(OUR_DB, 1259), NULL);
    take(&h, &prune, true);
    commit_inval(&h, 703, 1440, 16400);
    assert_int_equal(h.calls, 0);
    /* a write of a catalog without an invalidation of a relation (CREATE FUNCTION) */
    catalog_insert(&h, 704, 1500);
    outcome(&h, INFO_COMMIT, 704, 1540, (struct outcome){.db = OUR_DB});
    assert_int_equal(h.calls, 0);
    /* what an xid did is forgotten with its end */
    catalog_insert(&h, 705, 1600);
    outcome(&h, INFO_ABORT, 705, 1640, (struct outcome){.db = OUR_DB});
    commit_inval(&h, 705, 1700, 16400);
    assert_int_equal(h.calls, 0);
    harness_fini(&h);
}

/* Every form of a catalog write. */
static void test_catalog_writes(void **state)
{
    static const struct {
        uint8_t rmid, info;
    } forms[] = {{RM_HEAP_ID, 0x00}, {RM_HEAP_ID, 0x80},  {RM_HEAP_ID, 0x10}, {RM_HEAP_ID, 0x20},
                 {RM_HEAP_ID, 0x40}, {RM_HEAP2_ID, 0x50}, {RM_HEAP2_ID, 0xD0}};
    struct harness h;
    (void)state;
    harness_init(&h, 15, 0, 0);
    for (unsigned i = 0; i < LENGTH(forms); i++) {
        struct wal_record r = record_of(forms[i].rmid, forms[i].info, 700, 1000 + 100 * i, NULL);
        record_block(&r, table_file(OUR_DB, 1249), NULL);
        take(&h, &r, true); /* its body is not looked at */
        commit_inval(&h, 700, 1040 + 100 * i, 16400);
        assert_int_equal(h.calls, i + 1);
    }
    harness_fini(&h);
}

static void test_subtransaction_wrote_the_catalog(void **state)
{
    struct harness h;
    CLEANUP_BUF struct buf invals = {0};
    (void)state;
    harness_init(&h, 15, 0, 0);
    inval_put(&invals, RELCACHE, OUR_DB, 16400);
    insert_at(&h, 701, 700, 1000, table_file(OUR_DB, 1259), true);
    outcome(&h, INFO_COMMIT, 700, 1040,
            (struct outcome){
                .db = OUR_DB, .subs = (TransactionId[]){701}, .nsub = 1, .invals = &invals});
    assert_int_equal(h.calls, 1);
    /* rolled back before the commit */
    insert_at(&h, 711, 710, 1100, table_file(OUR_DB, 1259), true);
    outcome(&h, INFO_ABORT, 711, 1140, (struct outcome){.db = OUR_DB});
    commit_inval(&h, 710, 1200, 16400);
    assert_int_equal(h.calls, 1);
    harness_fini(&h);
}

static void test_two_phase(void **state)
{
    struct harness h;
    size_t at = 0;
    CLEANUP_BUF struct buf invals = {0};
    (void)state;
    harness_init(&h, 15, 0, 0);
    catalog_insert(&h, 700, 1000);
    inval_put(&invals, RELCACHE, OUR_DB, 16400);
    /* xl_xact_prepare: fixed part, then the name */
    CLEANUP_BUF struct buf main = {0};
    buf_put_u32(&main, 0x57F94534);
    buf_put_u32(&main, 0);
    buf_put_u32(&main, 700);
    buf_put_u32(&main, OUR_DB);
    buf_put_i64(&main, 99);
    buf_put_zeros(&main, 4 + 6 * 4 + 2);
    buf_put_u16(&main, 2);
    buf_put_zeros(&main, 16);
    buf_put_zeros(&main, (8 - main.len % 8) % 8);
    buf_put(&main, "g", 2);
    struct wal_record prepare = record_of(RM_XACT_ID, 0x10, 700, 1040, &main);
    take(&h, &prepare, false);
    assert_int_equal(h.calls, 0); /* nothing is visible yet */
    /* COMMIT PREPARED is a record of its own transaction-less self, about 700 */
    outcome(&h, INFO_COMMIT_PREPARED, 0, 1100,
            (struct outcome){.db = OUR_DB, .two_phase = 700, .invals = &invals});
    assert_int_equal(h.calls, 1);
    expect(&h, &at, FRAME_SEEN, 700, 1000);
    const struct xact_frame *p =
        (const struct xact_frame *)expect(&h, &at, FRAME_PREPARE, 700, 1040);
    assert_string_equal(xact_frame_gid(p), "g");
    assert_int_equal(p->gid_len, 1);
    assert_int_equal(p->commit_ts, 99);
    const struct xact_frame *c =
        (const struct xact_frame *)expect(&h, &at, FRAME_COMMIT, 700, 1100);
    assert_int_equal(c->head.flags, XACT_BOUNDARY | XACT_TWO_PHASE);
    outcome(&h, INFO_ABORT_PREPARED, 0, 1200,
            (struct outcome){
                .db = OUR_DB, .two_phase = 710, .subs = (TransactionId[]){711}, .nsub = 1});
    const struct xact_frame *a = (const struct xact_frame *)expect(&h, &at, FRAME_ABORT, 710, 1200);
    assert_int_equal(a->nsub, 1);
    assert_int_equal(a->head.flags, XACT_TWO_PHASE);
    expect_end(&h, at);
    harness_fini(&h);
}

/* ALTER SCHEMA RENAME tells only the namespace caches: any table's name may have changed. */
static void test_namespace_means_all(void **state)
{
    static const struct {
        unsigned major;
        int8_t ids[2]; /* NAMESPACENAME, NAMESPACEOID of utils/syscache.h */
        int8_t beside[2];
    } cases[] = {{15, {35, 36}, {34, 37}},
                 {16, {35, 36}, {34, 37}},
                 {17, {35, 36}, {34, 37}},
                 {18, {37, 38}, {36, 39}}};
    (void)state;
    for (size_t c = 0; c < LENGTH(cases); c++)
        for (size_t i = 0; i < 2; i++) {
            struct harness h;
            CLEANUP_BUF struct buf invals = {0}, none = {0}, other = {0};
            size_t at = 0;
            harness_init(&h, cases[c].major, 0, 0);
            catalog_insert(&h, 700, 1000);
            inval_put(&invals, cases[c].ids[i], OUR_DB, 0x1234);
            outcome(&h, INFO_COMMIT, 700, 1040, (struct outcome){.db = OUR_DB, .invals = &invals});
            assert_int_equal(h.calls, 1);
            assert_true(h.call[0].all);
            assert_int_equal(h.call[0].n, 0);
            expect(&h, &at, FRAME_SEEN, 700, 1000);
            assert_int_equal(expect(&h, &at, FRAME_COMMIT, 700, 1040)->flags,
                             XACT_BOUNDARY | XACT_ALL_RELS);
            catalog_insert(&h, 701, 1100);
            inval_put(&none, cases[c].beside[i], OUR_DB, 0x1234);
            outcome(&h, INFO_COMMIT, 701, 1140, (struct outcome){.db = OUR_DB, .invals = &none});
            catalog_insert(&h, 702, 1200);
            inval_put(&other, cases[c].ids[i], OTHER_DB, 0x1234);
            outcome(&h, INFO_COMMIT, 702, 1240, (struct outcome){.db = OUR_DB, .invals = &other});
            assert_int_equal(h.calls, 1);
            harness_fini(&h);
        }
}

/* The whole relation cache is invalidated. */
static void test_relcache_of_all(void **state)
{
    struct harness h;
    (void)state;
    harness_init(&h, 15, 0, 0);
    catalog_insert(&h, 700, 1000);
    commit_inval(&h, 700, 1040, 0);
    assert_int_equal(h.calls, 1);
    assert_true(h.call[0].all);
    harness_fini(&h);
}

/* A transaction that was open when the load began may have written the catalog before our start. */
static void test_older_than_the_load(void **state)
{
    struct harness h;
    (void)state;
    harness_init(&h, 15, 0, 700);
    commit_inval(&h, 700, 1000, 16400);
    assert_int_equal(h.calls, 0);
    commit_inval(&h, 699, 1100, 16400);
    assert_int_equal(h.calls, 1);
    outcome(&h, INFO_COMMIT, 698, 1200, (struct outcome){.db = OUR_DB}); /* changed no shape */
    assert_int_equal(h.calls, 1);
    harness_fini(&h);
}

static void test_boundary_fails(void **state)
{
    struct error err = {0};
    struct harness h;
    size_t at = 0;
    CLEANUP_BUF struct buf invals = {0}, main = {0};
    (void)state;
    harness_init(&h, 15, 0, 0);
    catalog_insert(&h, 700, 1000);
    h.boundary_status = ERR_CANCELLED;
    inval_put(&invals, RELCACHE, OUR_DB, 16400);
    outcome_put(&main, (struct outcome){.db = OUR_DB, .invals = &invals});
    struct wal_record r = record_of(RM_XACT_ID, INFO_COMMIT, 700, 1040, &main);
    assert_int_equal(records_take(h.r, &r, false, &h.out, &err), ERR_CANCELLED);
    expect(&h, &at, FRAME_SEEN, 700, 1000);
    expect_end(&h, at); /* the commit was not told */
    harness_fini(&h);
}

static void test_other_databases_outcomes(void **state)
{
    struct harness h;
    CLEANUP_BUF struct buf invals = {0};
    (void)state;
    harness_init(&h, 15, 0, 0);
    inval_put(&invals, RELCACHE, OUR_DB, 16400);
    outcome(&h, INFO_COMMIT, 700, 1000, (struct outcome){.db = OTHER_DB, .invals = &invals});
    outcome(&h, INFO_ABORT_PREPARED, 0, 1100, (struct outcome){.db = OTHER_DB, .two_phase = 701});
    expect_end(&h, 0);
    assert_int_equal(h.calls, 0);
    harness_fini(&h);
}

/* CREATE ROLE in another database writes a catalog that all share. Its transaction may not pin the
 * floor beyond its end, and is no boundary of ours. */
static void test_shared_catalog_from_another_database(void **state)
{
    static const struct rel_file_locator pg_authid = {GLOBALTABLESPACE_OID, 0, 1260};
    struct harness h;
    size_t at = 0;
    CLEANUP_BUF struct buf invals = {0};
    (void)state;
    harness_init(&h, 15, 0, 0);
    inval_put(&invals, RELCACHE, 0, 1260);
    insert_at(&h, 700, 0, 1000, pg_authid, true);
    insert_at(&h, 701, 700, 1040, pg_authid, true);
    outcome(&h, INFO_COMMIT, 700, 1100,
            (struct outcome){
                .db = OTHER_DB, .subs = (TransactionId[]){701}, .nsub = 1, .invals = &invals});
    expect(&h, &at, FRAME_SEEN, 700, 1000);
    expect(&h, &at, FRAME_SEEN, 701, 1040);
    const struct xact_frame *f = (const struct xact_frame *)expect(&h, &at, FRAME_ABORT, 700, 1100);
    assert_int_equal(f->nsub, 1); /* nothing of it is ours */
    expect_end(&h, at);
    assert_int_equal(h.calls, 0);
    insert_at(&h, 700, 0, 1200, pg_authid, true); /* forgotten */
    expect(&h, &at, FRAME_SEEN, 700, 1200);
    harness_fini(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_boundary),
        cmocka_unit_test(test_no_catalog_write_no_boundary),
        cmocka_unit_test(test_catalog_writes),
        cmocka_unit_test(test_subtransaction_wrote_the_catalog),
        cmocka_unit_test(test_two_phase),
        cmocka_unit_test(test_namespace_means_all),
        cmocka_unit_test(test_relcache_of_all),
        cmocka_unit_test(test_older_than_the_load),
        cmocka_unit_test(test_boundary_fails),
        cmocka_unit_test(test_other_databases_outcomes),
        cmocka_unit_test(test_shared_catalog_from_another_database),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
