#include "toast/store_internal.h"

#include <inttypes.h>

static enum status check_event(const struct toast_event *e, struct error *err)
{
    if (e->kind < TOAST_BIRTH || e->kind > TOAST_RESET || e->tid >> 48 != 0)
        return error_lsn(err, ERR_BUG, e->lsn, "TOAST event %u of TID %" PRIx64, e->kind, e->tid);
    if (e->kind == TOAST_BIRTH && (e->len == 0 || e->len > TOAST_CHUNK_BYTES_MAX))
        return error_lsn(err, ERR_DATA, e->lsn, "TOAST value %u: a chunk of %u bytes", e->value_id,
                         e->len);
    return OK;
}

enum status toast_store_put(struct toast_store *store, const struct toast_event *events, size_t n,
                            struct error *err)
{
    for (size_t i = 0; i < n; i++)
        TRY(check_event(&events[i], err));
    return n == 0 ? OK : store->ops->put(store, events, n, err);
}

enum status toast_store_fetch(struct toast_store *store, struct toast_request *requests, size_t n,
                              struct error *err)
{
    for (size_t i = 0; i < n; i++)
        requests[i].found = TOAST_UNANSWERED;
    return n == 0 ? OK : store->ops->fetch(store, requests, n, err);
}

enum status toast_store_sync(struct toast_store *store, XLogRecPtr floor, struct error *err)
{
    return store->ops->sync(store, floor, err);
}

enum status toast_store_reclaim(struct toast_store *store, XLogRecPtr floor, struct error *err)
{
    return store->ops->reclaim(store, floor, err);
}

enum status toast_store_stats(struct toast_store *store, struct toast_stats *ret, struct error *err)
{
    return store->ops->stats(store, ret, err);
}

struct toast_store *toast_store_close(struct toast_store *store)
{
    if (store != NULL)
        store->ops->close(store);
    return NULL;
}
