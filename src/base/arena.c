#include "base/arena.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define ARENA_CHUNK ((size_t)64 << 10)

struct arena_chunk {
    struct arena_chunk *next;
    size_t cap;
    uint8_t data[] __attribute__((aligned(16)));
};

void *arena_alloc_slow(struct arena *a, size_t n)
{
    size_t cap = MAX(n, ARENA_CHUNK);
    struct arena_chunk *c = xmalloc(sizeof *c + cap);
    c->cap = cap;
    c->next = a->chunks;
    a->chunks = c;
    a->at = c->data + n;
    a->left = cap - n;
    a->bytes += n;
    return c->data;
}

char *arena_strdup(struct arena *a, const char *s)
{
    return arena_copy(a, s, strlen(s) + 1);
}

void *arena_copy(struct arena *a, const void *data, size_t n)
{
    void *p = arena_alloc(a, n);
    if (n > 0)
        memcpy(p, data, n);
    return p;
}

static void free_from(struct arena_chunk *c)
{
    while (c != NULL) {
        struct arena_chunk *next = c->next;
        free(c);
        c = next;
    }
}

void arena_reset(struct arena *a)
{
    struct arena_chunk *keep = a->chunks;
    if (keep == NULL)
        return;
    free_from(keep->next);
    keep->next = NULL;
    a->at = keep->data;
    a->left = keep->cap;
    a->bytes = 0;
}

void arena_free(struct arena *a)
{
    free_from(a->chunks);
    *a = (struct arena){0};
}
