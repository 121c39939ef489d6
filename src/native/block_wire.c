#include "native/block_wire.h"

#include <stdlib.h>

#define NAME_MAX_BYTES 65536u

enum stage { STAGE_START, STAGE_HEADER, STAGE_PAYLOAD, STAGE_DONE };

static void read_info(struct wire *w)
{
    for (unsigned i = 0; w->state == PARSE_DONE; i++) {
        uint64_t field = wire_varint(w);
        if (w->state != PARSE_DONE || field == 0)
            return;
        if (i >= 4)
            wire_bad(w, "a block's info repeats its fields");
        else if (field == 1)
            wire_u8(w); /* is_overflows */
        else if (field == 2)
            wire_i32(w); /* bucket_num */
        else
            wire_bad(w, "a block's info has the unknown field %llu", (unsigned long long)field);
    }
}

static void read_start(struct block_reader *r, struct wire *w)
{
    if (r->revision > 0)
        read_info(w);
    r->ncols = wire_varint(w);
    r->rows = wire_varint(w);
    if (r->ncols > BLOCK_COLUMNS_MAX)
        wire_bad(w, "a block has %llu columns", (unsigned long long)r->ncols);
    if (r->rows > BLOCK_ROWS_MAX)
        wire_bad(w, "a block has %llu rows", (unsigned long long)r->rows);
}

static const char *keep(struct block_reader *r, struct str s)
{
    char *copy = arena_alloc(&r->arena, s.len + 1);
    memcpy(copy, s.data, s.len);
    copy[s.len] = '\0';
    return copy;
}

static void read_header(struct block_reader *r, struct wire *w)
{
    struct str name = wire_str(w, NAME_MAX_BYTES, "a column's name");
    struct str type = wire_str(w, TYPE_NAME_MAX_BYTES, "a column's type");
    if (r->revision >= REVISION_CUSTOM_SERIALIZATION && wire_u8(w) != 0)
        wire_bad(w, "column %.*s comes in a sparse form, which is not supported",
                 (int)MIN(name.len, 200), name.data);
    if (w->state != PARSE_DONE)
        return;
    struct block_reader_column *col;
    if (r->done == r->cap) {
        r->cap = r->cap < 16 ? 16 : r->cap * 2;
        r->cols = xrealloc(r->cols, r->cap * sizeof *r->cols);
    }
    col = &r->cols[r->done];
    *col = (struct block_reader_column){.name = keep(r, name), .type_text = keep(r, type)};
    /* without rows the type is only text to us */
    struct error *err = r->rows > 0 ? w->err : NULL;
    if (type_name_parse(&r->arena, col->type_text, type.len, &col->type, err) != OK) {
        col->type = NULL;
        if (r->rows > 0)
            w->state = PARSE_BAD; /* err says why */
    }
}

static enum parse_result read_payload(struct block_reader *r, struct cursor *c, struct error *err)
{
    struct block_reader_column *col = &r->cols[r->done];
    col->data = c->pos;
    if (r->rows > 0) {
        enum status status = column_walk_resume(col->type, r->rows, c, &r->memo, err);
        if (status == ERR_RETRY)
            return PARSE_MORE;
        if (status != OK) {
            error_prefix(err, "column %s %s", col->name, col->type_text);
            return PARSE_BAD;
        }
    }
    col->data_len = c->pos - col->data;
    r->done++;
    return PARSE_DONE;
}

static enum parse_result read_stage(struct block_reader *r, struct cursor *c, struct error *err)
{
    if (r->stage == STAGE_PAYLOAD) {
        enum parse_result result = read_payload(r, c, err);
        if (result == PARSE_DONE)
            r->stage = r->done < r->ncols ? STAGE_HEADER : STAGE_DONE;
        return result;
    }
    struct wire w = wire_begin(c, err);
    if (r->stage == STAGE_START) {
        read_start(r, &w);
        if (wire_end(&w) == PARSE_DONE)
            r->stage = r->ncols > 0 ? STAGE_HEADER : STAGE_DONE;
        return w.state;
    }
    read_header(r, &w);
    if (wire_end(&w) == PARSE_DONE) {
        r->stage = STAGE_PAYLOAD;
        r->memo = (struct column_walk_memo){0};
    }
    return w.state;
}

enum parse_result block_reader_parse(struct block_reader *r, const uint8_t *data, size_t len,
                                     size_t *ret_len, struct error *err)
{
    /* column_walk needs an error to fill even where the caller wants none */
    struct error scratch;
    struct cursor c = cursor_of(data, len);
    c.pos = r->pos;
    if (err == NULL)
        err = &scratch;
    while (r->stage != STAGE_DONE) {
        enum parse_result result = read_stage(r, &c, err);
        if (result == PARSE_MORE && len > r->max_bytes) {
            error_set(err, ERR_DATA, "a block is longer than %zu bytes", r->max_bytes);
            return PARSE_BAD;
        }
        if (result != PARSE_DONE)
            return result;
        r->pos = c.pos;
    }
    if (r->pos > r->max_bytes) {
        error_set(err, ERR_DATA, "a block is longer than %zu bytes", r->max_bytes);
        return PARSE_BAD;
    }
    *ret_len = r->pos;
    return PARSE_DONE;
}

void block_reader_reset(struct block_reader *r)
{
    arena_reset(&r->arena);
    r->rows = r->ncols = 0;
    r->done = 0;
    r->stage = STAGE_START;
    r->pos = 0;
}

void block_reader_fini(struct block_reader *r)
{
    arena_free(&r->arena);
    free(r->cols);
    r->cols = NULL;
    r->cap = r->done = 0;
}

void block_wire_put_start(struct buf *out, uint64_t revision, uint64_t ncols, uint64_t rows)
{
    static const uint8_t info[] = {1, 0, 2, 0xff, 0xff, 0xff, 0xff, 0};
    if (revision > 0)
        buf_put(out, info, sizeof info);
    buf_put_varint(out, ncols);
    buf_put_varint(out, rows);
}

void block_wire_put_column(struct buf *out, uint64_t revision, struct str name, struct str type)
{
    buf_put_varint(out, name.len);
    buf_put(out, name.data, name.len);
    buf_put_varint(out, type.len);
    buf_put(out, type.data, type.len);
    if (revision >= REVISION_CUSTOM_SERIALIZATION)
        buf_put_u8(out, 0);
}
