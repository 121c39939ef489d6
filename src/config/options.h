/* The table of configuration options: what options.def says, as data. */
#pragma once
#include "base/buf.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Which struct holds the value: config itself, or one of its named sections. */
enum option_scope { SCOPE_GLOBAL, SCOPE_DESTINATION, SCOPE_NAMESPACE, SCOPE_TABLE };

enum option_type {
    OPTION_STRING,   /* char *, NULL when unset without default */
    OPTION_BOOL,     /* bool */
    OPTION_INTEGER,  /* int64_t */
    OPTION_SIZE,     /* int64_t bytes; "8MiB", "64KiB", "1GiB", a plain number */
    OPTION_DURATION, /* int64_t milliseconds; "100ms", "10s", "5m", "1h" */
    OPTION_ENUM,     /* unsigned: position in `values` */
    OPTION_LIST,     /* struct string_list */
    OPTION_COLUMNS,  /* struct config_column[] of a table section */
};

enum option_apply { APPLY_BOOT, APPLY_RELOAD };

enum option_id {
#define OPTION(id, scope, section, key, type, field, default_text, lo, hi, values, flags, apply,   \
               help)                                                                               \
    OPT_##id,
#include "config/options.def"
#undef OPTION
    OPTION_COUNT
};

#define OPTION_SECRET 1u      /* masked whole when printed */
#define OPTION_URL_SECRET 2u  /* a URL or conninfo: the password inside is masked */
#define OPTION_UNSUPPORTED 4u /* any value but the default is refused by name */

struct option {
    enum option_id id;
    enum option_scope scope;
    const char *section; /* "" for top level; "destination" … without the instance's name */
    const char *key;
    enum option_type type;
    size_t offset; /* in the struct of the scope */
    const char
        *default_text;  /* as written in a file without quotes; NULL: computed, help says how */
    int64_t lo, hi;     /* of numbers, in the unit of the type */
    const char *values; /* of enums: "a|b|!c"; a leading ! = not supported by this version */
    unsigned flags;
    enum option_apply apply;
    const char *help;
};

extern const struct option option_table[OPTION_COUNT];

/* NULL if there is none. */
const struct option *option_find(enum option_scope scope, const char *section, const char *key);

/* Number-like texts. false on anything else or on overflow. */
bool size_parse(const char *text, int64_t *ret_bytes);
bool duration_parse(const char *text, int64_t *ret_ms);
void size_format(int64_t bytes, char *buf, size_t cap);  /* the largest unit that is exact */
void duration_format(int64_t ms, char *buf, size_t cap); /* likewise */

/* Position of text in "a|b|!c"; -1 unknown. *ret_supported false for a ! value. */
int option_enum_index(const char *values, const char *text, bool *ret_supported);
void option_enum_name(const char *values, unsigned index, char *buf, size_t cap);

/* docs/configuration.md, made from the table. */
void options_render_markdown(struct buf *out);
