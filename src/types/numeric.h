/* PostgreSQL's numeric as it lies on disk, without the varlena header.
 * Source: NumericShort, NumericLong and the NUMERIC_* masks of utils/adt/numeric.c, the same in 15
 * to 18. */
#pragma once
#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum numeric_kind { NUMERIC_FINITE, NUMERIC_NAN, NUMERIC_PLUS_INF, NUMERIC_MINUS_INF };

/* value = (negative ? -1 : 1) × Σ digit[i] × 10000^(weight - i) */
struct numeric {
    enum numeric_kind kind;
    bool negative;
    int weight;            /* power of 10000 of the first digit */
    unsigned dscale;       /* decimal digits shown after the point */
    unsigned ndigits;      /* base-10000 digits */
    const uint8_t *digits; /* 2 bytes each, little-endian, unaligned */
};

/* False: the bytes are no numeric (short, unknown flags, a digit over 9999). */
bool numeric_parse(const uint8_t *data, uint32_t len, struct numeric *ret);

static inline unsigned numeric_digit(const struct numeric *n, unsigned i)
{
    return (unsigned)n->digits[2 * i] | (unsigned)n->digits[2 * i + 1] << 8;
}

/* What numeric_out prints; at most 131,072 + 16,383 characters and a few. */
void numeric_text_put(const struct numeric *n, struct buf *out);

/* |value| × 10^scale as a 256-bit number, low limb first. */
struct decimal {
    uint64_t limb[4];
};

enum decimal_result {
    DECIMAL_OK,
    DECIMAL_INEXACT,  /* digits below 10^-scale: *ret is rounded, halves away from zero */
    DECIMAL_TOO_LONG, /* more than `precision` digits: *ret is 10^precision - 1 */
};

/* n is finite, precision 1 to 76, scale 0 to precision. The sign is not applied. */
enum decimal_result numeric_to_decimal(const struct numeric *n, unsigned precision, unsigned scale,
                                       struct decimal *ret);
