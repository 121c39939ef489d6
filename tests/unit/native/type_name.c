/* Type texts: canonical form, limits, and which ones a column accepts (clickhouse-notes B2). */
#include "test.h"

#include "native/type_name.h"

#include <stdbool.h>

static void test_canonical(void **state)
{
    static const struct {
        const char *text, *canonical; /* NULL: as written */
    } cases[] = {
        {"UInt8", NULL},
        {" Int256 ", "Int256"},
        {"Decimal(9,2)", "Decimal(9, 2)"},
        {"Decimal( 76 )", "Decimal(76, 0)"},
        {"Decimal64(3)", "Decimal(18, 3)"},
        {"DateTime64(6,'UTC')", "DateTime64(6, 'UTC')"},
        {"DateTime64", "DateTime64(3)"},
        {"DateTime('Europe/Berlin')", NULL},
        {"DateTime", NULL},
        {"Time64(6)", NULL},
        {"FixedString(16)", NULL},
        {"Enum8('a'=-1,'b' = 2)", "Enum8('a' = -1, 'b' = 2)"},
        {"Enum16('x', 'y', 'z' = 300, 'q')", "Enum16('x' = 1, 'y' = 2, 'z' = 300, 'q' = 301)"},
        {"Enum8('it\\'s' = 1, 'b\\\\s' = 2, 'd''q' = 3, '),(' = 4)",
         "Enum8('it\\'s' = 1, 'b\\\\s' = 2, 'd\\'q' = 3, '),(' = 4)"},
        {"LowCardinality(Nullable(String))", NULL},
        {"Map(String,Array(Nullable(UInt64)))", "Map(String, Array(Nullable(UInt64)))"},
        {"Tuple(a UInt8,`b c` String)", "Tuple(a UInt8, `b c` String)"},
        {"Tuple(UInt8, Tuple(String))", NULL},
        {"Tuple()", NULL},
        {"Point", NULL},
        {"Array(MultiPolygon)", NULL},
        {"JSON(max_dynamic_paths=8, a.b UInt32)", NULL},
        {"AggregateFunction(quantiles(0.5, 0.9), UInt64)", NULL},
        {"SimpleAggregateFunction(sum, Decimal(38,4))",
         "SimpleAggregateFunction(sum, Decimal(38, 4))"},
        {"Variant(String, UInt64)", NULL},
        {"IntervalSecond", NULL},
    };
    struct error err;
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct arena arena = {0};
        struct buf out = {0};
        const struct type_node *type;
        assert_ok(type_name_parse(&arena, cases[i].text, strlen(cases[i].text), &type, &err));
        type_name_print(type, &out);
        assert_string_equal(buf_cstr(&out),
                            cases[i].canonical != NULL ? cases[i].canonical : cases[i].text);
        buf_free(&out);
        arena_free(&arena);
    }
}

static void test_malformed(void **state)
{
    static const char *const texts[] = {
        "",
        "(",
        "8",
        "UInt8)",
        "UInt8 UInt8",
        "Nullable",
        "Nullable()",
        "Nullable(UInt8",
        "Nullable(UInt8, UInt8)",
        "Map(String)",
        "Decimal",
        "Decimal(0)",
        "Decimal(77)",
        "Decimal(5, 6)",
        "Decimal(99999999999999999999)",
        "Decimal32(10)",
        "DateTime64(10)",
        "DateTime64(6, UTC)",
        "DateTime(6)",
        "FixedString(0)",
        "FixedString(16777216)",
        "Enum8('a' = 128)",
        "Enum8('a' = 127, 'b')",
        "Enum8(a = 1)",
        "Enum8('a",
        "Enum8('a\\",
        "Enum8('a\\x4')",
        "Enum8('a\\0')",
        "Enum8('\\x00')",
        "Tuple(a UInt8, String)",
        "Tuple(UInt8,)",
        "Variant(String",
        "Variant('",
        "SimpleAggregateFunction(sum)",
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(texts); i++) {
        struct arena arena = {0};
        const struct type_node *type;
        struct error err = {0};
        if (type_name_parse(&arena, texts[i], strlen(texts[i]), &type, &err) != ERR_DATA)
            fail_msg("accepted: %s", texts[i]);
        assert_non_null(strstr(err.message, " at character "));
        arena_free(&arena);
    }
}

static void test_limits(void **state)
{
    struct arena arena = {0};
    struct buf text = {0};
    const struct type_node *type;
    struct error err;
    (void)state;
    for (unsigned depth = TYPE_NAME_MAX_DEPTH - 1; depth <= TYPE_NAME_MAX_DEPTH; depth++) {
        buf_reset(&text);
        for (unsigned i = 0; i < depth; i++)
            buf_printf(&text, "Array(");
        buf_printf(&text, "UInt8");
        for (unsigned i = 0; i < depth; i++)
            buf_put_u8(&text, ')');
        assert_int_equal(type_name_parse(&arena, (char *)text.data, text.len, &type, &err),
                         depth < TYPE_NAME_MAX_DEPTH ? OK : ERR_DATA);
    }
    /* as large as an enum gets, and memory stays in proportion */
    buf_reset(&text);
    for (unsigned i = 0; i < 15000; i++)
        buf_printf(&text, "%s'm%u' = %d", i == 0 ? "Enum16(" : ", ", i, (int)i);
    buf_put_u8(&text, ')');
    arena_reset(&arena);
    size_t before = arena.bytes;
    assert_ok(type_name_parse(&arena, (char *)text.data, text.len, &type, &err));
    assert_int_equal(type->nmembers, 15000);
    assert_true(arena.bytes - before < 8u << 20);
    buf_put_zeros(&text, TYPE_NAME_MAX_BYTES);
    assert_int_equal(type_name_parse(&arena, (char *)text.data, text.len, &type, &err), ERR_DATA);
    buf_free(&text);
    arena_free(&arena);
}

static void test_accepts(void **state)
{
    static const struct {
        const char *column, *sent;
        bool accepts;
    } cases[] = {
        {"DateTime64(6, 'UTC')", "DateTime64(6,'UTC')", true},
        {"DateTime64(6)", "DateTime64(6,'UTC')", true},
        {"DateTime64(3)", "DateTime64(6)", false},
        {"DateTime", "DateTime64(0)", false},
        {"Bool", "UInt8", true},
        {"UInt8", "Bool", true},
        {"Int8", "Bool", false},
        {"LowCardinality(String)", "String", true},
        {"String", "LowCardinality(String)", false},
        {"LowCardinality(Nullable(String))", "Nullable(String)", true},
        {"LowCardinality(Nullable(String))", "String", false},
        {"Nullable(Int32)", "Int32", false},
        {"Int32", "Nullable(Int32)", false},
        {"Int32", "Int64", false},
        {"Decimal32(2)", "Decimal(9, 2)", true},
        {"Decimal(10, 2)", "Decimal(9, 2)", false},
        {"Decimal(9, 3)", "Decimal(9, 2)", false},
        {"FixedString(3)", "FixedString(4)", false},
        {"Enum8('a' = 1, 'b' = 2)", "Enum8('b'=2,'a'=1)", true},
        {"Enum8('a' = 1, 'b' = 2)", "Enum8('a'=1,'c'=2)", false},
        {"Enum8('a' = 1)", "Enum8('a'=1,'c'=2)", false},
        {"Point", "Tuple(Float64, Float64)", true},
        {"Tuple(a UInt8, b String)", "Tuple(UInt8, String)", true},
        {"Tuple(a UInt8, b String)", "Tuple(b UInt8, a String)", false},
        {"Array(Map(String, UInt8))", "Array(Map(String,Bool))", true},
        {"SimpleAggregateFunction(max, UInt64)", "UInt64", true},
        {"JSON", "JSON", true},
        {"JSON(max_dynamic_paths=8)", "JSON(max_dynamic_paths = 8)", true},
        {"JSON", "JSON(max_dynamic_paths=8)", false},
        {"Variant(String, UInt8)", "Variant(String,UInt8)", true},
        {"Variant(String, UInt8)", "Variant(String, UInt16)", false},
        {"IntervalDay", "IntervalHour", false},
        {"nonsense(", "nonsense(", false},
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++)
        if (type_text_accepts(cases[i].column, cases[i].sent) != cases[i].accepts)
            fail_msg("%s <- %s", cases[i].column, cases[i].sent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_canonical),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_accepts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
