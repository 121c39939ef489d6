/* The read-only rule's own part: texts by which a reader could reach files of the host. Each of the
 * hostile ones was seen to work on the bare engine, or hides the name from a lexer that is not
 * ClickHouse's. */
#include "test.h"

#include "engine/settings.h"
#include "engine/sql_reader.h"

static struct sql_reader_facts facts_of(const char *sql)
{
    struct sql_reader_facts f;
    sql_reader_facts_read(sql, strlen(sql), &f);
    return f;
}

static void file_is_noticed(void **state)
{
    static const char *const hostile[] = {
        "SELECT file('/etc/passwd')",
        "SELECT `file`('/etc/passwd')",
        "SELECT \"file\" ('/etc/passwd')",
        "SELECT `fil\\x65`('/etc/passwd')",
        "SELECT arrayMap(file, ['/etc/passwd'])",
        "SELECT * APPLY file FROM t",
        "SELECT \u201cfile\u201d('/etc/passwd')",
        "SELECT \u201c'\u201d, file('/etc/passwd'), \u201c'\u201d",
        "SELECT\u00a0file('/etc/passwd')",
        "SELECT 1 AS x$a$, file('/etc/passwd'), 1 AS y$a$",
        "SELECT 1e--5, file('/etc/passwd')",
        "SELECT arrayMap({f:Identifier}, ['/etc/passwd'])",
        "file('/etc/passwd')",
    };
    static const char *const harmless[] = {
        "SELECT 'file'",    "SELECT profile, filename FROM files",
        "SELECT File('x')", "SHOW TABLES LIKE '%file%'",
        "SELECT 1",
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(hostile); i++)
        if (!facts_of(hostile[i]).may_call_file)
            fail_msg("%s", hostile[i]);
    for (size_t i = 0; i < LENGTH(harmless); i++)
        if (facts_of(harmless[i]).may_call_file)
            fail_msg("%s", harmless[i]);
}

static void kinds(void **state)
{
    (void)state;
    assert_true(facts_of(" /* c */ select 1").selects);
    assert_true(facts_of("WITH 1 AS x SELECT x").selects);
    assert_false(facts_of("SHOW TABLES").selects);
    assert_false(facts_of("\u00a0SELECT 1").selects);
    assert_true(facts_of("DESCRIBE TABLE a.file").names_things);
    assert_true(facts_of("SHOW CREATE TABLE file").names_things);
    assert_false(facts_of("DESCRIBE (SELECT file('x'))").names_things);
    assert_false(facts_of("SHOW TABLES WHERE name = file('x')").names_things);
    assert_false(facts_of("DESC a.b FORMAT TSV").fetches);
    assert_false(facts_of("DESCRIBE (SELECT 1)").fetches);
    assert_true(facts_of("DESCRIBE TABLE url('http://h/', 'CSV')").fetches);
    assert_true(facts_of("DESCRIBE TABLE \u201curl\u201d('http://h/', 'CSV')").fetches);
    assert_true(facts_of("DESCRIBE TABLE FUNCTION url('http://h/', 'CSV')").fetches);
    assert_true(facts_of("EXPLAIN TABLE OVERRIDE mysql('h', 'a', 'b', 'c', 'd')").fetches);
    assert_false(facts_of("EXPLAIN PLAN SELECT 1").fetches);
}

static void settings_of_readers(void **state)
{
    (void)state;
    assert_true(engine_settings_is_reader_safe(str_of("final")));
    assert_true(engine_settings_is_reader_safe(str_of("output_format_json_quote_64bit_integers")));
    assert_false(engine_settings_is_reader_safe(str_of("readonly")));
    assert_false(engine_settings_is_reader_safe(str_of("max_memory_usage")));
    assert_false(engine_settings_is_reader_safe(str_of("max_result_bytes")));
    assert_false(engine_settings_is_reader_safe(
        str_of("output_format_native_encode_types_in_binary_format")));
    assert_false(engine_settings_is_reader_safe(str_of("format_template_row")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_is_noticed),
        cmocka_unit_test(kinds),
        cmocka_unit_test(settings_of_readers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
