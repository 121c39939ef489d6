/* Shortest round-trip digits by exact integer arithmetic (Steele and White's free-format
 * algorithm): digits of the value are produced until what is left is smaller than half the distance
 * to a neighbour. A decimal exactly on that half-way point does not count as inside, as in
 * PostgreSQL (1e23 is 9.999999999999999e+22). Most values need none of that: quick_digits. */
#include "types/float_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define BIG_LIMBS 40 /* 1280 bits: 2^1077 and 10^324 × 2^55 fit */
#define MAX_DIGITS 18

struct big {
    uint32_t limb[BIG_LIMBS]; /* low first */
    unsigned limbs;           /* in use: the same for all numbers of one value */
};

static void big_mul(struct big *b, uint32_t factor)
{
    uint64_t carry = 0;
    for (unsigned i = 0; i < b->limbs; i++) {
        carry += (uint64_t)b->limb[i] * factor;
        b->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    CHECK(carry == 0);
}

static void big_mul_power_of_10(struct big *b, int exponent)
{
    for (; exponent >= 9; exponent -= 9)
        big_mul(b, 1000000000);
    for (; exponent > 0; exponent--)
        big_mul(b, 10);
}

/* value × 2^shift */
static struct big big_make(unsigned limbs, uint64_t value, int shift)
{
    struct big b = {{0}, limbs};
    unsigned __int128 wide = (unsigned __int128)value << (shift % 32);
    for (int i = shift / 32; wide != 0; i++, wide >>= 32)
        b.limb[i] = (uint32_t)wide;
    return b;
}

static int big_compare(const struct big *a, const struct big *b)
{
    for (int i = (int)a->limbs - 1; i >= 0; i--)
        if (a->limb[i] != b->limb[i])
            return a->limb[i] < b->limb[i] ? -1 : 1;
    return 0;
}

static struct big big_add(const struct big *a, const struct big *b)
{
    struct big sum;
    sum.limbs = a->limbs;
    uint64_t carry = 0;
    for (unsigned i = 0; i < a->limbs; i++) {
        carry += (uint64_t)a->limb[i] + b->limb[i];
        sum.limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    return sum;
}

/* a -= b; a ≥ b */
static void big_subtract(struct big *a, const struct big *b)
{
    int64_t borrow = 0;
    for (unsigned i = 0; i < a->limbs; i++) {
        borrow += (int64_t)a->limb[i] - b->limb[i];
        a->limb[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
}

/* The value is rest / unit; below / unit and above / unit are the half distances to the neighbours.
 */
struct digit_state {
    struct big rest, unit, below, above;
};

/* Next digit; *ret_last says that it ends the shortest form (and it is rounded). */
static int next_digit(struct digit_state *s, bool *ret_last)
{
    int digit = 0;
    while (big_compare(&s->rest, &s->unit) >= 0) {
        big_subtract(&s->rest, &s->unit);
        digit++;
    }
    struct big upper = big_add(&s->rest, &s->above);
    bool low_inside = big_compare(&s->rest, &s->below) < 0;
    bool high_inside = big_compare(&upper, &s->unit) > 0;
    *ret_last = low_inside || high_inside;
    if (low_inside && high_inside) {
        struct big twice = big_add(&s->rest, &s->rest);
        int half = big_compare(&twice, &s->unit);
        return digit + (half > 0 || (half == 0 && digit % 2 != 0));
    }
    return digit + high_inside;
}

/* Digits of mantissa × 2^exponent; *ret_exponent is that of the first digit. Returns their number.
 */
static int shortest_digits(uint64_t mantissa, int exponent, bool below_is_closer, char *digits,
                           int *ret_exponent)
{
    int extra = below_is_closer ? 2 : 1, n = 0;
    int up = exponent > 0 ? exponent : 0, down = exponent < 0 ? -exponent : 0;
    int power = (int)ceil(log10((double)mantissa) + exponent * 0.30102999566398120 - 1e-10);
    /* the largest number: 64 bits, the shift, the power of ten (10 < 2^3.33), a digit on top */
    unsigned limbs = (unsigned)(64 + up + down + abs(power) * 10 / 3 + 8) / 32 + 2;
    limbs = MIN(limbs, BIG_LIMBS);
    struct digit_state s = {big_make(limbs, mantissa, up + extra), big_make(limbs, 1, down + extra),
                            big_make(limbs, 1, up), big_make(limbs, 1, up + extra - 1)};
    if (power >= 0) {
        big_mul_power_of_10(&s.unit, power);
    } else {
        big_mul_power_of_10(&s.rest, -power);
        big_mul_power_of_10(&s.below, -power);
        big_mul_power_of_10(&s.above, -power);
    }
    struct big upper = big_add(&s.rest, &s.above);
    bool last = false, estimate_low = big_compare(&upper, &s.unit) > 0;
    *ret_exponent = estimate_low ? power : power - 1;
    while (!last && n < MAX_DIGITS) {
        if (n > 0 || !estimate_low) {
            big_mul(&s.rest, 10);
            big_mul(&s.below, 10);
            big_mul(&s.above, 10);
        }
        digits[n++] = (char)('0' + next_digit(&s, &last));
    }
    return n;
}

/* The closest decimal of the fewest digits that reads back as the same value, by the C library,
 * which rounds correctly. Only for normal values below 2^53 (2^24) with neighbours at equal
 * distance (no powers of two): there a decimal so short is never half-way between two values, and
 * one of up to 15 (6) digits is the only one of its length. */
static int quick_digits(double value, bool single, char *digits, int *ret_exponent)
{
    char text[40];
    for (int n = single ? 6 : 15; n <= (single ? 9 : 17); n++) {
        snprintf(text, sizeof text, "%.*e", n - 1, value);
        if (single ? strtof(text, NULL) != (float)value : strtod(text, NULL) != value)
            continue;
        digits[0] = text[0];
        memcpy(digits + 1, text + 2, (size_t)n - 1);
        *ret_exponent = atoi(text + n + 2);
        while (n > 1 && digits[n - 1] == '0')
            n--;
        return n;
    }
    return 0;
}

/* Plain notation for exponents from -4 to plain_end - 1, else d.ddde±XX. */
static void put_digits(const char *digits, int n, int exponent, int plain_end, struct buf *out)
{
    if (exponent < -4 || exponent >= plain_end) {
        buf_put_u8(out, (uint8_t)digits[0]);
        if (n > 1)
            buf_printf(out, ".%.*s", n - 1, digits + 1);
        buf_printf(out, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        buf_printf(out, "0.%.*s%.*s", -exponent - 1, "0000", n, digits);
    } else {
        for (int i = 0; i < n || i <= exponent; i++) {
            if (i == exponent + 1)
                buf_put_u8(out, '.');
            buf_put_u8(out, (uint8_t)(i < n ? digits[i] : '0'));
        }
    }
}

struct float_format {
    int mantissa_bits, bias, plain_end;
};

static void put_float(double value, uint64_t bits, bool negative, unsigned biased,
                      const struct float_format *format, struct buf *out)
{
    char digits[MAX_DIGITS];
    int n = 0, exponent, min_exponent = 1 - format->bias - format->mantissa_bits;
    if (negative)
        buf_put_u8(out, '-');
    if (biased == 0 && bits == 0) {
        buf_put_u8(out, '0');
        return;
    }
    uint64_t mantissa = biased > 0 ? bits | UINT64_C(1) << format->mantissa_bits : bits;
    if (bits != 0 && biased > 0 && (int)biased < format->bias + format->mantissa_bits + 1)
        n = quick_digits(negative ? -value : value, format->bias == 127, digits, &exponent);
    if (n == 0)
        n = shortest_digits(mantissa, min_exponent + (biased > 0 ? (int)biased - 1 : 0),
                            bits == 0 && biased > 1, digits, &exponent);
    put_digits(digits, n, exponent, format->plain_end, out);
}

static void put_special(double value, struct buf *out)
{
    const char *text = isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity";
    buf_put(out, text, strlen(text));
}

void float4_text_put(float value, struct buf *out)
{
    static const struct float_format format = {23, 127, 6};
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (!isfinite(value))
        put_special((double)value, out);
    else
        put_float((double)value, bits & 0x7fffff, bits >> 31, bits >> 23 & 0xff, &format, out);
}

void float8_text_put(double value, struct buf *out)
{
    static const struct float_format format = {52, 1023, 15};
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (!isfinite(value))
        put_special(value, out);
    else
        put_float(value, bits & UINT64_C(0xfffffffffffff), bits >> 63,
                  (unsigned)(bits >> 52 & 0x7ff), &format, out);
}
