#include "wal/growing.h"

#include "base/file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum status growing_new(const char *path, XLogRecPtr start, uint64_t segment_bytes,
                        pthread_mutex_t *lock, struct growing **ret, struct error *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_sys(err, ERR_CONFIG, "cannot create %s", path);
    struct growing *g = xcalloc(1, sizeof *g);
    g->start = g->end = start;
    g->segment_bytes = segment_bytes;
    g->lock = lock;
    g->fd = fd;
    g->places = xmalloc((segment_bytes / PG_XLOG_BLCKSZ + 1) * sizeof *g->places);
    g->places[0] = (struct growing_place){0};
    *ret = g;
    return OK;
}

void growing_free(struct growing *g)
{
    if (g == NULL)
        return;
    close(g->fd);
    free(g->places);
    free(g);
}

static void packer_seek(const struct growing *g, struct wal_packer *packer, uint32_t page)
{
    wal_packer_begin(packer, g->segment_bytes);
    packer->last = g->places[page].last;
}

enum status growing_append(struct growing *g, struct wal_packer *packer, struct buf *packed,
                           const uint8_t *data, size_t len, struct error *err)
{
    XLogRecPtr end = g->end + len;
    size_t have = g->end % PG_XLOG_BLCKSZ;
    uint32_t n = g->npages;
    uint64_t offset = g->places[n].offset;
    CHECK(end <= g->start + g->segment_bytes);
    packer_seek(g, packer, n);
    buf_reset(packed);
    while (have + len >= PG_XLOG_BLCKSZ) {
        uint8_t joined[PG_XLOG_BLCKSZ];
        const uint8_t *page = data;
        if (have > 0) {
            memcpy(joined, g->tail, have);
            memcpy(joined + have, data, PG_XLOG_BLCKSZ - have);
            page = joined;
        }
        uint8_t *out = buf_reserve(packed, WAL_PACKED_PAGE_MAX);
        packed->len += wal_pack_page(packer, g->start + (uint64_t)n * PG_XLOG_BLCKSZ, page, out);
        g->places[++n] = (struct growing_place){offset + packed->len, packer->last};
        data += PG_XLOG_BLCKSZ - have;
        len -= PG_XLOG_BLCKSZ - have;
        have = 0;
    }
    TRY(file_pwrite_all(g->fd, packed->data, packed->len, (off_t)offset, "the unfinished segment",
                        err));
    pthread_mutex_lock(g->lock);
    g->npages = n;
    g->end = end;
    memcpy(g->tail + have, data, len);
    pthread_mutex_unlock(g->lock);
    return OK;
}

enum status growing_cut(struct growing *g, struct wal_packer *packer, struct buf *packed,
                        XLogRecPtr lsn, struct error *err)
{
    uint32_t page = (uint32_t)((lsn - g->start) / PG_XLOG_BLCKSZ);
    bool was_whole = page < g->npages && lsn % PG_XLOG_BLCKSZ != 0;
    uint8_t bytes[PG_XLOG_BLCKSZ];
    if (was_whole) {
        size_t len = g->places[page + 1].offset - g->places[page].offset;
        buf_reset(packed);
        uint8_t *at = buf_reserve(packed, len);
        TRY(file_pread_all(g->fd, at, len, (off_t)g->places[page].offset, "the unfinished segment",
                           err));
        packer_seek(g, packer, page);
        TRY(wal_unpack_page(packer, lsn - lsn % PG_XLOG_BLCKSZ, at + 2, len - 2, bytes, err));
    }
    pthread_mutex_lock(g->lock);
    if (was_whole)
        memcpy(g->tail, bytes, sizeof bytes);
    g->npages = page;
    g->end = lsn;
    pthread_mutex_unlock(g->lock);
    return OK;
}
