#include "clickhouse/connection.h"

struct rows {
    struct arena arena; /* texts of one block */
    ch_row_fn fn;
    void *ctx;
};

static enum status read_column(struct ch_client *c, const struct block_reader_column *col,
                               struct arena *arena, struct column_text *ret, struct error *err)
{
    struct cursor in = cursor_of(c->block_data + col->data, col->data_len);
    enum status status = column_text_read(col->type, c->block.rows, &in, arena, ret, err);
    if (status == OK && cursor_left(&in) == 0)
        return OK;
    if (status != OK)
        error_prefix(err, "column %s %.200s", col->name, col->type_text);
    else
        error_set(err, ERR_DATA, "column %s %.200s: bytes are left", col->name, col->type_text);
    return ERR_DATA;
}

static enum status deliver_block(struct ch_client *c, struct rows *rows, struct error *err)
{
    size_t ncols = c->block.ncols, n = c->block.rows;
    struct column_text *texts = arena_alloc(&rows->arena, ncols * n * sizeof *texts);
    const char **fields = arena_alloc(&rows->arena, ncols * sizeof *fields);
    size_t *lengths = arena_alloc(&rows->arena, ncols * sizeof *lengths);
    for (size_t i = 0; i < ncols; i++)
        TRY(read_column(c, &c->block.cols[i], &rows->arena, texts + i * n, err));
    for (size_t row = 0; row < n; row++) {
        for (size_t i = 0; i < ncols; i++) {
            fields[i] = texts[i * n + row].data;
            lengths[i] = texts[i * n + row].len;
        }
        TRY(rows->fn(rows->ctx, fields, lengths, (unsigned)ncols, err));
    }
    arena_reset(&rows->arena);
    return OK;
}

static enum status read_rows(struct ch_client *c, struct rows *rows, struct error *err)
{
    for (;;) {
        enum server_packet_type type;
        TRY(connection_next(c, &type, err));
        if (type == SERVER_END_OF_STREAM)
            return OK;
        if (type == SERVER_DATA && c->block.rows > 0 && c->block.ncols > 0)
            TRY(connection_break(c, deliver_block(c, rows, err)));
        else if (type == SERVER_PONG || type == SERVER_HELLO)
            return connection_break(c, error_set(err, ERR_DATA, "%s: packet %d in a result",
                                                 c->stream.name, (int)type));
    }
}

enum status ch_client_select(struct ch_client *c, const char *sql,
                             const struct ch_setting *settings, size_t n, ch_row_fn fn, void *ctx,
                             struct error *err)
{
    struct error scratch;
    struct rows rows = {.fn = fn, .ctx = ctx};
    if (err == NULL)
        err = &scratch;
    TRY(connection_send_query(c, sql, settings, n, err));
    enum status status = read_rows(c, &rows, err);
    arena_free(&rows.arena);
    return status;
}
