#include "clickhouse/connection.h"
#include "base/queue.h"
#include "clickhouse/error_class.h"

#include <stdio.h>
#include <unistd.h>

#define READ_BYTES ((size_t)256 << 10)
#define LAST_WORDS_MS 1000u /* how long the reason of a broken write is waited for */

enum status connection_break(struct ch_client *c, enum status status)
{
    if (status != OK)
        c->broken = true;
    return status;
}

static uint64_t deadline(unsigned ms)
{
    return clock_now_ns() + ms * UINT64_C(1000000);
}

/* Reads once more behind what is there; may move it. */
static enum status fill(struct ch_client *c, uint64_t deadline_ns, struct error *err)
{
    size_t got;
    if (c->in_pos > 0) {
        c->in.len -= c->in_pos;
        memmove(c->in.data, c->in.data + c->in_pos, c->in.len);
        c->in_pos = 0;
    }
    uint8_t *at = buf_reserve(&c->in, READ_BYTES);
    TRY(connection_break(c, stream_read(&c->stream, at, READ_BYTES, deadline_ns, &got, err)));
    if (got == 0)
        return connection_break(
            c, error_set(err, ERR_RETRY, "%s: the server closed the connection", c->stream.name));
    c->in.len += got;
    c->used_ns = clock_now_ns();
    return OK;
}

static enum status exception(struct ch_client *c, const struct packet_exception *e,
                             struct error *err)
{
    char text[480];
    snprintf(text, sizeof text, "%.*s", (int)MIN(e->message.len, sizeof text - 1), e->message.data);
    enum status kind = ERR_RETRY;
    switch (ch_error_classify(e->code, text)) {
    case CH_ERROR_SCHEMA:
    case CH_ERROR_DATA:
        kind = ERR_DATA;
        break;
    case CH_ERROR_CONFIGURATION:
        kind = ERR_CONFIG;
        break;
    case CH_ERROR_RETRY:
    case CH_ERROR_RECONNECT_ONCE:
    case CH_ERROR_UNKNOWN:
        break;
    }
    error_set(err, kind, "%s: code %d: %s", c->stream.name, e->code, text);
    if (err != NULL)
        err->ch_code = e->code;
    /* old servers leave the block behind the statement unread after a syntax error, and take it for
     * the next packet (seen with 18.16); newer ones skip it */
    if (c->server.revision < REVISION_SETTINGS_AS_STRINGS)
        c->broken = true;
    return kind;
}

static bool has_block(enum server_packet_type type)
{
    return type == SERVER_DATA || type == SERVER_TOTALS || type == SERVER_EXTREMES ||
           type == SERVER_LOG || type == SERVER_PROFILE_EVENTS;
}

static bool block_is_compressed(const struct ch_client *c)
{
    return c->compression != CH_COMPRESSION_NONE && c->packet.type != SERVER_LOG &&
           c->packet.type != SERVER_PROFILE_EVENTS;
}

/* What has arrived and is not taken; NULL where nothing ever did. */
static const uint8_t *in_rest(const struct ch_client *c)
{
    return c->in.data == NULL ? NULL : c->in.data + c->in_pos;
}

/* Decompresses what has arrived until the block is whole. */
static enum parse_result try_compressed_block(struct ch_client *c, struct error *err)
{
    for (;;) {
        size_t len;
        struct cursor in = cursor_of(in_rest(c), c->in.len - c->in_pos);
        enum parse_result result = frame_parse(&in, CONNECTION_BLOCK_MAX, &c->plain, NULL, err);
        if (result != PARSE_DONE)
            return result;
        c->in_pos += in.pos;
        result = block_reader_parse(&c->block, c->plain.data, c->plain.len, &len, err);
        if (result == PARSE_MORE)
            continue;
        if (result == PARSE_DONE && len != c->plain.len) {
            error_set(err, ERR_DATA, "%zu bytes follow a block in its frames", c->plain.len - len);
            return PARSE_BAD;
        }
        c->block_data = c->plain.data;
        return result;
    }
}

static enum parse_result try_block(struct ch_client *c, struct error *err)
{
    size_t len;
    if (block_is_compressed(c))
        return try_compressed_block(c, err);
    const uint8_t *data = in_rest(c);
    enum parse_result result =
        block_reader_parse(&c->block, data, c->in.len - c->in_pos, &len, err);
    if (result == PARSE_DONE) {
        c->block_data = data;
        c->in_pos += len;
    }
    return result;
}

/* One whole packet from what has arrived. */
static enum parse_result try_packet(struct ch_client *c, struct error *err)
{
    if (!c->in_block) {
        struct cursor in = cursor_of(in_rest(c), c->in.len - c->in_pos);
        enum parse_result result = packet_server_parse(&in, c->server.revision, &c->packet, err);
        if (result != PARSE_DONE)
            return result;
        c->in_pos += in.pos;
        if (!has_block(c->packet.type))
            return PARSE_DONE;
        c->in_block = true;
        block_reader_reset(&c->block);
        buf_reset(&c->plain);
    }
    enum parse_result result = try_block(c, err);
    if (result == PARSE_DONE)
        c->in_block = false;
    return result;
}

enum status connection_try_next(struct ch_client *c, bool *ret_got,
                                enum server_packet_type *ret_type, struct error *err)
{
    struct error scratch;
    if (err == NULL)
        err = &scratch;
    *ret_got = false;
    for (;;) {
        switch (try_packet(c, err)) {
        case PARSE_MORE:
            return OK;
        case PARSE_BAD:
            error_prefix(err, "%s", c->stream.name);
            return connection_break(c, ERR_DATA);
        case PARSE_DONE:
            break;
        }
        switch (c->packet.type) {
        case SERVER_EXCEPTION:
            return exception(c, &c->packet.exception, err);
        case SERVER_HELLO:
        case SERVER_DATA:
        case SERVER_PONG:
        case SERVER_END_OF_STREAM:
        case SERVER_TOTALS:
        case SERVER_EXTREMES:
            *ret_got = true;
            *ret_type = c->packet.type;
            return OK;
        case SERVER_PROGRESS:
        case SERVER_PROFILE_INFO:
        case SERVER_TABLES_STATUS:
        case SERVER_LOG:
        case SERVER_TABLE_COLUMNS:
        case SERVER_PROFILE_EVENTS:
        case SERVER_TIMEZONE_UPDATE:
            break; /* nobody here asks for these */
        }
    }
}

enum status connection_next(struct ch_client *c, enum server_packet_type *ret_type,
                            struct error *err)
{
    for (;;) {
        bool got;
        TRY(connection_try_next(c, &got, ret_type, err));
        if (got)
            return OK;
        TRY(fill(c, deadline(c->receive_ms), err));
    }
}

/* Reads what is there and looks for an exception; other packets are out of order while we send. */
static enum status read_aside(struct ch_client *c, uint64_t deadline_ns, struct error *err)
{
    bool got;
    enum server_packet_type type = SERVER_DATA;
    TRY(fill(c, deadline_ns, err));
    TRY(connection_try_next(c, &got, &type, err));
    if (got)
        return connection_break(c,
                                error_set(err, ERR_DATA, "%s: packet %d while data is being sent",
                                          c->stream.name, (int)type));
    return OK;
}

/* The write failed: if the server said why before it hung up, that is the error. */
static enum status last_words(struct ch_client *c, enum status failure, struct error *err)
{
    struct error why = {0};
    uint64_t until = deadline(LAST_WORDS_MS);
    c->broken = true;
    if (failure == ERR_CANCELLED)
        return failure;
    while (read_aside(c, until, &why) == OK)
        continue;
    if (why.ch_code != 0 && err != NULL)
        *err = why;
    return why.ch_code != 0 ? why.kind : failure;
}

static void advance(struct iovec **iov, int *n, size_t written)
{
    while (*n > 0 && written >= (*iov)->iov_len) {
        written -= (*iov)->iov_len;
        (*iov)++;
        (*n)--;
    }
    if (*n > 0) {
        (*iov)->iov_base = (char *)(*iov)->iov_base + written;
        (*iov)->iov_len -= written;
    }
}

enum status connection_send(struct ch_client *c, struct iovec *iov, int n, struct error *err)
{
    advance(&iov, &n, 0); /* drops empty ones */
    while (n > 0) {
        size_t written;
        bool readable;
        uint64_t until = deadline(c->send_ms); /* from the last progress on */
        enum status status = stream_writev_step(&c->stream, iov, MIN(n, 1024), true, until,
                                                &written, &readable, err);
        if (status != OK)
            return last_words(c, status, err);
        if (written > 0)
            c->used_ns = clock_now_ns();
        advance(&iov, &n, written);
        if (readable)
            TRY(connection_break(c, read_aside(c, until, err)));
    }
    return OK;
}

enum status connection_send_out(struct ch_client *c, struct error *err)
{
    struct iovec iov = {c->out.data, c->out.len};
    TRY(connection_send(c, &iov, 1, err));
    buf_reset(&c->out);
    return OK;
}

enum frame_method connection_frame_method(const struct ch_client *c)
{
    return c->compression == CH_COMPRESSION_ZSTD ? FRAME_ZSTD : FRAME_LZ4;
}

void connection_put_empty_block(struct ch_client *c)
{
    packet_put_client_data(&c->out, CLIENT_DATA, str_of(""));
    if (c->compression == CH_COMPRESSION_NONE) {
        block_wire_put_start(&c->out, c->server.revision, 0, 0);
        return;
    }
    CLEANUP_BUF struct buf plain = {0};
    block_wire_put_start(&plain, c->server.revision, 0, 0);
    frame_put(connection_frame_method(c), plain.data, plain.len, &c->out);
}

enum status connection_send_query(struct ch_client *c, const char *sql,
                                  const struct ch_setting *settings, size_t n, struct error *err)
{
    char hostname[256] = "";
    if (c->broken)
        return error_set(err, ERR_RETRY, "%s: the connection is broken", c->stream.name);
    /* between statements a server says nothing: what is there is its farewell */
    if (c->in.len > c->in_pos || stream_is_readable(&c->stream)) {
        TRY(connection_break(c, read_aside(c, deadline(LAST_WORDS_MS), err)));
    }
    gethostname(hostname, sizeof hostname - 1);
    CLEANUP_FREE struct packet_setting *items = xcalloc(n, sizeof *items);
    for (size_t i = 0; i < n; i++)
        items[i] = (struct packet_setting){str_of(settings[i].name), str_of(settings[i].value), 0};
    struct packet_query query = {
        .info = {.query_kind = 1,
                 .interface = 1,
                 .hostname = str_of(hostname),
                 .name = str_of("walshadow"),
                 .revision = PACKET_REVISION},
        .settings = {items, n},
        .stage = 2,
        .compression = c->compression != CH_COMPRESSION_NONE,
        .sql = str_of(sql),
    };
    buf_reset(&c->out);
    packet_put_query(&c->out, c->server.revision, &query);
    connection_put_empty_block(c);
    return connection_send_out(c, err);
}
