/* What the engine must know of a statement's text before ClickHouse's own parser sees it. A lexer
 * and a few rules, not a parser: text it does not recognise is SQL_OTHER and is judged by
 * ClickHouse.
 *
 * Two reasons for it. Over the native protocol INSERT data come as packets, so the statement is
 * taken apart into target, column list and data clause; and libchdb honours FORMAT and INTO OUTFILE
 * clauses, which a server leaves to the client, so they are cut out. */
#pragma once
#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

enum sql_kind {
    SQL_OTHER,
    SQL_INSERT,        /* INSERT INTO … VALUES | FORMAT f, data to come */
    SQL_INSERT_INLINE, /* the same with data in the text */
};

struct sql_span {
    size_t at, len; /* into the text given */
};

struct sql_shape {
    enum sql_kind kind;
    /* SQL_INSERT*: everything before VALUES or FORMAT; the table or function of the target; the
     * column list with its parentheses (len 0 = none) */
    struct sql_span head, target, columns;
    /* SQL_OTHER: clauses at the end of the text, keyword included, len 0 = none */
    struct sql_span outfile, format;
    struct sql_span format_name; /* of FORMAT, in either kind; len 0 = none */
};

void sql_shape_read(const char *sql, size_t len, struct sql_shape *ret);
/* The names of a column list, unquoted: calls back with NUL-terminated names, in order. False: the
 * list holds something else than names (EXCEPT, expressions). */
bool sql_columns_read(const char *sql, struct sql_span columns,
                      void (*name)(void *ctx, const char *name, size_t len), void *ctx);
/* Appends the text without its FORMAT and INTO OUTFILE clauses. */
void sql_strip_put(const char *sql, size_t len, const struct sql_shape *shape, struct buf *out);
/* Appends 'text' with backslashes and quotes escaped, as ClickHouse reads it. */
void sql_literal_put(const char *text, size_t len, struct buf *out);
/* Appends `name`, escaped likewise. */
void sql_name_put(const char *name, size_t len, struct buf *out);
/* A quoted string becomes its bytes; other text stays as it is. */
void sql_value_put(const char *text, size_t len, struct buf *out);
