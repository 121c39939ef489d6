/* bool, int2, int4, int8, oid, float4, float8: stored as little-endian machine values. */
#include "types/family.h"
#include "types/float_text.h"

#include <limits.h>

#define ENCODE_COPY(n)                                                                             \
    enum encode_result encode_copy##n(const struct encoder *e, const uint8_t *data, uint32_t len,  \
                                      struct column_buf *out, const char **ret_reason)             \
    {                                                                                              \
        if (__builtin_expect(len != n, 0))                                                         \
            return encode_bad(ret_reason, REASON_LENGTH);                                          \
        memcpy(buf_reserve(&out->data, n), data, n);                                               \
        out->data.len += n;                                                                        \
        put_not_null(e, out);                                                                      \
        return ENCODE_OK;                                                                          \
    }
ENCODE_COPY(2)
ENCODE_COPY(4)
ENCODE_COPY(8)

/* ---- integers ---- */

/* The value of an int2, int4, int8 or oid datum. */
static bool read_integer(Oid typid, const uint8_t *data, uint32_t len, int64_t *ret)
{
    int16_t v2;
    int32_t v4;
    uint32_t u4;
    if (typid == family_int2.typid && len == sizeof v2) {
        memcpy(&v2, data, sizeof v2);
        *ret = v2;
    } else if (typid == family_int4.typid && len == sizeof v4) {
        memcpy(&v4, data, sizeof v4);
        *ret = v4;
    } else if (typid == family_oid.typid && len == sizeof u4) {
        memcpy(&u4, data, sizeof u4);
        *ret = u4;
    } else if (typid == family_int8.typid && len == sizeof *ret) {
        memcpy(ret, data, sizeof *ret);
    } else {
        return false;
    }
    return true;
}

struct integer_range {
    enum type_kind kind;
    uint8_t width;
    int64_t min, max; /* UInt64: what an int64 can be of it */
};

static const struct integer_range integer_ranges[] = {
    {TYPE_INT8, 1, INT8_MIN, INT8_MAX},    {TYPE_INT16, 2, INT16_MIN, INT16_MAX},
    {TYPE_INT32, 4, INT32_MIN, INT32_MAX}, {TYPE_INT64, 8, INT64_MIN, INT64_MAX},
    {TYPE_UINT8, 1, 0, UINT8_MAX},         {TYPE_UINT16, 2, 0, UINT16_MAX},
    {TYPE_UINT32, 4, 0, UINT32_MAX},       {TYPE_UINT64, 8, 0, INT64_MAX},
};

/* An integer target of another width than the source's; variant is the row of integer_ranges. */
static enum encode_result encode_integer(const struct encoder *e, const uint8_t *data, uint32_t len,
                                         struct column_buf *out, const char **ret_reason)
{
    const struct integer_range *range = &integer_ranges[e->variant];
    int64_t value;
    if (!read_integer(e->typid, data, len, &value))
        return encode_bad(ret_reason, REASON_LENGTH);
    if (value < range->min || value > range->max)
        return encode_bad(ret_reason, "out of range of the target's integer type");
    buf_put(&out->data, &value, range->width); /* two's complement: the low bytes */
    put_not_null(e, out);
    return ENCODE_OK;
}

static bool clamp_integer(const struct encoder *e, const uint8_t *data, uint32_t len,
                          struct buf *out)
{
    const struct integer_range *range = &integer_ranges[e->variant];
    int64_t value;
    if (!read_integer(e->typid, data, len, &value))
        return false;
    value = value < range->min ? range->min : value > range->max ? range->max : value;
    buf_put(out, &value, range->width);
    return true;
}

static bool plan_integer(const struct type_node *target, struct encoder *e)
{
    const struct {
        Oid typid;
        enum type_kind kind;
        encode_fn copy;
    } same[] = {{family_int2.typid, TYPE_INT16, encode_copy2},
                {family_int4.typid, TYPE_INT32, encode_copy4},
                {family_int8.typid, TYPE_INT64, encode_copy8},
                {family_oid.typid, TYPE_UINT32, encode_copy4}};
    for (uint8_t i = 0; i < LENGTH(integer_ranges); i++) {
        if (integer_ranges[i].kind != target->kind)
            continue;
        e->append = encode_integer;
        e->width = integer_ranges[i].width;
        e->variant = i;
        for (size_t j = 0; j < LENGTH(same); j++)
            if (same[j].typid == e->typid && same[j].kind == target->kind)
                e->append = same[j].copy;
        return true;
    }
    return false;
}

#define INTEGER_FAMILY(type, oid_value, ch_name)                                                   \
    static void type##_default(const struct att_desc *att, const struct ch_caps *caps,             \
                               struct buf *out)                                                    \
    {                                                                                              \
        (void)att;                                                                                 \
        (void)caps;                                                                                \
        put_text(out, ch_name);                                                                    \
    }                                                                                              \
    static bool type##_text(const uint8_t *data, uint32_t len, struct buf *out)                    \
    {                                                                                              \
        int64_t value;                                                                             \
        if (!read_integer(oid_value, data, len, &value))                                           \
            return false;                                                                          \
        put_i64_text(out, value);                                                                  \
        return true;                                                                               \
    }

INTEGER_FAMILY(int2, 21, "Int16")
INTEGER_FAMILY(int4, 23, "Int32")
INTEGER_FAMILY(int8, 20, "Int64")
INTEGER_FAMILY(oid, 26, "UInt32")

const struct type_family family_int2 = {21,           2,         false,        int2_default,
                                        plan_integer, int2_text, clamp_integer};
const struct type_family family_int4 = {23,           4,         false,        int4_default,
                                        plan_integer, int4_text, clamp_integer};
const struct type_family family_int8 = {20,           8,         false,        int8_default,
                                        plan_integer, int8_text, clamp_integer};
const struct type_family family_oid = {26,           4,        false,        oid_default,
                                       plan_integer, oid_text, clamp_integer};

/* ---- bool ---- */

static void bool_default(const struct att_desc *att, const struct ch_caps *caps, struct buf *out)
{
    (void)att;
    (void)caps;
    put_text(out, "Bool");
}

static enum encode_result encode_bool(const struct encoder *e, const uint8_t *data, uint32_t len,
                                      struct column_buf *out, const char **ret_reason)
{
    if (__builtin_expect(len != 1, 0))
        return encode_bad(ret_reason, REASON_LENGTH);
    buf_put_u8(&out->data, data[0] != 0);
    put_not_null(e, out);
    return ENCODE_OK;
}

static bool plan_bool(const struct type_node *target, struct encoder *e)
{
    if (target->kind != TYPE_BOOL && target->kind != TYPE_UINT8)
        return false;
    e->append = encode_bool;
    e->width = 1;
    return true;
}

static bool bool_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    if (len != 1)
        return false;
    buf_put_u8(out, data[0] != 0 ? 't' : 'f');
    return true;
}

const struct type_family family_bool = {16, 1, false, bool_default, plan_bool, bool_text, NULL};

/* ---- floats ---- */

static void float4_default(const struct att_desc *att, const struct ch_caps *caps, struct buf *out)
{
    (void)att;
    (void)caps;
    put_text(out, "Float32");
}

static void float8_default(const struct att_desc *att, const struct ch_caps *caps, struct buf *out)
{
    (void)att;
    (void)caps;
    put_text(out, "Float64");
}

/* float4 → Float64: every float is a double. */
static enum encode_result encode_widened(const struct encoder *e, const uint8_t *data, uint32_t len,
                                         struct column_buf *out, const char **ret_reason)
{
    float value;
    if (len != sizeof value)
        return encode_bad(ret_reason, REASON_LENGTH);
    memcpy(&value, data, sizeof value);
    double wide = (double)value;
    buf_put(&out->data, &wide, sizeof wide);
    put_not_null(e, out);
    return ENCODE_OK;
}

static bool plan_float4(const struct type_node *target, struct encoder *e)
{
    if (target->kind != TYPE_FLOAT32 && target->kind != TYPE_FLOAT64)
        return false;
    e->append = target->kind == TYPE_FLOAT32 ? encode_copy4 : encode_widened;
    e->width = (uint8_t)target->width;
    return true;
}

static bool plan_float8(const struct type_node *target, struct encoder *e)
{
    if (target->kind != TYPE_FLOAT64)
        return false;
    e->append = encode_copy8;
    e->width = 8;
    return true;
}

static bool float4_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    float value;
    if (len != sizeof value)
        return false;
    memcpy(&value, data, sizeof value);
    float4_text_put(value, out);
    return true;
}

static bool float8_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    double value;
    if (len != sizeof value)
        return false;
    memcpy(&value, data, sizeof value);
    float8_text_put(value, out);
    return true;
}

const struct type_family family_float4 = {700,         4,           false, float4_default,
                                          plan_float4, float4_text, NULL};
const struct type_family family_float8 = {701,         8,           false, float8_default,
                                          plan_float8, float8_text, NULL};
