/* Sends blocks. Uncompressed, a block is a list of pieces: headers in one small buffer, payloads
 * where the workers built them; the socket gathers them. Compressed, the pieces fill frames of 1
 * MiB. */
#include "clickhouse/connection.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define FLUSH_BYTES ((size_t)1 << 20)

struct insert {
    struct ch_client *c;
    const struct block_header *header;
    struct arena arena;             /* of the types */
    const struct type_node **types; /* of header's columns */
    struct iovec *iov;              /* a block's pieces: 3 a column and 1 */
    int niov;
    struct buf heads;           /* their headers; its memory does not move while iov points to it */
    struct frame_writer frames; /* writes to c->out */
};

static enum status parse_types(struct insert *in, struct error *err)
{
    const struct block_header *h = in->header;
    in->types = arena_alloc(&in->arena, h->ncols * sizeof *in->types);
    for (unsigned i = 0; i < h->ncols; i++) {
        const char *type = h->cols[i].type;
        if (type_name_parse(&in->arena, type, strlen(type), &in->types[i], err) != OK)
            return error_set(err, ERR_BUG, "column %s has the type %.200s", h->cols[i].name, type);
    }
    return OK;
}

/* The code is the one a server that looked itself would give: all are of the class "schema". */
static enum status mismatch(struct error *err, int code, const char *fmt, ...) PRINTF(3, 4);
static enum status mismatch(struct error *err, int code, const char *fmt, ...)
{
    char text[500];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    error_set(err, ERR_DATA, "%s", text);
    err->ch_code = code;
    return ERR_DATA;
}

/* The reader of a server matches columns by name and takes wrong types in silence, so the
 * difference must be found here (clickhouse-notes 7). */
static enum status compare_sample(const struct insert *in, struct error *err)
{
    const struct block_header *h = in->header;
    const struct block_reader *sample = &in->c->block;
    if (sample->ncols != h->ncols)
        return mismatch(err, 20, "the table takes %u columns, the rows have %u",
                        (unsigned)sample->ncols, h->ncols);
    for (unsigned i = 0; i < h->ncols; i++) {
        const struct block_reader_column *col = &sample->cols[i];
        if (strcmp(col->name, h->cols[i].name) != 0)
            return mismatch(err, 16, "column %u of the table is %.100s, of the rows %.100s", i + 1,
                            col->name, h->cols[i].name);
        if (col->type == NULL || !type_name_accepts(col->type, in->types[i]))
            return mismatch(err, 53, "column %.100s has the type %.150s, the rows have %.150s",
                            col->name, col->type_text, h->cols[i].type);
    }
    return OK;
}

static enum status await_sample(struct insert *in, struct error *err)
{
    enum server_packet_type type;
    TRY(connection_next(in->c, &type, err));
    if (type != SERVER_DATA)
        return connection_break(in->c, error_set(err, ERR_DATA,
                                                 "%s: packet %d where a table's columns were due",
                                                 in->c->stream.name, (int)type));
    return connection_break(in->c, compare_sample(in, err));
}

static void add_piece(struct insert *in, void *data, size_t len)
{
    if (len > 0)
        in->iov[in->niov++] = (struct iovec){data, len};
}

/* Room for all headers of a block, so that the buffer does not move while pieces point into it. */
static void reserve_heads(struct insert *in)
{
    const struct block_header *h = in->header;
    size_t need = 64;
    for (unsigned i = 0; i < h->ncols; i++) {
        /* state prefixes: 8 bytes each, no more of them than the type text has characters */
        size_t type = strlen(h->cols[i].type);
        need += strlen(h->cols[i].name) + type + 32 + 8 * type;
    }
    buf_reserve(&in->heads, need);
}

static void collect_pieces(struct insert *in, const struct block *b)
{
    const struct block_header *h = in->header;
    uint64_t revision = in->c->server.revision;
    size_t from = 0;
    in->niov = 0;
    buf_reset(&in->heads);
    reserve_heads(in);
    const uint8_t *fixed = in->heads.data;
    block_wire_put_start(&in->heads, revision, b->ncols, b->rows);
    for (unsigned i = 0; i < b->ncols; i++) {
        const struct column_buf *col = &b->cols[i];
        block_wire_put_column(&in->heads, revision, str_of(h->cols[i].name),
                              str_of(h->cols[i].type));
        column_prefix_put(in->types[i], &in->heads);
        add_piece(in, in->heads.data + from, in->heads.len - from);
        from = in->heads.len;
        add_piece(in, col->nulls.data, col->nulls.len);
        add_piece(in, col->data.data, col->data.len);
    }
    CHECK(in->heads.data == fixed);
}

static enum status send_compressed(struct insert *in, struct error *err)
{
    for (int i = 0; i < in->niov; i++) {
        uint8_t *at = in->iov[i].iov_base;
        size_t left = in->iov[i].iov_len;
        while (left > 0) { /* a large column goes out as it is compressed, not after all of it is */
            size_t n = MIN(left, FLUSH_BYTES);
            frame_writer_put(&in->frames, at, n);
            at += n;
            left -= n;
            if (in->c->out.len >= FLUSH_BYTES)
                TRY(connection_send_out(in->c, err));
        }
    }
    frame_writer_flush(&in->frames);
    return OK;
}

static enum status send_block(struct insert *in, const struct block *b, struct error *err)
{
    CHECK(b->ncols == in->header->ncols);
    packet_put_client_data(&in->c->out, CLIENT_DATA, str_of(""));
    collect_pieces(in, b);
    if (in->c->compression != CH_COMPRESSION_NONE)
        return send_compressed(in, err);
    TRY(connection_send_out(in->c, err));
    return connection_send(in->c, in->iov, in->niov, err);
}

static enum status send_all(struct insert *in, struct block *const *blocks, size_t n,
                            struct error *err)
{
    enum server_packet_type type;
    buf_reset(&in->c->out);
    for (size_t i = 0; i < n; i++)
        if (blocks[i]->rows > 0)
            TRY(send_block(in, blocks[i], err));
    connection_put_empty_block(in->c);
    TRY(connection_send_out(in->c, err));
    do
        TRY(connection_next(in->c, &type, err));
    while (type == SERVER_DATA);
    if (type != SERVER_END_OF_STREAM)
        return error_set(err, ERR_DATA, "%s: packet %d at the end of an INSERT", in->c->stream.name,
                         (int)type);
    return OK;
}

static enum status run(struct insert *in, const char *sql, struct block *const *blocks,
                       size_t nblocks, const struct ch_setting *settings, size_t n,
                       struct error *err)
{
    TRY(parse_types(in, err));
    TRY(connection_send_query(in->c, sql, settings, n, err));
    TRY(await_sample(in, err));
    /* a server that failed in the middle may still read our data as packets: never go on with it */
    return connection_break(in->c, send_all(in, blocks, nblocks, err));
}

enum status ch_client_insert(struct ch_client *c, const char *sql,
                             const struct block_header *header, struct block *const *blocks,
                             size_t nblocks, const struct ch_setting *settings, size_t n,
                             struct error *err)
{
    struct error scratch;
    struct insert in = {.c = c, .header = header};
    in.iov = xcalloc((size_t)header->ncols * 3 + 1, sizeof *in.iov);
    in.frames = (struct frame_writer){.method = connection_frame_method(c), .out = &c->out};
    enum status status = run(&in, sql, blocks, nblocks, settings, n, err != NULL ? err : &scratch);
    frame_writer_fini(&in.frames);
    buf_free(&in.heads);
    free(in.iov);
    arena_free(&in.arena);
    return status;
}
