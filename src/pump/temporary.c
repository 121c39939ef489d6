#include "pump/temporary.h"
#include "base/bytes.h"
#include "base/fatal.h"
#include "pg/change.h"

#include <stdlib.h>
#include <uthash.h>

/* Oids come from a counter: bits in pages, of which the oldest goes. 8 million oids in 1 MB. */
#define PAGE_OIDS 32768u
#define PAGES_MAX 256u

struct oid_page {
    uint32_t number; /* oid / PAGE_OIDS */
    uint8_t bits[PAGE_OIDS / 8];
    UT_hash_handle hh;
};

struct temporary {
    unsigned major;
    struct oid_page *pages; /* in the order they were made */
};

struct temporary *temporary_new(unsigned major)
{
    struct temporary *t = xcalloc(1, sizeof *t);
    t->major = major;
    return t;
}

static void page_free(struct temporary *t, struct oid_page *page)
{
    HASH_DEL(t->pages, page);
    free(page);
}

static void forget_all(struct temporary *t)
{
    struct oid_page *page, *next;
    HASH_ITER (hh, t->pages, page, next)
        page_free(t, page);
}

void temporary_free(struct temporary *t)
{
    if (t == NULL)
        return;
    forget_all(t);
    free(t);
}

static struct oid_page *page_find(const struct temporary *t, Oid oid)
{
    struct oid_page *page;
    uint32_t number = oid / PAGE_OIDS;
    HASH_FIND(hh, t->pages, &number, sizeof number, page);
    return page;
}

static void set(struct temporary *t, Oid oid, bool is_temporary)
{
    struct oid_page *page = page_find(t, oid);
    uint8_t bit = (uint8_t)(1u << oid % 8);
    if (page == NULL && !is_temporary)
        return;
    if (page == NULL) {
        if (HASH_COUNT(t->pages) == PAGES_MAX)
            page_free(t, t->pages);
        page = xcalloc(1, sizeof *page);
        page->number = oid / PAGE_OIDS;
        HASH_ADD(hh, t->pages, number, sizeof page->number, page);
    }
    uint8_t *byte = &page->bits[oid % PAGE_OIDS / 8];
    *byte = is_temporary ? *byte | bit : *byte & (uint8_t)~bit;
}

void temporary_add(struct temporary *t, const Oid *oids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        set(t, oids[i], true);
}

bool temporary_contains(const struct temporary *t, Oid oid)
{
    const struct oid_page *page = page_find(t, oid);
    return page != NULL && (page->bits[oid % PAGE_OIDS / 8] >> oid % 8 & 1);
}

/* catalog/pg_class.h: oid is the first column, relpersistence follows only columns of fixed length
 * that are never null; 18 has relallfrozen before it. */
static enum status take_row(void *ctx, const struct change *change, struct error *err)
{
    struct temporary *t = ctx;
    const struct raw_tuple *tuple = &change->new_tuple;
    uint32_t data = tuple->hoff - SizeofHeapTupleHeader;
    uint32_t persistence = data + (t->major >= 18 ? 118 : 114);
    if (change->kind != CHANGE_INSERT)
        return OK;
    if (tuple->hoff < SizeofHeapTupleHeader || persistence >= tuple->body_len)
        return error_lsn(err, ERR_DATA, change->lsn, "a row of pg_class is too short");
    set(t, u32_at(tuple->body + data), tuple->body[persistence] == 't');
    return OK;
}

void temporary_record(struct temporary *t, const struct wal_record *record)
{
    bool incomplete;
    struct error err;
    bool is_insert = record->rmid == RM_HEAP2_ID || (record->info & 0x70) == 0x00;
    if (!is_insert) /* the relation of a row does not become another, nor temporary */
        return;
    if (heap_record_changes(record, take_row, t, &incomplete, &err) != OK || incomplete)
        forget_all(t);
}
