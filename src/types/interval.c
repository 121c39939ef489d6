/* interval: int64 microseconds, int32 days, int32 months (datatype/timestamp.h). The three parts
 * are kept apart, each with its sign. IntervalStyle postgres. */
#include "types/datetime_text.h"
#include "types/family.h"

#include <limits.h>

static void interval_default(const struct att_desc *att, const struct ch_caps *caps,
                             struct buf *out)
{
    (void)att;
    (void)caps;
    put_text(out, "String");
}

struct interval_writer {
    char *at;
    bool empty;           /* nothing written yet */
    bool before_negative; /* the part before this one was negative: a positive one gets a plus sign
                           */
};

static char *put_number(char *at, uint64_t value, int min_digits)
{
    char digits[20];
    int n = 0;
    for (; value > 0 || n < min_digits; value /= 10)
        digits[n++] = (char)('0' + value % 10);
    while (n > 0)
        *at++ = digits[--n];
    return at;
}

/* Blank before every part but the first, and the sign. */
static void put_lead(struct interval_writer *w, bool negative)
{
    if (!w->empty)
        *w->at++ = ' ';
    if (negative)
        *w->at++ = '-';
    else if (w->before_negative)
        *w->at++ = '+';
}

static void put_unit(struct interval_writer *w, int64_t value, const char *unit)
{
    if (value == 0)
        return;
    put_lead(w, value < 0);
    w->at = put_number(w->at, (uint64_t)(value < 0 ? -value : value), 1);
    *w->at++ = ' ';
    w->at = stpcpy(w->at, unit);
    if (value != 1)
        *w->at++ = 's';
    w->before_negative = value < 0;
    w->empty = false;
}

static void put_time(struct interval_writer *w, int64_t time)
{
    uint64_t usecs = time < 0 ? 0 - (uint64_t)time : (uint64_t)time;
    uint64_t seconds = usecs / (uint64_t)USECS_PER_SECOND;
    put_lead(w, time < 0);
    w->at = put_number(w->at, seconds / 3600, 2);
    *w->at++ = ':';
    w->at = two_digits_put(w->at, (int)(seconds / 60 % 60));
    *w->at++ = ':';
    w->at = two_digits_put(w->at, (int)(seconds % 60));
    w->at = fraction_text_put(w->at, (int64_t)(usecs % (uint64_t)USECS_PER_SECOND));
}

static bool interval_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    char text[DATETIME_TEXT_MAX];
    int64_t time;
    int32_t day, month;
    if (len != 16)
        return false;
    memcpy(&time, data, sizeof time);
    memcpy(&day, data + 8, sizeof day);
    memcpy(&month, data + 12, sizeof month);
    /* infinite since 17: all three at their limit */
    if ((time == INT64_MAX && day == INT32_MAX && month == INT32_MAX) ||
        (time == INT64_MIN && day == INT32_MIN && month == INT32_MIN)) {
        put_text(out, time < 0 ? "-infinity" : "infinity");
        return true;
    }
    struct interval_writer w = {text, true, false};
    put_unit(&w, month / 12, "year");
    put_unit(&w, month % 12, "mon");
    put_unit(&w, day, "day");
    if (w.empty || time != 0)
        put_time(&w, time);
    buf_put(out, text, (size_t)(w.at - text));
    return true;
}

const struct type_family family_interval = {1186,          16,  false, interval_default, NULL,
                                            interval_text, NULL};
