/* A fault for tests: pages that were written after the backup's start arrive torn, or as the zeros
 * of a file that was just extended. The WAL has an image of each of them, or initialises it, so a
 * load that relies on the WAL alone for them ends equal. */
#include "load/load_internal.h"

#ifdef WALSHADOW_FAULT_POINTS
#include "base/log.h"

#include <stdlib.h>

void load_tear_pages(struct load *l, struct page_batch *b)
{
    XLogRecPtr start = atomic_load(&l->start_lsn);
    if (getenv("WALSHADOW_TEST_TEAR") == NULL)
        return;
    for (uint32_t i = 0; i < b->npages; i++) {
        uint8_t *page = b->pages[i];
        uint32_t high, low; /* pd_lsn */
        memcpy(&high, page, 4);
        memcpy(&low, page + 4, 4);
        if (((uint64_t)high << 32 | low) <= start)
            continue;
        if (b->blocks[i] % 2 == 0)
            memset(page, 0, PG_BLCKSZ);
        else
            memset(page + PG_BLCKSZ / 2, 0x5a, PG_BLCKSZ / 2);
        log_debug("msg=\"page torn on purpose\" table=%s block=%u", b->desc->name, b->blocks[i]);
    }
}

bool load_members_lost(void)
{
    return getenv("WALSHADOW_TEST_LOSE_MEMBERS") != NULL;
}
#else
bool load_members_lost(void)
{
    return false;
}

void load_tear_pages(struct load *l, struct page_batch *b)
{
    (void)l;
    (void)b;
}
#endif
