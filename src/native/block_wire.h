/* Blocks inside Data packets: BlockInfo, counts, column headers, payloads (ClickHouse,
 * src/Formats/NativeReader.cpp and NativeWriter.cpp, src/Core/BlockInfo.cpp).
 *
 * The reader finds the parts of a block in bytes that still arrive; it copies no payload. */
#pragma once
#include "base/arena.h"
#include "native/block.h"
#include "native/column.h"
#include "native/packet.h"

#define BLOCK_COLUMNS_MAX 65536u
#define BLOCK_ROWS_MAX ((uint64_t)1 << 32)

/* One column of a block being read. Offsets count from the block's first byte. */
struct block_reader_column {
    const char *name, *type_text; /* NUL-terminated, in the reader's arena */
    const struct type_node *type; /* NULL when rows = 0 and the text does not parse */
    size_t data, data_len;        /* payload with state prefixes; 0 bytes when rows = 0 */
};

/* Zero-initialise with revision and max_bytes set. */
struct block_reader {
    uint64_t revision; /* 0 = without BlockInfo and flag bytes, as libchdb's Native format */
    size_t max_bytes;  /* a longer block is PARSE_BAD */
    uint64_t rows;
    uint64_t ncols;
    struct block_reader_column *cols; /* grows as headers arrive: `done` are complete */
    /* private: how far a growing buffer has been read */
    unsigned done, cap;
    int stage;
    size_t pos;
    struct column_walk_memo memo;
    struct arena arena;
};

/* Reads on. data is the block's first byte, len what has arrived of it; calls for one block pass
 * the same bytes plus more (the memory may move). PARSE_DONE: *ret_len bytes are the whole block.
 */
enum parse_result block_reader_parse(struct block_reader *r, const uint8_t *data, size_t len,
                                     size_t *ret_len, struct error *err);
void block_reader_reset(
    struct block_reader *r); /* for the next block; keeps revision and max_bytes */
void block_reader_fini(struct block_reader *r);
static inline bool
block_reader_is_empty(const struct block_reader *r) /* 0 columns: end of the data */
{
    return r->ncols == 0;
}

/* BlockInfo (revision > 0), number of columns, number of rows. */
void block_wire_put_start(struct buf *out, uint64_t revision, uint64_t ncols, uint64_t rows);
/* Name, type, and the flag byte of revisions that have it; the payload follows. */
void block_wire_put_column(struct buf *out, uint64_t revision, struct str name, struct str type);
