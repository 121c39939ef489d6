#include "load/load_internal.h"

#include <stdlib.h>

#define PAGE_BITS 32768u

bool block_set_has(const struct block_set *s, BlockNumber block)
{
    uint32_t page = block / PAGE_BITS, bit = block % PAGE_BITS;
    return page < s->npages && s->pages[page] != NULL &&
           (s->pages[page][bit / 64] >> (bit % 64) & 1);
}

bool block_set_add(struct block_set *s, BlockNumber block)
{
    uint32_t page = block / PAGE_BITS, bit = block % PAGE_BITS;
    if (page >= s->npages) {
        uint32_t npages = MAX(page + 1, 2 * s->npages);
        s->pages = xrealloc(s->pages, npages * sizeof *s->pages);
        memset(s->pages + s->npages, 0, (npages - s->npages) * sizeof *s->pages);
        s->npages = npages;
    }
    if (s->pages[page] == NULL)
        s->pages[page] = xcalloc(PAGE_BITS / 64, sizeof(uint64_t));
    uint64_t mask = 1ull << (bit % 64), *word = &s->pages[page][bit / 64];
    bool added = !(*word & mask);
    *word |= mask;
    return added;
}

void block_set_free(struct block_set *s)
{
    for (uint32_t i = 0; i < s->npages; i++)
        free(s->pages[i]);
    free(s->pages);
    *s = (struct block_set){0};
}
