/* The four kinds of TOML strings, and UTF-8. */
#include "base/buf.h"
#include "config/toml_parser.h"

static void put_utf8(struct buf *out, uint32_t c)
{
    if (c < 0x80) {
        buf_put_u8(out, (uint8_t)c);
        return;
    }
    unsigned more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint8_t lead[] = {0, 0xc0, 0xe0, 0xf0};
    buf_put_u8(out, (uint8_t)(lead[more] | c >> (6 * more)));
    while (more-- > 0)
        buf_put_u8(out, (uint8_t)(0x80 | (c >> (6 * more) & 0x3f)));
}

static enum status parse_unicode(struct toml_parser *p, unsigned ndigits, struct buf *out)
{
    uint32_t c = 0;
    for (unsigned i = 0; i < ndigits; i++) {
        int h = toml_peek(p, i);
        int v = h >= '0' && h <= '9'   ? h - '0'
                : h >= 'a' && h <= 'f' ? h - 'a' + 10
                : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                       : -1;
        if (v < 0)
            return toml_fail(p, "\\%c needs %u hexadecimal digits", ndigits == 4 ? 'u' : 'U',
                             ndigits);
        c = c << 4 | (uint32_t)v;
    }
    if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return toml_fail(p, "U+%04X is not a character", c);
    p->pos += ndigits;
    put_utf8(out, c);
    return OK;
}

/* A backslash at a line's end takes all white space up to the next character with it. */
static bool skip_line_end(struct toml_parser *p)
{
    size_t pos = p->pos;
    toml_skip_blanks(p);
    if (!toml_take_newline(p)) {
        p->pos = pos;
        return false;
    }
    do
        toml_skip_blanks(p);
    while (toml_take_newline(p));
    return true;
}

/* Behind the backslash. */
static enum status parse_escape(struct toml_parser *p, bool multiline, struct buf *out)
{
    static const char from[] = "btnfr\"\\", to[] = "\b\t\n\f\r\"\\";
    if (multiline && skip_line_end(p))
        return OK;
    int c = toml_peek(p, 0);
    const char *at = c > 0 ? strchr(from, c) : NULL;
    if (at != NULL) {
        p->pos++;
        buf_put_u8(out, (uint8_t)to[at - from]);
        return OK;
    }
    if (c == 'u' || c == 'U') {
        p->pos++;
        return parse_unicode(p, c == 'u' ? 4 : 8, out);
    }
    return toml_fail(p, "unknown escape; a literal backslash is \\\\ (or use 'single quotes')");
}

/* At the closing run of quotes of a multi-line string: up to two belong to the text. */
static bool multiline_end(struct toml_parser *p, int quote, struct buf *out)
{
    unsigned run = 0;
    while (run < 5 && toml_peek(p, run) == quote)
        run++;
    p->pos += run;
    for (unsigned i = 0; i < (run >= 3 ? run - 3 : run); i++)
        buf_put_u8(out, (uint8_t)quote);
    return run >= 3;
}

static enum status string_body(struct toml_parser *p, int quote, bool multiline, struct buf *out)
{
    for (;;) {
        int c = toml_peek(p, 0);
        size_t at = p->pos;
        if (c < 0)
            return toml_fail(p, "a string is not closed");
        if (c == quote) {
            if (!multiline) {
                p->pos++;
                return OK;
            }
            if (multiline_end(p, quote, out))
                return OK;
        } else if (multiline && toml_take_newline(p)) {
            buf_put(out, p->s + at, p->pos - at);
        } else if ((c < 0x20 && c != '\t') || c == 0x7f) {
            return toml_fail(p, c == '\n' || c == '\r' ? "a string is not closed on its line"
                                                       : "a control character in a string");
        } else if (c == '\\' && quote == '"') {
            p->pos++;
            TRY(parse_escape(p, multiline, out));
        } else {
            buf_put_u8(out, (uint8_t)c);
            p->pos++;
        }
    }
}

enum status toml_parse_string(struct toml_parser *p, bool allow_multiline, struct toml_text *ret)
{
    CLEANUP_BUF struct buf out = {0};
    int quote = toml_peek(p, 0);
    bool multiline = toml_peek(p, 1) == quote && toml_peek(p, 2) == quote;
    if (multiline && !allow_multiline)
        return toml_fail(p, "a key cannot be a multi-line string");
    p->pos += multiline ? 3 : 1;
    if (multiline)
        toml_take_newline(p);
    TRY(string_body(p, quote, multiline, &out));
    ret->len = out.len;
    ret->data = arena_copy(p->arena, buf_cstr(&out), out.len + 1);
    return OK;
}
