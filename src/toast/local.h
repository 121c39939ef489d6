/* The local store: LMDB under the state directory, with what is not written yet in memory. */
#pragma once
#include "toast/lmdb_env.h"
#include "toast/pending.h"
#include "toast/store_internal.h"

#include <stdatomic.h>

#define READ_TXNS_MAX 64

struct local_store {
    struct toast_store base;
    unsigned reclaim_rows_max;

    /* Its lock guards the address of the map too, its write_lock LMDB's write transactions and
     * env.unsynced. */
    struct toast_pending events;
    struct lmdb_env env;
    bool freed; /* pages since holes were punched */

    pthread_mutex_t read_lock; /* guards read_txns: reset read transactions to use again */
    MDB_txn *read_txns[READ_TXNS_MAX];
    unsigned nread_txns;

    atomic_uint_fast64_t fetched_chunks, reclaimed_chunks;
};

/* Runs fn in a write transaction and commits; if the map is full, grows it and runs fn again. The
 * caller holds write_lock; fn returns an LMDB code in *ret_rc, or fails with err. */
typedef enum status (*local_write_fn)(struct local_store *s, MDB_txn *txn, void *ctx, int *ret_rc,
                                      struct error *err);
enum status local_write(struct local_store *s, local_write_fn fn, void *ctx,
                        struct error *err) CHECKED;

enum status local_fetch(struct toast_store *store, struct toast_request *requests, size_t n,
                        struct error *err) CHECKED;
enum status local_reclaim(struct toast_store *store, XLogRecPtr floor, struct error *err) CHECKED;
