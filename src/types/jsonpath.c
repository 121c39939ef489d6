/* jsonpath: items that point at their operands and at the next step, in a buffer.
 * Source: utils/jsonpath.h, jspInitByBuffer and printJsonPathItem of utils/adt/jsonpath.c. 17 has
 * appended item types to those of 15. */
#include "types/family.h"
#include "types/json_text.h"

#define JSONPATH_LAX 0x80000000u
#define JSONPATH_VERSION 1u

#define DEEPEST 3000u /* nested operands; steps of a path are a loop */

enum item_type { /* JsonPathItemType */
                 JPI_NULL,
                 JPI_STRING,
                 JPI_NUMERIC,
                 JPI_BOOL,
                 JPI_AND,
                 JPI_OR,
                 JPI_NOT,
                 JPI_IS_UNKNOWN,
                 JPI_EQUAL,
                 JPI_NOT_EQUAL,
                 JPI_LESS,
                 JPI_GREATER,
                 JPI_LESS_OR_EQUAL,
                 JPI_GREATER_OR_EQUAL,
                 JPI_ADD,
                 JPI_SUB,
                 JPI_MUL,
                 JPI_DIV,
                 JPI_MOD,
                 JPI_PLUS,
                 JPI_MINUS,
                 JPI_ANY_ARRAY,
                 JPI_ANY_KEY,
                 JPI_INDEX_ARRAY,
                 JPI_ANY,
                 JPI_KEY,
                 JPI_CURRENT,
                 JPI_ROOT,
                 JPI_VARIABLE,
                 JPI_FILTER,
                 JPI_EXISTS,
                 JPI_TYPE,
                 JPI_SIZE,
                 JPI_ABS,
                 JPI_FLOOR,
                 JPI_CEILING,
                 JPI_DOUBLE,
                 JPI_DATETIME,
                 JPI_KEY_VALUE,
                 JPI_SUBSCRIPT,
                 JPI_LAST,
                 JPI_STARTS_WITH,
                 JPI_LIKE_REGEX,
                 JPI_BIGINT, /* from here on 17 and later */
                 JPI_BOOLEAN,
                 JPI_DATE,
                 JPI_DECIMAL,
                 JPI_INTEGER,
                 JPI_NUMBER,
                 JPI_STRING_FUNC,
                 JPI_TIME,
                 JPI_TIME_TZ,
                 JPI_TIMESTAMP,
                 JPI_TIMESTAMP_TZ,
                 JPI_COUNT
};

/* How an item is stored and printed. */
enum item_form {
    FORM_NONE,   /* no item of this type is stored */
    FORM_WORD,   /* `text` alone */
    FORM_BINARY, /* left text right */
    FORM_UNARY,  /* text(operand), the parenthesis as binary operators have it */
    FORM_CALL,   /* text operand ), the operand may be absent */
    FORM_SPECIAL,
};

static const struct item_kind {
    const char *text;
    uint8_t form;
    uint8_t priority;
} kinds[JPI_COUNT] = {
    [JPI_NULL] = {"null", FORM_WORD, 6},
    [JPI_STRING] = {NULL, FORM_SPECIAL, 6},
    [JPI_NUMERIC] = {NULL, FORM_SPECIAL, 6},
    [JPI_BOOL] = {NULL, FORM_SPECIAL, 6},
    [JPI_AND] = {"&&", FORM_BINARY, 1},
    [JPI_OR] = {"||", FORM_BINARY, 0},
    [JPI_NOT] = {"!(", FORM_CALL, 6},
    [JPI_IS_UNKNOWN] = {NULL, FORM_SPECIAL, 6},
    [JPI_EQUAL] = {"==", FORM_BINARY, 2},
    [JPI_NOT_EQUAL] = {"!=", FORM_BINARY, 2},
    [JPI_LESS] = {"<", FORM_BINARY, 2},
    [JPI_GREATER] = {">", FORM_BINARY, 2},
    [JPI_LESS_OR_EQUAL] = {"<=", FORM_BINARY, 2},
    [JPI_GREATER_OR_EQUAL] = {">=", FORM_BINARY, 2},
    [JPI_ADD] = {"+", FORM_BINARY, 3},
    [JPI_SUB] = {"-", FORM_BINARY, 3},
    [JPI_MUL] = {"*", FORM_BINARY, 4},
    [JPI_DIV] = {"/", FORM_BINARY, 4},
    [JPI_MOD] = {"%", FORM_BINARY, 4},
    [JPI_PLUS] = {"+", FORM_UNARY, 5},
    [JPI_MINUS] = {"-", FORM_UNARY, 5},
    [JPI_ANY_ARRAY] = {"[*]", FORM_WORD, 6},
    [JPI_ANY_KEY] = {NULL, FORM_SPECIAL, 6},
    [JPI_INDEX_ARRAY] = {NULL, FORM_SPECIAL, 6},
    [JPI_ANY] = {NULL, FORM_SPECIAL, 6},
    [JPI_KEY] = {NULL, FORM_SPECIAL, 6},
    [JPI_CURRENT] = {"@", FORM_WORD, 6},
    [JPI_ROOT] = {"$", FORM_WORD, 6},
    [JPI_VARIABLE] = {NULL, FORM_SPECIAL, 6},
    [JPI_FILTER] = {"?(", FORM_CALL, 6},
    [JPI_EXISTS] = {"exists (", FORM_CALL, 6},
    [JPI_TYPE] = {".type()", FORM_WORD, 6},
    [JPI_SIZE] = {".size()", FORM_WORD, 6},
    [JPI_ABS] = {".abs()", FORM_WORD, 6},
    [JPI_FLOOR] = {".floor()", FORM_WORD, 6},
    [JPI_CEILING] = {".ceiling()", FORM_WORD, 6},
    [JPI_DOUBLE] = {".double()", FORM_WORD, 6},
    [JPI_DATETIME] = {".datetime(", FORM_CALL, 6},
    [JPI_KEY_VALUE] = {".keyvalue()", FORM_WORD, 6},
    [JPI_LAST] = {"last", FORM_WORD, 6},
    [JPI_STARTS_WITH] = {"starts with", FORM_BINARY, 2},
    [JPI_LIKE_REGEX] = {NULL, FORM_SPECIAL, 6},
    [JPI_BIGINT] = {".bigint()", FORM_WORD, 6},
    [JPI_BOOLEAN] = {".boolean()", FORM_WORD, 6},
    [JPI_DATE] = {".date()", FORM_WORD, 6},
    [JPI_DECIMAL] = {NULL, FORM_SPECIAL, 6},
    [JPI_INTEGER] = {".integer()", FORM_WORD, 6},
    [JPI_NUMBER] = {".number()", FORM_WORD, 6},
    [JPI_STRING_FUNC] = {".string()", FORM_WORD, 6},
    [JPI_TIME] = {".time(", FORM_CALL, 6},
    [JPI_TIME_TZ] = {".time_tz(", FORM_CALL, 6},
    [JPI_TIMESTAMP] = {".timestamp(", FORM_CALL, 6},
    [JPI_TIMESTAMP_TZ] = {".timestamp_tz(", FORM_CALL, 6},
};

struct path {
    const uint8_t *data; /* items; positions count from here */
    uint32_t len;
    struct buf *out;
    uint32_t left; /* items that may still be printed: an item lies once in a sound path */
};

struct item {
    enum item_type type;
    uint32_t pos;
    uint32_t next;        /* relative to pos; 0: the last step */
    struct cursor fields; /* behind it */
};

static bool put_items(struct path *p, uint32_t pos, bool in_key, bool parenthesis, unsigned depth);

static bool item_read(const struct path *p, uint32_t pos, struct item *ret)
{
    struct cursor c = cursor_of(p->data, p->len);
    if (pos >= p->len)
        return false;
    c.pos = pos;
    unsigned type = cursor_u8(&c);
    if (type >= JPI_COUNT || kinds[type].form == FORM_NONE)
        return false;
    cursor_skip(&c, (4 - c.pos % 4) % 4);
    *ret = (struct item){.type = (enum item_type)type, .pos = pos, .next = cursor_u32(&c)};
    ret->fields = c;
    return cursor_ok(&c);
}

/* An operand, with a parenthesis where it binds no tighter than its operator; without one if the
 * operator's is -1. */
static bool put_operand(struct path *p, const struct item *v, uint32_t relative, int priority,
                        unsigned depth)
{
    struct item operand;
    uint64_t pos = (uint64_t)v->pos + relative;
    if (relative == 0 || pos >= p->len || !item_read(p, (uint32_t)pos, &operand))
        return false;
    return put_items(p, (uint32_t)pos, false, kinds[operand.type].priority <= priority, depth + 1);
}

static bool put_quoted(struct path *p, struct cursor *c)
{
    uint32_t len = cursor_u32(c);
    const uint8_t *at = cursor_take(c, len);
    if (at == NULL)
        return false;
    json_string_put(p->out, at, len);
    return true;
}

static bool put_binary(struct path *p, const struct item *v, bool parenthesis, unsigned depth)
{
    struct cursor c = v->fields;
    const struct item_kind *kind = &kinds[v->type];
    uint32_t left = cursor_u32(&c), right = cursor_u32(&c);
    if (parenthesis)
        buf_put_u8(p->out, '(');
    if (!cursor_ok(&c) || !put_operand(p, v, left, kind->priority, depth))
        return false;
    buf_printf(p->out, " %s ", kind->text);
    if (!put_operand(p, v, right, kind->priority, depth))
        return false;
    if (parenthesis)
        buf_put_u8(p->out, ')');
    return true;
}

static bool put_unary(struct path *p, const struct item *v, bool parenthesis, unsigned depth)
{
    struct cursor c = v->fields;
    uint32_t operand = cursor_u32(&c);
    if (parenthesis)
        buf_put_u8(p->out, '(');
    put_text(p->out, kinds[v->type].text);
    if (!cursor_ok(&c) || !put_operand(p, v, operand, kinds[v->type].priority, depth))
        return false;
    if (parenthesis)
        buf_put_u8(p->out, ')');
    return true;
}

static bool put_call(struct path *p, const struct item *v, const char *begin, const char *end,
                     unsigned depth)
{
    struct cursor c = v->fields;
    uint32_t operand = cursor_u32(&c);
    put_text(p->out, begin);
    if (!cursor_ok(&c) || (operand != 0 && !put_operand(p, v, operand, -1, depth)))
        return false;
    put_text(p->out, end);
    return true;
}

static bool put_decimal(struct path *p, const struct item *v, unsigned depth)
{
    struct cursor c = v->fields;
    uint32_t precision = cursor_u32(&c), scale = cursor_u32(&c);
    put_text(p->out, ".decimal(");
    if (!cursor_ok(&c) || (precision != 0 && !put_operand(p, v, precision, -1, depth)))
        return false;
    if (scale != 0) {
        buf_put_u8(p->out, ',');
        if (!put_operand(p, v, scale, -1, depth))
            return false;
    }
    buf_put_u8(p->out, ')');
    return true;
}

static bool put_subscripts(struct path *p, const struct item *v, unsigned depth)
{
    struct cursor c = v->fields;
    uint32_t n = cursor_u32(&c);
    if (n > cursor_left(&c) / 8)
        return false;
    buf_put_u8(p->out, '[');
    for (uint32_t i = 0; i < n; i++) {
        uint32_t from = cursor_u32(&c), to = cursor_u32(&c);
        if (i > 0)
            buf_put_u8(p->out, ',');
        if (!put_operand(p, v, from, -1, depth))
            return false;
        if (to != 0) {
            put_text(p->out, " to ");
            if (!put_operand(p, v, to, -1, depth))
                return false;
        }
    }
    buf_put_u8(p->out, ']');
    return true;
}

/* ** with the levels it reaches */
static bool put_any(struct path *p, const struct item *v)
{
    struct cursor c = v->fields;
    uint32_t first = cursor_u32(&c), last = cursor_u32(&c);
    if (!cursor_ok(&c))
        return false;
    if (first == 0 && last == UINT32_MAX)
        put_text(p->out, "**");
    else if (first == last && first == UINT32_MAX)
        put_text(p->out, "**{last}");
    else if (first == last)
        buf_printf(p->out, "**{%u}", first);
    else if (first == UINT32_MAX)
        buf_printf(p->out, "**{last to %u}", last);
    else if (last == UINT32_MAX)
        buf_printf(p->out, "**{%u to last}", first);
    else
        buf_printf(p->out, "**{%u to %u}", first, last);
    return true;
}

static bool put_like_regex(struct path *p, const struct item *v, bool parenthesis, unsigned depth)
{
    static const char flag_names[] = "ismxq";
    struct cursor c = v->fields;
    uint32_t flags = cursor_u32(&c), operand = cursor_u32(&c);
    if (parenthesis)
        buf_put_u8(p->out, '(');
    if (!cursor_ok(&c) || !put_operand(p, v, operand, kinds[v->type].priority, depth))
        return false;
    put_text(p->out, " like_regex ");
    if (!put_quoted(p, &c))
        return false;
    if (flags != 0) {
        put_text(p->out, " flag \"");
        for (unsigned i = 0; flag_names[i] != 0; i++)
            if (flags & 1u << i)
                buf_put_u8(p->out, (uint8_t)flag_names[i]);
        buf_put_u8(p->out, '"');
    }
    if (parenthesis)
        buf_put_u8(p->out, ')');
    return true;
}

static bool put_number(struct path *p, const struct item *v)
{
    bool more = v->next != 0;
    if (more)
        buf_put_u8(p->out, '(');
    if (!json_numeric_put(p->out, v->fields.data + v->fields.pos, cursor_left(&v->fields)))
        return false;
    if (more)
        buf_put_u8(p->out, ')');
    return true;
}

static bool put_special(struct path *p, const struct item *v, bool in_key, bool parenthesis,
                        unsigned depth)
{
    struct cursor c = v->fields;
    bool dotted = v->type == JPI_ANY || v->type == JPI_ANY_KEY || v->type == JPI_KEY;
    if (in_key && dotted)
        buf_put_u8(p->out, '.');
    if (v->type == JPI_NUMERIC)
        return put_number(p, v);
    if (v->type == JPI_BOOL)
        put_text(p->out, cursor_u8(&c) != 0 ? "true" : "false");
    else if (v->type == JPI_IS_UNKNOWN)
        return put_call(p, v, "(", ") is unknown", depth);
    else if (v->type == JPI_ANY_KEY)
        buf_put_u8(p->out, '*');
    else if (v->type == JPI_INDEX_ARRAY)
        return put_subscripts(p, v, depth);
    else if (v->type == JPI_ANY)
        return put_any(p, v);
    else if (v->type == JPI_LIKE_REGEX)
        return put_like_regex(p, v, parenthesis, depth);
    else if (v->type == JPI_DECIMAL)
        return put_decimal(p, v, depth);
    else {
        if (v->type == JPI_VARIABLE)
            buf_put_u8(p->out, '$');
        return put_quoted(p, &c);
    }
    return cursor_ok(&c);
}

static bool put_item(struct path *p, const struct item *v, bool in_key, bool parenthesis,
                     unsigned depth)
{
    const struct item_kind *kind = &kinds[v->type];
    switch ((enum item_form)kind->form) {
    case FORM_WORD:
        put_text(p->out, kind->text);
        return true;
    case FORM_BINARY:
        return put_binary(p, v, parenthesis, depth);
    case FORM_UNARY:
        return put_unary(p, v, parenthesis, depth);
    case FORM_CALL:
        return put_call(p, v, kind->text, ")", depth);
    case FORM_SPECIAL:
        return put_special(p, v, in_key, parenthesis, depth);
    case FORM_NONE:
        break;
    }
    return false;
}

/* An item and the steps behind it. */
static bool put_items(struct path *p, uint32_t pos, bool in_key, bool parenthesis, unsigned depth)
{
    struct item v;
    if (depth > DEEPEST)
        return false;
    for (;;) {
        if (p->left == 0 || !item_read(p, pos, &v))
            return false;
        p->left--;
        if (!put_item(p, &v, in_key, parenthesis, depth))
            return false;
        if (v.next == 0)
            return true;
        if (v.next >= p->len - pos)
            return false;
        pos += v.next;
        in_key = parenthesis = true;
    }
}

static bool jsonpath_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    size_t before = out->len;
    uint32_t header;
    if (len < 4)
        return false;
    memcpy(&header, data, sizeof header);
    if ((header & ~JSONPATH_LAX) != JSONPATH_VERSION)
        return false;
    struct path p = {.data = data + 4, .len = len - 4, .out = out, .left = (len - 4) / 5};
    if (!(header & JSONPATH_LAX))
        put_text(out, "strict ");
    if (put_items(&p, 0, false, true, 0))
        return true;
    out->len = before;
    return false;
}

const struct type_family family_jsonpath = {
    .typid = 4072, .attlen = -1, .default_type = type_default_string, .text = jsonpath_text};
