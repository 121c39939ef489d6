/* The option table as data, and the texts of sizes, durations and enums. */
#include "config/options.h"

#include "config/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Offset of an option's field in the struct of its scope. */
#define FIELD_GLOBAL(field) offsetof(struct config, field)
#define FIELD_DESTINATION(field) offsetof(struct config_destination, field)
#define FIELD_NAMESPACE(field) offsetof(struct config_namespace, field)
#define FIELD_TABLE(field) offsetof(struct config_table, field)

const struct option option_table[OPTION_COUNT] = {
#define OPTION(id, scope, section, key, type, field, default_text, lo, hi, values, flags, apply,   \
               help)                                                                               \
    [OPT_##id] = {OPT_##id,                                                                        \
                  SCOPE_##scope,                                                                   \
                  section,                                                                         \
                  key,                                                                             \
                  OPTION_##type,                                                                   \
                  FIELD_##scope(field),                                                            \
                  default_text,                                                                    \
                  lo,                                                                              \
                  hi,                                                                              \
                  values,                                                                          \
                  flags,                                                                           \
                  APPLY_##apply,                                                                   \
                  help},
#include "config/options.def"
#undef OPTION
};

struct unit {
    const char *name;
    int64_t factor;
};

static const struct unit size_units[] = {
    {"TiB", INT64_C(1) << 40},
    {"GiB", 1 << 30},
    {"MiB", 1 << 20},
    {"KiB", 1 << 10},
    {"TB", INT64_C(1) << 40},
    {"GB", 1 << 30},
    {"MB", 1 << 20},
    {"kB", 1 << 10},
    {"B", 1},
    {"", 1},
};

static const struct unit duration_units[] = {
    {"d", 86400000}, {"h", 3600000}, {"min", 60000}, {"m", 60000}, {"s", 1000}, {"ms", 1},
};

const struct option *option_find(enum option_scope scope, const char *section, const char *key)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (option_table[i].scope == scope && strcmp(option_table[i].section, section) == 0 &&
            strcmp(option_table[i].key, key) == 0)
            return &option_table[i];
    }
    return NULL;
}

static bool unit_parse(const char *text, const struct unit *units, size_t nunits, int64_t *ret)
{
    char *end;
    if (!isdigit((unsigned char)text[0]))
        return false;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno != 0)
        return false;
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < nunits; i++) {
        int64_t v;
        if (strcmp(end, units[i].name) != 0)
            continue;
        if (__builtin_mul_overflow((int64_t)n, units[i].factor, &v))
            return false;
        *ret = v;
        return true;
    }
    return false;
}

bool size_parse(const char *text, int64_t *ret_bytes)
{
    return unit_parse(text, size_units, LENGTH(size_units), ret_bytes);
}

bool duration_parse(const char *text, int64_t *ret_ms)
{
    if (strcmp(text, "0") == 0) {
        *ret_ms = 0;
        return true;
    }
    return unit_parse(text, duration_units, LENGTH(duration_units), ret_ms);
}

static void unit_format(int64_t v, const struct unit *units, size_t nunits, char *buf, size_t cap)
{
    size_t i = 0;
    while (i + 1 < nunits && (v == 0 || v % units[i].factor != 0))
        i++;
    snprintf(buf, cap, "%lld%s", (long long)(v / units[i].factor), units[i].name);
}

void size_format(int64_t bytes, char *buf, size_t cap)
{
    if (bytes % 1024 != 0 || bytes == 0)
        snprintf(buf, cap, "%lld", (long long)bytes);
    else
        unit_format(bytes, size_units, 4, buf, cap);
}

void duration_format(int64_t ms, char *buf, size_t cap)
{
    /* "300s" reads as well as "5min": only seconds and milliseconds are printed */
    unit_format(ms, duration_units + 4, 2, buf, cap);
}

int option_enum_index(const char *values, const char *text, bool *ret_supported)
{
    size_t len = strlen(text);
    for (int i = 0; *values != '\0'; i++) {
        size_t n = strcspn(values, "|");
        bool supported = values[0] != '!';
        const char *name = supported ? values : values + 1;
        size_t name_len = supported ? n : n - 1;
        if (name_len == len && memcmp(name, text, len) == 0) {
            *ret_supported = supported;
            return i;
        }
        values += n;
        values += *values == '|';
    }
    return -1;
}

void option_enum_name(const char *values, unsigned index, char *buf, size_t cap)
{
    while (index-- > 0) {
        values += strcspn(values, "|");
        values += *values == '|';
    }
    values += *values == '!';
    snprintf(buf, cap, "%.*s", (int)strcspn(values, "|"), values);
}

static const char *type_text(const struct option *o)
{
    switch (o->type) {
    case OPTION_STRING:
        return "string";
    case OPTION_BOOL:
        return "boolean";
    case OPTION_INTEGER:
        return "integer";
    case OPTION_SIZE:
        return "size";
    case OPTION_DURATION:
        return "duration";
    case OPTION_ENUM:
        return "one of";
    case OPTION_LIST:
        return "list of strings";
    case OPTION_COLUMNS:
        return "list of tables";
    }
    return "";
}

static void put_range(struct buf *out, const struct option *o)
{
    char lo[32], hi[32];
    if (o->type == OPTION_ENUM) {
        for (const char *v = o->values; *v != '\0';) {
            size_t n = strcspn(v, "|");
            if (*v != '!')
                buf_printf(out, "%s`%.*s`", out->data[out->len - 1] == '`' ? ", " : " ", (int)n, v);
            v += n;
            v += *v == '|';
        }
        return;
    }
    if (o->type == OPTION_INTEGER) {
        buf_printf(out, " %lld – %lld", (long long)o->lo, (long long)o->hi);
    } else if (o->type == OPTION_SIZE || o->type == OPTION_DURATION) {
        void (*format)(int64_t, char *, size_t) =
            o->type == OPTION_SIZE ? size_format : duration_format;
        format(o->lo, lo, sizeof lo);
        format(o->hi, hi, sizeof hi);
        if (o->hi == INT64_MAX)
            buf_printf(out, " ≥ %s", lo);
        else
            buf_printf(out, " %s – %s", lo, hi);
    }
}

void options_render_markdown(struct buf *out)
{
    static const char *const suffix[] = {"", ".NAME", ".SCHEMA", ".SCHEMA.TABLE"};
    const char *section = NULL;
    buf_printf(out,
               "# Configuration\n\nMade from the option table (src/config/options.def) by "
               "`walshadow config --markdown configuration`; do not edit.\n\nTOML. Sizes are "
               "written \"8MiB\" "
               "(KiB, MiB, GiB, TiB), durations \"100ms\" (ms, s, m, h, d). An unknown key is an "
               "error.\nPrecedence: command line > environment (`WALSHADOW_<SECTION>_<KEY>`, dots "
               "as `_`) > file > default.\nOptions marked *reload* may change while walshadow runs "
               "(SIGHUP, `walshadow reload`); the others need a restart.\n");
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct option *o = &option_table[i];
        if (section == NULL || strcmp(section, o->section) != 0) {
            section = o->section;
            if (section[0] == '\0')
                buf_printf(out, "\n## Top level\n");
            else
                buf_printf(out, "\n## [%s%s]\n", section, suffix[o->scope]);
            if (o->scope == SCOPE_DESTINATION)
                buf_printf(out, "\n`[ch]` is another name of `[destination.default]`.\n");
            buf_printf(out, "\n| key | type | default | meaning |\n|---|---|---|---|\n");
        }
        buf_printf(out, "| `%s` | %s", o->key, type_text(o));
        put_range(out, o);
        if (o->default_text == NULL)
            buf_printf(out, " | |");
        else
            buf_printf(out, " | `%s` |", o->default_text[0] == '\0' ? "\"\"" : o->default_text);
        for (const char *c = o->help; *c != '\0'; c++)
            buf_printf(out, "%s%c", c == o->help ? " " : *c == '|' ? "\\" : "", *c);
        buf_printf(out, "%s%s |\n", o->apply == APPLY_RELOAD ? " *(reload)*" : "",
                   o->flags & OPTION_UNSUPPORTED ? " *(not supported by this version)*" : "");
    }
}
