#include "native/type_name.h"

#include <ctype.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>

/* Types whose whole text is one word. */
static const struct simple_type {
    const char *name;
    enum type_kind kind;
    uint8_t width;
} simple_types[] = {
    {"String", TYPE_STRING, 0},
    {"Int64", TYPE_INT64, 8},
    {"UInt64", TYPE_UINT64, 8},
    {"Int32", TYPE_INT32, 4},
    {"UInt32", TYPE_UINT32, 4},
    {"Int16", TYPE_INT16, 2},
    {"UInt16", TYPE_UINT16, 2},
    {"Int8", TYPE_INT8, 1},
    {"UInt8", TYPE_UINT8, 1},
    {"Int128", TYPE_INT128, 16},
    {"UInt128", TYPE_UINT128, 16},
    {"Int256", TYPE_INT256, 32},
    {"UInt256", TYPE_UINT256, 32},
    {"Bool", TYPE_BOOL, 1},
    {"BFloat16", TYPE_BFLOAT16, 2},
    {"Float32", TYPE_FLOAT32, 4},
    {"Float64", TYPE_FLOAT64, 8},
    {"Date", TYPE_DATE, 2},
    {"Date32", TYPE_DATE32, 4},
    {"Time", TYPE_TIME, 4},
    {"UUID", TYPE_UUID, 16},
    {"IPv4", TYPE_IPV4, 4},
    {"IPv6", TYPE_IPV6, 16},
    {"Nothing", TYPE_NOTHING, 1},
    {"IntervalNanosecond", TYPE_INTERVAL, 8},
    {"IntervalMicrosecond", TYPE_INTERVAL, 8},
    {"IntervalMillisecond", TYPE_INTERVAL, 8},
    {"IntervalSecond", TYPE_INTERVAL, 8},
    {"IntervalMinute", TYPE_INTERVAL, 8},
    {"IntervalHour", TYPE_INTERVAL, 8},
    {"IntervalDay", TYPE_INTERVAL, 8},
    {"IntervalWeek", TYPE_INTERVAL, 8},
    {"IntervalMonth", TYPE_INTERVAL, 8},
    {"IntervalQuarter", TYPE_INTERVAL, 8},
    {"IntervalYear", TYPE_INTERVAL, 8},
};

/* Names that stand for a nested type. */
static const struct {
    const char *name, *text;
} named_types[] = {
    {"Point", "Tuple(Float64, Float64)"},     {"Ring", "Array(Point)"},
    {"LineString", "Array(Point)"},           {"Polygon", "Array(Ring)"},
    {"MultiLineString", "Array(LineString)"}, {"MultiPolygon", "Array(Polygon)"},
};

struct parser {
    struct arena *arena;
    const char *text;
    size_t len, pos;
    unsigned depth;
    struct error *err;
};

static enum status parse_type(struct parser *p, const struct type_node **ret);

static enum status parse_failed(struct parser *p, const char *what)
{
    int shown = (int)MIN(p->len, 200);
    return error_set(p->err, ERR_DATA, "ClickHouse type \"%.*s\": %s at character %zu", shown,
                     p->text, what, p->pos + 1);
}

static void skip_spaces(struct parser *p)
{
    while (p->pos < p->len && isspace((unsigned char)p->text[p->pos]))
        p->pos++;
}

/* The next character that is not a space, 0 at the end. */
static char peek(struct parser *p)
{
    skip_spaces(p);
    return p->pos < p->len ? p->text[p->pos] : 0;
}

static bool accept(struct parser *p, char c)
{
    if (peek(p) != c)
        return false;
    p->pos++;
    return true;
}

static enum status expect(struct parser *p, char c)
{
    char what[] = "expected 'x'";
    if (accept(p, c))
        return OK;
    what[sizeof what - 3] = c;
    return parse_failed(p, what);
}

static bool is_word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static const char *parse_word(struct parser *p)
{
    skip_spaces(p);
    size_t start = p->pos;
    while (p->pos < p->len && is_word_char(p->text[p->pos]))
        p->pos++;
    char *word = arena_alloc(p->arena, p->pos - start + 1);
    memcpy(word, p->text + start, p->pos - start);
    word[p->pos - start] = 0;
    return word;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One escape sequence; p stands behind the backslash. Returns -1 for a bad one. */
static int parse_escape(struct parser *p)
{
    static const char from[] = "abefnrtv", to[] = "\a\b\033\f\n\r\t\v";
    if (p->pos >= p->len)
        return -1;
    char c = p->text[p->pos++];
    if (c == 'x') {
        if (p->len - p->pos < 2)
            return -1;
        int high = hex_digit(p->text[p->pos]), low = hex_digit(p->text[p->pos + 1]);
        p->pos += 2;
        return high < 0 || low < 0 ? -1 : high << 4 | low;
    }
    const char *at = c == 0 ? NULL : strchr(from, c);
    return at != NULL ? to[at - from]
                      : (unsigned char)c; /* '\\\\', quotes, and what has no meaning */
}

/* Moves behind the quoted text that starts here; the bytes between the quotes are
 * [*ret_start, p->pos - 1). */
static enum status skip_quoted(struct parser *p, size_t *ret_start)
{
    char quote = p->text[p->pos++];
    *ret_start = p->pos;
    for (; p->pos < p->len; p->pos++) {
        if (p->text[p->pos] == '\\') {
            p->pos++;
        } else if (p->text[p->pos] == quote) {
            p->pos++;
            if (p->pos >= p->len || p->text[p->pos] != quote)
                return OK;
        }
    }
    p->pos = p->len;
    return parse_failed(p, "quote without end");
}

/* 'text', "text" or `text` with backslash escapes and doubled quotes. */
static enum status parse_quoted(struct parser *p, const char **ret)
{
    char quote = peek(p);
    size_t start, n = 0;
    TRY(skip_quoted(p, &start));
    struct parser inner = {p->arena, p->text, p->pos - 1, start, 0, p->err};
    /* the plain form is never longer than the quoted one */
    char *out = arena_alloc(p->arena, inner.len - start + 1);
    while (inner.pos < inner.len) {
        int c = (unsigned char)inner.text[inner.pos++];
        if (c == quote)
            inner.pos++;
        else if (c == '\\')
            c = parse_escape(&inner);
        if (c <= 0)
            return parse_failed(&inner, c < 0 ? "bad escape" : "zero byte");
        out[n++] = (char)c;
    }
    out[n] = 0;
    *ret = out;
    return OK;
}

static enum status parse_number(struct parser *p, long min, long max, long *ret)
{
    bool minus = accept(p, '-');
    long value = 0;
    if (!isdigit((unsigned char)peek(p)))
        return parse_failed(p, "expected a number");
    while (p->pos < p->len && isdigit((unsigned char)p->text[p->pos])) {
        value = value * 10 + (p->text[p->pos++] - '0');
        if (value > INT_MAX)
            return parse_failed(p, "number out of range");
    }
    if (minus)
        value = -value;
    if (value < min || value > max)
        return parse_failed(p, "number out of range");
    *ret = value;
    return OK;
}

/* Text up to the parenthesis or comma that ends this argument (to_comma) or all of them, trimmed.
 */
static enum status parse_raw(struct parser *p, bool to_comma, const char **ret)
{
    unsigned depth = 0;
    skip_spaces(p);
    size_t start = p->pos;
    for (; p->pos < p->len; p->pos++) {
        char c = p->text[p->pos];
        if (c == '\'' || c == '"' || c == '`') {
            size_t ignored;
            TRY(skip_quoted(p, &ignored));
            p->pos--;
        } else if (c == '(') {
            depth++;
        } else if (c == ')' && depth-- == 0) {
            break;
        } else if (c == ',' && depth == 0 && to_comma) {
            break;
        }
    }
    if (p->pos >= p->len)
        return parse_failed(p, "expected ')'");
    size_t n = p->pos - start;
    while (n > 0 && isspace((unsigned char)p->text[start + n - 1]))
        n--;
    char *out = arena_alloc(p->arena, n + 1);
    memcpy(out, p->text + start, n);
    out[n] = 0;
    *ret = out;
    return OK;
}

static enum status parse_decimal(struct parser *p, struct type_node *node)
{
    static const struct {
        const char *name;
        uint8_t precision;
    } aliases[] = {{"Decimal32", 9}, {"Decimal64", 18}, {"Decimal128", 38}, {"Decimal256", 76}};
    long precision = 0, scale = 0;
    for (size_t i = 0; i < LENGTH(aliases); i++)
        if (strcmp(node->name, aliases[i].name) == 0)
            precision = aliases[i].precision;
    TRY(expect(p, '('));
    if (precision == 0) {
        TRY(parse_number(p, 1, 76, &precision));
        if (accept(p, ','))
            TRY(parse_number(p, 0, precision, &scale));
    } else {
        TRY(parse_number(p, 0, precision, &scale));
    }
    node->kind = TYPE_DECIMAL;
    node->name = "Decimal";
    node->precision = (uint8_t)precision;
    node->scale = (uint8_t)scale;
    node->width = precision <= 9 ? 4 : precision <= 18 ? 8 : precision <= 38 ? 16 : 32;
    return expect(p, ')');
}

/* DateTime['(zone)'], DateTime64[(p[, zone])], Time64[(p)] */
static enum status parse_time(struct parser *p, struct type_node *node)
{
    long precision = 3;
    bool zone_first = strcmp(node->name, "DateTime") == 0;
    node->kind = zone_first                              ? TYPE_DATETIME
                 : strcmp(node->name, "DateTime64") == 0 ? TYPE_DATETIME64
                                                         : TYPE_TIME64;
    node->width = zone_first ? 4 : 8;
    if (zone_first)
        precision = 0;
    if (accept(p, '(')) {
        bool zone = zone_first;
        if (!zone_first) {
            TRY(parse_number(p, 0, 9, &precision));
            zone = node->kind == TYPE_DATETIME64 && accept(p, ',');
        }
        if (zone) {
            if (peek(p) != '\'')
                return parse_failed(p, "expected a quoted time zone");
            TRY(parse_quoted(p, &node->zone));
        }
        TRY(expect(p, ')'));
    }
    node->precision = (uint8_t)precision;
    return OK;
}

static enum status parse_enum(struct parser *p, struct type_node *node)
{
    bool wide = strcmp(node->name, "Enum16") == 0;
    unsigned cap = 0;
    struct type_member *members = NULL;
    long value = 0;
    node->kind = wide ? TYPE_ENUM16 : TYPE_ENUM8;
    node->width = wide ? 2 : 1;
    TRY(expect(p, '('));
    do {
        if (node->nmembers == cap) {
            unsigned more = cap == 0 ? 8 : cap * 2;
            struct type_member *bigger = arena_alloc(p->arena, more * sizeof *bigger);
            if (cap > 0)
                memcpy(bigger, members, cap * sizeof *bigger);
            members = bigger;
            cap = more;
        }
        if (peek(p) != '\'')
            return parse_failed(p, "expected a quoted enum member");
        TRY(parse_quoted(p, &members[node->nmembers].name));
        /* members without a value go on from the one before, the first is 1 */
        value++;
        if (accept(p, '='))
            TRY(parse_number(p, wide ? INT16_MIN : INT8_MIN, wide ? INT16_MAX : INT8_MAX, &value));
        else if (value > (wide ? INT16_MAX : INT8_MAX))
            return parse_failed(p, "enum value out of range");
        members[node->nmembers++].value = (int16_t)value;
    } while (accept(p, ','));
    node->members = members;
    return expect(p, ')');
}

/* Exactly n types between parentheses. */
static enum status parse_children(struct parser *p, struct type_node *node, unsigned n)
{
    TRY(expect(p, '('));
    node->children = arena_alloc(p->arena, n * sizeof *node->children);
    for (unsigned i = 0; i < n; i++) {
        if (i > 0)
            TRY(expect(p, ','));
        TRY(parse_type(p, &node->children[i]));
    }
    node->nchildren = n;
    return expect(p, ')');
}

/* The name of a tuple element, NULL if the element begins with its type. */
static enum status parse_element_name(struct parser *p, const char **ret)
{
    char c = peek(p);
    *ret = NULL;
    if (c == '`' || c == '"')
        return parse_quoted(p, ret);
    size_t start = p->pos;
    const char *word = parse_word(p);
    c = peek(p);
    if (word[0] != 0 && is_word_char(c))
        *ret = word;
    else
        p->pos = start;
    return OK;
}

static enum status parse_tuple(struct parser *p, struct type_node *node)
{
    unsigned cap = 0;
    bool named = false;
    node->kind = TYPE_TUPLE;
    if (!accept(p, '('))
        return OK;
    if (accept(p, ')'))
        return OK;
    do {
        if (node->nchildren == cap) {
            unsigned more = cap == 0 ? 4 : cap * 2;
            const struct type_node **children = arena_alloc(p->arena, more * sizeof *children);
            const char **names = arena_alloc(p->arena, more * sizeof *names);
            if (cap > 0) {
                memcpy(children, node->children, cap * sizeof *children);
                memcpy(names, node->names, cap * sizeof *names);
            }
            node->children = children;
            node->names = names;
            cap = more;
        }
        TRY(parse_element_name(p, &node->names[node->nchildren]));
        bool has_name = node->names[node->nchildren] != NULL;
        if (node->nchildren > 0 && has_name != named)
            return parse_failed(p, "some tuple elements have names and some do not");
        named = has_name;
        TRY(parse_type(p, &node->children[node->nchildren]));
        node->nchildren++;
    } while (accept(p, ','));
    if (!named)
        node->names = NULL;
    return expect(p, ')');
}

static enum status parse_simple_aggregate(struct parser *p, struct type_node *node)
{
    node->kind = TYPE_SIMPLE_AGGREGATE;
    TRY(expect(p, '('));
    TRY(parse_raw(p, true, &node->args));
    TRY(expect(p, ','));
    node->children = arena_alloc(p->arena, sizeof *node->children);
    TRY(parse_type(p, &node->children[0]));
    node->nchildren = 1;
    return expect(p, ')');
}

/* A type this file has no layout for, and JSON: the arguments stay text. */
static enum status parse_opaque(struct parser *p, struct type_node *node)
{
    if (!accept(p, '('))
        return OK;
    TRY(parse_raw(p, false, &node->args));
    return expect(p, ')');
}

static enum status parse_fixed_string(struct parser *p, struct type_node *node)
{
    long n;
    node->kind = TYPE_FIXED_STRING;
    TRY(expect(p, '('));
    TRY(parse_number(p, 1, 0xffffff, &n));
    node->width = (uint32_t)n;
    return expect(p, ')');
}

static enum status parse_json(struct parser *p, struct type_node *node)
{
    node->kind = TYPE_JSON;
    return parse_opaque(p, node);
}

/* A name that stands for another type text: parsed with a parser of its own, keeps its name. */
static enum status parse_named(struct parser *p, const char *text, struct type_node *node)
{
    struct parser inner = {p->arena, text, strlen(text), 0, p->depth, p->err};
    const struct type_node *meant;
    const char *name = node->name;
    TRY(parse_type(&inner, &meant));
    *node = *meant;
    node->name = name;
    return OK;
}

static enum status parse_nullable(struct parser *p, struct type_node *node)
{
    node->kind = TYPE_NULLABLE;
    return parse_children(p, node, 1);
}

static enum status parse_low_cardinality(struct parser *p, struct type_node *node)
{
    node->kind = TYPE_LOW_CARDINALITY;
    return parse_children(p, node, 1);
}

static enum status parse_array(struct parser *p, struct type_node *node)
{
    node->kind = TYPE_ARRAY;
    return parse_children(p, node, 1);
}

static enum status parse_map(struct parser *p, struct type_node *node)
{
    node->kind = TYPE_MAP;
    return parse_children(p, node, 2);
}

/* Types with arguments. What is not here is TYPE_UNKNOWN. */
static const struct {
    const char *name;
    enum status (*parse)(struct parser *p, struct type_node *node);
} parametric_types[] = {
    {"Nullable", parse_nullable},  {"LowCardinality", parse_low_cardinality},
    {"Array", parse_array},        {"Map", parse_map},
    {"Tuple", parse_tuple},        {"Decimal", parse_decimal},
    {"Decimal32", parse_decimal},  {"Decimal64", parse_decimal},
    {"Decimal128", parse_decimal}, {"Decimal256", parse_decimal},
    {"DateTime", parse_time},      {"DateTime64", parse_time},
    {"Time64", parse_time},        {"FixedString", parse_fixed_string},
    {"Enum8", parse_enum},         {"Enum16", parse_enum},
    {"JSON", parse_json},          {"SimpleAggregateFunction", parse_simple_aggregate},
};

static enum status parse_parametric(struct parser *p, struct type_node *node)
{
    for (size_t i = 0; i < LENGTH(parametric_types); i++)
        if (strcmp(node->name, parametric_types[i].name) == 0)
            return parametric_types[i].parse(p, node);
    for (size_t i = 0; i < LENGTH(named_types); i++)
        if (strcmp(node->name, named_types[i].name) == 0)
            return parse_named(p, named_types[i].text, node);
    return parse_opaque(p, node);
}

static enum status parse_type(struct parser *p, const struct type_node **ret)
{
    if (++p->depth > TYPE_NAME_MAX_DEPTH)
        return parse_failed(p, "nested too deeply");
    struct type_node *node = arena_alloc(p->arena, sizeof *node);
    memset(node, 0, sizeof *node);
    node->name = parse_word(p);
    if (!isalpha((unsigned char)node->name[0]))
        return parse_failed(p, "expected a type name");
    size_t i = 0;
    while (i < LENGTH(simple_types) && strcmp(node->name, simple_types[i].name) != 0)
        i++;
    if (i < LENGTH(simple_types)) {
        node->kind = simple_types[i].kind;
        node->width = simple_types[i].width;
    } else {
        TRY(parse_parametric(p, node));
    }
    p->depth--;
    *ret = node;
    return OK;
}

enum status type_name_parse(struct arena *arena, const char *text, size_t len,
                            const struct type_node **ret, struct error *err)
{
    struct parser p = {arena, text, len, 0, 0, err};
    const struct type_node *node;
    if (len > TYPE_NAME_MAX_BYTES)
        return error_set(err, ERR_DATA, "ClickHouse type text of %zu bytes is too long", len);
    TRY(parse_type(&p, &node));
    if (peek(&p) != 0 || p.pos < p.len)
        return parse_failed(&p, "unexpected text");
    *ret = node;
    return OK;
}
