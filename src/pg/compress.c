#include "pg/compress.h"

#include "base/cursor.h"

#include <lz4.h>
#include <zstd.h>

/* A match of 273 bytes takes 3 bytes of pglz and an eighth of a control byte; lz4 adds at most 255
 * bytes a byte. Nothing honest exceeds this ratio, so a damaged size cannot make us allocate. */
#define MAX_RATIO 256

/* One pglz match: a two-byte tag (length - 3 in the low nibble of the first, a 12-bit distance), a
 * third byte if the nibble is 15. Copies within dst; source and target may overlap. */
static bool pglz_match(struct cursor *c, uint8_t *dst, size_t dst_len, size_t *at)
{
    uint8_t first = cursor_u8(c);
    size_t distance = (size_t)(first & 0xf0) << 4 | cursor_u8(c);
    size_t len = (size_t)(first & 0x0f) + 3;
    if (len == 18)
        len += cursor_u8(c);
    if (!cursor_ok(c) || distance == 0 || distance > *at || len > dst_len - *at)
        return false;
    uint8_t *to = dst + *at;
    if (distance >= len) {
        memcpy(to, to - distance, len);
    } else {
        const uint8_t *from = to - distance;
        for (size_t i = 0; i < len; i++)
            to[i] = from[i];
    }
    *at += len;
    return true;
}

/* Groups of a control byte and eight items, lowest bit first: 1 is a match, 0 a literal byte. */
static bool pglz_decode(const uint8_t *src, size_t src_len, uint8_t *dst, size_t dst_len)
{
    struct cursor c = cursor_of(src, src_len);
    size_t at = 0;
    while (at < dst_len && cursor_left(&c) > 0) {
        unsigned control = cursor_u8(&c);
        if (control == 0 && cursor_left(&c) >= 8 && dst_len - at >= 8) {
            memcpy(dst + at, cursor_take(&c, 8), 8);
            at += 8;
            continue;
        }
        for (unsigned bit = 0; bit < 8 && at < dst_len && cursor_left(&c) > 0; bit++) {
            if (control & (1u << bit)) {
                if (!pglz_match(&c, dst, dst_len, &at))
                    return false;
            } else {
                dst[at++] = cursor_u8(&c);
            }
        }
    }
    return at == dst_len && cursor_left(&c) == 0 && cursor_ok(&c);
}

static bool lz4_decode(const uint8_t *src, size_t src_len, uint8_t *dst, size_t dst_len)
{
    if (src_len > INT32_MAX || dst_len > INT32_MAX)
        return false;
    int got = LZ4_decompress_safe((const char *)src, (char *)dst, (int)src_len, (int)dst_len);
    return got >= 0 && (size_t)got == dst_len;
}

static bool zstd_decode(const uint8_t *src, size_t src_len, uint8_t *dst, size_t dst_len)
{
    size_t got = ZSTD_decompress(dst, dst_len, src, src_len);
    return !ZSTD_isError(got) && got == dst_len;
}

enum status compress_decode(enum compress_method method, const uint8_t *src, size_t src_len,
                            uint8_t *dst, size_t dst_len, struct error *err)
{
    bool good = false;
    const char *name = "?";
    switch (method) {
    case COMPRESS_PGLZ:
        name = "pglz";
        good = pglz_decode(src, src_len, dst, dst_len);
        break;
    case COMPRESS_LZ4:
        name = "lz4";
        good = lz4_decode(src, src_len, dst, dst_len);
        break;
    case COMPRESS_ZSTD:
        name = "zstd";
        good = zstd_decode(src, src_len, dst, dst_len);
        break;
    }
    if (!good)
        return error_set(err, ERR_DATA, "%zu bytes of %s do not give %zu plain bytes", src_len,
                         name, dst_len);
    return OK;
}

enum status varlena_decompress(const uint8_t *data, size_t len, size_t max_bytes, struct buf *ret,
                               struct error *err)
{
    struct cursor c = cursor_of(data, len);
    uint32_t word = cursor_u32(&c);
    size_t plain = word & 0x3fffffff, packed = cursor_left(&c);
    unsigned method = word >> 30;
    if (!cursor_ok(&c))
        return error_set(err, ERR_DATA, "compressed value of %zu bytes has no header", len);
    if (method > COMPRESS_LZ4)
        return error_set(err, ERR_DATA, "compressed value with unknown method %u", method);
    if (plain > packed * MAX_RATIO)
        return error_set(err, ERR_DATA, "compressed value of %zu bytes claims %zu plain bytes",
                         packed, plain);
    if (plain > max_bytes)
        return error_set(err, ERR_DATA, "compressed value has %zu plain bytes, the limit is %zu",
                         plain, max_bytes);
    TRY(compress_decode((enum compress_method)method, data + c.pos, packed,
                        buf_reserve(ret, MAX(plain, 1u)), plain, err));
    ret->len += plain;
    return OK;
}
