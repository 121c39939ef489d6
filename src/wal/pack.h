/* The sealed form of archived WAL pages: no-op records become their length and xid.
 *
 * Filtered WAL is no-ops for the most part, and all of one follows from its length, its xid and
 * where the record before it begins (notes C10). A packed page is
 *
 *   u16 bytes of what follows, then items until the page is whole:
 *   u16 0, u16 n, u32 back, n bytes   n bytes as they are; a record begins `back` bytes before
 *                                     their end (the last that begins in them; 0 = none does)
 *   u16 1, u16 n, u32 0               n zero bytes
 *   u16 total_len, u16 n, u32 xid     n no-op records of that xl_tot_len (≥ 24), one after another
 *
 * Integers are little-endian. Only what unpacks to the same bytes is packed, whatever they are.
 * Pages of a segment are packed, and unpacked, in order, from its first. */
#pragma once
#include "base/error.h"
#include "wal/noop.h"

#include <stddef.h>

/* No page needs more: an item of 8 bytes stands for at least 24, or holds what it stands for. */
#define WAL_PACKED_PAGE_MAX (2 + PG_XLOG_BLCKSZ + (PG_XLOG_BLCKSZ / 24 + 2) * 2 * 8)

struct wal_packer {
    struct noop_cache noops;
    uint64_t segment_bytes;
    XLogRecPtr last;          /* where the last record begins; 0 = not known */
    struct noop_marks *marks; /* of the bytes to come; NULL = none */
};

/* For the pages of a segment, before the first. The cache of no-ops stays from one to the next:
 * noop_cache_fini releases it. */
static inline void wal_packer_begin(struct wal_packer *p, uint64_t segment_bytes)
{
    p->segment_bytes = segment_bytes;
    p->last = 0;
}

/* Packs the page at lsn into out (room for WAL_PACKED_PAGE_MAX); returns how many bytes. */
size_t wal_pack_page(struct wal_packer *p, XLogRecPtr lsn, const uint8_t *page, uint8_t *out);

/* The other way: items[0, len) are what follows a packed page's length. ERR_DATA when they are not
 * a page; `page` is undefined then. */
enum status wal_unpack_page(struct wal_packer *p, XLogRecPtr lsn, const uint8_t *items, size_t len,
                            uint8_t *page, struct error *err) CHECKED;
