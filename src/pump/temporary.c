#include "pump/temporary.h"
#include "base/fatal.h"

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
    struct oid_page *pages; /* in the order they were made */
};

struct temporary *temporary_new(void)
{
    return xcalloc(1, sizeof(struct temporary));
}

static void page_free(struct temporary *t, struct oid_page *page)
{
    HASH_DEL(t->pages, page);
    free(page);
}

void temporary_forget(struct temporary *t)
{
    struct oid_page *page, *next;
    HASH_ITER (hh, t->pages, page, next)
        page_free(t, page);
}

void temporary_free(struct temporary *t)
{
    if (t == NULL)
        return;
    temporary_forget(t);
    free(t);
}

static struct oid_page *page_find(const struct temporary *t, Oid oid)
{
    struct oid_page *page;
    uint32_t number = oid / PAGE_OIDS;
    HASH_FIND(hh, t->pages, &number, sizeof number, page);
    return page;
}

void temporary_set(struct temporary *t, Oid oid, bool is_temporary)
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

bool temporary_contains(const struct temporary *t, Oid oid)
{
    const struct oid_page *page = page_find(t, oid);
    return page != NULL && (page->bits[oid % PAGE_OIDS / 8] >> oid % 8 & 1);
}
