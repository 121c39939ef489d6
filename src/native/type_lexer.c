#include "native/type_lexer.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>

enum status type_lexer_failed(struct type_lexer *p, const char *what)
{
    int shown = (int)MIN(p->len, 200);
    return error_set(p->err, ERR_DATA, "ClickHouse type \"%.*s\": %s at character %zu", shown,
                     p->text, what, p->pos + 1);
}

static void skip_spaces(struct type_lexer *p)
{
    while (p->pos < p->len && isspace((unsigned char)p->text[p->pos]))
        p->pos++;
}

/* The next character that is not a space, 0 at the end. */
char type_lexer_peek(struct type_lexer *p)
{
    skip_spaces(p);
    return p->pos < p->len ? p->text[p->pos] : 0;
}

bool type_lexer_accept(struct type_lexer *p, char c)
{
    if (type_lexer_peek(p) != c)
        return false;
    p->pos++;
    return true;
}

enum status type_lexer_expect(struct type_lexer *p, char c)
{
    char what[] = "expected 'x'";
    if (type_lexer_accept(p, c))
        return OK;
    what[sizeof what - 3] = c;
    return type_lexer_failed(p, what);
}

bool type_lexer_is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

const char *type_lexer_word(struct type_lexer *p)
{
    skip_spaces(p);
    size_t start = p->pos;
    while (p->pos < p->len && type_lexer_is_word(p->text[p->pos]))
        p->pos++;
    char *word = arena_alloc(p->arena, p->pos - start + 1);
    memcpy(word, p->text + start, p->pos - start);
    word[p->pos - start] = 0;
    return word;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One escape sequence; p stands behind the backslash. Returns -1 for a bad one. */
static int parse_escape(struct type_lexer *p)
{
    static const char from[] = "abefnrtv0", to[] = "\a\b\033\f\n\r\t\v";
    if (p->pos >= p->len)
        return -1;
    char c = p->text[p->pos++];
    if (c == 'x') {
        if (p->len - p->pos < 2)
            return -1;
        int high = hex_digit(p->text[p->pos]), low = hex_digit(p->text[p->pos + 1]);
        p->pos += 2;
        return high < 0 || low < 0 ? -1 : high << 4 | low;
    }
    const char *at = c == 0 ? NULL : strchr(from, c);
    return at != NULL ? to[at - from]
                      : (unsigned char)c; /* '\\\\', quotes, and what has no meaning */
}

/* Moves behind the quoted text that starts here; the bytes between the quotes are
 * [*ret_start, p->pos - 1). */
static enum status skip_quoted(struct type_lexer *p, size_t *ret_start)
{
    char quote = p->text[p->pos++];
    *ret_start = p->pos;
    for (; p->pos < p->len; p->pos++) {
        if (p->text[p->pos] == '\\') {
            p->pos++;
        } else if (p->text[p->pos] == quote) {
            p->pos++;
            if (p->pos >= p->len || p->text[p->pos] != quote)
                return OK;
        }
    }
    p->pos = p->len;
    return type_lexer_failed(p, "quote without end");
}

/* 'text', "text" or `text` with backslash escapes and doubled quotes. */
enum status type_lexer_quoted(struct type_lexer *p, const char **ret)
{
    char quote = type_lexer_peek(p);
    size_t start, n = 0;
    TRY(skip_quoted(p, &start));
    struct type_lexer inner = {p->arena, p->text, p->pos - 1, start, 0, p->err};
    /* the plain form is never longer than the quoted one */
    char *out = arena_alloc(p->arena, inner.len - start + 1);
    while (inner.pos < inner.len) {
        int c = (unsigned char)inner.text[inner.pos++];
        if (c == quote)
            inner.pos++;
        else if (c == '\\')
            c = parse_escape(&inner);
        if (c <= 0)
            return type_lexer_failed(&inner, c < 0 ? "bad escape" : "zero byte");
        out[n++] = (char)c;
    }
    out[n] = 0;
    *ret = out;
    return OK;
}

enum status type_lexer_number(struct type_lexer *p, long min, long max, long *ret)
{
    bool minus = type_lexer_accept(p, '-');
    long value = 0;
    if (!isdigit((unsigned char)type_lexer_peek(p)))
        return type_lexer_failed(p, "expected a number");
    while (p->pos < p->len && isdigit((unsigned char)p->text[p->pos])) {
        value = value * 10 + (p->text[p->pos++] - '0');
        if (value > INT_MAX)
            return type_lexer_failed(p, "number out of range");
    }
    if (minus)
        value = -value;
    if (value < min || value > max)
        return type_lexer_failed(p, "number out of range");
    *ret = value;
    return OK;
}

/* Text up to the parenthesis or comma that ends this argument (to_comma) or all of them, trimmed.
 */
enum status type_lexer_raw(struct type_lexer *p, bool to_comma, const char **ret)
{
    unsigned depth = 0;
    skip_spaces(p);
    size_t start = p->pos;
    for (; p->pos < p->len; p->pos++) {
        char c = p->text[p->pos];
        if (c == '\'' || c == '"' || c == '`') {
            size_t ignored;
            TRY(skip_quoted(p, &ignored));
            p->pos--;
        } else if (c == '(') {
            depth++;
        } else if (c == ')' && depth-- == 0) {
            break;
        } else if (c == ',' && depth == 0 && to_comma) {
            break;
        }
    }
    if (p->pos >= p->len)
        return type_lexer_failed(p, "expected ')'");
    size_t n = p->pos - start;
    while (n > 0 && isspace((unsigned char)p->text[start + n - 1]))
        n--;
    char *out = arena_alloc(p->arena, n + 1);
    memcpy(out, p->text + start, n);
    out[n] = 0;
    *ret = out;
    return OK;
}
