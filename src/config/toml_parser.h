/* State shared by the halves of the TOML parser. Not for other folders. */
#pragma once
#include "config/toml.h"

#define TOML_DEPTH_MAX 128

/* How a table or array came to be; decides what may still be added to it. */
enum toml_origin {
    TOML_MADE_IMPLICIT, /* parent in a header: [a.b] makes a */
    TOML_MADE_HEADER,   /* [a] */
    TOML_MADE_DOTTED,   /* a.b = 1 makes a */
    TOML_MADE_INLINE,   /* { … } and [ … ]: closed */
    TOML_MADE_TABLES,   /* array of [[a]] */
};

struct toml_parser {
    const char *name;
    const char *s;
    size_t len, pos;
    unsigned line;
    size_t line_start;
    unsigned depth;
    struct arena *arena;
    struct error *err;
};

static inline int toml_peek(const struct toml_parser *p, size_t ahead)
{
    return p->pos + ahead < p->len ? (unsigned char)p->s[p->pos + ahead] : -1;
}

enum status toml_fail(struct toml_parser *p, const char *fmt, ...) PRINTF(2, 3);
struct toml_value *toml_value_new(struct toml_parser *p, enum toml_kind kind);
void toml_skip_blanks(struct toml_parser *p);
enum status toml_skip_comment(struct toml_parser *p) CHECKED;
/* Past one "\n" or "\r\n"; false if there is none. */
bool toml_take_newline(struct toml_parser *p);

/* At a quote; *ret in the arena. */
enum status toml_parse_string(struct toml_parser *p, bool allow_multiline,
                              struct toml_text *ret) CHECKED;
/* Number, bool or time: the characters up to the next delimiter. */
enum status toml_parse_scalar(struct toml_parser *p, struct toml_value **ret) CHECKED;
enum status toml_parse_value(struct toml_parser *p, struct toml_value **ret) CHECKED;
