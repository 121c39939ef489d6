/* Keys of the local store's tables: big-endian fields, so that LMDB's byte order is theirs.
 *
 *   chunk  owner 4, value_id 4, seq 4, born 8, tid 6     crc32c of the data 4, data
 *   row    owner 4, tid 6, lsn 8, kind 1                 birth: value_id 4, seq 4; death: nothing
 *   death  lsn 8, owner 4, tid 6                         nothing: deaths by age, for reclaim
 *   reset  owner 4, lsn 8                                nothing
 *   meta   "format"                                      version 4
 *
 * With 1,996 bytes of data, what PostgreSQL's 8 KiB pages give a chunk, two chunks fill a 4 KiB
 * page. */
#pragma once
#include "toast/store.h"

#include <lmdb.h>

#define CHUNK_KEY_BYTES 26
#define CHUNK_HEAD_BYTES 4
#define ROW_KEY_BYTES 19
#define ROW_VALUE_BYTES 8
#define DEATH_KEY_BYTES 18
#define RESET_KEY_BYTES 12

struct chunk_key {
    Oid owner, value_id;
    uint32_t seq;
    XLogRecPtr born;
    uint64_t tid;
};

struct row_key {
    Oid owner;
    uint64_t tid;
    XLogRecPtr lsn;
    uint8_t kind; /* TOAST_BIRTH, TOAST_DEATH */
};

static inline uint8_t *be_put(uint8_t *at, uint64_t v, unsigned bytes)
{
    for (unsigned i = bytes; i-- > 0; v >>= 8)
        at[i] = (uint8_t)v;
    return at + bytes;
}

static inline uint64_t be_get(const uint8_t **at, unsigned bytes)
{
    uint64_t v = 0;
    while (bytes-- > 0)
        v = v << 8 | *(*at)++;
    return v;
}

static inline MDB_val chunk_key_put(uint8_t out[CHUNK_KEY_BYTES], const struct chunk_key *k)
{
    uint8_t *at = be_put(out, k->owner, 4);
    at = be_put(at, k->value_id, 4);
    at = be_put(at, k->seq, 4);
    at = be_put(at, k->born, 8);
    be_put(at, k->tid, 6);
    return (MDB_val){CHUNK_KEY_BYTES, out};
}

static inline bool chunk_key_get(const MDB_val *v, struct chunk_key *ret)
{
    const uint8_t *at = v->mv_data;
    if (v->mv_size != CHUNK_KEY_BYTES)
        return false;
    ret->owner = (Oid)be_get(&at, 4);
    ret->value_id = (Oid)be_get(&at, 4);
    ret->seq = (uint32_t)be_get(&at, 4);
    ret->born = be_get(&at, 8);
    ret->tid = be_get(&at, 6);
    return true;
}

static inline MDB_val row_key_put(uint8_t out[ROW_KEY_BYTES], const struct row_key *k)
{
    uint8_t *at = be_put(out, k->owner, 4);
    at = be_put(at, k->tid, 6);
    at = be_put(at, k->lsn, 8);
    be_put(at, k->kind, 1);
    return (MDB_val){ROW_KEY_BYTES, out};
}

static inline bool row_key_get(const MDB_val *v, struct row_key *ret)
{
    const uint8_t *at = v->mv_data;
    if (v->mv_size != ROW_KEY_BYTES)
        return false;
    ret->owner = (Oid)be_get(&at, 4);
    ret->tid = be_get(&at, 6);
    ret->lsn = be_get(&at, 8);
    ret->kind = (uint8_t)be_get(&at, 1);
    return true;
}

static inline bool row_value_get(const MDB_val *v, Oid *ret_value_id, uint32_t *ret_seq)
{
    const uint8_t *at = v->mv_data;
    if (v->mv_size != ROW_VALUE_BYTES)
        return false;
    *ret_value_id = (Oid)be_get(&at, 4);
    *ret_seq = (uint32_t)be_get(&at, 4);
    return true;
}

static inline MDB_val death_key_put(uint8_t out[DEATH_KEY_BYTES], XLogRecPtr lsn, Oid owner,
                                    uint64_t tid)
{
    be_put(be_put(be_put(out, lsn, 8), owner, 4), tid, 6);
    return (MDB_val){DEATH_KEY_BYTES, out};
}

static inline bool death_key_get(const MDB_val *v, struct row_key *ret)
{
    const uint8_t *at = v->mv_data;
    if (v->mv_size != DEATH_KEY_BYTES)
        return false;
    ret->lsn = be_get(&at, 8);
    ret->owner = (Oid)be_get(&at, 4);
    ret->tid = be_get(&at, 6);
    ret->kind = TOAST_DEATH;
    return true;
}

static inline MDB_val reset_key_put(uint8_t out[RESET_KEY_BYTES], Oid owner, XLogRecPtr lsn)
{
    be_put(be_put(out, owner, 4), lsn, 8);
    return (MDB_val){RESET_KEY_BYTES, out};
}

static inline bool reset_key_get(const MDB_val *v, Oid *ret_owner, XLogRecPtr *ret_lsn)
{
    const uint8_t *at = v->mv_data;
    if (v->mv_size != RESET_KEY_BYTES)
        return false;
    *ret_owner = (Oid)be_get(&at, 4);
    *ret_lsn = be_get(&at, 8);
    return true;
}
