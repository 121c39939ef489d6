/* Rows whose values lie out of line wait here until the chunks of all pages have been stored: their
 * TOAST file may come later in the tar. In memory up to a limit, then in one spill file, which has
 * no name once it is open. */
#include "base/cursor.h"
#include "base/file.h"
#include "load/load_internal.h"

#include <stdlib.h>
#include <unistd.h>

/* A batch that is submitted refers to about so many bytes of values. */
#define BATCH_VALUE_BYTES ((size_t)1 << 20)
#define BATCH_ROWS_BYTES ((size_t)512 << 10)

struct extent {
    struct load_rel *rel;
    off_t at;
    size_t len;
};

struct toasted {
    pthread_mutex_t lock; /* guards all but count, and the rels' toasted_rows */
    char *spill_dir;
    int fd;
    off_t file_end;
    size_t max_bytes, bytes; /* of all rels' rows in memory */
    struct extent *extents;
    size_t nextents, cap_extents;
    atomic_uint_least64_t count;
};

struct toasted *toasted_new(const char *spill_dir, size_t max_bytes)
{
    struct toasted *t = xcalloc(1, sizeof *t);
    pthread_mutex_init(&t->lock, NULL);
    t->spill_dir = xstrdup(spill_dir);
    t->fd = -1;
    t->max_bytes = max_bytes;
    return t;
}

void toasted_free(struct toasted *t)
{
    if (t == NULL)
        return;
    if (t->fd >= 0)
        close(t->fd);
    pthread_mutex_destroy(&t->lock);
    free(t->extents);
    free(t->spill_dir);
    free(t);
}

uint64_t toasted_count(const struct toasted *t)
{
    return atomic_load(&t->count);
}

static enum status spill_open(struct toasted *t, struct error *err)
{
    if (t->fd >= 0)
        return OK;
    CLEANUP_FREE char *path = xasprintf("%s/load-toasted", t->spill_dir);
    return file_create_unnamed(path, &t->fd, err);
}

static enum status rel_spill(struct toasted *t, struct load_rel *rel, struct error *err)
{
    struct buf *rows = &rel->toasted_rows;
    if (rows->len == 0)
        return OK;
    TRY(spill_open(t, err));
    TRY(file_pwrite_all(t->fd, rows->data, rows->len, t->file_end, "load-toasted", err));
    if (t->nextents == t->cap_extents) {
        t->cap_extents = MAX(2 * t->cap_extents, 16u);
        t->extents = xrealloc(t->extents, t->cap_extents * sizeof *t->extents);
    }
    t->extents[t->nextents++] = (struct extent){rel, t->file_end, rows->len};
    t->file_end += (off_t)rows->len;
    t->bytes -= rows->len;
    buf_free(rows);
    return OK;
}

/* bytes of values, tid, xid, kind, infomask2, infomask, hoff, body length, body */
static void row_put(struct buf *b, const struct load_toasted_row *row)
{
    const struct raw_tuple *tuple = &row->raw;
    buf_put_u64(b, row->value_bytes);
    buf_put_u64(b, row->tid);
    buf_put_u32(b, row->xid);
    buf_put_u8(b, row->kind);
    buf_put_u16(b, tuple->infomask2);
    buf_put_u16(b, tuple->infomask);
    buf_put_u8(b, tuple->hoff);
    buf_put_u32(b, tuple->body_len);
    buf_put(b, tuple->body, tuple->body_len);
}

enum status load_toasted_next(const struct page_batch *batch, size_t *pos, bool *ret_more,
                              struct load_toasted_row *ret, struct error *err)
{
    *ret_more = *pos < batch->rows_len;
    if (!*ret_more)
        return OK;
    struct cursor c = cursor_of(batch->rows + *pos, batch->rows_len - *pos);
    struct load_toasted_row row = {.value_bytes = cursor_u64(&c)};
    row.tid = cursor_u64(&c);
    row.xid = cursor_u32(&c);
    row.kind = cursor_u8(&c);
    row.raw.infomask2 = cursor_u16(&c);
    row.raw.infomask = cursor_u16(&c);
    row.raw.hoff = cursor_u8(&c);
    row.raw.body_len = cursor_u32(&c);
    row.raw.body = cursor_take(&c, row.raw.body_len);
    if (!cursor_ok(&c))
        return error_set(err, ERR_DATA, "a row that waited for its values is damaged");
    *pos += c.pos;
    *ret = row;
    return OK;
}

enum status load_toasted_add(struct load *l, const struct page_batch *batch,
                             const struct load_toasted_row *row, struct error *err)
{
    struct toasted *t = l->toasted;
    struct load_rel *rel = batch->rel;
    enum status st = OK;
    pthread_mutex_lock(&t->lock);
    size_t before = rel->toasted_rows.len;
    row_put(&rel->toasted_rows, row);
    t->bytes += rel->toasted_rows.len - before;
    atomic_fetch_add(&t->count, 1);
    if (t->bytes > t->max_bytes)
        for (size_t i = 0; i < l->nrels && st == OK; i++)
            st = rel_spill(t, &l->rels[i], err);
    pthread_mutex_unlock(&t->lock);
    return st;
}

/* Rows of one relation: an extent, or what is in memory. *ret_rel NULL: there are none. */
static enum status portion_take(struct load *l, struct load_rel **ret_rel, struct buf *ret_rows,
                                struct error *err)
{
    struct toasted *t = l->toasted;
    *ret_rel = NULL;
    if (t->nextents > 0) {
        const struct extent *e = &t->extents[t->nextents - 1];
        uint8_t *at = buf_reserve(ret_rows, e->len);
        TRY(file_pread_all(t->fd, at, e->len, e->at, "load-toasted", err));
        ret_rows->len = e->len;
        *ret_rel = e->rel;
        if (--t->nextents == 0)
            t->file_end = 0;
        return OK;
    }
    for (size_t i = 0; i < l->nrels && *ret_rel == NULL; i++) {
        struct buf *rows = &l->rels[i].toasted_rows;
        if (rows->len == 0)
            continue;
        *ret_rel = &l->rels[i];
        t->bytes -= rows->len;
        *ret_rows = *rows;
        *rows = (struct buf){0};
    }
    return OK;
}

/* As many rows, from *pos on, as one batch may refer to values. */
static enum status batch_cut(const struct page_batch *all, size_t *pos, struct page_batch *out,
                             struct error *err)
{
    size_t from = *pos;
    bool more = true;
    while (out->value_bytes < BATCH_VALUE_BYTES && *pos - from < BATCH_ROWS_BYTES) {
        struct load_toasted_row row;
        TRY(load_toasted_next(all, pos, &more, &row, err));
        if (!more)
            break;
        out->value_bytes += row.value_bytes;
        out->nrows++;
    }
    out->rows_len = *pos - from;
    out->rows = xmalloc(out->rows_len + 1);
    memcpy(out->rows, all->rows + from, out->rows_len);
    return OK;
}

static enum status portion_submit(struct load *l, struct load_rel *rel, const struct buf *rows,
                                  struct error *err)
{
    const struct page_batch all = {.rows = rows->data, .rows_len = rows->len};
    const struct load_options *o = &l->options;
    bool counts = o->rows_obsolete == NULL || !o->rows_obsolete(o->ctx, rel->desc);
    for (size_t pos = 0; pos < rows->len;) {
        struct page_batch *batch = page_batch_new(rel);
        batch->toasted = true;
        enum status st = batch_cut(&all, &pos, batch, err);
        atomic_fetch_sub(&l->toasted->count, batch->nrows);
        if (st != OK || !counts)
            page_batch_free(batch);
        else
            st = load_submit(l, batch, err);
        TRY(st);
    }
    return OK;
}

enum status load_toasted_submit(struct load *l, struct error *err)
{
    while (toasted_count(l->toasted) > 0) {
        CLEANUP_BUF struct buf rows = {0};
        struct load_rel *rel;
        pthread_mutex_lock(&l->toasted->lock);
        enum status st = portion_take(l, &rel, &rows, err);
        pthread_mutex_unlock(&l->toasted->lock);
        TRY(st);
        if (rel == NULL)
            return OK;
        TRY(portion_submit(l, rel, &rows, err));
    }
    return OK;
}
