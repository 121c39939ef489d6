/* Text forms of dates and times: DateStyle ISO, IntervalStyle postgres, TimeZone UTC.
 * Each appends to a char array with room for DATETIME_TEXT_MAX and returns the new end. */
#pragma once
#include <stdint.h>

#define DATETIME_TEXT_MAX 128

#define USECS_PER_SECOND INT64_C(1000000)
#define USECS_PER_DAY (INT64_C(86400) * USECS_PER_SECOND)

/* Year-month-day of a day count since 2000-01-01; years before 1 without "BC". *ret_bc tells. */
char *date_text_put(char *at, int64_t days, int *ret_bc);

/* HH:MM:SS[.ffffff] of microseconds since midnight, 0 to 24 hours; trailing zeros of the fraction
 * are left out. */
char *time_text_put(char *at, int64_t usecs);

/* [.ffffff]: usecs 0 to 999999 */
char *fraction_text_put(char *at, int64_t usecs);

char *two_digits_put(char *at, int value);
