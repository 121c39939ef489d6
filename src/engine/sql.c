#include "engine/sql.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

enum token_kind {
    TOKEN_END,
    TOKEN_WORD,   /* bare identifier or keyword */
    TOKEN_QUOTED, /* `name` or "name" */
    TOKEN_STRING, /* 'text' or a heredoc */
    TOKEN_NUMBER,
    TOKEN_PUNCT, /* one byte */
};

struct token {
    enum token_kind kind;
    struct sql_span span;
    unsigned depth; /* parentheses open around it */
};

struct lexer {
    const char *sql;
    size_t len, at;
    unsigned depth;
};

static bool word_byte(char c)
{
    return isalnum((unsigned char)c) || c == '_' || (c & 0x80) != 0;
}

/* Blanks and comments: -- and #! and "# " to the end of the line, C comments (they nest). */
static void blanks_skip(struct lexer *x)
{
    while (x->at < x->len) {
        const char *s = x->sql + x->at;
        size_t left = x->len - x->at;
        if (isspace((unsigned char)*s) || *s == 0) {
            x->at++;
        } else if ((left >= 2 && s[0] == '-' && s[1] == '-') ||
                   (left >= 2 && s[0] == '#' && (s[1] == ' ' || s[1] == '!'))) {
            const char *eol = memchr(s, '\n', left);
            x->at = eol == NULL ? x->len : (size_t)(eol - x->sql) + 1;
        } else if (left >= 2 && s[0] == '/' && s[1] == '*') {
            unsigned nested = 1;
            for (x->at += 2; x->at < x->len && nested > 0; x->at++) {
                const char *c = x->sql + x->at;
                bool two = x->len - x->at >= 2;
                if (two && c[0] == '*' && c[1] == '/') {
                    nested--;
                    x->at++;
                } else if (two && c[0] == '/' && c[1] == '*') {
                    nested++;
                    x->at++;
                }
            }
        } else {
            return;
        }
    }
}

/* Past the closing quote; a doubled quote or a backslash escapes. */
static void quoted_skip(struct lexer *x, char quote)
{
    for (x->at++; x->at < x->len; x->at++) {
        if (x->sql[x->at] == '\\') {
            x->at++;
        } else if (x->sql[x->at] == quote) {
            if (x->at + 1 < x->len && x->sql[x->at + 1] == quote)
                x->at++;
            else
                break;
        }
    }
    x->at = MIN(x->at + 1, x->len);
}

/* $tag$ … $tag$; false if no heredoc starts here. */
static bool heredoc_skip(struct lexer *x)
{
    const char *s = x->sql + x->at;
    size_t left = x->len - x->at, tag = 1;
    while (tag < left && word_byte(s[tag]))
        tag++;
    if (tag >= left || s[tag] != '$')
        return false;
    tag++;
    const char *end = memmem(s + tag, left - tag, s, tag);
    if (end == NULL)
        return false;
    x->at = (size_t)(end - x->sql) + tag;
    return true;
}

static struct token token_next(struct lexer *x)
{
    blanks_skip(x);
    struct token t = {TOKEN_END, {x->at, 0}, x->depth};
    if (x->at >= x->len)
        return t;
    char c = x->sql[x->at];
    if (c == '\'' || c == '`' || c == '"') {
        quoted_skip(x, c);
        t.kind = c == '\'' ? TOKEN_STRING : TOKEN_QUOTED;
    } else if (c == '$' && heredoc_skip(x)) {
        t.kind = TOKEN_STRING;
    } else if (word_byte(c)) {
        t.kind = isdigit((unsigned char)c) ? TOKEN_NUMBER : TOKEN_WORD;
        while (x->at < x->len && word_byte(x->sql[x->at]))
            x->at++;
    } else {
        t.kind = TOKEN_PUNCT;
        x->at++;
        if (c == '(' || c == '[' || c == '{')
            x->depth++;
        else if ((c == ')' || c == ']' || c == '}') && x->depth > 0)
            t.depth = --x->depth;
    }
    t.span.len = x->at - t.span.at;
    return t;
}

static bool token_is(const struct lexer *x, const struct token *t, const char *text)
{
    if (t->kind != TOKEN_WORD && t->kind != TOKEN_PUNCT)
        return false;
    return t->span.len == strlen(text) && strncasecmp(x->sql + t->span.at, text, t->span.len) == 0;
}

static bool token_is_name(const struct token *t)
{
    return t->kind == TOKEN_WORD || t->kind == TOKEN_QUOTED;
}

/* Moves behind the parenthesis that t opened. */
static void parens_skip(struct lexer *x, unsigned depth)
{
    struct token t;
    do
        t = token_next(x);
    while (t.kind != TOKEN_END && x->depth > depth);
}

/* name [. name] or FUNCTION name(args), from token t on; the lexer is left behind it. */
static bool target_read(struct lexer *x, struct token t, struct sql_span *ret)
{
    size_t start;
    bool function = false;
    if (token_is(x, &t, "TABLE"))
        t = token_next(x);
    if (token_is(x, &t, "FUNCTION")) {
        function = true;
        t = token_next(x);
    }
    if (!token_is_name(&t))
        return false;
    start = t.span.at;
    for (;;) {
        struct lexer ahead = *x;
        struct token dot = token_next(&ahead);
        if (!token_is(x, &dot, "."))
            break;
        t = token_next(&ahead);
        if (!token_is_name(&t))
            return false;
        *x = ahead;
    }
    if (function) {
        struct token open = token_next(x);
        if (!token_is(x, &open, "("))
            return false;
        parens_skip(x, open.depth);
    }
    *ret = (struct sql_span){start, x->at - start};
    return true;
}

/* Is what starts at '(' a column list, or a SELECT in parentheses? */
static bool parens_are_columns(struct lexer ahead)
{
    struct token t = token_next(&ahead);
    while (token_is(&ahead, &t, "("))
        t = token_next(&ahead);
    return !token_is(&ahead, &t, "SELECT") && !token_is(&ahead, &t, "WITH");
}

/* After INSERT INTO: fills shape and returns true when data follow the statement. */
static bool insert_read(struct lexer *x, struct sql_shape *ret)
{
    struct token t = token_next(x);
    if (!target_read(x, t, &ret->target))
        return false;
    bool columns_may_come = true;
    for (;;) {
        t = token_next(x);
        if (t.kind == TOKEN_END || t.depth > 0)
            return false;
        if (token_is(x, &t, "(")) {
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
        } else if (token_is(x, &t, "VALUES") || token_is(x, &t, "FORMAT")) {
            break;
        } else if (token_is(x, &t, "SELECT") || token_is(x, &t, "WITH") ||
                   token_is(x, &t, "FROM") || token_is(x, &t, "WATCH") || token_is(x, &t, ";")) {
            return false;
        }
    }
    ret->head = (struct sql_span){0, t.span.at};
    ret->format_name = t.span; /* VALUES names its own format */
    if (token_is(x, &t, "FORMAT")) {
        t = token_next(x);
        if (t.kind != TOKEN_WORD)
            return false;
        ret->format_name = t.span;
    }
    do
        t = token_next(x);
    while (token_is(x, &t, ";"));
    ret->kind = t.kind == TOKEN_END ? SQL_INSERT : SQL_INSERT_INLINE;
    return true;
}

/* The token after which FORMAT or INTO would be a name, not a clause. */
static bool name_must_follow(const struct lexer *x, const struct token *before)
{
    static const char *const words[] = {"AS",   ".",    ",",        "SELECT", "BY",
                                        "FROM", "JOIN", "DATABASE", "TABLE",  "WHERE",
                                        "AND",  "OR",   "NOT",      "INSERT"};
    for (size_t i = 0; i < LENGTH(words); i++)
        if (token_is(x, before, words[i]))
            return true;
    return before->kind == TOKEN_END;
}

/* FORMAT name, followed by the end or by SETTINGS. */
static bool format_clause_read(struct lexer *x, struct token word, struct sql_shape *ret)
{
    struct lexer ahead = *x;
    struct token name = token_next(&ahead);
    if (name.kind != TOKEN_WORD)
        return false;
    size_t end = ahead.at;
    struct token next = token_next(&ahead);
    if (next.kind != TOKEN_END && !token_is(x, &next, ";") && !token_is(x, &next, "SETTINGS"))
        return false;
    ret->format = (struct sql_span){word.span.at, end - word.span.at};
    ret->format_name = name.span;
    x->at = end;
    return true;
}

/* INTO OUTFILE 'name' [AND STDOUT] [APPEND | TRUNCATE] [COMPRESSION 'c' [LEVEL n]] */
static bool outfile_clause_read(struct lexer *x, struct token word, struct sql_shape *ret)
{
    struct lexer ahead = *x;
    struct token t = token_next(&ahead);
    if (!token_is(x, &t, "OUTFILE"))
        return false;
    t = token_next(&ahead);
    if (t.kind != TOKEN_STRING)
        return false;
    for (;;) {
        *x = ahead;
        t = token_next(&ahead);
        if (token_is(x, &t, "AND") || token_is(x, &t, "COMPRESSION") || token_is(x, &t, "LEVEL"))
            token_next(&ahead);
        else if (!token_is(x, &t, "APPEND") && !token_is(x, &t, "TRUNCATE"))
            break;
    }
    ret->outfile = (struct sql_span){word.span.at, x->at - word.span.at};
    return true;
}

static void clauses_read(struct lexer *x, struct sql_shape *ret)
{
    struct token before = {TOKEN_END, {0, 0}, 0};
    for (;;) {
        struct token t = token_next(x);
        if (t.kind == TOKEN_END)
            return;
        bool clause = t.kind == TOKEN_WORD && t.depth == 0 && !name_must_follow(x, &before);
        if (clause && token_is(x, &t, "INTO"))
            outfile_clause_read(x, t, ret);
        else if (clause && token_is(x, &t, "FORMAT"))
            format_clause_read(x, t, ret);
        before = t;
    }
}

void sql_shape_read(const char *sql, size_t len, struct sql_shape *ret)
{
    struct lexer x = {sql, len, 0, 0};
    *ret = (struct sql_shape){.kind = SQL_OTHER};
    struct token t = token_next(&x);
    if (token_is(&x, &t, "INSERT")) {
        struct token into = token_next(&x);
        struct lexer here = x;
        struct sql_shape insert = *ret;
        if (token_is(&x, &into, "INTO") && insert_read(&here, &insert))
            *ret = insert;
        return; /* INSERT … SELECT: its clauses stay */
    }
    if (t.kind != TOKEN_END)
        clauses_read(&x, ret);
}

/* The byte a backslash and c stand for. */
static char escape_byte(char c)
{
    static const char map[] = "n\nt\tr\rb\bf\fv\va\a";
    for (size_t i = 0; i + 1 < sizeof map; i += 2)
        if (map[i] == c)
            return map[i + 1];
    return c == '0' ? 0 : c;
}

/* Appends a name's bytes without quotes and escapes. */
static void name_unquote(const char *sql, struct sql_span span, struct buf *out)
{
    const char *s = sql + span.at;
    if (span.len < 2 || (*s != '`' && *s != '"')) {
        buf_put(out, s, span.len);
        return;
    }
    for (size_t i = 1; i + 1 < span.len; i++) {
        char c = s[i];
        if (i + 2 < span.len && (c == '\\' || c == *s)) {
            i++;
            c = c == '\\' ? escape_byte(s[i]) : s[i];
        }
        buf_put_u8(out, (uint8_t)c);
    }
}

bool sql_columns_read(const char *sql, struct sql_span columns,
                      void (*name)(void *ctx, const char *name, size_t len), void *ctx)
{
    struct lexer x = {sql + columns.at, columns.len, 0, 0};
    CLEANUP_BUF struct buf text = {0};
    struct token t = token_next(&x);
    if (!token_is(&x, &t, "("))
        return false;
    for (;;) {
        buf_reset(&text);
        for (;;) { /* a.b is the name of a nested column */
            t = token_next(&x);
            if (!token_is_name(&t))
                return false;
            name_unquote(x.sql, t.span, &text);
            t = token_next(&x);
            if (!token_is(&x, &t, "."))
                break;
            buf_put_u8(&text, '.');
        }
        name(ctx, buf_cstr(&text), text.len);
        if (token_is(&x, &t, ")"))
            break;
        if (!token_is(&x, &t, ","))
            return false;
    }
    return token_next(&x).kind == TOKEN_END;
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
