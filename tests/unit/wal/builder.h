/* Writes WAL for tests: records across pages and segments, as a server lays them out. */
#pragma once
#include "base/buf.h"
#include "base/crc32c.h"
#include "pg/wal_page.h"
#include "pg/wal_record.h"

struct builder {
    unsigned major;
    uint64_t segment_bytes;
    XLogRecPtr start, prev;
    struct buf wal;
};

static inline XLogRecPtr builder_lsn(const struct builder *b)
{
    return b->start + b->wal.len;
}

static inline void builder_page(struct builder *b, uint16_t info, uint32_t rem_len)
{
    XLogRecPtr lsn = builder_lsn(b);
    bool first = lsn % b->segment_bytes == 0;
    buf_put_u16(&b->wal, wal_page_magic(b->major));
    buf_put_u16(&b->wal, (uint16_t)(info | (first ? XLP_LONG_HEADER : 0)));
    buf_put_u32(&b->wal, 1);
    buf_put_u64(&b->wal, lsn);
    buf_put_u32(&b->wal, rem_len);
    buf_put_u32(&b->wal, 0);
    if (first) {
        buf_put_u64(&b->wal, 4711);
        buf_put_u32(&b->wal, (uint32_t)b->segment_bytes);
        buf_put_u32(&b->wal, PG_XLOG_BLCKSZ);
    }
}

/* The bytes, with page headers where pages begin. */
static inline void builder_bytes(struct builder *b, const uint8_t *bytes, size_t len, bool record)
{
    for (size_t at = 0; at < len;) {
        uint64_t off = builder_lsn(b) % PG_XLOG_BLCKSZ;
        if (off == 0) {
            bool cont = record && at > 0;
            builder_page(b, cont ? XLP_FIRST_IS_CONTRECORD : 0, cont ? (uint32_t)(len - at) : 0);
            continue;
        }
        size_t n = MIN(len - at, PG_XLOG_BLCKSZ - off);
        buf_put(&b->wal, bytes + at, n);
        at += n;
    }
}

/* A record with one main-data chunk (long form) of len bytes, and one block reference if rel ≠ 0.
 * Returns its start. */
static inline XLogRecPtr builder_record(struct builder *b, uint8_t rmid, uint8_t info, uint32_t xid,
                                        struct rel_file_locator rel, const void *main, uint32_t len)
{
    struct buf r = {0};
    if (builder_lsn(b) % PG_XLOG_BLCKSZ == 0)
        builder_page(b, 0, 0);
    XLogRecPtr start = builder_lsn(b);
    buf_put_zeros(&r, SizeOfXLogRecord);
    if (rel.rel_number != 0) {
        buf_put_u8(&r, 0);
        buf_put_u8(&r, 0);
        buf_put_u16(&r, 0);
        buf_put(&r, &rel, sizeof rel);
        buf_put_u32(&r, 7);
    }
    buf_put_u8(&r, 254);
    buf_put_u32(&r, len);
    buf_put(&r, main, len);
    uint32_t total = (uint32_t)r.len;
    memcpy(r.data, &total, 4);
    memcpy(r.data + 4, &xid, 4);
    memcpy(r.data + 8, &b->prev, 8);
    r.data[16] = info;
    r.data[17] = rmid;
    uint32_t crc = crc32c_update(0xffffffff, r.data + 24, total - 24);
    crc = crc32c_update(crc, r.data, 20) ^ 0xffffffff;
    memcpy(r.data + 20, &crc, 4);
    builder_bytes(b, r.data, total, true);
    buf_put_zeros(&b->wal, MAXALIGN8(total) - total);
    b->prev = start;
    buf_free(&r);
    return start;
}

/* No-block records up to exactly `left` bytes before the end of the page. */
static inline void builder_fill_page(struct builder *b, uint32_t left)
{
    static const uint8_t zeros[PG_XLOG_BLCKSZ];
    if (builder_lsn(b) % PG_XLOG_BLCKSZ == 0)
        builder_page(b, 0, 0);
    uint32_t room = PG_XLOG_BLCKSZ - (uint32_t)(builder_lsn(b) % PG_XLOG_BLCKSZ) - left;
    if (room >= 32)
        builder_record(b, RM_XLOG_ID, 0x30, 0, (struct rel_file_locator){0}, zeros, room - 29);
}
