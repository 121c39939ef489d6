/* The local store, case by case: what is alive where. */
#include "toast_events.h"

/* Every case is looked at before and after it has reached the file. */
static void both(struct toast_store *s, void (*check)(struct toast_store *s))
{
    check(s);
    assert_ok(toast_store_sync(s, UINT64_MAX, &err));
    check(s);
    toast_store_close(s);
    s = toast_open(0, 0);
    check(s);
    toast_store_close(s);
    toast_dir_remove();
}

static void check_life(struct toast_store *s)
{
    assert_not(s, 1, 7, 199, 6, TOAST_MISSING);
    assert_not(s, 1, 7, 200, 6, TOAST_INCOMPLETE); /* its second chunk comes later */
    assert_value(s, 1, 7, 208, "abcdef");
    assert_value(s, 1, 7, 299, "abcdef");
    assert_not(s, 1, 7, 300, 6, TOAST_MISSING);
    assert_not(s, 1, 7, 310, 6, TOAST_MISSING);
    assert_not(s, 1, 7, UINT64_MAX, 6, TOAST_MISSING);
    assert_not(s, 2, 7, 250, 6, TOAST_MISSING); /* another table's */
    assert_not(s, 1, 8, 250, 6, TOAST_MISSING);
    assert_not(s, 1, 7, 250, 5, TOAST_INCOMPLETE); /* too long, too short */
    assert_not(s, 1, 7, 250, 7, TOAST_INCOMPLETE);
    assert_not(s, 1, 7, 250, 3, TOAST_INCOMPLETE); /* one chunk would do, but there are two */
}

static void test_life(void **state)
{
    (void)state;
    toast_dir_make();
    struct toast_store *s = toast_open(0, 0);
    put(s, birth(1, 7, 0, 0x10001, 200, "abcd"));
    put(s, birth(1, 7, 1, 0x10002, 208, "ef"));
    put(s, death(1, 0x10001, 300));
    put(s, death(1, 0x10002, 308));
    both(s, check_life);
}

static void check_reuse(struct toast_store *s)
{
    assert_value(s, 1, 7, 150, "old value");
    assert_not(s, 1, 7, 250, 9, TOAST_MISSING);
    assert_value(s, 1, 7, 350, "new");
    assert_value(s, 1, 9, 250, "in its place");
}

/* An oid and TIDs used again. */
static void test_reuse(void **state)
{
    (void)state;
    toast_dir_make();
    struct toast_store *s = toast_open(0, 0);
    put(s, birth(1, 7, 0, 1, 100, "old "));
    put(s, birth(1, 7, 1, 2, 108, "value"));
    put(s, death(1, 1, 200));
    put(s, death(1, 2, 208));
    put(s, birth(1, 9, 0, 2, 220, "in its place"));
    put(s, birth(1, 7, 0, 1, 300, "new"));
    both(s, check_reuse);
}

static void check_rewrite(struct toast_store *s)
{
    assert_value(s, 1, 7, 499, "seven");
    assert_value(s, 1, 8, 499, "eight");
    assert_value(s, 1, 7, 600, "seven"); /* kept under its id, at another TID */
    assert_not(s, 1, 8, 600, 5, TOAST_MISSING);
    assert_value(s, 1, 9, 600, "nine"); /* at the TID that 7 had in the old file */
    assert_value(s, 2, 7, 600, "other");
    assert_not(s, 1, 9, 700, 4, TOAST_MISSING); /* truncated */
    assert_not(s, 1, 7, 700, 5, TOAST_MISSING);
}

static void test_rewrite_and_truncate(void **state)
{
    (void)state;
    toast_dir_make();
    struct toast_store *s = toast_open(0, 0);
    put(s, birth(1, 7, 0, 1, 100, "seven"));
    put(s, birth(1, 8, 0, 2, 110, "eight"));
    put(s, birth(2, 7, 0, 1, 120, "other"));
    put(s, birth(1, 9, 0, 1, 500, "nine"));
    put(s, birth(1, 7, 0, 2, 508, "seven"));
    put(s, reset(1, 500)); /* known at the commit only */
    put(s, reset(1, 700));
    both(s, check_rewrite);
}

static void check_seed(struct toast_store *s)
{
    assert_value(s, 1, 7, 99, "seed");
    assert_not(s, 1, 7, 150, 4, TOAST_MISSING);
    assert_value(s, 1, 8, 99, "seen twice");
    assert_value(s, 1, 8, 140, "seen twice");
    assert_not(s, 1, 8, 150, 10, TOAST_MISSING);
}

/* A seed may come after its death, and after its own birth in the stream. */
static void test_late_seeds(void **state)
{
    (void)state;
    toast_dir_make();
    struct toast_store *s = toast_open(0, 0);
    put(s, death(1, 1, 150));
    put(s, birth(1, 8, 0, 2, 130, "seen twice"));
    put(s, death(1, 2, 150));
    assert_ok(toast_store_sync(s, 200, &err));
    put(s, birth(1, 7, 0, 1, 99, "seed"));
    put(s, birth(1, 8, 0, 2, 99, "seen twice"));
    both(s, check_seed);
}

static void test_refused(void **state)
{
    (void)state;
    toast_dir_make();
    struct toast_store *s = toast_open(0, 0);
    struct toast_event e = birth(1, 7, 0, 1, 100, "");
    assert_int_equal(toast_store_put(s, &e, 1, &err), ERR_DATA);
    e = death(1, (uint64_t)1 << 48, 100);
    assert_int_equal(toast_store_put(s, &e, 1, &err), ERR_BUG);
    e.kind = 9;
    assert_int_equal(toast_store_put(s, &e, 1, &err), ERR_BUG);
    toast_store_close(s);
    toast_dir_remove();
}

static void test_disabled(void **state)
{
    (void)state;
    struct toast_store *s = toast_store_open_disabled();
    struct toast_stats stats;
    put(s, birth(1, 7, 0, 1, 100, "value"));
    assert_ok(toast_store_sync(s, 200, &err));
    assert_not(s, 1, 7, 150, 5, TOAST_MISSING);
    assert_ok(toast_store_reclaim(s, 200, &err));
    assert_ok(toast_store_stats(s, &stats, &err));
    assert_int_equal(stats.chunks, 0);
    assert_null(toast_store_close(s));
    assert_null(toast_store_close(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life),
        cmocka_unit_test(test_reuse),
        cmocka_unit_test(test_rewrite_and_truncate),
        cmocka_unit_test(test_late_seeds),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_disabled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
