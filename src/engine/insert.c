#include "engine/insert.h"

#include <stdarg.h>
#include <stdio.h>
#include <uthash.h>

#define INSERT_PIECE_BYTES ((size_t)1 << 20) /* one call of the library for so many bytes */
#define INSERT_PIECE_MAX ((size_t)4 << 20)
#define SAMPLE_CACHE_MAX 1024u

enum { /* ClickHouse's exception codes */
       CODE_COLUMNS_DO_NOT_MATCH = 7,
       CODE_NOT_FOUND_COLUMN_IN_BLOCK = 10,
       CODE_DUPLICATE_COLUMN = 15,
       CODE_NO_SUCH_COLUMN = 16,
       CODE_TYPE_MISMATCH = 53,
       CODE_NOT_IMPLEMENTED = 48,
};

struct engine_sample_entry {
    struct engine_sample *sample;
    UT_hash_handle hh;
    size_t key_len;
    char key[]; /* the statement's head */
};

PRINTF(3, 4)
static enum status insert_refuse(struct error *err, int code, const char *fmt, ...)
{
    char text[500];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    error_set(err, ERR_DATA, "%s", text);
    if (err != NULL)
        err->ch_code = code;
    return ERR_DATA;
}

void engine_sample_free(struct engine_sample *s)
{
    if (s == NULL)
        return;
    free(s->names);
    free(s->types);
    buf_free(&s->text);
    free(s);
}

static void entry_drop(struct engine_sample_cache *cache, struct engine_sample_entry *e)
{
    HASH_DEL(cache->entries, e);
    engine_sample_free(e->sample);
    free(e);
}

void engine_sample_cache_fini(struct engine_sample_cache *cache)
{
    struct engine_sample_entry *e, *next;
    HASH_ITER (hh, cache->entries, e, next) {
        entry_drop(cache, e);
    }
}

/* Reads DESCRIBE's answer (RowBinaryWithNames: count, names, then rows of Strings) into a sample of
 * all columns that an INSERT without a column list takes, or of all. */
static enum status describe_read(const struct chdb_answer *a, bool all, struct engine_sample *s,
                                 struct error *err)
{
    buf_put(&s->text, a->data, a->len); /* the names point into it: it does not grow any more */
    struct cursor in = cursor_of(s->text.data, s->text.len);
    struct wire w = wire_begin(&in, err);
    uint64_t fields = wire_varint(&w);
    if (fields < 3 || fields > 64)
        wire_bad(&w, "DESCRIBE TABLE has an unknown form");
    for (uint64_t i = 0; i < fields && w.state == PARSE_DONE; i++)
        wire_str(&w, a->len, "a name");
    size_t cap = 0;
    while (w.state == PARSE_DONE && in.pos < in.len) {
        struct str name = wire_str(&w, a->len, "a name"), type = wire_str(&w, a->len, "a type");
        struct str kind = wire_str(&w, a->len, "a default");
        for (uint64_t i = 3; i < fields; i++)
            wire_str(&w, a->len, "a field");
        if (w.state != PARSE_DONE)
            break;
        if (!all &&
            (str_is(kind, "MATERIALIZED") || str_is(kind, "ALIAS") || str_is(kind, "EPHEMERAL")))
            continue;
        if (s->n == cap) {
            cap = cap < 16 ? 16 : cap * 2;
            s->names = xrealloc(s->names, cap * sizeof *s->names);
            s->types = xrealloc(s->types, cap * sizeof *s->types);
        }
        s->names[s->n] = name;
        s->types[s->n++] = type;
    }
    return w.state == PARSE_DONE ? OK : error_set(err, ERR_DATA, "DESCRIBE TABLE ends early");
}

/* Picks the columns of a list out of all columns. */
struct sample_pick {
    const struct engine_sample *all;
    struct engine_sample *ret;
    struct error *err;
    enum status status;
};

static void pick_name(void *ctx, const char *name, size_t len)
{
    struct sample_pick *p = ctx;
    struct engine_sample *ret = p->ret;
    if (p->status != OK)
        return;
    for (size_t i = 0; i < ret->n; i++)
        if (ret->names[i].len == len && memcmp(ret->names[i].data, name, len) == 0)
            p->status = insert_refuse(p->err, CODE_DUPLICATE_COLUMN,
                                      "Column %s is named twice in the column list", name);
    for (size_t i = 0; i < p->all->n && p->status == OK; i++) {
        if (p->all->names[i].len != len || memcmp(p->all->names[i].data, name, len) != 0)
            continue;
        ret->names = xrealloc(ret->names, (ret->n + 1) * sizeof *ret->names);
        ret->types = xrealloc(ret->types, (ret->n + 1) * sizeof *ret->types);
        ret->names[ret->n] = p->all->names[i];
        ret->types[ret->n++] = p->all->types[i];
        return;
    }
    if (p->status == OK)
        p->status = insert_refuse(p->err, CODE_NO_SUCH_COLUMN, "No such column %s in table", name);
}

static enum status sample_read(struct chdb_session *session, const char *sql,
                               const struct sql_shape *shape, struct engine_sample *ret,
                               struct error *err)
{
    CLEANUP_BUF struct buf ask = {0};
    struct chdb_answer a = {0};
    bool listed = shape->columns.len > 0;
    buf_printf(&ask, "DESCRIBE TABLE ");
    buf_put(&ask, sql + shape->target.at, shape->target.len);
    TRY(chdb_session_run(session, (char *)ask.data, ask.len, "RowBinaryWithNames", &a, err));
    struct engine_sample all = {0};
    enum status status = describe_read(&a, listed, &all, err);
    chdb_answer_free(&a);
    if (status == OK && listed) {
        struct sample_pick pick = {&all, ret, err, OK};
        if (!sql_columns_read(sql, shape->columns, pick_name, &pick))
            status = insert_refuse(err, CODE_NOT_IMPLEMENTED,
                                   "the column list of an INSERT takes only names here");
        else
            status = pick.status;
        ret->text = all.text; /* what the picked names point into */
        free(all.names);
        free(all.types);
        return status;
    }
    *ret = all;
    return status;
}

enum status engine_sample_get(struct engine_sample_cache *cache, unsigned long generation,
                              struct chdb_session *session, const char *sql,
                              const struct sql_shape *shape,
                              const struct engine_sample **ret_sample, struct error *err)
{
    struct engine_sample_entry *e = NULL;
    size_t key_len = shape->head.len;
    if (cache->generation != generation || HASH_COUNT(cache->entries) >= SAMPLE_CACHE_MAX)
        engine_sample_cache_fini(cache);
    cache->generation = generation;
    struct engine_sample_entry *fresh = xcalloc(1, sizeof *fresh + key_len);
    memcpy(fresh->key, sql + shape->head.at, key_len);
    fresh->key_len = key_len;
    HASH_FIND(hh, cache->entries, fresh->key, key_len, e);
    if (e == NULL) {
        fresh->sample = xcalloc(1, sizeof *fresh->sample);
        enum status status = sample_read(session, sql, shape, fresh->sample, err);
        if (status != OK) {
            engine_sample_free(fresh->sample);
            free(fresh);
            return status;
        }
        HASH_ADD(hh, cache->entries, key, key_len, fresh);
        e = fresh;
    } else {
        free(fresh);
    }
    *ret_sample = e->sample;
    return OK;
}

enum status engine_insert_open(struct engine_insert *insert, struct chdb_session *session,
                               const char *sql, const struct sql_shape *shape,
                               const struct engine_sample *sample, struct error *err)
{
    *insert = (struct engine_insert){.sample = sample};
    return chdb_writer_open(session, sql + shape->head.at, shape->head.len, "Native",
                            &insert->writer, err);
}

/* The Native reader takes wrong columns in silence (another type, a name that the table lacks), so
 * they are compared here. */
static enum status block_check(const struct engine_sample *s, const struct block_reader *b,
                               struct error *err)
{
    if (b->ncols != s->n)
        return insert_refuse(err, CODE_COLUMNS_DO_NOT_MATCH,
                             "The block has %llu columns, the INSERT takes %zu",
                             (unsigned long long)b->ncols, s->n);
    for (size_t i = 0; i < s->n; i++) {
        const struct block_reader_column *c = &b->cols[i];
        size_t at = i; /* mostly in the sample's order */
        if (!str_is(s->names[at], c->name))
            for (at = 0; at < s->n && !str_is(s->names[at], c->name);)
                at++;
        if (at == s->n)
            return insert_refuse(err, CODE_NO_SUCH_COLUMN, "No such column %.200s in the INSERT",
                                 c->name);
        for (size_t k = 0; k < i && at != i; k++)
            if (strcmp(b->cols[k].name, c->name) == 0)
                return insert_refuse(err, CODE_NOT_FOUND_COLUMN_IN_BLOCK,
                                     "The block has column %.200s twice", c->name);
        CLEANUP_FREE char *type = strndup(s->types[at].data, s->types[at].len);
        if (!str_is(s->types[at], c->type_text) && !type_text_accepts(type, c->type_text))
            return insert_refuse(err, CODE_TYPE_MISMATCH,
                                 "Column %.100s has type %.150s in the table, %.150s in the block",
                                 c->name, type, c->type_text);
    }
    return OK;
}

static enum status stage_flush(struct engine_insert *insert, struct error *err)
{
    if (insert->stage.len == 0)
        return OK;
    enum status status =
        chdb_writer_append(insert->writer, insert->stage.data, insert->stage.len, err);
    buf_reset(&insert->stage);
    return status;
}

/* Small payloads are collected, large ones go as they are. */
static enum status payload_pass(struct engine_insert *insert, const uint8_t *data, size_t len,
                                struct error *err)
{
    if (len < INSERT_PIECE_BYTES) {
        buf_put(&insert->stage, data, len);
        return insert->stage.len >= INSERT_PIECE_BYTES ? stage_flush(insert, err) : OK;
    }
    TRY(stage_flush(insert, err));
    for (size_t at = 0; at < len; at += INSERT_PIECE_MAX)
        TRY(chdb_writer_append(insert->writer, data + at, MIN(len - at, INSERT_PIECE_MAX), err));
    return OK;
}

enum status engine_insert_block(struct engine_insert *insert, const struct block_reader *b,
                                const uint8_t *data, struct error *err)
{
    TRY(block_check(insert->sample, b, err));
    if (b->rows == 0)
        return OK;
    block_wire_put_start(&insert->stage, 0, b->ncols, b->rows);
    for (uint64_t i = 0; i < b->ncols; i++) {
        const struct block_reader_column *c = &b->cols[i];
        block_wire_put_column(&insert->stage, 0, str_of(c->name), str_of(c->type_text));
        TRY(payload_pass(insert, data + c->data, c->data_len, err));
    }
    insert->rows += b->rows;
    return OK;
}

enum status engine_insert_finish(struct engine_insert *insert, struct error *err)
{
    uint64_t rows;
    if (insert->rows == 0)
        return OK; /* the library takes the end of no data for an error */
    TRY(stage_flush(insert, err));
    return chdb_writer_finish(insert->writer, &rows, err);
}

void engine_insert_fini(struct engine_insert *insert)
{
    chdb_writer_close(insert->writer);
    insert->writer = NULL;
    buf_free(&insert->stage);
}
