/* The store of `toast.mode = clickhouse`: a table for each owner in a destination's database.
 *
 *   walshadow_toast_<owner> (value_id UInt32, seq UInt32, tid UInt64, born UInt64, died UInt64,
 *     data String) ENGINE = ReplacingMergeTree(died) ORDER BY (value_id, seq, tid, born)
 *
 * A row is a fact and never changed: a birth has died 0; a death, whose record names nothing but a
 * TID, has value_id 0 (no value has that), seq SEQ_DEATH, born = died = its LSN and no data; a
 * reset the same with seq SEQ_RESET and tid 0. What is written again is the same row, of which
 * merges keep one. */
#pragma once
#include "clickhouse/client.h"
#include "toast/pending.h"
#include "toast/store_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <uthash.h>

#define TOAST_TABLE_PREFIX "walshadow_toast_"
#define SEQ_DEATH 4294967295u
#define SEQ_RESET 4294967294u
#define CLIENTS_MAX 16

struct clickhouse_owner {
    Oid oid;
    uint64_t ends;    /* deaths and resets that may be stored, to be reclaimed one day */
    uint64_t look_ns; /* not before */
    UT_hash_handle hh;
};

struct clickhouse_store {
    struct toast_store base;
    struct ch_endpoint endpoint;
    char *database, *comment;
    uint64_t reclaim_pause_ns;
    void *ctx;
    bool (*stopping)(void *ctx);
    struct block_header *header;

    struct toast_pending events;     /* its write_lock guards owners too */
    struct clickhouse_owner *owners; /* whose table is there */

    pthread_mutex_t clients_lock; /* guards idle connections */
    struct ch_client *clients[CLIENTS_MAX];
    unsigned nclients;

    atomic_uint_fast64_t fetched_chunks, reclaimed_chunks;
};

typedef enum status (*clickhouse_fn)(struct clickhouse_store *s, struct ch_client *c, void *ctx,
                                     struct error *err);
/* Runs fn on a connection, again and again while the server cannot be reached. ERR_CANCELLED once
 * the program stops. */
enum status clickhouse_run(struct clickhouse_store *s, clickhouse_fn fn, void *ctx,
                           struct error *err) CHECKED;
enum status clickhouse_execute(struct clickhouse_store *s, const char *sql,
                               struct error *err) CHECKED;
enum status clickhouse_select(struct clickhouse_store *s, const char *sql, ch_row_fn fn, void *ctx,
                              struct error *err) CHECKED;
/* `database`.`walshadow_toast_1`, appended. */
void clickhouse_put_table(const struct clickhouse_store *s, Oid owner, struct buf *sql);
/* The owner's table goes, and o with it. The caller holds write_lock. */
enum status clickhouse_owner_drop(struct clickhouse_store *s, struct clickhouse_owner *o,
                                  struct error *err) CHECKED;
/* The statement met a table that is not there: nothing was ever put for its owner. */
bool clickhouse_table_missing(const struct error *err);

enum status clickhouse_fetch(struct toast_store *store, struct toast_request *requests, size_t n,
                             struct error *err) CHECKED;
enum status clickhouse_reclaim(struct toast_store *store, XLogRecPtr floor,
                               struct error *err) CHECKED;
enum status clickhouse_stats(struct toast_store *store, struct toast_stats *ret,
                             struct error *err) CHECKED;
