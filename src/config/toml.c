/* Documents, tables and keys of TOML 1.0. Strings and scalars are in toml_string.c, toml_scalar.c.
 */
#include "config/toml_parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_PARTS_MAX 64

struct key_path {
    struct toml_text parts[KEY_PARTS_MAX];
    size_t len;
    unsigned line, column;
};

enum status toml_fail(struct toml_parser *p, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return error_set(p->err, ERR_CONFIG, "%s:%u:%zu: %s", p->name, p->line,
                     p->pos - p->line_start + 1, text);
}

struct toml_value *toml_value_new(struct toml_parser *p, enum toml_kind kind)
{
    struct toml_value *v = arena_alloc(p->arena, sizeof *v);
    memset(v, 0, sizeof *v);
    v->kind = kind;
    v->line = p->line;
    v->column = (unsigned)(p->pos - p->line_start + 1);
    return v;
}

void toml_skip_blanks(struct toml_parser *p)
{
    while (toml_peek(p, 0) == ' ' || toml_peek(p, 0) == '\t')
        p->pos++;
}

bool toml_take_newline(struct toml_parser *p)
{
    size_t n = toml_peek(p, 0) == '\n'                              ? 1
               : toml_peek(p, 0) == '\r' && toml_peek(p, 1) == '\n' ? 2
                                                                    : 0;
    if (n == 0)
        return false;
    p->pos += n;
    p->line++;
    p->line_start = p->pos;
    return true;
}

enum status toml_skip_comment(struct toml_parser *p)
{
    if (toml_peek(p, 0) != '#')
        return OK;
    for (int c; (c = toml_peek(p, 0)) >= 0 && c != '\n'; p->pos++) {
        if (c == '\r' && toml_peek(p, 1) == '\n')
            break;
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return toml_fail(p, "a control character in a comment");
    }
    return OK;
}

/* ---- tables ---- */

static size_t key_hash(struct toml_text key)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < key.len; i++)
        h = (h ^ (unsigned char)key.data[i]) * UINT64_C(1099511628211);
    return (size_t)(h ^ h >> 32);
}

static bool key_equal(struct toml_text a, struct toml_text b)
{
    return a.len == b.len && memcmp(a.data, b.data, a.len) == 0;
}

static struct toml_entry *table_find(const struct toml_value *table, struct toml_text key)
{
    struct toml_entry *e;
    if (table->table.buckets != NULL) {
        for (e = table->table.buckets[key_hash(key) % table->table.nbuckets]; e != NULL;
             e = e->next_in_bucket) {
            if (key_equal(e->key, key))
                return e;
        }
        return NULL;
    }
    for (e = table->table.first; e != NULL && !key_equal(e->key, key);)
        e = e->next;
    return e;
}

static void table_index(struct toml_parser *p, struct toml_value *table)
{
    size_t n = table->table.len * 4, bytes = n * sizeof(struct toml_entry *);
    table->table.buckets = arena_alloc(p->arena, bytes);
    table->table.nbuckets = n;
    memset(table->table.buckets, 0, bytes);
    for (struct toml_entry *e = table->table.first; e != NULL; e = e->next) {
        struct toml_entry **bucket = &table->table.buckets[key_hash(e->key) % n];
        e->next_in_bucket = *bucket;
        *bucket = e;
    }
}

static void table_add(struct toml_parser *p, struct toml_value *table, const struct key_path *path,
                      size_t part, struct toml_value *value)
{
    struct toml_entry *e = arena_alloc(p->arena, sizeof *e);
    *e = (struct toml_entry){path->parts[part], path->line, path->column, value, NULL, NULL};
    if (table->table.last != NULL)
        table->table.last->next = e;
    else
        table->table.first = e;
    table->table.last = e;
    table->table.len++;
    if (table->table.len >= 16 && table->table.len >= table->table.nbuckets) {
        table_index(p, table);
    } else if (table->table.buckets != NULL) {
        struct toml_entry **bucket =
            &table->table.buckets[key_hash(e->key) % table->table.nbuckets];
        e->next_in_bucket = *bucket;
        *bucket = e;
    }
}

static void array_add(struct toml_parser *p, struct toml_value *array, struct toml_value *item)
{
    if (array->array.len == array->array.cap) {
        size_t cap = MAX(array->array.cap * 2, (size_t)8);
        struct toml_value **items = arena_alloc(p->arena, cap * sizeof *items);
        if (array->array.len > 0)
            memcpy(items, array->array.items, array->array.len * sizeof *items);
        array->array.items = items;
        array->array.cap = cap;
    }
    array->array.items[array->array.len++] = item;
}

static struct toml_value *new_made(struct toml_parser *p, enum toml_kind kind,
                                   enum toml_origin origin)
{
    struct toml_value *v = toml_value_new(p, kind);
    v->origin = (uint8_t)origin;
    return v;
}

/* ---- keys ---- */

static bool is_bare(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

static enum status parse_key_part(struct toml_parser *p, struct toml_text *ret)
{
    int c = toml_peek(p, 0);
    if (c == '"' || c == '\'')
        return toml_parse_string(p, false, ret);
    size_t n = 0;
    while (is_bare(toml_peek(p, n)))
        n++;
    if (n == 0)
        return toml_fail(p, "a key is missing");
    char *data = arena_alloc(p->arena, n + 1);
    memcpy(data, p->s + p->pos, n);
    data[n] = '\0';
    *ret = (struct toml_text){data, n};
    p->pos += n;
    return OK;
}

static enum status parse_key(struct toml_parser *p, struct key_path *ret)
{
    ret->len = 0;
    ret->line = p->line;
    ret->column = (unsigned)(p->pos - p->line_start + 1);
    for (;;) {
        if (ret->len == KEY_PARTS_MAX)
            return toml_fail(p, "a key of more than %d parts", KEY_PARTS_MAX);
        TRY(parse_key_part(p, &ret->parts[ret->len++]));
        toml_skip_blanks(p);
        if (toml_peek(p, 0) != '.')
            return OK;
        p->pos++;
        toml_skip_blanks(p);
    }
}

static enum status fail_key(struct toml_parser *p, const struct key_path *path, size_t part,
                            const char *what)
{
    return error_set(p->err, ERR_CONFIG, "%s:%u:%u: \"%.*s\" %s", p->name, path->line, path->column,
                     (int)MIN(path->parts[part].len, (size_t)80), path->parts[part].data, what);
}

/* key = value, dotted or not, into table. */
static enum status parse_pair(struct toml_parser *p, struct toml_value *table)
{
    struct key_path path;
    TRY(parse_key(p, &path));
    if (toml_peek(p, 0) != '=')
        return toml_fail(p, "\"=\" expected behind the key");
    p->pos++;
    toml_skip_blanks(p);
    for (size_t i = 0; i + 1 < path.len; i++) {
        struct toml_entry *e = table_find(table, path.parts[i]);
        if (e == NULL) {
            struct toml_value *made = new_made(p, TOML_TABLE, TOML_MADE_DOTTED);
            table_add(p, table, &path, i, made);
            table = made;
            continue;
        }
        table = e->value;
        if (table->kind != TOML_TABLE || table->origin == TOML_MADE_HEADER ||
            table->origin == TOML_MADE_INLINE)
            return fail_key(p, &path, i, "is already defined and cannot be extended here");
        table->origin = TOML_MADE_DOTTED;
    }
    if (table_find(table, path.parts[path.len - 1]) != NULL)
        return fail_key(p, &path, path.len - 1, "is given twice");
    struct toml_value *value;
    TRY(toml_parse_value(p, &value));
    table_add(p, table, &path, path.len - 1, value);
    return OK;
}

/* ---- values ---- */

static enum status skip_lines(struct toml_parser *p)
{
    do {
        toml_skip_blanks(p);
        TRY(toml_skip_comment(p));
    } while (toml_take_newline(p));
    return OK;
}

static enum status parse_array(struct toml_parser *p, struct toml_value **ret)
{
    struct toml_value *array = new_made(p, TOML_ARRAY, TOML_MADE_INLINE);
    p->pos++;
    for (;;) {
        TRY(skip_lines(p));
        if (toml_peek(p, 0) == ']')
            break;
        struct toml_value *item;
        TRY(toml_parse_value(p, &item));
        array_add(p, array, item);
        TRY(skip_lines(p));
        if (toml_peek(p, 0) == ']')
            break;
        if (toml_peek(p, 0) != ',')
            return toml_fail(p, "\",\" or \"]\" expected in an array");
        p->pos++;
    }
    p->pos++;
    *ret = array;
    return OK;
}

static enum status parse_inline_table(struct toml_parser *p, struct toml_value **ret)
{
    struct toml_value *table = new_made(p, TOML_TABLE, TOML_MADE_INLINE);
    p->pos++;
    toml_skip_blanks(p);
    while (toml_peek(p, 0) != '}') {
        TRY(parse_pair(p, table));
        toml_skip_blanks(p);
        if (toml_peek(p, 0) == '}')
            break;
        if (toml_peek(p, 0) != ',')
            return toml_fail(p, "\",\" or \"}\" expected in an inline table");
        p->pos++;
        toml_skip_blanks(p);
        if (toml_peek(p, 0) == '}')
            return toml_fail(p, "an inline table cannot end with a comma");
    }
    p->pos++;
    *ret = table;
    return OK;
}

enum status toml_parse_value(struct toml_parser *p, struct toml_value **ret)
{
    int c = toml_peek(p, 0);
    enum status st;
    if (c == '"' || c == '\'') {
        struct toml_value *v = toml_value_new(p, TOML_STRING);
        TRY(toml_parse_string(p, true, &v->string));
        *ret = v;
        return OK;
    }
    if (c != '[' && c != '{')
        return toml_parse_scalar(p, ret);
    if (++p->depth > TOML_DEPTH_MAX)
        return toml_fail(p, "values are nested more than %d deep", TOML_DEPTH_MAX);
    st = c == '[' ? parse_array(p, ret) : parse_inline_table(p, ret);
    p->depth--;
    return st;
}

/* ---- headers ---- */

/* The table that [a.b.…] goes into: everything but the last part of the path. */
static enum status header_parent(struct toml_parser *p, const struct key_path *path,
                                 struct toml_value **table)
{
    for (size_t i = 0; i + 1 < path->len; i++) {
        struct toml_entry *e = table_find(*table, path->parts[i]);
        if (e == NULL) {
            struct toml_value *made = new_made(p, TOML_TABLE, TOML_MADE_IMPLICIT);
            table_add(p, *table, path, i, made);
            *table = made;
            continue;
        }
        struct toml_value *v = e->value;
        if (v->kind == TOML_ARRAY && v->origin == TOML_MADE_TABLES)
            v = v->array.items[v->array.len - 1];
        if (v->kind != TOML_TABLE || v->origin == TOML_MADE_INLINE)
            return fail_key(p, path, i, "is already defined and cannot be extended here");
        *table = v;
    }
    return OK;
}

static enum status parse_header(struct toml_parser *p, struct toml_value *root,
                                struct toml_value **ret_current)
{
    struct key_path path;
    struct toml_value *parent = root;
    bool is_array = toml_peek(p, 1) == '[';
    p->pos += is_array ? 2 : 1;
    toml_skip_blanks(p);
    TRY(parse_key(p, &path));
    if (toml_peek(p, 0) != ']' || (is_array && toml_peek(p, 1) != ']'))
        return toml_fail(p, "\"%s\" expected behind the table's name", is_array ? "]]" : "]");
    p->pos += is_array ? 2 : 1;
    TRY(header_parent(p, &path, &parent));
    struct toml_entry *e = table_find(parent, path.parts[path.len - 1]);
    if (is_array) {
        struct toml_value *array = e != NULL ? e->value : new_made(p, TOML_ARRAY, TOML_MADE_TABLES);
        if (array->kind != TOML_ARRAY || array->origin != TOML_MADE_TABLES)
            return fail_key(p, &path, path.len - 1, "is already defined");
        if (e == NULL)
            table_add(p, parent, &path, path.len - 1, array);
        *ret_current = new_made(p, TOML_TABLE, TOML_MADE_HEADER);
        array_add(p, array, *ret_current);
        return OK;
    }
    if (e == NULL) {
        *ret_current = new_made(p, TOML_TABLE, TOML_MADE_HEADER);
        table_add(p, parent, &path, path.len - 1, *ret_current);
        return OK;
    }
    if (e->value->kind != TOML_TABLE || e->value->origin != TOML_MADE_IMPLICIT)
        return fail_key(p, &path, path.len - 1, "is already defined");
    e->value->origin = TOML_MADE_HEADER;
    e->value->line = path.line;
    *ret_current = e->value;
    return OK;
}

/* ---- documents ---- */

/* The format demands valid UTF-8 everywhere. */
static enum status check_utf8(struct toml_parser *p)
{
    for (; p->pos < p->len;) {
        unsigned c = (unsigned char)p->s[p->pos];
        unsigned more = c < 0x80                ? 0
                        : c >= 0xc2 && c < 0xe0 ? 1
                        : c >= 0xe0 && c < 0xf0 ? 2
                        : c >= 0xf0 && c < 0xf5 ? 3
                                                : 9;
        uint32_t v = more == 0 ? c : more <= 3 ? c & (0x3fu >> more) : 0;
        for (unsigned i = 1; i <= more && more <= 3; i++) {
            int next = toml_peek(p, i);
            if (next < 0x80 || next > 0xbf) /* also -1, the end */
                more = 9;
            v = v << 6 | ((uint32_t)next & 0x3f);
        }
        if (more > 3 || (more == 2 && (v < 0x800 || (v >= 0xd800 && v <= 0xdfff))) ||
            (more == 3 && (v < 0x10000 || v > 0x10ffff)))
            return toml_fail(p, "not valid UTF-8");
        p->pos += more + 1;
        if (c == '\n') {
            p->line++;
            p->line_start = p->pos;
        }
    }
    p->pos = p->line_start = 0;
    p->line = 1;
    return OK;
}

static enum status parse_document(struct toml_parser *p, struct toml_value *root)
{
    struct toml_value *current = root;
    TRY(check_utf8(p));
    if (p->len >= 3 && memcmp(p->s, "\xef\xbb\xbf", 3) == 0)
        p->pos = p->line_start = 3;
    for (;;) {
        TRY(skip_lines(p));
        if (p->pos == p->len)
            return OK;
        if (toml_peek(p, 0) == '[')
            TRY(parse_header(p, root, &current));
        else
            TRY(parse_pair(p, current));
        toml_skip_blanks(p);
        TRY(toml_skip_comment(p));
        if (p->pos < p->len && !toml_take_newline(p))
            return toml_fail(p, "the line should end here");
    }
}

enum status toml_parse(const char *name, const char *data, size_t len, struct toml_doc **ret,
                       struct error *err)
{
    struct toml_doc *doc = xcalloc(1, sizeof *doc);
    struct toml_parser p = {
        .name = name, .s = data, .len = len, .line = 1, .arena = &doc->arena, .err = err};
    doc->root = new_made(&p, TOML_TABLE, TOML_MADE_HEADER);
    enum status st = parse_document(&p, doc->root);
    if (st != OK) {
        toml_doc_free(doc);
        return st;
    }
    *ret = doc;
    return OK;
}

void toml_doc_free(struct toml_doc *doc)
{
    if (doc == NULL)
        return;
    arena_free(&doc->arena);
    free(doc);
}

const struct toml_value *toml_get(const struct toml_value *table, const char *key)
{
    const struct toml_entry *e =
        table_find(table, (struct toml_text){.data = key, .len = strlen(key)});
    return e == NULL ? NULL : e->value;
}

const char *toml_kind_name(enum toml_kind kind)
{
    static const char *const names[] = {
        "string",     "integer",    "float", "boolean", "date and time", "local date and time",
        "local date", "local time", "array", "table"};
    return names[kind];
}
