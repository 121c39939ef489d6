#include "wal/classify.h"

#include "pg/relmap.h"
#include "pg/standby_record.h"
#include "pg/storage_record.h"
#include "pg/wal_parse.h"
#include "pg/xact_record.h"
#include "pg/xlog_record.h"

#include <uthash.h>

#define XLOG_BTREE_REUSE_PAGE 0xD0
#define XLOG_GIST_PAGE_REUSE 0x20
#define XLOG_HEAP_TRUNCATE 0x30

/* A transaction of which something is remembered: a subtransaction's parent, or that the family of
 * a top-level transaction holds a lock on a catalog. */
struct family_member {
    TransactionId xid; /* key */
    TransactionId top; /* = xid for the top-level one */
    bool catalog_lock; /* meaningful in the top-level one */
    UT_hash_handle hh;
};

struct wal_classifier {
    unsigned major;
    Oid database;
    struct catalog_filenodes *filenodes;
    struct family_member *members;
};

static const char *const route_names[] = {"forwarded",  "user",   "database", "conflict",
                                          "tablespace", "custom", "message"};

const char *wal_route_name(enum wal_route route)
{
    return route_names[route];
}

struct wal_classifier *wal_classifier_new(unsigned major, Oid database,
                                          struct catalog_filenodes *filenodes)
{
    struct wal_classifier *c = xcalloc(1, sizeof *c);
    c->major = major;
    c->database = database;
    c->filenodes = filenodes;
    return c;
}

void wal_classifier_free(struct wal_classifier *c)
{
    if (c == NULL)
        return;
    struct family_member *m, *next;
    HASH_ITER (hh, c->members, m, next) {
        HASH_DEL(c->members, m);
        free(m);
    }
    free(c);
}

static struct family_member *member_find(const struct wal_classifier *c, TransactionId xid)
{
    struct family_member *m;
    if (c->members == NULL)
        return NULL;
    HASH_FIND(hh, c->members, &xid, sizeof xid, m);
    return m;
}

static struct family_member *member_get(struct wal_classifier *c, TransactionId xid)
{
    struct family_member *m = member_find(c, xid);
    if (m == NULL) {
        m = xcalloc(1, sizeof *m);
        m->xid = m->top = xid;
        HASH_ADD(hh, c->members, xid, sizeof m->xid, m);
    }
    return m;
}

static void member_forget(struct wal_classifier *c, TransactionId xid)
{
    struct family_member *m = member_find(c, xid);
    if (m == NULL)
        return;
    HASH_DEL(c->members, m);
    free(m);
}

static TransactionId top_of(const struct wal_classifier *c, TransactionId xid)
{
    const struct family_member *m = member_find(c, xid);
    return m != NULL ? m->top : xid;
}

static bool holds_catalog_lock(const struct wal_classifier *c, TransactionId xid)
{
    const struct family_member *m = member_find(c, top_of(c, xid));
    return m != NULL && m->catalog_lock;
}

static void member_link(struct wal_classifier *c, TransactionId sub, TransactionId top)
{
    if (sub == InvalidTransactionId || top == InvalidTransactionId || sub == top)
        return;
    struct family_member *m = member_get(c, sub);
    if (m->catalog_lock) /* what was noted before the parent was known */
        member_get(c, top)->catalog_lock = true;
    m->catalog_lock = false;
    m->top = top;
}

size_t wal_classifier_open(const struct wal_classifier *c)
{
    size_t n = 0;
    for (const struct family_member *m = c->members; m != NULL; m = m->hh.next)
        n += m->catalog_lock;
    return n;
}

static inline bool is_ours(const struct wal_classifier *c, Oid db_oid)
{
    return db_oid == InvalidOid || c->database == InvalidOid || db_oid == c->database;
}

static inline enum wal_route route_of_file(const struct wal_classifier *c,
                                           struct rel_file_locator locator)
{
    if (!is_ours(c, locator.db_oid))
        return WAL_NOOP_DATABASE;
    return catalog_filenodes_contains(c->filenodes, locator.db_oid, locator.rel_number)
               ? WAL_FORWARD
               : WAL_NOOP_USER;
}

/* A record goes through only if every file it names does. */
static inline enum wal_route route_of_blocks(const struct wal_classifier *c,
                                             const struct wal_record *r)
{
    for (unsigned i = 0; i < r->nblocks; i++) {
        enum wal_route route = route_of_file(c, r->blocks[i].locator);
        if (route != WAL_FORWARD)
            return route;
    }
    return WAL_FORWARD;
}

/* Relations whose rewrite yields catalog files; large objects are data (notes C11). */
static bool is_catalog_oid(Oid oid)
{
    return oid < FirstNormalObjectId && oid != LARGEOBJECT_OID && oid != LARGEOBJECT_INDEX_OID;
}

static enum status note_locks(struct wal_classifier *c, const struct wal_record *r,
                              struct error *err)
{
    struct standby_lock_list list;
    TRY(standby_locks_parse(r, &list, err));
    for (uint32_t i = 0; i < list.count; i++) {
        struct standby_lock lock = standby_lock_get(&list, i);
        if (is_ours(c, lock.db_oid) && is_catalog_oid(lock.rel_oid))
            member_get(c, top_of(c, lock.xid))->catalog_lock = true;
    }
    return OK;
}

static enum status note_xact(struct wal_classifier *c, const struct wal_record *r,
                             struct error *err)
{
    struct xact_record x;
    TRY(xact_record_parse(r, c->major, &x, err));
    switch ((enum xact_kind)x.kind) {
    case XACT_COMMIT:
    case XACT_ABORT:
    case XACT_PREPARE: /* nothing is created under it any more */
    case XACT_COMMIT_PREPARED:
    case XACT_ABORT_PREPARED:
        member_forget(c, x.xid);
        for (uint32_t i = 0; i < x.subxacts.count; i++)
            member_forget(c, xid_list_get(&x.subxacts, i));
        break;
    case XACT_ASSIGNMENT:
        for (uint32_t i = 0; i < x.subxacts.count; i++)
            member_link(c, xid_list_get(&x.subxacts, i), x.xid);
        break;
    case XACT_INVALIDATIONS:
        break;
    }
    return OK;
}

/* Transactions that died with the server write no abort record (notes B3). */
static enum status note_running(struct wal_classifier *c, const struct wal_record *r,
                                struct error *err)
{
    if (c->members == NULL)
        return OK;
    struct running_xacts running;
    TRY(running_xacts_parse(r, &running, err));
    struct family_member *m, *next;
    HASH_ITER (hh, c->members, m, next) {
        if (xid_precedes(m->xid, running.oldest_running_xid))
            member_forget(c, m->xid);
    }
    return OK;
}

static enum status classify_smgr(struct wal_classifier *c, const struct wal_record *r,
                                 enum wal_route *ret, struct error *err)
{
    struct smgr_record s;
    TRY(smgr_record_parse(r, &s, err));
    enum wal_route route = route_of_file(c, s.locator);
    if (route == WAL_NOOP_USER && !s.is_truncate && holds_catalog_lock(c, r->xid)) {
        catalog_filenodes_add(c->filenodes, s.locator.db_oid, s.locator.rel_number);
        route = WAL_FORWARD;
    }
    *ret = route;
    return OK;
}

static enum status classify_relmap(struct wal_classifier *c, const struct wal_record *r,
                                   enum wal_route *ret, struct error *err)
{
    Oid db_oid;
    struct relmap map;
    TRY(relmap_record_parse(r, &db_oid, &map, err));
    *ret = is_ours(c, db_oid) ? WAL_FORWARD : WAL_NOOP_DATABASE;
    if (*ret == WAL_FORWARD && db_oid != InvalidOid)
        for (uint32_t i = 0; i < map.count; i++) {
            Oid oid, filenode;
            relmap_get(&map, i, &oid, &filenode);
            catalog_filenodes_add(c->filenodes, db_oid, filenode);
        }
    return OK;
}

static enum status classify_standby(struct wal_classifier *c, const struct wal_record *r,
                                    enum wal_route *ret, struct error *err)
{
    switch (standby_record_op(r)) {
    case XLOG_STANDBY_LOCK:
        *ret = WAL_NOOP_CONFLICT;
        return note_locks(c, r, err);
    case XLOG_RUNNING_XACTS:
        *ret = WAL_FORWARD;
        return note_running(c, r, err);
    default:
        *ret = WAL_FORWARD;
        return OK;
    }
}

/* HEAP2: two opcodes name their relation in the main data and reference no block. */
static enum status classify_heap2(struct wal_classifier *c, const struct wal_record *r,
                                  enum wal_route *ret, struct error *err)
{
    uint8_t op = r->info & XLOG_HEAP_OPMASK;
    if (op == XLOG_HEAP2_NEW_CID) {
        TransactionId top_xid;
        struct rel_file_locator locator;
        TRY(heap_new_cid_parse(r, &top_xid, &locator, err));
        *ret = route_of_file(c, locator);
    } else if (op == XLOG_HEAP2_REWRITE) {
        Oid db_oid, rel_oid;
        TRY(heap_rewrite_parse(r, &db_oid, &rel_oid, err));
        *ret = !is_ours(c, db_oid)       ? WAL_NOOP_DATABASE
               : is_catalog_oid(rel_oid) ? WAL_FORWARD
                                         : WAL_NOOP_USER;
    } else {
        *ret = route_of_blocks(c, r);
    }
    return OK;
}

static enum status classify_rmgr(struct wal_classifier *c, const struct wal_record *r,
                                 enum wal_route *ret, struct error *err)
{
    switch ((enum rmgr_id)r->rmid) {
    case RM_XACT_ID:
        *ret = WAL_FORWARD;
        if (c->members != NULL || (r->info & 0x70) == 0x50 /* XLOG_XACT_ASSIGNMENT */)
            return note_xact(c, r, err);
        return OK;
    case RM_SMGR_ID:
        return classify_smgr(c, r, ret, err);
    case RM_DBASE_ID: {
        struct dbase_record d;
        TRY(dbase_record_parse(r, &d, err));
        *ret = is_ours(c, d.db_oid) ? WAL_FORWARD : WAL_NOOP_DATABASE;
        return OK;
    }
    case RM_TBLSPC_ID:
        *ret = WAL_NOOP_TABLESPACE;
        return OK;
    case RM_RELMAP_ID:
        return classify_relmap(c, r, ret, err);
    case RM_STANDBY_ID:
        return classify_standby(c, r, ret, err);
    case RM_HEAP2_ID:
        return classify_heap2(c, r, ret, err);
    case RM_LOGICALMSG_ID: /* replay ignores it, and its content is the user's */
        *ret = WAL_NOOP_MESSAGE;
        return OK;
    case RM_HEAP_ID: /* TRUNCATE has no block and no replay */
        *ret = (r->info & XLOG_HEAP_OPMASK) == XLOG_HEAP_TRUNCATE ? WAL_NOOP_USER
                                                                  : route_of_blocks(c, r);
        return OK;
    case RM_BTREE_ID:
        *ret =
            (r->info & 0xF0) == XLOG_BTREE_REUSE_PAGE ? WAL_NOOP_CONFLICT : route_of_blocks(c, r);
        return OK;
    case RM_GIST_ID:
        *ret = (r->info & 0xF0) == XLOG_GIST_PAGE_REUSE ? WAL_NOOP_CONFLICT : route_of_blocks(c, r);
        return OK;
    case RM_XLOG_ID: /* FPI and FPI_FOR_HINT have blocks, the others none */
        *ret = (r->info & 0xF0) == XLOG_NOOP ? WAL_NOOP_MESSAGE : route_of_blocks(c, r);
        return OK;
    case RM_CLOG_ID:
    case RM_MULTIXACT_ID:
    case RM_COMMIT_TS_ID:
    case RM_REPLORIGIN_ID:
    case RM_HASH_ID:
    case RM_GIN_ID:
    case RM_SEQ_ID:
    case RM_SPGIST_ID:
    case RM_BRIN_ID:
    case RM_GENERIC_ID:
        *ret = route_of_blocks(c, r);
        return OK;
    }
    if (r->rmid >= XLR_MIN_RMGR_CUSTOM) {
        *ret = WAL_NOOP_CUSTOM;
        return OK;
    }
    return error_lsn(err, ERR_DATA, r->start, "unknown resource manager %u", r->rmid);
}

void wal_classify_skipped(struct wal_classifier *c, const struct wal_record *r)
{
    if (r->toplevel_xid != InvalidTransactionId)
        member_link(c, r->xid, r->toplevel_xid);
}

enum status wal_classify(struct wal_classifier *c, const struct wal_record *r, enum wal_route *ret,
                         struct error *err)
{
    wal_classify_skipped(c, r);
    return classify_rmgr(c, r, ret, err);
}

bool wal_classify_head(const struct wal_classifier *c, const struct wal_record *head,
                       enum wal_route *ret, bool *ret_needed)
{
    *ret_needed = true;
    switch ((enum rmgr_id)head->rmid) {
    case RM_XACT_ID:
        *ret = WAL_FORWARD;
        return true;
    case RM_STANDBY_ID:
        *ret = standby_record_op(head) == XLOG_STANDBY_LOCK ? WAL_NOOP_CONFLICT : WAL_FORWARD;
        return true;
    case RM_LOGICALMSG_ID:
        *ret = WAL_NOOP_MESSAGE;
        *ret_needed = false;
        return true;
    case RM_XLOG_ID:
    case RM_HEAP2_ID:
    case RM_HEAP_ID:
        *ret = route_of_blocks(c, head);
        *ret_needed = *ret == WAL_NOOP_USER;
        return head->nblocks > 0;
    case RM_BTREE_ID:
    case RM_HASH_ID:
    case RM_GIN_ID:
    case RM_GIST_ID:
    case RM_SEQ_ID:
    case RM_SPGIST_ID:
    case RM_BRIN_ID:
    case RM_GENERIC_ID:
        *ret = route_of_blocks(c, head);
        *ret_needed = false;
        return head->nblocks > 0;
    case RM_SMGR_ID:
    case RM_CLOG_ID:
    case RM_DBASE_ID:
    case RM_TBLSPC_ID:
    case RM_MULTIXACT_ID:
    case RM_RELMAP_ID:
    case RM_COMMIT_TS_ID:
    case RM_REPLORIGIN_ID:
        return false; /* short records: kept whole, classified when they are there */
    }
    *ret = WAL_NOOP_CUSTOM;
    *ret_needed = false;
    return head->rmid >= XLR_MIN_RMGR_CUSTOM;
}
