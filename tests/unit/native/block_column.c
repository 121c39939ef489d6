/* Column payloads from outside: where they end at every cut, what is refused, and their text. The
 * bytes are those of clickhouse-notes B2. */
#include "test.h"

#include "native/block.h"
#include "native/column.h"

static const struct type_node *parse(struct arena *arena, const char *text)
{
    const struct type_node *type;
    struct error err;
    assert_ok(type_name_parse(arena, text, strlen(text), &type, &err));
    return type;
}

static size_t from_hex(const char *hex, uint8_t *bytes)
{
    size_t n = 0;
    for (; *hex != 0; hex++) {
        unsigned value;
        if (*hex == ' ')
            continue;
        assert_int_equal(sscanf(hex, "%2x", &value), 1);
        bytes[n++] = (uint8_t)value;
        hex++;
    }
    return n;
}

#define U64(byte) byte "00000000000000"

static const struct {
    const char *type;
    uint64_t rows;
    const char *hex;
} payloads[] = {
    {"UInt8", 0, ""},
    {"Decimal(9, 2)", 1, "6affffff"},
    {"Int256", 1, "0000000000000000000000000000000000000000000000000000000000000000"},
    {"DateTime64(6, 'UTC')", 2, U64("01") U64("02")},
    {"FixedString(3)", 2, "616263 000000"},
    {"Enum16('a' = 1)", 2, "01000100"},
    {"String", 3, "00 0161 026262"},
    {"Nullable(String)", 2, "0100 00 0161"},
    {"Nullable(Int32)", 1, "01 00000000"},
    {"Array(UInt16)", 2, U64("01") U64("03") "0100 0200 0300"},
    {"Array(String)", 2, U64("00") U64("00")},
    {"Array(Array(String))", 1, U64("02") U64("01") U64("01") "0161"},
    {"Map(String, UInt8)", 1, U64("02") "0161 0162 01 02"},
    {"Tuple(a String, b UInt8)", 2, "0161 0162 01 02"},
    {"LowCardinality(String)", 3,
     U64("01") "0002000000000000" U64("02") "0161 0162" U64("03") "000100"},
    {"LowCardinality(Nullable(String))", 1,
     U64("01") "0102000000000000" U64("02") "00 0161" U64("01") "0100"},
    {"LowCardinality(String)", 0, ""},
    {"Array(LowCardinality(String))", 1, U64("01") U64("00")},
    {"Array(LowCardinality(String))", 1,
     U64("01") U64("01") "0006000000000000" U64("01") "0161" U64("01") "00"},
    {"Tuple(LowCardinality(String), Array(LowCardinality(String)))", 1,
     U64("01") U64("01") "0002000000000000" U64("01") "0161" U64("01") "00" U64("00")},
    {"JSON", 1, U64("01") "027b7d"},
    {"Nullable(JSON)", 1, U64("01") "00 027b7d"},
    {"SimpleAggregateFunction(max, String)", 1, "0161"},
    {"Polygon", 1, U64("01") U64("01") U64("00") U64("00")},
    {"Nullable(Nothing)", 1, "01 30"},
    {"IPv6", 1, "00000000000000000000000000000001"},
    {"UUID", 1, "7766554433221100ffeeddccbbaa9988"},
};

/* Every shorter prefix asks for more, with and without a memo; the whole one ends exactly at its
 * end. */
static void test_walk(void **state)
{
    struct error err;
    (void)state;
    for (size_t i = 0; i < LENGTH(payloads); i++) {
        struct arena arena = {0};
        const struct type_node *type = parse(&arena, payloads[i].type);
        struct column_walk_memo memo = {0};
        uint8_t bytes[256];
        size_t n = from_hex(payloads[i].hex, bytes);
        for (size_t have = 0; have <= n; have++) {
            /* an allocation of exactly that size: the sanitizer sees an overread */
            uint8_t *part = xmalloc(have + 1);
            memcpy(part + 1, bytes, have);
            struct cursor c = cursor_of(part + 1, have), again = c;
            enum status want = have == n ? OK : ERR_RETRY;
            if (column_walk(type, payloads[i].rows, &c, &err) != want ||
                column_walk_resume(type, payloads[i].rows, &again, &memo, &err) != want)
                fail_msg("%s: %zu of %zu bytes", payloads[i].type, have, n);
            assert_int_equal(c.pos, have == n ? n : 0);
            assert_int_equal(again.pos, c.pos);
            free(part);
        }
        bytes[n] = 0xff;
        struct cursor c = cursor_of(bytes, n + 1);
        assert_int_equal(column_walk(type, payloads[i].rows, &c, &err), OK);
        assert_int_equal(c.pos, n);
        arena_free(&arena);
    }
}

static void test_walk_refused(void **state)
{
    static const struct {
        const char *type;
        uint64_t rows;
        const char *hex;
    } bad[] = {
        {"UInt64", UINT64_MAX / 4, ""},
        {"Nullable(UInt64)", UINT64_MAX, ""},
        {"Array(UInt64)", UINT64_MAX / 8, ""},
        {"Array(UInt64)", 1, "ffffffffffffffff"},
        {"String", 1, "ffffffffffffffffffffff"},
        {"String", 1, "ffffffffffffffff7f"},
        {"LowCardinality(String)", 1, U64("02")},
        {"LowCardinality(String)", 1, U64("01") "0402000000000000"},
        {"LowCardinality(String)", 1, U64("01") "0003000000000000"},
        {"LowCardinality(String)", 1, U64("01") "0002000000000000" U64("00") U64("02")},
        {"LowCardinality(String)", 1, U64("01") "0002000000000000" U64("00") U64("00")},
        {"JSON", 1, U64("00")},
        {"Variant(String, UInt8)", 1, "00"},
        {"AggregateFunction(sum, UInt64)", 1, "00"},
        {"Tuple()", 1, "00"},
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(bad); i++) {
        struct arena arena = {0};
        struct error err;
        uint8_t bytes[256];
        struct cursor c = cursor_of(bytes, from_hex(bad[i].hex, bytes));
        if (column_walk(parse(&arena, bad[i].type), bad[i].rows, &c, &err) != ERR_DATA)
            fail_msg("%s accepted: %s", bad[i].type, bad[i].hex);
        assert_int_equal(c.pos, 0);
        arena_free(&arena);
    }
}

static void test_prefix(void **state)
{
    struct arena arena = {0};
    struct buf out = {0};
    (void)state;
    column_prefix_put(parse(&arena, "Nullable(Int32)"), &out);
    assert_int_equal(out.len, 0);
    column_prefix_put(parse(&arena, "Tuple(LowCardinality(String), Array(JSON), UInt8)"), &out);
    assert_int_equal(out.len, 16);
    assert_memory_equal(out.data, "\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0", 16);
    buf_free(&out);
    arena_free(&arena);
}

static const struct {
    const char *type, *hex, *text;
} texts[] = {
    {"Bool", "01", "true"},
    {"Int8", "ff", "-1"},
    {"UInt64", "ffffffffffffffff", "18446744073709551615"},
    {"Float64", "9a9999999999b93f", "0.1"},
    {"Float32", "cdcccc3d", "0.1"},
    {"Decimal(9, 2)", "6affffff", "-1.50"},
    {"Decimal(9, 2)", "05000000", "0.05"},
    {"Decimal(18, 0)", U64("0a"), "10"},
    {"Decimal(38, 38)", "ffffffff3f228a097ac4865aa84c3b4b",
     "0.99999999999999999999999999999999999999"},
    {"Date", "0100", "1970-01-02"},
    {"Date32", "ffffffff", "1969-12-31"},
    {"DateTime", "01000000", "1970-01-01 00:00:01"},
    {"DateTime64(6, 'UTC')", "ffffffffffffffff", "1969-12-31 23:59:59.999999"},
    {"Time64(6)", "ffffffffffffffff", "-00:00:00.000001"},
    {"UUID", "7766554433221100ffeeddccbbaa9988", "00112233-4455-6677-8899-aabbccddeeff"},
    {"IPv4", "04030201", "1.2.3.4"},
    {"Enum8('a' = -1, 'b' = 2)", "ff", "a"},
    {"String", "03616263", "abc"},
    {"FixedString(2)", "6162", "ab"},
    {"Nullable(UInt8)", "01 00", NULL},
    {"Nullable(UInt8)", "00 07", "7"},
    {"LowCardinality(Nullable(String))",
     U64("01") "0002000000000000" U64("02") "00 0161" U64("01") "01", "a"},
    {"LowCardinality(Nullable(String))",
     U64("01") "0002000000000000" U64("02") "00 0161" U64("01") "00", NULL},
};

static void test_text(void **state)
{
    struct error err;
    (void)state;
    for (size_t i = 0; i < LENGTH(texts); i++) {
        struct arena arena = {0};
        struct column_text value;
        uint8_t bytes[256];
        struct cursor c = cursor_of(bytes, from_hex(texts[i].hex, bytes));
        assert_ok(column_text_read(parse(&arena, texts[i].type), 1, &c, &arena, &value, &err));
        assert_int_equal(cursor_left(&c), 0);
        if (texts[i].text == NULL) {
            assert_null(value.data);
        } else {
            assert_string_equal(value.data, texts[i].text);
            assert_int_equal(value.len, strlen(texts[i].text));
        }
        arena_free(&arena);
    }
}

static void test_text_refused(void **state)
{
    struct arena arena = {0};
    struct error err;
    struct column_text value;
    uint8_t bytes[64] = {1};
    struct cursor c = cursor_of(bytes, 3);
    (void)state;
    assert_int_equal(column_text_read(parse(&arena, "UInt32"), 1, &c, &arena, &value, &err),
                     ERR_RETRY);
    c = cursor_of(bytes, sizeof bytes);
    assert_int_equal(column_text_read(parse(&arena, "UInt256"), 1, &c, &arena, &value, &err),
                     ERR_DATA);
    assert_int_equal(c.pos, 0);
    size_t n = from_hex(U64("01") "0002000000000000" U64("01") "00" U64("01") "01", bytes);
    c = cursor_of(bytes, n); /* index 1 of a dictionary of one */
    assert_int_equal(
        column_text_read(parse(&arena, "LowCardinality(String)"), 1, &c, &arena, &value, &err),
        ERR_DATA);
    arena_free(&arena);
}

static void test_block(void **state)
{
    struct block_header *header = xcalloc(1, sizeof *header + 2 * sizeof header->cols[0]);
    (void)state;
    header->ncols = 2;
    struct block *b = block_new(header);
    assert_int_equal(b->ncols, 2);
    assert_int_equal(block_bytes(b), 0);
    buf_put_u64(&b->cols[0].data, 1);
    buf_put_u8(&b->cols[1].nulls, 1);
    buf_put_u32(&b->cols[1].data, 1);
    assert_int_equal(block_bytes(b), 13);
    block_free(b);
    block_free(NULL);
    free(header);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walk),         cmocka_unit_test(test_walk_refused),
        cmocka_unit_test(test_prefix),       cmocka_unit_test(test_text),
        cmocka_unit_test(test_text_refused), cmocka_unit_test(test_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
