#include "pump/records.h"
#include "base/bytes.h"
#include "pg/oids.h"
#include "pg/relmap.h"
#include "pg/standby_record.h"
#include "pg/storage_record.h"
#include "pg/xlog_record.h"
#include "pump/dependents.h"
#include "pump/rewrite.h"
#include "pump/temporary.h"

#include <stdlib.h>
#include <uthash.h>

#define PG_NAMESPACE_OID 2615u

struct known_xid {
    TransactionId xid;
    bool wrote_catalog;
    uint32_t schemas_made;
    UT_hash_handle hh;
};

#define SEEN_XIDS 64u

struct records {
    struct records_options options;
    struct known_xid *xids;        /* open transactions of our database */
    TransactionId seen[SEEN_XIDS]; /* lately, each at its remainder: most records are of few */
    struct temporary *temporary;
    struct rewrites *rewrites;
    TransactionId pages_xid; /* the last FRAME_PAGES says this */
    struct rel_file_locator pages_file;
    Oid pg_class;    /* its filenode since a relation map was seen, else 0 */
    struct buf oids; /* scratch: relations of a boundary */
    struct buf *out; /* during records_take */
    const struct wal_record *record;
};

struct records *records_new(const struct records_options *options)
{
    struct records *r = xcalloc(1, sizeof *r);
    r->options = *options;
    r->temporary = temporary_new();
    for (size_t i = 0; i < options->ntemporary; i++)
        temporary_set(r->temporary, options->temporary[i], true);
    r->rewrites = rewrites_new(options->history);
    return r;
}

void records_free(struct records *r)
{
    struct known_xid *k, *next;
    if (r == NULL)
        return;
    HASH_ITER (hh, r->xids, k, next) {
        HASH_DEL(r->xids, k);
        free(k);
    }
    temporary_free(r->temporary);
    rewrites_free(r->rewrites);
    buf_free(&r->oids);
    free(r);
}

static struct known_xid *known_find(struct records *r, TransactionId xid)
{
    struct known_xid *k;
    HASH_FIND(hh, r->xids, &xid, sizeof xid, k);
    return k;
}

static struct known_xid *known_get(struct records *r, TransactionId xid)
{
    struct known_xid *k = known_find(r, xid);
    if (k == NULL) {
        k = xcalloc(1, sizeof *k);
        k->xid = xid;
        HASH_ADD(hh, r->xids, xid, sizeof k->xid, k);
    }
    return k;
}

static void known_drop(struct records *r, TransactionId xid)
{
    struct known_xid *k = known_find(r, xid);
    if (k == NULL)
        return;
    r->seen[xid % SEEN_XIDS] = InvalidTransactionId;
    HASH_DEL(r->xids, k);
    free(k);
}

/* Transactions that died with the server write no end (notes B3). */
static void known_prune(struct records *r, TransactionId oldest_running)
{
    struct known_xid *k, *next;
    memset(r->seen, 0, sizeof r->seen);
    HASH_ITER (hh, r->xids, k, next) {
        if (!xid_precedes(k->xid, oldest_running))
            continue;
        HASH_DEL(r->xids, k);
        free(k);
    }
}

static void put_seen(struct buf *out, TransactionId xid, TransactionId top, XLogRecPtr lsn)
{
    struct frame_head f = {
        .len = sizeof f, .type = FRAME_SEEN, .xid = xid, .top_xid = top, .lsn = lsn};
    buf_put(out, &f, sizeof f);
}

/* Its transaction pins the floor from here on (B10). */
static void see_xid(struct records *r, TransactionId xid, TransactionId top, XLogRecPtr lsn)
{
    TransactionId *seen = &r->seen[xid % SEEN_XIDS];
    if (xid == InvalidTransactionId || (xid == *seen && top == InvalidTransactionId))
        return;
    *seen = xid;
    if (known_find(r, xid) != NULL)
        return;
    known_get(r, xid);
    put_seen(r->out, xid, top, lsn);
}

static enum status emit_change(void *ctx, const struct change *change, struct error *err)
{
    struct records *r = ctx;
    (void)err;
    frame_put_change(r->out, change, r->record->xid, r->record->toplevel_xid);
    return OK;
}

/* A row change whose row is not in the record: the table's plan sees it and decides. */
static void put_incomplete(struct records *r, const struct wal_record *record)
{
    struct change change = {
        .kind = CHANGE_INSERT, .lsn = record->start, .locator = record->blocks[0].locator};
    frame_put_change(r->out, &change, record->xid, record->toplevel_xid);
}

static void put_truncate(struct records *r, const struct wal_record *record,
                         const struct heap_truncate *t)
{
    size_t len = frame_align(sizeof(struct truncate_frame) + (size_t)t->nrelids * sizeof(Oid));
    struct truncate_frame f = {
        .head = {.len = (uint32_t)len,
                 .type = FRAME_TRUNCATE,
                 .xid = record->xid,
                 .top_xid = record->toplevel_xid,
                 .lsn = record->start},
        .nrelids = t->nrelids,
        .options = t->flags,
    };
    uint8_t *at = buf_reserve(r->out, len);
    memset(at, 0, len);
    memcpy(at, &f, sizeof f);
    memcpy(at + sizeof f, t->relids, (size_t)t->nrelids * sizeof(Oid));
    r->out->len += len;
}

/* access/heapam_xlog.h: what changes a tuple; INPLACE is how statistics are kept (C2). */
static bool writes_tuple(const struct wal_record *record)
{
    uint8_t op = record->info & 0x70;
    if (record->rmid == RM_HEAP_ID)
        return op == 0x00 || op == 0x10 || op == 0x20 || op == 0x40; /* insert delete update hot */
    return op == 0x50;                                               /* HEAP2 multi-insert */
}

/* Which catalog the file is, 0 if that is not known. */
static Oid catalog_of(const struct records *r, struct rel_file_locator locator)
{
    if (r->pg_class != InvalidOid && locator.rel_number == r->pg_class &&
        locator.db_oid == r->options.database)
        return PG_CLASS_OID;
    Oid oid = r->options.catalog_oid(r->options.ctx, locator);
    return oid == PG_CLASS_OID && r->pg_class != InvalidOid ? InvalidOid : oid;
}

/* pg_statistic, pg_statistic_ext, pg_statistic_ext_data: writing them changes no shape */
static bool is_statistics(Oid catalog)
{
    return catalog == 2619 || catalog == 3381 || catalog == 3429;
}

static void relation_made(void *ctx, const struct class_row *row)
{
    struct records *r = ctx;
    temporary_set(r->temporary, row->oid, row->persistence == 't');
    if (rewrites_row(r->rewrites, row) && r->options.user_file != NULL)
        r->options.user_file(r->options.ctx, row->filenode);
}

static void catalog_record(struct records *r, const struct wal_record *record)
{
    Oid catalog = catalog_of(r, record->blocks[0].locator);
    if (is_statistics(catalog))
        return;
    struct known_xid *k = known_get(r, record->xid);
    k->wrote_catalog = true;
    if (catalog == PG_CLASS_OID && !class_rows_each(record, r->options.major, relation_made, r))
        temporary_forget(r->temporary);
    if (catalog == PG_NAMESPACE_OID && record->rmid == RM_HEAP_ID && (record->info & 0x70) == 0x00)
        k->schemas_made++;
}

/* Rows of this file are not among the changes; said once for a file and transaction. */
static void put_pages(struct records *r, const struct wal_record *record)
{
    struct pages_frame f = {
        .head = {.len = sizeof f,
                 .type = FRAME_PAGES,
                 .xid = record->xid,
                 .top_xid = record->toplevel_xid,
                 .lsn = record->start},
        .locator = record->blocks[0].locator,
    };
    if (r->pages_xid == record->xid && rel_file_locator_equal(r->pages_file, f.locator))
        return;
    r->pages_xid = record->xid;
    r->pages_file = f.locator;
    buf_put(r->out, &f, sizeof f);
}

static enum status heap_record(struct records *r, const struct wal_record *record, bool forwarded,
                               struct error *err)
{
    bool incomplete = false;
    if (heap_record_is_truncate(record)) {
        struct heap_truncate t;
        TRY(heap_truncate_parse(record, &t, err));
        if (t.db_oid == r->options.database && record->start >= r->options.changes_from)
            put_truncate(r, record, &t);
        return OK;
    }
    if (record->nblocks == 0)
        return OK;
    Oid db = record->blocks[0].locator.db_oid;
    if (db != 0 && db != r->options.database)
        return OK;
    see_xid(r, record->xid, record->toplevel_xid, record->start);
    if (forwarded || db == 0) {
        if (!writes_tuple(record))
            return OK;
        catalog_record(r, record);
        /* a catalog's new file, or that of a table which a transaction with a lock on one emptied
         */
        if (record->blocks[0].locator.rel_number >= FirstNormalObjectId &&
            catalog_of(r, record->blocks[0].locator) == InvalidOid)
            put_pages(r, record);
        return OK;
    }
    if (record->start < r->options.changes_from)
        return OK;
    TRY(heap_record_changes(record, emit_change, r, &incomplete, err));
    if (incomplete)
        put_incomplete(r, record);
    return OK;
}

static bool wrote_catalog(struct records *r, const struct xact_record *x)
{
    struct known_xid *k = known_find(r, x->xid);
    if (k != NULL && k->wrote_catalog)
        return true;
    if (r->options.load_xid != InvalidTransactionId && xid_precedes(x->xid, r->options.load_xid))
        return true; /* its writes may lie before our start */
    for (uint32_t i = 0; i < x->subxacts.count; i++) {
        k = known_find(r, xid_list_get(&x->subxacts, i));
        if (k != NULL && k->wrote_catalog)
            return true;
    }
    return false;
}

/* catalog/syscache ids are per major (F5): NAMESPACEOID and, just before it, NAMESPACENAME */
static uint8_t namespace_oid_cache(unsigned major)
{
    return major >= 18 ? 38 : 36;
}

static uint32_t schemas_made(struct records *r, const struct xact_record *x)
{
    struct known_xid *k = known_find(r, x->xid);
    uint32_t n = k == NULL ? 0 : k->schemas_made;
    for (uint32_t i = 0; i < x->subxacts.count; i++) {
        k = known_find(r, xid_list_get(&x->subxacts, i));
        n += k == NULL ? 0 : k->schemas_made;
    }
    return n;
}

/* A row of pg_namespace was updated or deleted. One that is inserted sends one message to each of
 * both caches, and nothing is in that schema yet. */
static bool changed_schema(struct records *r, const struct xact_record *x)
{
    uint32_t by_oid = 0, by_name = 0;
    uint8_t cache = namespace_oid_cache(r->options.major);
    for (uint32_t i = 0; i < x->invals.count; i++) {
        struct inval_message m = inval_list_get(&x->invals, i);
        if (m.kind != INVAL_CATCACHE || m.db_oid != r->options.database)
            continue;
        by_oid += m.cache_id == cache;
        by_name += m.cache_id + 1 == cache;
    }
    return MAX(by_oid, by_name) > 0 && MAX(by_oid, by_name) > schemas_made(r, x);
}

/* ENUMOID, ENUMTYPOIDNAME: the same in 15 to 18 (F5) */
static bool is_enum_cache(uint8_t id)
{
    return id == 23 || id == 24;
}

/* The relations whose relation cache entry the commit invalidates, and those whose columns' types
 * it changes, once each, into r->oids. */
static void changed_relations(struct records *r, const struct xact_record *x, bool *ret_all)
{
    bool enums = false;
    *ret_all = changed_schema(r, x);
    buf_reset(&r->oids);
    for (uint32_t i = 0; i < x->invals.count; i++) {
        struct inval_message m = inval_list_get(&x->invals, i);
        if (m.db_oid != r->options.database)
            continue;
        if (m.kind == INVAL_CATCACHE && is_enum_cache(m.cache_id))
            enums = true;
        if (m.kind == INVAL_RELCACHE && m.rel_oid == InvalidOid)
            *ret_all = true;
        if (m.kind == INVAL_RELCACHE && m.rel_oid >= FirstNormalObjectId)
            buf_put_u32(&r->oids, m.rel_oid);
    }
    if (r->options.history != NULL) /* also with all: it may have to be passed unseen */
        dependents_add(r->options.history, enums, &r->oids);
    oids_unique(&r->oids);
}

static bool only_temporary(const struct records *r)
{
    for (size_t i = 0; i < r->oids.len; i += sizeof(Oid))
        if (!temporary_contains(r->temporary, u32_at(r->oids.data + i)))
            return false;
    return true;
}

static void put_list(uint8_t **at, const void *items, size_t bytes)
{
    if (bytes > 0)
        memcpy(*at, items, bytes);
    *at += bytes;
}

static void put_xact(struct records *r, enum frame_type type, uint8_t flags,
                     const struct wal_record *record, const struct xact_record *x)
{
    bool boundary = (flags & XACT_BOUNDARY) != 0;
    uint32_t nrels = boundary ? (uint32_t)(r->oids.len / sizeof(Oid)) : 0;
    uint32_t gid_len = type == FRAME_PREPARE ? x->gid_len : 0;
    size_t len = frame_align(sizeof(struct xact_frame) + (size_t)x->subxacts.count * 4 +
                             (size_t)x->dropped.count * sizeof(struct rel_file_locator) +
                             (size_t)nrels * 4 + gid_len + 1);
    struct xact_frame f = {
        .head = {.len = (uint32_t)len,
                 .type = (uint8_t)type,
                 .flags = flags,
                 .xid = x->xid,
                 .lsn = record->start},
        .end = record->end,
        .commit_ts = x->time,
        .nsub = x->subxacts.count,
        .ndropped = x->dropped.count,
        .nrels = nrels,
        .gid_len = gid_len,
    };
    uint8_t *start = buf_reserve(r->out, len), *at = start;
    memset(start + len - 8, 0, 8);
    memcpy(at, &f, sizeof f);
    at += sizeof f;
    put_list(&at, x->subxacts.xids, (size_t)f.nsub * 4);
    put_list(&at, x->dropped.locators, (size_t)f.ndropped * sizeof(struct rel_file_locator));
    put_list(&at, r->oids.data, (size_t)nrels * 4);
    put_list(&at, x->gid, gid_len); /* the NUL is in the zeros */
    r->out->len += len;
}

static void forget_xact(struct records *r, const struct xact_record *x)
{
    known_drop(r, x->xid);
    for (uint32_t i = 0; i < x->subxacts.count; i++)
        known_drop(r, xid_list_get(&x->subxacts, i));
}

static enum status commit(struct records *r, const struct wal_record *record,
                          const struct xact_record *x, struct error *err)
{
    uint8_t flags = x->kind == XACT_COMMIT_PREPARED ? XACT_TWO_PHASE : 0;
    bool all = false;
    if (x->invals.count > 0 && wrote_catalog(r, x)) {
        changed_relations(r, x, &all);
        if (all || !only_temporary(r)) {
            flags |= (uint8_t)(XACT_BOUNDARY | (all ? XACT_ALL_RELS : 0));
            TRY(r->options.boundary(r->options.ctx, record->end, (const Oid *)r->oids.data,
                                    r->oids.len / sizeof(Oid), all, err));
        }
    }
    put_xact(r, FRAME_COMMIT, flags, record, x);
    forget_xact(r, x);
    return OK;
}

/* A transaction of another database is known if it wrote a catalog that all share: nothing of it is
 * ours, and it must not pin the floor beyond its end. */
static void release_foreign(struct records *r, const struct wal_record *record,
                            const struct xact_record *x)
{
    bool known = known_find(r, x->xid) != NULL;
    if (x->kind == XACT_PREPARE || x->kind == XACT_ASSIGNMENT || x->kind == XACT_INVALIDATIONS)
        return;
    for (uint32_t i = 0; i < x->subxacts.count && !known; i++)
        known = known_find(r, xid_list_get(&x->subxacts, i)) != NULL;
    if (!known)
        return;
    put_xact(r, FRAME_ABORT, 0, record, x);
    forget_xact(r, x);
}

static enum status xact_record(struct records *r, const struct wal_record *record,
                               struct error *err)
{
    struct xact_record x;
    TRY(xact_record_parse(record, r->options.major, &x, err));
    if (x.db_oid != InvalidOid && x.db_oid != r->options.database) {
        release_foreign(r, record, &x);
        return OK;
    }
    switch ((enum xact_kind)x.kind) {
    case XACT_COMMIT:
    case XACT_COMMIT_PREPARED:
        return commit(r, record, &x, err);
    case XACT_ABORT:
    case XACT_ABORT_PREPARED:
        put_xact(r, FRAME_ABORT, x.kind == XACT_ABORT_PREPARED ? XACT_TWO_PHASE : 0, record, &x);
        forget_xact(r, &x);
        return OK;
    case XACT_PREPARE:
        put_xact(r, FRAME_PREPARE, 0, record, &x);
        return OK;
    case XACT_ASSIGNMENT:
        if (known_find(r, x.xid) != NULL)
            for (uint32_t i = 0; i < x.subxacts.count; i++)
                see_xid(r, xid_list_get(&x.subxacts, i), x.xid, record->start);
        return OK;
    case XACT_INVALIDATIONS:
        return OK;
    }
    return OK;
}

static enum status standby_record(struct records *r, const struct wal_record *record,
                                  struct error *err)
{
    if (standby_record_op(record) == XLOG_RUNNING_XACTS) {
        struct running_xacts running;
        TRY(running_xacts_parse(record, &running, err));
        struct running_frame f = {
            .head = {.len = sizeof f, .type = FRAME_RUNNING, .lsn = record->start},
            .oldest_running = running.oldest_running_xid,
            .next_xid = running.next_xid,
        };
        buf_put(r->out, &f, sizeof f);
        known_prune(r, running.oldest_running_xid);
    } else if (standby_record_op(record) == XLOG_STANDBY_LOCK) {
        struct standby_lock_list locks;
        TRY(standby_locks_parse(record, &locks, err));
        for (uint32_t i = 0; i < locks.count; i++) {
            struct standby_lock lock = standby_lock_get(&locks, i);
            if (lock.db_oid == r->options.database)
                see_xid(r, lock.xid, InvalidTransactionId, record->start);
        }
    }
    return OK;
}

/* VACUUM FULL pg_class gives it another file. */
static enum status relmap_record(struct records *r, const struct wal_record *record,
                                 struct error *err)
{
    Oid db_oid;
    struct relmap map;
    TRY(relmap_record_parse(record, &db_oid, &map, err));
    for (uint32_t i = 0; i < map.count && db_oid == r->options.database; i++) {
        Oid oid, filenode;
        relmap_get(&map, i, &oid, &filenode);
        if (oid == PG_CLASS_OID)
            r->pg_class = filenode;
    }
    return OK;
}

/* A transaction writes a file as whole pages: a rewrite, a move to another tablespace, an index. */
static enum status new_pages(struct records *r, const struct wal_record *record, struct error *err)
{
    const struct wal_block *b = &record->blocks[0];
    bool read = false;
    if (record->xid == InvalidTransactionId || record->nblocks == 0 || b->fork != MAIN_FORKNUM ||
        b->locator.db_oid != r->options.database)
        return OK;
    see_xid(r, record->xid, record->toplevel_xid, record->start);
    if (record->start < r->options.changes_from)
        return OK;
    if (!record->body_skipped)
        TRY(rewrites_pages(r->rewrites, record, emit_change, r, &read, err));
    if (!read)
        put_pages(r, record);
    return OK;
}

static enum status xlog_record(struct records *r, const struct wal_record *record, bool forwarded,
                               struct error *err)
{
    struct xlog_record x;
    if (!forwarded && (record->info & 0xF0) == XLOG_FPI)
        return new_pages(r, record, err);
    if (record->body_skipped)
        return OK;
    TRY(xlog_record_parse(record, r->options.major, &x, err));
    if (x.wal_level >= 0 && x.wal_level < WAL_LEVEL_LOGICAL)
        return error_lsn(err, ERR_CONFIG, record->start,
                         "the source's wal_level is below logical: rows written since cannot be "
                         "decoded. Set wal_level = logical, restart the source, remove the state "
                         "directory and load again");
    return OK;
}

/* C8: the catalogs of our database go away or move to another tablespace. */
static enum status database_record(const struct records *r, const struct wal_record *record,
                                   struct error *err)
{
    struct dbase_record d;
    TRY(dbase_record_parse(record, &d, err));
    if (d.db_oid != r->options.database)
        return OK;
    return error_lsn(err, ERR_CONFIG, record->start,
                     "the source database was %s: remove the state directory and load again",
                     d.kind == DBASE_DROP ? "dropped" : "moved to another tablespace");
}

enum status records_take(struct records *r, const struct wal_record *record, bool forwarded,
                         struct buf *out, struct error *err)
{
    r->out = out;
    r->record = record;
    switch (record->rmid) {
    case RM_HEAP_ID:
    case RM_HEAP2_ID:
        return heap_record(r, record, forwarded, err);
    case RM_XACT_ID:
        return xact_record(r, record, err);
    case RM_STANDBY_ID:
        return standby_record(r, record, err);
    case RM_XLOG_ID:
        return xlog_record(r, record, forwarded, err);
    case RM_DBASE_ID:
        return database_record(r, record, err);
    case RM_RELMAP_ID:
        return relmap_record(r, record, err);
    default:
        /* catalog indexes, files created, …: the transaction exists */
        if (record->xid != InvalidTransactionId && record->nblocks > 0 &&
            record->blocks[0].locator.db_oid == r->options.database)
            see_xid(r, record->xid, record->toplevel_xid, record->start);
        return OK;
    }
}
