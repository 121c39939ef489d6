#include "native/type_name.h"

#include "native/type_lexer.h"

#include <ctype.h>
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

static enum status parse_type(struct type_lexer *p, const struct type_node **ret);

static enum status parse_decimal(struct type_lexer *p, struct type_node *node)
{
    static const struct {
        const char *name;
        uint8_t precision;
    } aliases[] = {{"Decimal32", 9}, {"Decimal64", 18}, {"Decimal128", 38}, {"Decimal256", 76}};
    long precision = 0, scale = 0;
    for (size_t i = 0; i < LENGTH(aliases); i++)
        if (strcmp(node->name, aliases[i].name) == 0)
            precision = aliases[i].precision;
    TRY(type_lexer_expect(p, '('));
    if (precision == 0) {
        TRY(type_lexer_number(p, 1, 76, &precision));
        if (type_lexer_accept(p, ','))
            TRY(type_lexer_number(p, 0, precision, &scale));
    } else {
        TRY(type_lexer_number(p, 0, precision, &scale));
    }
    node->kind = TYPE_DECIMAL;
    node->name = "Decimal";
    node->precision = (uint8_t)precision;
    node->scale = (uint8_t)scale;
    node->width = precision <= 9 ? 4 : precision <= 18 ? 8 : precision <= 38 ? 16 : 32;
    return type_lexer_expect(p, ')');
}

/* DateTime['(zone)'], DateTime64[(p[, zone])], Time64[(p)] */
static enum status parse_time(struct type_lexer *p, struct type_node *node)
{
    long precision = 3;
    bool zone_first = strcmp(node->name, "DateTime") == 0;
    node->kind = zone_first                              ? TYPE_DATETIME
                 : strcmp(node->name, "DateTime64") == 0 ? TYPE_DATETIME64
                                                         : TYPE_TIME64;
    node->width = zone_first ? 4 : 8;
    if (zone_first)
        precision = 0;
    if (type_lexer_accept(p, '(')) {
        bool zone = zone_first;
        if (!zone_first) {
            TRY(type_lexer_number(p, 0, 9, &precision));
            zone = node->kind == TYPE_DATETIME64 && type_lexer_accept(p, ',');
        }
        if (zone) {
            if (type_lexer_peek(p) != '\'')
                return type_lexer_failed(p, "expected a quoted time zone");
            TRY(type_lexer_quoted(p, &node->zone));
        }
        TRY(type_lexer_expect(p, ')'));
    }
    node->precision = (uint8_t)precision;
    return OK;
}

static enum status parse_enum(struct type_lexer *p, struct type_node *node)
{
    bool wide = strcmp(node->name, "Enum16") == 0;
    unsigned cap = 0;
    struct type_member *members = NULL;
    long value = 0;
    node->kind = wide ? TYPE_ENUM16 : TYPE_ENUM8;
    node->width = wide ? 2 : 1;
    TRY(type_lexer_expect(p, '('));
    do {
        if (node->nmembers == cap) {
            unsigned more = cap == 0 ? 8 : cap * 2;
            struct type_member *bigger = arena_alloc(p->arena, more * sizeof *bigger);
            if (cap > 0)
                memcpy(bigger, members, cap * sizeof *bigger);
            members = bigger;
            cap = more;
        }
        if (type_lexer_peek(p) != '\'')
            return type_lexer_failed(p, "expected a quoted enum member");
        TRY(type_lexer_quoted(p, &members[node->nmembers].name));
        /* members without a value go on from the one before, the first is 1 */
        value++;
        if (type_lexer_accept(p, '='))
            TRY(type_lexer_number(p, wide ? INT16_MIN : INT8_MIN, wide ? INT16_MAX : INT8_MAX,
                                  &value));
        else if (value > (wide ? INT16_MAX : INT8_MAX))
            return type_lexer_failed(p, "enum value out of range");
        members[node->nmembers++].value = (int16_t)value;
    } while (type_lexer_accept(p, ','));
    node->members = members;
    return type_lexer_expect(p, ')');
}

/* Exactly n types between parentheses. */
static enum status parse_children(struct type_lexer *p, struct type_node *node, unsigned n)
{
    TRY(type_lexer_expect(p, '('));
    node->children = arena_alloc(p->arena, n * sizeof *node->children);
    for (unsigned i = 0; i < n; i++) {
        if (i > 0)
            TRY(type_lexer_expect(p, ','));
        TRY(parse_type(p, &node->children[i]));
    }
    node->nchildren = n;
    return type_lexer_expect(p, ')');
}

/* The name of a tuple element, NULL if the element begins with its type. */
static enum status parse_element_name(struct type_lexer *p, const char **ret)
{
    char c = type_lexer_peek(p);
    *ret = NULL;
    if (c == '`' || c == '"')
        return type_lexer_quoted(p, ret);
    size_t start = p->pos;
    const char *word = type_lexer_word(p);
    c = type_lexer_peek(p);
    if (word[0] != 0 && type_lexer_is_word(c))
        *ret = word;
    else
        p->pos = start;
    return OK;
}

static enum status parse_tuple(struct type_lexer *p, struct type_node *node)
{
    unsigned cap = 0;
    bool named = false;
    node->kind = TYPE_TUPLE;
    if (!type_lexer_accept(p, '('))
        return OK;
    if (type_lexer_accept(p, ')'))
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
            return type_lexer_failed(p, "some tuple elements have names and some do not");
        named = has_name;
        TRY(parse_type(p, &node->children[node->nchildren]));
        node->nchildren++;
    } while (type_lexer_accept(p, ','));
    if (!named)
        node->names = NULL;
    return type_lexer_expect(p, ')');
}

static enum status parse_simple_aggregate(struct type_lexer *p, struct type_node *node)
{
    node->kind = TYPE_SIMPLE_AGGREGATE;
    TRY(type_lexer_expect(p, '('));
    TRY(type_lexer_raw(p, true, &node->args));
    TRY(type_lexer_expect(p, ','));
    node->children = arena_alloc(p->arena, sizeof *node->children);
    TRY(parse_type(p, &node->children[0]));
    node->nchildren = 1;
    return type_lexer_expect(p, ')');
}

/* A type this file has no layout for, and JSON: the arguments stay text. */
static enum status parse_opaque(struct type_lexer *p, struct type_node *node)
{
    if (!type_lexer_accept(p, '('))
        return OK;
    TRY(type_lexer_raw(p, false, &node->args));
    return type_lexer_expect(p, ')');
}

static enum status parse_fixed_string(struct type_lexer *p, struct type_node *node)
{
    long n;
    node->kind = TYPE_FIXED_STRING;
    TRY(type_lexer_expect(p, '('));
    TRY(type_lexer_number(p, 1, 0xffffff, &n));
    node->width = (uint32_t)n;
    return type_lexer_expect(p, ')');
}

static enum status parse_json(struct type_lexer *p, struct type_node *node)
{
    node->kind = TYPE_JSON;
    return parse_opaque(p, node);
}

/* A name that stands for another type text: parsed with a parser of its own, keeps its name. */
static enum status parse_named(struct type_lexer *p, const char *text, struct type_node *node)
{
    struct type_lexer inner = {p->arena, text, strlen(text), 0, p->depth, p->err};
    const struct type_node *meant;
    const char *name = node->name;
    TRY(parse_type(&inner, &meant));
    *node = *meant;
    node->name = name;
    return OK;
}

static enum status parse_nullable(struct type_lexer *p, struct type_node *node)
{
    node->kind = TYPE_NULLABLE;
    return parse_children(p, node, 1);
}

static enum status parse_low_cardinality(struct type_lexer *p, struct type_node *node)
{
    node->kind = TYPE_LOW_CARDINALITY;
    return parse_children(p, node, 1);
}

static enum status parse_array(struct type_lexer *p, struct type_node *node)
{
    node->kind = TYPE_ARRAY;
    return parse_children(p, node, 1);
}

static enum status parse_map(struct type_lexer *p, struct type_node *node)
{
    node->kind = TYPE_MAP;
    return parse_children(p, node, 2);
}

/* Types with arguments. What is not here is TYPE_UNKNOWN. */
static const struct {
    const char *name;
    enum status (*parse)(struct type_lexer *p, struct type_node *node);
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

static enum status parse_parametric(struct type_lexer *p, struct type_node *node)
{
    for (size_t i = 0; i < LENGTH(parametric_types); i++)
        if (strcmp(node->name, parametric_types[i].name) == 0)
            return parametric_types[i].parse(p, node);
    for (size_t i = 0; i < LENGTH(named_types); i++)
        if (strcmp(node->name, named_types[i].name) == 0)
            return parse_named(p, named_types[i].text, node);
    return parse_opaque(p, node);
}

static enum status parse_type(struct type_lexer *p, const struct type_node **ret)
{
    if (++p->depth > TYPE_NAME_MAX_DEPTH)
        return type_lexer_failed(p, "nested too deeply");
    struct type_node *node = arena_alloc(p->arena, sizeof *node);
    memset(node, 0, sizeof *node);
    node->name = type_lexer_word(p);
    if (!isalpha((unsigned char)node->name[0]))
        return type_lexer_failed(p, "expected a type name");
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
    struct type_lexer p = {arena, len > 0 ? text : "", len, 0, 0, err};
    const struct type_node *node;
    if (len > TYPE_NAME_MAX_BYTES)
        return error_set(err, ERR_DATA, "ClickHouse type text of %zu bytes is too long", len);
    TRY(parse_type(&p, &node));
    if (type_lexer_peek(&p) != 0 || p.pos < p.len)
        return type_lexer_failed(&p, "unexpected text");
    *ret = node;
    return OK;
}
