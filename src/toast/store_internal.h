/* What a chunk store implements. */
#pragma once
#include "toast/store.h"

struct toast_store_ops {
    enum status (*put)(struct toast_store *store, const struct toast_event *events, size_t n,
                       struct error *err);
    /* every request is TOAST_UNANSWERED before */
    enum status (*fetch)(struct toast_store *store, struct toast_request *requests, size_t n,
                         struct error *err);
    enum status (*sync)(struct toast_store *store, XLogRecPtr floor, struct error *err);
    enum status (*reclaim)(struct toast_store *store, XLogRecPtr floor, struct error *err);
    enum status (*stats)(struct toast_store *store, struct toast_stats *ret, struct error *err);
    void (*close)(struct toast_store *store);
};

/* First member of every implementation. */
struct toast_store {
    const struct toast_store_ops *ops;
};
