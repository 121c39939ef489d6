/* One entry per PostgreSQL type: what the encoder asks of a type family. Private to src/types. */
#pragma once
#include "native/type_name.h"
#include "types/encoder.h"

struct type_family {
    Oid typid;
    int16_t attlen; /* pg_type.typlen */
    bool raw_text;  /* the datum's bytes are what a String column holds (text, json, bytea) */

    /* Default target type of this column, without Nullable, as ClickHouse type text. */
    void (*default_type)(const struct att_desc *att, const struct ch_caps *caps, struct buf *out);

    /* Sets append, width, scale, precision, variant for this target (never String unless raw_text).
     * False: the type cannot go there exactly. NULL: String is the only target. */
    bool (*plan)(const struct type_node *target, struct encoder *e);

    /* Appends the text form. False (nothing appended): the bytes are no value of this type. */
    bool (*text)(const uint8_t *data, uint32_t len, struct buf *out);

    /* Appends the value nearest to one that append refused, without null flag. NULL, or false with
     * nothing appended: there is none, the default is used. */
    bool (*clamp)(const struct encoder *e, const uint8_t *data, uint32_t len, struct buf *out);
};

/* NULL: not carried. *ret_index is for type_family_at, which rows use. */
const struct type_family *type_family_find(Oid typid, uint8_t *ret_index);
const struct type_family *type_family_at(uint8_t index);

/* The type whose rules a column follows: a domain's base type. */
static inline Oid att_typid(const struct att_desc *att)
{
    return att->base_typid != 0 ? att->base_typid : att->typid;
}

/* Families, one file each kind. */
extern const struct type_family family_bool, family_int2, family_int4, family_int8, family_oid;
extern const struct type_family family_float4, family_float8, family_numeric;
extern const struct type_family family_text, family_varchar, family_bpchar, family_json,
    family_bytea, family_refcursor;
extern const struct type_family family_name, family_char, family_uuid;
extern const struct type_family family_date, family_time, family_timetz;
extern const struct type_family family_timestamp, family_timestamptz, family_interval;
extern const struct type_family family_bit, family_varbit;
extern const struct type_family family_inet, family_cidr, family_macaddr, family_macaddr8;
extern const struct type_family family_point, family_lseg, family_path, family_box, family_polygon,
    family_line, family_circle;
extern const struct type_family family_jsonb, family_jsonpath, family_xml;
extern const struct type_family family_tsvector, family_tsquery;
extern const struct type_family family_money, family_pg_lsn, family_pg_snapshot,
    family_txid_snapshot, family_tid, family_xid, family_cid, family_xid8, family_int2vector,
    family_oidvector;
extern const struct type_family family_regproc, family_regprocedure, family_regoper,
    family_regoperator, family_regclass, family_regtype, family_regconfig, family_regdictionary,
    family_regnamespace, family_regrole, family_regcollation;

/* The default target "String". */
void type_default_string(const struct att_desc *att, const struct ch_caps *caps, struct buf *out);

/* Helpers of the append functions: the null flag goes in only once the value is sure. */
static inline void put_not_null(const struct encoder *e, struct column_buf *out)
{
    if (e->nullable)
        buf_put_u8(&out->nulls, 0);
}

static inline enum encode_result encode_bad(const char **ret_reason, const char *why)
{
    *ret_reason = why;
    return ENCODE_BAD;
}

/* A String value: length, bytes; one reservation. */
static inline void put_string(struct buf *out, const uint8_t *data, uint32_t len)
{
    uint8_t *at = buf_reserve(out, (size_t)len + 5);
    uint32_t rest = len;
    while (rest >= 0x80) {
        *at++ = (uint8_t)(rest | 0x80);
        rest >>= 7;
    }
    *at++ = (uint8_t)rest;
    if (len > 0)
        memcpy(at, data, len);
    out->len = (size_t)(at - out->data) + len;
}

static inline void put_text(struct buf *out, const char *text)
{
    buf_put(out, text, strlen(text));
}

/* Decimal digits, without printf: elements of arrays come by the million. */
static inline void put_u64_text(struct buf *out, uint64_t value)
{
    uint8_t text[20], *at = text + sizeof text;
    do {
        *--at = (uint8_t)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    buf_put(out, at, (size_t)(text + sizeof text - at));
}

static inline void put_i64_text(struct buf *out, int64_t value)
{
    if (value < 0)
        buf_put_u8(out, '-');
    put_u64_text(out, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

/* Copies the n bytes of a fixed-width value as they are (both sides little-endian). */
enum encode_result encode_copy2(const struct encoder *e, const uint8_t *data, uint32_t len,
                                struct column_buf *out, const char **ret_reason);
enum encode_result encode_copy4(const struct encoder *e, const uint8_t *data, uint32_t len,
                                struct column_buf *out, const char **ret_reason);
enum encode_result encode_copy8(const struct encoder *e, const uint8_t *data, uint32_t len,
                                struct column_buf *out, const char **ret_reason);

#define REASON_LENGTH "datum has a wrong length"
