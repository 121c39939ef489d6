/* What the WAL of the load's window tells of relations. */
#include "../pump/wal.h"

#include "daemon/window.h"

static void take(struct window_facts *f, uint8_t rmid, uint8_t info, TransactionId xid,
                 const struct buf *main)
{
    struct error err = {0};
    struct wal_record r = record_of(rmid, info, xid, 1000, main);
    assert_ok(window_facts_record(f, &r, &err));
}

static void truncate(struct window_facts *f, TransactionId xid, Oid db, Oid rel)
{
    CLEANUP_BUF struct buf main = {0};
    truncate_put(&main, db, &rel, 1);
    take(f, RM_HEAP_ID, 0x30, xid, &main);
}

/* An outcome that invalidates rel's cache entry and removes a file if `drops`. */
static void ends(struct window_facts *f, uint8_t info, TransactionId xid, Oid rel, bool drops,
                 struct outcome o)
{
    struct rel_file_locator file = table_file(OUR_DB, rel + 1);
    CLEANUP_BUF struct buf main = {0}, invals = {0};
    inval_put(&invals, RELCACHE, OUR_DB, rel);
    o.db = OUR_DB;
    o.invals = info == INFO_ABORT || info == INFO_ABORT_PREPARED ? NULL : &invals;
    o.dropped = &file;
    o.ndropped = drops ? 1 : 0;
    outcome_put(&main, o);
    take(f, RM_XACT_ID, info, xid, &main);
}

static struct window_facts *facts(void)
{
    struct window_facts *f = window_facts_new(15, OUR_DB);
    window_facts_set_next_xid(f, 700);
    return f;
}

static void test_nothing_seen(void **state)
{
    struct window_facts *f = facts();
    (void)state;
    assert_false(window_facts_truncated(f, 16400));
    assert_false(window_facts_rewritten(f, 16400));
    assert_false(window_facts_old_xact(f, 16400));
    window_facts_free(f);
    window_facts_free(NULL);
}

static void test_truncate(void **state)
{
    struct window_facts *f = facts();
    (void)state;
    truncate(f, 700, OUR_DB, 16400);
    assert_false(window_facts_truncated(f, 16400)); /* not yet committed */
    ends(f, INFO_COMMIT, 700, 16400, true, (struct outcome){0});
    assert_true(window_facts_truncated(f, 16400));
    assert_false(window_facts_rewritten(f, 16400)); /* its file went, but it was no rewrite */
    /* rolled back */
    truncate(f, 701, OUR_DB, 16500);
    ends(f, INFO_ABORT, 701, 16500, true, (struct outcome){0});
    assert_false(window_facts_truncated(f, 16500));
    /* and then another transaction touches the relation */
    ends(f, INFO_COMMIT, 702, 16500, false, (struct outcome){0});
    assert_false(window_facts_truncated(f, 16500));
    assert_false(window_facts_rewritten(f, 16500));
    /* a relation of the same number elsewhere */
    truncate(f, 703, OTHER_DB, 16600);
    ends(f, INFO_COMMIT, 703, 16600, false, (struct outcome){0});
    assert_false(window_facts_truncated(f, 16600));
    window_facts_free(f);
}

static void test_truncate_in_subtransaction_and_prepared(void **state)
{
    static const TransactionId subs[] = {711, 712};
    struct window_facts *f = facts();
    (void)state;
    truncate(f, 712, OUR_DB, 16400);
    ends(f, INFO_COMMIT, 710, 16400, true, (struct outcome){.subs = subs, .nsub = 2});
    assert_true(window_facts_truncated(f, 16400));
    truncate(f, 713, OUR_DB, 16500); /* a subtransaction that was rolled back: not in the list */
    ends(f, INFO_COMMIT, 710, 16500, false, (struct outcome){.subs = subs, .nsub = 2});
    assert_false(window_facts_truncated(f, 16500));
    truncate(f, 720, OUR_DB, 16600);
    ends(f, INFO_COMMIT_PREPARED, 0, 16600, true, (struct outcome){.two_phase = 720});
    assert_true(window_facts_truncated(f, 16600));
    truncate(f, 721, OUR_DB, 16700);
    ends(f, INFO_ABORT_PREPARED, 0, 16700, true, (struct outcome){.two_phase = 721});
    assert_false(window_facts_truncated(f, 16700));
    window_facts_free(f);
}

static void test_rewrite(void **state)
{
    struct window_facts *f = facts();
    (void)state;
    ends(f, INFO_COMMIT, 700, 16400, true, (struct outcome){0});
    assert_true(window_facts_rewritten(f, 16400));
    assert_false(window_facts_truncated(f, 16400));
    ends(f, INFO_COMMIT, 701, 16500, false, (struct outcome){0}); /* ALTER without a new file */
    assert_false(window_facts_rewritten(f, 16500));
    ends(f, INFO_COMMIT, 702, 1259, true, (struct outcome){0}); /* catalogs are the shadow's */
    assert_false(window_facts_rewritten(f, 1259));
    window_facts_free(f);
}

static void test_old_transactions(void **state)
{
    struct window_facts *f = facts();
    (void)state;
    ends(f, INFO_COMMIT, 700, 16400, false, (struct outcome){0});
    assert_false(window_facts_old_xact(f, 16400)); /* began after the backup did */
    ends(f, INFO_COMMIT, 699, 16500, false, (struct outcome){0});
    assert_true(window_facts_old_xact(f, 16500));
    ends(f, INFO_COMMIT_PREPARED, 0, 16600, false, (struct outcome){.two_phase = 650});
    assert_true(window_facts_old_xact(f, 16600));
    ends(f, INFO_ABORT, 698, 16700, false, (struct outcome){0});
    assert_false(window_facts_old_xact(f, 16700));
    window_facts_free(f);
    /* as long as the backup has not told its next xid, every transaction may be older */
    f = window_facts_new(15, OUR_DB);
    ends(f, INFO_COMMIT, 900, 16400, false, (struct outcome){0});
    assert_true(window_facts_old_xact(f, 16400));
    window_facts_free(f);
}

static void test_other_records(void **state)
{
    struct error err = {0};
    struct window_facts *f = facts();
    CLEANUP_BUF struct buf main = {0};
    (void)state;
    take(f, RM_HEAP_ID, 0x00, 700, &main);
    take(f, RM_BTREE_ID, 0x00, 700, &main);
    take(f, RM_XACT_ID, 0x60, 700, &(struct buf){(uint8_t *)"\0\0\0\0", 4, 4}); /* INVALIDATIONS */
    struct wal_record skipped = record_of(RM_XACT_ID, INFO_COMMIT, 700, 1000, NULL);
    skipped.body_skipped = true;
    assert_ok(window_facts_record(f, &skipped, &err));
    buf_put_u32(&main, OUR_DB);
    buf_put_u32(&main, 1000000); /* relations that are not there */
    buf_put_zeros(&main, 8);
    struct wal_record damaged = record_of(RM_HEAP_ID, 0x30, 700, 1234, &main);
    assert_int_equal(window_facts_record(f, &damaged, &err), ERR_DATA);
    assert_true(err.lsn == 1234);
    struct wal_record cut = record_of(RM_XACT_ID, INFO_COMMIT, 700, 1234, &main);
    cut.main_len = 3;
    assert_int_equal(window_facts_record(f, &cut, &err), ERR_DATA);
    window_facts_free(f);
}

static void running(struct window_facts *f, XLogRecPtr lsn, bool overflow, TransactionId oldest,
                    TransactionId next)
{
    struct error err = {0};
    CLEANUP_BUF struct buf main = {0};
    buf_put_u32(&main, 1); /* one transaction, itself the oldest */
    buf_put_u32(&main, 0);
    buf_put_u32(&main, overflow);
    buf_put_u32(&main, next);
    buf_put_u32(&main, oldest);
    buf_put_u32(&main, next - 1);
    buf_put_u32(&main, oldest);
    struct wal_record r = record_of(RM_STANDBY_ID, 0x10, 0, lsn, &main);
    assert_ok(window_facts_record(f, &r, &err));
}

/* When a standby that starts at 500 would accept connections. */
static void test_shadow_ready(void **state)
{
    struct window_facts *f = facts();
    (void)state;
    window_facts_set_start(f, 500);
    running(f, 400, false, 700, 710); /* before it starts */
    assert_false(window_facts_shadow_ready(f));
    running(f, 500, true, 700, 810);
    assert_false(window_facts_shadow_ready(f));
    assert_int_equal(window_facts_oldest_running(f), 700);
    running(f, 600, true, 700, 820);
    running(f, 700, true, 809, 830); /* 809 itself may have been left out */
    assert_false(window_facts_shadow_ready(f));
    running(f, 800, true, 810, 840); /* another such transaction, but none that was left out */
    assert_true(window_facts_shadow_ready(f));
    window_facts_free(f);

    f = facts();
    running(f, 500, true, 700, 810);
    running(f, 600, false, 750, 820);
    assert_true(window_facts_shadow_ready(f));
    running(f, 700, true, 750, 900); /* once ready it stays so */
    assert_true(window_facts_shadow_ready(f));
    window_facts_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_seen),
        cmocka_unit_test(test_truncate),
        cmocka_unit_test(test_truncate_in_subtransaction_and_prepared),
        cmocka_unit_test(test_rewrite),
        cmocka_unit_test(test_old_transactions),
        cmocka_unit_test(test_other_records),
        cmocka_unit_test(test_shadow_ready),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
