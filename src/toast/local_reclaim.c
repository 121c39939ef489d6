/* Taking away what died before the floor: by deaths in the order of their LSN, then by resets,
 * owner by owner. Each transaction is bounded; what it leaves, the next one does. */
#include "toast/local.h"

/* Rows that a transaction may look at without taking them away, by rows it may take away. */
#define LOOK_PER_ROW 64
#define HOLES_MAX 16384u
#define HOLES_WORTH_BYTES ((uint64_t)4 << 20)

struct reclaim {
    XLogRecPtr floor;
    unsigned left, looks; /* rows in this transaction */
    uint64_t chunks;      /* taken away in it */
    bool done;
    /* resets: where this transaction begins, and where the next one will */
    struct row_key from, next;
    bool resumes, next_resumes;
};

struct cursors {
    MDB_cursor *row;
    MDB_txn *txn;
    const struct lmdb_env *env;
};

static int drop_key(const struct cursors *c, MDB_dbi dbi, MDB_val key)
{
    int rc = mdb_del(c->txn, dbi, &key, NULL);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* Takes away the row at the cursor, and its chunk or its place among the deaths. */
static enum status drop_row(struct reclaim *r, const struct cursors *c, const struct row_key *row,
                            const MDB_val *value, int *ret_rc, struct error *err)
{
    uint8_t bytes[CHUNK_KEY_BYTES];
    if (row->kind == TOAST_BIRTH) {
        struct chunk_key chunk = {.owner = row->owner, .born = row->lsn, .tid = row->tid};
        if (!row_value_get(value, &chunk.value_id, &chunk.seq))
            return lmdb_env_damaged(c->env, "a row's record", err);
        *ret_rc = drop_key(c, c->env->chunk, chunk_key_put(bytes, &chunk));
        r->chunks++;
    } else {
        *ret_rc = drop_key(c, c->env->death, death_key_put(bytes, row->lsn, row->owner, row->tid));
    }
    if (*ret_rc == 0)
        *ret_rc = mdb_cursor_del(c->row, 0);
    r->left -= r->left > 0;
    return OK;
}

/* Takes away the rows of one TID up to its death. */
static enum status drop_dead_tid(struct reclaim *r, const struct cursors *c,
                                 const struct row_key *death, int *ret_rc, struct error *err)
{
    uint8_t bytes[ROW_KEY_BYTES];
    struct row_key row = {.owner = death->owner, .tid = death->tid};
    MDB_val key = row_key_put(bytes, &row), value;
    *ret_rc = mdb_cursor_get(c->row, &key, &value, MDB_SET_RANGE);
    while (*ret_rc == 0) {
        if (!row_key_get(&key, &row))
            return lmdb_env_damaged(c->env, "a row's record", err);
        if (row.owner != death->owner || row.tid != death->tid || row.lsn > death->lsn)
            break;
        TRY(drop_row(r, c, &row, &value, ret_rc, err));
        if (*ret_rc == 0)
            *ret_rc = mdb_cursor_get(c->row, &key, &value, MDB_NEXT);
    }
    if (*ret_rc == MDB_NOTFOUND)
        *ret_rc = 0;
    return OK;
}

static enum status reclaim_deaths(struct local_store *s, MDB_txn *txn, void *ctx, int *ret_rc,
                                  struct error *err)
{
    struct reclaim *r = ctx;
    struct cursors c = {.txn = txn, .env = &s->env};
    MDB_cursor *deaths; /* closed, like all of a write transaction, with it */
    MDB_val key, value;
    uint8_t bytes[DEATH_KEY_BYTES];
    r->left = s->reclaim_rows_max;
    r->chunks = 0;
    *ret_rc = mdb_cursor_open(txn, s->env.row, &c.row);
    if (*ret_rc == 0)
        *ret_rc = mdb_cursor_open(txn, s->env.death, &deaths);
    while (*ret_rc == 0 && r->left > 0) {
        struct row_key death;
        *ret_rc = mdb_cursor_get(deaths, &key, &value, MDB_FIRST);
        if (*ret_rc != 0)
            break;
        if (!death_key_get(&key, &death))
            return lmdb_env_damaged(&s->env, "a death's record", err);
        if (death.lsn >= r->floor)
            break;
        TRY(drop_dead_tid(r, &c, &death, ret_rc, err));
        if (*ret_rc == 0)
            *ret_rc =
                drop_key(&c, s->env.death, death_key_put(bytes, death.lsn, death.owner, death.tid));
    }
    if (*ret_rc == MDB_NOTFOUND)
        *ret_rc = 0;
    r->done = r->left > 0;
    return OK;
}

/* The first owner, from `owner` on, with a reset before the floor; *ret_lsn: its newest such one.
 */
static enum status next_reset(struct local_store *s, MDB_cursor *resets, Oid owner,
                              XLogRecPtr floor, Oid *ret_owner, XLogRecPtr *ret_lsn, int *ret_rc,
                              struct error *err)
{
    uint8_t bytes[RESET_KEY_BYTES];
    MDB_val key = reset_key_put(bytes, owner, 0), value;
    *ret_lsn = 0;
    *ret_rc = mdb_cursor_get(resets, &key, &value, MDB_SET_RANGE);
    for (; *ret_rc == 0; *ret_rc = mdb_cursor_get(resets, &key, &value, MDB_NEXT)) {
        XLogRecPtr lsn;
        Oid of;
        if (!reset_key_get(&key, &of, &lsn))
            return lmdb_env_damaged(&s->env, "a reset's record", err);
        if (*ret_lsn != 0 && of != *ret_owner)
            break;
        if (lsn < floor) {
            *ret_owner = of;
            *ret_lsn = MAX(lsn, 1);
        }
    }
    if (*ret_rc == MDB_NOTFOUND)
        *ret_rc = 0;
    return OK;
}

/* Rows of an owner born before its reset, from r->from on; *ret_all: none is left. */
static enum status drop_owner_rows(struct reclaim *r, const struct cursors *c, XLogRecPtr reset,
                                   bool *ret_all, int *ret_rc, struct error *err)
{
    uint8_t bytes[ROW_KEY_BYTES];
    struct row_key row = r->from;
    MDB_val key = row_key_put(bytes, &row), value;
    *ret_all = false;
    *ret_rc = mdb_cursor_get(c->row, &key, &value, MDB_SET_RANGE);
    while (*ret_rc == 0) {
        if (!row_key_get(&key, &row))
            return lmdb_env_damaged(c->env, "a row's record", err);
        if (row.owner != r->from.owner) {
            *ret_all = true;
            return OK;
        }
        if (r->left == 0 || r->looks == 0) {
            r->next = row;
            r->next_resumes = true;
            return OK;
        }
        r->looks--;
        if (row.lsn < reset)
            TRY(drop_row(r, c, &row, &value, ret_rc, err));
        if (*ret_rc == 0)
            *ret_rc = mdb_cursor_get(c->row, &key, &value, MDB_NEXT);
    }
    if (*ret_rc == MDB_NOTFOUND) {
        *ret_rc = 0;
        *ret_all = true;
    }
    return OK;
}

static int drop_resets(MDB_cursor *resets, Oid owner, XLogRecPtr through)
{
    uint8_t bytes[RESET_KEY_BYTES];
    MDB_val key = reset_key_put(bytes, owner, 0), value;
    int rc = mdb_cursor_get(resets, &key, &value, MDB_SET_RANGE);
    for (; rc == 0; rc = mdb_cursor_get(resets, &key, &value, MDB_NEXT)) {
        XLogRecPtr lsn;
        Oid of;
        if (!reset_key_get(&key, &of, &lsn) || of != owner || lsn > through)
            return 0;
        if ((rc = mdb_cursor_del(resets, 0)) != 0)
            return rc;
    }
    return rc == MDB_NOTFOUND ? 0 : rc;
}

static enum status reclaim_resets(struct local_store *s, MDB_txn *txn, void *ctx, int *ret_rc,
                                  struct error *err)
{
    struct reclaim *r = ctx;
    struct cursors c = {.txn = txn, .env = &s->env};
    MDB_cursor *resets;
    XLogRecPtr lsn;
    Oid owner = 0;
    bool all = false;
    r->left = s->reclaim_rows_max;
    r->looks = s->reclaim_rows_max * LOOK_PER_ROW;
    r->chunks = 0;
    r->next_resumes = false;
    r->done = false;
    *ret_rc = mdb_cursor_open(txn, s->env.row, &c.row);
    if (*ret_rc == 0)
        *ret_rc = mdb_cursor_open(txn, s->env.reset, &resets);
    if (*ret_rc != 0)
        return OK;
    TRY(next_reset(s, resets, r->resumes ? r->from.owner : 0, r->floor, &owner, &lsn, ret_rc, err));
    if (*ret_rc != 0)
        return OK;
    if (lsn == 0) {
        r->done = true;
        return OK;
    }
    if (!r->resumes || r->from.owner != owner)
        r->from = (struct row_key){.owner = owner};
    TRY(drop_owner_rows(r, &c, lsn, &all, ret_rc, err));
    if (*ret_rc == 0 && all)
        *ret_rc = drop_resets(resets, owner, lsn);
    return OK;
}

/* One transaction after the other, the write lock given up between them. */
static enum status run(struct local_store *s, local_write_fn fn, XLogRecPtr floor,
                       struct error *err)
{
    struct reclaim r = {.floor = floor};
    while (!r.done) {
        pthread_mutex_lock(&s->events.write_lock);
        enum status st = local_write(s, fn, &r, err);
        s->freed |= st == OK && r.chunks > 0;
        pthread_mutex_unlock(&s->events.write_lock);
        TRY(st);
        atomic_fetch_add(&s->reclaimed_chunks, r.chunks);
        r.from = r.next;
        r.resumes = r.next_resumes;
    }
    return OK;
}

static enum status give_room_back(struct local_store *s, struct error *err)
{
    uint64_t used, disk;
    pthread_mutex_lock(&s->events.write_lock);
    enum status st = s->freed ? lmdb_env_usage(&s->env, &used, &disk, err) : OK;
    if (st == OK && s->freed && disk > used && disk - used >= HOLES_WORTH_BYTES &&
        disk - used >= disk / 4) {
        /* fetches that began before the last transaction end; no other begins one meanwhile */
        pthread_rwlock_wrlock(&s->events.lock);
        pthread_rwlock_unlock(&s->events.lock);
        st = lmdb_env_punch(&s->env, HOLES_MAX, err);
        s->freed = st != OK || s->env.punched_through != 0;
    }
    pthread_mutex_unlock(&s->events.write_lock);
    return st;
}

enum status local_reclaim(struct toast_store *store, XLogRecPtr floor, struct error *err)
{
    struct local_store *s = (struct local_store *)store;
    TRY(run(s, reclaim_deaths, floor, err));
    TRY(run(s, reclaim_resets, floor, err));
    return give_room_back(s, err);
}
