/* ClickHouse type texts: parsed, printed, compared. Pure, no I/O; nodes live in the caller's arena.
 * Source: ClickHouse's documentation of data types, checked against 26.7 (docs/types.md). */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"

#define TYPE_NAME_MAX_BYTES (256u << 10)
#define TYPE_NAME_MAX_DEPTH 32u

enum type_kind {
    TYPE_UNKNOWN, /* parsed and printed, not walked: AggregateFunction, Variant, Dynamic … */
    TYPE_NOTHING,
    TYPE_BOOL,
    TYPE_INT8,
    TYPE_INT16,
    TYPE_INT32,
    TYPE_INT64,
    TYPE_INT128,
    TYPE_INT256,
    TYPE_UINT8,
    TYPE_UINT16,
    TYPE_UINT32,
    TYPE_UINT64,
    TYPE_UINT128,
    TYPE_UINT256,
    TYPE_BFLOAT16,
    TYPE_FLOAT32,
    TYPE_FLOAT64,
    TYPE_DECIMAL,
    TYPE_DATE,
    TYPE_DATE32,
    TYPE_DATETIME,
    TYPE_DATETIME64,
    TYPE_TIME,
    TYPE_TIME64,
    TYPE_INTERVAL, /* IntervalSecond … : Int64 */
    TYPE_UUID,
    TYPE_IPV4,
    TYPE_IPV6,
    TYPE_STRING,
    TYPE_FIXED_STRING,
    TYPE_ENUM8,
    TYPE_ENUM16,
    TYPE_NULLABLE,
    TYPE_LOW_CARDINALITY,
    TYPE_ARRAY,
    TYPE_MAP,
    TYPE_TUPLE,
    TYPE_JSON,
    TYPE_SIMPLE_AGGREGATE, /* SimpleAggregateFunction(f, T): stored as T */
};

struct type_member {
    const char *name;
    int16_t value;
};

struct type_node {
    enum type_kind kind;
    const char *name;  /* as written: "Decimal", "Point", "SimpleAggregateFunction" */
    uint32_t width;    /* bytes of a row where that is fixed (FixedString: n), else 0 */
    uint8_t precision; /* Decimal P, DateTime64 and Time64 p */
    uint8_t scale;     /* Decimal S */
    const char *zone;  /* DateTime and DateTime64: time zone as written, or NULL */
    unsigned nchildren;
    const struct type_node *
        *children;      /* Nullable, LowCardinality, Array, SimpleAggregate 1; Map 2 */
    const char **names; /* Tuple: nchildren element names, NULL without names */
    unsigned nmembers;
    const struct type_member *members; /* Enum8, Enum16: in the order written */
    const char *args; /* UNKNOWN, JSON: text between the parentheses; SimpleAggregate: f; or NULL */
};

/* text: len bytes, no NUL needed. ERR_DATA: not a type text, or past the limits above. */
enum status type_name_parse(struct arena *arena, const char *text, size_t len,
                            const struct type_node **ret, struct error *err) CHECKED;

/* Canonical text: Decimal(9, 2), DateTime64(6, 'UTC'), Enum8('a' = 1, 'b' = 2), Tuple(a UInt8, b
 * String). */
void type_name_print(const struct type_node *type, struct buf *out);

/* A column sent as `sent` is stored unchanged in a column of type `column` (clickhouse-notes B2):
 * equal after parsing, Decimal32(S) = Decimal(9, S), time zones ignored, Bool = UInt8,
 * LowCardinality(T) takes T, SimpleAggregateFunction(f, T) takes T, tuple names only where both
 * have them. */
bool type_name_accepts(const struct type_node *column, const struct type_node *sent);

/* The same for texts; false also if one of them does not parse. */
bool type_text_accepts(const char *column, const char *sent);
