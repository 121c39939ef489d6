/* WAL page headers.
 * Source: access/xlog_internal.h (XLogPageHeaderData, XLogLongPageHeaderData); same in 15 to 18
 * except for the magic. */
#pragma once
#include "base/error.h"
#include "pg/pg.h"

#include <stddef.h>

#define WAL_PAGE_SHORT_HEADER 24u
#define WAL_PAGE_LONG_HEADER 40u
#define WAL_SEGMENT_MIN (1u << 20)
#define WAL_SEGMENT_MAX (1u << 30)
#define WAL_SEGMENT_NAME_MAX 25 /* 24 hex digits and the NUL */

#define XLP_FIRST_IS_CONTRECORD 0x0001
#define XLP_LONG_HEADER 0x0002
#define XLP_BKP_REMOVABLE 0x0004
#define XLP_FIRST_IS_OVERWRITE_CONTRECORD 0x0008
#define XLP_ALL_FLAGS 0x000f

struct wal_page_header {
    uint16_t magic;
    uint16_t info; /* XLP_* */
    uint32_t timeline;
    XLogRecPtr page_lsn;
    uint32_t rem_len; /* bytes left of the record that the page before began */
    /* of a segment's first page only, else 0 */
    uint64_t system_id;
    uint32_t segment_bytes;
    uint32_t block_bytes;
};

/* The header that a page at lsn must have. */
static inline uint32_t wal_page_header_size(XLogRecPtr lsn, uint64_t segment_bytes)
{
    return lsn % segment_bytes == 0 ? WAL_PAGE_LONG_HEADER : WAL_PAGE_SHORT_HEADER;
}

/* Reads a header; len must cover it (24 bytes, 40 if XLP_LONG_HEADER is set). No check but of
 * length. */
enum status wal_page_header_parse(const uint8_t *bytes, size_t len, struct wal_page_header *ret,
                                  struct error *err) CHECKED;

/* Checks a header against what the page at lsn must say: magic of the major, flags, address, and
 * for a segment's first page the segment size, block size and (unless 0) the system identifier. */
enum status wal_page_header_check(const struct wal_page_header *header, XLogRecPtr lsn,
                                  unsigned major, uint64_t segment_bytes, uint64_t system_id,
                                  struct error *err) CHECKED;

uint16_t wal_page_magic(unsigned major);      /* 0 if the major is not supported */
unsigned wal_page_major(uint16_t magic);      /* 0 if the magic is not known */
bool wal_segment_bytes_valid(uint64_t bytes); /* a power of two from 1 MB to 1 GB */

/* Segment file names: timeline and position (XLogFileName). */
void wal_segment_name(char name[WAL_SEGMENT_NAME_MAX], uint32_t timeline, XLogRecPtr lsn,
                      uint64_t segment_bytes);
/* False unless the name is exactly 24 hex digits that stand for a segment of this size. */
bool wal_segment_name_parse(const char *name, uint64_t segment_bytes, uint32_t *ret_timeline,
                            XLogRecPtr *ret_lsn);
