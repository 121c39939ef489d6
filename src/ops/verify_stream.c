#include "ops/verify_stream.h"

#include "ops/http_client.h"

#include <stdlib.h>
#include <string.h>

#define PIECE 65536
#define LINE_MAX_BYTES (UINT64_C(3) << 30) /* a 1 GB value, escaped */

struct verify_stream {
    size_t nfields;
    struct verify_row row;
    bool done;
    PGconn *conn;           /* source, or NULL */
    struct http_call *call; /* engine, or NULL */
    struct buf in;          /* bytes of the engine; the line begins at `at` */
    size_t at;
};

/* PostgreSQL: src/backend/commands/copyto.c, CopyAttributeOutText. ClickHouse: TabSeparated escapes
 * the same, and NUL and the apostrophe besides. */
static char unescape(char c)
{
    switch (c) {
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'v':
        return '\v';
    case '0':
        return '\0';
    default:
        return c;
    }
}

enum status verify_row_parse(struct verify_row *row, const char *line, size_t len, size_t nfields,
                             struct error *err)
{
    const char *end = line + len;
    if (row->fields == NULL)
        row->fields = xcalloc(nfields, sizeof *row->fields);
    row->nfields = 0;
    buf_reset(&row->text);
    buf_reserve(&row->text, len + nfields + 1); /* unescaping never grows */
    for (const char *at = line;; at++) {
        if (row->nfields == nfields)
            return error_set(err, ERR_DATA, "a row has more than %zu fields", nfields);
        struct verify_field *f = &row->fields[row->nfields++];
        f->at = row->text.len;
        f->null =
            end - at >= 2 && at[0] == '\\' && at[1] == 'N' && (at + 2 == end || at[2] == '\t');
        for (; at < end && *at != '\t'; at++) {
            char c = *at;
            if (c == '\\' && at + 1 < end)
                c = unescape(*++at);
            if (!f->null)
                row->text.data[row->text.len++] = (uint8_t)c;
        }
        f->len = row->text.len - f->at;
        row->text.data[row->text.len++] = 0;
        if (at == end)
            break;
    }
    if (row->nfields != nfields)
        return error_set(err, ERR_DATA, "a row has %zu fields, not %zu: %.100s", row->nfields,
                         nfields, (const char *)row->text.data);
    return OK;
}

void verify_row_copy(const struct verify_row *from, struct verify_row *ret)
{
    *ret = (struct verify_row){.nfields = from->nfields};
    buf_put(&ret->text, from->text.data, from->text.len);
    ret->fields = xcalloc(from->nfields, sizeof *ret->fields);
    memcpy(ret->fields, from->fields, from->nfields * sizeof *ret->fields);
}

void verify_row_fini(struct verify_row *row)
{
    buf_free(&row->text);
    free(row->fields);
    *row = (struct verify_row){0};
}

bool verify_field_equal(const struct verify_row *a, size_t i, const struct verify_row *b, size_t j)
{
    const struct verify_field *x = &a->fields[i], *y = &b->fields[j];
    if (x->null || y->null)
        return x->null == y->null;
    return x->len == y->len && memcmp(a->text.data + x->at, b->text.data + y->at, x->len) == 0;
}

enum status verify_stream_open_source(PGconn *conn, const char *copy_sql, size_t nfields,
                                      struct verify_stream **ret, struct error *err)
{
    PGresult *r = PQexec(conn, copy_sql);
    if (PQresultStatus(r) != PGRES_COPY_OUT) {
        enum status st = error_set(err, PQstatus(conn) == CONNECTION_OK ? ERR_CONFIG : ERR_RETRY,
                                   "source: %s", PQerrorMessage(conn));
        PQclear(r);
        return st;
    }
    PQclear(r);
    struct verify_stream *s = xcalloc(1, sizeof *s);
    s->conn = conn;
    s->nfields = nfields;
    *ret = s;
    return OK;
}

enum status verify_stream_open_engine(const char *socket_path, const char *sql, size_t nfields,
                                      unsigned block_rows, struct verify_stream **ret,
                                      struct error *err)
{
    struct http_call *call;
    char target[64] = "/?final=1";
    if (block_rows > 0)
        snprintf(target, sizeof target, "/?final=1&max_threads=1&max_block_size=%u", block_rows);
    TRY(http_call_open(socket_path, "POST", target, NULL, sql, strlen(sql), &call, err));
    if (http_call_code(call) != 200) {
        CLEANUP_BUF struct buf text = {0};
        enum status st = http_call_read_all(call, 1 << 20, &text, err);
        if (st == OK)
            st = error_set(err, ERR_CONFIG, "destination: %.*s", (int)MIN(text.len, (size_t)400),
                           text.len > 0 ? (const char *)text.data : "no reason given");
        http_call_close(call);
        return st;
    }
    struct verify_stream *s = xcalloc(1, sizeof *s);
    s->call = call;
    s->nfields = nfields;
    *ret = s;
    return OK;
}

static enum status next_source(struct verify_stream *s, const struct verify_row **ret_row,
                               struct error *err)
{
    char *line = NULL;
    int n = PQgetCopyData(s->conn, &line, 0);
    if (n > 0) {
        enum status st =
            verify_row_parse(&s->row, line, (size_t)n - (line[n - 1] == '\n'), s->nfields, err);
        PQfreemem(line);
        *ret_row = &s->row;
        return st;
    }
    s->done = true;
    PGresult *r = PQgetResult(s->conn);
    enum status st = OK;
    if (n == -2 || PQresultStatus(r) != PGRES_COMMAND_OK)
        st = error_set(err, ERR_RETRY, "source: %s", PQerrorMessage(s->conn));
    while (r != NULL) {
        PQclear(r);
        r = PQgetResult(s->conn);
    }
    return st;
}

static enum status next_engine(struct verify_stream *s, const struct verify_row **ret_row,
                               struct error *err)
{
    size_t searched = s->at;
    for (;;) {
        const uint8_t *newline =
            s->in.len > searched ? memchr(s->in.data + searched, '\n', s->in.len - searched) : NULL;
        if (newline != NULL) {
            const char *line = (const char *)s->in.data + s->at;
            size_t len = (size_t)(newline - s->in.data) - s->at;
            s->at += len + 1;
            *ret_row = &s->row;
            return verify_row_parse(&s->row, line, len, s->nfields, err);
        }
        if (s->in.len - s->at > LINE_MAX_BYTES)
            return error_set(err, ERR_DATA, "destination: a row that does not end");
        if (s->at > 0)
            memmove(s->in.data, s->in.data + s->at, s->in.len - s->at);
        s->in.len -= s->at;
        s->at = 0;
        searched = s->in.len;
        size_t n;
        uint8_t *to = buf_reserve(&s->in, PIECE);
        TRY(http_call_read(s->call, to, PIECE, &n, err));
        s->in.len += n;
        if (n == 0) {
            s->done = true;
            return s->in.len == 0
                       ? OK
                       : error_set(err, ERR_RETRY, "destination: the result was cut short");
        }
    }
}

enum status verify_stream_next(struct verify_stream *s, const struct verify_row **ret_row,
                               struct error *err)
{
    *ret_row = NULL;
    if (s->done)
        return OK;
    return s->conn != NULL ? next_source(s, ret_row, err) : next_engine(s, ret_row, err);
}

void verify_stream_close(struct verify_stream *s)
{
    if (s == NULL)
        return;
    if (s->conn != NULL && !s->done) {
        char ignored[256];
        PGcancel *cancel = PQgetCancel(s->conn);
        if (cancel != NULL)
            (void)PQcancel(cancel, ignored, sizeof ignored);
        PQfreeCancel(cancel);
        char *line = NULL;
        while (PQgetCopyData(s->conn, &line, 0) > 0)
            PQfreemem(line);
        for (PGresult *r = PQgetResult(s->conn); r != NULL; r = PQgetResult(s->conn))
            PQclear(r);
    }
    http_call_close(s->call);
    verify_row_fini(&s->row);
    buf_free(&s->in);
    free(s);
}
