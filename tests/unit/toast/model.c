/* The local store against the model. */
#include "model.h"

static struct toast_store *model_open(bool fresh, size_t pending, unsigned reclaim_rows)
{
    if (fresh)
        assert_ok(file_remove_tree(toast_dir, true, &err));
    return toast_open(pending, reclaim_rows);
}

static uint64_t model_rows(struct toast_store *store)
{
    struct toast_stats stats;
    assert_ok(toast_store_stats(store, &stats, &err));
    return stats.chunks + stats.deaths;
}

static void test_model(void **state)
{
    (void)state;
    toast_dir_make();
    model_run_seeds(1, 12, 3000, 2);
    toast_dir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
