#include "base/crc32c.h"

#include <isa-l.h>

uint32_t crc32c_update_long(uint32_t crc, const void *data, size_t len)
{
    const unsigned char *at = data;
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
