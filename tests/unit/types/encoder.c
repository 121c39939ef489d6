/* Planning, overrides, values that do not fit and what replaces them. Expected bytes are written by
 * hand from clickhouse-notes B2 and the contract. */
#include "test.h"

#include "types/encoder.h"

#include <stdbool.h>

static const struct ch_caps wide = {.wide_dates = true, .time64 = true};
static const struct ch_caps narrow = {.wide_dates = false, .time64 = false};

enum {
    BOOL = 16,
    BYTEA = 17,
    INT8 = 20,
    INT2 = 21,
    INT4 = 23,
    TEXT = 25,
    OID = 26,
    FLOAT4 = 700,
    DATE = 1082,
    TIME = 1083,
    TIMESTAMP = 1114,
    NUMERIC = 1700,
    UUID = 2950,
    XID = 28,
    INET = 869,
    ACLITEM = 1033,
    REGCLASS = 2205,
};

#define NUMERIC_TYPMOD(p, s) (((p) << 16 | (s)) + 4)

static struct att_desc att_of(Oid typid, int32_t typmod)
{
    return (struct att_desc){.attnum = 1, .name = "c", .typid = typid, .typmod = typmod};
}

static size_t from_hex(const char *hex, uint8_t *bytes)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        unsigned value;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &value), 1);
        bytes[i] = (uint8_t)value;
    }
    return n;
}

static void assert_hex(const struct buf *b, const char *hex)
{
    uint8_t want[256];
    size_t n = from_hex(hex, want);
    assert_int_equal(b->len, n);
    if (n > 0)
        assert_memory_equal(b->data, want, n);
}

static void test_default_targets(void **state)
{
    static const struct {
        Oid typid;
        int32_t typmod;
        const struct ch_caps *caps;
        const char *type;
    } cases[] = {
        {BOOL, -1, &wide, "Bool"},
        {INT2, -1, &wide, "Int16"},
        {OID, -1, &wide, "UInt32"},
        {NUMERIC, -1, &wide, "String"},
        {NUMERIC, NUMERIC_TYPMOD(1, 0), &wide, "Decimal(1, 0)"},
        {NUMERIC, NUMERIC_TYPMOD(76, 76), &wide, "Decimal(76, 76)"},
        {NUMERIC, NUMERIC_TYPMOD(77, 0), &wide, "String"},
        {NUMERIC, NUMERIC_TYPMOD(5, 0x7fe), &wide, "String"}, /* numeric(5,-2) */
        {NUMERIC, NUMERIC_TYPMOD(3, 4), &wide, "String"},
        {TIME, -1, &wide, "Time64(6)"},
        {TIME, -1, &narrow, "String"},
        {TIMESTAMP, -1, &narrow, "DateTime64(6, 'UTC')"},
        {TIMESTAMP, 0, &wide, "DateTime64(0, 'UTC')"},
    };
    struct error err;
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct att_desc att = att_of(cases[i].typid, cases[i].typmod);
        struct encoder e;
        assert_ok(encoder_plan(&att, true, NULL, cases[i].caps, &e, &err));
        assert_string_equal(e.ch_type, cases[i].type);
        assert_false(e.nullable);
        encoder_fini(&e);
    }
}

static void test_nullable(void **state)
{
    struct att_desc att = att_of(INT4, -1);
    struct error err;
    struct encoder e;
    struct column_buf out = {0};
    const char *reason;
    int32_t value = 7;
    (void)state;
    assert_ok(encoder_plan(&att, false, NULL, &wide, &e, &err));
    assert_string_equal(e.ch_type, "Nullable(Int32)");
    assert_int_equal(e.append(&e, (uint8_t *)&value, 4, &out, &reason), ENCODE_OK);
    encoder_append_null_or_default(&e, &out);
    assert_hex(&out.data, "0700000000000000");
    assert_hex(&out.nulls, "0001");
    encoder_fini(&e);
    att.not_null = true;
    assert_ok(encoder_plan(&att, false, NULL, &wide, &e, &err));
    assert_string_equal(e.ch_type, "Int32");
    encoder_fini(&e);
    buf_free(&out.data);
    buf_free(&out.nulls);
}

static void test_refused_plans(void **state)
{
    static const struct {
        Oid typid;
        bool key;
        const char *override, *message;
    } cases[] = {
        {ACLITEM, false, NULL,
         "column \"c\": type with oid 1033 is not supported yet by this version"},
        {INT4, true, "Nullable(Int32)", "is in the key and cannot be Nullable(Int32)"},
        {INT4, false, "Int32", "may hold NULL, which Int32 cannot: use Nullable(Int32)"},
        {INT4, true, "Float64", "cannot be held exactly by Float64"},
        {INT4, true, "Int128", "cannot be held exactly by Int128"},
        {TIMESTAMP, true, "DateTime64(6, 'Europe/Berlin')", "cannot be held exactly"},
        {TEXT, true, "FixedString(3)", "cannot be held exactly by FixedString(3)"},
        {TEXT, true, "String)", "unexpected text at character 7"},
        {TEXT, true, "", "expected a type name"},
        {TEXT, false, "LowCardinality(String)", "may hold NULL"},
        {INT4, true, "LowCardinality(Int32)", "is supported for String only"},
        {BYTEA, false, "Nullable(Nullable(String))", "cannot be held exactly"},
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct att_desc att = att_of(cases[i].typid, -1);
        struct encoder e;
        struct error err;
        assert_int_equal(encoder_plan(&att, cases[i].key, cases[i].override, &wide, &e, &err),
                         ERR_CONFIG);
        assert_int_equal(err.kind, ERR_CONFIG);
        if (strstr(err.message, cases[i].message) == NULL)
            fail_msg("case %zu: %s", i, err.message);
    }
}

/* A domain follows its base type; a type name, where known, is in the message. */
static void test_domains_and_names(void **state)
{
    struct att_desc att = att_of(99999, -1);
    struct encoder e;
    struct error err;
    char name[] = "aclitem";
    (void)state;
    att.base_typid = INT8;
    assert_ok(encoder_plan(&att, true, NULL, &wide, &e, &err));
    assert_string_equal(e.ch_type, "Int64");
    encoder_fini(&e);
    att.base_typid = TEXT;
    assert_ok(encoder_plan(&att, false, "LowCardinality(Nullable(String))", &wide, &e, &err));
    assert_string_equal(e.ch_type, "Nullable(String)");
    assert_string_equal(e.column_type, "LowCardinality(Nullable(String))");
    encoder_fini(&e);
    att.base_typid = ACLITEM;
    att.type_name = name;
    assert_int_equal(encoder_plan(&att, true, NULL, &wide, &e, &err), ERR_CONFIG);
    assert_string_equal(err.message, "column \"c\": type aclitem is not supported yet "
                                     "by this version");
}

struct value_case {
    Oid typid;
    const char *override; /* NULL: the default of typmod */
    int32_t typmod;
    const struct ch_caps *caps;
    const char *datum;
    const char *good;  /* payload, NULL = ENCODE_BAD */
    const char *clamp; /* payload of BAD_VALUE_CLAMP, where bad */
};

#define D52 NUMERIC_TYPMOD(5, 2)

static const struct value_case value_cases[] = {
    /* integers of another width */
    {INT8, "UInt8", -1, &wide, "ff00000000000000", "ff", NULL},
    {INT8, "UInt8", -1, &wide, "0001000000000000", NULL, "ff"},
    {INT8, "UInt64", -1, &wide, "ffffffffffffffff", NULL, "0000000000000000"},
    {INT8, "Int8", -1, &wide, "7fffffffffffffff", NULL, "80"}, /* -129 */
    {INT2, "Int64", -1, &wide, "feff", "feffffffffffffff", NULL},
    {OID, "Int32", -1, &wide, "00000080", NULL, "ffffff7f"},
    {OID, "UInt64", -1, &wide, "ffffffff", "ffffffff00000000", NULL},
    {BOOL, "UInt8", -1, &wide, "01", "01", NULL},
    {FLOAT4, "Float64", -1, &wide, "0000803f", "000000000000f03f", NULL},
    /* addresses: family, mask, bytes */
    {INET, "IPv4", -1, &wide, "022001020304", "04030201", NULL},
    {INET, "IPv4", -1, &wide, "021801020304", NULL, "00000000"},
    {INET, "IPv4", -1, &wide, "038000112233445566778899aabbccddeeff", NULL, "00000000"},
    {INET, "IPv6", -1, &wide, "038000112233445566778899aabbccddeeff",
     "00112233445566778899aabbccddeeff", NULL},
    {INET, "IPv6", -1, &wide, "022001020304", NULL, "00000000000000000000000000000000"},
    {INET, "IPv6", -1, &wide, "0380", NULL, "00000000000000000000000000000000"},
    {XID, "UInt32", -1, &wide, "ffffffff", "ffffffff", NULL},
    {REGCLASS, NULL, -1, &wide, "eb040000", "eb040000", NULL},
    /* text forms */
    {INT4, "String", -1, &wide, "ffffffff", "022d31", NULL},
    {BOOL, "String", -1, &wide, "00", "0166", NULL},
    {BYTEA, "String", -1, &wide, "00ff", "0200ff", NULL},
    {UUID, NULL, -1, &wide, "00112233445566778899aabbccddeeff", "7766554433221100ffeeddccbbaa9988",
     NULL},
    /* numeric(5,2): 999.99 is 99999; short header 0x8100 | weight */
    {NUMERIC, NULL, D52, &wide,
     "0081"
     "e703"
     "ac26",
     "9f860100", NULL},
    {NUMERIC, NULL, D52, &wide,
     "00a1"
     "e703"
     "ac26",
     "6179feff", NULL},
    {NUMERIC, NULL, D52, &wide, "00c0", NULL, "9f860100"}, /* NaN */
    {NUMERIC, NULL, D52, &wide, "00d0", NULL, "9f860100"}, /* +infinity */
    {NUMERIC, NULL, D52, &wide, "00f0", NULL, "6179feff"}, /* -infinity */
    {NUMERIC, NULL, D52, &wide,
     "0080"
     "e803",
     NULL, "9f860100"}, /* 1000 */
    {NUMERIC, NULL, D52, &wide,
     "00a0"
     "e803",
     NULL, "6179feff"}, /* -1000 */
    {NUMERIC, NULL, D52, &wide,
     "0180"
     "0100",
     NULL, "9f860100"}, /* 10000 */
    {NUMERIC, NULL, D52, &wide,
     "0081"
     "0100"
     "3200",
     NULL, "65000000"}, /* 1.0050 → 1.01 */
    {NUMERIC, NULL, D52, &wide,
     "00a1"
     "0100"
     "3200",
     NULL, "9bffffff"}, /* -1.0050 → -1.01 */
    {NUMERIC, NULL, D52, &wide,
     "0081"
     "0100"
     "3100",
     NULL, "64000000"}, /* 1.0049 → 1.00 */
    {NUMERIC, NULL, D52, &wide,
     "0081"
     "e703"
     "0b27",
     NULL, "9f860100"}, /* 999.9995 → 999.99 */
    {NUMERIC, NULL, D52, &wide,
     "7e81"
     "0100",
     NULL, "00000000"}, /* 1e-8 → 0 */
    {NUMERIC, NULL, D52, &wide,
     "0081"
     "0000"
     "0100"
     "0000",
     NULL, "00000000"}, /* zero groups kept */
    {NUMERIC, NULL, D52, &wide,
     "0181"
     "0000"
     "0500"
     "0000",
     "f4010000", NULL},
    {NUMERIC, NULL, D52, &wide, "", NULL, "00000000"},
    {NUMERIC, NULL, D52, &wide, "00e0", NULL, "00000000"}, /* no such special value */
    {NUMERIC, NULL, D52, &wide,
     "0080"
     "1027",
     NULL, "00000000"}, /* digit 10000 */
    {NUMERIC, NULL, D52, &wide,
     "0000"
     "0000"
     "0500",
     "f4010000", NULL}, /* long header */
    {NUMERIC, NULL, D52, &wide,
     "0040"
     "0000"
     "0500",
     "0cfeffff", NULL},
    {NUMERIC, "Decimal(20, 4)", -1, &wide,
     "0081"
     "0100"
     "3200",
     "42270000000000000000000000000000", NULL},
    /* dates: the wide server holds 0000-9999, the narrow one 1900-2299 */
    {DATE, NULL, -1, &wide, "ffffff7f", NULL, "a0c02c00"},
    {DATE, NULL, -1, &wide, "00000080", NULL, "5805f5ff"},
    {DATE, NULL, -1, &narrow, "ffffff7f", NULL, "d1d60100"},
    {DATE, NULL, -1, &narrow, "00000080", NULL, "219cffff"},
    {DATE, NULL, -1, &narrow, "5471ffff", "219cffff", NULL}, /* 1900-01-01 */
    {DATE, NULL, -1, &narrow, "5371ffff", NULL, "219cffff"}, /* a day before */
    {DATE, NULL, -1, &wide, "5371ffff", "209cffff", NULL},
    {DATE, NULL, -1, &narrow, "04ac0100", "d1d60100", NULL}, /* 2299-12-31 */
    {DATE, NULL, -1, &narrow, "05ac0100", NULL, "d1d60100"},
    /* timestamps: 2000-01-01 is 946684800000000 µs */
    {TIMESTAMP, NULL, 0, &wide, "0000000000000000", "80436d3800000000", NULL},
    {TIMESTAMP, NULL, 0, &wide, "0100000000000000", NULL, "80436d3800000000"},
    {TIMESTAMP, NULL, 0, &wide, "20a1070000000000", NULL, "81436d3800000000"}, /* .5 s rounds up */
    {TIMESTAMP, "DateTime64(9)", -1, &wide, "0100000000000000", "e8034352cf4c230d", NULL},
    {TIMESTAMP, "DateTime64(9)", -1, &wide, "00c0a257ce7c1d00", NULL, "ffffffffffffff7f"},
    {TIMESTAMP, NULL, -1, &wide, "ffffffffffffff7f", NULL, "ff5f73cc0c448403"},
    {TIMESTAMP, NULL, -1, &wide, "0000000000000080", NULL, "0000e9563e2323ff"},
    {TIMESTAMP, NULL, -1, &narrow, "feffffffffffff7f", NULL, "ffbfece449ff2400"},
    {TIMESTAMP, NULL, -1, &narrow, "0100000000000080", NULL, "006043b7ef26f8ff"},
    /* time: 24:00:00 is the last */
    {TIME, NULL, -1, &wide, "0160d71d14000000", NULL, "0000000000000000"},
    {TIME, NULL, -1, &wide, "0060d71d14000000", "0060d71d14000000", NULL},
};

static void check_value(size_t index)
{
    const struct value_case *c = &value_cases[index];
    struct att_desc att = att_of(c->typid, c->typmod);
    struct error err;
    struct encoder e;
    struct column_buf out = {0};
    const char *reason = NULL, *action;
    uint8_t datum[64];
    uint32_t len = (uint32_t)from_hex(c->datum, datum);
    assert_ok(encoder_plan(&att, true, c->override, c->caps, &e, &err));
    enum encode_result result = e.append(&e, datum, len, &out, &reason);
    if ((result == ENCODE_OK) != (c->good != NULL))
        fail_msg("case %zu: %s", index, result == ENCODE_OK ? "accepted" : reason);
    if (c->good != NULL) {
        assert_hex(&out.data, c->good);
    } else {
        assert_int_equal(out.data.len, 0);
        encoder_append_bad(&e, BAD_VALUE_CLAMP, datum, len, &out, &action);
        assert_string_equal(action, "clamp");
        assert_hex(&out.data, c->clamp);
    }
    assert_int_equal(out.nulls.len, 0);
    encoder_fini(&e);
    buf_free(&out.data);
}

static void test_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(value_cases); i++)
        check_value(i);
}

static void check_policy(bool not_null, enum bad_value_policy policy, bool lost, const char *action,
                         const char *nulls, const char *data)
{
    struct att_desc att = att_of(DATE, -1);
    struct error err;
    struct encoder e;
    struct column_buf out = {0};
    const char *got;
    static const uint8_t infinity[] = {0xff, 0xff, 0xff, 0x7f};
    att.not_null = not_null;
    assert_ok(encoder_plan(&att, false, NULL, &wide, &e, &err));
    encoder_append_bad(&e, policy, lost ? NULL : infinity, lost ? 0 : 4, &out, &got);
    assert_string_equal(got, action);
    assert_hex(&out.nulls, nulls);
    assert_hex(&out.data, data);
    encoder_fini(&e);
    buf_free(&out.data);
    buf_free(&out.nulls);
}

static void test_policies(void **state)
{
    (void)state;
    check_policy(false, BAD_VALUE_DEFAULT, false, "null", "01", "00000000");
    check_policy(true, BAD_VALUE_DEFAULT, false, "clamp", "", "a0c02c00");
    check_policy(false, BAD_VALUE_NULL, false, "null", "01", "00000000");
    check_policy(true, BAD_VALUE_NULL, false, "clamp", "", "a0c02c00");
    check_policy(false, BAD_VALUE_CLAMP, false, "clamp", "00", "a0c02c00");
    check_policy(false, BAD_VALUE_CLAMP, true, "null", "01", "00000000");
    check_policy(true, BAD_VALUE_CLAMP, true, "clamp", "", "00000000");
    check_policy(false, BAD_VALUE_ERROR, false, "error", "", "");
    check_policy(true, BAD_VALUE_ERROR, true, "error", "", "");
}

/* The longest texts: 10^131071 and 16,383 digits after the point, as a message and as a String
 * column. */
static void test_longest_numeric(void **state)
{
    static const uint8_t large[] = {0x00, 0x00, 0xff, 0x7f, 0xe8, 0x03}; /* weight 32767, 1000 */
    static const uint8_t small[] = {0xff, 0x3f, 0x00, 0x80, 0x01, 0x00}; /* dscale 16383 */
    struct att_desc att = att_of(NUMERIC, -1);
    struct error err;
    struct encoder e;
    struct column_buf out = {0};
    struct buf text = {0};
    const char *reason;
    (void)state;
    assert_ok(encoder_plan(&att, true, NULL, &wide, &e, &err));
    datum_text(&att, large, sizeof large, SIZE_MAX, &text);
    assert_int_equal(text.len, 131072);
    assert_int_equal(text.data[0], '1');
    for (size_t i = 1; i < text.len; i++)
        assert_int_equal(text.data[i], '0');
    assert_int_equal(e.append(&e, large, sizeof large, &out, &reason), ENCODE_OK);
    assert_int_equal(out.data.len, 131072 + 3);
    assert_memory_equal(out.data.data,
                        "\x80\x80\x08"
                        "1000",
                        7);
    buf_reset(&text);
    datum_text(&att, small, sizeof small, SIZE_MAX, &text);
    assert_int_equal(text.len, 16385);
    encoder_fini(&e);
    buf_free(&out.data);
    buf_free(&text);
}

static void test_datum_text_limit(void **state)
{
    struct att_desc att = att_of(TEXT, -1);
    struct buf out = {0};
    (void)state;
    datum_text(&att, (const uint8_t *)"a\xc3\xa4\xc3\xa4", 5, 4, &out); /* not half a letter */
    assert_int_equal(out.len, 3);
    datum_text(&att, (const uint8_t *)"xyz", 3, 3, &out);
    assert_int_equal(out.len, 6);
    att.typid = BYTEA;
    buf_reset(&out);
    datum_text(&att, (const uint8_t *)"\x01\x02\x03", 3, 6, &out);
    assert_int_equal(out.len, 6);
    assert_memory_equal(out.data, "\\x0102", 6);
    buf_reset(&out);
    datum_text(&att, NULL, 0, 10, &out);
    assert_int_equal(out.len, 0);
    buf_free(&out);
}

/* Any length of any bytes: refused or encoded whole, never half. */
static void test_wrong_lengths(void **state)
{
    static const Oid typids[] = {16,  17,   18,   19,   20,   21,   23,   25,   26,   114,  700,
                                 701, 1042, 1043, 1082, 1083, 1114, 1184, 1186, 1266, 1700, 2950};
    struct error err;
    (void)state;
    for (size_t i = 0; i < LENGTH(typids); i++) {
        struct att_desc att = att_of(typids[i], -1);
        struct encoder e;
        assert_ok(encoder_plan(&att, false, NULL, &wide, &e, &err));
        for (uint32_t len = 0; len < 70; len++) {
            uint8_t *datum = xmalloc(len > 0 ? len : 1);
            struct column_buf out = {0};
            struct buf text = {0};
            const char *reason = NULL;
            memset(datum, 0, len);
            bool good = e.append(&e, datum, len, &out, &reason) == ENCODE_OK;
            assert_int_equal(out.nulls.len, good);
            if (!good)
                assert_int_equal(out.data.len, 0);
            else if (e.width > 0)
                assert_int_equal(out.data.len, e.width);
            datum_text(&att, datum, len, 50, &text);
            assert_true(text.len <= 50);
            buf_free(&text);
            buf_free(&out.data);
            buf_free(&out.nulls);
            free(datum);
        }
        encoder_fini(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default_targets), cmocka_unit_test(test_nullable),
        cmocka_unit_test(test_refused_plans),   cmocka_unit_test(test_domains_and_names),
        cmocka_unit_test(test_values),          cmocka_unit_test(test_policies),
        cmocka_unit_test(test_longest_numeric), cmocka_unit_test(test_datum_text_limit),
        cmocka_unit_test(test_wrong_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
