/* Transaction records (RM_XACT_ID) in one neutral form.
 * Source: access/xact.h, access/rmgrdesc/xactdesc.c; 18 has 16-byte statistics items (notes F4). */
#pragma once
#include "base/error.h"
#include "pg/inval.h"
#include "pg/wal_record.h"

#include <string.h>

#define XACT_GID_MAX 200 /* GIDSIZE, with its NUL */

enum xact_kind {
    XACT_COMMIT,
    XACT_ABORT,
    XACT_PREPARE,
    XACT_COMMIT_PREPARED,
    XACT_ABORT_PREPARED,
    XACT_ASSIGNMENT,    /* xid = top-level xid, subxacts = its children */
    XACT_INVALIDATIONS, /* invals only; xid = the (sub)transaction at work */
};

/* Xids or locators in the record's bytes: count of them, unaligned. */
struct xid_list {
    const uint8_t *xids;
    uint32_t count;
};
struct locator_list {
    const uint8_t *locators;
    uint32_t count;
};

struct xact_record {
    uint8_t kind;            /* enum xact_kind */
    bool relcache_init_file; /* the relation cache init file is to be removed */
    bool has_origin;
    TransactionId xid; /* the transaction it is about: the two-phase xid where there is one */
    int64_t time;      /* of commit, abort or prepare: µs since 2000-01-01 UTC; else 0 */
    Oid db_oid;        /* of xl_xact_dbinfo or the PREPARE; 0 if not given */
    uint32_t xinfo;
    struct xid_list subxacts;
    struct locator_list dropped;       /* files removed by this outcome (PREPARE: if it commits) */
    struct locator_list abort_dropped; /* PREPARE only: files removed if it aborts */
    struct inval_list invals;
    const char *gid; /* in the record, NUL-terminated within gid_len + 1; NULL if not given */
    uint32_t gid_len;
    XLogRecPtr origin_lsn;
    int64_t origin_time;
};

static inline TransactionId xid_list_get(const struct xid_list *list, uint32_t i)
{
    TransactionId xid;
    memcpy(&xid, list->xids + (size_t)i * 4, 4);
    return xid;
}
static inline struct rel_file_locator locator_list_get(const struct locator_list *list, uint32_t i)
{
    struct rel_file_locator locator;
    memcpy(&locator, list->locators + (size_t)i * sizeof locator, sizeof locator);
    return locator;
}

/* Pointers go into the record's bytes. ERR_DATA if a count exceeds the record or the opcode is not
 * known; ERR_BUG if the record's body was skipped or it is not of RM_XACT_ID. */
enum status xact_record_parse(const struct wal_record *record, unsigned major,
                              struct xact_record *ret, struct error *err) CHECKED;
