#include "pg/compress.h"

#include "pg/image.h"
#include "test.h"

#include <lz4.h>
#include <zstd.h>

static enum status pglz(const char *packed, size_t n, char *plain, size_t len)
{
    struct error err;
    return compress_decode(COMPRESS_PGLZ, (const uint8_t *)packed, n, (uint8_t *)plain, len, &err);
}

static void test_pglz_items(void **state)
{
    char out[512];
    (void)state;
    assert_int_equal(pglz("\0abc", 4, out, 3), OK);
    assert_memory_equal(out, "abc", 3);
    assert_int_equal(pglz("\0abcdefgh\0i", 11, out, 9), OK);
    assert_memory_equal(out, "abcdefghi", 9);
    /* a match of 6 at distance 2 overlaps itself */
    assert_int_equal(pglz("\x04"
                          "ab\x03\x02",
                          5, out, 8),
                     OK);
    assert_memory_equal(out, "abababab", 8);
    /* the longest: nibble 15, 3 more bytes' worth in the third: 18 + 255 */
    assert_int_equal(pglz("\x02"
                          "x\x0f\x01\xff",
                          5, out, 274),
                     OK);
    for (int i = 0; i < 274; i++)
        assert_int_equal(out[i], 'x');
}

static void test_pglz_damage(void **state)
{
    char out[512];
    (void)state;
    assert_int_equal(pglz("\0ab", 3, out, 3), ERR_DATA);   /* ends early */
    assert_int_equal(pglz("\0abcd", 5, out, 3), ERR_DATA); /* bytes left over */
    assert_int_equal(pglz("\x02"
                          "a\x00\x00",
                          4, out, 4),
                     ERR_DATA); /* distance 0 */
    assert_int_equal(pglz("\x02"
                          "a\x00\x02",
                          4, out, 4),
                     ERR_DATA); /* before the start */
    assert_int_equal(pglz("\x02"
                          "a\x10\x01",
                          4, out, 4),
                     ERR_DATA); /* far before it */
    assert_int_equal(pglz("\x02"
                          "a\x05\x01",
                          4, out, 4),
                     ERR_DATA); /* longer than the value */
    assert_int_equal(pglz("\x02"
                          "a\x0f\x01",
                          4, out, 19),
                     ERR_DATA); /* third byte cut */
    assert_int_equal(pglz("\x02"
                          "a\x00",
                          3, out, 4),
                     ERR_DATA); /* tag cut */
    assert_int_equal(pglz("", 0, out, 0), OK);
}

static void test_varlena_limits(void **state)
{
    struct error err;
    struct buf out = {0};
    uint8_t data[16] = {0};
    uint32_t word = 0x3fffffff;
    (void)state;
    memcpy(data, &word, 4);
    assert_int_equal(varlena_decompress(data, 16, SIZE_MAX, &out, &err), ERR_DATA);
    assert_null(out.data); /* refused before anything was allocated */
    word = 3000;
    memcpy(data, &word, 4);
    assert_int_equal(varlena_decompress(data, 16, 2999, &out, &err), ERR_DATA);
    assert_string_equal(err.message, "compressed value has 3000 plain bytes, the limit is 2999");
    word = 2u << 30 | 5;
    memcpy(data, &word, 4);
    assert_int_equal(varlena_decompress(data, 16, 100, &out, &err), ERR_DATA);
    assert_string_equal(err.message, "compressed value with unknown method 2");
    assert_int_equal(varlena_decompress(data, 3, 100, &out, &err), ERR_DATA);
    assert_null(out.data);
}

static void page_fill(uint8_t *page, size_t hole_at, size_t hole)
{
    for (size_t i = 0; i < PG_BLCKSZ; i++)
        page[i] = i >= hole_at && i < hole_at + hole ? 0 : (uint8_t)(i * 7 / 16);
}

/* Images as XLogRecordAssemble makes them: the hole is cut out, then the rest is compressed. */
static void test_images(void **state)
{
    static const struct {
        uint16_t hole_at, hole;
        uint8_t flags;
    } cases[] = {{0, 0, 2},        {100, 5000, 3},        {0, 0, 2 | 8}, {100, 5000, 3 | 8},
                 {0, 0, 2 | 0x10}, {100, 5000, 3 | 0x10}, {24, 8168, 3}};
    struct error err;
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        uint8_t want[PG_BLCKSZ], cut[PG_BLCKSZ], packed[2 * PG_BLCKSZ], got[PG_BLCKSZ];
        size_t at = cases[i].hole_at, hole = cases[i].hole, n = PG_BLCKSZ - hole, packed_len = n;
        page_fill(want, at, hole);
        memcpy(cut, want, at);
        memcpy(cut + at, want + at + hole, n - at);
        memcpy(packed, cut, n);
        if (cases[i].flags & 8)
            packed_len = (size_t)LZ4_compress_default((const char *)cut, (char *)packed, (int)n,
                                                      sizeof packed);
        if (cases[i].flags & 0x10)
            packed_len = ZSTD_compress(packed, sizeof packed, cut, n, 3);
        struct wal_block b = {.has_image = true,
                              .image = packed,
                              .image_len = (uint16_t)packed_len,
                              .image_flags = cases[i].flags,
                              .hole_offset = cases[i].hole_at,
                              .hole_len = cases[i].hole};
        assert_ok(wal_block_image_restore(&b, got, &err));
        assert_memory_equal(got, want, PG_BLCKSZ);
        b.image_len--;
        assert_int_equal(wal_block_image_restore(&b, got, &err), ERR_DATA);
        b.image_len++;
        b.image_flags |= 1;
        b.hole_offset = 8000;
        b.hole_len = 193;
        assert_int_equal(wal_block_image_restore(&b, got, &err), ERR_DATA);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pglz_items),
        cmocka_unit_test(test_pglz_damage),
        cmocka_unit_test(test_varlena_limits),
        cmocka_unit_test(test_images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
