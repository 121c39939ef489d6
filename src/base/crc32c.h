/* CRC-32C (Castagnoli), as PostgreSQL uses it in the WAL and pg_control. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE4_2__
#include <nmmintrin.h>
#endif

/* crc32c_update for any length, by libisal. */
uint32_t crc32c_update_long(uint32_t crc, const void *data, size_t len);

/* Continue a running value: start with crc = 0xffffffff, finish with crc ^ 0xffffffff.
 * Most WAL records are short, and every one is summed up in two or three pieces. libisal's folding
 * has a price per call that pays off only beyond 256 bytes; the processor's own instruction takes
 * 8 bytes in 3 cycles from the first one on. */
static inline uint32_t crc32c_update(uint32_t crc, const void *data, size_t len)
{
#ifdef __SSE4_2__
    const unsigned char *at = (const unsigned char *)data;
    if (len > 256)
        return crc32c_update_long(crc, data, len);
    uint64_t wide = crc;
    for (; len >= 8; at += 8, len -= 8) {
        uint64_t v;
        memcpy(&v, at, 8);
        wide = _mm_crc32_u64(wide, v);
    }
    crc = (uint32_t)wide;
    if (len >= 4) {
        uint32_t v;
        memcpy(&v, at, 4);
        crc = _mm_crc32_u32(crc, v);
        at += 4;
        len -= 4;
    }
    for (; len > 0; at++, len--)
        crc = _mm_crc32_u8(crc, *at);
    return crc;
#else
    return crc32c_update_long(crc, data, len);
#endif
}

/* The running value after `len` zero bytes. */
uint32_t crc32c_zeros(uint32_t crc, size_t len);

static inline uint32_t crc32c(const void *data, size_t len)
{
    return crc32c_update(0xffffffffu, data, len) ^ 0xffffffffu;
}
