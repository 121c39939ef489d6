/* Bounds-checked reading of bytes from outside: little-endian, never by struct cast.
 * A read past the end returns false (0 / NULL) and leaves the cursor in its failed state, so a run
 * of reads can be checked once at its end with cursor_ok. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct cursor {
    const uint8_t *data;
    size_t len;
    size_t pos;
    bool failed;
};

static inline struct cursor cursor_of(const void *data, size_t len)
{
    return (struct cursor){data, len, 0, false};
}
static inline bool cursor_ok(const struct cursor *c)
{
    return !c->failed;
}
static inline size_t cursor_left(const struct cursor *c)
{
    return c->failed ? 0 : c->len - c->pos;
}
/* n bytes in place, or NULL. */
static inline const uint8_t *cursor_take(struct cursor *c, size_t n)
{
    if (c->failed || c->len - c->pos < n) {
        c->failed = true;
        return NULL;
    }
    const uint8_t *at = c->data + c->pos;
    c->pos += n;
    return at;
}
static inline bool cursor_skip(struct cursor *c, size_t n)
{
    return cursor_take(c, n) != NULL;
}
#define CURSOR_GET(name, type)                                                                     \
    static inline type name(struct cursor *c)                                                      \
    {                                                                                              \
        type v = 0;                                                                                \
        const uint8_t *at = cursor_take(c, sizeof v);                                              \
        if (at != NULL)                                                                            \
            memcpy(&v, at, sizeof v);                                                              \
        return v;                                                                                  \
    }
CURSOR_GET(cursor_u8, uint8_t)
CURSOR_GET(cursor_u16, uint16_t)
CURSOR_GET(cursor_u32, uint32_t)
CURSOR_GET(cursor_u64, uint64_t)
CURSOR_GET(cursor_i32, int32_t)
CURSOR_GET(cursor_i64, int64_t)

static inline uint64_t cursor_varint(struct cursor *c)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte = cursor_u8(c);
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return v;
    }
    c->failed = true;
    return 0;
}
