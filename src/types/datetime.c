/* date, time, timetz, timestamp, timestamptz.
 * PostgreSQL: int32 days or int64 microseconds since 2000-01-01; the lowest and highest integers
 * are -infinity and infinity (utils/date.h, datatype/timestamp.h). ClickHouse counts from
 * 1970-01-01. */
#include "types/datetime_text.h"
#include "types/family.h"

#include <limits.h>

#define DAYS_1970_TO_2000 10957
#define USECS_1970_TO_2000 (DAYS_1970_TO_2000 * USECS_PER_DAY)
#define REASON_INFINITE "infinity does not fit a date type of ClickHouse"
#define REASON_RANGE "outside of the dates the server can hold"

/* First and last day, as days since 1970-01-01, by server version (clickhouse-notes 8). */
struct day_range {
    int32_t first, last;
};
static const struct day_range narrow_days = {-25567, 120529}; /* 1900-01-01 … 2299-12-31 */
static const struct day_range wide_days = {-719528, 2932896}; /* 0000-01-01 … 9999-12-31 */

static const struct day_range *day_range(const struct encoder *e)
{
    return e->caps.wide_dates ? &wide_days : &narrow_days;
}

static const int64_t ticks_per_second[] = {
    1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000,
};

static bool read_i64(const uint8_t *data, uint32_t len, int64_t *ret)
{
    if (len != sizeof *ret)
        return false;
    memcpy(ret, data, sizeof *ret);
    return true;
}

static bool put_chars(struct buf *out, const char *start, const char *end)
{
    buf_put(out, start, (size_t)(end - start));
    return true;
}

/* ---- date ---- */

static void date_default(const struct att_desc *att, const struct ch_caps *caps, struct buf *out)
{
    (void)att;
    (void)caps;
    put_text(out, "Date32");
}

static enum encode_result encode_date(const struct encoder *e, const uint8_t *data, uint32_t len,
                                      struct column_buf *out, const char **ret_reason)
{
    const struct day_range *range = day_range(e);
    int32_t days;
    if (__builtin_expect(len != sizeof days, 0))
        return encode_bad(ret_reason, REASON_LENGTH);
    memcpy(&days, data, sizeof days);
    if (days == INT32_MAX || days == INT32_MIN)
        return encode_bad(ret_reason, REASON_INFINITE);
    int64_t unix_days = (int64_t)days + DAYS_1970_TO_2000;
    if (unix_days < range->first || unix_days > range->last)
        return encode_bad(ret_reason, REASON_RANGE);
    buf_put_i32(&out->data, (int32_t)unix_days);
    put_not_null(e, out);
    return ENCODE_OK;
}

static bool clamp_date(const struct encoder *e, const uint8_t *data, uint32_t len, struct buf *out)
{
    int32_t days;
    if (len != sizeof days)
        return false;
    memcpy(&days, data, sizeof days);
    buf_put_i32(out, days < 0 ? day_range(e)->first : day_range(e)->last);
    return true;
}

static bool plan_date(const struct type_node *target, struct encoder *e)
{
    if (target->kind != TYPE_DATE32)
        return false;
    e->append = encode_date;
    e->width = 4;
    return true;
}

static bool date_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    char text[DATETIME_TEXT_MAX], *at = text;
    int32_t days;
    int bc;
    if (len != sizeof days)
        return false;
    memcpy(&days, data, sizeof days);
    if (days == INT32_MAX || days == INT32_MIN) {
        put_text(out, days < 0 ? "-infinity" : "infinity");
        return true;
    }
    at = date_text_put(at, days, &bc);
    put_chars(out, text, at);
    if (bc)
        put_text(out, " BC");
    return true;
}

const struct type_family family_date = {1082,      4,         false,     date_default,
                                        plan_date, date_text, clamp_date};

/* ---- timestamp, timestamptz ---- */

static void timestamp_default(const struct att_desc *att, const struct ch_caps *caps,
                              struct buf *out)
{
    (void)caps;
    buf_printf(out, "DateTime64(%d, 'UTC')",
               att->typmod >= 0 && att->typmod <= 6 ? (int)att->typmod : 6);
}

/* Microseconds to ticks of 10^-precision seconds. False: not exact, *ret is rounded to the nearest;
 * or past Int64, *ret untouched. */
static bool usecs_to_ticks(int64_t usecs, unsigned precision, int64_t *ret)
{
    if (precision >= 6)
        return !__builtin_mul_overflow(usecs, ticks_per_second[precision - 6], ret);
    int64_t unit = ticks_per_second[6 - precision], ticks = usecs / unit, rest = usecs % unit;
    *ret = ticks;
    if (rest == 0)
        return true;
    *ret += rest * 2 >= unit ? 1 : rest * 2 <= -unit ? -1 : 0;
    return false;
}

static enum encode_result encode_timestamp(const struct encoder *e, const uint8_t *data,
                                           uint32_t len, struct column_buf *out,
                                           const char **ret_reason)
{
    const struct day_range *range = day_range(e);
    int64_t usecs, ticks;
    if (__builtin_expect(!read_i64(data, len, &usecs), 0))
        return encode_bad(ret_reason, REASON_LENGTH);
    if (__builtin_expect(usecs == INT64_MAX || usecs == INT64_MIN, 0))
        return encode_bad(ret_reason, REASON_INFINITE);
    if (__builtin_add_overflow(usecs, USECS_1970_TO_2000, &usecs) ||
        usecs < range->first * USECS_PER_DAY || usecs >= (range->last + 1) * USECS_PER_DAY)
        return encode_bad(ret_reason, REASON_RANGE);
    if (e->precision == 6)
        ticks = usecs;
    else if (!usecs_to_ticks(usecs, e->precision, &ticks))
        return encode_bad(ret_reason, e->precision < 6
                                          ? "more digits of a second than the target holds"
                                          : REASON_RANGE);
    buf_put_i64(&out->data, ticks);
    put_not_null(e, out);
    return ENCODE_OK;
}

/* The last tick of the range, or what Int64 holds of it (DateTime64(9): the year 2262). */
static int64_t last_tick(const struct encoder *e)
{
    int64_t per_second = ticks_per_second[e->precision], ticks;
    int64_t seconds = ((int64_t)day_range(e)->last + 1) * 86400;
    return __builtin_mul_overflow(seconds, per_second, &ticks) ? INT64_MAX : ticks - 1;
}

static int64_t first_tick(const struct encoder *e)
{
    int64_t per_second = ticks_per_second[e->precision], ticks;
    int64_t seconds = (int64_t)day_range(e)->first * 86400;
    return __builtin_mul_overflow(seconds, per_second, &ticks) ? INT64_MIN : ticks;
}

static bool clamp_timestamp(const struct encoder *e, const uint8_t *data, uint32_t len,
                            struct buf *out)
{
    int64_t usecs, shifted, ticks, first = first_tick(e), last = last_tick(e);
    if (!read_i64(data, len, &usecs))
        return false;
    ticks = usecs < 0 ? first : last;
    /* what is in range but has too many digits of a second: the nearest tick */
    if (usecs != INT64_MIN && e->precision < 6 &&
        !__builtin_add_overflow(usecs, USECS_1970_TO_2000, &shifted)) {
        (void)usecs_to_ticks(shifted, e->precision, &ticks);
        ticks = MAX(first, MIN(last, ticks));
    }
    buf_put_i64(out, ticks);
    return true;
}

static bool plan_timestamp(const struct type_node *target, struct encoder *e)
{
    if (target->kind != TYPE_DATETIME64 ||
        (target->zone != NULL && strcmp(target->zone, "UTC") != 0))
        return false;
    e->append = encode_timestamp;
    e->width = 8;
    e->precision = target->precision;
    return true;
}

static bool timestamp_text_put(const uint8_t *data, uint32_t len, const char *zone, struct buf *out)
{
    char text[DATETIME_TEXT_MAX], *at = text;
    int64_t usecs;
    int bc;
    if (!read_i64(data, len, &usecs))
        return false;
    if (usecs == INT64_MAX || usecs == INT64_MIN) {
        put_text(out, usecs < 0 ? "-infinity" : "infinity");
        return true;
    }
    int64_t days = usecs / USECS_PER_DAY, in_day = usecs % USECS_PER_DAY;
    if (in_day < 0) {
        in_day += USECS_PER_DAY;
        days--;
    }
    at = date_text_put(at, days, &bc);
    *at++ = ' ';
    at = time_text_put(at, in_day);
    put_chars(out, text, at);
    put_text(out, zone);
    if (bc)
        put_text(out, " BC");
    return true;
}

static bool timestamp_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    return timestamp_text_put(data, len, "", out);
}

static bool timestamptz_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    return timestamp_text_put(data, len, "+00", out);
}

const struct type_family family_timestamp = {
    1114, 8, false, timestamp_default, plan_timestamp, timestamp_text, clamp_timestamp};
const struct type_family family_timestamptz = {
    1184, 8, false, timestamp_default, plan_timestamp, timestamptz_text, clamp_timestamp};

/* ---- time, timetz ---- */

static void time_default(const struct att_desc *att, const struct ch_caps *caps, struct buf *out)
{
    (void)att;
    put_text(out, caps->time64 ? "Time64(6)" : "String");
}

static bool read_time(const uint8_t *data, uint32_t len, int64_t *ret)
{
    return read_i64(data, len, ret) && *ret >= 0 && *ret <= USECS_PER_DAY;
}

static enum encode_result encode_time(const struct encoder *e, const uint8_t *data, uint32_t len,
                                      struct column_buf *out, const char **ret_reason)
{
    int64_t usecs, ticks;
    if (__builtin_expect(!read_time(data, len, &usecs), 0))
        return encode_bad(ret_reason, "the bytes are no time of day");
    if (!usecs_to_ticks(usecs, e->precision, &ticks))
        return encode_bad(ret_reason, "more digits of a second than the target holds");
    buf_put_i64(&out->data, ticks);
    put_not_null(e, out);
    return ENCODE_OK;
}

static bool clamp_time(const struct encoder *e, const uint8_t *data, uint32_t len, struct buf *out)
{
    int64_t usecs, ticks;
    if (!read_time(data, len, &usecs))
        return false;
    (void)usecs_to_ticks(usecs, e->precision, &ticks);
    buf_put_i64(out, ticks);
    return true;
}

static bool plan_time(const struct type_node *target, struct encoder *e)
{
    if (target->kind != TYPE_TIME64 || !e->caps.time64)
        return false;
    e->append = encode_time;
    e->width = 8;
    e->precision = target->precision;
    return true;
}

static bool time_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    char text[DATETIME_TEXT_MAX];
    int64_t usecs;
    return read_time(data, len, &usecs) && put_chars(out, text, time_text_put(text, usecs));
}

const struct type_family family_time = {1083,      8,         false,     time_default,
                                        plan_time, time_text, clamp_time};

static void timetz_default(const struct att_desc *att, const struct ch_caps *caps, struct buf *out)
{
    (void)att;
    (void)caps;
    put_text(out, "String");
}

/* 8 bytes of time, then int32 seconds west of Greenwich. Offset as ±HH[:MM[:SS]], east positive. */
static bool timetz_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    char text[DATETIME_TEXT_MAX], *at = text;
    int64_t usecs;
    int32_t west;
    if (len != 12 || !read_time(data, 8, &usecs))
        return false;
    memcpy(&west, data + 8, sizeof west);
    if (west <= -100 * 3600 || west >= 100 * 3600)
        return false;
    int32_t offset = west < 0 ? -west : west;
    at = time_text_put(at, usecs);
    *at++ = west <= 0 ? '+' : '-';
    at = two_digits_put(at, offset / 3600);
    if (offset % 3600 != 0) {
        *at++ = ':';
        at = two_digits_put(at, offset / 60 % 60);
    }
    if (offset % 60 != 0) {
        *at++ = ':';
        at = two_digits_put(at, offset % 60);
    }
    return put_chars(out, text, at);
}

const struct type_family family_timetz = {1266, 12, false, timetz_default, NULL, timetz_text, NULL};
