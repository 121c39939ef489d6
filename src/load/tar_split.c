#include "load/tar_split.h"

#include "base/file.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct reader {
    const struct tar_split *split;
    Oid tablespace_oid;
    struct archive *archive;
    struct error err; /* of a read callback: libarchive cannot carry it */
    enum status status;
    char made[TAR_PATH_MAX]; /* the directory that files landed in last */
};

static la_ssize_t reader_read(struct archive *a, void *ctx, const void **ret)
{
    struct reader *r = ctx;
    const uint8_t *bytes = NULL;
    size_t len = 0;
    r->status = r->split->read(r->split->ctx, &bytes, &len, &r->err);
    if (r->status != OK) {
        archive_set_error(a, EIO, "read failed");
        return -1;
    }
    *ret = bytes;
    return (la_ssize_t)len;
}

static enum status archive_failed(struct reader *r, const char *what, struct error *err)
{
    if (r->status != OK) {
        if (err != NULL)
            *err = r->err;
        return r->status;
    }
    const char *text = archive_error_string(r->archive);
    return error_set(err, ERR_DATA, "damaged backup archive (tablespace %u): %s: %s",
                     r->tablespace_oid, what, text != NULL ? text : "unknown error");
}

typedef enum status (*chunk_fn)(void *ctx, const uint8_t *bytes, size_t len, struct error *err);

/* The entry's bytes in order; a hole (no server writes one) would shift pages. */
static enum status entry_data(struct reader *r, const char *path, uint64_t size, chunk_fn chunk,
                              void *ctx, struct error *err)
{
    uint64_t at = 0;
    for (;;) {
        const void *bytes;
        size_t len;
        la_int64_t offset;
        int rc = archive_read_data_block(r->archive, &bytes, &len, &offset);
        if (rc == ARCHIVE_EOF)
            break;
        if (rc != ARCHIVE_OK)
            return archive_failed(r, path, err);
        if (offset < 0 || (uint64_t)offset != at || len > size - at)
            return error_set(err, ERR_DATA, "damaged backup archive: %s is not of one piece", path);
        TRY(chunk(ctx, bytes, len, err));
        at += len;
    }
    if (at != size)
        return error_set(err, ERR_DATA, "damaged backup archive: %s ends after %llu of %llu bytes",
                         path, (unsigned long long)at, (unsigned long long)size);
    return OK;
}

static enum status land_dir(const struct tar_split *s, const char *path, struct error *err)
{
    if (s->shadow_dir == NULL)
        return OK;
    CLEANUP_FREE char *full = xasprintf("%s/%s", s->shadow_dir, path);
    return file_mkdir_p(full, 0700, err);
}

struct landing {
    int fd;
    const char *path;
};

static enum status land_chunk(void *ctx, const uint8_t *bytes, size_t len, struct error *err)
{
    struct landing *l = ctx;
    return l->fd < 0 ? OK : file_write_all(l->fd, bytes, len, l->path, err);
}

/* Not synced here: the load does that for all files at its end; the disk may begin now. */
static enum status land_file(struct reader *r, const char *path, uint64_t size, struct error *err)
{
    CLEANUP_FREE char *full = NULL;
    CLEANUP_FD int fd = -1;
    if (r->split->shadow_dir != NULL) {
        char dir[TAR_PATH_MAX];
        snprintf(dir, sizeof dir, "%s", path);
        char *slash = strrchr(dir, '/');
        if (slash != NULL)
            *slash = '\0';
        if (slash != NULL && strcmp(dir, r->made) != 0) {
            TRY(land_dir(r->split, dir, err));
            memcpy(r->made, dir, sizeof r->made);
        }
        full = xasprintf("%s/%s", r->split->shadow_dir, path);
        fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
            return error_sys(err, ERR_CONFIG, "cannot create %s", full);
    }
    struct landing landing = {fd, path};
    TRY(entry_data(r, path, size, land_chunk, &landing, err));
    if (fd >= 0)
        (void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE); /* a hint */
    return OK;
}

static enum status heap_file(struct reader *r, const struct tar_target *t, const char *path,
                             uint64_t size, struct error *err)
{
    const struct tar_split *s = r->split;
    TRY(s->heap_begin(s->ctx, t->locator, t->segment, size, err));
    TRY(entry_data(r, path, size, s->heap_data, s->ctx, err));
    return s->heap_end(s->ctx, err);
}

static enum tar_kind entry_kind(struct archive_entry *e)
{
    if (archive_entry_hardlink(e) != NULL || archive_entry_symlink(e) != NULL)
        return TAR_KIND_OTHER;
    if (archive_entry_filetype(e) == AE_IFREG)
        return TAR_KIND_FILE;
    return archive_entry_filetype(e) == AE_IFDIR ? TAR_KIND_DIR : TAR_KIND_OTHER;
}

static enum status entry_split(struct reader *r, struct archive_entry *e, struct error *err)
{
    const char *path = archive_entry_pathname(e);
    struct tar_target target;
    if (path == NULL || !archive_entry_size_is_set(e) || archive_entry_size(e) < 0)
        return error_set(err, ERR_DATA, "damaged backup archive (tablespace %u): entry without %s",
                         r->tablespace_oid, path == NULL ? "a name" : "a size");
    uint64_t size = (uint64_t)archive_entry_size(e);
    TRY(tar_path_classify(&r->split->rules, r->tablespace_oid, path, entry_kind(e), &target, err));
    switch (target.action) {
    case TAR_SKIP:
        return OK;
    case TAR_DIR:
        return land_dir(r->split, target.path, err);
    case TAR_LAND:
        return land_file(r, target.path, size, err);
    case TAR_HEAP:
        return heap_file(r, &target, path, size, err);
    }
    return error_set(err, ERR_BUG, "no such action");
}

static enum status archive_walk(struct reader *r, struct error *err)
{
    if (archive_read_support_format_tar(r->archive) != ARCHIVE_OK ||
        archive_read_open2(r->archive, r, NULL, reader_read, NULL, NULL) != ARCHIVE_OK)
        return archive_failed(r, "cannot be opened", err);
    for (;;) {
        struct archive_entry *e;
        int rc = archive_read_next_header(r->archive, &e);
        if (rc == ARCHIVE_EOF)
            return OK;
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
            return archive_failed(r, "entry header", err);
        TRY(entry_split(r, e, err));
    }
}

enum status tar_split_run(const struct tar_split *split, Oid tablespace_oid, struct error *err)
{
    struct reader r = {
        .split = split, .tablespace_oid = tablespace_oid, .archive = archive_read_new()};
    if (r.archive == NULL)
        return error_set(err, ERR_RETRY, "no memory for an archive reader");
    enum status status = archive_walk(&r, err);
    archive_read_free(r.archive);
    const uint8_t *bytes;
    size_t len = 1;
    while (status == OK && len > 0) /* padding behind the end mark */
        status = split->read(split->ctx, &bytes, &len, err);
    return status;
}
