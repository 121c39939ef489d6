#include "base/error.h"
#include "base/lsn.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status fill(struct error *err, enum status kind, int sys_errno, uint64_t lsn,
                        const char *fmt, va_list args) PRINTF(5, 0);
static enum status fill(struct error *err, enum status kind, int sys_errno, uint64_t lsn,
                        const char *fmt, va_list args)
{
    if (err == NULL)
        return kind;
    /* the arguments may point into err->message: format aside first */
    char text[sizeof err->message];
    vsnprintf(text, sizeof text, fmt, args);
    memset(err, 0, sizeof *err);
    err->kind = kind;
    err->sys_errno = sys_errno;
    err->lsn = lsn;
    memcpy(err->message, text, sizeof text);
    return kind;
}

enum status error_set(struct error *err, enum status kind, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fill(err, kind, 0, 0, fmt, args);
    va_end(args);
    return kind;
}

static void append(struct error *err, const char *fmt, ...) PRINTF(2, 3);
static void append(struct error *err, const char *fmt, ...)
{
    va_list args;
    size_t used = strlen(err->message);
    va_start(args, fmt);
    vsnprintf(err->message + used, sizeof err->message - used, fmt, args);
    va_end(args);
}

enum status error_sys(struct error *err, enum status kind, const char *fmt, ...)
{
    int saved = errno;
    va_list args;
    va_start(args, fmt);
    fill(err, kind, saved, 0, fmt, args);
    va_end(args);
    if (err != NULL)
        append(err, ": %s", strerror(saved));
    return kind;
}

enum status error_lsn(struct error *err, enum status kind, uint64_t lsn, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fill(err, kind, 0, lsn, fmt, args);
    va_end(args);
    if (err != NULL)
        append(err, " (at LSN " LSN_FMT ")", LSN_ARGS(lsn));
    return kind;
}

enum status error_prefix(struct error *err, const char *fmt, ...)
{
    if (err == NULL)
        return ERR_BUG;
    char text[sizeof err->message];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n > 0 && (size_t)n < sizeof text)
        snprintf(text + n, sizeof text - (size_t)n, ": %.*s", (int)(sizeof text - (size_t)n),
                 err->message);
    memcpy(err->message, text, sizeof text);
    return err->kind;
}

static void out_of_memory(size_t n) __attribute__((noreturn));
static void out_of_memory(size_t n)
{
    fprintf(stderr, "level=fatal msg=\"out of memory\" bytes=%zu\n", n);
    abort();
}

void *xmalloc(size_t n)
{
    void *p = malloc(n > 0 ? n : 1);
    if (p == NULL)
        out_of_memory(n);
    return p;
}

void *xcalloc(size_t n, size_t size)
{
    void *p = calloc(n > 0 ? n : 1, size > 0 ? size : 1);
    if (p == NULL)
        out_of_memory(n * size);
    return p;
}

void *xrealloc(void *p, size_t n)
{
    void *grown = realloc(p, n > 0 ? n : 1);
    if (grown == NULL)
        out_of_memory(n);
    return grown;
}

char *xstrdup(const char *s)
{
    size_t n = strlen(s) + 1;
    return memcpy(xmalloc(n), s, n);
}

char *xasprintf(const char *fmt, ...)
{
    char *s = NULL;
    va_list args;
    va_start(args, fmt);
    if (vasprintf(&s, fmt, args) < 0 || s == NULL)
        out_of_memory(0);
    va_end(args);
    return s;
}

void check_failed(const char *what, const char *file, int line)
{
    fprintf(stderr, "level=fatal msg=\"invariant does not hold: %s\" at=%s:%d\n", what, file, line);
    abort();
}
