/* Compressed frames: whole frames seen on ClickHouse's wire, and what must be refused. */
#include "test.h"

#include "native/cityhash.h"
#include "native/frame.h"

#define PLAIN_MAX ((size_t)64 << 20)

static struct error err;

static size_t unhex(const char *hex, uint8_t *to)
{
    size_t n = 0;
    for (; hex[2 * n] != '\0'; n++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * n, "%2x", &byte), 1);
        to[n] = (uint8_t)byte;
    }
    return n;
}

static const struct {
    enum frame_method method;
    const char *hex;
} empty_block[] = {
    {FRAME_LZ4, "a783ac6cd55c7a7cb5ac46bddb86e21482140000000a000000a0010002ffffffff000000"},
    {FRAME_NONE, "bb9489a1c169e900ecaff168956a647402130000000a000000010002ffffffff000000"},
};
static const uint8_t empty_block_plain[] = {1, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0};

static void test_vectors_read(void **state)
{
    (void)state;
    for (size_t v = 0; v < LENGTH(empty_block); v++) {
        uint8_t bytes[64];
        size_t n = unhex(empty_block[v].hex, bytes);
        for (size_t len = 0; len <= n; len++) { /* every prefix asks for more and changes nothing */
            struct buf plain = {0};
            uint8_t *exact = xmalloc(len);
            memcpy(exact, bytes, len);
            struct cursor in = cursor_of(exact, len);
            enum parse_result result = frame_parse(&in, PLAIN_MAX, &plain, NULL, &err);
            assert_int_equal(result, len < n ? PARSE_MORE : PARSE_DONE);
            assert_int_equal(in.pos, len < n ? 0 : n);
            assert_int_equal(plain.len, len < n ? 0 : sizeof empty_block_plain);
            if (len == n)
                assert_memory_equal(plain.data, empty_block_plain, sizeof empty_block_plain);
            buf_free(&plain);
            free(exact);
        }
    }
}

static void test_vectors_written(void **state)
{
    (void)state;
    for (size_t v = 0; v < LENGTH(empty_block); v++) {
        uint8_t bytes[64];
        size_t n = unhex(empty_block[v].hex, bytes);
        struct buf out = {0};
        frame_put(empty_block[v].method, empty_block_plain, sizeof empty_block_plain, &out);
        assert_int_equal(out.len, n);
        assert_memory_equal(out.data, bytes, n);
        buf_free(&out);
    }
}

/* Any damaged byte is noticed: the checksum covers header and payload. */
static void test_damage(void **state)
{
    (void)state;
    uint8_t bytes[64];
    size_t n = unhex(empty_block[0].hex, bytes);
    for (size_t i = 0; i < n; i++) {
        struct buf plain = {0};
        bytes[i] ^= 0x10;
        struct cursor in = cursor_of(bytes, n);
        /* a larger size may also just ask for more */
        assert_int_not_equal(frame_parse(&in, PLAIN_MAX, &plain, NULL, &err), PARSE_DONE);
        assert_int_equal(plain.len, 0);
        buf_free(&plain);
        bytes[i] ^= 0x10;
    }
}

/* A frame with a right checksum around wrong contents. */
static enum parse_result parse_forged(uint8_t method, uint32_t size, uint32_t plain_size,
                                      const void *payload, size_t n)
{
    struct buf body = {0}, frame = {0}, plain = {0};
    buf_put_u8(&body, method);
    buf_put_u32(&body, size);
    buf_put_u32(&body, plain_size);
    buf_put(&body, payload, n);
    struct cityhash128 hash = cityhash128(body.data, body.len);
    buf_put_u64(&frame, hash.low);
    buf_put_u64(&frame, hash.high);
    buf_put(&frame, body.data, body.len);
    struct cursor in = cursor_of(frame.data, frame.len);
    enum parse_result result = frame_parse(&in, PLAIN_MAX, &plain, NULL, &err);
    if (result != PARSE_DONE)
        assert_int_equal(plain.cap,
                         0); /* refused before anything was allocated, or freed of content */
    buf_free(&body);
    buf_free(&frame);
    buf_free(&plain);
    return result;
}

static void test_refused(void **state)
{
    (void)state;
    static const uint8_t zeros[32];
    assert_int_equal(parse_forged(FRAME_NONE, 9 + 32, 32, zeros, 32), PARSE_DONE);
    assert_int_equal(parse_forged(FRAME_NONE, 9, 0, zeros, 0), PARSE_DONE);
    assert_int_equal(parse_forged(0x55, 9 + 32, 32, zeros, 32), PARSE_BAD);
    assert_int_equal(parse_forged(FRAME_NONE, 9 + 32, 31, zeros, 32), PARSE_BAD);
    assert_int_equal(parse_forged(FRAME_NONE, 8, 0, zeros, 0), PARSE_BAD);
    assert_int_equal(parse_forged(FRAME_LZ4, 9 + 32, 0xffffffff, zeros, 32), PARSE_BAD);
    assert_int_equal(parse_forged(FRAME_LZ4, 9 + 32, 32 * 300, zeros, 32), PARSE_BAD);
    assert_int_equal(parse_forged(FRAME_LZ4, 0xffffffff, 10, zeros, 32), PARSE_BAD);
    assert_int_equal(parse_forged(FRAME_ZSTD, 9 + 4, 64u << 20, zeros, 4), PARSE_BAD);
}

/* Sizes around the limit of a frame, and pieces that cross it. */
static void test_writer_sizes(void **state)
{
    (void)state;
    static const enum frame_method methods[] = {FRAME_NONE, FRAME_LZ4, FRAME_ZSTD};
    static const size_t sizes[] = {0,
                                   1,
                                   FRAME_PLAIN_BYTES - 1,
                                   FRAME_PLAIN_BYTES,
                                   FRAME_PLAIN_BYTES + 1,
                                   3 * FRAME_PLAIN_BYTES + 5};
    uint8_t *data = xmalloc(4 * FRAME_PLAIN_BYTES);
    for (size_t i = 0; i < 4 * FRAME_PLAIN_BYTES; i++)
        data[i] = (uint8_t)(i * i >> 7);
    for (size_t m = 0; m < LENGTH(methods); m++)
        for (size_t s = 0; s < LENGTH(sizes); s++) {
            struct buf out = {0}, plain = {0};
            struct frame_writer w = {.method = methods[m], .out = &out};
            size_t first = sizes[s] < 7 ? 0 : 7; /* so that nothing is aligned with frames */
            frame_writer_put(&w, data, first);
            frame_writer_put(&w, data + first, sizes[s] - first);
            frame_writer_flush(&w);
            struct cursor in = cursor_of(out.data, out.len);
            size_t frames = 0;
            for (; cursor_left(&in) > 0; frames++)
                assert_int_equal(frame_parse(&in, FRAME_PLAIN_BYTES, &plain, NULL, &err),
                                 PARSE_DONE);
            assert_int_equal(frames, (sizes[s] + FRAME_PLAIN_BYTES - 1) / FRAME_PLAIN_BYTES);
            assert_int_equal(plain.len, sizes[s]);
            if (sizes[s] > 0)
                assert_memory_equal(plain.data, data, sizes[s]);
            frame_writer_fini(&w);
            buf_free(&out);
            buf_free(&plain);
        }
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_read), cmocka_unit_test(test_vectors_written),
        cmocka_unit_test(test_damage),       cmocka_unit_test(test_refused),
        cmocka_unit_test(test_writer_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
