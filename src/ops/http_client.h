/* A small HTTP/1.1 client over a unix socket: one request a connection, the body streamed. */
#pragma once
#include "base/buf.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct http_call;

/* Connects, sends the request, reads the reply's head. target is path and query as on the wire.
 * extra_headers: complete lines with \r\n, or NULL. ERR_RETRY if nobody listens or the peer goes
 * away, ERR_DATA on a malformed head. */
enum status http_call_open(const char *socket_path, const char *method, const char *target,
                           const char *extra_headers, const void *body, size_t body_len,
                           struct http_call **ret, struct error *err) CHECKED;
int http_call_code(const struct http_call *call);
const char *http_call_header(const struct http_call *call, const char *name); /* NULL if absent */
/* Up to cap bytes of the body; *ret_len 0 = complete. ERR_RETRY if it is cut short. */
enum status http_call_read(struct http_call *call, void *data, size_t cap, size_t *ret_len,
                           struct error *err) CHECKED;
/* The whole rest; ERR_DATA above max_bytes. */
enum status http_call_read_all(struct http_call *call, size_t max_bytes, struct buf *ret,
                               struct error *err) CHECKED;
/* Wakes a read in another thread: it fails. */
void http_call_abort(struct http_call *call);
void http_call_close(struct http_call *call); /* NULL is fine */

/* Appends text percent-encoded. */
void url_encode(struct buf *out, const char *text, size_t len);
