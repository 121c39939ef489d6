#include "engine/sql.h"

#include "engine/sql_lex.h"

#include <string.h>

/* Moves behind the parenthesis that t opened. */
static void parens_skip(struct sql_lexer *x, unsigned depth)
{
    struct sql_token t;
    do
        t = sql_token_next(x);
    while (t.kind != SQL_TOKEN_END && x->depth > depth);
}

/* name [. name] or FUNCTION name(args), from token t on; the lexer is left behind it. */
static bool target_read(struct sql_lexer *x, struct sql_token t, struct sql_span *ret)
{
    size_t start;
    bool function = false;
    if (sql_token_is(x, &t, "TABLE"))
        t = sql_token_next(x);
    if (sql_token_is(x, &t, "FUNCTION")) {
        function = true;
        t = sql_token_next(x);
    }
    if (!sql_token_is_name(&t))
        return false;
    start = t.span.at;
    for (;;) {
        struct sql_lexer ahead = *x;
        struct sql_token dot = sql_token_next(&ahead);
        if (!sql_token_is(x, &dot, "."))
            break;
        t = sql_token_next(&ahead);
        if (!sql_token_is_name(&t))
            return false;
        *x = ahead;
    }
    if (function) {
        struct sql_token open = sql_token_next(x);
        if (!sql_token_is(x, &open, "("))
            return false;
        parens_skip(x, open.depth);
    }
    *ret = (struct sql_span){start, x->at - start};
    return true;
}

/* Is what starts at '(' a column list, or a SELECT in parentheses? */
static bool parens_are_columns(struct sql_lexer ahead)
{
    struct sql_token t = sql_token_next(&ahead);
    while (sql_token_is(&ahead, &t, "("))
        t = sql_token_next(&ahead);
    return !sql_token_is(&ahead, &t, "SELECT") && !sql_token_is(&ahead, &t, "WITH");
}

/* After INSERT INTO: fills shape and returns true when data follow the statement. */
static bool insert_read(struct sql_lexer *x, struct sql_shape *ret)
{
    struct sql_token t = sql_token_next(x);
    if (!target_read(x, t, &ret->target))
        return false;
    bool columns_may_come = true;
    for (;;) {
        t = sql_token_next(x);
        if (t.kind == SQL_TOKEN_END || t.depth > 0)
            return false;
        if (sql_token_is(x, &t, "(")) {
            if (columns_may_come && parens_are_columns(*x)) {
                size_t start = t.span.at;
                parens_skip(x, t.depth);
                ret->columns = (struct sql_span){start, x->at - start};
                columns_may_come = false;
                continue;
            }
            if (columns_may_come)
                return false;
            parens_skip(x, t.depth); /* PARTITION BY (…), a setting's value */
        } else if (sql_token_is(x, &t, "VALUES") || sql_token_is(x, &t, "FORMAT")) {
            break;
        } else if (sql_token_is(x, &t, "SELECT") || sql_token_is(x, &t, "WITH") ||
                   sql_token_is(x, &t, "FROM") || sql_token_is(x, &t, "WATCH") ||
                   sql_token_is(x, &t, ";")) {
            return false;
        }
    }
    ret->head = (struct sql_span){0, t.span.at};
    ret->format_name = t.span; /* VALUES names its own format */
    if (sql_token_is(x, &t, "FORMAT")) {
        t = sql_token_next(x);
        if (t.kind != SQL_TOKEN_WORD)
            return false;
        ret->format_name = t.span;
    }
    do
        t = sql_token_next(x);
    while (sql_token_is(x, &t, ";"));
    ret->kind = t.kind == SQL_TOKEN_END ? SQL_INSERT : SQL_INSERT_INLINE;
    return true;
}

/* The token after which FORMAT or INTO would be a name, not a clause. */
static bool name_must_follow(const struct sql_lexer *x, const struct sql_token *before)
{
    static const char *const words[] = {"AS",   ".",    ",",        "SELECT", "BY",
                                        "FROM", "JOIN", "DATABASE", "TABLE",  "WHERE",
                                        "AND",  "OR",   "NOT",      "INSERT"};
    for (size_t i = 0; i < LENGTH(words); i++)
        if (sql_token_is(x, before, words[i]))
            return true;
    return before->kind == SQL_TOKEN_END;
}

/* FORMAT name, followed by the end or by SETTINGS. */
static bool format_clause_read(struct sql_lexer *x, struct sql_token word, struct sql_shape *ret)
{
    struct sql_lexer ahead = *x;
    struct sql_token name = sql_token_next(&ahead);
    if (name.kind != SQL_TOKEN_WORD)
        return false;
    size_t end = ahead.at;
    struct sql_token next = sql_token_next(&ahead);
    if (next.kind != SQL_TOKEN_END && !sql_token_is(x, &next, ";") &&
        !sql_token_is(x, &next, "SETTINGS"))
        return false;
    ret->format = (struct sql_span){word.span.at, end - word.span.at};
    ret->format_name = name.span;
    x->at = end;
    return true;
}

/* INTO OUTFILE 'name' [AND STDOUT] [APPEND | TRUNCATE] [COMPRESSION 'c' [LEVEL n]] */
static bool outfile_clause_read(struct sql_lexer *x, struct sql_token word, struct sql_shape *ret)
{
    struct sql_lexer ahead = *x;
    struct sql_token t = sql_token_next(&ahead);
    if (!sql_token_is(x, &t, "OUTFILE"))
        return false;
    t = sql_token_next(&ahead);
    if (t.kind != SQL_TOKEN_STRING)
        return false;
    for (;;) {
        *x = ahead;
        t = sql_token_next(&ahead);
        if (sql_token_is(x, &t, "AND") || sql_token_is(x, &t, "COMPRESSION") ||
            sql_token_is(x, &t, "LEVEL"))
            sql_token_next(&ahead);
        else if (!sql_token_is(x, &t, "APPEND") && !sql_token_is(x, &t, "TRUNCATE"))
            break;
    }
    ret->outfile = (struct sql_span){word.span.at, x->at - word.span.at};
    return true;
}

static void clauses_read(struct sql_lexer *x, struct sql_shape *ret)
{
    struct sql_token before = {SQL_TOKEN_END, {0, 0}, 0};
    for (;;) {
        struct sql_token t = sql_token_next(x);
        if (t.kind == SQL_TOKEN_END)
            return;
        bool clause = t.kind == SQL_TOKEN_WORD && t.depth == 0 && !name_must_follow(x, &before);
        if (clause && sql_token_is(x, &t, "INTO"))
            outfile_clause_read(x, t, ret);
        else if (clause && sql_token_is(x, &t, "FORMAT"))
            format_clause_read(x, t, ret);
        before = t;
    }
}

void sql_shape_read(const char *sql, size_t len, struct sql_shape *ret)
{
    struct sql_lexer x = {sql, len, 0, 0};
    *ret = (struct sql_shape){.kind = SQL_OTHER};
    struct sql_token t = sql_token_next(&x);
    if (sql_token_is(&x, &t, "INSERT")) {
        struct sql_token into = sql_token_next(&x);
        struct sql_lexer here = x;
        struct sql_shape insert = *ret;
        if (sql_token_is(&x, &into, "INTO") && insert_read(&here, &insert))
            *ret = insert;
        return; /* INSERT … SELECT: its clauses stay */
    }
    if (t.kind != SQL_TOKEN_END)
        clauses_read(&x, ret);
}

bool sql_columns_read(const char *sql, struct sql_span columns,
                      void (*name)(void *ctx, const char *name, size_t len), void *ctx)
{
    struct sql_lexer x = {sql + columns.at, columns.len, 0, 0};
    CLEANUP_BUF struct buf text = {0};
    struct sql_token t = sql_token_next(&x);
    if (!sql_token_is(&x, &t, "("))
        return false;
    for (;;) {
        buf_reset(&text);
        for (;;) { /* a.b is the name of a nested column */
            t = sql_token_next(&x);
            if (!sql_token_is_name(&t))
                return false;
            sql_unquote_put(x.sql, t.span, &text);
            t = sql_token_next(&x);
            if (!sql_token_is(&x, &t, "."))
                break;
            buf_put_u8(&text, '.');
        }
        name(ctx, buf_cstr(&text), text.len);
        if (sql_token_is(&x, &t, ")"))
            break;
        if (!sql_token_is(&x, &t, ","))
            return false;
    }
    return sql_token_next(&x).kind == SQL_TOKEN_END;
}

void sql_strip_put(const char *sql, size_t len, const struct sql_shape *shape, struct buf *out)
{
    struct sql_span cuts[2] = {shape->outfile, shape->format};
    if (cuts[0].at > cuts[1].at) {
        cuts[0] = shape->format;
        cuts[1] = shape->outfile;
    }
    size_t at = 0;
    for (size_t i = 0; i < LENGTH(cuts); i++) {
        if (cuts[i].len == 0)
            continue;
        buf_put(out, sql + at, cuts[i].at - at);
        at = cuts[i].at + cuts[i].len;
    }
    buf_put(out, sql + at, len - at);
}

static void escaped_put(const char *text, size_t len, char quote, struct buf *out)
{
    buf_put_u8(out, (uint8_t)quote);
    for (size_t i = 0; i < len; i++) {
        if (text[i] == 0) {
            buf_put(out, "\\0", 2);
            continue;
        }
        if (text[i] == quote || text[i] == '\\')
            buf_put_u8(out, '\\');
        buf_put_u8(out, (uint8_t)text[i]);
    }
    buf_put_u8(out, (uint8_t)quote);
}

void sql_literal_put(const char *text, size_t len, struct buf *out)
{
    escaped_put(text, len, '\'', out);
}

void sql_name_put(const char *name, size_t len, struct buf *out)
{
    escaped_put(name, len, '`', out);
}

void sql_value_put(const char *text, size_t len, struct buf *out)
{
    struct sql_lexer x = {text, len, 0, 0};
    struct sql_token t = sql_token_next(&x);
    if (t.kind == SQL_TOKEN_STRING && text[t.span.at] == '\'' &&
        sql_token_next(&x).kind == SQL_TOKEN_END)
        sql_unquote_put(text, t.span, out);
    else
        buf_put(out, text, len);
}
