#include "load/copy_chunks.h"

#include "load/copy_value.h"

#include <stdlib.h>

#define BATCH 64u
#define FIELDS 4u

struct copy_chunks {
    struct toast_store *store;
    Oid owner;
    XLogRecPtr lsn;
    bool begun;
    struct toast_event events[BATCH];
    size_t n;
    struct buf data; /* of the events, one behind the other; bounded by BATCH chunks */
    size_t at[BATCH];
};

enum status copy_chunks_new(struct toast_store *store, Oid owner, XLogRecPtr lsn,
                            struct copy_chunks **ret, struct error *err)
{
    const struct toast_event reset = {.kind = TOAST_RESET, .owner = owner, .lsn = lsn};
    TRY(toast_store_put(store, &reset, 1, err));
    struct copy_chunks *c = xcalloc(1, sizeof *c);
    c->store = store;
    c->owner = owner;
    c->lsn = lsn;
    *ret = c;
    return OK;
}

void copy_chunks_sql(const char *name, struct buf *out)
{
    buf_printf(out,
               "COPY (SELECT ctid, chunk_id, chunk_seq, chunk_data FROM pg_toast.\"%s\") TO STDOUT "
               "(FORMAT binary)",
               name);
}

static enum status flush(struct copy_chunks *c, struct error *err)
{
    for (size_t i = 0; i < c->n; i++)
        c->events[i].data = c->data.data + c->at[i];
    TRY(toast_store_put(c->store, c->events, c->n, err));
    c->n = 0;
    buf_reset(&c->data);
    return OK;
}

static uint32_t get32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static enum status read_chunk(struct copy_chunks *c, struct cursor *in, struct error *err)
{
    const uint8_t *field[FIELDS];
    uint32_t len[FIELDS];
    for (unsigned i = 0; i < FIELDS; i++)
        TRY(copy_field_next(in, &field[i], &len[i], err));
    if (field[0] == NULL || len[0] != 6 || field[1] == NULL || len[1] != 4 || field[2] == NULL ||
        len[2] != 4 || field[3] == NULL || len[3] > TOAST_CHUNK_BYTES_MAX || cursor_left(in) > 0)
        return error_set(err, ERR_DATA, "a row of COPY is no chunk of a TOAST table");
    c->at[c->n] = c->data.len;
    buf_put(&c->data, field[3], len[3]);
    c->events[c->n++] = (struct toast_event){
        .kind = TOAST_BIRTH,
        .seed = true,
        .owner = c->owner,
        .lsn = c->lsn,
        .tid = tid_make(get32(field[0]), (OffsetNumber)(field[0][4] << 8 | field[0][5])),
        .value_id = get32(field[1]),
        .seq = get32(field[2]),
        .len = len[3],
    };
    return c->n == BATCH ? flush(c, err) : OK;
}

enum status copy_chunks_put(struct copy_chunks *c, const uint8_t *data, size_t len,
                            struct error *err)
{
    struct cursor in = cursor_of(data, len);
    bool end = false;
    if (!c->begun)
        TRY(copy_header_skip(&in, err));
    c->begun = true;
    if (cursor_left(&in) == 0)
        return OK;
    TRY(copy_row_begin(&in, FIELDS, &end, err));
    return end ? OK : read_chunk(c, &in, err);
}

enum status copy_chunks_end(struct copy_chunks *c, struct error *err)
{
    return flush(c, err);
}

void copy_chunks_free(struct copy_chunks *c)
{
    if (c == NULL)
        return;
    buf_free(&c->data);
    free(c);
}
