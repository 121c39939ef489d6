#include "pg/wal_page.h"

#include "base/cursor.h"

#include <ctype.h>

static const struct {
    unsigned major;
    uint16_t magic;
} magics[] = {{15, 0xD110}, {16, 0xD113}, {17, 0xD116}, {18, 0xD118}};

uint16_t wal_page_magic(unsigned major)
{
    for (size_t i = 0; i < LENGTH(magics); i++)
        if (magics[i].major == major)
            return magics[i].magic;
    return 0;
}

unsigned wal_page_major(uint16_t magic)
{
    for (size_t i = 0; i < LENGTH(magics); i++)
        if (magics[i].magic == magic)
            return magics[i].major;
    return 0;
}

bool wal_segment_bytes_valid(uint64_t bytes)
{
    return bytes >= WAL_SEGMENT_MIN && bytes <= WAL_SEGMENT_MAX && (bytes & (bytes - 1)) == 0;
}

enum status wal_page_header_parse(const uint8_t *bytes, size_t len, struct wal_page_header *ret,
                                  struct error *err)
{
    struct cursor c = cursor_of(bytes, len);
    struct wal_page_header h = {0};
    h.magic = cursor_u16(&c);
    h.info = cursor_u16(&c);
    h.timeline = cursor_u32(&c);
    h.page_lsn = cursor_u64(&c);
    h.rem_len = cursor_u32(&c);
    cursor_skip(&c, 4); /* padding to the 8-byte boundary */
    if (h.info & XLP_LONG_HEADER) {
        h.system_id = cursor_u64(&c);
        h.segment_bytes = cursor_u32(&c);
        h.block_bytes = cursor_u32(&c);
    }
    if (!cursor_ok(&c))
        return error_set(err, ERR_DATA, "WAL page header cut after %zu bytes", len);
    *ret = h;
    return OK;
}

enum status wal_page_header_check(const struct wal_page_header *h, XLogRecPtr lsn, unsigned major,
                                  uint64_t segment_bytes, uint64_t system_id, struct error *err)
{
    if (h->magic != wal_page_magic(major)) {
        unsigned other = wal_page_major(h->magic);
        if (other != 0)
            return error_lsn(err, ERR_DATA, lsn,
                             "WAL page has the magic %04X of PostgreSQL %u, expected %u", h->magic,
                             other, major);
        return error_lsn(err, ERR_DATA, lsn, "WAL page has magic %04X, expected %04X", h->magic,
                         wal_page_magic(major));
    }
    if (h->info & ~XLP_ALL_FLAGS)
        return error_lsn(err, ERR_DATA, lsn, "WAL page has unknown flags %04X", h->info);
    if (h->page_lsn != lsn)
        return error_lsn(err, ERR_DATA, lsn, "WAL page says that its address is " LSN_FMT,
                         LSN_ARGS(h->page_lsn));
    bool first = lsn % segment_bytes == 0;
    if (first != ((h->info & XLP_LONG_HEADER) != 0))
        return error_lsn(err, ERR_DATA, lsn, "WAL page has a %s header where a %s one belongs",
                         first ? "short" : "long", first ? "long" : "short");
    if (!first)
        return OK;
    if (h->segment_bytes != segment_bytes)
        return error_lsn(err, ERR_DATA, lsn, "WAL segment size is %u, expected %llu",
                         h->segment_bytes, (unsigned long long)segment_bytes);
    if (h->block_bytes != PG_XLOG_BLCKSZ)
        return error_lsn(err, ERR_DATA, lsn, "WAL block size %u is not supported (only %u is)",
                         h->block_bytes, PG_XLOG_BLCKSZ);
    if (system_id != 0 && h->system_id != system_id)
        return error_lsn(err, ERR_DATA, lsn, "WAL is of the database system %llu, expected %llu",
                         (unsigned long long)h->system_id, (unsigned long long)system_id);
    return OK;
}

void wal_segment_name(char name[WAL_SEGMENT_NAME_MAX], uint32_t timeline, XLogRecPtr lsn,
                      uint64_t segment_bytes)
{
    uint64_t number = lsn / segment_bytes;
    uint64_t per_id = (UINT64_C(1) << 32) / segment_bytes;
    snprintf(name, WAL_SEGMENT_NAME_MAX, "%08X%08X%08X", timeline, (uint32_t)(number / per_id),
             (uint32_t)(number % per_id));
}

bool wal_segment_name_parse(const char *name, uint64_t segment_bytes, uint32_t *ret_timeline,
                            XLogRecPtr *ret_lsn)
{
    uint32_t part[3] = {0};
    for (unsigned i = 0; i < 24; i++) {
        if (!isxdigit((unsigned char)name[i]))
            return false;
        unsigned char ch = (unsigned char)toupper((unsigned char)name[i]);
        part[i / 8] = part[i / 8] << 4 | (uint32_t)(ch <= '9' ? ch - '0' : ch - 'A' + 10);
    }
    if (name[24] != '\0' || part[2] >= (UINT64_C(1) << 32) / segment_bytes)
        return false;
    *ret_timeline = part[0];
    *ret_lsn = (uint64_t)part[1] << 32 | (uint64_t)part[2] * segment_bytes;
    return true;
}
