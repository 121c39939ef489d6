#include "wal/reader.h"

static enum status ignore(void *ctx, const struct wal_record *r, struct error *err)
{
    (void)ctx, (void)r, (void)err;
    return OK;
}

/* A stream of pages; the first byte chooses the major and whether zeros end it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err;
    struct wal_reader_options o = {15, 1 << 20, 0, 2048, false, NULL, ignore, NULL, NULL};
    o.major += size > 0 ? data[0] % 4u : 0;
    o.zeros_end = size > 0 && data[0] > 127;
    struct wal_reader *r = wal_reader_new(&o, 1 << 20);
    (void)!wal_reader_push(r, 1 << 20, data + 1, size > 0 ? size - 1 : 0, &err);
    wal_reader_free(r);
    return 0;
}
