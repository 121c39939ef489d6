#include "base/file.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum status file_write_all(int fd, const void *data, size_t len, const char *name,
                           struct error *err)
{
    const uint8_t *at = data;
    while (len > 0) {
        ssize_t n = write(fd, at, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_sys(err, ERR_RETRY, "cannot write %s", name);
        at += n;
        len -= (size_t)n;
    }
    return OK;
}

enum status file_pwrite_all(int fd, const void *data, size_t len, off_t pos, const char *name,
                            struct error *err)
{
    const uint8_t *at = data;
    while (len > 0) {
        ssize_t n = pwrite(fd, at, len, pos);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_sys(err, ERR_RETRY, "cannot write %s", name);
        at += n;
        pos += n;
        len -= (size_t)n;
    }
    return OK;
}

enum status file_create_unnamed(const char *path, int *ret_fd, struct error *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_sys(err, ERR_RETRY, "cannot create %s", path);
    unlink(path);
    *ret_fd = fd;
    return OK;
}

enum status file_pread_all(int fd, void *data, size_t len, off_t pos, const char *name,
                           struct error *err)
{
    uint8_t *at = data;
    while (len > 0) {
        ssize_t n = pread(fd, at, len, pos);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_sys(err, ERR_RETRY, "cannot read %s", name);
        if (n == 0)
            return error_set(err, ERR_DATA, "%s ends at byte %lld, %zu more were expected", name,
                             (long long)pos, len);
        at += n;
        pos += n;
        len -= (size_t)n;
    }
    return OK;
}

enum status file_fsync_dir(const char *path, struct error *err)
{
    CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        return error_sys(err, ERR_RETRY, "cannot sync directory %s", path);
    return OK;
}

static enum status write_synced(const char *path, const void *data, size_t len, mode_t mode,
                                struct error *err)
{
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    if (fd < 0)
        return error_sys(err, ERR_RETRY, "cannot create %s", path);
    TRY(file_write_all(fd, data, len, path, err));
    if (fsync(fd) != 0)
        return error_sys(err, ERR_RETRY, "cannot sync %s", path);
    return OK;
}

enum status file_rename_durable(const char *from, const char *to, struct error *err)
{
    CLEANUP_FREE char *copy = xstrdup(to);
    FAULT_POINT("file-before-rename");
    if (rename(from, to) != 0) {
        enum status st = error_sys(err, ERR_RETRY, "cannot rename %s", from);
        unlink(from);
        return st;
    }
    FAULT_POINT("file-after-rename");
    return file_fsync_dir(dirname(copy), err);
}

enum status file_write_atomic(const char *path, const void *data, size_t len, mode_t mode,
                              struct error *err)
{
    CLEANUP_FREE char *tmp = xasprintf("%s.tmp", path);
    enum status st = write_synced(tmp, data, len, mode, err);
    if (st != OK) {
        unlink(tmp);
        return st;
    }
    return file_rename_durable(tmp, path, err);
}

enum status file_read_all(const char *path, size_t max_bytes, struct buf *ret, struct error *err)
{
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0)
        return error_sys(err, ERR_CONFIG, "cannot open %s", path);
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > max_bytes)
        return error_set(err, ERR_DATA, "%s is not a regular file of at most %zu bytes", path,
                         max_bytes);
    uint8_t *at = buf_reserve(ret, (size_t)st.st_size);
    TRY(file_pread_all(fd, at, (size_t)st.st_size, 0, path, err));
    ret->len += (size_t)st.st_size;
    return OK;
}

bool file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* Leaves errno as it is. */
static bool is_directory(const char *path)
{
    struct stat st;
    int saved = errno;
    bool is = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    errno = saved;
    return is;
}

enum status file_mkdir_p(const char *path, mode_t mode, struct error *err)
{
    CLEANUP_FREE char *copy = xstrdup(path);
    for (char *slash = copy + 1;; slash++) {
        if (*slash != '/' && *slash != '\0')
            continue;
        char kept = *slash;
        *slash = '\0';
        if (mkdir(copy, mode) != 0 && (errno != EEXIST || !is_directory(copy)))
            return error_sys(err, ERR_CONFIG, "cannot create directory %s", copy);
        *slash = kept;
        if (kept == '\0')
            return OK;
    }
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    if (ftw->level == 0)
        return 0; /* the top is the caller's decision */
    return remove(path);
}

enum status file_remove_tree(const char *path, bool self, struct error *err)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? OK : error_sys(err, ERR_CONFIG, "cannot look at %s", path);
    if (S_ISDIR(st.st_mode) && nftw(path, remove_one, 32, FTW_DEPTH | FTW_PHYS) != 0)
        return error_sys(err, ERR_CONFIG, "cannot empty %s", path);
    if (self && remove(path) != 0)
        return error_sys(err, ERR_CONFIG, "cannot remove %s", path);
    return OK;
}

static int sync_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)ftw;
    if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode))
        return 0;
    if (kind == FTW_DNR || kind == FTW_NS)
        return -1;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int rc = fd < 0 ? -1 : fsync(fd);
    int saved = errno;
    if (fd >= 0)
        close(fd);
    errno = saved;
    return rc;
}

enum status file_sync_tree(const char *path, struct error *err)
{
    if (nftw(path, sync_one, 32, FTW_DEPTH | FTW_PHYS) != 0)
        return error_sys(err, ERR_CONFIG, "cannot sync what is below %s", path);
    return OK;
}
