/* Records in, frames and calls of the boundary out. */
#pragma once
#include "pump/records.h"
#include "wal.h"

#define STATISTICS_FILE 2619u
#define CALLS_MAX 8

struct harness {
    struct records *r;
    struct buf out;
    unsigned calls; /* of the boundary */
    struct {
        XLogRecPtr end;
        Oid oids[8];
        size_t n;
        bool all;
        size_t out_len; /* frames before it */
    } call[CALLS_MAX];
    enum status boundary_status;
};

/* The filenode is the oid, as initdb makes it. */
static inline Oid catalog_oid(void *ctx, struct rel_file_locator locator)
{
    (void)ctx;
    return locator.rel_number < FirstNormalObjectId ? locator.rel_number : InvalidOid;
}

static inline enum status boundary(void *ctx, XLogRecPtr end, const Oid *oids, size_t n, bool all,
                                   struct error *err)
{
    struct harness *h = ctx;
    assert_true(h->calls < CALLS_MAX && n <= 8);
    h->call[h->calls].end = end;
    h->call[h->calls].n = n;
    h->call[h->calls].all = all;
    h->call[h->calls].out_len = h->out.len;
    if (n > 0)
        memcpy(h->call[h->calls].oids, oids, n * sizeof *oids);
    h->calls++;
    return h->boundary_status == OK ? OK : error_set(err, h->boundary_status, "the boundary fails");
}

static inline void harness_init(struct harness *h, unsigned major, XLogRecPtr from,
                                TransactionId load_xid)
{
    *h = (struct harness){0};
    h->r = records_new(&(struct records_options){.major = major,
                                                 .database = OUR_DB,
                                                 .changes_from = from,
                                                 .load_xid = load_xid,
                                                 .catalog_oid = catalog_oid,
                                                 .boundary = boundary,
                                                 .ctx = h});
}

static inline void harness_fini(struct harness *h)
{
    records_free(h->r);
    buf_free(&h->out);
}

static inline void take(struct harness *h, const struct wal_record *record, bool forwarded)
{
    struct error err = {0};
    assert_ok(records_take(h->r, record, forwarded, &h->out, &err));
}

/* The next frame at *at, NULL at the end. Every length is a multiple of 8. */
static inline const struct frame_head *next_frame(const struct harness *h, size_t *at)
{
    if (*at == h->out.len)
        return NULL;
    const struct frame_head *f = (const struct frame_head *)(h->out.data + *at);
    assert_true(f->len >= sizeof *f && f->len % 8 == 0 && f->len <= h->out.len - *at);
    *at += f->len;
    return f;
}

static inline const struct frame_head *
expect(const struct harness *h, size_t *at, enum frame_type type, TransactionId xid, XLogRecPtr lsn)
{
    const struct frame_head *f = next_frame(h, at);
    assert_non_null(f);
    assert_int_equal(f->type, type);
    assert_int_equal(f->xid, xid);
    assert_int_equal(f->lsn, lsn);
    return f;
}

static inline void expect_end(const struct harness *h, size_t at)
{
    assert_int_equal(at, h->out.len);
}

/* INSERT of one tuple at line 3 of block 7. */
static inline void insert_at(struct harness *h, TransactionId xid, TransactionId top,
                             XLogRecPtr lsn, struct rel_file_locator file, bool forwarded)
{
    static const struct buf main = {(uint8_t *)"\3\0\0", 3, 3};
    static const struct buf tuple = {(uint8_t *)"\1\0\0\x08\x18\0val", 9, 9};
    struct wal_record r = record_of(RM_HEAP_ID, 0x00, xid, lsn, &main);
    r.toplevel_xid = top;
    record_block(&r, file, &tuple);
    take(h, &r, forwarded);
}

static inline void user_insert(struct harness *h, TransactionId xid, XLogRecPtr lsn)
{
    insert_at(h, xid, 0, lsn, table_file(OUR_DB, 16401), false);
}

/* A row of pg_class (or another catalog of ours): goes to the shadow. */
static inline void catalog_insert(struct harness *h, TransactionId xid, XLogRecPtr lsn)
{
    insert_at(h, xid, 0, lsn, table_file(OUR_DB, 1259), true);
}

/* INSERT of a row of pg_class (catalog/pg_class.h), of which only this counts. */
struct class_put {
    Oid oid, filenode;
    const char *name; /* NULL: empty */
    char persistence;
};
static inline void class_insert(struct harness *h, unsigned major, TransactionId xid,
                                XLogRecPtr lsn, Oid file, struct class_put row)
{
    static const struct buf main = {(uint8_t *)"\3\0\0", 3, 3};
    CLEANUP_BUF struct buf tuple = {0};
    char name[64] = "";
    snprintf(name, sizeof name, "%s", row.name == NULL ? "" : row.name);
    buf_put(&tuple, "\x21\0\x01\x09\x20", 5); /* a null bitmap: 32 bytes of header */
    buf_put_zeros(&tuple, 32 - 23);
    buf_put_u32(&tuple, row.oid);
    buf_put(&tuple, name, sizeof name);
    buf_put_zeros(&tuple, 88 - 4 - sizeof name);
    buf_put_u32(&tuple, row.filenode);
    buf_put_zeros(&tuple, (major >= 18 ? 118 : 114) - 92);
    buf_put_u8(&tuple, (uint8_t)row.persistence);
    buf_put_zeros(&tuple, 30);
    struct wal_record r = record_of(RM_HEAP_ID, 0x00, xid, lsn, &main);
    record_block(&r, table_file(OUR_DB, file), &tuple);
    take(h, &r, true);
}

static inline void outcome(struct harness *h, uint8_t info, TransactionId xid, XLogRecPtr lsn,
                           struct outcome o)
{
    CLEANUP_BUF struct buf main = {0};
    outcome_put(&main, o);
    struct wal_record r = record_of(RM_XACT_ID, info, xid, lsn, &main);
    take(h, &r, false);
}

/* COMMIT of our database with a relation cache invalidation of rel. */
static inline void commit_inval(struct harness *h, TransactionId xid, XLogRecPtr lsn, Oid rel)
{
    CLEANUP_BUF struct buf invals = {0};
    inval_put(&invals, RELCACHE, OUR_DB, rel);
    outcome(h, INFO_COMMIT, xid, lsn, (struct outcome){.db = OUR_DB, .invals = &invals});
}
