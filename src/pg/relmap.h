/* The relation map: filenodes of catalogs whose pg_class row cannot say it (pg_filenode.map and
 * RELMAP_UPDATE records).
 * Source: utils/cache/relmapper.c, utils/relmapper.h; 512 bytes and 62 entries in 15, 524 and 64
 * from 16 on. */
#pragma once
#include "base/error.h"
#include "pg/wal_record.h"

struct relmap {
    uint32_t count;
    const uint8_t *entries; /* count × { oid, filenode }, unaligned, in the caller's bytes */
};

/* ERR_DATA for a wrong magic, size, count or CRC. */
enum status relmap_parse(const uint8_t *bytes, size_t len, struct relmap *ret,
                         struct error *err) CHECKED;
void relmap_get(const struct relmap *map, uint32_t i, Oid *ret_oid, Oid *ret_filenode);

/* A RM_RELMAP_ID record: database (0 = shared map) and the new map. */
enum status relmap_record_parse(const struct wal_record *record, Oid *ret_db_oid,
                                struct relmap *ret, struct error *err) CHECKED;
