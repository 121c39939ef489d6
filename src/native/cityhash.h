/* CityHash128 of release 1.0.2, the checksum of ClickHouse's compressed frames. Later releases of
 * CityHash give other values: this one is frozen by the wire format (ClickHouse,
 * contrib/cityhash102). */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct cityhash128 {
    uint64_t low, high; /* on the wire: low, then high, both little-endian */
};

struct cityhash128 cityhash128(const void *data, size_t len);
