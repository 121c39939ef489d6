#include "pg/xact_record.h"

#include "base/cursor.h"

#define XLOG_XACT_OPMASK 0x70
#define XLOG_XACT_HAS_INFO 0x80

#define XINFO_HAS_DBINFO (1u << 0)
#define XINFO_HAS_SUBXACTS (1u << 1)
#define XINFO_HAS_RELFILELOCATORS (1u << 2)
#define XINFO_HAS_INVALS (1u << 3)
#define XINFO_HAS_TWOPHASE (1u << 4)
#define XINFO_HAS_ORIGIN (1u << 5)
#define XINFO_HAS_GID (1u << 7)
#define XINFO_HAS_DROPPED_STATS (1u << 8)
#define XINFO_UPDATE_RELCACHE_FILE (1u << 30)

#define LOCATOR_SIZE 12u

/* A counted array; the count is an int in the format, so negative ones are too large here. */
static const uint8_t *take_array(struct cursor *c, uint32_t count, size_t size)
{
    return cursor_take(c, (size_t)count * size);
}

static size_t stats_item_size(unsigned major)
{
    return major >= 18 ? 16 : 12; /* objoid became objid_lo, objid_hi */
}

static void take_gid(struct cursor *c, struct xact_record *r)
{
    size_t left = cursor_left(c);
    const uint8_t *at = c->data + c->pos;
    const uint8_t *nul = left > 0 ? memchr(at, 0, MIN(left, (size_t)XACT_GID_MAX)) : NULL;
    if (nul == NULL) {
        c->failed = true;
        return;
    }
    r->gid = (const char *)at;
    r->gid_len = (uint32_t)(nul - at);
    cursor_skip(c, r->gid_len + 1u);
}

/* COMMIT, ABORT and their PREPARED forms: a time, then parts announced by xinfo. An abort record
 * has no invalidations and its writer sets no such bit. */
static void outcome_parse(struct cursor *c, uint8_t info, unsigned major, struct xact_record *r)
{
    r->time = cursor_i64(c);
    if (info & XLOG_XACT_HAS_INFO)
        r->xinfo = cursor_u32(c);
    if (r->xinfo & XINFO_HAS_DBINFO) {
        r->db_oid = cursor_u32(c);
        cursor_skip(c, 4); /* tablespace */
    }
    if (r->xinfo & XINFO_HAS_SUBXACTS) {
        r->subxacts.count = cursor_u32(c);
        r->subxacts.xids = take_array(c, r->subxacts.count, 4);
    }
    if (r->xinfo & XINFO_HAS_RELFILELOCATORS) {
        r->dropped.count = cursor_u32(c);
        r->dropped.locators = take_array(c, r->dropped.count, LOCATOR_SIZE);
    }
    if (r->xinfo & XINFO_HAS_DROPPED_STATS) {
        uint32_t count = cursor_u32(c);
        take_array(c, count, stats_item_size(major));
    }
    if (r->xinfo & XINFO_HAS_INVALS) {
        r->invals.count = cursor_u32(c);
        r->invals.messages = take_array(c, r->invals.count, INVAL_MESSAGE_SIZE);
    }
    if (r->xinfo & XINFO_HAS_TWOPHASE) {
        r->xid = cursor_u32(c);
        if (r->xinfo & XINFO_HAS_GID)
            take_gid(c, r);
    }
    if (r->xinfo & XINFO_HAS_ORIGIN) {
        r->has_origin = true;
        r->origin_lsn = cursor_u64(c);
        r->origin_time = cursor_i64(c);
    }
    r->relcache_init_file = (r->xinfo & XINFO_UPDATE_RELCACHE_FILE) != 0;
}

/* Parts of a PREPARE begin at multiples of 8 from the start of its data; the last one may end
 * there. */
static const uint8_t *take_aligned(struct cursor *c, uint32_t count, size_t size)
{
    size_t pad = (size_t)(MAXALIGN8(c->pos) - c->pos);
    if (count == 0)
        return NULL;
    cursor_skip(c, pad);
    return take_array(c, count, size);
}

/* xl_xact_prepare (TwoPhaseFileHeader) and its arrays. */
static void prepare_parse(struct cursor *c, unsigned major, struct xact_record *r)
{
    cursor_skip(c, 8); /* magic, total_len */
    r->xid = cursor_u32(c);
    r->db_oid = cursor_u32(c);
    r->time = cursor_i64(c);
    cursor_skip(c, 4); /* owner */
    r->subxacts.count = cursor_u32(c);
    r->dropped.count = cursor_u32(c);
    r->abort_dropped.count = cursor_u32(c);
    uint32_t commit_stats = cursor_u32(c);
    uint32_t abort_stats = cursor_u32(c);
    r->invals.count = cursor_u32(c);
    r->relcache_init_file = cursor_u8(c) != 0;
    cursor_skip(c, 1);
    uint32_t gid_bytes = cursor_u16(c); /* with the NUL */
    r->origin_lsn = cursor_u64(c);
    r->origin_time = cursor_i64(c);
    r->has_origin = r->origin_lsn != 0 || r->origin_time != 0;
    const uint8_t *gid = take_aligned(c, gid_bytes, 1);
    if (gid == NULL || gid_bytes > XACT_GID_MAX || gid[gid_bytes - 1] != 0) {
        c->failed = true;
        return;
    }
    r->gid = (const char *)gid;
    r->gid_len = (uint32_t)strlen(r->gid);
    r->subxacts.xids = take_aligned(c, r->subxacts.count, 4);
    r->dropped.locators = take_aligned(c, r->dropped.count, LOCATOR_SIZE);
    r->abort_dropped.locators = take_aligned(c, r->abort_dropped.count, LOCATOR_SIZE);
    take_aligned(c, commit_stats, stats_item_size(major));
    take_aligned(c, abort_stats, stats_item_size(major));
    r->invals.messages = take_aligned(c, r->invals.count, INVAL_MESSAGE_SIZE);
}

enum status xact_record_parse(const struct wal_record *record, unsigned major,
                              struct xact_record *ret, struct error *err)
{
    static const uint8_t kinds[] = {XACT_COMMIT,          XACT_PREPARE,        XACT_ABORT,
                                    XACT_COMMIT_PREPARED, XACT_ABORT_PREPARED, XACT_ASSIGNMENT,
                                    XACT_INVALIDATIONS};
    if (record->rmid != RM_XACT_ID || record->body_skipped)
        return error_lsn(err, ERR_BUG, record->start, "not a whole transaction record");
    unsigned op = (record->info & XLOG_XACT_OPMASK) >> 4;
    if (op >= LENGTH(kinds))
        return error_lsn(err, ERR_DATA, record->start, "unknown transaction record %02X",
                         record->info);
    struct xact_record r = {.kind = kinds[op], .xid = record->xid};
    struct cursor c = cursor_of(record->main_data, record->main_len);
    switch ((enum xact_kind)r.kind) {
    case XACT_COMMIT:
    case XACT_ABORT:
    case XACT_COMMIT_PREPARED:
    case XACT_ABORT_PREPARED:
        outcome_parse(&c, record->info, major, &r);
        break;
    case XACT_PREPARE:
        prepare_parse(&c, major, &r);
        break;
    case XACT_ASSIGNMENT:
        r.xid = cursor_u32(&c);
        r.subxacts.count = cursor_u32(&c);
        r.subxacts.xids = take_array(&c, r.subxacts.count, 4);
        break;
    case XACT_INVALIDATIONS:
        r.invals.count = cursor_u32(&c);
        r.invals.messages = take_array(&c, r.invals.count, INVAL_MESSAGE_SIZE);
        break;
    }
    if (!cursor_ok(&c))
        return error_lsn(err, ERR_DATA, record->start,
                         "transaction record %02X of xid %u is shorter than it says", record->info,
                         record->xid);
    *ret = r;
    return OK;
}
