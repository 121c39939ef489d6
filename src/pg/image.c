#include "pg/image.h"

#include "pg/compress.h"

#include <string.h>

#define BKPIMAGE_HAS_HOLE 0x01
#define BKPIMAGE_COMPRESS_PGLZ 0x04
#define BKPIMAGE_COMPRESS_LZ4 0x08
#define BKPIMAGE_COMPRESS_ZSTD 0x10

enum status wal_block_image_restore(const struct wal_block *b, uint8_t page[PG_BLCKSZ],
                                    struct error *err)
{
    uint8_t plain[PG_BLCKSZ];
    uint32_t hole = b->image_flags & BKPIMAGE_HAS_HOLE ? b->hole_len : 0;
    uint32_t hole_at = hole > 0 ? b->hole_offset : 0;
    const uint8_t *from = b->image;

    if (!b->has_image || b->image == NULL)
        return error_set(err, ERR_BUG, "block %u has no image", b->block);
    if (hole_at + hole > PG_BLCKSZ)
        return error_set(err, ERR_DATA, "image of block %u: hole of %u bytes at %u", b->block, hole,
                         hole_at);
    uint32_t len = PG_BLCKSZ - hole;
    if (b->image_flags &
        (BKPIMAGE_COMPRESS_PGLZ | BKPIMAGE_COMPRESS_LZ4 | BKPIMAGE_COMPRESS_ZSTD)) {
        enum compress_method method = b->image_flags & BKPIMAGE_COMPRESS_PGLZ  ? COMPRESS_PGLZ
                                      : b->image_flags & BKPIMAGE_COMPRESS_LZ4 ? COMPRESS_LZ4
                                                                               : COMPRESS_ZSTD;
        if (compress_decode(method, b->image, b->image_len, plain, len, err) != OK)
            return error_prefix(err, "image of block %u", b->block);
        from = plain;
    } else if (b->image_len != len) {
        return error_set(err, ERR_DATA, "image of block %u: %u bytes and a hole of %u", b->block,
                         b->image_len, hole);
    }
    memcpy(page, from, hole_at);
    memset(page + hole_at, 0, hole);
    memcpy(page + hole_at + hole, from + hole_at, len - hole_at);
    return OK;
}
