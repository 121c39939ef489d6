#include "pg/compress.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf out = {0};
    uint8_t plain[8192];
    if (varlena_decompress(data, size, 1 << 20, &out, NULL) == OK)
        CHECK(out.len <= 1 << 20);
    buf_free(&out);
    for (unsigned method = COMPRESS_PGLZ; size > 1 && method <= COMPRESS_ZSTD; method++)
        if (compress_decode((enum compress_method)method, data + 1, size - 1, plain,
                            (size_t)data[0] * 32, NULL) != OK)
            continue;
    return 0;
}
