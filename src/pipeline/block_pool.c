#include "pipeline/block_pool.h"

#include <string.h>

/* One of more room would take the others' place, and is seldom needed whole. */
#define BLOCK_BYTES_MAX (BLOCK_POOL_BYTES / 4)

void block_pool_init(struct block_pool *p)
{
    memset(p, 0, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
}

void block_pool_fini(struct block_pool *p)
{
    for (unsigned i = 0; i < p->n; i++)
        block_free(p->spare[i]);
    pthread_mutex_destroy(&p->lock);
}

/* Under the lock. */
static struct block *take_at(struct block_pool *p, unsigned i)
{
    struct block *b = p->spare[i];
    unsigned behind = p->n - i - 1;
    p->total -= p->bytes[i];
    memmove(&p->spare[i], &p->spare[i + 1], behind * sizeof(struct block *));
    memmove(&p->bytes[i], &p->bytes[i + 1], behind * sizeof p->bytes[0]);
    p->n--;
    return b;
}

struct block *block_pool_take(struct block_pool *p, const struct block_header *header)
{
    struct block *b = NULL;
    pthread_mutex_lock(&p->lock);
    for (unsigned i = p->n; i > 0 && b == NULL; i--)
        if (p->spare[i - 1]->ncols == header->ncols)
            b = take_at(p, i - 1);
    pthread_mutex_unlock(&p->lock);
    if (b == NULL)
        return block_new(header);
    b->header = header;
    return b;
}

/* Empties it; returns its room. */
static size_t reset(struct block *b)
{
    size_t room = 0;
    b->rows = 0;
    for (unsigned i = 0; i < b->ncols; i++) {
        buf_reset(&b->cols[i].nulls);
        buf_reset(&b->cols[i].data);
        room += b->cols[i].nulls.cap + b->cols[i].data.cap;
    }
    return room;
}

void block_pool_give(struct block_pool *p, struct block *b)
{
    if (b == NULL)
        return;
    size_t room = reset(b);
    if (room > BLOCK_BYTES_MAX) {
        block_free(b);
        return;
    }
    pthread_mutex_lock(&p->lock);
    while (p->n == BLOCK_POOL_BLOCKS || p->total + room > BLOCK_POOL_BYTES)
        block_free(take_at(p, 0));
    p->spare[p->n] = b;
    p->bytes[p->n++] = room;
    p->total += room;
    pthread_mutex_unlock(&p->lock);
}
