/* A TOML 1.0 parser (https://toml.io/en/v1.0.0): the whole language, errors with line and column.
 * Values live in the document and go with it. */
#pragma once
#include "base/arena.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum toml_kind {
    TOML_STRING,
    TOML_INTEGER,
    TOML_FLOAT,
    TOML_BOOL,
    TOML_OFFSET_DATETIME,
    TOML_LOCAL_DATETIME,
    TOML_LOCAL_DATE,
    TOML_LOCAL_TIME,
    TOML_ARRAY,
    TOML_TABLE,
};

/* Bytes of valid UTF-8; may hold NUL (from \u0000), is NUL-terminated beside that. */
struct toml_text {
    const char *data;
    size_t len;
};

struct toml_time {
    int year, month, day, hour, minute, second;
    int nanosecond;
    int offset_minutes; /* of TOML_OFFSET_DATETIME */
};

struct toml_value {
    enum toml_kind kind;
    unsigned line, column; /* where it was written, from 1 */
    union {
        struct toml_text string;
        int64_t integer;
        double number;
        bool boolean;
        struct toml_time time;
        struct {
            struct toml_value **items;
            size_t len, cap;
        } array;
        struct {
            struct toml_entry *first, *last; /* in the order written */
            struct toml_entry **buckets;     /* by key; NULL while small */
            size_t len, nbuckets;
        } table;
    };
    uint8_t origin; /* parser's own: how a table or array came to be */
};

struct toml_entry {
    struct toml_text key;
    unsigned line, column; /* of the key */
    struct toml_value *value;
    struct toml_entry *next, *next_in_bucket;
};

struct toml_doc {
    struct arena arena;
    struct toml_value *root; /* always a table */
};

/* Parses len bytes. name stands in the error's text ("name:line:column: …"). ERR_CONFIG on bad
 * input; *ret is set only on success and freed by toml_doc_free. */
enum status toml_parse(const char *name, const char *data, size_t len, struct toml_doc **ret,
                       struct error *err) CHECKED;
void toml_doc_free(struct toml_doc *doc); /* NULL is fine */

/* The value of a key, NULL if the table has none. */
const struct toml_value *toml_get(const struct toml_value *table, const char *key);
const char *toml_kind_name(enum toml_kind kind); /* "string", "integer", … for messages */
