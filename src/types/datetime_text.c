#include "types/datetime_text.h"

#define DAYS_0000_03_01_TO_2000                                                                    \
    730425 /* from 0000-03-01, where the leap day is last in its year                              \
            */
#define DAYS_PER_400_YEARS 146097

/* Proleptic Gregorian calendar, year 0 = 1 BC. */
static void days_to_civil(int64_t days, int64_t *ret_year, int *ret_month, int *ret_day)
{
    int64_t shifted = days + DAYS_0000_03_01_TO_2000;
    int64_t era = shifted / DAYS_PER_400_YEARS;
    if (shifted % DAYS_PER_400_YEARS < 0)
        era--;
    int in_era = (int)(shifted - era * DAYS_PER_400_YEARS);
    /* leap days passed: one in 4 years, not in 100, but in 400 */
    int year = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
    int in_year = in_era - (365 * year + year / 4 - year / 100);
    int march_month =
        (5 * in_year + 2) / 153; /* months from March: 31 30 31 30 31 | 31 30 31 30 31 | 31 */
    *ret_day = in_year - (153 * march_month + 2) / 5 + 1;
    *ret_month = march_month < 10 ? march_month + 3 : march_month - 9;
    *ret_year = era * 400 + year + (*ret_month <= 2);
}

char *two_digits_put(char *at, int value)
{
    *at++ = (char)('0' + value / 10 % 10);
    *at++ = (char)('0' + value % 10);
    return at;
}

char *date_text_put(char *at, int64_t days, int *ret_bc)
{
    int64_t year;
    int month, day;
    char digits[20];
    int n = 0;
    days_to_civil(days, &year, &month, &day);
    *ret_bc = year <= 0;
    if (year <= 0)
        year = 1 - year;
    do
        digits[n++] = (char)('0' + year % 10);
    while ((year /= 10) > 0 || n < 4);
    while (n > 0)
        *at++ = digits[--n];
    *at++ = '-';
    at = two_digits_put(at, month);
    *at++ = '-';
    return two_digits_put(at, day);
}

char *fraction_text_put(char *at, int64_t usecs)
{
    if (usecs == 0)
        return at;
    int digits = 6;
    while (usecs % 10 == 0) {
        usecs /= 10;
        digits--;
    }
    *at = '.';
    for (int i = digits; i > 0; i--, usecs /= 10)
        at[i] = (char)('0' + usecs % 10);
    return at + digits + 1;
}

char *time_text_put(char *at, int64_t usecs)
{
    int seconds = (int)(usecs / USECS_PER_SECOND);
    at = two_digits_put(at, seconds / 3600);
    *at++ = ':';
    at = two_digits_put(at, seconds / 60 % 60);
    *at++ = ':';
    at = two_digits_put(at, seconds % 60);
    return fraction_text_put(at, usecs % USECS_PER_SECOND);
}
