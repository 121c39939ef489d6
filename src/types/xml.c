/* xml: the text as stored, but for its declaration. xml_out leaves out the encoding, and with it a
 * declaration that says nothing else; where none is left, also one newline that followed.
 * Source: parse_xml_decl, print_xml_decl, xml_out_internal of utils/adt/xml.c, the same in 15 to
 * 18. */
#include "types/family.h"

struct declaration {
    const uint8_t *version;
    size_t version_len;
    int standalone; /* -1: not said */
};

static bool is_blank(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_blanks(struct cursor *c)
{
    while (c->pos < c->len && is_blank(c->data[c->pos]))
        c->pos++;
}

static bool take_word(struct cursor *c, const char *word)
{
    size_t n = strlen(word);
    if (cursor_left(c) < n || memcmp(c->data + c->pos, word, n) != 0)
        return false;
    c->pos += n;
    return true;
}

/* ` = ` */
static bool take_equals(struct cursor *c)
{
    skip_blanks(c);
    if (!take_word(c, "="))
        return false;
    skip_blanks(c);
    return true;
}

static bool take_quoted(struct cursor *c, const uint8_t **ret, size_t *ret_len)
{
    if (cursor_left(c) == 0)
        return false;
    uint8_t quote = c->data[c->pos];
    const uint8_t *start = c->data + c->pos + 1;
    const uint8_t *end =
        quote == '\'' || quote == '"' ? memchr(start, quote, cursor_left(c) - 1) : NULL;
    if (end == NULL)
        return false;
    *ret = start;
    *ret_len = (size_t)(end - start);
    c->pos += *ret_len + 2;
    return true;
}

/* A name that blanks must precede: 1 taken, 0 not there, -1 there without blanks. */
static int take_attribute(struct cursor *c, const char *name)
{
    struct cursor ahead = *c;
    skip_blanks(&ahead);
    if (!take_word(&ahead, name))
        return 0;
    if (!is_blank(c->data[c->pos]))
        return -1;
    *c = ahead;
    return 1;
}

static bool take_standalone(struct cursor *c, struct declaration *ret)
{
    const uint8_t *value;
    size_t len;
    struct cursor ahead = *c;
    int there = take_attribute(&ahead, "standalone");
    if (there <= 0)
        return there == 0;
    if (!take_equals(&ahead) || !take_quoted(&ahead, &value, &len))
        return false;
    if (len == 3 && memcmp(value, "yes", 3) == 0)
        ret->standalone = 1;
    else if (len == 2 && memcmp(value, "no", 2) == 0)
        ret->standalone = 0;
    else
        return false;
    *c = ahead;
    return true;
}

/* Behind "<?xml". False: it is not one that PostgreSQL takes apart, the text stays as it is. */
static bool take_declaration(struct cursor *c, struct declaration *ret)
{
    const uint8_t *encoding;
    size_t len;
    if (cursor_left(c) == 0 || !is_blank(c->data[c->pos]))
        return false;
    skip_blanks(c);
    if (!take_word(c, "version") || !take_equals(c) ||
        !take_quoted(c, &ret->version, &ret->version_len))
        return false;
    int there = take_attribute(c, "encoding");
    if (there < 0 || (there > 0 && (!take_equals(c) || !take_quoted(c, &encoding, &len))))
        return false;
    if (!take_standalone(c, ret))
        return false;
    skip_blanks(c);
    if (!take_word(c, "?>"))
        return false;
    for (size_t i = 0; i < c->pos; i++)
        if (c->data[i] > 127)
            return false;
    return true;
}

static bool xml_text(const uint8_t *data, uint32_t len, struct buf *out)
{
    struct cursor c = cursor_of(data, len);
    struct declaration d = {.standalone = -1};
    if (take_word(&c, "<?xml") && !take_declaration(&c, &d)) {
        buf_put(out, data, len);
        return true;
    }
    bool other_version =
        d.version != NULL && (d.version_len != 3 || memcmp(d.version, "1.0", 3) != 0);
    if (other_version || d.standalone >= 0) {
        put_text(out, "<?xml version=\"");
        buf_put(out, d.version, d.version_len);
        put_text(out, d.standalone < 0    ? "\"?>"
                      : d.standalone == 1 ? "\" standalone=\"yes\"?>"
                                          : "\" standalone=\"no\"?>");
    } else if (cursor_left(&c) > 0 && data[c.pos] == '\n') {
        c.pos++;
    }
    buf_put(out, data + c.pos, len - c.pos);
    return true;
}

const struct type_family family_xml = {
    .typid = 142, .attlen = -1, .default_type = type_default_string, .text = xml_text};
