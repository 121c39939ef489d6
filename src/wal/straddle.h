/* A record that begins before the start position and ends after it. */
#pragma once
#include "pg/pg.h"

enum wal_straddle {
    WAL_STRADDLE_UNKNOWN, /* nothing is known of it: its bytes become zeros */
    WAL_STRADDLE_FORWARD, /* the bytes before went through as they were: so do the rest */
    WAL_STRADDLE_NOOP,    /* the bytes before were made a no-op: the rest becomes one */
};

/* The record's bytes in the archive before the position. A header cut by the position (a record can
 * begin 8 or 16 bytes before a page's end) is completed from them. */
struct wal_straddle_head {
    XLogRecPtr start;  /* of the record; 0 = nothing straddles or not known */
    uint64_t passed;   /* bytes of it before the position, page headers not counted */
    uint8_t head[32];  /* its first bytes, as archived */
    uint32_t head_len; /* MIN(passed, 32) */
};
