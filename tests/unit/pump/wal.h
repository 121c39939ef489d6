/* WAL records made by hand, for what is told of them. Layouts: access/heapam_xlog.h,
 * access/xact.h, storage/sinval.h, storage/standbydefs.h. */
#pragma once
#include "base/buf.h"
#include "pg/inval.h"
#include "pg/wal_record.h"
#include "test.h"

#define OUR_DB 5u
#define OTHER_DB 6u

static inline struct rel_file_locator table_file(Oid db, Oid number)
{
    return (struct rel_file_locator){1663, db, number};
}

/* A record of 40 bytes of WAL at lsn. Its data belongs to the caller. */
static inline struct wal_record record_of(uint8_t rmid, uint8_t info, TransactionId xid,
                                          XLogRecPtr lsn, const struct buf *main)
{
    return (struct wal_record){.start = lsn,
                               .end = lsn + 40,
                               .xid = xid,
                               .rmid = rmid,
                               .info = info,
                               .main_data = main == NULL ? NULL : main->data,
                               .main_len = main == NULL ? 0 : (uint32_t)main->len};
}

static inline void record_block(struct wal_record *r, struct rel_file_locator locator,
                                const struct buf *data)
{
    r->blocks[r->nblocks++] =
        (struct wal_block){.locator = locator,
                           .block = 7,
                           .has_data = data != NULL,
                           .data = data == NULL ? NULL : data->data,
                           .data_len = data == NULL ? 0 : (uint16_t)data->len};
}

/* One invalidation message. */
static inline void inval_put(struct buf *out, int8_t id, Oid db, Oid rel)
{
    buf_put_u8(out, (uint8_t)id);
    buf_put_zeros(out, 3);
    buf_put_u32(out, db);
    buf_put_u32(out, rel);
    buf_put_u32(out, 0);
}
#define RELCACHE (-2)

struct outcome {
    Oid db;
    TransactionId two_phase;
    const TransactionId *subs;
    uint32_t nsub;
    const struct rel_file_locator *dropped;
    uint32_t ndropped;
    const struct buf *invals;
};

/* Main data of a COMMIT or ABORT (or PREPARED form) at time 1234567. */
static inline void outcome_put(struct buf *out, struct outcome o)
{
    uint32_t xinfo = (o.db != 0 ? 1u : 0) | (o.nsub > 0 ? 2u : 0) | (o.ndropped > 0 ? 4u : 0) |
                     (o.invals != NULL ? 8u : 0) | (o.two_phase != 0 ? 16u : 0);
    buf_put_i64(out, 1234567);
    buf_put_u32(out, xinfo);
    if (o.db != 0) {
        buf_put_u32(out, o.db);
        buf_put_u32(out, 1663);
    }
    if (o.nsub > 0) {
        buf_put_u32(out, o.nsub);
        buf_put(out, o.subs, o.nsub * sizeof *o.subs);
    }
    if (o.ndropped > 0) {
        buf_put_u32(out, o.ndropped);
        buf_put(out, o.dropped, o.ndropped * sizeof *o.dropped);
    }
    if (o.invals != NULL) {
        buf_put_u32(out, (uint32_t)(o.invals->len / INVAL_MESSAGE_SIZE));
        buf_put(out, o.invals->data, o.invals->len);
    }
    if (o.two_phase != 0)
        buf_put_u32(out, o.two_phase);
}
#define XACT_HAS_INFO 0x80
#define INFO_COMMIT (0x00 | XACT_HAS_INFO)
#define INFO_ABORT (0x20 | XACT_HAS_INFO)
#define INFO_COMMIT_PREPARED (0x30 | XACT_HAS_INFO)
#define INFO_ABORT_PREPARED (0x40 | XACT_HAS_INFO)

/* Main data of a TRUNCATE: database, count, flags, padding, relations. */
static inline void truncate_put(struct buf *out, Oid db, const Oid *rels, uint32_t n)
{
    buf_put_u32(out, db);
    buf_put_u32(out, n);
    buf_put_u8(out, 1);
    buf_put_zeros(out, 3);
    buf_put(out, rels, n * sizeof *rels);
}
