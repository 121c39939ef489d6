/* Which transactions have been seen to commit, against a plain list. */
#include "test.h"

#include "pipeline/resync.h"

#include <stdlib.h>

static void test_before_anything_is_known(void **state)
{
    struct commit_window *w = commit_window_new();
    (void)state;
    assert_int_equal(commit_window_get(w, 100), COMMIT_UNKNOWN);
    commit_window_add(w, 100);
    assert_int_equal(commit_window_get(w, 100), COMMIT_SEEN);
    assert_int_equal(commit_window_get(w, 99), COMMIT_UNKNOWN);
    assert_int_equal(commit_window_get(w, 101), COMMIT_UNKNOWN);
    commit_window_running(w, 105);
    assert_int_equal(commit_window_get(w, 104), COMMIT_UNKNOWN);
    assert_int_equal(commit_window_get(w, 105), COMMIT_NOT_SEEN);
    commit_window_running(w, 120); /* the first one counts */
    assert_int_equal(commit_window_get(w, 110), COMMIT_NOT_SEEN);
    free(w);
}

/* Transactions commit a little out of order, across the end of the number range. */
static void test_against_a_list(void **state)
{
    struct commit_window *w = commit_window_new();
    const uint32_t n = 3 * COMMIT_WINDOW_XIDS;
    const TransactionId first = 0u - COMMIT_WINDOW_XIDS;
    uint8_t *seen = xcalloc(n, 1);
    (void)state;
    srandom(5);
    commit_window_running(w, first);
    uint32_t newest = 0;
    for (uint32_t i = 0; i + 64 < n; i++) {
        uint32_t at = i + (uint32_t)random() % 64;
        if (first + at < FirstNormalTransactionId || random() % 3 == 0)
            continue;
        commit_window_add(w, first + at);
        seen[at] = 1;
        newest = MAX(newest, at);
        if (i % 4099 != 0)
            continue;
        for (uint32_t back = 0; back < 200 && back <= newest; back++) {
            TransactionId xid = first + newest - back;
            if (xid < FirstNormalTransactionId)
                continue;
            assert_int_equal(commit_window_get(w, xid),
                             seen[newest - back] ? COMMIT_SEEN : COMMIT_NOT_SEEN);
        }
        assert_int_equal(commit_window_get(w, first + newest + 1), COMMIT_NOT_SEEN);
        if (newest > COMMIT_WINDOW_XIDS + 10)
            assert_int_equal(commit_window_get(w, first + newest - COMMIT_WINDOW_XIDS),
                             COMMIT_UNKNOWN);
    }
    /* one that began long ago is not taken for another of the same place */
    commit_window_add(w, first + 1);
    assert_int_equal(commit_window_get(w, first + 1), COMMIT_UNKNOWN);
    /* a leap over more than the window leaves nothing behind */
    commit_window_add(w, first + newest + 2 * COMMIT_WINDOW_XIDS);
    assert_int_equal(commit_window_get(w, first + newest + COMMIT_WINDOW_XIDS + 5),
                     COMMIT_NOT_SEEN);
    free(seen);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before_anything_is_known),
        cmocka_unit_test(test_against_a_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
