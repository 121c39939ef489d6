#include "base/crc32c.h"

#include <isa-l.h>
#include <stdbool.h>
#include <string.h>

#ifdef __x86_64__
#include <nmmintrin.h>

/* Most WAL records are shorter than this. libisal's folding has a price per call that pays off only
 * beyond it; the instruction of its own takes 8 bytes in 3 cycles from the first one on. */
#define SHORT_MAX 256

static inline bool short_possible(void)
{
    return __builtin_cpu_supports("sse4.2");
}

__attribute__((target("sse4.2"))) static uint32_t update_short(uint32_t crc,
                                                               const unsigned char *at, size_t len)
{
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
}
#else
#define SHORT_MAX 0

static inline bool short_possible(void)
{
    return false;
}

static uint32_t update_short(uint32_t crc, const unsigned char *at, size_t len)
{
    (void)at, (void)len;
    return crc;
}
#endif

uint32_t crc32c_update(uint32_t crc, const void *data, size_t len)
{
    const unsigned char *at = data;
    if (len <= SHORT_MAX && short_possible())
        return update_short(crc, at, len);
    while (len > 0) { /* libisal takes an int length */
        size_t n = len < (1u << 30) ? len : (1u << 30);
        /* libisal's prototype lacks const; it only reads */
        crc = crc32_iscsi((unsigned char *)(uintptr_t)at, (int)n, crc);
        at += n;
        len -= n;
    }
    return crc;
}

uint32_t crc32c_zeros(uint32_t crc, size_t len)
{
    static const uint8_t zeros[8192];
    while (len > 0) {
        size_t n = len < sizeof zeros ? len : sizeof zeros;
        crc = crc32c_update(crc, zeros, n);
        len -= n;
    }
    return crc;
}
