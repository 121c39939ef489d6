/* Heap pages: header, line pointers, tuples with their transaction header.
 * Source: storage/bufpage.h, storage/itemid.h, access/htup_details.h; same in 15 to 18. */
#pragma once
#include "pg/tuple.h"

#define SpecTokenOffsetNumber 0xfffe /* t_ctid of a speculative insertion */

/* A page whose header is sound; points into the caller's 8192 bytes. */
struct heap_page {
    const uint8_t *bytes;
    uint16_t upper, special;
    uint16_t nlines; /* line pointers; offsets are 1 … nlines */
};

struct page_tuple {
    struct raw_tuple raw;
    TransactionId xmin, xmax;
    TransactionId xvac; /* only where HEAP_MOVED_* is set; elsewhere a command id */
    BlockNumber ctid_block;
    OffsetNumber ctid_offset;
};

/* Checks the page header. A page of zeros (never initialised) has no lines. ERR_DATA says what is
 * wrong; the caller prefixes relation and block. */
enum status heap_page_open(const uint8_t *bytes, struct heap_page *ret, struct error *err) CHECKED;

/* The tuple at offset 1 … nlines. *ret_normal false: the line holds none (unused, redirected,
 * dead), *ret is untouched. ERR_DATA if the line points outside or the tuple is too short. */
enum status heap_page_tuple(const struct heap_page *page, OffsetNumber offset,
                            struct page_tuple *ret, bool *ret_normal, struct error *err) CHECKED;

/* Turns a line pointer into an unused one, in place. */
void heap_page_line_clear(uint8_t *bytes, OffsetNumber offset);
/* The tuple at offset, a normal one, counts as not deleted. */
void heap_page_xmax_clear(uint8_t *bytes, OffsetNumber offset);
