#include "base/crc32c.h"
#include "base/fault.h"
#include "base/file.h"
#include "xact/xact.h"

#include <fcntl.h>
#include <unistd.h>

/* The file has no name: it goes away with its descriptor, also after a kill. */
static enum status spill_open(struct spill *s, const char *dir, struct error *err)
{
    s->fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (s->fd < 0)
        return error_sys(err, ERR_CONFIG, "cannot create a spill file in %s", dir);
    return OK;
}

/* As many whole frames as fit a block; a larger frame is a block of its own. */
static size_t block_cut(const uint8_t *frames, size_t len)
{
    size_t n = 0;
    while (n < len) {
        uint32_t frame_len;
        memcpy(&frame_len, frames + n, 4);
        if (n > 0 && n + frame_len > SPILL_BLOCK)
            break;
        n += frame_len;
    }
    return n;
}

enum status spill_write(struct xact *x, const char *dir, struct error *err)
{
    if (x->spill.fd < 0)
        TRY(spill_open(&x->spill, dir, err));
    for (size_t at = 0; at < x->mem.len;) {
        size_t n = block_cut(x->mem.data + at, x->mem.len - at);
        uint32_t head[2] = {(uint32_t)n, crc32c(x->mem.data + at, n)};
        TRY(file_pwrite_all(x->spill.fd, head, sizeof head, (off_t)x->spill.bytes, dir, err));
        TRY(file_pwrite_all(x->spill.fd, x->mem.data + at, n,
                            (off_t)(x->spill.bytes + SPILL_BLOCK_HEAD), dir, err));
        x->spill.bytes += SPILL_BLOCK_HEAD + n;
        at += n;
        FAULT_POINT("spill-block-written");
    }
    if (x->mem.cap > 2 * SPILL_BLOCK)
        buf_free(&x->mem);
    else
        buf_reset(&x->mem); /* the next portion finds it in the cache */
    return OK;
}

enum status spill_read_block(const struct xact *x, uint64_t at, struct buf *block,
                             uint64_t *ret_next, struct error *err)
{
    uint32_t head[2];
    TRY(file_pread_all(x->spill.fd, head, sizeof head, (off_t)at, "spill file", err));
    if (head[0] > x->spill.bytes - at - SPILL_BLOCK_HEAD)
        return error_set(err, ERR_DATA, "spill file of transaction %u is damaged at byte %llu",
                         x->xid, (unsigned long long)at);
    buf_reset(block);
    buf_reserve(block, head[0]);
    TRY(file_pread_all(x->spill.fd, block->data, head[0], (off_t)(at + SPILL_BLOCK_HEAD),
                       "spill file", err));
    block->len = head[0];
    if (crc32c(block->data, block->len) != head[1])
        return error_set(err, ERR_DATA, "spill file of transaction %u: wrong checksum at byte %llu",
                         x->xid, (unsigned long long)at);
    *ret_next = at + SPILL_BLOCK_HEAD + head[0];
    return OK;
}
