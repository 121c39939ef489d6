/* Memory of one lifetime: allocate many, release all at once. Not thread-safe. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct arena_chunk;
struct arena {
    struct arena_chunk *chunks; /* newest first */
    uint8_t *at;
    size_t left;
    size_t bytes; /* handed out since the last reset */
};

void *arena_alloc_slow(struct arena *a, size_t n);
char *arena_strdup(struct arena *a, const char *s);
void *arena_copy(struct arena *a, const void *data, size_t n);
void arena_reset(struct arena *a); /* keeps the newest chunk for reuse */
void arena_free(struct arena *a);

/* 8-byte aligned, not zeroed, never NULL. */
static inline void *arena_alloc(struct arena *a, size_t n)
{
    n = (n + 7) & ~(size_t)7;
    if (__builtin_expect(a->left < n || a->at == NULL, 0)) /* NULL: nothing of 0 bytes yet */
        return arena_alloc_slow(a, n);
    void *p = a->at;
    a->at += n;
    a->left -= n;
    a->bytes += n;
    return p;
}
