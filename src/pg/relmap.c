#include "pg/relmap.h"

#include "base/crc32c.h"
#include "base/cursor.h"

#define RELMAPPER_FILEMAGIC 0x592717u
#define SIZE_15 512u
#define MAX_MAPPINGS_15 62u
#define SIZE_16 524u
#define MAX_MAPPINGS_16 64u

enum status relmap_parse(const uint8_t *bytes, size_t len, struct relmap *ret, struct error *err)
{
    struct cursor c = cursor_of(bytes, len);
    uint32_t max = len == SIZE_15 ? MAX_MAPPINGS_15 : len == SIZE_16 ? MAX_MAPPINGS_16 : 0;
    if (max == 0)
        return error_set(err, ERR_DATA, "relation map has %zu bytes, expected %u or %u", len,
                         SIZE_15, SIZE_16);
    uint32_t magic = cursor_u32(&c);
    uint32_t count = cursor_u32(&c);
    if (magic != RELMAPPER_FILEMAGIC || count > max)
        return error_set(err, ERR_DATA, "relation map has magic %X and %u entries", magic, count);
    size_t crc_at = 8 + (size_t)max * 8;
    uint32_t crc;
    memcpy(&crc, bytes + crc_at, 4);
    if (crc != crc32c(bytes, crc_at))
        return error_set(err, ERR_DATA, "relation map has a wrong CRC");
    *ret = (struct relmap){count, bytes + 8};
    return OK;
}

void relmap_get(const struct relmap *map, uint32_t i, Oid *ret_oid, Oid *ret_filenode)
{
    memcpy(ret_oid, map->entries + (size_t)i * 8, 4);
    memcpy(ret_filenode, map->entries + (size_t)i * 8 + 4, 4);
}

enum status relmap_record_parse(const struct wal_record *record, Oid *ret_db_oid,
                                struct relmap *ret, struct error *err)
{
    struct cursor c = cursor_of(record->main_data, record->main_len);
    Oid db_oid = cursor_u32(&c);
    cursor_skip(&c, 4); /* tablespace */
    uint32_t len = cursor_u32(&c);
    const uint8_t *map = cursor_take(&c, len);
    if (map == NULL || (record->info & 0xF0) != 0)
        return error_lsn(err, ERR_DATA, record->start, "RELMAP record %02X is not understood",
                         record->info);
    if (relmap_parse(map, len, ret, err) != OK)
        return error_prefix(err, "RELMAP record at " LSN_FMT, LSN_ARGS(record->start));
    *ret_db_oid = db_oid;
    return OK;
}
