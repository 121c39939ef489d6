/* HTTP/1.1 (RFC 9112) as far as a client of our own engine needs it: one request a connection, a
 * body with a length, chunked, or up to the end of the connection. */
#include "ops/http_client.h"

#include "base/queue.h"
#include "base/socket.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HEAD_MAX (64 * 1024)
#define CONNECT_TIMEOUT_NS UINT64_C(5000000000)

enum body_kind { BODY_LENGTH, BODY_CHUNKED, BODY_TO_END };

struct http_call {
    struct stream stream;
    int code;
    struct buf in; /* received; in.data[at] is the next byte */
    size_t at;
    char *head; /* status line and headers, each line NUL-terminated */
    size_t head_len;
    enum body_kind body;
    uint64_t left; /* of the body or of the current chunk */
    bool in_chunk, done;
};

static enum status fill(struct http_call *c, size_t *ret_n, struct error *err)
{
    if (c->at == c->in.len)
        c->at = c->in.len = 0;
    uint8_t *to = buf_reserve(&c->in, 64 * 1024);
    TRY(stream_read(&c->stream, to, 64 * 1024, STREAM_NO_DEADLINE, ret_n, err));
    c->in.len += *ret_n;
    return OK;
}

static enum status send_request(struct http_call *c, const char *method, const char *target,
                                const char *extra_headers, const void *body, size_t body_len,
                                struct error *err)
{
    CLEANUP_BUF struct buf out = {0};
    buf_printf(&out, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", method, target);
    if (extra_headers != NULL)
        buf_put(&out, extra_headers, strlen(extra_headers));
    if (body_len > 0 || strcmp(method, "POST") == 0)
        buf_printf(&out, "Content-Length: %zu\r\n", body_len);
    buf_put(&out, "\r\n", 2);
    buf_put(&out, body, body_len);
    return stream_write(&c->stream, out.data, out.len, STREAM_NO_DEADLINE, err);
}

/* Up to and with the empty line; what follows stays in the buffer. */
static enum status read_head(struct http_call *c, struct error *err)
{
    for (;;) {
        const uint8_t *end = c->in.len == 0 ? NULL : memmem(c->in.data, c->in.len, "\r\n\r\n", 4);
        if (end != NULL) {
            c->head_len = (size_t)(end - c->in.data) + 2;
            c->head = xmalloc(c->head_len + 1);
            memcpy(c->head, c->in.data, c->head_len);
            c->head[c->head_len] = '\0';
            c->at = c->head_len + 2;
            return OK;
        }
        size_t n;
        if (c->in.len > HEAD_MAX)
            return error_set(err, ERR_DATA, "%s: an HTTP reply without end of head",
                             c->stream.name);
        TRY(fill(c, &n, err));
        if (n == 0)
            return error_set(err, ERR_RETRY, "%s: closed the connection without a reply",
                             c->stream.name);
    }
}

const char *http_call_header(const struct http_call *c, const char *name)
{
    size_t n = strlen(name);
    const char *line = c->head, *end = c->head + c->head_len;
    while (line < end) {
        if (strncasecmp(line, name, n) == 0 && line[n] == ':')
            return line + n + 1 + strspn(line + n + 1, " \t");
        line += strlen(line) + 1;
        line += line < end && *line == '\0'; /* \r\n became two */
    }
    return NULL;
}

static enum status parse_head(struct http_call *c, struct error *err)
{
    if (memchr(c->head, 0, c->head_len) != NULL)
        return error_set(err, ERR_DATA, "%s: NUL in the head of an HTTP reply", c->stream.name);
    if (strncmp(c->head, "HTTP/1.", 7) != 0 || !isdigit((unsigned char)c->head[7]) ||
        c->head[8] != ' ' || strspn(c->head + 9, "0123456789") != 3)
        return error_set(err, ERR_DATA, "%s: not an HTTP reply", c->stream.name);
    c->code = atoi(c->head + 9);
    for (size_t i = 0; i < c->head_len; i++) {
        if (c->head[i] == '\r' || c->head[i] == '\n')
            c->head[i] = '\0';
    }
    const char *length = http_call_header(c, "Content-Length");
    const char *transfer = http_call_header(c, "Transfer-Encoding");
    c->body = BODY_TO_END;
    if (transfer != NULL && strcasecmp(transfer, "chunked") == 0) {
        c->body = BODY_CHUNKED;
    } else if (length != NULL) {
        char *end;
        errno = 0;
        c->left = strtoull(length, &end, 10);
        if (errno != 0 || !isdigit((unsigned char)length[0]) || *end != '\0')
            return error_set(err, ERR_DATA, "%s: bad Content-Length in an HTTP reply",
                             c->stream.name);
        c->body = BODY_LENGTH;
    }
    c->done = (c->body == BODY_LENGTH && c->left == 0) || c->code == 204 || c->code == 304;
    return OK;
}

enum status http_call_open(const char *socket_path, const char *method, const char *target,
                           const char *extra_headers, const void *body, size_t body_len,
                           struct http_call **ret, struct error *err)
{
    struct http_call *c = xcalloc(1, sizeof *c);
    enum status st =
        socket_connect_unix(socket_path, clock_now_ns() + CONNECT_TIMEOUT_NS, &c->stream, err);
    if (st == OK)
        st = send_request(c, method, target, extra_headers, body, body_len, err);
    do { /* interim replies (100 Continue) are passed over */
        free(c->head);
        c->head = NULL;
        if (st == OK && c->at > 0) {
            memmove(c->in.data, c->in.data + c->at, c->in.len - c->at);
            c->in.len -= c->at;
            c->at = 0;
        }
        if (st == OK)
            st = read_head(c, err);
        if (st == OK)
            st = parse_head(c, err);
    } while (st == OK && c->code / 100 == 1);
    if (st != OK) {
        http_call_close(c);
        return st;
    }
    *ret = c;
    return OK;
}

int http_call_code(const struct http_call *c)
{
    return c->code;
}

static enum status cut_short(struct http_call *c, struct error *err)
{
    return error_set(err, ERR_RETRY, "%s: the reply was cut short", c->stream.name);
}

/* One line of the chunk framing, without its end; at most 255 bytes. */
static enum status chunk_line(struct http_call *c, char *line, size_t cap, struct error *err)
{
    size_t len = 0;
    for (;;) {
        size_t n = 1;
        if (c->at == c->in.len)
            TRY(fill(c, &n, err));
        if (n == 0)
            return cut_short(c, err);
        char ch = (char)c->in.data[c->at++];
        if (ch == '\n') {
            line[len > 0 && line[len - 1] == '\r' ? len - 1 : len] = '\0';
            return OK;
        }
        if (len + 1 >= cap)
            return error_set(err, ERR_DATA, "%s: malformed chunk in an HTTP reply", c->stream.name);
        line[len++] = ch;
    }
}

/* Sets left to the size of the next chunk, or done behind the last one. */
static enum status next_chunk(struct http_call *c, struct error *err)
{
    char line[256];
    if (c->in_chunk) {
        TRY(chunk_line(c, line, sizeof line, err));
        if (line[0] != '\0')
            return error_set(err, ERR_DATA, "%s: malformed chunk in an HTTP reply", c->stream.name);
    }
    TRY(chunk_line(c, line, sizeof line, err));
    char *end;
    errno = 0;
    c->left = strtoull(line, &end, 16);
    if (!isxdigit((unsigned char)line[0]) || errno != 0 || (*end != '\0' && *end != ';'))
        return error_set(err, ERR_DATA, "%s: malformed chunk in an HTTP reply", c->stream.name);
    c->in_chunk = true;
    while (c->left == 0 && line[0] != '\0') /* trailers up to the empty line */
        TRY(chunk_line(c, line, sizeof line, err));
    c->done = c->left == 0;
    return OK;
}

enum status http_call_read(struct http_call *c, void *data, size_t cap, size_t *ret_len,
                           struct error *err)
{
    *ret_len = 0;
    if (!c->done && c->body == BODY_CHUNKED && c->left == 0)
        TRY(next_chunk(c, err));
    if (c->done || cap == 0)
        return OK;
    if (c->at == c->in.len) {
        size_t got;
        TRY(fill(c, &got, err));
        if (got == 0 && c->body != BODY_TO_END)
            return cut_short(c, err);
        if (got == 0) {
            c->done = true;
            return OK;
        }
    }
    size_t n = MIN(cap, c->in.len - c->at);
    if (c->body != BODY_TO_END) {
        n = (size_t)MIN((uint64_t)n, c->left);
        c->left -= n;
        c->done = c->body == BODY_LENGTH && c->left == 0;
    }
    memcpy(data, c->in.data + c->at, n);
    c->at += n;
    *ret_len = n;
    return OK;
}

enum status http_call_read_all(struct http_call *c, size_t max_bytes, struct buf *ret,
                               struct error *err)
{
    for (;;) {
        size_t n;
        uint8_t *to = buf_reserve(ret, 64 * 1024);
        TRY(http_call_read(c, to, 64 * 1024, &n, err));
        if (n == 0)
            return OK;
        ret->len += n;
        if (ret->len > max_bytes)
            return error_set(err, ERR_DATA, "%s: the reply is larger than %zu bytes",
                             c->stream.name, max_bytes);
    }
}

void http_call_abort(struct http_call *c)
{
    stream_cancel(&c->stream);
}

void http_call_close(struct http_call *c)
{
    if (c == NULL)
        return;
    stream_close(&c->stream);
    buf_free(&c->in);
    free(c->head);
    free(c);
}

void url_encode(struct buf *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char ch = (unsigned char)text[i];
        if (isalnum(ch) || strchr("-._~", ch) != NULL)
            buf_put_u8(out, ch);
        else
            buf_printf(out, "%%%02X", ch);
    }
}
