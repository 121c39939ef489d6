#include "toast/clickhouse.h"
#include "base/fault.h"
#include "base/log.h"
#include "clickhouse/sql_quote.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RECLAIM_PAUSE_NS UINT64_C(30000000000)
#define RETRY_MS_MAX 5000u
#define INSERT_BYTES ((size_t)4 << 20) /* of an INSERT, about */
#define UNKNOWN_TABLE 60

static const struct ch_setting settings[] = {
    {"async_insert", "0"},       {"optimize_on_insert", "0"}, {"send_profile_events", "0"},
    {"send_logs_level", "none"}, {"mutations_sync", "1"},
};

void clickhouse_put_table(const struct clickhouse_store *s, Oid owner, struct buf *sql)
{
    sql_quote_ident(sql, s->database);
    buf_printf(sql, ".`" TOAST_TABLE_PREFIX "%u`", owner);
}

bool clickhouse_table_missing(const struct error *err)
{
    return err->ch_code == UNKNOWN_TABLE;
}

/* An idle connection, or a new one. */
static enum status client_take(struct clickhouse_store *s, struct ch_client **ret,
                               struct error *err)
{
    struct ch_client *c = NULL;
    pthread_mutex_lock(&s->clients_lock);
    if (s->nclients > 0)
        c = s->clients[--s->nclients];
    pthread_mutex_unlock(&s->clients_lock);
    if (c == NULL)
        TRY(ch_client_open(&s->endpoint, &c, err));
    *ret = c;
    return OK;
}

static void client_leave(struct clickhouse_store *s, struct ch_client *c)
{
    bool kept = false;
    pthread_mutex_lock(&s->clients_lock);
    if (c != NULL && !ch_client_broken(c) && s->nclients < CLIENTS_MAX) {
        s->clients[s->nclients++] = c;
        kept = true;
    }
    pthread_mutex_unlock(&s->clients_lock);
    if (!kept)
        ch_client_close(c);
}

enum status clickhouse_run(struct clickhouse_store *s, clickhouse_fn fn, void *ctx,
                           struct error *err)
{
    for (unsigned ms = 100;; ms = MIN(2 * ms, RETRY_MS_MAX)) {
        struct ch_client *c = NULL;
        enum status st = client_take(s, &c, err);
        if (st == OK)
            st = fn(s, c, ctx, err);
        if (st == ERR_RETRY)
            ch_client_close(c); /* whatever state it is in */
        else
            client_leave(s, c);
        if (st != ERR_RETRY)
            return st;
        if (s->stopping != NULL && s->stopping(s->ctx))
            return error_set(err, ERR_CANCELLED, "stopping");
        log_warn(
            "msg=\"the chunk store's statement failed, it is tried again\" retry_ms=%u error=%s",
            ms, LOG_Q(err->message));
        struct timespec pause = {ms / 1000, (long)(ms % 1000) * 1000000};
        nanosleep(&pause, NULL);
    }
}

struct statement {
    const char *sql;
    ch_row_fn row;
    void *ctx;
};

static enum status run_execute(struct clickhouse_store *s, struct ch_client *c, void *ctx,
                               struct error *err)
{
    (void)s;
    return ch_client_execute(c, ctx, settings, LENGTH(settings), err);
}

enum status clickhouse_execute(struct clickhouse_store *s, const char *sql, struct error *err)
{
    CLEANUP_FREE char *copy = xstrdup(sql);
    return clickhouse_run(s, run_execute, copy, err);
}

static enum status run_select(struct clickhouse_store *s, struct ch_client *c, void *ctx,
                              struct error *err)
{
    const struct statement *q = ctx;
    (void)s;
    return ch_client_select(c, q->sql, settings, LENGTH(settings), q->row, q->ctx, err);
}

enum status clickhouse_select(struct clickhouse_store *s, const char *sql, ch_row_fn fn, void *ctx,
                              struct error *err)
{
    struct statement q = {sql, fn, ctx};
    return clickhouse_run(s, run_select, &q, err);
}

static struct clickhouse_owner *owner_find(struct clickhouse_store *s, Oid oid)
{
    struct clickhouse_owner *o;
    HASH_FIND(hh, s->owners, &oid, sizeof oid, o);
    return o;
}

static struct clickhouse_owner *owner_add(struct clickhouse_store *s, Oid oid)
{
    struct clickhouse_owner *o = xcalloc(1, sizeof *o);
    o->oid = oid;
    HASH_ADD(hh, s->owners, oid, sizeof o->oid, o);
    return o;
}

/* The owner's table is there. */
static enum status owner_ensure(struct clickhouse_store *s, Oid oid, struct clickhouse_owner **ret,
                                struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    *ret = owner_find(s, oid);
    if (*ret != NULL)
        return OK;
    buf_printf(&sql, "CREATE TABLE IF NOT EXISTS ");
    clickhouse_put_table(s, oid, &sql);
    buf_printf(&sql,
               " (value_id UInt32, seq UInt32, tid UInt64, born UInt64, died UInt64, data "
               "String) ENGINE = ReplacingMergeTree(died) ORDER BY (value_id, seq, tid, born) "
               "COMMENT ");
    sql_quote_string(&sql, s->comment);
    TRY(clickhouse_execute(s, buf_cstr(&sql), err));
    *ret = owner_add(s, oid);
    return OK;
}

static void put_row(struct block *b, const struct toast_event *e)
{
    bool birth = e->kind == TOAST_BIRTH;
    buf_put_u32(&b->cols[0].data, birth ? e->value_id : 0);
    buf_put_u32(&b->cols[1].data, birth ? e->seq : e->kind == TOAST_DEATH ? SEQ_DEATH : SEQ_RESET);
    buf_put_u64(&b->cols[2].data, e->kind == TOAST_RESET ? 0 : e->tid);
    buf_put_u64(&b->cols[3].data, e->lsn);
    buf_put_u64(&b->cols[4].data, birth ? 0 : e->lsn);
    buf_put_varint(&b->cols[5].data, birth ? e->len : 0);
    if (birth)
        buf_put(&b->cols[5].data, e->data, e->len);
    b->rows++;
}

struct insert {
    const char *sql;
    struct block *block;
};

static enum status run_insert(struct clickhouse_store *s, struct ch_client *c, void *ctx,
                              struct error *err)
{
    struct insert *in = ctx;
    return ch_client_insert(c, in->sql, s->header, &in->block, 1, settings, LENGTH(settings), err);
}

static enum status insert_rows(struct clickhouse_store *s, Oid owner, struct block *block,
                               struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    if (block->rows == 0)
        return OK;
    buf_printf(&sql, "INSERT INTO ");
    clickhouse_put_table(s, owner, &sql);
    buf_printf(&sql, " (value_id, seq, tid, born, died, data) FORMAT Native");
    struct insert in = {buf_cstr(&sql), block};
    FAULT_POINT("toast-before-insert");
    TRY(clickhouse_run(s, run_insert, &in, err));
    FAULT_POINT("toast-after-insert");
    for (unsigned c = 0; c < block->ncols; c++)
        buf_reset(&block->cols[c].data);
    block->rows = 0;
    return OK;
}

static int by_owner(const void *a, const void *b)
{
    const struct overlay_event *x = *(struct overlay_event *const *)a;
    const struct overlay_event *y = *(struct overlay_event *const *)b;
    return (x->event.owner > y->event.owner) - (x->event.owner < y->event.owner);
}

/* The first events are of one owner: they go in INSERTs of a few MiB. Returns in *ret_n how many.
 */
static enum status write_owner(struct clickhouse_store *s,
                               const struct overlay_event *const *events, size_t n, size_t *ret_n,
                               struct error *err)
{
    struct clickhouse_owner *owner;
    Oid oid = events[0]->event.owner;
    TRY(owner_ensure(s, oid, &owner, err));
    struct block *block = block_new(s->header);
    enum status st = OK;
    size_t i = 0;
    for (; i < n && events[i]->event.owner == oid && st == OK; i++) {
        put_row(block, &events[i]->event);
        owner->ends += events[i]->event.kind != TOAST_BIRTH;
        if (block_bytes(block) >= INSERT_BYTES)
            st = insert_rows(s, oid, block, err);
    }
    if (st == OK)
        st = insert_rows(s, oid, block, err);
    block_free(block);
    *ret_n = i;
    return st;
}

static enum status write_overlay(void *store, const struct overlay *writing, struct error *err)
{
    struct clickhouse_store *s = store;
    CLEANUP_BUF struct buf list = {0};
    for (const struct overlay_event *e = writing->first; e != NULL; e = e->next)
        buf_put(&list, &e, sizeof e);
    const struct overlay_event **events = (const struct overlay_event **)list.data;
    size_t left = list.len / sizeof *events, n;
    if (left > 1)
        qsort(events, left, sizeof *events, by_owner);
    for (; left > 0; events += n, left -= n)
        TRY(write_owner(s, events, left, &n, err));
    return OK;
}

static enum status clickhouse_put(struct toast_store *store, const struct toast_event *events,
                                  size_t n, struct error *err)
{
    return toast_pending_put(&((struct clickhouse_store *)store)->events, events, n, err);
}

static enum status clickhouse_sync(struct toast_store *store, XLogRecPtr floor, struct error *err)
{
    struct clickhouse_store *s = (struct clickhouse_store *)store;
    pthread_mutex_lock(&s->events.write_lock);
    enum status st = toast_pending_flush(&s->events, floor, err);
    pthread_mutex_unlock(&s->events.write_lock);
    return st;
}

static void clickhouse_close(struct toast_store *store)
{
    struct clickhouse_store *s = (struct clickhouse_store *)store;
    struct clickhouse_owner *o, *next;
    for (unsigned i = 0; i < s->nclients; i++)
        ch_client_close(s->clients[i]);
    HASH_ITER (hh, s->owners, o, next) {
        HASH_DEL(s->owners, o);
        free(o);
    }
    toast_pending_fini(&s->events);
    free(s->header);
    free(s->database);
    free(s->comment);
    pthread_mutex_destroy(&s->clients_lock);
    free(s);
}

static struct block_header *header_new(void)
{
    static const struct column_header columns[] = {
        {(char *)"value_id", (char *)"UInt32"}, {(char *)"seq", (char *)"UInt32"},
        {(char *)"tid", (char *)"UInt64"},      {(char *)"born", (char *)"UInt64"},
        {(char *)"died", (char *)"UInt64"},     {(char *)"data", (char *)"String"},
    };
    struct block_header *h = xcalloc(1, sizeof *h + sizeof columns);
    h->ncols = LENGTH(columns);
    memcpy(h->cols, columns, sizeof columns);
    return h;
}

/* A table that is there already. */
static enum status found_table(void *ctx, const char *const *fields, const size_t *lengths,
                               unsigned nfields, struct error *err)
{
    struct clickhouse_store *s = ctx;
    (void)lengths;
    if (nfields != 2 || fields[0] == NULL || fields[1] == NULL)
        return error_set(err, ERR_DATA, "unexpected answer about the chunk store's tables");
    char *end;
    unsigned long oid = strtoul(fields[0] + strlen(TOAST_TABLE_PREFIX), &end, 10);
    if (*end != '\0' || oid == 0 || oid > UINT32_MAX)
        return OK;
    if (strcmp(fields[1], s->comment) != 0)
        return error_set(err, ERR_CONFIG,
                         "toast.mode = clickhouse: table %s.%s belongs to another source (%s): use "
                         "another database, or drop it",
                         s->database, fields[0], fields[1]);
    if (owner_find(s, (Oid)oid) == NULL)
        owner_add(s, (Oid)oid)->ends = 1;
    return OK;
}

static enum status find_tables(struct clickhouse_store *s, struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    buf_printf(&sql, "CREATE DATABASE IF NOT EXISTS ");
    sql_quote_ident(&sql, s->database);
    TRY(clickhouse_execute(s, buf_cstr(&sql), err));
    buf_reset(&sql);
    buf_printf(&sql,
               "SELECT name, comment FROM system.tables WHERE startsWith(name, '" TOAST_TABLE_PREFIX
               "') AND database = ");
    sql_quote_string(&sql, s->database);
    return clickhouse_select(s, buf_cstr(&sql), found_table, s, err);
}

enum status clickhouse_owner_drop(struct clickhouse_store *s, struct clickhouse_owner *o,
                                  struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    buf_printf(&sql, "DROP TABLE IF EXISTS ");
    clickhouse_put_table(s, o->oid, &sql);
    buf_printf(&sql, " SYNC");
    TRY(clickhouse_execute(s, buf_cstr(&sql), err));
    HASH_DEL(s->owners, o);
    free(o);
    return OK;
}

static enum status drop_tables(struct clickhouse_store *s, struct error *err)
{
    struct clickhouse_owner *o, *next;
    HASH_ITER (hh, s->owners, o, next)
        TRY(clickhouse_owner_drop(s, o, err));
    return OK;
}

enum status toast_store_open_clickhouse(const struct toast_clickhouse_options *o,
                                        struct toast_store **ret_store, struct error *err)
{
    static const struct toast_store_ops ops = {
        clickhouse_put,     clickhouse_fetch, clickhouse_sync,
        clickhouse_reclaim, clickhouse_stats, clickhouse_close,
    };
    struct clickhouse_store *s = xcalloc(1, sizeof *s);
    s->base.ops = &ops;
    s->endpoint = *o->endpoint;
    s->database = xstrdup(o->database);
    s->comment = xstrdup(o->comment);
    s->ctx = o->ctx;
    s->stopping = o->stopping;
    s->reclaim_pause_ns = o->reclaim_pause_ns == 0 ? RECLAIM_PAUSE_NS : o->reclaim_pause_ns;
    s->header = header_new();
    toast_pending_init(&s->events, o->pending_bytes_max, write_overlay, s);
    pthread_mutex_init(&s->clients_lock, NULL);
    enum status st = find_tables(s, err);
    if (st == OK && o->empty)
        st = drop_tables(s, err);
    if (st != OK) {
        clickhouse_close(&s->base);
        return error_prefix(err, "chunk store");
    }
    *ret_store = &s->base;
    return OK;
}
