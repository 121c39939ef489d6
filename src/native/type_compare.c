/* Printing and comparing parsed types; parsing is in type_name.c. */
#include "native/type_name.h"

#include <ctype.h>
#include <string.h>

static void put_text(struct buf *out, const char *text)
{
    buf_put(out, text, strlen(text));
}

static void put_quoted(struct buf *out, char quote, const char *text)
{
    buf_put_u8(out, (uint8_t)quote);
    for (; *text != 0; text++) {
        if (*text == quote || *text == '\\')
            buf_put_u8(out, '\\');
        buf_put_u8(out, (uint8_t)*text);
    }
    buf_put_u8(out, (uint8_t)quote);
}

static bool is_plain_ident(const char *name)
{
    if (!isalpha((unsigned char)name[0]) && name[0] != '_')
        return false;
    for (; *name != 0; name++)
        if (!isalnum((unsigned char)*name) && *name != '_')
            return false;
    return true;
}

static void print_children(const struct type_node *type, struct buf *out)
{
    buf_put_u8(out, '(');
    for (unsigned i = 0; i < type->nchildren; i++) {
        if (i > 0)
            put_text(out, ", ");
        if (type->names != NULL) {
            if (is_plain_ident(type->names[i]))
                put_text(out, type->names[i]);
            else
                put_quoted(out, '`', type->names[i]);
            buf_put_u8(out, ' ');
        }
        type_name_print(type->children[i], out);
    }
    buf_put_u8(out, ')');
}

static void print_enum(const struct type_node *type, struct buf *out)
{
    for (unsigned i = 0; i < type->nmembers; i++) {
        put_text(out, i == 0 ? "(" : ", ");
        put_quoted(out, '\'', type->members[i].name);
        buf_printf(out, " = %d", type->members[i].value);
    }
    buf_put_u8(out, ')');
}

/* DateTime, DateTime64 and Time64 */
static void print_time(const struct type_node *type, struct buf *out)
{
    bool has_precision = type->kind != TYPE_DATETIME;
    if (!has_precision && type->zone == NULL)
        return;
    buf_put_u8(out, '(');
    if (has_precision)
        buf_printf(out, "%u", type->precision);
    if (type->zone != NULL) {
        put_text(out, has_precision ? ", " : "");
        put_quoted(out, '\'', type->zone);
    }
    buf_put_u8(out, ')');
}

/* Nested, and not a name that stands for a nested type (Point, Ring …). */
static bool has_own_name(const struct type_node *type)
{
    if (type->kind == TYPE_TUPLE)
        return strcmp(type->name, "Tuple") == 0;
    if (type->kind == TYPE_ARRAY)
        return strcmp(type->name, "Array") == 0;
    return type->nchildren > 0;
}

void type_name_print(const struct type_node *type, struct buf *out)
{
    put_text(out, type->name);
    if (type->kind == TYPE_DECIMAL)
        buf_printf(out, "(%u, %u)", type->precision, type->scale);
    else if (type->kind == TYPE_FIXED_STRING)
        buf_printf(out, "(%u)", type->width);
    else if (type->kind == TYPE_DATETIME || type->kind == TYPE_DATETIME64 ||
             type->kind == TYPE_TIME64)
        print_time(type, out);
    else if (type->kind == TYPE_ENUM8 || type->kind == TYPE_ENUM16)
        print_enum(type, out);
    else if (type->kind == TYPE_SIMPLE_AGGREGATE) {
        buf_printf(out, "(%s, ", type->args);
        type_name_print(type->children[0], out);
        buf_put_u8(out, ')');
    } else if (type->args != NULL)
        buf_printf(out, "(%s)", type->args);
    else if (has_own_name(type))
        print_children(type, out);
}

/* Text equality that ignores spaces outside quotes. */
static bool same_spacing(const char *a, const char *b)
{
    char quote = 0;
    for (;;) {
        while (quote == 0 && *a == ' ')
            a++;
        while (quote == 0 && *b == ' ')
            b++;
        if (*a != *b)
            return false;
        if (*a == 0)
            return true;
        if (quote != 0 && *a == '\\' && a[1] != 0 && a[1] == b[1]) {
            a++;
            b++;
        } else if (quote != 0 ? *a == quote : *a == '\'' || *a == '"' || *a == '`') {
            quote = quote != 0 ? 0 : *a;
        }
        a++;
        b++;
    }
}

static bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : same_spacing(a, b);
}

static bool same_members(const struct type_node *a, const struct type_node *b)
{
    if (a->nmembers != b->nmembers)
        return false;
    /* ClickHouse prints members by value; ours may be in another order */
    for (unsigned i = 0; i < a->nmembers; i++) {
        unsigned j = i;
        for (unsigned k = 0; k < b->nmembers; k++, j = (j + 1) % b->nmembers)
            if (a->members[i].value == b->members[j].value)
                break;
        if (a->members[i].value != b->members[j].value ||
            strcmp(a->members[i].name, b->members[j].name) != 0)
            return false;
    }
    return true;
}

static bool accepts_children(const struct type_node *column, const struct type_node *sent)
{
    if (column->nchildren != sent->nchildren)
        return false;
    for (unsigned i = 0; i < column->nchildren; i++) {
        if (column->names != NULL && sent->names != NULL &&
            strcmp(column->names[i], sent->names[i]) != 0)
            return false;
        if (!type_name_accepts(column->children[i], sent->children[i]))
            return false;
    }
    return true;
}

static enum type_kind plain_kind(const struct type_node *type)
{
    return type->kind == TYPE_BOOL ? TYPE_UINT8 : type->kind;
}

bool type_name_accepts(const struct type_node *column, const struct type_node *sent)
{
    if (column->kind == TYPE_SIMPLE_AGGREGATE)
        return type_name_accepts(column->children[0], sent);
    if (sent->kind == TYPE_SIMPLE_AGGREGATE)
        return type_name_accepts(column, sent->children[0]);
    if (column->kind == TYPE_LOW_CARDINALITY && sent->kind != TYPE_LOW_CARDINALITY)
        return type_name_accepts(column->children[0], sent);
    if (plain_kind(column) != plain_kind(sent))
        return false;
    if (column->kind == TYPE_UNKNOWN || column->kind == TYPE_JSON || column->kind == TYPE_INTERVAL)
        return strcmp(column->name, sent->name) == 0 && same_text(column->args, sent->args);
    return column->width == sent->width && column->precision == sent->precision &&
           column->scale == sent->scale && same_members(column, sent) &&
           accepts_children(column, sent);
}

bool type_text_accepts(const char *column, const char *sent)
{
    struct arena arena = {0};
    const struct type_node *a, *b;
    bool same = type_name_parse(&arena, column, strlen(column), &a, NULL) == OK &&
                type_name_parse(&arena, sent, strlen(sent), &b, NULL) == OK &&
                type_name_accepts(a, b);
    arena_free(&arena);
    return same;
}
