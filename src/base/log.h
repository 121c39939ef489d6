/* logfmt on stderr, one line an event. Codecs and parsers never log; they return errors. */
#pragma once
#include "base/error.h"

#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level);
bool log_level_parse(const char *text, enum log_level *ret_level); /* error warn info debug */
bool log_enabled(enum log_level level);

/* fmt is printf text of logfmt pairs after level=, e.g. `log_info("msg=\"slot created\" slot=%s",
 * s)`. Values that may hold blanks or quotes are printed with LOG_Q. */
void log_write(enum log_level level, const char *fmt, ...) PRINTF(2, 3);
#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...)                                                                             \
    do {                                                                                           \
        if (log_enabled(LOG_DEBUG))                                                                \
            log_write(LOG_DEBUG, __VA_ARGS__);                                                     \
    } while (0)

/* Quotes a value for logfmt into buf (truncates); returns buf. */
char *log_quote(char *buf, size_t cap, const char *value);
#define LOG_Q(value) log_quote((char[700]){0}, 700, (value))
