/* Layouts: access/heapam_xlog.h of 15 to 18 (the same but for the added visibility-map blocks). */
#include "pg/change.h"

#include "base/cursor.h"
#include "pg/image.h"
#include "pg/page.h"

/* xl_info of RM_HEAP_ID; the top bit is INIT_PAGE */
#define HEAP_OPMASK 0x70
#define HEAP_INIT_PAGE 0x80
#define HEAP_INSERT 0x00
#define HEAP_DELETE 0x10
#define HEAP_UPDATE 0x20
#define HEAP_TRUNCATE 0x30
#define HEAP_HOT_UPDATE 0x40
#define HEAP_CONFIRM 0x50
/* of RM_HEAP2_ID */
#define HEAP2_MULTI_INSERT 0x50

#define XLH_INSERT_IS_SPECULATIVE 0x04

#define XLH_UPDATE_CONTAINS_OLD_TUPLE 0x04
#define XLH_UPDATE_CONTAINS_OLD_KEY 0x08
#define XLH_UPDATE_CONTAINS_NEW_TUPLE 0x10
#define XLH_UPDATE_PREFIX_FROM_OLD 0x20
#define XLH_UPDATE_SUFFIX_FROM_OLD 0x40

#define XLH_DELETE_CONTAINS_OLD_TUPLE 0x02
#define XLH_DELETE_CONTAINS_OLD_KEY 0x04
#define XLH_DELETE_IS_SUPER 0x08

struct heap_walk {
    const struct wal_record *record;
    change_fn emit;
    void *ctx;
    bool incomplete;
};

static enum status damaged(const struct wal_record *r, const char *what, struct error *err)
{
    return error_lsn(err, ERR_DATA, r->start, "damaged heap record (rmgr %u, info 0x%02X): %s",
                     r->rmid, r->info, what);
}

/* Block `id` of the main fork; the visibility-map blocks of newer minors have ids of their own. */
static const struct wal_block *main_block(const struct wal_record *r, unsigned id)
{
    const struct wal_block *b = wal_record_block(r, id);
    return b != NULL && b->fork == MAIN_FORKNUM ? b : NULL;
}

/* xl_heap_header (5 bytes), then everything that is left: bitmap, padding, data. */
static bool tuple_take(struct cursor *c, struct raw_tuple *ret)
{
    ret->infomask2 = cursor_u16(c);
    ret->infomask = cursor_u16(c);
    ret->hoff = cursor_u8(c);
    ret->body_len = (uint32_t)cursor_left(c);
    ret->body = cursor_take(c, ret->body_len);
    return cursor_ok(c);
}

static struct change change_of(const struct wal_record *r, enum change_kind kind,
                               const struct wal_block *block)
{
    return (struct change){.kind = (uint8_t)kind, .lsn = r->start, .locator = block->locator};
}

/* A TOAST row of a rewrite (VACUUM FULL, CLUSTER) is only in the page's image if there is one (B7).
 */
static enum status insert_from_image(struct heap_walk *w, const struct wal_block *b,
                                     OffsetNumber offset, struct change *change, struct error *err)
{
    uint8_t bytes[PG_BLCKSZ];
    struct heap_page page;
    struct page_tuple tuple;
    bool normal = false;
    if (wal_block_image_restore(b, bytes, err) != OK || heap_page_open(bytes, &page, err) != OK ||
        (offset <= page.nlines && heap_page_tuple(&page, offset, &tuple, &normal, err) != OK))
        return error_prefix(err, "heap record at " LSN_FMT, LSN_ARGS(w->record->start));
    if (!normal)
        return damaged(w->record, "INSERT whose image does not hold its row", err);
    change->new_tuple = tuple.raw;
    change->has_new = true;
    return w->emit(w->ctx, change, err);
}

/* xl_heap_insert: offnum, flags; the tuple in block 0's data, always there for user tables (B7). */
static enum status insert_walk(struct heap_walk *w, struct error *err)
{
    const struct wal_record *r = w->record;
    const struct wal_block *b = main_block(r, 0);
    struct cursor c = cursor_of(r->main_data, r->main_len);
    OffsetNumber offset = cursor_u16(&c);
    uint8_t flags = cursor_u8(&c);
    if (b == NULL || !cursor_ok(&c) || offset == 0)
        return damaged(r, "INSERT without block, offset or flags", err);
    struct change change = change_of(r, CHANGE_INSERT, b);
    change.new_tid = tid_make(b->block, offset);
    if (flags & XLH_INSERT_IS_SPECULATIVE)
        change.flags = CHANGE_SPECULATIVE;
    if (!b->has_data && b->has_image && b->image != NULL)
        return insert_from_image(w, b, offset, &change, err);
    if (!b->has_data) {
        w->incomplete = true;
        return OK;
    }
    struct cursor data = cursor_of(b->data, b->data_len);
    if (!tuple_take(&data, &change.new_tuple))
        return damaged(r, "INSERT with a cut tuple", err);
    change.has_new = true;
    return w->emit(w->ctx, &change, err);
}

/* xl_heap_delete: xmax, offnum, infobits, flags, then the old tuple or key if flagged. */
static enum status delete_walk(struct heap_walk *w, struct error *err)
{
    const struct wal_record *r = w->record;
    const struct wal_block *b = main_block(r, 0);
    struct cursor c = cursor_of(r->main_data, r->main_len);
    cursor_skip(&c, 4);
    OffsetNumber offset = cursor_u16(&c);
    cursor_skip(&c, 1);
    uint8_t flags = cursor_u8(&c);
    if (b == NULL || !cursor_ok(&c) || offset == 0)
        return damaged(r, "DELETE without block, offset or flags", err);
    bool super = flags & XLH_DELETE_IS_SUPER;
    struct change change = change_of(r, super ? CHANGE_SPEC_DELETE : CHANGE_DELETE, b);
    change.old_tid = tid_make(b->block, offset);
    if (flags & (XLH_DELETE_CONTAINS_OLD_TUPLE | XLH_DELETE_CONTAINS_OLD_KEY)) {
        if (!tuple_take(&c, &change.old_tuple))
            return damaged(r, "DELETE with a cut old tuple", err);
        change.has_old = true;
        change.flags = flags & XLH_DELETE_CONTAINS_OLD_TUPLE ? CHANGE_OLD_FULL : CHANGE_OLD_KEY;
    }
    return w->emit(w->ctx, &change, err);
}

/* xl_heap_update: old_xmax, old_offnum, infobits, flags, new_xmax, new_offnum, then the old tuple
 * or key if flagged. Block 0 is the new page; block 1 the old one if that is another page. */
static enum status update_walk(struct heap_walk *w, struct error *err)
{
    const struct wal_record *r = w->record;
    const struct wal_block *b = main_block(r, 0), *old = main_block(r, 1);
    struct cursor c = cursor_of(r->main_data, r->main_len);
    cursor_skip(&c, 4);
    OffsetNumber old_offset = cursor_u16(&c);
    cursor_skip(&c, 1);
    uint8_t flags = cursor_u8(&c);
    cursor_skip(&c, 4);
    OffsetNumber new_offset = cursor_u16(&c);
    if (b == NULL || !cursor_ok(&c) || old_offset == 0 || new_offset == 0)
        return damaged(r, "UPDATE without block, offsets or flags", err);
    if (!(flags & XLH_UPDATE_CONTAINS_NEW_TUPLE) || !b->has_data ||
        (flags & (XLH_UPDATE_PREFIX_FROM_OLD | XLH_UPDATE_SUFFIX_FROM_OLD))) {
        w->incomplete = true;
        return OK;
    }
    struct change change = change_of(r, CHANGE_UPDATE, b);
    struct cursor data = cursor_of(b->data, b->data_len);
    if (!tuple_take(&data, &change.new_tuple))
        return damaged(r, "UPDATE with a cut new tuple", err);
    change.has_new = true;
    change.new_tid = tid_make(b->block, new_offset);
    change.old_tid = tid_make(old != NULL ? old->block : b->block, old_offset);
    if (flags & (XLH_UPDATE_CONTAINS_OLD_TUPLE | XLH_UPDATE_CONTAINS_OLD_KEY)) {
        if (!tuple_take(&c, &change.old_tuple))
            return damaged(r, "UPDATE with a cut old tuple", err);
        change.has_old = true;
        change.flags = flags & XLH_UPDATE_CONTAINS_OLD_TUPLE ? CHANGE_OLD_FULL : CHANGE_OLD_KEY;
    }
    return w->emit(w->ctx, &change, err);
}

/* xl_multi_insert_tuple at an even offset: datalen, infomask2, infomask, hoff, datalen bytes. */
static bool multi_tuple_take(struct cursor *c, struct raw_tuple *ret)
{
    if (c->pos & 1)
        cursor_skip(c, 1);
    uint16_t len = cursor_u16(c);
    ret->infomask2 = cursor_u16(c);
    ret->infomask = cursor_u16(c);
    ret->hoff = cursor_u8(c);
    ret->body_len = len;
    ret->body = cursor_take(c, len);
    return cursor_ok(c);
}

/* xl_heap_multi_insert: flags, a pad byte, ntuples, then their offsets unless the page is
 * initialised (then they are 1, 2, 3 …). The tuples are block 0's data. */
static enum status multi_insert_walk(struct heap_walk *w, struct error *err)
{
    const struct wal_record *r = w->record;
    const struct wal_block *b = main_block(r, 0);
    struct cursor c = cursor_of(r->main_data, r->main_len);
    bool init_page = r->info & HEAP_INIT_PAGE;
    cursor_skip(&c, 2);
    uint16_t ntuples = cursor_u16(&c);
    if (b == NULL || !cursor_ok(&c) || (!init_page && cursor_left(&c) < (size_t)ntuples * 2))
        return damaged(r, "MULTI_INSERT without block or offsets", err);
    if (!b->has_data) {
        w->incomplete = true;
        return OK;
    }
    struct cursor data = cursor_of(b->data, b->data_len);
    for (uint16_t i = 0; i < ntuples; i++) {
        struct change change = change_of(r, CHANGE_INSERT, b);
        OffsetNumber offset = init_page ? (OffsetNumber)(i + 1) : cursor_u16(&c);
        if (offset == 0 || !multi_tuple_take(&data, &change.new_tuple))
            return damaged(r, "MULTI_INSERT with a cut tuple or offset 0", err);
        change.ordinal = i;
        change.has_new = true;
        change.new_tid = tid_make(b->block, offset);
        TRY(w->emit(w->ctx, &change, err));
    }
    if (cursor_left(&data) != 0)
        return damaged(r, "MULTI_INSERT with bytes behind its last tuple", err);
    return OK;
}

/* xl_heap_confirm: offnum. */
static enum status confirm_walk(struct heap_walk *w, struct error *err)
{
    const struct wal_record *r = w->record;
    const struct wal_block *b = main_block(r, 0);
    struct cursor c = cursor_of(r->main_data, r->main_len);
    OffsetNumber offset = cursor_u16(&c);
    if (b == NULL || !cursor_ok(&c) || offset == 0)
        return damaged(r, "CONFIRM without block or offset", err);
    struct change change = change_of(r, CHANGE_SPEC_CONFIRM, b);
    change.new_tid = tid_make(b->block, offset);
    return w->emit(w->ctx, &change, err);
}

static enum status heap_walk(struct heap_walk *w, uint8_t op, struct error *err)
{
    switch (op) {
    case HEAP_INSERT:
        return insert_walk(w, err);
    case HEAP_DELETE:
        return delete_walk(w, err);
    case HEAP_UPDATE:
    case HEAP_HOT_UPDATE:
        return update_walk(w, err);
    case HEAP_CONFIRM:
        return confirm_walk(w, err);
    default: /* TRUNCATE has its own function; LOCK and INPLACE change no row */
        return OK;
    }
}

enum status heap_record_changes(const struct wal_record *record, change_fn emit, void *ctx,
                                bool *ret_incomplete, struct error *err)
{
    struct heap_walk walk = {.record = record, .emit = emit, .ctx = ctx};
    uint8_t op = record->info & HEAP_OPMASK;
    *ret_incomplete = false;
    if (record->rmid != RM_HEAP_ID && record->rmid != RM_HEAP2_ID)
        return error_lsn(err, ERR_BUG, record->start, "record of rmgr %u is not a heap record",
                         record->rmid);
    if (record->rmid == RM_HEAP2_ID && op != HEAP2_MULTI_INSERT)
        return OK; /* rewrite, prune, vacuum, freeze, visible, locks, new cid */
    if (record->body_skipped) {
        *ret_incomplete = true;
        return OK;
    }
    if (record->rmid == RM_HEAP2_ID)
        TRY(multi_insert_walk(&walk, err));
    else
        TRY(heap_walk(&walk, op, err));
    *ret_incomplete = walk.incomplete;
    return OK;
}

bool heap_record_is_truncate(const struct wal_record *record)
{
    return record->rmid == RM_HEAP_ID && (record->info & HEAP_OPMASK) == HEAP_TRUNCATE;
}

/* xl_heap_truncate: dbId, nrelids, flags, 3 pad bytes, relids. */
enum status heap_truncate_parse(const struct wal_record *record, struct heap_truncate *ret,
                                struct error *err)
{
    struct cursor c = cursor_of(record->main_data, record->main_len);
    struct heap_truncate t = {.db_oid = cursor_u32(&c), .nrelids = cursor_u32(&c)};
    t.flags = cursor_u8(&c);
    cursor_skip(&c, 3);
    if (!cursor_ok(&c) || t.nrelids > cursor_left(&c) / sizeof(Oid))
        return damaged(record, "TRUNCATE with a cut list of relations", err);
    t.relids = cursor_take(&c, (size_t)t.nrelids * sizeof(Oid));
    *ret = t;
    return OK;
}
