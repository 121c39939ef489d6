#include "shadow/wire.h"

#include <endian.h>
#include <sys/time.h>

#define POSTGRES_EPOCH_S 946684800 /* 2000-01-01 in seconds since 1970 */

void wire_put_be16(struct buf *b, uint16_t v)
{
    buf_put_u16(b, htobe16(v));
}

void wire_put_be32(struct buf *b, uint32_t v)
{
    buf_put_u32(b, htobe32(v));
}

void wire_put_be64(struct buf *b, uint64_t v)
{
    buf_put_u64(b, htobe64(v));
}

size_t pgwire_begin(struct buf *b, char type)
{
    buf_put_u8(b, (uint8_t)type);
    buf_put_zeros(b, 4);
    return b->len - 4;
}

void pgwire_end(struct buf *b, size_t begin)
{
    uint32_t len = htobe32((uint32_t)(b->len - begin)); /* counts itself, not the type */
    memcpy(b->data + begin, &len, sizeof len);
}

static void put_cstr(struct buf *b, const char *s)
{
    buf_put(b, s, strlen(s) + 1);
}

void wire_auth_ok(struct buf *b)
{
    size_t at = pgwire_begin(b, 'R');
    wire_put_be32(b, 0);
    pgwire_end(b, at);
}

void wire_parameter(struct buf *b, const char *name, const char *value)
{
    size_t at = pgwire_begin(b, 'S');
    put_cstr(b, name);
    put_cstr(b, value);
    pgwire_end(b, at);
}

void wire_ready(struct buf *b)
{
    size_t at = pgwire_begin(b, 'Z');
    buf_put_u8(b, 'I');
    pgwire_end(b, at);
}

void wire_complete(struct buf *b, const char *tag)
{
    size_t at = pgwire_begin(b, 'C');
    put_cstr(b, tag);
    pgwire_end(b, at);
}

static void put_field(struct buf *b, char code, const char *text)
{
    buf_put_u8(b, (uint8_t)code);
    put_cstr(b, text);
}

void wire_error(struct buf *b, const char *severity, const char *sqlstate, const char *message)
{
    size_t at = pgwire_begin(b, 'E');
    put_field(b, 'S', severity);
    put_field(b, 'V', severity);
    put_field(b, 'C', sqlstate);
    put_field(b, 'M', message);
    buf_put_u8(b, 0);
    pgwire_end(b, at);
}

void wire_row_description(struct buf *b, const struct wire_column *columns, unsigned n)
{
    size_t at = pgwire_begin(b, 'T');
    wire_put_be16(b, (uint16_t)n);
    for (unsigned i = 0; i < n; i++) {
        put_cstr(b, columns[i].name);
        wire_put_be32(b, 0); /* of no table */
        wire_put_be16(b, 0);
        wire_put_be32(b, columns[i].type_oid);
        wire_put_be16(b, (uint16_t)columns[i].type_len);
        wire_put_be32(b, UINT32_MAX); /* typmod -1 */
        wire_put_be16(b, 0);          /* text */
    }
    pgwire_end(b, at);
}

void wire_data_row(struct buf *b, const char *const *values, unsigned n)
{
    size_t at = pgwire_begin(b, 'D');
    wire_put_be16(b, (uint16_t)n);
    for (unsigned i = 0; i < n; i++) {
        if (values[i] == NULL) {
            wire_put_be32(b, UINT32_MAX);
            continue;
        }
        wire_put_be32(b, (uint32_t)strlen(values[i]));
        buf_put(b, values[i], strlen(values[i]));
    }
    pgwire_end(b, at);
}

enum status wire_read(struct stream *s, void *to, size_t n, uint64_t deadline_ns, struct error *err)
{
    uint8_t *at = to;
    while (n > 0) {
        size_t got = 0;
        TRY(stream_read(s, at, n, deadline_ns, &got, err));
        if (got == 0)
            return error_set(err, ERR_RETRY, "the client closed the connection");
        at += got;
        n -= got;
    }
    return OK;
}

enum status wire_read_message(struct stream *s, uint64_t deadline_ns, char *ret_type,
                              struct buf *body, struct error *err)
{
    uint8_t head[5];
    uint32_t len;
    TRY(wire_read(s, head, sizeof head, deadline_ns, err));
    memcpy(&len, head + 1, sizeof len);
    len = be32toh(len);
    if (len < 4 || len > WIRE_MESSAGE_MAX)
        return error_set(err, ERR_DATA, "a message of type 0x%02x and length %u", head[0], len);
    buf_reset(body);
    TRY(wire_read(s, buf_reserve(body, len - 4), len - 4, deadline_ns, err));
    body->len = len - 4;
    *ret_type = (char)head[0];
    return OK;
}

int64_t wire_now_us(void)
{
    struct timeval tv;
    gettimeofday(&tv, NULL);
    return ((int64_t)tv.tv_sec - POSTGRES_EPOCH_S) * 1000000 + tv.tv_usec;
}
