#include "pg/page.h"

#include "base/bytes.h"

#include <string.h>

#define PAGE_HEADER_SIZE 24
#define PAGE_LAYOUT_VERSION 4
#define PAGE_FLAGS_KNOWN 0x0007 /* PD_HAS_FREE_LINES, PD_PAGE_FULL, PD_ALL_VISIBLE */
#define LINE_SIZE 4
#define LP_NORMAL 1
#define TUPLE_INFOMASK 20 /* offset of t_infomask */
#define HEAP_XMAX_COMMITTED 0x0400
#define HEAP_XMAX_INVALID 0x0800

static bool is_zero(const uint8_t *bytes, size_t n)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, n - 1) == 0;
}

/* pd_lsn 8, pd_checksum 2, pd_flags 2, pd_lower 2, pd_upper 2, pd_special 2, size and version 2,
 * pd_prune_xid 4. A heap page has no special space. */
enum status heap_page_open(const uint8_t *bytes, struct heap_page *ret, struct error *err)
{
    uint16_t flags = u16_at(bytes + 10), lower = u16_at(bytes + 12), upper = u16_at(bytes + 14);
    uint16_t special = u16_at(bytes + 16), version = u16_at(bytes + 18);
    if (upper == 0) {
        if (!is_zero(bytes, PG_BLCKSZ))
            return error_set(err, ERR_DATA, "damaged page: not initialised, but not zero either");
        *ret = (struct heap_page){bytes, 0, 0, 0};
        return OK;
    }
    if (version != (PG_BLCKSZ | PAGE_LAYOUT_VERSION))
        return error_set(err, ERR_DATA, "damaged page: size and layout version 0x%04X", version);
    if (flags & ~PAGE_FLAGS_KNOWN)
        return error_set(err, ERR_DATA, "damaged page: unknown flags 0x%04X", flags);
    if (lower < PAGE_HEADER_SIZE || lower > upper || upper > special || special > PG_BLCKSZ ||
        (lower - PAGE_HEADER_SIZE) % LINE_SIZE != 0)
        return error_set(err, ERR_DATA, "damaged page: lower %u, upper %u, special %u", lower,
                         upper, special);
    if (special != PG_BLCKSZ)
        return error_set(err, ERR_DATA, "not a heap page: special space at %u", special);
    *ret = (struct heap_page){bytes, upper, special,
                              (uint16_t)((lower - PAGE_HEADER_SIZE) / LINE_SIZE)};
    return OK;
}

/* ItemIdData: 15 bits offset, 2 bits state, 15 bits length. HeapTupleHeaderData: xmin, xmax, cid or
 * xvac (4 bytes each), ctid (block high, block low, offset), infomask2, infomask, hoff. */
enum status heap_page_tuple(const struct heap_page *page, OffsetNumber offset,
                            struct page_tuple *ret, bool *ret_normal, struct error *err)
{
    CHECK(offset >= 1 && offset <= page->nlines);
    uint32_t line = u32_at(page->bytes + PAGE_HEADER_SIZE + (size_t)(offset - 1) * LINE_SIZE);
    uint32_t at = line & 0x7fff, state = line >> 15 & 3, len = line >> 17;
    if (state != LP_NORMAL) {
        *ret_normal = false;
        return OK;
    }
    if (at < page->upper || at + len > page->special || (at & 7) != 0)
        return error_set(err, ERR_DATA, "damaged page: line %u points to %u bytes at %u", offset,
                         len, at);
    if (len <= SizeofHeapTupleHeader)
        return error_set(err, ERR_DATA, "damaged page: line %u has a tuple of %u bytes", offset,
                         len);
    const uint8_t *t = page->bytes + at;
    *ret = (struct page_tuple){
        .raw = {.infomask2 = u16_at(t + 18),
                .infomask = u16_at(t + 20),
                .hoff = t[22],
                .body_len = len - SizeofHeapTupleHeader,
                .body = t + SizeofHeapTupleHeader},
        .xmin = u32_at(t),
        .xmax = u32_at(t + 4),
        .xvac = u32_at(t + 8),
        .ctid_block = (BlockNumber)u16_at(t + 12) << 16 | u16_at(t + 14),
        .ctid_offset = u16_at(t + 16),
    };
    *ret_normal = true;
    return OK;
}

void heap_page_line_clear(uint8_t *bytes, OffsetNumber offset)
{
    memset(bytes + PAGE_HEADER_SIZE + (size_t)(offset - 1) * LINE_SIZE, 0, LINE_SIZE);
}

void heap_page_xmax_clear(uint8_t *bytes, OffsetNumber offset)
{
    uint32_t line;
    uint16_t mask;
    memcpy(&line, bytes + PAGE_HEADER_SIZE + (size_t)(offset - 1) * LINE_SIZE, sizeof line);
    uint8_t *at = bytes + (line & 0x7fff) + TUPLE_INFOMASK;
    memcpy(&mask, at, sizeof mask);
    mask = (uint16_t)((mask & ~HEAP_XMAX_COMMITTED) | HEAP_XMAX_INVALID);
    memcpy(at, &mask, sizeof mask);
}
