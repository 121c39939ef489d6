#include "toast/local.h"
#include "base/crc32c.h"
#include "base/fault.h"

#include <errno.h>
#include <stdlib.h>

#define RECLAIM_ROWS_MAX 2048
/* Events in one transaction: LMDB holds the pages it changes in memory until the commit. */
#define WRITE_EVENTS_MAX 4096

static enum status write_once(struct local_store *s, local_write_fn fn, void *ctx, int *ret_rc,
                              struct error *err)
{
    MDB_envinfo before, after;
    MDB_txn *txn;
    mdb_env_info(s->env.env, &before);
    *ret_rc = mdb_txn_begin(s->env.env, NULL, 0, &txn);
    if (*ret_rc != 0)
        return OK;
    enum status st = fn(s, txn, ctx, ret_rc, err);
    if (st != OK || *ret_rc != 0) {
        mdb_txn_abort(txn);
        return st;
    }
    FAULT_POINT("toast-before-commit");
    *ret_rc = mdb_txn_commit(txn);
    FAULT_POINT("toast-after-commit");
    mdb_env_info(s->env.env, &after);
    if (after.me_last_txnid != before.me_last_txnid) /* a commit without changes makes none */
        s->env.unsynced = true;
    return OK;
}

enum status local_write(struct local_store *s, local_write_fn fn, void *ctx, struct error *err)
{
    for (;;) {
        int rc;
        TRY(write_once(s, fn, ctx, &rc, err));
        if (rc == 0)
            return OK;
        if (rc != MDB_MAP_FULL)
            return lmdb_env_write_error(&s->env, rc, err);
        pthread_rwlock_wrlock(&s->events.lock); /* no reader has the map */
        enum status st = lmdb_env_grow(&s->env, err);
        pthread_rwlock_unlock(&s->events.lock);
        TRY(st);
    }
}

struct tables {
    MDB_cursor *chunk, *row, *death, *reset;
};

static int open_cursors(const struct lmdb_env *e, MDB_txn *txn, struct tables *t)
{
    int rc = mdb_cursor_open(txn, e->chunk, &t->chunk);
    if (rc == 0)
        rc = mdb_cursor_open(txn, e->row, &t->row);
    if (rc == 0)
        rc = mdb_cursor_open(txn, e->death, &t->death);
    if (rc == 0)
        rc = mdb_cursor_open(txn, e->reset, &t->reset);
    return rc;
}

/* Adds a record; one that is there already stays, it says the same. */
static int add(MDB_cursor *cursor, MDB_val key, MDB_val value)
{
    int rc = mdb_cursor_put(cursor, &key, &value, MDB_NOOVERWRITE);
    return rc == MDB_KEYEXIST ? 0 : rc;
}

static int write_birth(struct tables *t, const struct toast_event *e)
{
    uint8_t chunk_bytes[CHUNK_KEY_BYTES], row_bytes[ROW_KEY_BYTES], place[ROW_VALUE_BYTES];
    struct chunk_key chunk = {e->owner, e->value_id, e->seq, e->lsn, e->tid};
    struct row_key row = {e->owner, e->tid, e->lsn, TOAST_BIRTH};
    MDB_val key = chunk_key_put(chunk_bytes, &chunk);
    MDB_val value = {CHUNK_HEAD_BYTES + e->len, NULL};
    uint32_t crc = crc32c(e->data, e->len);
    int rc = mdb_cursor_put(t->chunk, &key, &value, MDB_NOOVERWRITE | MDB_RESERVE);
    if (rc == MDB_KEYEXIST)
        return 0; /* so is its row, they are written together */
    if (rc != 0)
        return rc;
    memcpy(value.mv_data, &crc, CHUNK_HEAD_BYTES);
    memcpy((uint8_t *)value.mv_data + CHUNK_HEAD_BYTES, e->data, e->len);
    be_put(be_put(place, e->value_id, 4), e->seq, 4);
    return add(t->row, row_key_put(row_bytes, &row), (MDB_val){ROW_VALUE_BYTES, place});
}

static int write_death(struct tables *t, const struct toast_event *e)
{
    uint8_t row_bytes[ROW_KEY_BYTES], death_bytes[DEATH_KEY_BYTES];
    struct row_key row = {e->owner, e->tid, e->lsn, TOAST_DEATH};
    int rc = add(t->row, row_key_put(row_bytes, &row), (MDB_val){0, NULL});
    return rc != 0 ? rc
                   : add(t->death, death_key_put(death_bytes, e->lsn, e->owner, e->tid),
                         (MDB_val){0, NULL});
}

static int write_event(struct tables *t, const struct toast_event *e)
{
    uint8_t reset_bytes[RESET_KEY_BYTES];
    switch ((enum toast_event_kind)e->kind) {
    case TOAST_BIRTH:
        return write_birth(t, e);
    case TOAST_DEATH:
        return write_death(t, e);
    case TOAST_RESET:
        return add(t->reset, reset_key_put(reset_bytes, e->owner, e->lsn), (MDB_val){0, NULL});
    }
    return EINVAL;
}

struct run_of_events {
    const struct overlay_event *from, *end; /* end: first of the next transaction */
};

static enum status write_events(struct local_store *s, MDB_txn *txn, void *ctx, int *ret_rc,
                                struct error *err)
{
    struct run_of_events *run = ctx;
    const struct overlay_event *e = run->from;
    struct tables tables;
    (void)err;
    *ret_rc = open_cursors(&s->env, txn, &tables); /* closed with the transaction */
    for (unsigned n = 0; *ret_rc == 0 && e != NULL && n < WRITE_EVENTS_MAX; n++, e = e->next)
        *ret_rc = write_event(&tables, &e->event);
    run->end = e;
    return OK;
}

static enum status write_overlay(void *store, const struct overlay *writing, struct error *err)
{
    struct run_of_events run = {writing->first, NULL};
    while (run.from != NULL) {
        TRY(local_write(store, write_events, &run, err));
        run.from = run.end;
    }
    return OK;
}

static enum status local_put(struct toast_store *store, const struct toast_event *events, size_t n,
                             struct error *err)
{
    return toast_pending_put(&((struct local_store *)store)->events, events, n, err);
}

static enum status local_sync(struct toast_store *store, XLogRecPtr floor, struct error *err)
{
    struct local_store *s = (struct local_store *)store;
    pthread_mutex_lock(&s->events.write_lock);
    enum status st = toast_pending_flush(&s->events, floor, err);
    if (st == OK)
        st = lmdb_env_sync(&s->env, err);
    pthread_mutex_unlock(&s->events.write_lock);
    return st;
}

static enum status local_stats(struct toast_store *store, struct toast_stats *ret,
                               struct error *err)
{
    struct local_store *s = (struct local_store *)store;
    struct toast_stats stats = {
        .put_chunks = atomic_load(&s->events.put_chunks),
        .fetched_chunks = atomic_load(&s->fetched_chunks),
        .reclaimed_chunks = atomic_load(&s->reclaimed_chunks),
    };
    MDB_stat chunk = {0}, death = {0};
    MDB_txn *txn;
    stats.pending_bytes = toast_pending_bytes(&s->events);
    pthread_rwlock_rdlock(&s->events.lock);
    enum status st = lmdb_env_usage(&s->env, &stats.used_bytes, &stats.disk_bytes, err);
    int rc = st == OK ? mdb_txn_begin(s->env.env, NULL, MDB_RDONLY, &txn) : 0;
    if (st == OK && rc == 0) {
        if ((rc = mdb_stat(txn, s->env.chunk, &chunk)) == 0)
            rc = mdb_stat(txn, s->env.death, &death);
        mdb_txn_abort(txn);
    }
    pthread_rwlock_unlock(&s->events.lock);
    TRY(st);
    if (rc != 0)
        return lmdb_env_error(&s->env, rc, "cannot read", err);
    stats.chunks = chunk.ms_entries;
    stats.deaths = death.ms_entries;
    *ret = stats;
    return OK;
}

static void local_close(struct toast_store *store)
{
    struct local_store *s = (struct local_store *)store;
    for (unsigned i = 0; i < s->nread_txns; i++)
        mdb_txn_abort(s->read_txns[i]);
    lmdb_env_close(&s->env);
    toast_pending_fini(&s->events);
    pthread_mutex_destroy(&s->read_lock);
    free(s);
}

enum status toast_store_open_local(const struct toast_local_options *o,
                                   struct toast_store **ret_store, bool *ret_created,
                                   struct error *err)
{
    static const struct toast_store_ops ops = {
        local_put, local_fetch, local_sync, local_reclaim, local_stats, local_close,
    };
    struct local_store *s = xcalloc(1, sizeof *s);
    enum status st = lmdb_env_open(&s->env, o->dir, o->first_map_bytes, ret_created, err);
    if (st != OK) {
        free(s);
        return st;
    }
    s->base.ops = &ops;
    s->reclaim_rows_max = o->reclaim_rows_max == 0 ? RECLAIM_ROWS_MAX : o->reclaim_rows_max;
    toast_pending_init(&s->events, o->pending_bytes_max, write_overlay, s);
    pthread_mutex_init(&s->read_lock, NULL);
    *ret_store = &s->base;
    return OK;
}
