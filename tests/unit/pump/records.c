/* What the reorder stage is told of each WAL record. */
#include "harness.h"

static void test_rows(void **state)
{
    struct harness h;
    size_t at = 0;
    (void)state;
    harness_init(&h, 15, 0, 0);
    user_insert(&h, 700, 1000);
    user_insert(&h, 700, 1040);
    insert_at(&h, 701, 700, 1080, table_file(OUR_DB, 16401), false);
    insert_at(&h, 702, 0, 1120, table_file(OTHER_DB, 16401), false);
    outcome(&h, INFO_COMMIT, 700, 1160,
            (struct outcome){.db = OUR_DB, .subs = (TransactionId[]){701}, .nsub = 1});
    expect(&h, &at, FRAME_SEEN, 700, 1000); /* once an xid */
    const struct change_frame *f =
        (const struct change_frame *)expect(&h, &at, FRAME_CHANGE, 700, 1000);
    assert_int_equal(f->kind, CHANGE_INSERT);
    assert_int_equal(f->new_tid, tid_make(7, 3));
    assert_true(rel_file_locator_equal(f->locator, table_file(OUR_DB, 16401)));
    struct raw_tuple t = change_frame_new(f);
    assert_int_equal(t.hoff, 0x18);
    assert_int_equal(t.body_len, 4);
    assert_memory_equal(t.body, "\0val", 4);
    expect(&h, &at, FRAME_CHANGE, 700, 1040);
    assert_int_equal(expect(&h, &at, FRAME_SEEN, 701, 1080)->top_xid, 700);
    assert_int_equal(expect(&h, &at, FRAME_CHANGE, 701, 1080)->top_xid, 700);
    const struct xact_frame *c =
        (const struct xact_frame *)expect(&h, &at, FRAME_COMMIT, 700, 1160);
    assert_int_equal(c->end, 1200);
    assert_int_equal(c->commit_ts, 1234567);
    assert_int_equal(c->nsub, 1);
    assert_int_equal(xact_frame_subs(c)[0], 701);
    assert_int_equal(c->head.flags, 0);
    expect_end(&h, at); /* nothing of the other database */
    assert_int_equal(h.calls, 0);
    /* after its end the xid is new again */
    user_insert(&h, 701, 1200);
    expect(&h, &at, FRAME_SEEN, 701, 1200);
    harness_fini(&h);
}

/* Rows before the load's start are in the load; their transactions pin the floor all the same. */
static void test_rows_of_the_load(void **state)
{
    static const Oid rels[] = {16400};
    struct harness h;
    size_t at = 0;
    CLEANUP_BUF struct buf main = {0};
    (void)state;
    harness_init(&h, 15, 1040, 0);
    user_insert(&h, 700, 1000);
    truncate_put(&main, OUR_DB, rels, 1);
    struct wal_record truncate = record_of(RM_HEAP_ID, 0x30, 701, 1039, &main);
    take(&h, &truncate, false);
    user_insert(&h, 700, 1040);
    expect(&h, &at, FRAME_SEEN, 700, 1000);
    expect(&h, &at, FRAME_CHANGE, 700, 1040);
    expect_end(&h, at);
    harness_fini(&h);
}

static void test_truncate(void **state)
{
    static const Oid rels[] = {16400, 16500, 16600};
    struct harness h;
    size_t at = 0;
    CLEANUP_BUF struct buf ours = {0}, theirs = {0};
    (void)state;
    harness_init(&h, 15, 0, 0);
    truncate_put(&ours, OUR_DB, rels, 3);
    truncate_put(&theirs, OTHER_DB, rels, 3);
    struct wal_record a = record_of(RM_HEAP_ID, 0x30, 700, 1000, &theirs);
    struct wal_record b = record_of(RM_HEAP_ID, 0x30, 701, 1100, &ours);
    b.toplevel_xid = 690;
    take(&h, &a, false);
    expect_end(&h, 0);
    take(&h, &b, false);
    const struct truncate_frame *t =
        (const struct truncate_frame *)expect(&h, &at, FRAME_TRUNCATE, 701, 1100);
    assert_int_equal(t->head.top_xid, 690);
    assert_int_equal(t->nrelids, 3);
    assert_int_equal(t->options, 1);
    assert_memory_equal(t->relids, rels, sizeof rels);
    expect_end(&h, at);
    harness_fini(&h);
}

/* The row is not in the record: the table's plan must hear of it, with neither tuple. */
static void test_incomplete_change(void **state)
{
    static const struct buf update_main = {(uint8_t *)"\0\0\0\0\1\0\0\x20\0\0\0\0\2\0", 14,
                                           14}; /* the new row is a prefix of the old */
    static const struct buf insert_main = {(uint8_t *)"\3\0\0", 3, 3};
    struct harness h;
    size_t at = 0;
    (void)state;
    harness_init(&h, 15, 0, 0);
    struct wal_record image_only = record_of(RM_HEAP_ID, 0x00, 700, 1000, &insert_main);
    record_block(&image_only, table_file(OUR_DB, 16401), NULL);
    take(&h, &image_only, false);
    struct wal_record prefix = record_of(RM_HEAP_ID, 0x20, 700, 1100, &update_main);
    record_block(&prefix, table_file(OUR_DB, 16402), NULL);
    take(&h, &prefix, false);
    expect(&h, &at, FRAME_SEEN, 700, 1000);
    for (unsigned i = 0; i < 2; i++) {
        const struct change_frame *f =
            (const struct change_frame *)expect(&h, &at, FRAME_CHANGE, 700, 1000 + 100 * i);
        assert_int_equal(f->head.flags & (FRAME_HAS_NEW | FRAME_HAS_OLD), 0);
        assert_int_equal(f->locator.rel_number, 16401 + i);
    }
    expect_end(&h, at);
    harness_fini(&h);
}

/* Other resource managers: the transaction exists, and pins. */
static void test_other_records(void **state)
{
    struct harness h;
    size_t at = 0;
    (void)state;
    harness_init(&h, 15, 0, 0);
    struct wal_record index = record_of(RM_BTREE_ID, 0x00, 700, 1000, NULL);
    record_block(&index, table_file(OUR_DB, 16405), NULL);
    take(&h, &index, false);
    take(&h, &index, false);
    struct wal_record elsewhere = record_of(RM_BTREE_ID, 0x00, 701, 1100, NULL);
    record_block(&elsewhere, table_file(OTHER_DB, 16405), NULL);
    take(&h, &elsewhere, false);
    struct wal_record no_xid = record_of(RM_BTREE_ID, 0x00, 0, 1200, NULL);
    record_block(&no_xid, table_file(OUR_DB, 16405), NULL);
    take(&h, &no_xid, false);
    struct wal_record no_block = record_of(RM_SMGR_ID, 0x10, 702, 1300, NULL);
    take(&h, &no_block, false);
    expect(&h, &at, FRAME_SEEN, 700, 1000);
    expect_end(&h, at);
    harness_fini(&h);
}

static void test_assignment(void **state)
{
    struct harness h;
    size_t at = 0;
    CLEANUP_BUF struct buf main = {0};
    (void)state;
    harness_init(&h, 15, 0, 0);
    buf_put_u32(&main, 700);
    buf_put_u32(&main, 2);
    buf_put_u32(&main, 701);
    buf_put_u32(&main, 702);
    struct wal_record r = record_of(RM_XACT_ID, 0x50, 702, 1100, &main);
    take(&h, &r, false); /* 700 is not known to be ours */
    expect_end(&h, 0);
    user_insert(&h, 700, 1200);
    user_insert(&h, 701, 1240);
    at = h.out.len;
    take(&h, &r, false);
    assert_int_equal(expect(&h, &at, FRAME_SEEN, 702, 1100)->top_xid, 700); /* 701 was seen */
    expect_end(&h, at);
    harness_fini(&h);
}

static void test_standby_records(void **state)
{
    struct harness h;
    size_t at = 0;
    CLEANUP_BUF struct buf running = {0}, locks = {0};
    (void)state;
    harness_init(&h, 15, 0, 0);
    buf_put_u32(&running, 1); /* xcnt, subxcnt, overflow, next, oldest running, latest completed */
    buf_put_u32(&running, 0);
    buf_put_zeros(&running, 4);
    buf_put_u32(&running, 750);
    buf_put_u32(&running, 740);
    buf_put_u32(&running, 749);
    buf_put_u32(&running, 740);
    struct wal_record r = record_of(RM_STANDBY_ID, 0x10, 0, 1000, &running);
    take(&h, &r, true);
    const struct running_frame *f =
        (const struct running_frame *)expect(&h, &at, FRAME_RUNNING, 0, 1000);
    assert_int_equal(f->oldest_running, 740);
    assert_int_equal(f->next_xid, 750);
    buf_put_u32(&locks, 2);
    buf_put_u32(&locks, 741);
    buf_put_u32(&locks, OTHER_DB);
    buf_put_u32(&locks, 16400);
    buf_put_u32(&locks, 742);
    buf_put_u32(&locks, OUR_DB);
    buf_put_u32(&locks, 16400);
    struct wal_record l = record_of(RM_STANDBY_ID, 0x00, 742, 1100, &locks);
    take(&h, &l, false);
    expect(&h, &at, FRAME_SEEN, 742, 1100);
    expect_end(&h, at);
    harness_fini(&h);
}

static void test_wal_level(void **state)
{
    struct error err = {0};
    struct harness h;
    CLEANUP_BUF struct buf main = {0};
    (void)state;
    harness_init(&h, 15, 0, 0);
    for (unsigned i = 0; i < 5; i++)
        buf_put_u32(&main, 100);
    buf_put_u32(&main, 1); /* replica */
    buf_put_zeros(&main, 2);
    struct wal_record r = record_of(RM_XLOG_ID, 0x60, 0, 1000, &main);
    assert_int_equal(records_take(h.r, &r, true, &h.out, &err), ERR_CONFIG);
    assert_true(err.lsn == 1000);
    assert_non_null(strstr(err.message, "wal_level"));
    main.data[20] = 2; /* logical */
    take(&h, &r, true);
    expect_end(&h, 0);
    harness_fini(&h);
}

static void test_damaged_records(void **state)
{
    struct error err = {0};
    struct harness h;
    CLEANUP_BUF struct buf main = {0};
    (void)state;
    harness_init(&h, 15, 0, 0);
    outcome_put(&main, (struct outcome){.db = OUR_DB, .subs = (TransactionId[]){1}, .nsub = 1});
    for (uint32_t cut = 0; cut < main.len; cut++) {
        struct wal_record r = record_of(RM_XACT_ID, INFO_COMMIT, 700, 1000, &main);
        r.main_len = cut;
        assert_int_equal(records_take(h.r, &r, false, &h.out, &err), ERR_DATA);
        assert_true(err.lsn == 1000);
    }
    struct wal_record running = record_of(RM_STANDBY_ID, 0x10, 0, 1100, &main);
    running.main_len = 23;
    assert_int_equal(records_take(h.r, &running, false, &h.out, &err), ERR_DATA);
    expect_end(&h, 0);
    harness_fini(&h);
    records_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_rows_of_the_load),
        cmocka_unit_test(test_truncate),
        cmocka_unit_test(test_incomplete_change),
        cmocka_unit_test(test_other_records),
        cmocka_unit_test(test_assignment),
        cmocka_unit_test(test_standby_records),
        cmocka_unit_test(test_wal_level),
        cmocka_unit_test(test_damaged_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
