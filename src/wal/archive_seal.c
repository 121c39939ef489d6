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

/* The packed pages of a full segment, compressed. */
static enum status compress_segment(struct sealing *s, const struct growing *g, struct error *err)
{
    struct wal_archive *a = s->a;
    CLEANUP_FREE uint8_t *in = xmalloc(CHUNK_BYTES);
    uint64_t len = growing_file_bytes(g);
    ZSTD_CCtx_reset(a->zstd, ZSTD_reset_session_and_parameters);
    ZSTD_CCtx_setParameter(a->zstd, ZSTD_c_compressionLevel, ZSTD_LEVEL);
    ZSTD_CCtx_setParameter(a->zstd, ZSTD_c_checksumFlag, 1);
    TRY(compress(s, (const uint8_t *)ARCHIVE_FORMAT, sizeof ARCHIVE_FORMAT - 1, false, err));
    for (uint64_t at = 0; at < len; at += CHUNK_BYTES) {
        size_t n = MIN(CHUNK_BYTES, len - at);
        TRY(file_pread_all(g->fd, in, n, (off_t)at, s->path, err));
        TRY(compress(s, in, n, at + n == len, err));
    }
    return OK;
}

/* The sealed form, complete and durable under its own name. */
static enum status seal_write(struct wal_archive *a, const struct growing *g, uint64_t *ret_bytes,
                              struct error *err)
{
    char aside[PATH_MAX], path[PATH_MAX];
    archive_path(a, g->start, SUFFIX_ASIDE, aside, sizeof aside);
    archive_path(a, g->start, SUFFIX_SEALED, path, sizeof path);
    CLEANUP_FD int fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_sys(err, ERR_CONFIG, "cannot create %s", aside);
    size_t out_cap = ZSTD_CStreamOutSize();
    CLEANUP_FREE uint8_t *out = xmalloc(out_cap);
    struct sealing s = {.a = a, .fd = fd, .path = aside, .out = out, .out_cap = out_cap};
    TRY(compress_segment(&s, g, err));
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

enum status archive_seal(struct wal_archive *a, struct growing *g, struct error *err)
{
    uint64_t bytes;
    XLogRecPtr segment = g->start;
    TRY(seal_write(a, g, &bytes, err));
    pthread_mutex_lock(&a->lock);
    archive_sizes_push(a, bytes);
    atomic_fetch_sub(&a->disk_bytes, growing_file_bytes(g));
    memmove(a->growing, a->growing + 1, --a->ngrowing * sizeof a->growing[0]);
    a->sealed = segment + a->segment_bytes;
    pthread_mutex_unlock(&a->lock);
    growing_free(g);
    FAULT_POINT("archive-before-unlink");
    return archive_remove(a, segment, SUFFIX_PARTIAL, err);
}
