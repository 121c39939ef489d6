/* A growable byte buffer. Zero-initialised is empty; buf_free makes it so again. */
#pragma once
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct buf {
    uint8_t *data;
    size_t len;
    size_t cap;
};

void buf_grow(struct buf *b, size_t more); /* slow path of buf_reserve */
void buf_free(struct buf *b);
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF(2, 3); /* keeps no NUL in len */

/* Room for `more` bytes behind len; returns where they go. The caller adds to len. */
static inline uint8_t *buf_reserve(struct buf *b, size_t more)
{
    if (__builtin_expect(b->cap - b->len < more || b->data == NULL, 0))
        buf_grow(b, more);
    return b->data + b->len;
}
static inline void buf_put(struct buf *b, const void *data, size_t n)
{
    uint8_t *at = buf_reserve(b, n);
    if (n > 0)
        memcpy(at, data, n);
    b->len += n;
}
static inline void buf_put_zeros(struct buf *b, size_t n)
{
    uint8_t *at = buf_reserve(b, n);
    if (n > 0)
        memset(at, 0, n);
    b->len += n;
}
static inline void buf_put_u8(struct buf *b, uint8_t v)
{
    *buf_reserve(b, 1) = v;
    b->len++;
}
#define BUF_PUT_LE(name, type)                                                                     \
    static inline void name(struct buf *b, type v)                                                 \
    {                                                                                              \
        memcpy(buf_reserve(b, sizeof v), &v, sizeof v);                                            \
        b->len += sizeof v;                                                                        \
    }
BUF_PUT_LE(buf_put_u16, uint16_t)
BUF_PUT_LE(buf_put_u32, uint32_t)
BUF_PUT_LE(buf_put_u64, uint64_t)
BUF_PUT_LE(buf_put_i32, int32_t)
BUF_PUT_LE(buf_put_i64, int64_t)

/* LEB128 unsigned, as ClickHouse writes lengths. */
static inline void buf_put_varint(struct buf *b, uint64_t v)
{
    uint8_t *at = buf_reserve(b, 10);
    size_t n = 0;
    while (v >= 0x80) {
        at[n++] = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    at[n++] = (uint8_t)v;
    b->len += n;
}
static inline void buf_put_str(struct buf *b, const char *s)
{
    size_t n = strlen(s);
    buf_put_varint(b, n);
    buf_put(b, s, n);
}
/* NUL-terminates without counting it, so that data can be used as a C string. */
static inline char *buf_cstr(struct buf *b)
{
    *buf_reserve(b, 1) = 0;
    return (char *)b->data;
}
static inline void buf_reset(struct buf *b)
{
    b->len = 0;
}
#define CLEANUP_BUF __attribute__((cleanup(buf_free)))
