/* Which tuples of a page the initial load ships (the exact rule, for a load that is followed by a
 * stream of every change from the backup's start on). Source of the bits: access/htup_details.h,
 * access/heapam_visibility.c; same in 15 to 18. */
#pragma once
#include "pg/page.h"

enum xid_fate { FATE_UNKNOWN, FATE_COMMITTED, FATE_ABORTED };

/* What became of a transaction or subtransaction below N. FATE_UNKNOWN: still running, or not asked
 * yet. Called only for what the hint bits do not say. */
typedef enum xid_fate (*xid_fate_fn)(void *ctx, TransactionId xid);

enum tuple_verdict {
    TUPLE_LIVE,        /* ship it */
    TUPLE_DEAD,        /* was never committed, or is deleted by a transaction below N */
    TUPLE_SKIP,        /* its insert is in the stream */
    TUPLE_UNDECIDED,   /* waits for the fate of *ret_xid */
    TUPLE_UNSUPPORTED, /* cannot be decided here, *ret_reason says why: the table stops */
};

/* next_xid: N, the next transaction id of the backup's checkpoint. ret_xid and ret_reason are set
 * only for the two verdicts that name them. Pure: no state, no errors. */
enum tuple_verdict tuple_visibility(const struct page_tuple *t, TransactionId next_xid,
                                    xid_fate_fn fate, void *fate_ctx, TransactionId *ret_xid,
                                    const char **ret_reason);
