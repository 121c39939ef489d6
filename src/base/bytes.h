/* Little-endian integers at any address. The caller has checked that they lie in its bytes; where
 * it has not, base/cursor.h does. */
#pragma once
#include <stdint.h>
#include <string.h>

static inline uint16_t u16_at(const uint8_t *at)
{
    uint16_t v;
    memcpy(&v, at, sizeof v);
    return v;
}
static inline uint32_t u32_at(const uint8_t *at)
{
    uint32_t v;
    memcpy(&v, at, sizeof v);
    return v;
}
static inline uint64_t u64_at(const uint8_t *at)
{
    uint64_t v;
    memcpy(&v, at, sizeof v);
    return v;
}
