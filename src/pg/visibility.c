#include "pg/visibility.h"

#define HEAP_XMAX_KEYSHR_LOCK 0x0010
#define HEAP_XMAX_EXCL_LOCK 0x0040
#define HEAP_XMAX_LOCK_ONLY 0x0080
#define HEAP_XMIN_COMMITTED 0x0100
#define HEAP_XMIN_INVALID 0x0200
#define HEAP_XMIN_FROZEN (HEAP_XMIN_COMMITTED | HEAP_XMIN_INVALID)
#define HEAP_XMAX_COMMITTED 0x0400
#define HEAP_XMAX_INVALID 0x0800
#define HEAP_XMAX_IS_MULTI 0x1000
#define HEAP_MOVED_OFF 0x4000
#define HEAP_MOVED_IN 0x8000

struct query {
    const struct page_tuple *t;
    TransactionId next_xid;
    const struct visibility_facts *facts;
    struct awaited awaited;
    const char *reason;
};

static enum xid_fate fate_of(const struct query *q, TransactionId xid)
{
    if (xid < FirstNormalTransactionId) /* bootstrap, or frozen before 9.4 */
        return FATE_COMMITTED;
    return q->facts->fate(q->facts->ctx, xid);
}

static enum tuple_verdict wait_for(struct query *q, enum await_kind kind, uint32_t number)
{
    q->awaited = (struct awaited){kind, number};
    return TUPLE_UNDECIDED;
}

/* The VACUUM FULL of servers before 9.0 moved rows: one that was moved away is gone, and one that
 * was moved here is there, if that VACUUM committed. Only for rows whose xmin has no hint: it is
 * set, or the row gone, as soon as somebody has looked. Returns LIVE if the row's insert counts. */
static enum tuple_verdict moved_verdict(struct query *q)
{
    enum xid_fate vacuum = fate_of(q, q->t->xvac);
    if (vacuum == FATE_UNKNOWN)
        return wait_for(q, AWAIT_FATE, q->t->xvac);
    bool off = q->t->raw.infomask & HEAP_MOVED_OFF;
    return off == (vacuum == FATE_COMMITTED) ? TUPLE_DEAD : TUPLE_LIVE;
}

/* LIVE: the inserter has committed. */
static enum tuple_verdict xmin_verdict(struct query *q)
{
    const struct page_tuple *t = q->t;
    uint16_t bits = t->raw.infomask & HEAP_XMIN_FROZEN;
    if (bits == HEAP_XMIN_FROZEN)
        return TUPLE_LIVE;
    if (t->xmin >= FirstNormalTransactionId && !xid_precedes(t->xmin, q->next_xid))
        return TUPLE_SKIP;
    /* a super-deleted speculative tuple has xmin 0 */
    if (bits == HEAP_XMIN_INVALID || t->xmin == InvalidTransactionId)
        return TUPLE_DEAD;
    if (bits != HEAP_XMIN_COMMITTED && t->raw.infomask & (HEAP_MOVED_OFF | HEAP_MOVED_IN))
        return moved_verdict(q);
    enum xid_fate f = bits == HEAP_XMIN_COMMITTED ? FATE_COMMITTED : fate_of(q, t->xmin);
    if (f == FATE_ABORTED)
        return TUPLE_DEAD;
    if (f == FATE_UNKNOWN)
        return wait_for(q, AWAIT_FATE, t->xmin);
    /* an INSERT … ON CONFLICT that was half done: its confirmation, or its being taken back, is in
     * the WAL before the transaction's end */
    if (tuple_is_speculative(t) && !q->facts->has_ended(q->facts->ctx, t->xmin))
        return wait_for(q, AWAIT_END, t->xmin);
    return TUPLE_LIVE;
}

/* HEAP_XMAX_IS_LOCKED_ONLY and HEAP_LOCKED_UPGRADED: also the forms that servers before 9.3 left
 * behind, when a lone lock had no bit of its own and multixacts had no updaters. */
static bool xmax_only_locks(uint16_t infomask)
{
    uint16_t locks = infomask & (HEAP_XMAX_KEYSHR_LOCK | HEAP_XMAX_EXCL_LOCK);
    if (infomask & HEAP_XMAX_LOCK_ONLY)
        return true;
    return infomask & HEAP_XMAX_IS_MULTI ? locks == 0 : locks == HEAP_XMAX_EXCL_LOCK;
}

/* The transaction that updates or deletes the tuple; LIVE: there is none. */
static enum tuple_verdict deleter_find(struct query *q, TransactionId *ret)
{
    const struct page_tuple *t = q->t;
    uint16_t mask = t->raw.infomask;
    if (mask & HEAP_XMAX_INVALID || t->xmax == InvalidTransactionId || xmax_only_locks(mask))
        return TUPLE_LIVE;
    *ret = t->xmax;
    if (!(mask & HEAP_XMAX_IS_MULTI))
        return TUPLE_DEAD;
    switch (q->facts->updater(q->facts->ctx, t->xmax, ret)) {
    case UPDATER_XID:
        return TUPLE_DEAD;
    case UPDATER_NONE:
        return TUPLE_LIVE;
    case UPDATER_UNKNOWN:
        return wait_for(q, AWAIT_MEMBERS, t->xmax);
    case UPDATER_LOST:
        break;
    }
    q->reason = "a row was updated or deleted while others had it locked, and the members of its "
                "multixact are gone";
    return TUPLE_UNSUPPORTED;
}

static enum tuple_verdict xmax_verdict(struct query *q, TransactionId xmax)
{
    uint16_t mask = q->t->raw.infomask;
    if (xmax >= FirstNormalTransactionId && !xid_precedes(xmax, q->next_xid))
        return TUPLE_LIVE; /* the delete or update is in the stream */
    bool hinted = mask & HEAP_XMAX_COMMITTED && !(mask & HEAP_XMAX_IS_MULTI);
    enum xid_fate f = hinted ? FATE_COMMITTED : fate_of(q, xmax);
    if (f != FATE_UNKNOWN)
        return f == FATE_COMMITTED ? TUPLE_DEAD : TUPLE_LIVE;
    (void)wait_for(q, AWAIT_FATE, xmax);
    return TUPLE_DELETING;
}

static enum tuple_verdict verdict(struct query *q)
{
    TransactionId deleter = InvalidTransactionId;
    enum tuple_verdict inserted = xmin_verdict(q);
    if (inserted == TUPLE_DEAD || inserted == TUPLE_SKIP)
        return inserted;
    struct awaited inserter = q->awaited;
    enum tuple_verdict found = deleter_find(q, &deleter);
    if (found == TUPLE_UNDECIDED || (found == TUPLE_UNSUPPORTED && inserted == TUPLE_LIVE))
        return found;
    if (inserted == TUPLE_UNDECIDED) {
        q->awaited = inserter;
        return inserted;
    }
    return found == TUPLE_LIVE ? TUPLE_LIVE : xmax_verdict(q, deleter);
}

enum tuple_verdict tuple_visibility(const struct page_tuple *t, TransactionId next_xid,
                                    const struct visibility_facts *facts,
                                    struct awaited *ret_awaited, const char **ret_reason)
{
    struct query q = {.t = t, .next_xid = next_xid, .facts = facts};
    enum tuple_verdict v = verdict(&q);
    if (v == TUPLE_UNDECIDED || v == TUPLE_DELETING)
        *ret_awaited = q.awaited;
    if (v == TUPLE_UNSUPPORTED)
        *ret_reason = q.reason;
    return v;
}

void tuple_updater_settle(struct page_tuple *t, const struct visibility_facts *facts)
{
    const uint16_t of_xmax = HEAP_XMAX_IS_MULTI | HEAP_XMAX_KEYSHR_LOCK | HEAP_XMAX_EXCL_LOCK |
                             HEAP_XMAX_COMMITTED; /* the last is no hint for a multixact */
    TransactionId xid = InvalidTransactionId;
    uint16_t mask = t->raw.infomask;
    if (!(mask & HEAP_XMAX_IS_MULTI) || mask & HEAP_XMAX_INVALID || xmax_only_locks(mask))
        return;
    enum updater_fact fact = facts->updater(facts->ctx, t->xmax, &xid);
    if (fact == UPDATER_XID) {
        t->xmax = xid;
        t->raw.infomask = mask & (uint16_t)~of_xmax;
    } else if (fact == UPDATER_NONE) {
        t->raw.infomask = mask | HEAP_XMAX_INVALID;
    }
}
