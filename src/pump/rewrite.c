#include "pump/rewrite.h"
#include "base/fatal.h"
#include "pg/image.h"
#include "pg/visibility.h"

#include <stdlib.h>
#include <string.h>

/* Rewrites at one time; a file that is no longer among them is not read, and copied instead. */
#define FILES_MAX 64u
/* commands/cluster.c: the relation that a rewrite fills is named by the one it becomes. */
#define NEW_HEAP_PREFIX "pg_temp_"
/* catalog/toasting.c: a TOAST table and its index by the table. */
#define TOAST_PREFIX "pg_toast_"

struct rewrites {
    struct history *history;
    struct {
        Oid oid, filenode, owner;
    } files[FILES_MAX]; /* a ring */
    size_t next;
};

struct rewrites *rewrites_new(struct history *history)
{
    struct rewrites *r = xcalloc(1, sizeof *r);
    r->history = history;
    return r;
}

void rewrites_free(struct rewrites *r)
{
    free(r);
}

/* The number behind the prefix, 0 if there is none or something else follows it. */
static Oid number_in(const char *name, const char *prefix, const char *suffix)
{
    char *end;
    size_t len = strlen(prefix);
    if (strncmp(name, prefix, len) != 0)
        return InvalidOid;
    unsigned long number = strtoul(name + len, &end, 10);
    return number <= UINT32_MAX && (*end == 0 || strcmp(end, suffix) == 0) ? (Oid)number
                                                                           : InvalidOid;
}

/* The TOAST table, or its index, of the new file of a catalog. */
static bool is_catalog_toast(const struct rewrites *r, const struct class_row *row)
{
    Oid heap = number_in(row->name, TOAST_PREFIX, "_index");
    for (size_t i = 0; i < FILES_MAX && heap != InvalidOid; i++)
        if (r->files[i].oid == heap)
            return r->files[i].owner < FirstNormalObjectId;
    return false;
}

bool rewrites_row(struct rewrites *r, const struct class_row *row)
{
    Oid owner = number_in(row->name, NEW_HEAP_PREFIX, "");
    if (row->oid < FirstNormalObjectId || is_catalog_toast(r, row))
        return false;
    if (owner == InvalidOid)
        return true;
    r->files[r->next].oid = row->oid;
    r->files[r->next].filenode = row->filenode;
    r->files[r->next].owner = owner;
    r->next = (r->next + 1) % FILES_MAX;
    return owner >= FirstNormalObjectId;
}

static Oid owner_of(const struct rewrites *r, Oid filenode)
{
    for (size_t i = 0; i < FILES_MAX; i++)
        if (r->files[i].filenode == filenode)
            return r->files[i].owner;
    return InvalidOid;
}

/* The rows of a partition are those of its root: it is copied. */
static bool is_wanted(const struct rewrites *r, Oid filenode, XLogRecPtr lsn)
{
    Oid owner = owner_of(r, filenode);
    if (owner == InvalidOid || r->history == NULL)
        return false;
    struct rel_desc *d = history_by_oid(r->history, owner, lsn);
    bool wanted = d != NULL && d->relkind == 'r' && d->identity == IDENTITY_TID &&
                  (d->root_oid == 0 || d->root_oid == d->oid);
    rel_desc_unref(d);
    return wanted;
}

static enum xid_fate fate_unknown(void *ctx, TransactionId xid)
{
    (void)ctx;
    (void)xid;
    return FATE_UNKNOWN;
}

static bool end_unknown(void *ctx, TransactionId xid)
{
    (void)ctx;
    (void)xid;
    return false;
}

static enum updater_fact updater_unknown(void *ctx, MultiXactId multi, TransactionId *ret_xid)
{
    (void)ctx;
    (void)multi;
    (void)ret_xid;
    return UPDATER_UNKNOWN;
}

/* A rewrite gets its transaction id before it waits for its lock: rows of younger ones, which have
 * ended by then, are in its pages, too. */
#define XIDS_AHEAD (UINT32_C(1) << 28)

/* The rewrite has looked at every row before it copied it, with nobody else at the table: its bits
 * say what became of the transactions, unless those had not reached the disk. */
static enum tuple_verdict verdict_of(const struct page_tuple *t, TransactionId xid)
{
    static const struct visibility_facts facts = {NULL, fate_unknown, end_unknown, updater_unknown};
    struct awaited awaited;
    const char *reason;
    return tuple_visibility(t, xid + XIDS_AHEAD, &facts, &awaited, &reason);
}

/* All rows have the record's position: no two have one place, and positions of their own could be
 * beyond the next record's, as an image may be packed. */
static enum status read_page(const struct wal_record *record, const struct wal_block *b,
                             change_fn emit, void *ctx, bool *ret_read, struct error *err)
{
    uint8_t bytes[PG_BLCKSZ];
    struct heap_page page;
    struct error damage;
    *ret_read = false;
    if (!b->has_image || wal_block_image_restore(b, bytes, &damage) != OK ||
        heap_page_open(bytes, &page, &damage) != OK)
        return OK;
    for (OffsetNumber offset = 1; offset <= page.nlines; offset++) {
        struct page_tuple t;
        bool normal;
        if (heap_page_tuple(&page, offset, &t, &normal, &damage) != OK)
            return OK;
        if (!normal)
            continue;
        enum tuple_verdict verdict = verdict_of(&t, record->xid);
        if (verdict == TUPLE_DEAD)
            continue;
        if (verdict != TUPLE_LIVE)
            return OK;
        const struct change change = {
            .kind = CHANGE_INSERT,
            .lsn = record->start,
            .locator = b->locator,
            .new_tid = tid_make(b->block, offset),
            .has_new = true,
            .new_tuple = t.raw,
        };
        TRY(emit(ctx, &change, err));
    }
    *ret_read = true;
    return OK;
}

enum status rewrites_pages(struct rewrites *r, const struct wal_record *record, change_fn emit,
                           void *ctx, bool *ret_read, struct error *err)
{
    *ret_read = false;
    if (record->nblocks == 0 || !is_wanted(r, record->blocks[0].locator.rel_number, record->start))
        return OK;
    for (unsigned i = 0; i < record->nblocks; i++) {
        const struct wal_block *b = &record->blocks[i];
        bool read = false;
        if (rel_file_locator_equal(b->locator, record->blocks[0].locator))
            TRY(read_page(record, b, emit, ctx, &read, err));
        if (!read) {
            *ret_read = false;
            return OK;
        }
        *ret_read = true;
    }
    return OK;
}
