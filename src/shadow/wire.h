/* Messages of PostgreSQL's protocol 3.0 as a server writes them, appended to a buffer, and the
 * checked reading of a client's. Source: PostgreSQL documentation, "Message Formats". Private to
 * this folder. */
#pragma once
#include "base/buf.h"
#include "base/stream.h"
#include "pg/pg.h"

#define WIRE_MESSAGE_MAX 65536u

void wire_put_be16(struct buf *b, uint16_t v);
void wire_put_be32(struct buf *b, uint32_t v);
void wire_put_be64(struct buf *b, uint64_t v);

/* A message in the making: its length is filled in by pgwire_end. */
size_t pgwire_begin(struct buf *b, char type);
void pgwire_end(struct buf *b, size_t begin);

void wire_auth_ok(struct buf *b);
void wire_parameter(struct buf *b, const char *name, const char *value);
void wire_ready(struct buf *b);
void wire_complete(struct buf *b, const char *tag);
/* severity: "ERROR" or "FATAL" */
void wire_error(struct buf *b, const char *severity, const char *sqlstate, const char *message);

struct wire_column {
    const char *name;
    Oid type_oid;
    int16_t type_len;
};
void wire_row_description(struct buf *b, const struct wire_column *columns, unsigned n);
/* values[i] NULL = SQL NULL */
void wire_data_row(struct buf *b, const char *const *values, unsigned n);

/* Reads one typed message: *ret_type, and its body into `body` (reset first). ERR_DATA for a length
 * that cannot be; ERR_RETRY when the peer is gone. */
enum status wire_read_message(struct stream *s, uint64_t deadline_ns, char *ret_type,
                              struct buf *body, struct error *err) CHECKED;
/* Reads exactly n bytes. */
enum status wire_read(struct stream *s, void *to, size_t n, uint64_t deadline_ns,
                      struct error *err) CHECKED;

/* The clock as the protocol has it: microseconds since 2000-01-01 UTC. */
int64_t wire_now_us(void);
