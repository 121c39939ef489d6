/* The classes of exceptions, as clickhouse-notes B5 lists them. */
#include "test.h"

#include "clickhouse/error_class.h"

static void test_classes(void **state)
{
    (void)state;
    static const struct {
        enum ch_error_class class;
        int codes[30];
    } lists[] = {
        {CH_ERROR_RETRY, {32,  159, 202, 203, 209, 210, 225, 236, 241, 242, 243, 285,
                          286, 289, 319, 394, 439, 473, 499, 517, 574, 733, 999}},
        {CH_ERROR_RECONNECT_ONCE, {33, 39, 40, 101}},
        {CH_ERROR_SCHEMA, {10, 16, 20, 47, 53, 60, 81, 218}},
        {CH_ERROR_DATA, {6, 27, 41, 69, 70, 117, 131, 349, 407, 469, 691}},
        {CH_ERROR_CONFIGURATION, {115, 164, 192, 193, 194, 452, 497, 516}},
        {CH_ERROR_UNKNOWN, {1, 62, 153, 100000, -1}},
    };
    for (size_t l = 0; l < LENGTH(lists); l++)
        for (size_t i = 0; lists[l].codes[i] != 0; i++)
            assert_int_equal(ch_error_classify(lists[l].codes[i], "text"), lists[l].class);
}

static void test_two_meanings(void **state)
{
    (void)state;
    assert_int_equal(ch_error_classify(252,
                                       "DB::Exception: Too many parts (300). Merges are processing "
                                       "significantly slower than inserts"),
                     CH_ERROR_RETRY);
    assert_int_equal(
        ch_error_classify(252, "Too many partitions for single INSERT block (more than 100)"),
        CH_ERROR_CONFIGURATION);
    assert_int_equal(ch_error_classify(252, NULL), CH_ERROR_RETRY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_classes),
                                       cmocka_unit_test(test_two_meanings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
