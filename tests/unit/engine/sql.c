/* Statement texts taken apart. What each text means is ClickHouse's grammar (docs: INSERT INTO,
 * SELECT, Syntax), not this code's opinion. */
#include "test.h"

#include "engine/sql.h"

static struct sql_shape shape_of(const char *sql)
{
    struct sql_shape s;
    sql_shape_read(sql, strlen(sql), &s);
    return s;
}

static void assert_span(const char *sql, struct sql_span span, const char *want)
{
    assert_int_equal(span.len, strlen(want));
    assert_memory_equal(sql + span.at, want, span.len);
}

static void insert_parts(void **state)
{
    static const struct {
        const char *sql, *head, *target, *columns, *format;
    } cases[] = {
        {"INSERT INTO t VALUES", "INSERT INTO t ", "t", "", "VALUES"},
        {"insert into `a b`.t (x, `y``z`) FORMAT Native", "insert into `a b`.t (x, `y``z`) ",
         "`a b`.t", "(x, `y``z`)", "Native"},
        {"INSERT INTO TABLE t(a) SETTINGS async_insert=0, x='VALUES' VALUES;",
         "INSERT INTO TABLE t(a) SETTINGS async_insert=0, x='VALUES' ", "t", "(a)", "VALUES"},
        {"-- VALUES\nINSERT /* FORMAT /* x */ */ INTO FUNCTION remote('h', db, t) (a) VALUES",
         "-- VALUES\nINSERT /* FORMAT /* x */ */ INTO FUNCTION remote('h', db, t) (a) ",
         "remote('h', db, t)", "(a)", "VALUES"},
        {"INSERT INTO values FORMAT TSV", "INSERT INTO values ", "values", "", "TSV"},
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct sql_shape s = shape_of(cases[i].sql);
        assert_int_equal(s.kind, SQL_INSERT);
        assert_span(cases[i].sql, s.head, cases[i].head);
        assert_span(cases[i].sql, s.target, cases[i].target);
        assert_span(cases[i].sql, s.columns, cases[i].columns);
        assert_span(cases[i].sql, s.format_name, cases[i].format);
    }
}

static void insert_kinds(void **state)
{
    static const struct {
        const char *sql;
        enum sql_kind kind;
    } cases[] = {
        {"INSERT INTO t VALUES (1)", SQL_INSERT_INLINE},
        {"INSERT INTO t FORMAT CSV 1,2", SQL_INSERT_INLINE},
        {"INSERT INTO t VALUES -- nothing\n", SQL_INSERT},
        {"INSERT INTO t SELECT 1", SQL_OTHER},
        {"INSERT INTO t (a) SELECT a FROM values('a Int8', 1)", SQL_OTHER},
        {"INSERT INTO t (SELECT 1)", SQL_OTHER},
        {"INSERT INTO t (a) (SELECT 1)", SQL_OTHER},
        {"INSERT INTO t WITH x AS (SELECT 1) SELECT * FROM x", SQL_OTHER},
        {"INSERT INTO t FROM INFILE 'x' FORMAT CSV", SQL_OTHER},
        {"INSERT INTO", SQL_OTHER},
        {"INSERT", SQL_OTHER},
        {"", SQL_OTHER},
        {"SELECT 'INSERT INTO t VALUES'", SQL_OTHER},
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++)
        if (shape_of(cases[i].sql).kind != cases[i].kind)
            fail_msg("%s", cases[i].sql);
}

static void clauses_are_cut(void **state)
{
    static const char *const cases[][2] = {
        {"SELECT 1 FORMAT TSV", "SELECT 1 "},
        {"SELECT 1 FORMAT TSV SETTINGS max_threads = 1", "SELECT 1  SETTINGS max_threads = 1"},
        {"SELECT 1 SETTINGS max_threads = 1 FORMAT TSV;", "SELECT 1 SETTINGS max_threads = 1 ;"},
        {"SELECT 1 INTO OUTFILE '/tmp/x' TRUNCATE COMPRESSION 'gz' LEVEL 3 FORMAT CSV -- end",
         "SELECT 1   -- end"},
        {"SELECT 1 INTO OUTFILE 'it''s' AND STDOUT", "SELECT 1 "},
        /* names, not clauses */
        {"SELECT a.format FROM t", "SELECT a.format FROM t"},
        {"SELECT x AS format SETTINGS max_threads = 1",
         "SELECT x AS format SETTINGS max_threads = 1"},
        {"SELECT format FROM t", "SELECT format FROM t"},
        {"SELECT (SELECT 1 FORMAT TSV)", "SELECT (SELECT 1 FORMAT TSV)"},
        {"SELECT ' FORMAT TSV'", "SELECT ' FORMAT TSV'"},
        {"SELECT $x$ FORMAT TSV $x$", "SELECT $x$ FORMAT TSV $x$"},
        {"SELECT 1 /* FORMAT TSV */", "SELECT 1 /* FORMAT TSV */"},
        {"INSERT INTO t SELECT 1 FORMAT Null", "INSERT INTO t SELECT 1 FORMAT Null"},
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct buf out = {0};
        struct sql_shape s = shape_of(cases[i][0]);
        sql_strip_put(cases[i][0], strlen(cases[i][0]), &s, &out);
        assert_string_equal(buf_cstr(&out), cases[i][1]);
        buf_free(&out);
    }
}

static void take_name(void *ctx, const char *name, size_t len)
{
    struct buf *out = ctx;
    assert_int_equal(strlen(name), len);
    buf_printf(out, "<%s>", name);
}

static void column_lists(void **state)
{
    static const char *const cases[][2] = {
        {"(a)", "<a>"},
        {"( a , `b c` , \"d\"\"e\", n.x /* last */ )", "<a><b c><d\"e><n.x>"},
        {"(`a\\`b`, `c``d`, `\\x41\\n`)", "<a`b><c`d><A\n>"},
        {"(* EXCEPT(a))", NULL},
        {"(a b)", NULL},
        {"()", NULL},
        {"(a", NULL},
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct buf out = {0};
        struct sql_span all = {0, strlen(cases[i][0])};
        bool ok = sql_columns_read(cases[i][0], all, take_name, &out);
        assert_int_equal(ok, cases[i][1] != NULL);
        if (ok)
            assert_string_equal(buf_cstr(&out), cases[i][1]);
        buf_free(&out);
    }
}

static void quoting(void **state)
{
    struct buf out = {0};
    (void)state;
    sql_literal_put("it's \\ \0", 8, &out);
    assert_string_equal(buf_cstr(&out), "'it\\'s \\\\ \\0'");
    struct buf back = {0};
    sql_value_put((char *)out.data, out.len, &back);
    assert_int_equal(back.len, 8);
    assert_memory_equal(back.data, "it's \\ \0", 8);
    buf_reset(&back);
    /* not one string: nothing in it is believed */
    sql_value_put("'a', readonly = 0", 17, &back);
    assert_string_equal(buf_cstr(&back), "'a', readonly = 0");
    buf_reset(&out);
    sql_name_put("a`b", 3, &out);
    assert_string_equal(buf_cstr(&out), "`a\\`b`");
    buf_free(&out);
    buf_free(&back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(insert_parts),    cmocka_unit_test(insert_kinds),
        cmocka_unit_test(clauses_are_cut), cmocka_unit_test(column_lists),
        cmocka_unit_test(quoting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
