/* A whole pipeline with `null:` destinations, fed with frames made here. */
#pragma once
#include "base/file.h"
#include "config/config.h"
#include "pipeline/pipeline.h"
#include "test.h"

#define SECOND_NS UINT64_C(1000000000)
#define TABLE_T 16400u /* id int4 key, v int4; file 16401 */
#define TABLE_U 16500u /* the same, file 16501 */
#define TABLE_W 16600u /* id int4 key, t text; file 16601, TOAST file 16602 */
#define DAMAGED_NATTS 9

struct feed {
    char dir[64];
    struct history *history;
    struct config *config;
    struct fatal fatal;
    struct pipeline *p;
    struct pipeline_endpoint endpoints[2];
    struct feed_batch *batch; /* being filled */
    XLogRecPtr lsn;           /* of the next record */
};

static inline struct rel_file_locator file_of(Oid number)
{
    return (struct rel_file_locator){1663, 5, number};
}

/* (id int4 primary key, v int4 or t text, then more int4) in file oid + 1. */
static inline struct rel_desc *table_desc(Oid oid, XLogRecPtr valid_from, unsigned natts, bool text)
{
    struct rel_desc *d = rel_desc_new(natts);
    d->valid_from = valid_from;
    d->oid = d->root_oid = oid;
    d->namespace_oid = 2200;
    d->locator = file_of(oid + 1);
    d->relkind = 'r';
    d->relpersistence = 'p';
    d->relreplident = 'd';
    d->relam = 2;
    d->identity = IDENTITY_KEY;
    d->nkeys = 1;
    d->key_attnums[0] = 1;
    strcpy(d->schema, "public");
    snprintf(d->name, sizeof d->name, "t%u", oid);
    for (unsigned i = 0; i < natts; i++) {
        struct att_desc *a = &d->atts[i];
        bool is_text = text && i == 1;
        a->attnum = (int16_t)(i + 1);
        a->attlen = is_text ? -1 : 4;
        a->attalign = 'i';
        a->attstorage = is_text ? 'x' : 'p';
        a->typtype = 'b';
        a->typcategory = is_text ? 'S' : 'N';
        a->typid = a->base_typid = is_text ? 25 : 23;
        a->typmod = -1;
        a->not_null = i == 0;
        snprintf(a->name, sizeof a->name, "c%u", i);
        a->type_name = xstrdup(is_text ? "text" : "integer");
    }
    if (text) {
        d->toast_oid = oid + 3;
        d->toast_locator = file_of(oid + 2);
    }
    return d;
}

/* Appends it to the history and drops it here. */
static inline void shape_add(struct feed *f, struct rel_desc *d, XLogRecPtr captured)
{
    struct error err = {0};
    if (d->shape == NULL)
        rel_desc_seal(d);
    assert_ok(history_append(f->history, &d, 1, captured, &err));
    rel_desc_unref(d);
}

static inline void on_fatal(void *ctx)
{
    struct feed *f = ctx;
    if (f->p != NULL)
        pipeline_cancel(f->p);
}

static inline void feed_batch_begin(struct feed *f)
{
    f->batch = xcalloc(1, sizeof *f->batch);
}

/* Makes history, configuration and pipeline; tables T, U and W stream from LSN 1000 on. */
static inline void feed_open(struct feed *f, const struct config_set *more, size_t nmore,
                             struct reorder_options options)
{
    struct error err = {0};
    CLEANUP_FREE struct config_set *sets = xcalloc(nmore + 2, sizeof *sets);
    *f = (struct feed){.dir = "/tmp/walshadow-feed-XXXXXX", .lsn = 1000};
    assert_non_null(mkdtemp(f->dir));
    CLEANUP_FREE char *log = xasprintf("%s/catalog.log", f->dir);
    assert_ok(history_open(log, &f->history, &err));
    shape_add(f, table_desc(TABLE_T, 0, 2, false), 900);
    shape_add(f, table_desc(TABLE_U, 0, 2, false), 900);
    shape_add(f, table_desc(TABLE_W, 0, 2, true), 900);
    sets[0] = (struct config_set){"destination.default.url", "null:"};
    sets[1] = (struct config_set){"destination.default.database", "copy"};
    if (nmore > 0)
        memcpy(sets + 2, more, nmore * sizeof *sets);
    assert_ok(
        config_load(&(struct config_args){.state_dir = f->dir, .sets = sets, .nsets = nmore + 2},
                    &f->config, &err));
    f->endpoints[0].ack = f->endpoints[1].ack = 900;
    fatal_init(&f->fatal, on_fatal, f);
    assert_ok(pipeline_open(&(struct pipeline_options){.config = f->config,
                                                       .history = f->history,
                                                       .fatal = &f->fatal,
                                                       .spill_dir = f->dir,
                                                       .system_id = 1,
                                                       .database_oid = 5,
                                                       .endpoints = f->endpoints},
                            &f->p, &err));
    assert_ok(pipeline_add_tables(f->p, 900, TABLES_KEEP, &err));
    assert_ok(pipeline_start(f->p, &options, &err));
    feed_batch_begin(f);
}

static inline void feed_close(struct feed *f)
{
    struct error err = {0};
    feed_batch_free(f->batch);
    pipeline_close(f->p);
    history_free(f->history);
    config_free(f->config);
    fatal_fini(&f->fatal);
    assert_ok(file_remove_tree(f->dir, true, &err));
}

/* Everything is durable, nothing is charged, then closes. */
static inline void feed_end(struct feed *f)
{
    struct error err = {0};
    XLogRecPtr acks[2];
    assert_ok(pipeline_drain(f->p, clock_now_ns() + 60 * SECOND_NS, &err));
    if (fatal_is_set(&f->fatal))
        fail_msg("fatal: %s", f->fatal.first.message);
    XLogRecPtr read = atomic_load(&pipeline_reorder(f->p)->read_lsn);
    size_t open = xact_buffer_count(pipeline_reorder(f->p)->xacts);
    if (open == 0 && read != 0)
        assert_true(pipeline_floor(f->p, acks) == read);
    feed_close(f);
}

/* Sends what is in the batch; the source has nothing more. */
static inline void feed_send(struct feed *f)
{
    struct error err = {0};
    f->batch->end = f->lsn;
    f->batch->idle = true;
    struct feed_batch *batch = f->batch;
    feed_batch_begin(f);
    assert_ok(pipeline_feed(f->p, batch, &err));
}

/* Sends, and waits until all of it is acknowledged everywhere. */
static inline void feed_settle(struct feed *f)
{
    static const atomic_bool never;
    struct error err = {0};
    struct destination **destinations;
    size_t n = pipeline_destinations(f->p, &destinations);
    feed_send(f);
    for (size_t d = 0; d < n; d++)
        assert_ok(ack_wait_lsn(destinations[d]->ack, f->lsn, clock_now_ns() + 60 * SECOND_NS,
                               &never, &err));
}

static inline XLogRecPtr feed_next(struct feed *f)
{
    XLogRecPtr lsn = f->lsn;
    f->lsn += 40;
    return lsn;
}

/* A change of a table of ints: the new row (id, v), and the old key, as asked. */
static inline void change(struct feed *f, TransactionId xid, Oid table, enum change_kind kind,
                          int32_t id, bool has_new, bool has_old, unsigned natts)
{
    CLEANUP_BUF struct buf now = {0}, was = {0};
    buf_put_u8(&now, 0);
    buf_put_i32(&now, id);
    buf_put_i32(&now, id * 2);
    buf_put_u8(&was, 1); /* bitmap: the key only */
    buf_put_i32(&was, id);
    struct change c = {
        .kind = (uint8_t)kind,
        .flags = has_old ? CHANGE_OLD_KEY : 0,
        .lsn = feed_next(f),
        .locator = file_of(table + 1),
        .new_tid = has_new ? tid_make(1, 1) : 0,
        .old_tid = kind == CHANGE_INSERT ? 0 : tid_make(1, 2),
        .has_new = has_new,
        .has_old = has_old,
        .new_tuple = {.infomask2 = (uint16_t)natts,
                      .infomask = 0x0800,
                      .hoff = 24,
                      .body_len = (uint32_t)now.len,
                      .body = now.data},
        .old_tuple = {.infomask2 = 2,
                      .infomask = 0x0801,
                      .hoff = 24,
                      .body_len = (uint32_t)was.len,
                      .body = was.data},
    };
    frame_put_change(&f->batch->frames, &c, xid, 0);
}

static inline void insert(struct feed *f, TransactionId xid, Oid table, int32_t id)
{
    change(f, xid, table, CHANGE_INSERT, id, true, false, 2);
}

struct ending {
    const TransactionId *subs;
    uint32_t nsub;
    const struct rel_file_locator *dropped;
    uint32_t ndropped;
    const Oid *rels;
    uint32_t nrels;
    uint8_t flags;
};

/* The end of a transaction; returns the LSN behind it. */
static inline XLogRecPtr ends(struct feed *f, enum frame_type type, TransactionId xid,
                              struct ending e)
{
    struct buf *out = &f->batch->frames;
    size_t at = out->len;
    struct xact_frame x = {
        .head = {.type = (uint8_t)type, .flags = e.flags, .xid = xid, .lsn = feed_next(f)},
        .commit_ts = 1000,
        .nsub = e.nsub,
        .ndropped = e.ndropped,
        .nrels = e.nrels};
    x.end = f->lsn;
    buf_put(out, &x, sizeof x);
    buf_put(out, e.subs, e.nsub * sizeof *e.subs);
    buf_put(out, e.dropped, e.ndropped * sizeof *e.dropped);
    buf_put(out, e.rels, e.nrels * sizeof *e.rels);
    buf_put_zeros(out, (8 - out->len % 8) % 8);
    ((struct xact_frame *)(out->data + at))->head.len = (uint32_t)(out->len - at);
    return f->lsn;
}

static inline XLogRecPtr commit(struct feed *f, TransactionId xid)
{
    return ends(f, FRAME_COMMIT, xid, (struct ending){0});
}

static inline void truncate_of(struct feed *f, TransactionId xid, const Oid *rels, uint32_t n)
{
    struct buf *out = &f->batch->frames;
    struct truncate_frame t = {.head = {.len = (uint32_t)frame_align(sizeof t + n * sizeof *rels),
                                        .type = FRAME_TRUNCATE,
                                        .xid = xid,
                                        .lsn = feed_next(f)},
                               .nrelids = n};
    buf_put(out, &t, sizeof t);
    buf_put(out, rels, n * sizeof *rels);
    buf_put_zeros(out, t.head.len - sizeof t - n * sizeof *rels);
}

static inline unsigned long rows_of(struct feed *f, Oid table)
{
    struct table_entry *e = tables_find(pipeline_tables(f->p), table);
    return e == NULL ? 0 : atomic_load(&e->rows[0]);
}

static inline int life_of(struct feed *f, Oid table)
{
    struct table_entry *e = tables_find(pipeline_tables(f->p), table);
    return e == NULL ? -1 : atomic_load(&e->life);
}

/* The table was stopped for a reason that has `part` in it, durably. */
static inline void assert_stopped(struct feed *f, Oid table, const char *part)
{
    char reason[400] = "";
    assert_int_equal(life_of(f, table), TABLE_LIFE_STOPPED);
    assert_int_equal(history_state(f->history, table, reason, sizeof reason), HISTORY_STOPPED);
    if (strstr(reason, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", reason, part);
}
