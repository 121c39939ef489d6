#include "base/fault.h"
#include "base/file.h"
#include "wal/archive_internal.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

/* Packed pages are short and alike: the first of the fast levels takes nearly all of the gain. */
#define ZSTD_LEVEL (-1)
#define CHUNK_BYTES ((size_t)256 << 10)

struct sealing {
    struct wal_archive *a;
    int fd;
    const char *path;
    uint8_t *out; /* ZSTD_CStreamOutSize() bytes of compressed output */
    size_t out_cap;
    uint64_t bytes; /* written so far */
};

static enum status compress(struct sealing *s, const uint8_t *data, size_t len, bool last,
                            struct error *err)
{
    ZSTD_inBuffer src = {data, len, 0};
    size_t left;
    do {
        ZSTD_outBuffer dst = {s->out, s->out_cap, 0};
        left = ZSTD_compressStream2(s->a->zstd, &dst, &src, last ? ZSTD_e_end : ZSTD_e_continue);
        if (ZSTD_isError(left))
            return error_set(err, ERR_BUG, "zstd: %s", ZSTD_getErrorName(left));
        TRY(file_write_all(s->fd, s->out, dst.pos, s->path, err));
        s->bytes += dst.pos;
    } while (last ? left > 0 : src.pos < src.size);
    return OK;
}

/* The pages of the segment in file `from`, packed and compressed. */
static enum status pack_segment(struct sealing *s, int from, XLogRecPtr segment, struct error *err)
{
    struct wal_archive *a = s->a;
    CLEANUP_FREE uint8_t *in = xmalloc(CHUNK_BYTES);
    CLEANUP_FREE uint8_t *packed = xmalloc(CHUNK_BYTES / PG_XLOG_BLCKSZ * WAL_PACKED_PAGE_MAX);
    ZSTD_CCtx_reset(a->zstd, ZSTD_reset_session_and_parameters);
    ZSTD_CCtx_setParameter(a->zstd, ZSTD_c_compressionLevel, ZSTD_LEVEL);
    ZSTD_CCtx_setParameter(a->zstd, ZSTD_c_checksumFlag, 1);
    TRY(compress(s, (const uint8_t *)ARCHIVE_FORMAT, sizeof ARCHIVE_FORMAT - 1, false, err));
    wal_packer_begin(&a->packer, a->segment_bytes);
    for (uint64_t at = 0; at < a->segment_bytes; at += CHUNK_BYTES) {
        size_t len = 0;
        TRY(file_pread_all(from, in, CHUNK_BYTES, (off_t)at, s->path, err));
        for (size_t page = 0; page < CHUNK_BYTES; page += PG_XLOG_BLCKSZ)
            len += wal_pack_page(&a->packer, segment + at + page, in + page, packed + len);
        TRY(compress(s, packed, len, at + CHUNK_BYTES >= a->segment_bytes, err));
    }
    return OK;
}

/* The sealed form, complete and durable under its own name. The unfinished file itself needs no
 * fsync: it is never trusted after a restart. */
static enum status seal_write(struct wal_archive *a, XLogRecPtr segment, uint64_t *ret_bytes,
                              struct error *err)
{
    char aside[PATH_MAX], path[PATH_MAX], partial[PATH_MAX];
    archive_path(a, segment, SUFFIX_ASIDE, aside, sizeof aside);
    archive_path(a, segment, SUFFIX_SEALED, path, sizeof path);
    archive_path(a, segment, SUFFIX_PARTIAL, partial, sizeof partial);
    CLEANUP_FD int from = open(partial, O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return error_sys(err, ERR_CONFIG, "cannot open %s", partial);
    CLEANUP_FD int fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_sys(err, ERR_CONFIG, "cannot create %s", aside);
    size_t out_cap = ZSTD_CStreamOutSize();
    CLEANUP_FREE uint8_t *out = xmalloc(out_cap);
    struct sealing s = {.a = a, .fd = fd, .path = aside, .out = out, .out_cap = out_cap};
    TRY(pack_segment(&s, from, segment, err));
    *ret_bytes = s.bytes;
    FAULT_POINT("archive-before-fsync");
    if (fsync(fd) != 0)
        return error_sys(err, ERR_CONFIG, "cannot fsync %s", aside);
    FAULT_POINT("archive-before-rename");
    if (rename(aside, path) != 0)
        return error_sys(err, ERR_CONFIG, "cannot rename %s", aside);
    FAULT_POINT("archive-before-dir-fsync");
    return file_fsync_dir(a->dir, err);
}

/* The unfinished form of a sealed segment becomes the spare file, if there is none. Readers that
 * have it open see by `sealed` that it is no longer theirs (archive_read.c). */
static enum status partial_retire(struct wal_archive *a, XLogRecPtr segment, struct error *err)
{
    char path[PATH_MAX], spare[PATH_MAX];
    if (atomic_load(&a->has_spare))
        return archive_remove(a, segment, SUFFIX_PARTIAL, err);
    archive_path(a, segment, SUFFIX_PARTIAL, path, sizeof path);
    archive_spare_path(a, spare, sizeof spare);
    if (rename(path, spare) != 0)
        return error_sys(err, ERR_CONFIG, "cannot rename %s", path);
    atomic_store(&a->has_spare, true);
    return OK;
}

enum status archive_seal(struct wal_archive *a, XLogRecPtr segment, struct error *err)
{
    uint64_t bytes;
    TRY(seal_write(a, segment, &bytes, err));
    pthread_mutex_lock(&a->lock);
    archive_sizes_push(a, bytes);
    a->sealed = segment + a->segment_bytes;
    pthread_mutex_unlock(&a->lock);
    FAULT_POINT("archive-before-unlink");
    return partial_retire(a, segment, err);
}
