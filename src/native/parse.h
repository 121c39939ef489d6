/* Reading wire formats from a buffer that still grows: "not all here yet" is not an error. */
#pragma once
#include "base/cursor.h"
#include "base/error.h"

enum parse_result {
    PARSE_DONE,
    PARSE_MORE, /* what is there is a valid beginning: call again with more bytes */
    PARSE_BAD,  /* malformed; err says what */
};

/* Bytes in a buffer of someone else, not NUL-terminated. */
struct str {
    const char *data;
    size_t len;
};
static inline struct str str_of(const char *s)
{
    return (struct str){s, s == NULL ? 0 : strlen(s)};
}
static inline bool str_is(struct str s, const char *text)
{
    return s.len == strlen(text) && (s.len == 0 || memcmp(s.data, text, s.len) == 0);
}

/* A run of reads over a cursor: the first failure sticks, later reads give 0. */
struct wire {
    struct cursor *in;
    size_t start; /* where the run began: restored unless it ends DONE */
    enum parse_result state;
    struct error *err;
};
struct wire wire_begin(struct cursor *in, struct error *err);
enum parse_result wire_end(struct wire *w); /* rewinds the cursor unless all reads succeeded */
enum parse_result wire_bad(struct wire *w, const char *fmt, ...) PRINTF(2, 3);
uint64_t wire_varint(struct wire *w);
uint8_t wire_u8(struct wire *w);
int32_t wire_i32(struct wire *w);
int64_t wire_i64(struct wire *w);
void wire_skip(struct wire *w, size_t n);
/* varint length + bytes; longer than max is PARSE_BAD and names `what` */
struct str wire_str(struct wire *w, size_t max, const char *what);
