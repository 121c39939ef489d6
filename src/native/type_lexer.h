/* Words, numbers and quoted texts of a ClickHouse type text. Private to type_name.c. */
#pragma once
#include "base/arena.h"
#include "base/error.h"

#include <stdbool.h>

struct type_lexer {
    struct arena *arena; /* what is returned lives here */
    const char *text;
    size_t len, pos;
    unsigned depth; /* of the types around */
    struct error *err;
};

/* ERR_DATA with the text and the position. */
enum status type_lexer_failed(struct type_lexer *p, const char *what);

/* The next character that is not a space, 0 at the end. */
char type_lexer_peek(struct type_lexer *p);
bool type_lexer_accept(struct type_lexer *p, char c);
enum status type_lexer_expect(struct type_lexer *p, char c) CHECKED;

bool type_lexer_is_word(char c);
const char *type_lexer_word(struct type_lexer *p); /* "" where none starts */

/* 'text', "text" or `text` with backslash escapes and doubled quotes. */
enum status type_lexer_quoted(struct type_lexer *p, const char **ret) CHECKED;
enum status type_lexer_number(struct type_lexer *p, long min, long max, long *ret) CHECKED;

/* Text up to the parenthesis or comma that ends this argument (to_comma) or all of them, trimmed.
 */
enum status type_lexer_raw(struct type_lexer *p, bool to_comma, const char **ret) CHECKED;
