/* Numbers, booleans, dates and times of TOML 1.0. */
#include "config/toml_parser.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_delimiter(int c)
{
    return c < 0 || strchr(" \t\r\n,]}#=", c) != NULL;
}

/* Two or four digits at *at. */
static bool digits(const char *text, size_t len, size_t *at, unsigned n, int *ret)
{
    int v = 0;
    if (len - *at < n)
        return false;
    for (unsigned i = 0; i < n; i++) {
        if (!isdigit((unsigned char)text[*at + i]))
            return false;
        v = v * 10 + (text[*at + i] - '0');
    }
    *at += n;
    *ret = v;
    return true;
}

static bool literal(const char *text, size_t len, size_t *at, char c)
{
    if (*at >= len || text[*at] != c)
        return false;
    (*at)++;
    return true;
}

static int days_in_month(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 2 && leap ? 29 : days[month - 1];
}

static bool parse_date(const char *text, size_t len, size_t *at, struct toml_time *t)
{
    return digits(text, len, at, 4, &t->year) && literal(text, len, at, '-') &&
           digits(text, len, at, 2, &t->month) && literal(text, len, at, '-') &&
           digits(text, len, at, 2, &t->day) && t->month >= 1 && t->month <= 12 && t->day >= 1 &&
           t->day <= days_in_month(t->year, t->month);
}

static bool parse_time(const char *text, size_t len, size_t *at, struct toml_time *t)
{
    if (!digits(text, len, at, 2, &t->hour) || !literal(text, len, at, ':') ||
        !digits(text, len, at, 2, &t->minute) || !literal(text, len, at, ':') ||
        !digits(text, len, at, 2, &t->second) || t->hour > 23 || t->minute > 59 || t->second > 60)
        return false;
    if (*at >= len || text[*at] != '.')
        return true;
    (*at)++;
    size_t first = *at;
    int scale = 100000000;
    while (*at < len && isdigit((unsigned char)text[*at])) {
        t->nanosecond +=
            (text[*at] - '0') * scale; /* beyond nanoseconds: cut, as the format allows */
        scale /= 10;
        (*at)++;
    }
    return *at > first;
}

static bool parse_offset(const char *text, size_t len, size_t *at, struct toml_time *t)
{
    if (literal(text, len, at, 'Z') || literal(text, len, at, 'z'))
        return true;
    int sign = text[*at] == '-' ? -1 : 1, hours, minutes;
    (*at)++;
    if (!digits(text, len, at, 2, &hours) || !literal(text, len, at, ':') ||
        !digits(text, len, at, 2, &minutes) || hours > 23 || minutes > 59)
        return false;
    t->offset_minutes = sign * (hours * 60 + minutes);
    return true;
}

/* Date, time or both; false if the text is none of them. */
static bool parse_datetime(const char *text, size_t len, struct toml_value *v)
{
    size_t at = 0;
    struct toml_time t = {0};
    if (len >= 3 && text[2] == ':') {
        v->kind = TOML_LOCAL_TIME;
        if (!parse_time(text, len, &at, &t) || at != len)
            return false;
        v->time = t;
        return true;
    }
    if (!parse_date(text, len, &at, &t))
        return false;
    v->kind = TOML_LOCAL_DATE;
    if (at < len) {
        if (strchr("Tt ", text[at++]) == NULL || !parse_time(text, len, &at, &t))
            return false;
        v->kind = TOML_LOCAL_DATETIME;
    }
    if (at < len) {
        if (strchr("Zz+-", text[at]) == NULL || !parse_offset(text, len, &at, &t))
            return false;
        v->kind = TOML_OFFSET_DATETIME;
    }
    v->time = t;
    return at == len;
}

/* Copies without underscores; each must stand between two digits of the base. */
static bool strip_underscores(const char *text, size_t len, bool hex, char *out, size_t cap)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '_') {
            bool ok = i > 0 && i + 1 < len;
            for (int side = -1; ok && side <= 1; side += 2) {
                unsigned char c = (unsigned char)text[(ptrdiff_t)i + side];
                ok = hex ? isxdigit(c) != 0 : isdigit(c) != 0;
            }
            if (!ok)
                return false;
            continue;
        }
        if (n + 1 >= cap)
            return false;
        out[n++] = text[i];
    }
    out[n] = '\0';
    return n > 0;
}

static bool parse_radix(const char *text, size_t len, struct toml_value *v)
{
    char plain[128];
    int base = text[1] == 'x' ? 16 : text[1] == 'o' ? 8 : 2;
    if (!strip_underscores(text + 2, len - 2, base == 16, plain, sizeof plain) ||
        !isxdigit((unsigned char)plain[0]))
        return false;
    char *end;
    errno = 0;
    v->integer = strtoll(plain, &end, base);
    v->kind = TOML_INTEGER;
    return *end == '\0' && errno == 0;
}

/* [+-]digits[.digits][e[+-]digits] without a leading zero; tells integer from float. */
static bool number_shape(const char *s, bool *ret_float)
{
    if (*s == '+' || *s == '-')
        s++;
    if (!isdigit((unsigned char)*s) || (s[0] == '0' && isdigit((unsigned char)s[1])))
        return false;
    while (isdigit((unsigned char)*s))
        s++;
    *ret_float = *s != '\0';
    if (*s == '.') {
        s++;
        if (!isdigit((unsigned char)*s))
            return false;
        while (isdigit((unsigned char)*s))
            s++;
    }
    if (*s == 'e' || *s == 'E') {
        s++;
        if (*s == '+' || *s == '-')
            s++;
        if (!isdigit((unsigned char)*s))
            return false;
        while (isdigit((unsigned char)*s))
            s++;
    }
    return *s == '\0';
}

static bool parse_number(const char *text, size_t len, struct toml_value *v)
{
    char plain[1024];
    bool is_float;
    if (len > 2 && text[0] == '0' && strchr("xob", text[1]) != NULL)
        return parse_radix(text, len, v);
    if (!strip_underscores(text, len, false, plain, sizeof plain))
        return false;
    bool sign = plain[0] == '+' || plain[0] == '-';
    if (strcmp(plain + sign, "inf") == 0 || strcmp(plain + sign, "nan") == 0) {
        v->kind = TOML_FLOAT;
        v->number = plain[sign] == 'i' ? INFINITY : NAN;
        v->number = copysign(v->number, plain[0] == '-' ? -1.0 : 1.0);
        return true;
    }
    if (!number_shape(plain, &is_float))
        return false;
    errno = 0;
    v->kind = is_float ? TOML_FLOAT : TOML_INTEGER;
    if (is_float) {
        v->number = strtod(plain, NULL); /* the locale stays "C": nobody calls setlocale */
        return true;
    }
    v->integer = strtoll(plain, NULL, 10);
    return errno == 0;
}

enum status toml_parse_scalar(struct toml_parser *p, struct toml_value **ret)
{
    const char *text = p->s + p->pos;
    size_t len = 0;
    while (!is_delimiter(toml_peek(p, len)))
        len++;
    if (len == 0)
        return toml_fail(p, "a value is missing");
    /* a blank may stand between date and time */
    if (len == 10 && text[4] == '-' && toml_peek(p, 10) == ' ' && isdigit(toml_peek(p, 11))) {
        len++;
        while (!is_delimiter(toml_peek(p, len)))
            len++;
    }
    struct toml_value *v = toml_value_new(p, TOML_BOOL);
    bool ok;
    if (len == 4 && memcmp(text, "true", 4) == 0) {
        v->boolean = ok = true;
    } else if (len == 5 && memcmp(text, "false", 5) == 0) {
        v->boolean = false;
        ok = true;
    } else if ((len > 4 && text[4] == '-' && isdigit((unsigned char)text[0])) ||
               (len > 2 && text[2] == ':')) {
        ok = parse_datetime(text, len, v);
    } else {
        ok = parse_number(text, len, v);
    }
    if (!ok)
        return toml_fail(p, "\"%.*s\" is not a value (text needs quotes)", (int)MIN(len, 60u),
                         text);
    p->pos += len;
    *ret = v;
    return OK;
}
