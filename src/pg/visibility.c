#include "pg/visibility.h"

#define HEAP_XMAX_KEYSHR_LOCK 0x0010
#define HEAP_XMAX_EXCL_LOCK 0x0040
#define HEAP_XMAX_LOCK_ONLY 0x0080
#define HEAP_XMIN_COMMITTED 0x0100
#define HEAP_XMIN_INVALID 0x0200
#define HEAP_XMAX_COMMITTED 0x0400
#define HEAP_XMAX_INVALID 0x0800
#define HEAP_XMAX_IS_MULTI 0x1000
#define HEAP_MOVED 0xc000

static enum xid_fate xmin_fate(const struct page_tuple *t, xid_fate_fn fate, void *ctx)
{
    uint16_t bits = t->raw.infomask & (HEAP_XMIN_COMMITTED | HEAP_XMIN_INVALID);
    if (bits == HEAP_XMIN_COMMITTED)
        return FATE_COMMITTED;
    /* a super-deleted speculative tuple has xmin 0 */
    if (bits == HEAP_XMIN_INVALID || t->xmin == InvalidTransactionId)
        return FATE_ABORTED;
    if (t->xmin < FirstNormalTransactionId)
        return FATE_COMMITTED; /* bootstrap, or frozen before 9.4 */
    return fate(ctx, t->xmin);
}

/* HEAP_XMAX_IS_LOCKED_ONLY: also the form that servers before 9.3 left behind. */
static bool xmax_only_locks(uint16_t infomask)
{
    uint16_t locks = HEAP_XMAX_KEYSHR_LOCK | HEAP_XMAX_EXCL_LOCK;
    return infomask & HEAP_XMAX_LOCK_ONLY ||
           (infomask & (HEAP_XMAX_IS_MULTI | locks)) == HEAP_XMAX_EXCL_LOCK;
}

/* A tuple whose inserter has committed. */
static enum tuple_verdict xmax_verdict(const struct page_tuple *t, TransactionId next_xid,
                                       xid_fate_fn fate, void *ctx, TransactionId *ret_xid,
                                       const char **ret_reason)
{
    uint16_t mask = t->raw.infomask;
    if (mask & HEAP_XMAX_INVALID || t->xmax == InvalidTransactionId || xmax_only_locks(mask))
        return TUPLE_LIVE;
    if (mask & HEAP_XMAX_IS_MULTI) {
        *ret_reason = "a row was updated or deleted while others had it locked (multixact)";
        return TUPLE_UNSUPPORTED;
    }
    if (t->xmax >= FirstNormalTransactionId && !xid_precedes(t->xmax, next_xid))
        return TUPLE_LIVE; /* the delete or update is in the stream */
    enum xid_fate f = mask & HEAP_XMAX_COMMITTED ? FATE_COMMITTED : fate(ctx, t->xmax);
    if (f == FATE_UNKNOWN) {
        *ret_xid = t->xmax;
        return TUPLE_UNDECIDED;
    }
    return f == FATE_COMMITTED ? TUPLE_DEAD : TUPLE_LIVE;
}

enum tuple_verdict tuple_visibility(const struct page_tuple *t, TransactionId next_xid,
                                    xid_fate_fn fate, void *fate_ctx, TransactionId *ret_xid,
                                    const char **ret_reason)
{
    uint16_t mask = t->raw.infomask;
    uint16_t frozen = HEAP_XMIN_COMMITTED | HEAP_XMIN_INVALID;
    if (mask & HEAP_MOVED) {
        *ret_reason = "a row was moved by a VACUUM FULL of PostgreSQL 8.4 or older (HEAP_MOVED)";
        return TUPLE_UNSUPPORTED;
    }
    if ((mask & frozen) != frozen) {
        if (t->xmin >= FirstNormalTransactionId && !xid_precedes(t->xmin, next_xid))
            return TUPLE_SKIP;
        enum xid_fate f = xmin_fate(t, fate, fate_ctx);
        if (f == FATE_ABORTED)
            return TUPLE_DEAD;
        if (f == FATE_UNKNOWN) {
            *ret_xid = t->xmin;
            return TUPLE_UNDECIDED;
        }
        if (t->ctid_offset == SpecTokenOffsetNumber) {
            *ret_reason = "an INSERT … ON CONFLICT was half done (speculative row)";
            return TUPLE_UNSUPPORTED;
        }
    }
    return xmax_verdict(t, next_xid, fate, fate_ctx, ret_xid, ret_reason);
}
