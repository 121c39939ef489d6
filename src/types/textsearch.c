/* tsvector and tsquery.
 * Source: tsearch/ts_type.h (WordEntry, WordEntryPos, QueryItem), tsvectorout of
 * utils/adt/tsvector.c, infix of tsquery.c; the same in 15 to 18. */
#include "types/family.h"

#include "base/bytes.h"

#include <stdlib.h>

/* 'text' with quotes and backslashes doubled */
static void put_lexeme(struct buf *out, const uint8_t *data, size_t len)
{
    uint8_t *at = buf_reserve(out, 2 * len + 2), *start = at;
    *at++ = '\'';
    for (size_t i = 0; i < len; i++) {
        if (data[i] == '\'' || data[i] == '\\')
            *at++ = data[i];
        *at++ = data[i];
    }
    *at++ = '\'';
    out->len += (size_t)(at - start);
}

/* A count, then per place 14 bits of position and 2 of weight. */
static bool put_positions(struct buf *out, const uint8_t *data, size_t left)
{
    static const char weights[] = {0, 'C', 'B', 'A'};
    if (left < 2)
        return false;
    unsigned n = u16_at(data);
    if (n == 0)
        return true;
    if ((left - 2) / 2 < n)
        return false;
    for (unsigned i = 0; i < n; i++) {
        unsigned place = u16_at(data + 2 + 2 * (size_t)i);
        buf_printf(out, i == 0 ? ":%u" : ",%u", place & 0x3fff);
        if (place >> 14 != 0)
            buf_put_u8(out, (uint8_t)weights[place >> 14]);
    }
    return true;
}

static bool tsvector_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    size_t before = out->len;
    if (len < 4)
        return false;
    uint32_t n = u32_at(data);
    if ((len - 4) / 4 < n)
        return false;
    const uint8_t *words = data + 4 + (size_t)n * 4;
    uint32_t size = len - 4 - n * 4;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t entry = u32_at(data + 4 + (size_t)i * 4);
        uint32_t word_len = entry >> 1 & 0x7ff, pos = entry >> 12, end = pos + word_len;
        uint32_t places = (end + 1) & ~1u;
        bool ok = end <= size;
        if (ok) {
            if (i > 0)
                buf_put_u8(out, ' ');
            put_lexeme(out, words + pos, word_len);
            if (entry & 1)
                ok = places <= size && put_positions(out, words + places, size - places);
        }
        if (!ok) {
            out->len = before;
            return false;
        }
    }
    return true;
}

/* ---- tsquery ---- */

#define ITEM_BYTES 12u
#define QI_VAL 1
#define QI_OPR 2
enum { OP_NOT = 1, OP_AND = 2, OP_OR = 3, OP_PHRASE = 4 };

#define SHALLOW 64u

struct query {
    const uint8_t *items;
    uint32_t nitems;
    const uint8_t *operands;
    uint32_t operands_len;
    struct buf *out;
};

/* An operator whose operands are being printed: the left one comes first in the text, the right one
 * is stored first. */
struct open_operator {
    uint32_t item;
    uint8_t state; /* operands begun */
    bool parenthesis;
};

static int priority_of(int op)
{
    static const int priorities[] = {[OP_NOT] = 4, [OP_AND] = 2, [OP_OR] = 1, [OP_PHRASE] = 3};
    return priorities[op];
}

static bool put_operand(const struct query *q, const uint8_t *item)
{
    uint32_t word = u32_at(item + 8);
    uint32_t len = word & 0xfff, at = word >> 12;
    unsigned weight = item[1];
    if (at > q->operands_len || q->operands_len - at < len)
        return false;
    put_lexeme(q->out, q->operands + at, strnlen((const char *)q->operands + at, len));
    if (weight == 0 && item[2] == 0)
        return true;
    buf_put_u8(q->out, ':');
    if (item[2] != 0)
        buf_put_u8(q->out, '*');
    for (int bit = 3; bit >= 0; bit--)
        if (weight & 1u << bit)
            buf_put_u8(q->out, (uint8_t)('D' - bit));
    return true;
}

static void put_operator(const struct query *q, const uint8_t *item)
{
    unsigned distance = u16_at(item + 2);
    if (item[1] == OP_AND)
        put_text(q->out, " & ");
    else if (item[1] == OP_OR)
        put_text(q->out, " | ");
    else if (distance == 1)
        put_text(q->out, " <-> ");
    else
        buf_printf(q->out, " <%d> ", (int16_t)distance);
}

struct query_stack {
    struct open_operator shallow[SHALLOW];
    struct open_operator *open;
    uint32_t depth, cap;
};

static void query_push(struct query_stack *s, struct open_operator o)
{
    if (s->depth == s->cap) {
        struct open_operator *more = xmalloc((size_t)s->cap * 4 * sizeof *more);
        memcpy(more, s->open, (size_t)s->cap * sizeof *more);
        if (s->open != s->shallow)
            free(s->open);
        s->open = more;
        s->cap *= 4;
    }
    s->open[s->depth++] = o;
}

/* Prints an operand or opens an operator. Each item lies behind its operator, so this ends. */
static bool query_begin(const struct query *q, struct query_stack *s, uint32_t at, bool right)
{
    const uint8_t *item = q->items + (size_t)at * ITEM_BYTES;
    if (item[0] == QI_VAL)
        return put_operand(q, item);
    if (item[0] != QI_OPR || item[1] < OP_NOT || item[1] > OP_PHRASE)
        return false;
    const uint8_t *parent =
        s->depth > 0 ? q->items + (size_t)s->open[s->depth - 1].item * ITEM_BYTES : NULL;
    int parent_priority = parent == NULL ? -1 : priority_of(parent[1]);
    bool parenthesis = priority_of(item[1]) < parent_priority ||
                       (item[1] == OP_PHRASE && right && parent != NULL && parent[1] == OP_PHRASE);
    if (parenthesis)
        put_text(q->out, "( ");
    if (item[1] == OP_NOT)
        buf_put_u8(q->out, '!');
    query_push(s, (struct open_operator){.item = at, .parenthesis = parenthesis});
    return true;
}

static bool query_step(const struct query *q, struct query_stack *s)
{
    struct open_operator *o = &s->open[s->depth - 1];
    const uint8_t *item = q->items + (size_t)o->item * ITEM_BYTES;
    uint32_t right = o->item + 1, left = u32_at(item + 4);
    bool unary = item[1] == OP_NOT;
    if (o->state == (unary ? 1 : 2)) {
        if (o->parenthesis)
            put_text(q->out, " )");
        s->depth--;
        return true;
    }
    if (right >= q->nitems || (!unary && (left < 2 || left >= q->nitems - o->item)))
        return false;
    bool at_left = !unary && o->state == 0;
    if (!unary && o->state == 1)
        put_operator(q, item);
    o->state++;
    return query_begin(q, s, at_left ? o->item + left : right, !at_left && !unary);
}

static bool tsquery_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    size_t before = out->len;
    if (len < 4)
        return false;
    struct query q = {.items = data + 4, .nitems = u32_at(data), .out = out};
    if ((len - 4) / ITEM_BYTES < q.nitems)
        return false;
    if (q.nitems == 0)
        return true;
    q.operands = q.items + (size_t)q.nitems * ITEM_BYTES;
    q.operands_len = len - 4 - q.nitems * ITEM_BYTES;
    struct query_stack s = {.cap = SHALLOW};
    s.open = s.shallow;
    uint64_t steps = 3 * (uint64_t)q.nitems; /* a damaged tree may share operands */
    bool ok = query_begin(&q, &s, 0, false);
    while (ok && s.depth > 0)
        ok = steps-- > 0 && query_step(&q, &s);
    if (s.open != s.shallow)
        free(s.open);
    if (!ok)
        out->len = before;
    return ok;
}

const struct type_family family_tsvector = {
    .typid = 3614, .attlen = -1, .default_type = type_default_string, .text = tsvector_text};
const struct type_family family_tsquery = {
    .typid = 3615, .attlen = -1, .default_type = type_default_string, .text = tsquery_text};
