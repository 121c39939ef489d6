#include "wal/noop.h"

#include "pg/wal_page.h"
#include "pg/wal_parse.h"
#include "pg/xlog_record.h"

#include <stdlib.h>

#define CACHED_LENGTHS 16384u

void noop_cache_fini(struct noop_cache *cache)
{
    free(cache->body_crc);
    cache->body_crc = NULL;
}

/* Header of the one main-data chunk; returns its length. */
static uint32_t chunk_header(uint8_t *at, uint32_t total_len)
{
    uint32_t body = total_len - SizeOfXLogRecord;
    if (body < 2)
        return 0;
    if (body - 2 <= UINT8_MAX) {
        at[0] = XLR_BLOCK_ID_DATA_SHORT;
        at[1] = (uint8_t)(body - 2);
        return 2;
    }
    at[0] = XLR_BLOCK_ID_DATA_LONG;
    body -= 5;
    memcpy(at + 1, &body, 4);
    return 5;
}

static uint32_t body_crc(struct noop_cache *cache, const uint8_t *chunk, uint32_t chunk_len,
                         uint32_t total_len)
{
    if (total_len < CACHED_LENGTHS) {
        if (cache->body_crc == NULL)
            cache->body_crc = xcalloc(CACHED_LENGTHS, sizeof *cache->body_crc);
        if (cache->body_crc[total_len] != 0)
            return cache->body_crc[total_len];
    }
    uint32_t crc = crc32c_update(0xffffffffu, chunk, chunk_len);
    crc = crc32c_zeros(crc, total_len - SizeOfXLogRecord - chunk_len);
    if (total_len < CACHED_LENGTHS)
        cache->body_crc[total_len] = crc;
    return crc;
}

void noop_writer_init(struct noop_writer *w, struct noop_cache *cache, uint32_t total_len,
                      TransactionId xid, XLogRecPtr prev, uint64_t segment_bytes)
{
    memset(w->image, 0, sizeof w->image);
    memcpy(w->image, &total_len, 4);
    memcpy(w->image + 4, &xid, 4);
    memcpy(w->image + 8, &prev, 8);
    w->image[16] = XLOG_NOOP;
    w->image[17] = RM_XLOG_ID;
    uint32_t chunk_len = 0;
    if (total_len > SizeOfXLogRecord)
        chunk_len = chunk_header(w->image + SizeOfXLogRecord, total_len);
    uint32_t crc = body_crc(cache, w->image + SizeOfXLogRecord, chunk_len, total_len);
    crc = wal_header_crc_finish(crc, w->image);
    memcpy(w->image + 20, &crc, 4);
    w->image_len = SizeOfXLogRecord + chunk_len;
    w->size = MAXALIGN8(total_len);
    w->segment_bytes = segment_bytes;
}

void noop_in_place(struct noop_cache *cache, uint8_t *record, uint32_t total_len)
{
    uint8_t chunk[8] = {0};
    size_t size = MAXALIGN8(total_len);
    uint32_t chunk_len = 0;
    if (total_len > SizeOfXLogRecord)
        chunk_len = chunk_header(chunk, total_len);
    record[16] = XLOG_NOOP;
    record[17] = RM_XLOG_ID;
    record[18] = record[19] = 0;
    uint32_t crc = body_crc(cache, chunk, chunk_len, total_len);
    crc = wal_header_crc_finish(crc, record);
    memcpy(record + 20, &crc, 4);
    if (size == SizeOfXLogRecord)
        return;
    memcpy(record + SizeOfXLogRecord, chunk, sizeof chunk);
    size_t rest = size - SizeOfXLogRecord - sizeof chunk;
    /* the library's memset: an inlined string instruction costs more than these few bytes */
    __asm__("" : "+r"(rest));
    memset(record + SizeOfXLogRecord + sizeof chunk, 0, rest);
}

bool noop_has_length(uint32_t total_len)
{
    return total_len >= SizeOfXLogRecord && total_len != SizeOfXLogRecord + 1;
}

bool noop_matches(struct noop_cache *cache, const uint8_t *record, uint32_t total_len)
{
    static const uint8_t zeros[PG_XLOG_BLCKSZ];
    uint8_t chunk[8] = {0};
    size_t size = MAXALIGN8(total_len);
    uint32_t chunk_len = 0;
    if (wal_header_info(record) != XLOG_NOOP || wal_header_rmid(record) != RM_XLOG_ID ||
        record[18] != 0 || record[19] != 0 || !noop_has_length(total_len) || size > sizeof zeros)
        return false;
    if (total_len > SizeOfXLogRecord)
        chunk_len = chunk_header(chunk, total_len);
    uint32_t crc = body_crc(cache, chunk, chunk_len, total_len);
    if (wal_header_crc_finish(crc, record) != wal_header_crc(record))
        return false;
    if (size == SizeOfXLogRecord)
        return true;
    size_t rest = size - SizeOfXLogRecord - sizeof chunk;
    return memcmp(record + SizeOfXLogRecord, chunk, sizeof chunk) == 0 &&
           memcmp(record + SizeOfXLogRecord + sizeof chunk, zeros, rest) == 0;
}

void noop_writer_zeros(struct noop_writer *w, uint64_t segment_bytes)
{
    w->image_len = 0;
    w->size = UINT64_MAX;
    w->segment_bytes = segment_bytes;
}

void noop_writer_seek(struct noop_writer *w, XLogRecPtr lsn, uint64_t off)
{
    w->lsn = lsn;
    w->off = off;
}

void noop_writer_run(struct noop_writer *w, uint8_t *data, XLogRecPtr data_lsn, XLogRecPtr upto)
{
    while (w->lsn < upto && w->off < w->size) {
        uint64_t page_off = w->lsn % PG_XLOG_BLCKSZ;
        if (page_off == 0) {
            page_off = wal_page_header_size(w->lsn, w->segment_bytes);
            if (upto - w->lsn <= page_off)
                return;
            w->lsn += page_off;
        }
        uint64_t n = MIN(upto - w->lsn, PG_XLOG_BLCKSZ - page_off);
        n = MIN(n, w->size - w->off);
        uint8_t *at = data + (w->lsn - data_lsn);
        w->lsn += n;
        if (w->off < w->image_len) {
            uint64_t head = MIN(n, w->image_len - w->off);
            memcpy(at, w->image + w->off, head);
            w->off += head;
            at += head;
            n -= head;
        }
        memset(at, 0, n);
        w->off += n;
    }
}
