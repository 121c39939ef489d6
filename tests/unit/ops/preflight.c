/* The parts of preflight and verify that need no server. */
#include "test.h"

#include "ops/preflight.h"
#include "ops/verify_plan.h"
#include "ops/verify_stream.h"

#include <sys/stat.h>
#include <unistd.h>

static void test_synchronous_names(void **state)
{
    (void)state;
    static const char *const match[] = {
        "*",
        "walshadow",
        "WalShadow",
        "a, walshadow",
        "FIRST 1 (a, walshadow)",
        "ANY 2 (a,b,walshadow)",
        "2 (walshadow, b)",
        "\"walshadow\"",
        "first 1 (*)",
        "  walshadow  ",
        "ANY 1(\"a b\",*)",
    };
    static const char *const other[] = {
        "", " ", "a", "walshadow2", "FIRST 1 (a, b)", "\"wal\"\"shadow\"", "ANY 1 (first, any)",
    };
    for (size_t i = 0; i < LENGTH(match); i++) {
        if (!synchronous_names_match(match[i], "walshadow"))
            fail_msg("'%s' does not match", match[i]);
    }
    for (size_t i = 0; i < LENGTH(other); i++) {
        if (synchronous_names_match(other[i], "walshadow"))
            fail_msg("'%s' matches", other[i]);
    }
    assert_true(synchronous_names_match("first", "first")); /* only before a ( a keyword */
}

static void write_program(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(path, 0755), 0);
}

static void test_bin_dir(void **state)
{
    (void)state;
    struct error err = {0};
    char dir[] = "/tmp/walshadow-bin-XXXXXX", found[200], path[100];
    int version = 0;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/postgres", dir);
    assert_int_equal(preflight_find_bin_dir(dir, 17, found, sizeof found, &version, &err),
                     ERR_CONFIG);
    assert_non_null(strstr(err.message, dir));
    write_program(path, "#!/bin/sh\necho 'postgres (PostgreSQL) 17.10 (Some Build 1)'\n");
    assert_ok(preflight_find_bin_dir(dir, 17, found, sizeof found, &version, &err));
    assert_string_equal(found, dir);
    assert_int_equal(version, 170010);
    /* another major is named, not taken */
    assert_int_equal(preflight_find_bin_dir(dir, 16, found, sizeof found, &version, &err),
                     ERR_CONFIG);
    assert_non_null(strstr(err.message, "PostgreSQL 17"));
    write_program(path, "#!/bin/sh\nexit 3\n");
    assert_int_equal(preflight_find_bin_dir(dir, 17, found, sizeof found, &version, &err),
                     ERR_CONFIG);
    unlink(path);
    rmdir(dir);
}

static void test_report(void **state)
{
    (void)state;
    struct preflight_report r = {0};
    CLEANUP_BUF struct buf text = {0};
    preflight_add(&r, PREFLIGHT_INFO, "a", "info %d", 1);
    preflight_add(&r, PREFLIGHT_ERROR, "b", "wrong");
    preflight_add(&r, PREFLIGHT_WARNING, "c", "hm");
    preflight_render_text(&r, &text);
    assert_string_equal(buf_cstr(&text), "error    b: wrong\nwarning  c: hm\ninfo     a: info 1\n"
                                         "1 errors, 1 warnings\n");
    json_t *json = preflight_json(&r);
    assert_true(json_is_false(json_object_get(json, "ok")));
    assert_int_equal(json_array_size(json_object_get(json, "findings")), 3);
    json_decref(json);
    preflight_report_fini(&r);
}

static void test_rows(void **state)
{
    (void)state;
    struct error err = {0};
    struct verify_row a = {0}, b = {0};
    /* what COPY and TabSeparated write for the same values */
    const char copy[] = "1\t\\N\t\ta\\tb\\nc\\\\d'e\\b\\f\\r\\v";
    const char tsv[] = "1\t\\N\t\ta\\tb\\nc\\\\d\\'e\\b\\f\\r\v";
    assert_ok(verify_row_parse(&a, copy, strlen(copy), 4, &err));
    assert_ok(verify_row_parse(&b, tsv, strlen(tsv), 4, &err));
    for (size_t i = 0; i < 4; i++)
        assert_true(verify_field_equal(&a, i, &b, i));
    assert_null(verify_row_text(&a, 1));
    assert_string_equal(verify_row_text(&a, 3), "a\tb\nc\\d'e\b\f\r\v");
    assert_false(verify_field_equal(&a, 1, &a, 2)); /* NULL is not an empty text */
    /* a text of a backslash and N is not NULL, nor is one that goes on */
    assert_ok(verify_row_parse(&a, "\\\\N\t\\Nx\tz\\0z\t\\N", 15, 4, &err));
    assert_string_equal(verify_row_text(&a, 0), "\\N");
    assert_non_null(verify_row_text(&a, 1));
    assert_int_equal(a.fields[2].len, 3);
    assert_null(verify_row_text(&a, 3));
    assert_int_equal(verify_row_parse(&a, "1\t2", 3, 4, &err), ERR_DATA);
    assert_int_equal(verify_row_parse(&a, "1\t2\t3\t4\t5", 9, 4, &err), ERR_DATA);
    assert_int_equal(verify_row_parse(&a, "", 0, 4, &err), ERR_DATA);
    assert_ok(verify_row_parse(&a, "x\ty\tz\t\\", 7, 4, &err)); /* cut escape: kept as it is */
    verify_row_fini(&a);
    verify_row_fini(&b);
}

static int order(const struct verify_plan *plan, const char *x, const char *y)
{
    struct error err = {0};
    struct verify_row a = {0}, b = {0};
    assert_ok(verify_row_parse(&a, x, strlen(x), 2, &err));
    assert_ok(verify_row_parse(&b, y, strlen(y), 2, &err));
    int c = verify_plan_compare(plan, &a, &b);
    verify_row_fini(&a);
    verify_row_fini(&b);
    return c;
}

static void test_key_order(void **state)
{
    (void)state;
    struct verify_column columns[] = {{.is_number = true}, {.is_number = false}};
    struct verify_plan plan = {.columns = columns, .ncolumns = 2, .nkeys = 2};
    assert_true(order(&plan, "9\ta", "10\ta") < 0);
    assert_true(order(&plan, "-10\ta", "-9\ta") < 0);
    assert_true(order(&plan, "1\ta", "1\tab") < 0);
    assert_true(order(&plan, "1\tb", "1\tab") > 0);
    assert_true(order(&plan, "1\t\xc3\xa4", "1\tz") > 0); /* bytes, unsigned */
    assert_int_equal(order(&plan, "1\ta", "1\ta"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_synchronous_names),
        cmocka_unit_test(test_bin_dir),
        cmocka_unit_test(test_report),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_key_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
