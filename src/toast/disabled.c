/* The store of `toast.mode = disabled`: values of earlier transactions are not known. */
#include "toast/store_internal.h"

static enum status put_nothing(struct toast_store *store, const struct toast_event *events,
                               size_t n, struct error *err)
{
    (void)store, (void)events, (void)n, (void)err;
    return OK;
}

static enum status fetch_nothing(struct toast_store *store, struct toast_request *requests,
                                 size_t n, struct error *err)
{
    (void)store, (void)err;
    for (size_t i = 0; i < n; i++)
        requests[i].found = TOAST_MISSING;
    return OK;
}

static enum status nothing_at(struct toast_store *store, XLogRecPtr floor, struct error *err)
{
    (void)store, (void)floor, (void)err;
    return OK;
}

static enum status no_stats(struct toast_store *store, struct toast_stats *ret, struct error *err)
{
    (void)store, (void)err;
    *ret = (struct toast_stats){0};
    return OK;
}

static void close_nothing(struct toast_store *store)
{
    (void)store; /* static */
}

struct toast_store *toast_store_open_disabled(void)
{
    static const struct toast_store_ops ops = {
        put_nothing, fetch_nothing, nothing_at, nothing_at, no_stats, close_nothing,
    };
    static struct toast_store store = {&ops};
    return &store;
}
