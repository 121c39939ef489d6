/* Which tuples of a page the initial load ships (the exact rule, for a load that is followed by a
 * stream of every change from the backup's start on). Source of the bits: access/htup_details.h,
 * access/heapam_visibility.c; same in 15 to 18. */
#pragma once
#include "pg/multixact.h"
#include "pg/page.h"

enum xid_fate { FATE_UNKNOWN, FATE_COMMITTED, FATE_ABORTED };

enum updater_fact {
    UPDATER_UNKNOWN, /* the members are not known yet */
    UPDATER_NONE,    /* they only lock */
    UPDATER_XID,     /* this one updates or deletes */
    UPDATER_LOST,    /* nobody knows the members any more */
};

/* What is known of transactions. Called only for what the tuple's own bits do not say. */
struct visibility_facts {
    void *ctx;
    /* What became of a transaction or subtransaction below N. FATE_UNKNOWN: still running, or not
     * asked yet. */
    enum xid_fate (*fate)(void *ctx, TransactionId xid);
    /* The WAL has been read up to its end: all that it did to a speculative row has been seen. */
    bool (*has_ended)(void *ctx, TransactionId xid);
    enum updater_fact (*updater)(void *ctx, MultiXactId multi, TransactionId *ret_xid);
};

enum tuple_verdict {
    TUPLE_LIVE,        /* ship it; if it is speculative: unless it was taken back (super-delete) */
    TUPLE_DEAD,        /* was never committed, or is deleted by a transaction below N */
    TUPLE_SKIP,        /* its insert is in the stream */
    TUPLE_UNDECIDED,   /* waits for *ret_awaited */
    TUPLE_DELETING,    /* live, until transaction *ret_awaited is known to have committed */
    TUPLE_UNSUPPORTED, /* cannot be decided here, *ret_reason says why */
};

enum await_kind {
    AWAIT_FATE,    /* of transaction `number` */
    AWAIT_END,     /* of transaction `number`, in the WAL */
    AWAIT_MEMBERS, /* of multixact `number` */
};
struct awaited {
    uint32_t kind; /* enum await_kind */
    uint32_t number;
};

/* next_xid: N, the next transaction id of the backup's checkpoint. ret_awaited and ret_reason are
 * set only for the verdicts that name them. A tuple that waits for a transaction never needs a
 * multixact's members later: those are waited for first. Pure: no state, no errors. */
enum tuple_verdict tuple_visibility(const struct page_tuple *t, TransactionId next_xid,
                                    const struct visibility_facts *facts,
                                    struct awaited *ret_awaited, const char **ret_reason);

/* Puts the transaction that updates or deletes it in the place of a multixact whose members are
 * known: the verdict stays, and needs the members no more. */
void tuple_updater_settle(struct page_tuple *t, const struct visibility_facts *facts);

static inline bool tuple_is_speculative(const struct page_tuple *t)
{
    return t->ctid_offset == SpecTokenOffsetNumber;
}
