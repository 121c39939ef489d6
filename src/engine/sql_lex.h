/* Tokens of ClickHouse's SQL, as far as statements have to be recognised here (ClickHouse,
 * src/Parsers/Lexer.cpp). Never fails: what it does not know is a token of one byte. */
#pragma once
#include "engine/sql.h"

enum sql_token_kind {
    SQL_TOKEN_END,
    SQL_TOKEN_WORD,   /* bare identifier or keyword */
    SQL_TOKEN_QUOTED, /* `name` or "name" */
    SQL_TOKEN_STRING, /* 'text' or a heredoc */
    SQL_TOKEN_NUMBER,
    SQL_TOKEN_PUNCT, /* one byte */
};

struct sql_token {
    enum sql_token_kind kind;
    struct sql_span span;
    unsigned depth; /* parentheses open around it */
};

struct sql_lexer {
    const char *sql;
    size_t len, at;
    unsigned depth;
};

struct sql_token sql_token_next(struct sql_lexer *x);
/* A word or one byte of punctuation, letters of either case. */
bool sql_token_is(const struct sql_lexer *x, const struct sql_token *t, const char *text);
bool sql_token_is_name(const struct sql_token *t); /* bare or quoted */
/* Appends a name's or a string's bytes without quotes and escapes. */
void sql_unquote_put(const char *sql, struct sql_span span, struct buf *out);
