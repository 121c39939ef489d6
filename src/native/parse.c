#include "native/parse.h"

#include <stdarg.h>
#include <stdio.h>

struct wire wire_begin(struct cursor *in, struct error *err)
{
    return (struct wire){in, in->pos, in->failed ? PARSE_MORE : PARSE_DONE, err};
}

enum parse_result wire_end(struct wire *w)
{
    if (w->state != PARSE_DONE) {
        w->in->pos = w->start;
        w->in->failed = false;
    }
    return w->state;
}

enum parse_result wire_bad(struct wire *w, const char *fmt, ...)
{
    char text[300];
    va_list args;
    if (w->state != PARSE_DONE)
        return w->state; /* the first one counts */
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    error_set(w->err, ERR_DATA, "%s", text);
    return w->state = PARSE_BAD;
}

static const uint8_t *take(struct wire *w, size_t n)
{
    if (w->state != PARSE_DONE)
        return NULL;
    const uint8_t *at = cursor_take(w->in, n);
    if (at == NULL)
        w->state = PARSE_MORE;
    return at;
}

uint64_t wire_varint(struct wire *w)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        const uint8_t *at = take(w, 1);
        if (at == NULL)
            return 0;
        v |= (uint64_t)(*at & 0x7f) << shift;
        if (!(*at & 0x80))
            return v;
    }
    wire_bad(w, "a variable-length number has more than 10 bytes");
    return 0;
}

uint8_t wire_u8(struct wire *w)
{
    const uint8_t *at = take(w, 1);
    return at == NULL ? 0 : *at;
}

int32_t wire_i32(struct wire *w)
{
    int32_t v = 0;
    const uint8_t *at = take(w, sizeof v);
    if (at != NULL)
        memcpy(&v, at, sizeof v);
    return v;
}

int64_t wire_i64(struct wire *w)
{
    int64_t v = 0;
    const uint8_t *at = take(w, sizeof v);
    if (at != NULL)
        memcpy(&v, at, sizeof v);
    return v;
}

void wire_skip(struct wire *w, size_t n)
{
    take(w, n);
}

struct str wire_str(struct wire *w, size_t max, const char *what)
{
    uint64_t len = wire_varint(w);
    if (w->state == PARSE_DONE && len > max)
        wire_bad(w, "%s of %llu bytes is longer than %zu", what, (unsigned long long)len, max);
    const uint8_t *at = take(w, w->state == PARSE_DONE ? (size_t)len : 0);
    return at == NULL ? (struct str){"", 0} : (struct str){(const char *)at, (size_t)len};
}
