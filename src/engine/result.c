#include "engine/result.h"

#include "native/block_wire.h"

#include <stdlib.h>

#define RESULT_BLOCK_MAX ((size_t)2 << 30)
#define RESULT_COLUMNS_MAX 65536u

/* A result under way. */
struct result {
    const struct engine_result_options *options;
    struct engine_peer *peer;
    struct block_reader reader;
    bool header_sent;
    uint64_t rows, blocks, bytes;
};

/* Appends a piece of a block as it is, or through frames. */
static void block_piece_put(const struct engine_result_options *o, struct frame_writer *frames,
                            struct buf *out, const void *data, size_t len)
{
    if (o->compressed)
        frame_writer_put(frames, data, len);
    else
        buf_put(out, data, len);
}

void engine_result_put_header(struct buf *out, const struct engine_result_options *o,
                              const struct str *names, const struct str *types, size_t n)
{
    CLEANUP_BUF struct buf block = {0};
    block_wire_put_start(&block, o->revision, n, 0);
    for (size_t i = 0; i < n; i++)
        block_wire_put_column(&block, o->revision, names[i], types[i]);
    packet_put_server_data(out, SERVER_DATA, str_of(""));
    if (o->compressed)
        frame_put(o->method, block.data, block.len, out);
    else
        buf_put(out, block.data, block.len);
}

/* Sends the block that the reader has found at data, in pieces that do not pile up in memory. */
static enum status block_send(struct result *r, const uint8_t *data, struct error *err)
{
    const struct engine_result_options *o = r->options;
    struct buf *out = &r->peer->out;
    struct frame_writer frames = {.method = o->method, .out = out};
    CLEANUP_BUF struct buf head = {0};
    enum status status = OK;
    packet_put_server_data(out, SERVER_DATA, str_of(""));
    block_wire_put_start(&head, o->revision, r->reader.ncols, r->reader.rows);
    for (uint64_t i = 0; i < r->reader.ncols && status == OK; i++) {
        const struct block_reader_column *c = &r->reader.cols[i];
        block_wire_put_column(&head, o->revision, str_of(c->name), str_of(c->type_text));
        block_piece_put(o, &frames, out, head.data, head.len);
        buf_reset(&head);
        for (size_t at = 0; at < c->data_len && status == OK; at += ENGINE_FLUSH_BYTES) {
            block_piece_put(o, &frames, out, data + c->data + at,
                            MIN(c->data_len - at, ENGINE_FLUSH_BYTES));
            status = engine_peer_flush_some(r->peer, err);
        }
    }
    if (status == OK && o->compressed)
        frame_writer_flush(&frames);
    frame_writer_fini(&frames);
    return status;
}

static void header_send(struct result *r)
{
    struct str *names = xcalloc(r->reader.ncols + 1, sizeof *names);
    struct str *types = xcalloc(r->reader.ncols + 1, sizeof *types);
    for (uint64_t i = 0; i < r->reader.ncols; i++) {
        names[i] = str_of(r->reader.cols[i].name);
        types[i] = str_of(r->reader.cols[i].type_text);
    }
    engine_result_put_header(&r->peer->out, r->options, names, types, r->reader.ncols);
    free(names);
    free(types);
    r->header_sent = true;
}

/* Sends all blocks of a chunk. */
static enum status chunk_send(struct result *r, const struct chdb_answer *a, struct error *err)
{
    for (size_t at = 0; at < a->len;) {
        size_t len = 0;
        block_reader_reset(&r->reader);
        enum parse_result p = block_reader_parse(&r->reader, a->data + at, a->len - at, &len, err);
        if (p != PARSE_DONE) {
            if (p == PARSE_MORE)
                error_set(err, ERR_DATA, "the engine's block ends early");
            error_prefix(err,
                         "a result cannot be sent over the native protocol; cast the column with "
                         "toString(), or use HTTP");
            if (err != NULL)
                err->ch_code = 48; /* NOT_IMPLEMENTED */
            return ERR_DATA;
        }
        if (!r->header_sent)
            header_send(r);
        if (r->reader.rows > 0)
            TRY(block_send(r, a->data + at, err));
        r->rows += r->reader.rows;
        r->blocks++;
        r->bytes += len;
        at += len;
    }
    return engine_peer_flush_some(r->peer, err);
}

/* libchdb gives no bytes at all for a result without rows: its columns are asked for in a format
 * that names them first (RowBinaryWithNamesAndTypes: count, names, types). */
static enum status header_ask(struct result *r, struct chdb_session *session, struct str sql,
                              struct error *err)
{
    struct chdb_answer a = {0};
    TRY(chdb_session_run(session, sql.data, sql.len, "RowBinaryWithNamesAndTypes", &a, err));
    struct cursor in = cursor_of(a.data, a.len);
    struct wire w = wire_begin(&in, err);
    uint64_t n = a.len > 0 ? wire_varint(&w) : 0;
    if (n > RESULT_COLUMNS_MAX)
        wire_bad(&w, "a result has %llu columns", (unsigned long long)n);
    size_t slots = w.state == PARSE_DONE ? (size_t)n : 0;
    struct str *names = xcalloc(slots + 1, sizeof *names),
               *types = xcalloc(slots + 1, sizeof *types);
    for (size_t i = 0; i < slots; i++)
        names[i] = wire_str(&w, a.len, "a column's name");
    for (size_t i = 0; i < slots; i++)
        types[i] = wire_str(&w, a.len, "a column's type");
    if (w.state == PARSE_DONE && n > 0)
        engine_result_put_header(&r->peer->out, r->options, names, types, slots);
    free(names);
    free(types);
    chdb_answer_free(&a);
    r->header_sent = n > 0;
    return w.state == PARSE_DONE ? OK : error_set(err, ERR_DATA, "the engine's header ends early");
}

static enum status stream_send(struct result *r, struct chdb_reader *reader,
                               bool (*stop)(void *ctx), void *stop_ctx, struct error *err)
{
    for (;;) {
        struct chdb_answer a = {0};
        if (stop != NULL && stop(stop_ctx))
            return OK;
        TRY(chdb_reader_next(reader, &a, err));
        bool end = a.len == 0;
        enum status status = end ? OK : chunk_send(r, &a, err);
        chdb_answer_free(&a);
        if (status != OK || end)
            return status;
    }
}

static enum status statement_send(struct result *r, struct chdb_session *session, struct str sql,
                                  bool reading, bool (*stop)(void *ctx), void *stop_ctx,
                                  struct error *err)
{
    struct chdb_reader *reader = NULL;
    struct chdb_answer a = {0};
    if (reading)
        TRY(chdb_reader_open(session, sql.data, sql.len, "Native", &reader, err));
    if (reader != NULL) {
        enum status status = stream_send(r, reader, stop, stop_ctx, err);
        chdb_reader_close(reader);
        TRY(status);
    } else {
        TRY(chdb_session_run(session, sql.data, sql.len, "Native", &a, err));
        enum status status = chunk_send(r, &a, err);
        chdb_answer_free(&a);
        TRY(status);
    }
    if (!r->header_sent && reading && !(stop != NULL && stop(stop_ctx)))
        TRY(header_ask(r, session, sql, err));
    return OK;
}

enum status engine_result_send(struct chdb_session *session, struct str sql, bool reading,
                               const struct engine_result_options *options,
                               struct engine_peer *peer, bool (*stop)(void *ctx), void *stop_ctx,
                               struct error *err)
{
    struct result r = {.options = options, .peer = peer};
    r.reader.max_bytes = RESULT_BLOCK_MAX;
    enum status status = statement_send(&r, session, sql, reading, stop, stop_ctx, err);
    block_reader_fini(&r.reader);
    TRY(status);
    if (!r.header_sent)
        return OK;
    /* calculated: old clients would calculate it themselves, from what they do not have */
    struct packet_profile_info info = {
        .rows = r.rows, .blocks = r.blocks, .bytes = r.bytes, .calculated = true};
    struct packet_progress progress = {.rows = r.rows, .bytes = r.bytes};
    packet_put_profile_info(&peer->out, &info);
    packet_put_progress(&peer->out, options->revision, &progress);
    engine_result_put_header(&peer->out, options, NULL, NULL, 0);
    return OK;
}
