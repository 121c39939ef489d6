/* Hot standby records (RM_STANDBY_ID).
 * Source: storage/standbydefs.h, storage/lockdefs.h; same in 15 to 18. */
#pragma once
#include "base/error.h"
#include "pg/inval.h"
#include "pg/wal_record.h"

#include <string.h>

#define XLOG_STANDBY_LOCK 0x00
#define XLOG_RUNNING_XACTS 0x10
#define XLOG_INVALIDATIONS 0x20

struct running_xacts {
    bool subxid_overflow; /* xids of some subtransactions are missing */
    TransactionId next_xid;
    TransactionId oldest_running_xid;
    TransactionId latest_completed_xid;
    uint32_t xact_count, subxact_count;
    const uint8_t *xids; /* xact_count + subxact_count of them, unaligned */
};

struct standby_lock { /* an AccessExclusiveLock */
    TransactionId xid;
    Oid db_oid;
    Oid rel_oid;
};
struct standby_lock_list {
    const uint8_t *locks; /* count × 12 bytes, unaligned */
    uint32_t count;
};

static inline TransactionId running_xacts_get(const struct running_xacts *r, uint32_t i)
{
    TransactionId xid;
    memcpy(&xid, r->xids + (size_t)i * 4, 4);
    return xid;
}
static inline struct standby_lock standby_lock_get(const struct standby_lock_list *list, uint32_t i)
{
    struct standby_lock lock;
    memcpy(&lock, list->locks + (size_t)i * sizeof lock, sizeof lock);
    return lock;
}
static inline uint8_t standby_record_op(const struct wal_record *record)
{
    return record->info & 0xF0;
}

/* The record must be of that kind; pointers go into it. ERR_DATA if a count exceeds the record. */
enum status running_xacts_parse(const struct wal_record *record, struct running_xacts *ret,
                                struct error *err) CHECKED;
enum status standby_locks_parse(const struct wal_record *record, struct standby_lock_list *ret,
                                struct error *err) CHECKED;
enum status standby_invals_parse(const struct wal_record *record, Oid *ret_db_oid,
                                 struct inval_list *ret, struct error *err) CHECKED;
