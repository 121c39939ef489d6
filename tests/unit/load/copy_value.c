/* Values of COPY's binary form become what a heap tuple has. The bytes on the left are those of the
 * server's own *_send functions (SELECT numeric_send('…')), on the right those of its pages. */
#include "test.h"

#include "load/copy_value.h"
#include "types/family.h"

static void unhex(const char *text, struct buf *out)
{
    unsigned byte;
    buf_reset(out);
    for (; sscanf(text, "%2x", &byte) == 1; text += 2)
        buf_put_u8(out, (uint8_t)byte);
}

static const struct {
    Oid typid;
    const char *sent, *stored; /* stored NULL: refused */
} values[] = {
    {16, "01", "01"},
    {21, "8000", "0080"},
    {23, "00000102", "02010000"},
    {20, "0102030405060708", "0807060504030201"},
    {700, "3f800000", "0000803f"},
    {701, "3ff0000000000000", "000000000000f03f"},
    {1082, "7fffffff", "ffffff7f"},                                 /* infinity */
    {1266, "00000000000000010000000e", "01000000000000000e000000"}, /* time, zone */
    {1186, "00000000000000010000000200000003", "01000000000000000200000003000000"},
    {2950, "00112233445566778899aabbccddeeff", "00112233445566778899aabbccddeeff"},
    {25, "c3bc00", "c3bc00"},
    {17, "", ""},
    {1700, "0000000000000000", "00000000"}, /* 0 */
    {1700, "0002000040000002000115b3",
     "02400000" /* -1.5555: NumericLong */
     "0100b315"},
    {1700, "00000000c0000000", "00c0"}, /* NaN */
    {1700, "00000000d0000000", "00d0"}, /* Infinity */
    {1700, "00000000f0000000", "00f0"}, /* -Infinity */
    {1700, "000000000000", NULL},
    {1700, "0001000000000000", NULL},          /* a digit is missing */
    {1700, "0000000012340000", NULL},          /* no such sign */
    {1700, "0000000000004000", NULL},          /* scale over its 14 bits */
    {869, "02180004c0a80105", "0218c0a80105"}, /* 192.168.1.5/24 */
    {869, "0380001020010db8000000000000000000000001", "038020010db8000000000000000000000001"},
    {869, "02200005c0a80105", NULL}, /* the address is cut */
    {774, "0102030405060708", NULL}, /* macaddr8: its text comes */
    {23, "000001", NULL},
    {23, "0000010203", NULL},
    {1186, "0000000000000001", NULL},
};

static void test_values(void **state)
{
    CLEANUP_BUF struct buf sent = {0};
    CLEANUP_BUF struct buf want = {0};
    CLEANUP_BUF struct buf room = {0};
    (void)state;
    for (size_t i = 0; i < LENGTH(values); i++) {
        const uint8_t *got = NULL;
        uint32_t len = 0;
        struct error err;
        unhex(values[i].sent, &sent);
        enum status st =
            copy_value_get(values[i].typid, sent.data, (uint32_t)sent.len, &room, &got, &len, &err);
        if (values[i].stored == NULL) {
            assert_int_equal(st, ERR_DATA);
            continue;
        }
        assert_ok(st);
        unhex(values[i].stored, &want);
        assert_int_equal(len, want.len);
        if (len > 0)
            assert_memory_equal(got, want.data, len);
    }
}

/* What has a typed target, or is a String by its own bytes, can be copied. */
static void test_all_typed_families_are_known(void **state)
{
    (void)state;
    for (Oid typid = 1; typid < 10000; typid++) {
        uint8_t index;
        const struct type_family *f = type_family_find(typid, &index);
        if (f != NULL && (f->plan != NULL || f->raw_text) && !copy_value_known(typid))
            fail_msg("type %u has a typed target and no way to be copied", typid);
    }
}

static void test_rows(void **state)
{
    static const char text[] = "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0\0"
                               "\0\2\0\0\0\1x\377\377\377\377"
                               "\377\377";
    struct cursor c = cursor_of(text, sizeof text - 1);
    const uint8_t *field;
    uint32_t len;
    struct error err;
    bool end;
    (void)state;
    assert_ok(copy_header_skip(&c, &err));
    assert_ok(copy_row_begin(&c, 2, &end, &err));
    assert_false(end);
    assert_ok(copy_field_next(&c, &field, &len, &err));
    assert_int_equal(len, 1);
    assert_int_equal(field[0], 'x');
    assert_ok(copy_field_next(&c, &field, &len, &err));
    assert_null(field);
    assert_ok(copy_row_begin(&c, 2, &end, &err));
    assert_true(end);
    /* every shorter text is refused somewhere, none is read past its end */
    for (size_t n = 0; n < sizeof text - 3; n++) {
        c = cursor_of(text, n);
        bool ok = copy_header_skip(&c, &err) == OK && copy_row_begin(&c, 2, &end, &err) == OK &&
                  copy_field_next(&c, &field, &len, &err) == OK &&
                  copy_field_next(&c, &field, &len, &err) == OK &&
                  copy_row_begin(&c, 2, &end, &err) == OK;
        assert_false(ok);
    }
    c = cursor_of(text, sizeof text - 1);
    assert_ok(copy_header_skip(&c, &err));
    assert_int_equal(copy_row_begin(&c, 3, &end, &err), ERR_DATA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_all_typed_families_are_known),
        cmocka_unit_test(test_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
