/* jsonb: a tree of containers, printed without recursion, in the order it is stored.
 * Source: utils/jsonb.h (JsonbContainer, JEntry), JsonbToCString of utils/adt/jsonb.c and
 * escape_json of json.c; the same in 15 to 18. */
#include "types/family.h"
#include "types/json_text.h"
#include "types/numeric.h"

#include <stdlib.h>

#define JB_CMASK 0x0FFFFFFFu
#define JB_FSCALAR 0x10000000u
#define JB_FOBJECT 0x20000000u
#define JB_FARRAY 0x40000000u

#define JENTRY_OFFLENMASK 0x0FFFFFFFu
#define JENTRY_TYPEMASK 0x70000000u
#define JENTRY_HAS_OFF 0x80000000u
#define JENTRY_ISSTRING 0x00000000u
#define JENTRY_ISNUMERIC 0x10000000u
#define JENTRY_ISBOOL_FALSE 0x20000000u
#define JENTRY_ISBOOL_TRUE 0x30000000u
#define JENTRY_ISNULL 0x40000000u
#define JENTRY_ISCONTAINER 0x50000000u

#define SHALLOW 32u     /* levels that need no allocation */
#define DEEPEST 100000u /* PostgreSQL's parser ends long before, at its stack's limit */

/* An open container: what of it is printed. */
struct level {
    const uint8_t *entries; /* JEntry words: elements, or keys and behind them values */
    const uint8_t *base;    /* what offsets count from */
    uint32_t size;          /* bytes from base to the container's end */
    uint32_t count;         /* elements or pairs */
    uint32_t next;
    uint32_t key_at, value_at; /* offsets of the next ones */
    bool object, scalar;
};

struct writer {
    struct buf *out;
    struct level shallow[SHALLOW];
    struct level *levels;
    uint32_t depth, cap;
};

void json_string_put(struct buf *out, const uint8_t *data, size_t len)
{
    static const char hex[] = "0123456789abcdef";
    static const char short_escapes[] = {
        ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    uint8_t *at = buf_reserve(out, len * 6 + 2), *start = at;
    *at++ = '"';
    for (size_t i = 0; i < len; i++) {
        uint8_t c = data[i];
        if (__builtin_expect(c >= ' ' && c != '"' && c != '\\', 1)) {
            *at++ = c;
            continue;
        }
        *at++ = '\\';
        if (c >= ' ') {
            *at++ = c;
        } else if (c < sizeof short_escapes && short_escapes[c] != 0) {
            *at++ = (uint8_t)short_escapes[c];
        } else {
            memcpy(at, "u00", 3);
            at[3] = (uint8_t)hex[c >> 4];
            at[4] = (uint8_t)hex[c & 15];
            at += 5;
        }
    }
    *at++ = '"';
    out->len += (size_t)(at - start);
}

bool json_numeric_put(struct buf *out, const uint8_t *data, size_t left)
{
    struct numeric n;
    uint32_t total, head;
    if (left < 1)
        return false;
    if (data[0] & 1) {
        total = data[0] >> 1;
        head = 1;
    } else if (left >= 4) {
        memcpy(&total, data, sizeof total);
        head = 4;
        if ((total & 3) != 0)
            return false;
        total >>= 2;
    } else {
        return false;
    }
    if (total < head || total > left || !numeric_parse(data + head, total - head, &n))
        return false;
    numeric_text_put(&n, out);
    return true;
}

static uint32_t word_at(const uint8_t *data, uint32_t index)
{
    uint32_t v;
    memcpy(&v, data + (size_t)index * 4, sizeof v);
    return v;
}

/* Where entry `index`, which begins at `start`, ends. */
static uint32_t entry_end(uint32_t entry, uint32_t start)
{
    uint32_t n = entry & JENTRY_OFFLENMASK;
    return entry & JENTRY_HAS_OFF ? n : start + n;
}

/* Opens the container in data[0 .. len). */
static bool level_push(struct writer *w, const uint8_t *data, uint32_t len)
{
    if (len < 4 || w->depth >= DEEPEST)
        return false;
    uint32_t header = word_at(data, 0);
    struct level l = {.count = header & JB_CMASK, .object = (header & JB_FOBJECT) != 0};
    uint64_t nentries = (uint64_t)l.count * (l.object ? 2 : 1);
    if (((header & JB_FARRAY) != 0) == l.object || 4 + nentries * 4 > len)
        return false;
    l.scalar = !l.object && (header & JB_FSCALAR) != 0;
    if (l.scalar && (l.count != 1 || w->depth > 0))
        return false;
    l.entries = data + 4;
    l.base = data + 4 + nentries * 4;
    l.size = len - 4 - (uint32_t)nentries * 4;
    if (l.object) {
        for (uint32_t i = 0; i < l.count; i++) {
            uint32_t end = entry_end(word_at(l.entries, i), l.value_at);
            if (end < l.value_at || end > l.size)
                return false;
            l.value_at = end;
        }
    }
    if (w->depth == w->cap) {
        struct level *more = xmalloc((size_t)w->cap * 4 * sizeof *more);
        memcpy(more, w->levels, (size_t)w->cap * sizeof *more);
        if (w->levels != w->shallow)
            free(w->levels);
        w->levels = more;
        w->cap *= 4;
    }
    w->levels[w->depth++] = l;
    if (!l.scalar)
        buf_put_u8(w->out, l.object ? '{' : '[');
    return true;
}

static void level_pop(struct writer *w)
{
    const struct level *l = &w->levels[--w->depth];
    if (!l->scalar)
        buf_put_u8(w->out, l->object ? '}' : ']');
}

static bool put_key(struct writer *w, struct level *l)
{
    uint32_t entry = word_at(l->entries, l->next);
    uint32_t end = entry_end(entry, l->key_at);
    if ((entry & JENTRY_TYPEMASK) != JENTRY_ISSTRING || end < l->key_at || end > l->size)
        return false;
    json_string_put(w->out, l->base + l->key_at, end - l->key_at);
    put_text(w->out, ": ");
    l->key_at = end;
    return true;
}

/* Prints the next element, or opens it. */
static bool put_next(struct writer *w)
{
    struct level *l = &w->levels[w->depth - 1];
    if (l->next > 0)
        put_text(w->out, ", ");
    if (l->object && !put_key(w, l))
        return false;
    uint32_t entry = word_at(l->entries, l->object ? l->count + l->next : l->next);
    uint32_t start = l->value_at, end = entry_end(entry, start);
    if (end < start || end > l->size)
        return false;
    l->value_at = end;
    l->next++;
    uint32_t aligned = (start + 3) & ~3u;
    switch (entry & JENTRY_TYPEMASK) {
    case JENTRY_ISSTRING:
        json_string_put(w->out, l->base + start, end - start);
        return true;
    case JENTRY_ISNUMERIC:
        return aligned <= end && json_numeric_put(w->out, l->base + aligned, end - aligned);
    case JENTRY_ISBOOL_FALSE:
        put_text(w->out, "false");
        return true;
    case JENTRY_ISBOOL_TRUE:
        put_text(w->out, "true");
        return true;
    case JENTRY_ISNULL:
        put_text(w->out, "null");
        return true;
    case JENTRY_ISCONTAINER:
        return !l->scalar && aligned <= end && level_push(w, l->base + aligned, end - aligned);
    default:
        return false;
    }
}

static bool jsonb_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    struct writer w;
    size_t before = out->len;
    w.out = out;
    w.levels = w.shallow;
    w.depth = 0;
    w.cap = SHALLOW;
    bool ok = level_push(&w, data, len);
    while (ok && w.depth > 0) {
        if (w.levels[w.depth - 1].next == w.levels[w.depth - 1].count)
            level_pop(&w);
        else
            ok = put_next(&w);
    }
    if (w.levels != w.shallow)
        free(w.levels);
    if (!ok)
        out->len = before;
    return ok;
}

const struct type_family family_jsonb = {
    .typid = 3802, .attlen = -1, .default_type = type_default_string, .text = jsonb_text};
