#include "wal/pack.h"

#include <string.h>

/* The first byte chooses: a packed page to unpack, or a page that must come back as it was. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err;
    struct wal_packer in = {.segment_bytes = 1 << 20, .last = 8192}, out = in;
    uint8_t page[PG_XLOG_BLCKSZ] = {0}, back[PG_XLOG_BLCKSZ], packed[WAL_PACKED_PAGE_MAX];
    if (size > 0 && data[0] % 2 == 0) {
        (void)!wal_unpack_page(&out, 1 << 20, data + 1, size - 1, back, &err);
    } else if (size > 0) {
        memcpy(page, data + 1, MIN(size - 1, sizeof page));
        size_t n = wal_pack_page(&in, 1 << 20, page, packed);
        CHECK(wal_unpack_page(&out, 1 << 20, packed + 2, n - 2, back, &err) == OK);
        CHECK(memcmp(page, back, sizeof page) == 0);
    }
    noop_cache_fini(&in.noops);
    noop_cache_fini(&out.noops);
    return 0;
}
