/* `walshadow config`, masking, and what a reload may change. */
#include "config/config_assign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Where the password of scheme://user:password@… begins and ends; false if there is none. */
static bool find_url_password(const char *text, size_t *ret_at, size_t *ret_len)
{
    const char *scheme = strstr(text, "://");
    if (scheme == NULL)
        return false;
    const char *start = scheme + 3, *end = start + strcspn(start, "/?#");
    const char *amp = memrchr(start, '@', (size_t)(end - start));
    const char *colon = amp == NULL ? NULL : memchr(start, ':', (size_t)(amp - start));
    if (colon == NULL)
        return false;
    *ret_at = (size_t)(colon + 1 - text);
    *ret_len = (size_t)(amp - colon - 1);
    return true;
}

static bool is_password_key(const char *at)
{
    return strncasecmp(at, "password", 8) == 0 || strncasecmp(at, "sslpassword", 11) == 0;
}

/* Length of the value at text: quoted as libpq does, or up to the next blank or &. */
static size_t value_length(const char *text, bool is_url)
{
    size_t n = 0;
    if (text[0] != '\'' || is_url)
        return strcspn(text, is_url ? "&#" : " \t\n");
    for (n = 1; text[n] != '\0' && text[n] != '\''; n++)
        n += text[n] == '\\' && text[n + 1] != '\0';
    return n + (text[n] == '\'');
}

char *config_mask_secret(const char *text)
{
    CLEANUP_BUF struct buf out = {0};
    size_t at = 0, secret_at = 0, secret_len = 0;
    bool is_url = strstr(text, "://") != NULL;
    if (find_url_password(text, &secret_at, &secret_len)) {
        buf_printf(&out, "%.*s***", (int)secret_at, text);
        at = secret_at + secret_len;
    }
    while (text[at] != '\0') {
        bool start = at == 0 || strchr(" \t\n?&", text[at - 1]) != NULL;
        if (!start || !is_password_key(text + at)) {
            buf_put_u8(&out, (uint8_t)text[at++]);
            continue;
        }
        size_t n = strcspn(text + at, "= ");
        while (text[at + n] == ' ')
            n++;
        n += text[at + n] == '=';
        while (!is_url && text[at + n] == ' ')
            n++;
        buf_printf(&out, "%.*s***", (int)n, text + at);
        at += n;
        at += value_length(text + at, is_url);
    }
    return xstrdup(buf_cstr(&out));
}

/* A TOML basic string. */
static void put_quoted(struct buf *out, const char *text)
{
    buf_put_u8(out, '"');
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            buf_printf(out, "\\u%04X", c);
        else
            buf_put_u8(out, c);
    }
    buf_put_u8(out, '"');
}

static void put_list(struct buf *out, const struct string_list *list)
{
    buf_put(out, "[", 1);
    for (size_t i = 0; i < list->len; i++) {
        if (i > 0)
            buf_put(out, ", ", 2);
        put_quoted(out, list->items[i]);
    }
    buf_put(out, "]", 1);
}

static void put_columns(struct buf *out, const struct config_columns *columns)
{
    buf_put(out, "[", 1);
    for (size_t i = 0; i < columns->len; i++) {
        const struct config_column *c = &columns->items[i];
        buf_printf(out, "%s{ attnum = %d", i > 0 ? ", " : "", c->attnum);
        if (c->target != NULL) {
            buf_printf(out, ", target = ");
            put_quoted(out, c->target);
        }
        if (c->type != NULL) {
            buf_printf(out, ", type = ");
            put_quoted(out, c->type);
        }
        buf_printf(out, " }");
    }
    buf_put(out, "]", 1);
}

static void put_value(struct buf *out, const struct option *o, const void *field)
{
    char text[100];
    int64_t number = 0;
    unsigned index = 0;
    switch (o->type) {
    case OPTION_STRING: {
        const char *s = *(char *const *)field;
        CLEANUP_FREE char *shown = o->flags & OPTION_SECRET ? xstrdup(s[0] != '\0' ? "***" : "")
                                   : o->flags & OPTION_URL_SECRET ? config_mask_secret(s)
                                                                  : xstrdup(s);
        put_quoted(out, shown);
        return;
    }
    case OPTION_BOOL:
        buf_printf(out, "%s", *(const bool *)field ? "true" : "false");
        return;
    case OPTION_INTEGER:
    case OPTION_SIZE:
    case OPTION_DURATION:
        memcpy(&number, field, sizeof number);
        snprintf(text, sizeof text, "%lld", (long long)number);
        if (o->type == OPTION_SIZE)
            size_format(number, text, sizeof text);
        else if (o->type == OPTION_DURATION)
            duration_format(number, text, sizeof text);
        buf_printf(out, o->type == OPTION_INTEGER ? "%s" : "\"%s\"", text);
        return;
    case OPTION_ENUM:
        memcpy(&index, field, sizeof index);
        option_enum_name(o->values, index, text, sizeof text);
        buf_printf(out, "\"%s\"", text);
        return;
    case OPTION_LIST:
        put_list(out, field);
        return;
    case OPTION_COLUMNS:
        put_columns(out, field);
        return;
    }
}

static bool has_value(const struct option *o, const void *field)
{
    if (o->type == OPTION_STRING)
        return *(char *const *)field != NULL;
    if (o->type == OPTION_LIST)
        return ((const struct string_list *)field)->len > 0;
    return o->type != OPTION_COLUMNS || ((const struct config_columns *)field)->len > 0;
}

static void put_scope(struct buf *out, enum option_scope scope, const char *section,
                      const void *base, const uint8_t *origins)
{
    static const char *const names[] = {"default", "file", "environment", "command line"};
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct option *o = &option_table[i];
        const void *field = (const char *)base + o->offset;
        if (o->scope != scope || strcmp(o->section, section) != 0 || !has_value(o, field))
            continue;
        if (scope == SCOPE_DESTINATION &&
            !destination_option_applies(((const struct config_destination *)base)->kind, o->id))
            continue;
        size_t start = out->len;
        buf_printf(out, "%s = ", o->key);
        put_value(out, o, field);
        while (out->len - start < 48)
            buf_put_u8(out, ' ');
        buf_printf(out, " # %s\n", names[origins[o->id]]);
    }
}

void config_print(const struct config *c, struct buf *out)
{
    const char *section = "";
    put_scope(out, SCOPE_GLOBAL, "", c, c->origin);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct option *o = &option_table[i];
        if (o->scope != SCOPE_GLOBAL || strcmp(o->section, section) == 0)
            continue;
        section = o->section;
        buf_printf(out, "\n[%s]\n", section);
        put_scope(out, SCOPE_GLOBAL, section, c, c->origin);
    }
    for (size_t i = 0; i < c->ndestinations; i++) {
        buf_printf(out, "\n[destination.%s]\n", c->destinations[i].name);
        put_scope(out, SCOPE_DESTINATION, "destination", &c->destinations[i],
                  c->destinations[i].origin);
    }
    for (size_t i = 0; i < c->nnamespaces; i++) {
        buf_printf(out, "\n[namespace.");
        put_quoted(out, c->namespaces[i].name);
        buf_printf(out, "]\n");
        put_scope(out, SCOPE_NAMESPACE, "namespace", &c->namespaces[i], c->namespaces[i].origin);
    }
    for (size_t i = 0; i < c->ntables; i++) {
        buf_printf(out, "\n[table.");
        put_quoted(out, c->tables[i].schema);
        buf_put_u8(out, '.');
        put_quoted(out, c->tables[i].name);
        buf_printf(out, "]\n");
        put_scope(out, SCOPE_TABLE, "table", &c->tables[i], c->tables[i].origin);
    }
}

/* Values compared as they would be printed, but unmasked for strings. */
static bool field_equal(const struct option *o, const void *a, const void *b)
{
    CLEANUP_BUF struct buf x = {0}, y = {0};
    if (o->type == OPTION_STRING) {
        const char *s = *(char *const *)a, *t = *(char *const *)b;
        return (s == NULL) == (t == NULL) && (s == NULL || strcmp(s, t) == 0);
    }
    put_value(&x, o, a);
    put_value(&y, o, b);
    return x.len == y.len && memcmp(x.data, y.data, x.len) == 0;
}

static const struct option *scope_difference(enum option_scope scope, const void *a, const void *b)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct option *o = &option_table[i];
        if (o->scope == scope && o->apply == APPLY_BOOT &&
            !field_equal(o, (const char *)a + o->offset, (const char *)b + o->offset))
            return o;
    }
    return NULL;
}

bool config_boot_difference(const struct config *from, const struct config *to,
                            char ret_key[static CONFIG_KEY_MAX])
{
    const struct option *o = scope_difference(SCOPE_GLOBAL, from, to);
    if (o != NULL) {
        snprintf(ret_key, CONFIG_KEY_MAX, "%s%s%s", o->section, o->section[0] != '\0' ? "." : "",
                 o->key);
        return true;
    }
    snprintf(ret_key, CONFIG_KEY_MAX, "destination");
    if (from->ndestinations != to->ndestinations)
        return true;
    for (size_t i = 0; i < from->ndestinations; i++) {
        const struct config_destination *a = &from->destinations[i], *b = &to->destinations[i];
        if (strcmp(a->name, b->name) != 0)
            return true;
        o = scope_difference(SCOPE_DESTINATION, a, b);
        if (o != NULL) {
            snprintf(ret_key, CONFIG_KEY_MAX, "destination.%.100s.%s", a->name, o->key);
            return true;
        }
    }
    return false;
}
