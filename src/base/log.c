#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static atomic_int current_level = LOG_INFO;
static const char *const level_names[] = {"error", "warn", "info", "debug"};

void log_set_level(enum log_level level)
{
    atomic_store(&current_level, (int)level);
}

bool log_enabled(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&current_level, memory_order_relaxed);
}

bool log_level_parse(const char *text, enum log_level *ret_level)
{
    for (size_t i = 0; i < LENGTH(level_names); i++)
        if (strcmp(text, level_names[i]) == 0) {
            *ret_level = (enum log_level)i;
            return true;
        }
    return false;
}

void log_write(enum log_level level, const char *fmt, ...)
{
    char line[2048];
    struct timespec now;
    struct tm tm;
    if (!log_enabled(level))
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    size_t n = strftime(line, 64, "ts=%Y-%m-%dT%H:%M:%S", &tm);
    n += (size_t)snprintf(line + n, 64, ".%03ldZ level=%s ", now.tv_nsec / 1000000,
                          level_names[level]);
    va_list args;
    va_start(args, fmt);
    int more = vsnprintf(line + n, sizeof line - n - 1, fmt, args);
    va_end(args);
    if (more < 0)
        return;
    n = MIN(n + (size_t)more, sizeof line - 2);
    line[n++] = '\n';
    /* one write: lines of different threads do not mix */
    ssize_t ignored = write(STDERR_FILENO, line, n);
    (void)ignored;
}

char *log_quote(char *buf, size_t cap, const char *value)
{
    size_t n = 0;
    buf[n++] = '"';
    for (const char *p = value; *p != '\0' && n + 4 < cap; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\') {
            buf[n++] = '\\';
            buf[n++] = (char)c;
        } else if (c == '\n') {
            buf[n++] = '\\';
            buf[n++] = 'n';
        } else {
            buf[n++] = c < 0x20 ? ' ' : (char)c;
        }
    }
    buf[n++] = '"';
    buf[n] = '\0';
    return buf;
}
