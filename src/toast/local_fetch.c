/* A value as of an LSN: chunk by chunk, the newest version that is alive there, from the file and
 * from what is not written yet. */
#include "toast/local.h"
#include "base/crc32c.h"

struct fetch {
    struct local_store *s;
    MDB_cursor *chunk, *row;
    Oid owner, value_id;
    XLogRecPtr lsn;
    XLogRecPtr reset;     /* births before it are gone */
    struct chunk_key key; /* where the chunk cursor is */
    MDB_val data;
    bool at_end; /* the chunk cursor is behind the value */
    unsigned fetched;
};

struct version {
    XLogRecPtr born;
    const uint8_t *data; /* NULL: none */
    size_t len;
    bool has_crc;
    uint32_t crc;
};

/* Moves a cursor; *ret_found: there is a record. */
static enum status seek(struct fetch *f, MDB_cursor *cursor, MDB_val *key, MDB_val *data,
                        MDB_cursor_op op, bool *ret_found, struct error *err)
{
    int rc = mdb_cursor_get(cursor, key, data, op);
    *ret_found = rc == 0;
    return rc == 0 || rc == MDB_NOTFOUND ? OK : lmdb_env_error(&f->s->env, rc, "cannot read", err);
}

/* Moves the chunk cursor: to the value's first chunk (MDB_SET_RANGE) or on (MDB_NEXT). */
static enum status chunk_move(struct fetch *f, MDB_cursor_op op, struct error *err)
{
    uint8_t bytes[CHUNK_KEY_BYTES];
    struct chunk_key from = {.owner = f->owner, .value_id = f->value_id};
    MDB_val key = chunk_key_put(bytes, &from);
    bool found;
    TRY(seek(f, f->chunk, &key, &f->data, op, &found, err));
    if (found && (!chunk_key_get(&key, &f->key) || f->data.mv_size <= CHUNK_HEAD_BYTES))
        return lmdb_env_damaged(&f->s->env, "a chunk's record", err);
    f->at_end = !found || f->key.owner != f->owner || f->key.value_id != f->value_id;
    return OK;
}

/* A death of the TID, written already, lies in (born, f->lsn]. */
static enum status has_stored_death(struct fetch *f, uint64_t tid, XLogRecPtr born, bool *ret,
                                    struct error *err)
{
    uint8_t bytes[ROW_KEY_BYTES];
    struct row_key row = {f->owner, tid, born + 1, 0};
    MDB_val key = row_key_put(bytes, &row), data;
    bool found;
    *ret = false;
    TRY(seek(f, f->row, &key, &data, MDB_SET_RANGE, &found, err));
    while (found) {
        if (!row_key_get(&key, &row))
            return lmdb_env_damaged(&f->s->env, "a row's record", err);
        if (row.owner != f->owner || row.tid != tid || row.lsn > f->lsn)
            break;
        if (row.kind == TOAST_DEATH) {
            *ret = true;
            break;
        }
        TRY(seek(f, f->row, &key, &data, MDB_NEXT, &found, err));
    }
    return OK;
}

static enum status is_alive(struct fetch *f, uint64_t tid, XLogRecPtr born, bool *ret,
                            struct error *err)
{
    *ret = false;
    if (born > f->lsn || born < f->reset ||
        overlay_has_death(f->s->events.pending, f->owner, tid, born, f->lsn) ||
        overlay_has_death(f->s->events.writing, f->owner, tid, born, f->lsn))
        return OK;
    bool dead;
    TRY(has_stored_death(f, tid, born, &dead, err));
    *ret = !dead;
    return OK;
}

static enum status look_at_overlay(struct fetch *f, const struct overlay *o, uint32_t seq,
                                   struct version *best, struct error *err)
{
    const struct overlay_event *e = overlay_births(o, f->owner, f->value_id, seq);
    for (; e != NULL; e = e->same) {
        bool alive;
        if (best->data != NULL && e->event.lsn <= best->born)
            continue;
        TRY(is_alive(f, e->event.tid, e->event.lsn, &alive, err));
        if (alive)
            *best = (struct version){e->event.lsn, e->event.data, e->event.len, false, 0};
    }
    return OK;
}

/* The newest version of chunk seq that is alive; the cursor goes past it. */
static enum status chunk_version(struct fetch *f, uint32_t seq, struct version *ret,
                                 struct error *err)
{
    *ret = (struct version){0};
    while (!f->at_end && f->key.seq <= seq) {
        bool alive = false;
        if (f->key.seq == seq)
            TRY(is_alive(f, f->key.tid, f->key.born, &alive, err));
        if (alive) { /* versions come in the order of their birth */
            const uint8_t *data = f->data.mv_data;
            *ret = (struct version){f->key.born, data + CHUNK_HEAD_BYTES,
                                    f->data.mv_size - CHUNK_HEAD_BYTES, true, 0};
            memcpy(&ret->crc, data, CHUNK_HEAD_BYTES);
        }
        TRY(chunk_move(f, MDB_NEXT, err));
    }
    TRY(look_at_overlay(f, f->s->events.writing, seq, ret, err));
    return look_at_overlay(f, f->s->events.pending, seq, ret, err);
}

static enum status assemble(struct fetch *f, uint32_t extsize, uint8_t *ret,
                            enum toast_found *ret_found, struct error *err)
{
    uint64_t have = 0;
    TRY(chunk_move(f, MDB_SET_RANGE, err));
    for (uint32_t seq = 0;; seq++) {
        struct version v;
        TRY(chunk_version(f, seq, &v, err));
        if (v.data == NULL) {
            *ret_found = seq == 0          ? TOAST_MISSING
                         : have == extsize ? TOAST_FOUND
                                           : TOAST_INCOMPLETE;
            return OK;
        }
        if (v.len > extsize - have) {
            *ret_found = TOAST_INCOMPLETE;
            return OK;
        }
        if (ret != NULL) {
            if (v.has_crc && crc32c(v.data, v.len) != v.crc)
                return error_lsn(err, ERR_DATA, v.born,
                                 "TOAST store %s: data.mdb is damaged: checksum of value %u, "
                                 "chunk %u, of table %u",
                                 f->s->env.dir, f->value_id, seq, f->owner);
            memcpy(ret + have, v.data, v.len);
        }
        have += v.len;
        f->fetched += ret != NULL;
    }
}

/* The newest reset of the owner at or before f->lsn. */
static enum status find_reset(struct fetch *f, MDB_txn *txn, struct error *err)
{
    uint8_t bytes[RESET_KEY_BYTES];
    MDB_val key = reset_key_put(bytes, f->owner, f->lsn + 1), data;
    MDB_cursor *cursor;
    XLogRecPtr lsn = 0;
    Oid owner;
    bool found;
    f->reset = MAX(overlay_reset_before(f->s->events.pending, f->owner, f->lsn),
                   overlay_reset_before(f->s->events.writing, f->owner, f->lsn));
    int rc = mdb_cursor_open(txn, f->s->env.reset, &cursor);
    if (rc != 0)
        return lmdb_env_error(&f->s->env, rc, "cannot read", err);
    enum status st = seek(f, cursor, &key, &data, MDB_SET_RANGE, &found, err);
    if (st == OK)
        st = seek(f, cursor, &key, &data, found ? MDB_PREV : MDB_LAST, &found, err);
    if (st == OK && found) {
        if (!reset_key_get(&key, &owner, &lsn))
            st = lmdb_env_damaged(&f->s->env, "a reset's record", err);
        else if (owner == f->owner)
            f->reset = MAX(f->reset, lsn);
    }
    mdb_cursor_close(cursor);
    return st;
}

static enum status fetch_one(struct local_store *s, MDB_txn *txn, MDB_cursor *chunk,
                             MDB_cursor *row, struct toast_request *q, struct error *err)
{
    struct fetch f = {
        .s = s, .chunk = chunk, .row = row, .owner = q->owner, .value_id = q->value_id};
    f.lsn = MIN(q->lsn, UINT64_MAX - 1); /* so that there is one after it */
    TRY(find_reset(&f, txn, err));
    TRY(assemble(&f, q->extsize, q->ret, &q->found, err));
    atomic_fetch_add_explicit(&s->fetched_chunks, f.fetched, memory_order_relaxed);
    return OK;
}

static enum status fetch_in(struct local_store *s, MDB_txn *txn, struct toast_request *requests,
                            size_t n, struct error *err)
{
    MDB_cursor *chunk, *row;
    int rc = mdb_cursor_open(txn, s->env.chunk, &chunk);
    if (rc == 0 && (rc = mdb_cursor_open(txn, s->env.row, &row)) != 0)
        mdb_cursor_close(chunk);
    if (rc != 0)
        return lmdb_env_error(&s->env, rc, "cannot read", err);
    enum status st = OK;
    for (size_t i = 0; i < n && st == OK; i++)
        st = fetch_one(s, txn, chunk, row, &requests[i], err);
    mdb_cursor_close(chunk);
    mdb_cursor_close(row);
    return st;
}

static int read_begin(struct local_store *s, MDB_txn **ret)
{
    MDB_txn *txn = NULL;
    pthread_mutex_lock(&s->read_lock);
    if (s->nread_txns > 0)
        txn = s->read_txns[--s->nread_txns];
    pthread_mutex_unlock(&s->read_lock);
    if (txn == NULL)
        return mdb_txn_begin(s->env.env, NULL, MDB_RDONLY, ret);
    int rc = mdb_txn_renew(txn);
    if (rc != 0)
        mdb_txn_abort(txn);
    *ret = txn;
    return rc;
}

static void read_end(struct local_store *s, MDB_txn *txn)
{
    mdb_txn_reset(txn);
    pthread_mutex_lock(&s->read_lock);
    bool keep = s->nread_txns < READ_TXNS_MAX;
    if (keep)
        s->read_txns[s->nread_txns++] = txn;
    pthread_mutex_unlock(&s->read_lock);
    if (!keep)
        mdb_txn_abort(txn);
}

enum status local_fetch(struct toast_store *store, struct toast_request *requests, size_t n,
                        struct error *err)
{
    struct local_store *s = (struct local_store *)store;
    MDB_txn *txn;
    enum status st;
    pthread_rwlock_rdlock(&s->events.lock);
    int rc = read_begin(s, &txn);
    if (rc != 0) {
        st = lmdb_env_error(&s->env, rc, "cannot begin", err);
    } else {
        st = fetch_in(s, txn, requests, n, err);
        read_end(s, txn);
    }
    pthread_rwlock_unlock(&s->events.lock);
    return st;
}
