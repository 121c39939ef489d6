#include "config/config_assign.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status config_fail(const struct config_place *place, struct error *err, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (place->line > 0)
        return error_set(err, ERR_CONFIG, "%s:%u: %s", place->name, place->line, text);
    return error_set(err, ERR_CONFIG, "%s: %s", place->name, text);
}

/* "section.key" for messages. */
static const char *option_name(const struct option *o, char *buf, size_t cap)
{
    snprintf(buf, cap, "%s%s%s", o->section, o->section[0] != '\0' ? "." : "", o->key);
    return buf;
}
#define NAME(o) option_name(o, (char[80]){0}, 80)

static void list_free(struct string_list *list)
{
    for (size_t i = 0; i < list->len; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct string_list){0};
}

static void list_add(struct string_list *list, const char *text, size_t len)
{
    list->items = xrealloc(list->items, (list->len + 1) * sizeof *list->items);
    list->items[list->len] = xmalloc(len + 1);
    memcpy(list->items[list->len], text, len);
    list->items[list->len++][len] = '\0';
}

static void columns_free(struct config_columns *columns)
{
    for (size_t i = 0; i < columns->len; i++) {
        free(columns->items[i].target);
        free(columns->items[i].type);
    }
    free(columns->items);
    *columns = (struct config_columns){0};
}

static void store_string(char **field, const char *text)
{
    char *copy = xstrdup(text);
    free(*field);
    *field = copy;
}

/* A value of a feature that is not there is refused, never accepted and ignored. */
static enum status refuse_unsupported(const struct option *o, bool is_default,
                                      const struct config_place *place, struct error *err)
{
    if ((o->flags & OPTION_UNSUPPORTED) == 0 || is_default)
        return OK;
    return config_fail(place, err, "%s is not supported by this version", NAME(o));
}

static enum status store_number(const struct option *o, void *field, int64_t v,
                                const struct config_place *place, struct error *err)
{
    char lo[32], hi[32];
    if (v < o->lo || v > o->hi) {
        void (*format)(int64_t, char *, size_t) =
            o->type == OPTION_DURATION ? duration_format : size_format;
        if (o->type == OPTION_INTEGER) {
            snprintf(lo, sizeof lo, "%lld", (long long)o->lo);
            snprintf(hi, sizeof hi, "%lld", (long long)o->hi);
        } else {
            format(o->lo, lo, sizeof lo);
            format(o->hi, hi, sizeof hi);
        }
        return config_fail(place, err, "%s must be between %s and %s", NAME(o), lo, hi);
    }
    TRY(refuse_unsupported(o, v == 0, place, err));
    memcpy(field, &v, sizeof v);
    return OK;
}

static enum status store_bool(const struct option *o, void *field, bool v,
                              const struct config_place *place, struct error *err)
{
    TRY(refuse_unsupported(o, !v, place, err));
    memcpy(field, &v, sizeof v);
    return OK;
}

static enum status store_enum(const struct option *o, void *field, const char *text,
                              const struct config_place *place, struct error *err)
{
    bool supported = false;
    int index = option_enum_index(o->values, text, &supported);
    if (index < 0) {
        char list[120];
        size_t n = 0;
        for (const char *v = o->values; *v != '\0' && n + 1 < sizeof list; v++) {
            if (*v != '!')
                list[n++] = *v;
        }
        list[n] = '\0';
        return config_fail(place, err, "%s = \"%s\": must be one of %s", NAME(o), text, list);
    }
    if (!supported)
        return config_fail(place, err, "%s = \"%s\" is not supported by this version", NAME(o),
                           text);
    unsigned v = (unsigned)index;
    memcpy(field, &v, sizeof v);
    return OK;
}

static enum status store_text(const struct option *o, void *field, const char *text,
                              const struct config_place *place, struct error *err)
{
    if (o->lo > 0 && text[0] == '\0')
        return config_fail(place, err, "%s must not be empty", NAME(o));
    TRY(refuse_unsupported(o, text[0] == '\0', place, err));
    store_string(field, text);
    return OK;
}

static enum status store_list_text(const struct option *o, struct string_list *field,
                                   const char *text, const struct config_place *place,
                                   struct error *err)
{
    struct string_list list = {0};
    TRY(refuse_unsupported(o, text[0] == '\0', place, err));
    while (*text != '\0') {
        size_t n = strcspn(text, ",");
        if (n > 0)
            list_add(&list, text, n);
        text += n;
        text += *text == ',';
    }
    list_free(field);
    *field = list;
    return OK;
}

enum status option_assign_text(const struct option *o, void *base, uint8_t *origins,
                               const char *text, const struct config_place *place,
                               struct error *err)
{
    void *field = (char *)base + o->offset;
    int64_t v;
    char *end;
    switch (o->type) {
    case OPTION_STRING:
        TRY(store_text(o, field, text, place, err));
        break;
    case OPTION_BOOL:
        if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
            return config_fail(place, err, "%s = %s: must be true or false", NAME(o), text);
        TRY(store_bool(o, field, text[0] == 't', place, err));
        break;
    case OPTION_INTEGER:
        errno = 0;
        v = strtoll(text, &end, 10);
        if (errno != 0 || end == text || *end != '\0')
            return config_fail(place, err, "%s = %s: must be an integer", NAME(o), text);
        TRY(store_number(o, field, v, place, err));
        break;
    case OPTION_SIZE:
        if (!size_parse(text, &v))
            return config_fail(place, err, "%s = %s: must be a size such as \"8MiB\"", NAME(o),
                               text);
        TRY(store_number(o, field, v, place, err));
        break;
    case OPTION_DURATION:
        if (!duration_parse(text, &v))
            return config_fail(place, err, "%s = %s: must be a duration such as \"100ms\"", NAME(o),
                               text);
        TRY(store_number(o, field, v, place, err));
        break;
    case OPTION_ENUM:
        TRY(store_enum(o, field, text, place, err));
        break;
    case OPTION_LIST:
        TRY(store_list_text(o, field, text, place, err));
        break;
    case OPTION_COLUMNS:
        return config_fail(place, err, "%s can only be given in a configuration file", NAME(o));
    }
    origins[o->id] = (uint8_t)place->origin;
    return OK;
}

static enum status wrong_kind(const struct option *o, const char *want,
                              const struct toml_value *value, const struct config_place *place,
                              struct error *err)
{
    return config_fail(place, err, "%s must be %s, not %s", NAME(o), want,
                       toml_kind_name(value->kind));
}

static bool is_plain_text(const struct toml_value *v)
{
    return v->kind == TOML_STRING && memchr(v->string.data, 0, v->string.len) == NULL;
}

static enum status assign_column(struct config_column *column, const struct toml_value *item,
                                 const struct config_place *place, struct error *err)
{
    if (item->kind != TOML_TABLE)
        return config_fail(place, err, "table.columns holds tables { attnum, target, type }");
    for (const struct toml_entry *e = item->table.first; e != NULL; e = e->next) {
        if (strcmp(e->key.data, "attnum") == 0 && e->value->kind == TOML_INTEGER &&
            e->value->integer >= 1 && e->value->integer <= 1600)
            column->attnum = (int16_t)e->value->integer;
        else if (strcmp(e->key.data, "attnum") == 0)
            return config_fail(place, err, "table.columns.attnum must be an integer 1 to 1600");
        else if (strcmp(e->key.data, "target") != 0 && strcmp(e->key.data, "type") != 0)
            return config_fail(place, err, "unknown key \"table.columns.%s\"", e->key.data);
        else if (!is_plain_text(e->value) || e->value->string.len == 0)
            return config_fail(place, err, "table.columns.%s must be a string", e->key.data);
        else
            store_string(e->key.data[1] == 'a' ? &column->target : &column->type,
                         e->value->string.data);
    }
    return column->attnum != 0 ? OK : config_fail(place, err, "table.columns needs attnum");
}

static enum status assign_columns(struct config_columns *field, const struct toml_value *value,
                                  const struct config_place *place, struct error *err)
{
    columns_free(field);
    if (value->array.len == 0)
        return OK;
    field->items = xcalloc(value->array.len, sizeof *field->items);
    for (size_t i = 0; i < value->array.len; i++) {
        struct config_place here = *place;
        here.line = value->array.items[i]->line;
        field->len = i + 1;
        TRY(assign_column(&field->items[i], value->array.items[i], &here, err));
        for (size_t j = 0; j < i; j++) {
            if (field->items[j].attnum == field->items[i].attnum)
                return config_fail(&here, err, "table.columns names attnum %d twice",
                                   field->items[i].attnum);
        }
    }
    return OK;
}

static enum status assign_list(const struct option *o, struct string_list *field,
                               const struct toml_value *value, const struct config_place *place,
                               struct error *err)
{
    for (size_t i = 0; i < value->array.len; i++) {
        if (!is_plain_text(value->array.items[i]))
            return config_fail(place, err, "%s must be a list of strings", NAME(o));
    }
    TRY(refuse_unsupported(o, value->array.len == 0, place, err));
    list_free(field);
    for (size_t i = 0; i < value->array.len; i++)
        list_add(field, value->array.items[i]->string.data, value->array.items[i]->string.len);
    return OK;
}

enum status option_assign_toml(const struct option *o, void *base, uint8_t *origins,
                               const struct toml_value *value, const struct config_place *place,
                               struct error *err)
{
    void *field = (char *)base + o->offset;
    bool text = is_plain_text(value);
    switch (o->type) {
    case OPTION_STRING:
    case OPTION_ENUM:
    case OPTION_DURATION:
        if (!text)
            return wrong_kind(
                o, o->type == OPTION_DURATION ? "a duration such as \"100ms\"" : "a string", value,
                place, err);
        return option_assign_text(o, base, origins, value->string.data, place, err);
    case OPTION_BOOL:
        if (value->kind != TOML_BOOL)
            return wrong_kind(o, "true or false", value, place, err);
        TRY(store_bool(o, field, value->boolean, place, err));
        break;
    case OPTION_SIZE:
        if (text)
            return option_assign_text(o, base, origins, value->string.data, place, err);
        if (value->kind != TOML_INTEGER)
            return wrong_kind(o, "a size such as \"8MiB\"", value, place, err);
        TRY(store_number(o, field, value->integer, place, err));
        break;
    case OPTION_INTEGER:
        if (value->kind != TOML_INTEGER)
            return wrong_kind(o, "an integer", value, place, err);
        TRY(store_number(o, field, value->integer, place, err));
        break;
    case OPTION_LIST:
        if (value->kind != TOML_ARRAY)
            return wrong_kind(o, "a list of strings", value, place, err);
        TRY(assign_list(o, field, value, place, err));
        break;
    case OPTION_COLUMNS:
        if (value->kind != TOML_ARRAY)
            return wrong_kind(o, "a list of tables", value, place, err);
        TRY(assign_columns(field, value, place, err));
        break;
    }
    origins[o->id] = (uint8_t)place->origin;
    return OK;
}

void options_assign_defaults(enum option_scope scope, void *base)
{
    uint8_t origins[OPTION_COUNT];
    struct config_place place = {ORIGIN_DEFAULT, "default", 0};
    struct error err;
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct option *o = &option_table[i];
        if (o->scope != scope || o->default_text == NULL)
            continue;
        /* an empty text is stored as one: users of the field need no NULL check */
        CHECK(option_assign_text(o, base, origins, o->default_text, &place, &err) == OK);
    }
}

void options_release(enum option_scope scope, void *base)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct option *o = &option_table[i];
        void *field = (char *)base + o->offset;
        if (o->scope != scope)
            continue;
        if (o->type == OPTION_STRING)
            free(*(char **)field);
        else if (o->type == OPTION_LIST)
            list_free(field);
        else if (o->type == OPTION_COLUMNS)
            columns_free(field);
    }
}
