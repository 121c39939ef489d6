/* One WAL record's bytes → struct wal_record.
 * Source: access/xlogrecord.h, DecodeXLogRecord in access/transam/xlogreader.c; same in 15 to 18.
 */
#pragma once
#include "base/crc32c.h"
#include "pg/wal_record.h"

#include <string.h>

#define XLR_BLOCK_ID_DATA_SHORT 255
#define XLR_BLOCK_ID_DATA_LONG 254
#define XLR_BLOCK_ID_ORIGIN 253
#define XLR_BLOCK_ID_TOPLEVEL_XID 252

#define XLR_INFO_MASK 0x0F
#define XLR_RMGR_INFO_MASK 0xF0
#define XLR_MAX_RMGR_BUILTIN RM_LOGICALMSG_ID
#define XLR_MIN_RMGR_CUSTOM 128

/* More than the longest header part: fixed header, 33 block headers, origin, xid, main data. */
#define WAL_RECORD_HEAD_MAX 1024u

/* Fields of the fixed header, at their offsets; the bytes must be there. */
static inline uint32_t wal_header_total_len(const uint8_t *bytes)
{
    uint32_t v;
    memcpy(&v, bytes, 4);
    return v;
}
static inline XLogRecPtr wal_header_prev(const uint8_t *bytes)
{
    XLogRecPtr v;
    memcpy(&v, bytes + 8, 8);
    return v;
}
static inline uint8_t wal_header_info(const uint8_t *bytes)
{
    return bytes[16];
}
static inline uint8_t wal_header_rmid(const uint8_t *bytes)
{
    return bytes[17];
}
static inline uint32_t wal_header_crc(const uint8_t *bytes)
{
    uint32_t v;
    memcpy(&v, bytes + 20, 4);
    return v;
}

/* The record's CRC covers the body first, then the header up to xl_crc. body_crc is the running
 * value (crc32c_update from 0xffffffff) over the total_len - 24 bytes of the body. */
static inline uint32_t wal_header_crc_finish(uint32_t body_crc, const uint8_t *header)
{
    return crc32c_update(body_crc, header, 20) ^ 0xffffffffu;
}

/* CRC of a complete record (len = xl_tot_len ≥ 24) equal to the one in its header? */
static inline bool wal_record_crc_ok(const uint8_t *bytes, uint32_t len)
{
    uint32_t crc = crc32c_update(0xffffffffu, bytes + SizeOfXLogRecord, len - SizeOfXLogRecord);
    return wal_header_crc_finish(crc, bytes) == wal_header_crc(bytes);
}

/* Parses a complete record: len must equal xl_tot_len. Fills everything but start and end, which
 * the caller knows (and sets beforehand if it wants them kept: they are not touched).
 * blocks[nblocks] and beyond keep their old content. Pointers go into bytes. The CRC is not looked
 * at. Malformed input: ERR_DATA; *ret is then undefined. */
enum status wal_record_parse(const uint8_t *bytes, uint32_t len, struct wal_record *ret,
                             struct error *err) CHECKED;

/* Parses the header part of a record of which only the first `have` bytes are there
 * (have ≥ min(xl_tot_len, WAL_RECORD_HEAD_MAX) always suffices): no image, data or main data
 * pointers, body_skipped set, main_len as announced. */
enum status wal_record_parse_head(const uint8_t *bytes, size_t have, struct wal_record *ret,
                                  struct error *err) CHECKED;
