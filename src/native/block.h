/* Columns in ClickHouse's Native payload layout, without headers: those are written per destination
 * and revision at send time (clickhouse-notes 6). */
#pragma once
#include "base/buf.h"

#include <stdint.h>

/* One column under construction or complete: sent as prefix, nulls, data. */
struct column_buf {
    struct buf nulls; /* Nullable(T): one byte a row, 1 = NULL; else unused */
    struct buf data;
};

struct column_header {
    char *name;
    char *type; /* ClickHouse type text */
};

/* Names and types of a block's columns; shared by all blocks of one target shape, immutable. */
struct block_header {
    unsigned ncols;
    struct column_header cols[];
};

struct block {
    const struct block_header *header; /* owner: the target shape, which outlives the block */
    uint32_t rows;
    unsigned ncols;
    struct column_buf cols[];
};

struct block *block_new(const struct block_header *header);
void block_free(struct block *b);
size_t block_bytes(const struct block *b); /* payload bytes of all columns */
