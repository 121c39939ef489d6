/* Positions in the WAL. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef uint64_t XLogRecPtr; /* byte position, as PostgreSQL's type of this name */

#define LSN_FMT "%X/%X"
#define LSN_ARGS(lsn) (uint32_t)((lsn) >> 32), (uint32_t)(lsn)
#define LSN_TEXT_MAX 18

#define MAXALIGN8(x) (((uint64_t)(x) + 7) & ~(uint64_t)7)

/* Parses "16/B374D848"; false if the text is anything else. */
static inline bool lsn_parse(const char *text, XLogRecPtr *ret_lsn)
{
    uint32_t hi, lo;
    int end = 0;
    /* sscanf alone takes blanks, signs and 0x as well */
    if (text[strspn(text, "0123456789ABCDEFabcdef/")] != '\0')
        return false;
    if (sscanf(text, "%8X/%8X%n", &hi, &lo, &end) != 2 || text[end] != '\0')
        return false;
    *ret_lsn = (uint64_t)hi << 32 | lo;
    return true;
}

static inline XLogRecPtr lsn_segment_start(XLogRecPtr lsn, uint64_t segment_bytes)
{
    return lsn - lsn % segment_bytes;
}
