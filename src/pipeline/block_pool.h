/* Blocks that were sent, kept for the next ones: memory that comes from the kernel again costs more
 * than what is written to it. Bounded, beside the budget. Any thread. */
#pragma once
#include "native/block.h"

#include <pthread.h>

#define BLOCK_POOL_BLOCKS 64
#define BLOCK_POOL_BYTES ((size_t)32 << 20)

struct block_pool {
    pthread_mutex_t lock;
    struct block *spare[BLOCK_POOL_BLOCKS]; /* the one given last is the last */
    size_t bytes[BLOCK_POOL_BLOCKS];        /* room of each */
    unsigned n;
    size_t total;
};

void block_pool_init(struct block_pool *p);
void block_pool_fini(struct block_pool *p);
/* An empty block of this header, the caller's: block_pool_give or block_free. */
struct block *block_pool_take(struct block_pool *p, const struct block_header *header);
/* Consumes the block; NULL is fine. */
void block_pool_give(struct block_pool *p, struct block *b);
