#include "native/block.h"

#include <stdlib.h>

struct block *block_new(const struct block_header *header)
{
    struct block *b = xcalloc(1, sizeof *b + header->ncols * sizeof b->cols[0]);
    b->header = header;
    b->ncols = header->ncols;
    return b;
}

void block_free(struct block *b)
{
    if (b == NULL)
        return;
    for (unsigned i = 0; i < b->ncols; i++) {
        buf_free(&b->cols[i].nulls);
        buf_free(&b->cols[i].data);
    }
    free(b);
}

size_t block_bytes(const struct block *b)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < b->ncols; i++)
        bytes += b->cols[i].nulls.len + b->cols[i].data.len;
    return bytes;
}
