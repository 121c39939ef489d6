#include "load/window.h"

#include "load/load_internal.h"
#include "pg/change.h"
#include "pg/image.h"
#include "pg/xact_record.h"
#include "pg/xlog_record.h"

#include <stdlib.h>

#define RM_HEAP_OP_MASK 0x70
#define HEAP_DELETE 0x10
#define XLH_DELETE_IS_SUPER 0x08

/* Images of all relations that may wait for their batch to fill. */
#define PENDING_PAGES_MAX 512u

void window_init(struct load_window *w, struct load *l)
{
    w->load = l;
    pthread_mutex_init(&w->images_lock, NULL);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->moved, NULL);
    atomic_init(&w->awaited, UINT64_MAX);
}

void window_fini(struct load_window *w)
{
    free(w->super_deletes);
    pthread_cond_destroy(&w->moved);
    pthread_mutex_destroy(&w->lock);
    pthread_mutex_destroy(&w->images_lock);
}

/* awaited and passed are both sequentially consistent: either the waiter sees the new position, or
 * this thread sees that it waits. */
void load_window_position(struct load_window *w, XLogRecPtr lsn)
{
    if (lsn <= atomic_load_explicit(&w->passed, memory_order_relaxed))
        return;
    atomic_store(&w->passed, lsn);
    if (lsn >= atomic_load(&w->awaited)) {
        pthread_mutex_lock(&w->lock);
        pthread_cond_broadcast(&w->moved);
        pthread_mutex_unlock(&w->lock);
    }
}

XLogRecPtr load_window_passed(struct load_window *w)
{
    return atomic_load(&w->passed);
}

enum status window_wait(struct load_window *w, XLogRecPtr lsn, struct error *err)
{
    if (atomic_load(&w->passed) >= lsn)
        return OK;
    pthread_mutex_lock(&w->lock);
    atomic_store(&w->awaited, lsn);
    while (atomic_load(&w->passed) < lsn && !atomic_load(&w->load->cancelled))
        pthread_cond_wait(&w->moved, &w->lock);
    atomic_store(&w->awaited, UINT64_MAX);
    pthread_mutex_unlock(&w->lock);
    return load_check(w->load, err);
}

static bool is_accepted(const struct load_rel *rel, BlockNumber block)
{
    uint32_t segment = block / LOAD_SEGMENT_BLOCKS;
    return segment < rel->nsegments && block % LOAD_SEGMENT_BLOCKS < rel->accepted[segment];
}

static void accept_up_to(struct load_rel *rel, BlockNumber block)
{
    uint32_t segment = block / LOAD_SEGMENT_BLOCKS;
    if (segment >= rel->nsegments) {
        rel->accepted = xrealloc(rel->accepted, (segment + 1) * sizeof *rel->accepted);
        memset(rel->accepted + rel->nsegments, 0,
               (segment + 1 - rel->nsegments) * sizeof *rel->accepted);
        rel->nsegments = segment + 1;
    }
    rel->accepted[segment] = block % LOAD_SEGMENT_BLOCKS + 1;
}

void window_accept(struct load_window *w, struct page_batch *b)
{
    uint64_t covered = 0;
    if (b->npages == 0)
        return;
    pthread_mutex_lock(&w->lock);
    for (uint32_t i = 0; i < b->npages; i++)
        covered |= (uint64_t)block_set_has(&b->rel->covered, b->blocks[i]) << i;
    accept_up_to(b->rel, b->blocks[b->npages - 1]);
    pthread_mutex_unlock(&w->lock);
    page_batch_drop(b, covered);
}

static enum status images_submit(struct load_window *w, struct load_rel *rel, struct error *err)
{
    struct page_batch *batch = rel->images;
    if (batch == NULL)
        return OK;
    rel->images = NULL;
    w->pending_pages -= batch->npages;
    return load_submit(w->load, batch, err);
}

static enum status images_submit_all(struct load_window *w, struct error *err)
{
    for (size_t i = 0; i < w->load->nrels; i++)
        TRY(images_submit(w, &w->load->rels[i], err));
    return OK;
}

struct image_change {
    const struct load_rel *rel;
    BlockNumber block;
    uint8_t *page;
    struct heap_page heap;
};

static enum status change_undo(void *ctx, const struct change *c, struct error *err)
{
    struct image_change *i = ctx;
    OffsetNumber created = (OffsetNumber)(c->new_tid & 0xffff),
                 deleted = (OffsetNumber)(c->old_tid & 0xffff);
    struct page_tuple tuple;
    bool normal = false;
    if (c->has_new && c->new_tid >> 16 == i->block && created <= i->heap.nlines)
        heap_page_line_clear(i->page, created);
    if (i->rel->chunks && c->kind == CHANGE_DELETE && c->old_tid >> 16 == i->block &&
        deleted <= i->heap.nlines) {
        TRY(heap_page_tuple(&i->heap, deleted, &tuple, &normal, err));
        if (normal)
            heap_page_xmax_clear(i->page, deleted);
    }
    return OK;
}

/* An image shows what its own record did, which is in the stream too. A row it wrote is not taken
 * from here: its values may be in the stream only, and a speculative one would look half done. A
 * chunk it deleted is: rows of the stream that come before may need it. */
static enum status record_undo(const struct load_rel *rel, const struct wal_record *r,
                               const struct wal_block *b, uint8_t *page, struct error *err)
{
    struct image_change change = {.rel = rel, .block = b->block, .page = page};
    bool incomplete;
    if (r->rmid != RM_HEAP_ID && r->rmid != RM_HEAP2_ID)
        return OK;
    TRY(heap_page_open(page, &change.heap, err));
    return heap_record_changes(r, change_undo, &change, &incomplete, err);
}

static enum status image_take(struct load_window *w, struct load_rel *rel,
                              const struct wal_record *r, const struct wal_block *b,
                              struct error *err)
{
    uint8_t page[PG_BLCKSZ];
    if (wal_block_image_restore(b, page, err) != OK || record_undo(rel, r, b, page, err) != OK)
        return error_prefix(err, "WAL record at " LSN_FMT ", %s.%s", LSN_ARGS(r->start),
                            rel->desc->schema, rel->desc->name);
    if (rel->images == NULL)
        rel->images = page_batch_new(rel);
    memcpy(page_batch_add(rel->images, b->block), page, PG_BLCKSZ);
    w->pending_pages++;
    if (rel->images->npages == PAGE_BATCH_PAGES)
        return images_submit(w, rel, err);
    if (w->pending_pages >= PENDING_PAGES_MAX)
        return images_submit_all(w, err);
    return OK;
}

/* True for the first image or INIT of a block that has not been accepted. */
static bool block_cover(struct load_window *w, struct load_rel *rel, BlockNumber block)
{
    pthread_mutex_lock(&w->lock);
    bool first = !is_accepted(rel, block) && block_set_add(&rel->covered, block);
    pthread_mutex_unlock(&w->lock);
    return first;
}

/* The first image or INIT of a block whose tar copy has not been accepted takes that copy's place.
 * INIT: whatever the page holds from now on is in the stream. */
static enum status block_note(struct load_window *w, const struct wal_record *r,
                              const struct wal_block *b, struct error *err)
{
    if (b->fork != MAIN_FORKNUM || !(b->has_image || b->will_init))
        return OK;
    struct load_rel *rel = load_rel_find(w->load, b->locator);
    if (rel == NULL || atomic_load_explicit(&rel->stopped, memory_order_relaxed))
        return OK;
    pthread_mutex_lock(&w->images_lock);
    bool take = !w->images_done && block_cover(w, rel, b->block) && b->has_image;
    enum status status = take ? image_take(w, rel, r, b, err) : OK;
    pthread_mutex_unlock(&w->images_lock);
    return status;
}

enum status window_images_finish(struct load_window *w, struct error *err)
{
    pthread_mutex_lock(&w->images_lock);
    w->images_done = true;
    enum status status = images_submit_all(w, err);
    pthread_mutex_unlock(&w->images_lock);
    return status;
}

/* Until load_finish a fate is only noted: it settles what waits. Noting comes before looking at
 * `finishing`, and load_finish looks for fates after setting it, so one of the two sees to it. */
static enum status fate_note(struct load *l, TransactionId xid, bool committed, struct error *err)
{
    if (xid < FirstNormalTransactionId || !xid_precedes(xid, l->next_xid))
        return OK;
    fates_end_set(l->fates, xid, committed);
    return atomic_load(&l->finishing) ? load_fate(l, xid, committed, err) : OK;
}

static enum status xact_note(struct load_window *w, const struct wal_record *r, struct error *err)
{
    struct xact_record x;
    TRY(xact_record_parse(r, w->load->options.major, &x, err));
    bool commit = x.kind == XACT_COMMIT || x.kind == XACT_COMMIT_PREPARED;
    if (!commit && x.kind != XACT_ABORT && x.kind != XACT_ABORT_PREPARED)
        return OK;
    TRY(fate_note(w->load, x.xid, commit, err));
    for (uint32_t i = 0; i < x.subxacts.count; i++)
        TRY(fate_note(w->load, xid_list_get(&x.subxacts, i), commit, err));
    return OK;
}

/* Kept for the rows that wait: of transactions that were open at the start, and taken back. */
void window_super_delete_note(struct load_window *w, const struct load_rel *rel, uint64_t tid,
                              TransactionId xid)
{
    pthread_mutex_lock(&w->lock);
    if (w->nsuper_deletes == w->cap_super_deletes) {
        w->cap_super_deletes = MAX(2 * w->cap_super_deletes, 16u);
        w->super_deletes =
            xrealloc(w->super_deletes, w->cap_super_deletes * sizeof *w->super_deletes);
    }
    w->super_deletes[w->nsuper_deletes++] = (struct super_delete){rel, tid, xid};
    pthread_mutex_unlock(&w->lock);
}

bool window_super_deleted(struct load_window *w, const struct load_rel *rel, uint64_t tid,
                          TransactionId xid)
{
    bool found = false;
    pthread_mutex_lock(&w->lock);
    for (size_t i = 0; i < w->nsuper_deletes && !found; i++) {
        const struct super_delete *s = &w->super_deletes[i];
        found = s->rel == rel && s->tid == tid && s->xid == xid;
    }
    pthread_mutex_unlock(&w->lock);
    return found;
}

/* xl_heap_delete: xmax, offnum, infobits, flags. */
static void super_delete_take(struct load_window *w, const struct wal_record *r)
{
    const struct wal_block *b = wal_record_block(r, 0);
    uint16_t offset;
    if (r->rmid != RM_HEAP_ID || (r->info & RM_HEAP_OP_MASK) != HEAP_DELETE || b == NULL ||
        r->main_len < 8 || !(r->main_data[7] & XLH_DELETE_IS_SUPER) ||
        r->start < atomic_load(&w->load->start_lsn) || !xid_precedes(r->xid, w->load->next_xid))
        return;
    const struct load_rel *rel = load_rel_find(w->load, b->locator);
    memcpy(&offset, r->main_data + 4, sizeof offset);
    if (rel != NULL)
        window_super_delete_note(w, rel, tid_make(b->block, offset), r->xid);
}

static enum status multixact_note(struct load_window *w, const struct wal_record *r,
                                  struct error *err)
{
    struct multixact_create create;
    TRY(multixact_create_parse(r, &create, err));
    for (uint32_t i = 0; i < create.nmembers; i++) {
        struct multixact_member m = multixact_create_member(&create, i);
        if (multixact_member_updates(m))
            fates_updater_set(w->load->fates, create.multi, UPDATER_XID, m.xid);
    }
    return OK;
}

/* The backup's own checkpoint: multixacts before its next one are in the backup's pg_multixact, all
 * others in the window. */
static enum status checkpoint_note(struct load_window *w, const struct wal_record *r,
                                   struct error *err)
{
    struct xlog_record x;
    if (w->next_multi != 0 || r->body_skipped ||
        !(wal_record_is_xlog(r, XLOG_CHECKPOINT_ONLINE) ||
          wal_record_is_xlog(r, XLOG_CHECKPOINT_SHUTDOWN)))
        return OK;
    TRY(xlog_record_parse(r, w->load->options.major, &x, err));
    if (x.checkpoint.redo < atomic_load(&w->load->start_lsn))
        return OK;
    w->next_multi = x.checkpoint.next_multi;
    w->next_multi_offset = x.checkpoint.next_multi_offset;
    return OK;
}

static enum status facts_note(struct load_window *w, const struct wal_record *r, struct error *err)
{
    switch (r->rmid) {
    case RM_XACT_ID:
        return xact_note(w, r, err);
    case RM_HEAP_ID:
        super_delete_take(w, r);
        return OK;
    case RM_MULTIXACT_ID:
        return wal_record_is_multixact_create(r) ? multixact_note(w, r, err) : OK;
    case RM_XLOG_ID:
        return checkpoint_note(w, r, err);
    default:
        return OK;
    }
}

enum status load_window_record(struct load_window *w, const struct wal_record *record,
                               struct error *err)
{
    TRY(load_check(w->load, err));
    TRY(facts_note(w, record, err));
    /* The reader begins at a segment's start. What a record before the backup's start put on a page
     * is not in the stream, and an image from then lacks what came until the start: only the tar
     * copy has it all. */
    if (record->start >= atomic_load(&w->load->start_lsn))
        for (unsigned i = 0; i < record->nblocks; i++)
            TRY(block_note(w, record, &record->blocks[i], err));
    load_window_position(w, record->end);
    return OK;
}
