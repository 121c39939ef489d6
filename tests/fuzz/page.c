#include "pg/page.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t bytes[PG_BLCKSZ] = {0};
    struct heap_page page;
    memcpy(bytes, data, MIN(size, sizeof bytes)); /* header and lines; what is missing is zero */
    if (heap_page_open(bytes, &page, NULL) != OK)
        return 0;
    for (OffsetNumber i = 1; i <= page.nlines; i++) {
        struct page_tuple t;
        bool normal = false;
        if (heap_page_tuple(&page, i, &t, &normal, NULL) == OK && normal)
            CHECK(t.raw.body >= bytes && t.raw.body + t.raw.body_len <= bytes + PG_BLCKSZ);
    }
    return 0;
}
