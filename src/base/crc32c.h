/* CRC-32C (Castagnoli), as PostgreSQL uses it in the WAL and pg_control. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Continue a running value: start with crc = 0xffffffff, finish with crc ^ 0xffffffff. */
uint32_t crc32c_update(uint32_t crc, const void *data, size_t len);

/* The running value after `len` zero bytes. */
uint32_t crc32c_zeros(uint32_t crc, size_t len);

static inline uint32_t crc32c(const void *data, size_t len)
{
    return crc32c_update(0xffffffffu, data, len) ^ 0xffffffffu;
}
