/* magic, version; portions: relation, chunks, awaited kind and number, tuples, bytes, their CRC32C,
 * bytes; a portion of relation 0. Every number is little-endian. */
#include "load/undecided_file.h"

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "load/load_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "WSUNDEC1"
#define FILE_VERSION 1u
#define HEAD_BYTES (8 + 4)
#define PORTION_HEAD_BYTES (4 + 1 + 4 + 4 + 8 + 4 + 4)
#define PORTION_BYTES_MAX ((size_t)1 << 30)

struct writer {
    int fd;
    const char *path;
};

static enum status portion_write(void *ctx, const struct undecided_portion *p, struct error *err)
{
    const struct writer *w = ctx;
    CLEANUP_BUF struct buf head = {0};
    buf_put_u32(&head, p->rel == NULL ? InvalidOid : p->rel->desc->oid);
    buf_put_u8(&head, p->rel != NULL && p->rel->chunks);
    buf_put_u32(&head, p->awaited.kind);
    buf_put_u32(&head, p->awaited.number);
    buf_put_u64(&head, p->count);
    buf_put_u32(&head, (uint32_t)p->len);
    uint32_t crc = crc32c_update(0xffffffffu, head.data, head.len);
    crc = crc32c_update_long(crc, p->rows, p->len) ^ 0xffffffffu;
    buf_put_u32(&head, crc);
    TRY(file_write_all(w->fd, head.data, head.len, w->path, err));
    return p->len == 0 ? OK : file_write_all(w->fd, p->rows, p->len, w->path, err);
}

enum status undecided_file_write(struct undecided *u, const char *path, struct error *err)
{
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const struct writer w = {fd, path};
    const struct undecided_portion end = {0};
    CLEANUP_BUF struct buf head = {0};
    if (fd < 0)
        return error_sys(err, ERR_RETRY, "cannot create %s", path);
    buf_put(&head, MAGIC, 8);
    buf_put_u32(&head, FILE_VERSION);
    TRY(file_write_all(fd, head.data, head.len, path, err));
    TRY(undecided_each(u, portion_write, (void *)&w, err));
    TRY(portion_write((void *)&w, &end, err));
    return fsync(fd) == 0 ? OK : error_sys(err, ERR_RETRY, "cannot sync %s", path);
}

struct reader {
    int fd;
    const char *path;
    uint64_t at, size;
};

static enum status take(struct reader *r, void *to, size_t n, struct error *err)
{
    if (n > r->size - r->at)
        return error_set(err, ERR_DATA, "%s is cut at byte %llu", r->path,
                         (unsigned long long)r->at);
    TRY(file_pread_all(r->fd, to, n, (off_t)r->at, r->path, err));
    r->at += n;
    return OK;
}

static enum status head_read(struct reader *r, struct error *err)
{
    uint8_t head[HEAD_BYTES];
    TRY(take(r, head, sizeof head, err));
    if (memcmp(head, MAGIC, 8) != 0)
        return error_set(err, ERR_DATA, "%s is no file of undecided rows", r->path);
    if (u32_at(head + 8) != FILE_VERSION)
        return error_set(err, ERR_CONFIG,
                         "%s has format %u, this program knows %u: use a newer one", r->path,
                         u32_at(head + 8), FILE_VERSION);
    return OK;
}

/* *ret_oid 0: the end. rows grows to hold them. */
static enum status portion_read(struct reader *r, Oid *ret_oid, bool *ret_chunks,
                                struct undecided_portion *ret, struct buf *rows, struct error *err)
{
    uint8_t head[PORTION_HEAD_BYTES];
    uint64_t at = r->at;
    TRY(take(r, head, sizeof head, err));
    *ret_oid = u32_at(head);
    *ret_chunks = head[4] != 0;
    *ret = (struct undecided_portion){.awaited = {u32_at(head + 5), u32_at(head + 9)},
                                      .count = u64_at(head + 13),
                                      .len = u32_at(head + 21)};
    if (ret->len > PORTION_BYTES_MAX || ret->len > r->size - r->at)
        return error_set(err, ERR_DATA, "%s is damaged at byte %llu", r->path,
                         (unsigned long long)at);
    buf_reset(rows);
    ret->rows = buf_reserve(rows, ret->len + 1);
    TRY(take(r, rows->data, ret->len, err));
    uint32_t crc = crc32c_update(0xffffffffu, head, sizeof head - 4);
    if ((crc32c_update_long(crc, ret->rows, ret->len) ^ 0xffffffffu) !=
        u32_at(head + sizeof head - 4))
        return error_set(err, ERR_DATA, "%s is damaged at byte %llu: wrong CRC", r->path,
                         (unsigned long long)at);
    return OK;
}

enum status undecided_file_read(struct undecided *u, const char *path,
                                struct load_rel *(*find)(void *ctx, Oid oid, bool chunks),
                                void *ctx, uint64_t *ret_left_out, struct error *err)
{
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    CLEANUP_BUF struct buf rows = {0};
    struct stat st;
    *ret_left_out = 0;
    if (fd < 0 || fstat(fd, &st) != 0)
        return error_sys(err, ERR_CONFIG, "cannot open %s", path);
    struct reader r = {fd, path, 0, (uint64_t)st.st_size};
    TRY(head_read(&r, err));
    for (;;) {
        struct undecided_portion p;
        Oid oid;
        bool chunks;
        TRY(portion_read(&r, &oid, &chunks, &p, &rows, err));
        if (oid == InvalidOid)
            return OK;
        p.rel = find(ctx, oid, chunks);
        if (p.rel != NULL)
            TRY(undecided_put(u, &p, err));
        else
            *ret_left_out += p.count;
    }
}
