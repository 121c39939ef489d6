/* COPY … TO STDOUT over a SQL session: one message, and so one row, at a time. */
#pragma once
#include "source/sql.h"

struct source_copy;

/* Starts it; the session does nothing else until source_copy_end. */
enum status source_copy_begin(struct source_sql *s, const char *sql, struct source_copy **ret,
                              struct error *err) CHECKED;
/* The next message, valid until the next call; *ret NULL: it is through. ERR_CANCELLED after
 * source_sql_interrupt. */
enum status source_copy_next(struct source_copy *c, const uint8_t **ret, size_t *ret_len,
                             struct error *err) CHECKED;
/* NULL is fine. Where it was not through, the session is of no more use. */
void source_copy_end(struct source_copy *c);
