#include "native/frame.h"

#include "base/bytes.h"
#include "native/cityhash.h"

#include <lz4.h>
#include <zstd.h>

/* LZ4's format cannot do better than one byte for 255; zstd's run blocks can, up to about 128 KiB
 * for a few bytes. */
#define LZ4_RATIO_MAX 255
#define ZSTD_RATIO_MAX (1u << 17)

static enum status decompress(uint8_t method, const uint8_t *from, size_t n, uint8_t *to,
                              size_t plain, struct error *err)
{
    if (method == FRAME_NONE) {
        memcpy(to, from, n);
        return OK;
    }
    if (method == FRAME_LZ4) {
        int got = LZ4_decompress_safe((const char *)from, (char *)to, (int)n, (int)plain);
        if (got < 0 || (size_t)got != plain)
            return error_set(err, ERR_DATA, "a compressed frame does not decompress (LZ4)");
        return OK;
    }
    size_t got = ZSTD_decompress(to, plain, from, n);
    if (ZSTD_isError(got))
        return error_set(err, ERR_DATA, "a compressed frame does not decompress (zstd): %s",
                         ZSTD_getErrorName(got));
    if (got != plain)
        return error_set(err, ERR_DATA, "a compressed frame has %zu bytes instead of %zu", got,
                         plain);
    return OK;
}

static enum status check_sizes(uint8_t method, size_t n, size_t plain, size_t plain_max,
                               struct error *err)
{
    if (method != FRAME_NONE && method != FRAME_LZ4 && method != FRAME_ZSTD)
        return error_set(err, ERR_DATA, "a compressed frame has the unknown method 0x%02x", method);
    if (plain > plain_max || plain > FRAME_COMPRESSED_MAX)
        return error_set(err, ERR_DATA,
                         "a compressed frame of %zu plain bytes is over the limit %zu", plain,
                         plain_max);
    if (method == FRAME_NONE ? plain != n
                             : plain / (method == FRAME_LZ4 ? LZ4_RATIO_MAX : ZSTD_RATIO_MAX) > n)
        return error_set(err, ERR_DATA,
                         "a compressed frame of %zu bytes cannot hold %zu plain bytes", n, plain);
    return OK;
}

enum parse_result frame_parse(struct cursor *in, size_t plain_max, struct buf *plain,
                              size_t *ret_need, struct error *err)
{
    size_t left = cursor_left(in), need = FRAME_CHECKSUM_BYTES + FRAME_HEADER_BYTES;
    const uint8_t *at = in->data + in->pos, *header = at + FRAME_CHECKSUM_BYTES;
    if (left >= need) {
        size_t size = u32_at(header + 1);
        if (size < FRAME_HEADER_BYTES || size - FRAME_HEADER_BYTES > FRAME_COMPRESSED_MAX) {
            error_set(err, ERR_DATA, "a compressed frame gives its size as %zu", size);
            return PARSE_BAD;
        }
        if (check_sizes(header[0], size - FRAME_HEADER_BYTES, u32_at(header + 5), plain_max, err) !=
            OK)
            return PARSE_BAD;
        need = FRAME_CHECKSUM_BYTES + size;
    }
    if (left < need) {
        if (ret_need != NULL)
            *ret_need = need;
        return PARSE_MORE;
    }
    struct cityhash128 hash = cityhash128(header, need - FRAME_CHECKSUM_BYTES);
    if (memcmp(at, &hash.low, 8) != 0 || memcmp(at + 8, &hash.high, 8) != 0) {
        error_set(err, ERR_DATA, "the checksum of a compressed frame does not match");
        return PARSE_BAD;
    }
    size_t n = need - FRAME_CHECKSUM_BYTES - FRAME_HEADER_BYTES, size = u32_at(header + 5);
    uint8_t *to = buf_reserve(plain, size);
    if (size > 0 && decompress(header[0], header + FRAME_HEADER_BYTES, n, to, size, err) != OK)
        return PARSE_BAD;
    plain->len += size;
    in->pos += need;
    return PARSE_DONE;
}

/* n is at most FRAME_PLAIN_BYTES, so the int casts are safe */
static size_t compress(enum frame_method method, const void *data, size_t n, uint8_t *to,
                       size_t room)
{
    size_t got;
    switch (method) {
    case FRAME_LZ4:
        got = (size_t)LZ4_compress_default(data, (char *)to, (int)n, (int)room);
        CHECK(got > 0);
        return got;
    case FRAME_ZSTD:
        got = ZSTD_compress(to, room, data, n, 1);
        CHECK(!ZSTD_isError(got));
        return got;
    case FRAME_NONE:
        break;
    }
    memcpy(to, data, n);
    return n;
}

static size_t compress_bound(enum frame_method method, size_t n)
{
    return method == FRAME_LZ4    ? (size_t)LZ4_compressBound((int)n)
           : method == FRAME_ZSTD ? ZSTD_compressBound(n)
                                  : n;
}

static void put_one(enum frame_method method, const void *data, size_t n, struct buf *out)
{
    const size_t before = FRAME_CHECKSUM_BYTES + FRAME_HEADER_BYTES;
    size_t room = compress_bound(method, n);
    uint8_t *at = buf_reserve(out, before + room), *header = at + FRAME_CHECKSUM_BYTES;
    size_t got = compress(method, data, n, at + before, room);
    uint32_t size = (uint32_t)(got + FRAME_HEADER_BYTES), plain = (uint32_t)n;
    header[0] = (uint8_t)method;
    memcpy(header + 1, &size, sizeof size);
    memcpy(header + 5, &plain, sizeof plain);
    struct cityhash128 hash = cityhash128(header, size);
    memcpy(at, &hash.low, 8);
    memcpy(at + 8, &hash.high, 8);
    out->len += before + got;
}

void frame_put(enum frame_method method, const void *data, size_t n, struct buf *out)
{
    const uint8_t *at = data;
    for (; n > 0; at += MIN(n, FRAME_PLAIN_BYTES), n -= MIN(n, FRAME_PLAIN_BYTES))
        put_one(method, at, MIN(n, FRAME_PLAIN_BYTES), out);
}

void frame_writer_put(struct frame_writer *w, const void *data, size_t n)
{
    const uint8_t *at = data;
    while (n > 0) {
        if (w->stage.len == 0 && n >= FRAME_PLAIN_BYTES) { /* large pieces need no copy */
            put_one(w->method, at, FRAME_PLAIN_BYTES, w->out);
            at += FRAME_PLAIN_BYTES;
            n -= FRAME_PLAIN_BYTES;
            continue;
        }
        size_t take = MIN(n, FRAME_PLAIN_BYTES - w->stage.len);
        buf_put(&w->stage, at, take);
        at += take;
        n -= take;
        if (w->stage.len == FRAME_PLAIN_BYTES)
            frame_writer_flush(w);
    }
}

void frame_writer_flush(struct frame_writer *w)
{
    frame_put(w->method, w->stage.data, w->stage.len, w->out);
    buf_reset(&w->stage);
}

void frame_writer_fini(struct frame_writer *w)
{
    buf_free(&w->stage);
}
