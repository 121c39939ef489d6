#include "types/numeric.h"

#include "types/family.h"

/* ---- on-disk form ---- */

#define NUMERIC_SIGN_MASK 0xC000u
#define NUMERIC_NEG 0x4000u
#define NUMERIC_SHORT 0x8000u
#define NUMERIC_SPECIAL 0xC000u
#define NUMERIC_EXT_SIGN_MASK 0xF000u
#define NUMERIC_NAN_BITS 0xC000u
#define NUMERIC_PINF_BITS 0xD000u
#define NUMERIC_NINF_BITS 0xF000u
#define NUMERIC_DSCALE_MASK 0x3FFFu
#define NUMERIC_SHORT_SIGN_MASK 0x2000u
#define NUMERIC_SHORT_DSCALE_MASK 0x1F80u
#define NUMERIC_SHORT_DSCALE_SHIFT 7
#define NUMERIC_SHORT_WEIGHT_SIGN_MASK 0x0040u
#define NUMERIC_SHORT_WEIGHT_MASK 0x003Fu

#define DEC_DIGITS 4 /* decimal digits in a base-10000 digit */

static bool parse_special(unsigned header, struct numeric *n)
{
    switch (header & NUMERIC_EXT_SIGN_MASK) {
    case NUMERIC_NAN_BITS:
        n->kind = NUMERIC_NAN;
        return true;
    case NUMERIC_PINF_BITS:
        n->kind = NUMERIC_PLUS_INF;
        return true;
    case NUMERIC_NINF_BITS:
        n->kind = NUMERIC_MINUS_INF;
        return true;
    default:
        return false;
    }
}

bool numeric_parse(const uint8_t *data, uint32_t len, struct numeric *ret)
{
    struct numeric n = {0};
    if (len < 2 || len % 2 != 0)
        return false;
    unsigned header = (unsigned)data[0] | (unsigned)data[1] << 8;
    uint32_t at = 2;
    if ((header & NUMERIC_SIGN_MASK) == NUMERIC_SPECIAL) {
        if (!parse_special(header, &n))
            return false;
        *ret = n;
        return true;
    }
    if ((header & NUMERIC_SIGN_MASK) == NUMERIC_SHORT) {
        n.negative = (header & NUMERIC_SHORT_SIGN_MASK) != 0;
        n.dscale = (header & NUMERIC_SHORT_DSCALE_MASK) >> NUMERIC_SHORT_DSCALE_SHIFT;
        n.weight = (int)(header & NUMERIC_SHORT_WEIGHT_MASK);
        if (header & NUMERIC_SHORT_WEIGHT_SIGN_MASK)
            n.weight -= (int)NUMERIC_SHORT_WEIGHT_MASK + 1;
    } else {
        int16_t weight;
        if (len < 4)
            return false;
        memcpy(&weight, data + 2, sizeof weight);
        n.negative = (header & NUMERIC_SIGN_MASK) == NUMERIC_NEG;
        n.dscale = header & NUMERIC_DSCALE_MASK;
        n.weight = weight;
        at = 4;
    }
    n.digits = data + at;
    n.ndigits = (len - at) / 2;
    for (unsigned i = 0; i < n.ndigits; i++)
        if (numeric_digit(&n, i) > 9999)
            return false;
    *ret = n;
    return true;
}

/* ---- text ---- */

/* The base-10000 digit with this power, 0 where none is stored. */
static unsigned digit_of_power(const struct numeric *n, int power)
{
    int i = n->weight - power;
    return i >= 0 && (unsigned)i < n->ndigits ? numeric_digit(n, (unsigned)i) : 0;
}

static void put_group(uint8_t *at, unsigned digit)
{
    at[0] = (uint8_t)('0' + digit / 1000);
    at[1] = (uint8_t)('0' + digit / 100 % 10);
    at[2] = (uint8_t)('0' + digit / 10 % 10);
    at[3] = (uint8_t)('0' + digit % 10);
}

void numeric_text_put(const struct numeric *n, struct buf *out)
{
    if (n->kind != NUMERIC_FINITE) {
        put_text(out, n->kind == NUMERIC_NAN        ? "NaN"
                      : n->kind == NUMERIC_PLUS_INF ? "Infinity"
                                                    : "-Infinity");
        return;
    }
    size_t groups = n->weight >= 0 ? (size_t)n->weight + 1 : 1;
    uint8_t *start = buf_reserve(out, groups * DEC_DIGITS + n->dscale + 2 + DEC_DIGITS),
            *at = start;
    if (n->negative)
        *at++ = '-';
    /* integer part: the first group without its leading zeros, but at least one digit */
    uint8_t first[DEC_DIGITS];
    put_group(first, n->weight >= 0 ? digit_of_power(n, n->weight) : 0);
    unsigned skip = 0;
    while (skip < DEC_DIGITS - 1 && first[skip] == '0')
        skip++;
    memcpy(at, first + skip, DEC_DIGITS - skip);
    at += DEC_DIGITS - skip;
    for (int power = n->weight - 1; power >= 0; power--, at += DEC_DIGITS)
        put_group(at, digit_of_power(n, power));
    if (n->dscale > 0) {
        *at++ = '.';
        /* whole groups; the last one may go past the end, which is cut at dscale */
        for (unsigned done = 0; done < n->dscale; done += DEC_DIGITS)
            put_group(at + done, digit_of_power(n, -1 - (int)(done / DEC_DIGITS)));
        at += n->dscale;
    }
    out->len += (size_t)(at - start);
}

/* ---- scaled integer ---- */

static const uint32_t powers_of_10[] = {1, 10, 100, 1000, 10000};

/* d = d × factor + add; factor ≤ 10000. The callers keep it below 10^76, which fits 256 bits. */
static void decimal_mul_add(struct decimal *d, uint64_t factor, uint64_t add)
{
    unsigned __int128 carry = add;
    for (unsigned i = 0; i < LENGTH(d->limb); i++) {
        carry += (unsigned __int128)d->limb[i] * factor;
        d->limb[i] = (uint64_t)carry;
        carry >>= 64;
    }
}

static void decimal_max(unsigned precision, struct decimal *ret)
{
    *ret = (struct decimal){0};
    for (unsigned i = 0; i < precision; i++)
        decimal_mul_add(ret, 10, 9);
}

static unsigned count_digits(unsigned group)
{
    return group >= 1000 ? 4 : group >= 100 ? 3 : group >= 10 ? 2 : 1;
}

/* The decimal digit at 10^position. */
static unsigned decimal_digit(const struct numeric *n, int position)
{
    int power = position >= 0 ? position / DEC_DIGITS : -((DEC_DIGITS - 1 - position) / DEC_DIGITS);
    return (digit_of_power(n, power) / powers_of_10[position - power * DEC_DIGITS] % 10);
}

/* Slow way, digit by digit: rounds at 10^-scale. integer_digits: those before the point. */
static enum decimal_result decimal_rounded(const struct numeric *n, int integer_digits,
                                           unsigned precision, unsigned scale, struct decimal *ret)
{
    struct decimal d = {0}, max;
    for (int position = integer_digits - 1; position >= -(int)scale; position--)
        decimal_mul_add(&d, 10, decimal_digit(n, position));
    decimal_max(precision, &max);
    if (decimal_digit(n, -(int)scale - 1) >= 5 && memcmp(&d, &max, sizeof d) != 0)
        decimal_mul_add(&d, 1, 1);
    *ret = d;
    return DECIMAL_INEXACT;
}

enum decimal_result numeric_to_decimal(const struct numeric *n, unsigned precision, unsigned scale,
                                       struct decimal *ret)
{
    /* PostgreSQL strips zero groups at both ends, which is not relied on */
    unsigned first = 0, last = n->ndigits;
    while (first < last && numeric_digit(n, first) == 0)
        first++;
    while (last > first && numeric_digit(n, last - 1) == 0)
        last--;
    *ret = (struct decimal){0};
    if (first == last)
        return DECIMAL_OK;

    /* positions of the first and behind the last decimal digit, as powers of ten */
    int top = (n->weight - (int)first) * DEC_DIGITS + (int)count_digits(numeric_digit(n, first));
    int bottom = (n->weight - (int)last + 1) * DEC_DIGITS;
    int shift =
        bottom + (int)scale; /* zeros to add behind the last group, or digits to take away */
    if (top > (int)precision - (int)scale) {
        decimal_max(precision, ret);
        return DECIMAL_TOO_LONG;
    }
    unsigned drop = shift < 0 ? (unsigned)-shift : 0, tail = numeric_digit(n, last - 1);
    if (drop >= DEC_DIGITS || (drop > 0 && tail % powers_of_10[drop] != 0))
        return decimal_rounded(n, top, precision, scale, ret);

    unsigned i = first;
    if (precision <= 38) { /* fits 128 bits: no limbs needed */
        unsigned __int128 value = 0;
        for (; i < last - 1; i++)
            value = value * 10000 + numeric_digit(n, i);
        value = value * powers_of_10[DEC_DIGITS - drop] + tail / powers_of_10[drop];
        for (; shift > 0; shift -= DEC_DIGITS)
            value *= powers_of_10[MIN(shift, DEC_DIGITS)];
        ret->limb[0] = (uint64_t)value;
        ret->limb[1] = (uint64_t)(value >> 64);
        return DECIMAL_OK;
    }
    for (; i < last - 1; i++)
        decimal_mul_add(ret, 10000, numeric_digit(n, i));
    decimal_mul_add(ret, powers_of_10[DEC_DIGITS - drop], tail / powers_of_10[drop]);
    for (; shift > 0; shift -= DEC_DIGITS)
        decimal_mul_add(ret, powers_of_10[MIN(shift, DEC_DIGITS)], 0);
    return DECIMAL_OK;
}

/* ---- encoder ---- */

static void numeric_default(const struct att_desc *att, const struct ch_caps *caps, struct buf *out)
{
    /* typmod: (precision << 16 | 11 bits of signed scale) + VARHDRSZ; -1 = unconstrained */
    int32_t packed = att->typmod - 4;
    int precision = packed >> 16 & 0xffff, scale = ((packed & 0x7ff) ^ 0x400) - 0x400;
    (void)caps;
    if (packed >= 0 && precision >= 1 && precision <= 76 && scale >= 0 && scale <= precision)
        buf_printf(out, "Decimal(%d, %d)", precision, scale);
    else
        put_text(out, "String");
}

static void put_decimal(const struct encoder *e, bool negative, struct decimal *d, struct buf *out)
{
    if (negative) {
        unsigned __int128 carry = 1;
        for (unsigned i = 0; i < LENGTH(d->limb); i++) {
            carry += ~d->limb[i];
            d->limb[i] = (uint64_t)carry;
            carry >>= 64;
        }
    }
    memcpy(buf_reserve(out, sizeof d->limb), d->limb, sizeof d->limb); /* of which `width` count */
    out->len += e->width;
}

static enum encode_result encode_decimal(const struct encoder *e, const uint8_t *data, uint32_t len,
                                         struct column_buf *out, const char **ret_reason)
{
    struct numeric n;
    struct decimal d;
    if (!numeric_parse(data, len, &n))
        return encode_bad(ret_reason, "the bytes are no numeric");
    if (n.kind != NUMERIC_FINITE)
        return encode_bad(ret_reason, n.kind == NUMERIC_NAN ? "NaN does not fit a Decimal"
                                                            : "infinity does not fit a Decimal");
    switch (numeric_to_decimal(&n, e->precision, e->scale, &d)) {
    case DECIMAL_OK:
        break;
    case DECIMAL_INEXACT:
        return encode_bad(ret_reason, "more digits after the point than the Decimal's scale");
    case DECIMAL_TOO_LONG:
        return encode_bad(ret_reason, "more digits than the Decimal's precision");
    }
    put_decimal(e, n.negative, &d, &out->data);
    put_not_null(e, out);
    return ENCODE_OK;
}

/* NaN and +infinity → the largest, -infinity → the smallest, other numbers → the nearest. */
static bool clamp_decimal(const struct encoder *e, const uint8_t *data, uint32_t len,
                          struct buf *out)
{
    struct numeric n;
    struct decimal d;
    if (!numeric_parse(data, len, &n))
        return false;
    if (n.kind != NUMERIC_FINITE) {
        decimal_max(e->precision, &d);
        n.negative = n.kind == NUMERIC_MINUS_INF;
    } else {
        (void)numeric_to_decimal(&n, e->precision, e->scale, &d);
    }
    put_decimal(e, n.negative, &d, out);
    return true;
}

static bool plan_numeric(const struct type_node *target, struct encoder *e)
{
    if (target->kind != TYPE_DECIMAL)
        return false;
    e->append = encode_decimal;
    e->width = (uint8_t)target->width;
    e->precision = target->precision;
    e->scale = target->scale;
    return true;
}

static bool numeric_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    struct numeric n;
    if (!numeric_parse(data, len, &n))
        return false;
    numeric_text_put(&n, out);
    return true;
}

const struct type_family family_numeric = {
    1700, -1, false, numeric_default, plan_numeric, numeric_text, clamp_decimal};
