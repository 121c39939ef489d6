/* Error texts as libchdb 26.7.3 gives them. */
#include "test.h"

#include "engine/chdb.h"

static void codes(void **state)
{
    const char *text;
    (void)state;
    assert_int_equal(
        chdb_error_parse("Code: 60. DB::Exception: Table app.t does not exist. (UNKNOWN_TABLE)",
                         &text),
        60);
    assert_string_equal(text, "DB::Exception: Table app.t does not exist. (UNKNOWN_TABLE)");
    assert_int_equal(
        chdb_error_parse("Code: 108. DB::Exception: Code: 108. DB::Exception: No data to "
                         "insert. (NO_DATA_TO_INSERT) (version 26.7.2.1). "
                         "(NO_DATA_TO_INSERT)",
                         &text),
        108);
    assert_string_equal(text, "DB::Exception: No data to insert. (NO_DATA_TO_INSERT) (version "
                              "26.7.2.1). (NO_DATA_TO_INSERT)");
    assert_int_equal(chdb_error_parse("std::bad_alloc", &text), 1001);
    assert_string_equal(text, "std::bad_alloc");
    assert_int_equal(chdb_error_parse("", &text), 1001);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(codes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
