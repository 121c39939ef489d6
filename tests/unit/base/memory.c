/* Arena, buf and cursor. */
#include "test.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/cursor.h"

static void test_arena(void **state)
{
    struct arena a = {0};
    uint8_t *blocks[200];
    size_t sizes[200], total = 0;
    (void)state;
    for (unsigned i = 0; i < LENGTH(blocks); i++) {
        sizes[i] = i % 50 == 49 ? 100000 : i * 13 % 999;
        blocks[i] = arena_alloc(&a, sizes[i]);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 8, 0);
        memset(blocks[i], (int)i, sizes[i]);
        total += (sizes[i] + 7) & ~(size_t)7;
    }
    assert_int_equal(a.bytes, total);
    for (unsigned i = 0; i < LENGTH(blocks); i++) /* no two overlap */
        for (size_t at = 0; at < sizes[i]; at++)
            assert_int_equal(blocks[i][at], (uint8_t)i);
    arena_reset(&a);
    assert_int_equal(a.bytes, 0);
    const struct arena_chunk *kept = a.chunks;
    assert_non_null(kept);
    assert_string_equal(arena_strdup(&a, "text"), "text");
    assert_ptr_equal(a.chunks, kept); /* used again */
    assert_memory_equal(arena_copy(&a, "a\0b", 3), "a\0b", 3);
    arena_free(&a);
    assert_null(a.chunks);
    arena_reset(&a);
    assert_non_null(arena_alloc(&a, 1)); /* usable again */
    arena_free(&a);
}

static void test_buf(void **state)
{
    CLEANUP_BUF struct buf b = {0};
    (void)state;
    buf_put(&b, NULL, 0);
    assert_int_equal(b.len, 0);
    assert_non_null(buf_reserve(&b, 0));
    assert_string_equal(buf_cstr(&b), "");
    for (unsigned i = 0; i < 10000; i++)
        buf_put_u8(&b, (uint8_t)(i * 7));
    assert_int_equal(b.len, 10000);
    for (unsigned i = 0; i < 10000; i++)
        assert_int_equal(b.data[i], (uint8_t)(i * 7));
    buf_reset(&b);
    buf_put_u16(&b, 0x1234);
    buf_put_i32(&b, -2);
    buf_put_u64(&b, UINT64_C(0x1122334455667788));
    buf_put_zeros(&b, 2);
    assert_int_equal(b.len, 16);
    assert_memory_equal(b.data, "\x34\x12\xfe\xff\xff\xff\x88\x77\x66\x55\x44\x33\x22\x11\x00\x00",
                        16);
    buf_reset(&b);
    buf_printf(&b, "%s=%d", "answer", 42);
    buf_printf(&b, "%0200d", 7);
    assert_int_equal(b.len, 209);
    assert_memory_equal(b.data, "answer=42000", 12);
    assert_string_equal(buf_cstr(&b) + 207, "07");
    assert_int_equal(b.len, 209); /* the NUL is not counted */
    buf_free(&b);
    assert_null(b.data);
    assert_int_equal(b.cap, 0);
}

/* The examples of the LEB128 article and the ends of the range. */
static void test_varint(void **state)
{
    static const struct {
        uint64_t value;
        const char *bytes;
        size_t len;
    } cases[] = {
        {0, "\x00", 1},
        {127, "\x7f", 1},
        {128, "\x80\x01", 2},
        {624485, "\xe5\x8e\x26", 3},
        {UINT64_C(1) << 63, "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 10},
        {UINT64_MAX, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10},
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        CLEANUP_BUF struct buf b = {0};
        buf_put_varint(&b, cases[i].value);
        assert_int_equal(b.len, cases[i].len);
        assert_memory_equal(b.data, cases[i].bytes, b.len);
        struct cursor c = cursor_of(b.data, b.len);
        assert_true(cursor_varint(&c) == cases[i].value);
        assert_true(cursor_ok(&c));
        assert_int_equal(cursor_left(&c), 0);
        for (size_t cut = 0; cut < b.len; cut++) {
            c = cursor_of(b.data, cut);
            cursor_varint(&c);
            assert_false(cursor_ok(&c));
        }
    }
    struct cursor endless = cursor_of("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12);
    assert_int_equal(cursor_varint(&endless), 0);
    assert_false(cursor_ok(&endless));
    CLEANUP_BUF struct buf text = {0};
    buf_put_str(&text, "hey");
    assert_int_equal(text.len, 4);
    assert_memory_equal(text.data, "\x03hey", 4);
}

static void test_cursor_bounds(void **state)
{
    static const uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    struct cursor c = cursor_of(bytes, sizeof bytes);
    (void)state;
    assert_int_equal(cursor_u8(&c), 1);
    assert_int_equal(cursor_u16(&c), 0x0302);
    assert_int_equal(cursor_u64(&c), UINT64_C(0x0b0a090807060504));
    assert_true(cursor_ok(&c));
    assert_int_equal(cursor_left(&c), 0);
    assert_non_null(cursor_take(&c, 0)); /* nothing is there, and nothing was asked for */
    assert_true(cursor_ok(&c));

    c = cursor_of(bytes, sizeof bytes);
    assert_true(cursor_skip(&c, 8));
    assert_int_equal(cursor_u32(&c), 0); /* three are left */
    assert_false(cursor_ok(&c));
    assert_int_equal(cursor_u8(&c), 0); /* failure stays, though a byte would fit */
    assert_null(cursor_take(&c, 0));
    assert_int_equal(cursor_left(&c), 0);

    c = cursor_of(bytes, sizeof bytes);
    assert_true(cursor_skip(&c, 3));
    assert_null(cursor_take(&c, SIZE_MAX)); /* pos + n would wrap */
    c = cursor_of(bytes, sizeof bytes);
    assert_true(cursor_skip(&c, 3));
    assert_false(cursor_skip(&c, SIZE_MAX - 2));

    c = cursor_of(NULL, 0);
    assert_int_equal(cursor_i64(&c), 0);
    assert_false(cursor_ok(&c));
    c = cursor_of("\xff\xff\xff\xff", 4);
    assert_int_equal(cursor_i32(&c), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_buf),
        cmocka_unit_test(test_varint),
        cmocka_unit_test(test_cursor_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
