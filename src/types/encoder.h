/* From a PostgreSQL datum to a ClickHouse column: one encoder per mapped column.
 *
 * Planning picks the target type and the functions once; rows then go through `append` only. */
#pragma once
#include "base/buf.h"
#include "catalog/descriptor.h"
#include "native/block.h"

/* What the destination's server can hold (by version; clickhouse-notes 8). */
struct ch_caps {
    bool wide_dates; /* DateTime64 and Date32 hold years 0000-9999 (26.7), else 1900-2299 */
    bool time64;     /* has Time64 */
};

enum bad_value_policy { BAD_VALUE_DEFAULT, BAD_VALUE_NULL, BAD_VALUE_CLAMP, BAD_VALUE_ERROR };

enum encode_result {
    ENCODE_OK,
    ENCODE_BAD, /* nothing was appended; *ret_reason says why (static text) */
};

struct encoder;
struct text_plan;
/* Appends one non-NULL value (plain bytes: decompressed, detoasted, no varlena header; fixed types
 * in PostgreSQL's memory form, little-endian, unaligned) to out->data; for Nullable targets the
 * caller has NOT yet written the null flag: the encoder writes both. */
typedef enum encode_result (*encode_fn)(const struct encoder *e, const uint8_t *data, uint32_t len,
                                        struct column_buf *out, const char **ret_reason);

struct encoder {
    encode_fn append;
    bool nullable;
    uint8_t width; /* fixed target width in bytes, 0 = String */
    uint8_t copy;  /* bytes of a value if all that append does is copy them, which callers may then
                      do  themselves; else 0 */
    uint8_t scale; /* Decimal */
    uint8_t precision;
    uint8_t variant; /* private to the type family */
    struct ch_caps caps;
    int32_t typmod;
    Oid typid;
    char *ch_type;          /* full type text of what is sent, e.g. "Nullable(Decimal(9, 2))" */
    char *column_type;      /* what the column is created as, where that differs, or NULL:
                               LowCardinality(String) */
    struct text_plan *text; /* types made of others: how they are printed, or NULL */
};

/* The default target of a column as contract.md and the type bridge name it, or `override` (a
 * ClickHouse type text, NULL = none). key: not Nullable. ERR_CONFIG: the type is not carried ("type
 * aclitem is not supported"), or the override cannot hold it. The result is freed with
 * encoder_fini. */
enum status encoder_plan(const struct att_desc *att, bool key, const char *override,
                         const struct ch_caps *caps, struct encoder *ret,
                         struct error *err) CHECKED;
void encoder_fini(struct encoder *e);

/* NULL for Nullable targets, the type's default otherwise (tombstones, missing without default). */
void encoder_append_null_or_default(const struct encoder *e, struct column_buf *out);

/* True if the column holds the text form of a type whose own bytes are something else. */
bool encoder_is_text(const struct encoder *e);
/* A value as its text form, for a String target of any type. */
void encoder_append_text(const struct encoder *e, const uint8_t *text, uint32_t len,
                         struct column_buf *out);

/* What on_bad_value does with a value that ENCODE_BAD refused: *ret_action is "null" or "clamp" and
 * the replacement has been appended, or "error" and nothing was (the table stops). data may be NULL
 * (a value over inline_value_max, a lost TOAST value). */
void encoder_append_bad(const struct encoder *e, enum bad_value_policy policy, const uint8_t *data,
                        uint32_t len, struct column_buf *out, const char **ret_action);

/* Text form of a datum (the type's output function under our pinned settings), for rejects and
 * logs; appends at most max_bytes. */
void datum_text(const struct att_desc *att, const uint8_t *data, uint32_t len, size_t max_bytes,
                struct buf *out);
