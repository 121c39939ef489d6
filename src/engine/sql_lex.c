#include "engine/sql_lex.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool word_byte(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Blanks and comments: -- and #! and "# " to the end of the line, C comments (they nest). */
static void blanks_skip(struct sql_lexer *x)
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
static void quoted_skip(struct sql_lexer *x, char quote)
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
static bool heredoc_skip(struct sql_lexer *x)
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

struct sql_token sql_token_next(struct sql_lexer *x)
{
    blanks_skip(x);
    struct sql_token t = {SQL_TOKEN_END, {x->at, 0}, x->depth};
    if (x->at >= x->len)
        return t;
    char c = x->sql[x->at];
    if (c == '\'' || c == '`' || c == '"') {
        quoted_skip(x, c);
        t.kind = c == '\'' ? SQL_TOKEN_STRING : SQL_TOKEN_QUOTED;
    } else if (c == '$' && heredoc_skip(x)) {
        t.kind = SQL_TOKEN_STRING;
    } else if (word_byte(c)) {
        t.kind = isdigit((unsigned char)c) ? SQL_TOKEN_NUMBER : SQL_TOKEN_WORD;
        while (x->at < x->len &&
               (word_byte(x->sql[x->at]) || (t.kind == SQL_TOKEN_WORD && x->sql[x->at] == '$')))
            x->at++;
    } else {
        t.kind = SQL_TOKEN_PUNCT;
        x->at++;
        if (c == '(' || c == '[' || c == '{')
            x->depth++;
        else if ((c == ')' || c == ']' || c == '}') && x->depth > 0)
            t.depth = --x->depth;
    }
    t.span.len = x->at - t.span.at;
    return t;
}

bool sql_token_is(const struct sql_lexer *x, const struct sql_token *t, const char *text)
{
    if (t->kind != SQL_TOKEN_WORD && t->kind != SQL_TOKEN_PUNCT)
        return false;
    return t->span.len == strlen(text) && strncasecmp(x->sql + t->span.at, text, t->span.len) == 0;
}

bool sql_token_is_name(const struct sql_token *t)
{
    return t->kind == SQL_TOKEN_WORD || t->kind == SQL_TOKEN_QUOTED;
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

void sql_unquote_put(const char *sql, struct sql_span span, struct buf *out)
{
    const char *s = sql + span.at;
    if (span.len < 2 || (*s != '`' && *s != '"' && *s != '\'')) {
        buf_put(out, s, span.len);
        return;
    }
    for (size_t i = 1; i + 1 < span.len; i++) {
        char c = s[i];
        if (i + 4 < span.len && c == '\\' && s[i + 1] == 'x' && isxdigit((unsigned char)s[i + 2]) &&
            isxdigit((unsigned char)s[i + 3])) {
            char hex[3] = {s[i + 2], s[i + 3], 0};
            c = (char)strtoul(hex, NULL, 16);
            i += 3;
        } else if (i + 2 < span.len && (c == '\\' || c == *s)) {
            i++;
            c = c == '\\' ? escape_byte(s[i]) : s[i];
        }
        buf_put_u8(out, (uint8_t)c);
    }
}
