/* interval: int64 microseconds, int32 days, int32 months (datatype/timestamp.h). The three parts
 * are kept apart, each with its sign. IntervalStyle postgres. */
#include "types/datetime_text.h"
#include "types/family.h"

#include <limits.h>
#include <stdio.h>

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

static void put_unit(struct interval_writer *w, int64_t value, const char *unit)
{
    if (value == 0)
        return;
    w->at += sprintf(w->at, "%s%s%lld %s%s", w->empty ? "" : " ",
                     w->before_negative && value > 0 ? "+" : "", (long long)value, unit,
                     value == 1 ? "" : "s");
    w->before_negative = value < 0;
    w->empty = false;
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
    if (w.empty || time != 0) {
        uint64_t usecs = time < 0 ? 0 - (uint64_t)time : (uint64_t)time;
        uint64_t seconds = usecs / (uint64_t)USECS_PER_SECOND;
        w.at += sprintf(w.at, "%s%s%02llu:%02u:%02u", w.empty ? "" : " ",
                        time < 0            ? "-"
                        : w.before_negative ? "+"
                                            : "",
                        (unsigned long long)(seconds / 3600), (unsigned)(seconds / 60 % 60),
                        (unsigned)(seconds % 60));
        w.at = fraction_text_put(w.at, (int64_t)(usecs % (uint64_t)USECS_PER_SECOND));
    }
    buf_put(out, text, (size_t)(w.at - text));
    return true;
}

const struct type_family family_interval = {1186,          16,  false, interval_default, NULL,
                                            interval_text, NULL};
