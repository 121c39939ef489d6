#include "catalog/catalog_log.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CATALOG_LOG_MAGIC "WSCATLG\n"
#define CATALOG_LOG_VERSION 1u
#define HEADER_BYTES 12u
#define FRAME_HEAD 8u
#define FRAME_MAX (64u << 20)
#define FILE_MAX ((size_t)4 << 30)
#define REASON_MAX 1024u

struct catalog_log {
    int fd;
    char *path;
    off_t end;   /* of the last whole frame */
    bool broken; /* what follows `end` could not be cut off: nothing may be appended behind it */
    struct buf frame; /* scratch of the writer */
};

static enum status parse_unseen(struct cursor c, struct catalog_log_entry *e, catalog_log_fn fn,
                                void *ctx, struct error *err)
{
    e->lsn = cursor_u64(&c);
    e->all = cursor_u8(&c) != 0;
    e->n = cursor_left(&c) / sizeof(Oid);
    CLEANUP_FREE Oid *oids = xcalloc(e->n + 1, sizeof *oids);
    for (size_t i = 0; i < e->n; i++)
        oids[i] = cursor_u32(&c);
    e->oids = oids;
    if (!cursor_ok(&c) || cursor_left(&c) > 0)
        return error_set(err, ERR_DATA, "entry cut short");
    return fn(ctx, e, err);
}

static enum status parse_body(const uint8_t *body, uint32_t len, catalog_log_fn fn, void *ctx,
                              struct error *err)
{
    struct cursor c = cursor_of(body, len);
    struct catalog_log_entry e = {.kind = (enum catalog_log_kind)cursor_u8(&c)};
    char reason[REASON_MAX + 1];
    switch (e.kind) {
    case CATALOG_LOG_DESC: {
        TRY(rel_desc_read(&c, &e.desc, err));
        enum status st = fn(ctx, &e, err);
        rel_desc_unref(e.desc);
        return st;
    }
    case CATALOG_LOG_CAPTURED:
    case CATALOG_LOG_SEEN:
    case CATALOG_LOG_DONE:
        e.lsn = cursor_u64(&c);
        break;
    case CATALOG_LOG_UNSEEN:
        return parse_unseen(c, &e, fn, ctx, err);
    case CATALOG_LOG_STOP:
    case CATALOG_LOG_RESYNC:
    case CATALOG_LOG_RESYNCED: {
        e.oid = cursor_u32(&c);
        e.lsn = cursor_u64(&c);
        size_t n = MIN(cursor_left(&c), (size_t)REASON_MAX);
        const uint8_t *text = cursor_take(&c, n);
        if (text != NULL && n > 0)
            memcpy(reason, text, n);
        reason[n] = '\0';
        e.reason = reason;
        break;
    }
    default:
        return error_set(err, ERR_DATA, "unknown entry kind %u", (unsigned)e.kind);
    }
    if (!cursor_ok(&c))
        return error_set(err, ERR_DATA, "entry cut short");
    return fn(ctx, &e, err);
}

static bool frame_is_sound(struct cursor c)
{
    uint32_t len = cursor_u32(&c);
    uint32_t crc = cursor_u32(&c);
    const uint8_t *body = len == 0 || len > FRAME_MAX ? NULL : cursor_take(&c, len);
    return body != NULL && body[0] >= CATALOG_LOG_DESC && body[0] <= CATALOG_LOG_DONE &&
           crc32c(body, len) == crc;
}

/* A damaged length can seem to reach to or past the end of the file; a torn tail has no frame
 * behind its beginning. */
static bool sound_frame_behind(const struct buf *file, size_t at)
{
    for (at++; at < file->len; at++)
        if (frame_is_sound(cursor_of(file->data + at, file->len - at)))
            return true;
    return false;
}

/* A file system may have made the file longer and not have written the bytes (power loss). */
static bool zeros_only(const struct buf *file, size_t at)
{
    while (at < file->len && file->data[at] == 0)
        at++;
    return at == file->len;
}

/* Walks the frames; *ret_end is where the sound part ends. */
static enum status parse_frames(const char *path, const struct buf *file, catalog_log_fn fn,
                                void *ctx, size_t *ret_end, struct error *err)
{
    size_t at = HEADER_BYTES;
    while (at < file->len) {
        struct cursor c = cursor_of(file->data + at, file->len - at);
        uint32_t len = cursor_u32(&c);
        uint32_t crc = cursor_u32(&c);
        const uint8_t *body = len > FRAME_MAX ? NULL : cursor_take(&c, len);
        if (body == NULL || len == 0 || crc32c(body, len) != crc) {
            size_t behind = body == NULL ? file->len : at + FRAME_HEAD + len;
            if (!zeros_only(file, behind) || sound_frame_behind(file, at))
                return error_set(err, ERR_DATA,
                                 "%s is damaged at byte %zu: restore it, or remove the state "
                                 "directory and load again",
                                 path, at);
            break;
        }
        if (parse_body(body, len, fn, ctx, err) != OK)
            return error_prefix(err, "%s, byte %zu", path, at);
        at += FRAME_HEAD + len;
    }
    *ret_end = at;
    return OK;
}

static enum status write_header(struct catalog_log *log, struct error *err)
{
    uint8_t header[HEADER_BYTES];
    uint32_t version = CATALOG_LOG_VERSION;
    memcpy(header, CATALOG_LOG_MAGIC, 8);
    memcpy(header + 8, &version, 4);
    TRY(file_pwrite_all(log->fd, header, sizeof header, 0, log->path, err));
    TRY(catalog_log_sync(log, err));
    CLEANUP_FREE char *copy = xstrdup(log->path);
    return file_fsync_dir(dirname(copy), err);
}

static enum status check_header(const char *path, const struct buf *file, struct error *err)
{
    uint32_t version;
    if (memcmp(file->data, CATALOG_LOG_MAGIC, 8) != 0)
        return error_set(err, ERR_DATA, "%s is not a catalog log", path);
    memcpy(&version, file->data + 8, 4);
    if (version != CATALOG_LOG_VERSION)
        return error_set(err, ERR_CONFIG,
                         "%s has format version %u, this program reads version %u: use the newer "
                         "walshadow",
                         path, version, CATALOG_LOG_VERSION);
    return OK;
}

static enum status load(struct catalog_log *log, catalog_log_fn fn, void *ctx, struct error *err)
{
    CLEANUP_BUF struct buf file = {0};
    size_t end = 0;
    TRY(file_read_all(log->path, FILE_MAX, &file, err));
    if (file.len < HEADER_BYTES) { /* created, but killed before the header was durable */
        if (ftruncate(log->fd, 0) != 0)
            return error_sys(err, ERR_CONFIG, "cannot truncate %s", log->path);
        return write_header(log, err);
    }
    TRY(check_header(log->path, &file, err));
    TRY(parse_frames(log->path, &file, fn, ctx, &end, err));
    if (end < file.len) {
        log_warn("msg=\"torn tail of the catalog log cut\" bytes=%zu", file.len - end);
        if (ftruncate(log->fd, (off_t)end) != 0)
            return error_sys(err, ERR_CONFIG, "cannot truncate %s", log->path);
    }
    return OK;
}

enum status catalog_log_open(const char *path, catalog_log_fn fn, void *ctx,
                             struct catalog_log **ret, struct error *err)
{
    struct catalog_log *log = xcalloc(1, sizeof *log);
    log->path = xstrdup(path);
    log->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    enum status st =
        log->fd < 0 ? error_sys(err, ERR_CONFIG, "cannot open %s", path) : load(log, fn, ctx, err);
    if (st == OK && (log->end = lseek(log->fd, 0, SEEK_END)) < 0)
        st = error_sys(err, ERR_CONFIG, "cannot seek in %s", path);
    if (st != OK) {
        catalog_log_close(log);
        return st;
    }
    *ret = log;
    return OK;
}

void catalog_log_close(struct catalog_log *log)
{
    if (log == NULL)
        return;
    if (log->fd >= 0)
        close(log->fd);
    buf_free(&log->frame);
    free(log->path);
    free(log);
}

static void frame_begin(struct catalog_log *log, enum catalog_log_kind kind)
{
    buf_reset(&log->frame);
    buf_put_zeros(&log->frame, FRAME_HEAD);
    buf_put_u8(&log->frame, (uint8_t)kind);
}

static enum status frame_end(struct catalog_log *log, struct error *err)
{
    uint32_t len = (uint32_t)(log->frame.len - FRAME_HEAD);
    uint32_t crc = crc32c(log->frame.data + FRAME_HEAD, len);
    if (len > FRAME_MAX)
        return error_set(err, ERR_DATA, "descriptor of %u bytes is too large for %s", len,
                         log->path);
    memcpy(log->frame.data, &len, 4);
    memcpy(log->frame.data + 4, &crc, 4);
    if (log->broken)
        return error_set(err, ERR_CONFIG,
                         "%s has a part of an entry at its end, left by a failed write, that "
                         "cannot be cut off: restart",
                         log->path);
    enum status st =
        file_pwrite_all(log->fd, log->frame.data, log->frame.len, log->end, log->path, err);
    if (st == OK)
        log->end += (off_t)log->frame.len;
    else if (ftruncate(log->fd, log->end) != 0) /* disk full: what got there must not stay */
        log->broken = true;
    return st;
}

enum status catalog_log_put_desc(struct catalog_log *log, const struct rel_desc *d,
                                 struct error *err)
{
    frame_begin(log, CATALOG_LOG_DESC);
    rel_desc_write(d, &log->frame);
    return frame_end(log, err);
}

static enum status put_lsn(struct catalog_log *log, enum catalog_log_kind kind, XLogRecPtr lsn,
                           struct error *err)
{
    frame_begin(log, kind);
    buf_put_u64(&log->frame, lsn);
    return frame_end(log, err);
}

enum status catalog_log_put_captured(struct catalog_log *log, XLogRecPtr lsn, struct error *err)
{
    return put_lsn(log, CATALOG_LOG_CAPTURED, lsn, err);
}

enum status catalog_log_put_seen(struct catalog_log *log, XLogRecPtr lsn, struct error *err)
{
    return put_lsn(log, CATALOG_LOG_SEEN, lsn, err);
}

enum status catalog_log_put_done(struct catalog_log *log, XLogRecPtr lsn, struct error *err)
{
    return put_lsn(log, CATALOG_LOG_DONE, lsn, err);
}

enum status catalog_log_put_unseen(struct catalog_log *log, XLogRecPtr lsn, const Oid *oids,
                                   size_t n, bool all, struct error *err)
{
    frame_begin(log, CATALOG_LOG_UNSEEN);
    buf_put_u64(&log->frame, lsn);
    buf_put_u8(&log->frame, all);
    buf_put(&log->frame, oids, n * sizeof *oids);
    return frame_end(log, err);
}

enum status catalog_log_put_state(struct catalog_log *log, enum catalog_log_kind kind, Oid oid,
                                  XLogRecPtr lsn, const char *reason, struct error *err)
{
    frame_begin(log, kind);
    buf_put_u32(&log->frame, oid);
    buf_put_u64(&log->frame, lsn);
    buf_put(&log->frame, reason, MIN(strlen(reason), (size_t)REASON_MAX));
    return frame_end(log, err);
}

enum status catalog_log_sync(struct catalog_log *log, struct error *err)
{
    if (fdatasync(log->fd) != 0)
        return error_sys(err, ERR_RETRY, "cannot sync %s", log->path);
    return OK;
}
