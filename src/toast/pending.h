/* What a store has been given and has not written yet: a set of events that grows while the one
 * before it is being written. */
#pragma once
#include "toast/overlay.h"

#include <pthread.h>
#include <stdatomic.h>

struct toast_pending {
    /* Read-locked through a fetch, write-locked to change the overlays (a store may guard more with
     * it): what a fetch does not find in them is written. */
    pthread_rwlock_t lock;
    struct overlay *pending; /* newest events */
    struct overlay *writing; /* older ones, on their way; empty otherwise */
    struct overlay overlays[2];

    pthread_mutex_t write_lock; /* held by who writes or reclaims. Before lock. */

    size_t bytes_max; /* put writes from here on */
    /* Writes the events of `writing`, in any order, again after a failure. */
    enum status (*write)(void *ctx, const struct overlay *writing, struct error *err);
    void *ctx;
    atomic_uint_fast64_t put_chunks;
};

/* bytes_max 0: 8 MiB. */
void toast_pending_init(struct toast_pending *p, size_t bytes_max,
                        enum status (*write)(void *ctx, const struct overlay *writing,
                                             struct error *err),
                        void *ctx);
void toast_pending_fini(struct toast_pending *p);

/* As toast_store_put. */
enum status toast_pending_put(struct toast_pending *p, const struct toast_event *events, size_t n,
                              struct error *err) CHECKED;
/* If an event before floor is not written: everything put before the call is, afterwards. The
 * caller holds write_lock. */
enum status toast_pending_flush(struct toast_pending *p, XLogRecPtr floor,
                                struct error *err) CHECKED;
size_t toast_pending_bytes(struct toast_pending *p); /* takes lock */
