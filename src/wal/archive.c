#include "wal/archive.h"

#include "base/file.h"
#include "pg/wal_page.h"
#include "wal/archive_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SEALER_NICENESS 10
#define CHUNK_BYTES ((size_t)256 << 10)
/* Bounds what is packed at a time. */
#define PIECE_MAX ((size_t)256 << 10)

void archive_path(const struct wal_archive *a, XLogRecPtr segment, const char *suffix, char *path,
                  size_t cap)
{
    char name[WAL_SEGMENT_NAME_MAX];
    wal_segment_name(name, a->timeline, segment, a->segment_bytes);
    snprintf(path, cap, "%s/%s%s", a->dir, name, suffix);
}

/* A full disk is the operator's to mend; whatever else stays what it was. */
static enum status io_failed(const struct wal_archive *a, struct error *err)
{
    if (err == NULL)
        return ERR_RETRY;
    if (err->sys_errno == ENOSPC || err->sys_errno == EDQUOT) {
        err->kind = ERR_CONFIG;
        return error_prefix(err, "the disk of the WAL archive %s is full: free some space", a->dir);
    }
    return error_prefix(err, "WAL archive %s", a->dir);
}

enum status archive_remove(const struct wal_archive *a, XLogRecPtr segment, const char *suffix,
                           struct error *err)
{
    char path[PATH_MAX];
    archive_path(a, segment, suffix, path, sizeof path);
    if (unlink(path) != 0 && errno != ENOENT)
        return error_sys(err, ERR_CONFIG, "cannot remove %s", path);
    return OK;
}

/* --- opening --------------------------------------------------------------------------------- */

struct found {
    XLogRecPtr segment;
    uint64_t bytes;
};

static int compare_found(const void *a, const void *b)
{
    XLogRecPtr x = ((const struct found *)a)->segment, y = ((const struct found *)b)->segment;
    return (x > y) - (x < y);
}

/* Sealed segments of our timeline into *ret_list; what an interrupted run left is removed. */
static enum status scan_dir(struct wal_archive *a, struct found **ret_list, size_t *ret_count,
                            struct error *err)
{
    DIR *dir = opendir(a->dir);
    if (dir == NULL)
        return error_sys(err, ERR_CONFIG, "cannot open the WAL archive %s", a->dir);
    struct found *list = NULL;
    size_t count = 0, cap = 0;
    enum status status = OK;
    const struct dirent *entry;
    while (status == OK && (entry = readdir(dir)) != NULL) {
        char name[WAL_SEGMENT_NAME_MAX];
        uint32_t timeline;
        XLogRecPtr segment;
        snprintf(name, sizeof name, "%.24s", entry->d_name);
        if (!wal_segment_name_parse(name, a->segment_bytes, &timeline, &segment) ||
            timeline != a->timeline)
            continue;
        const char *suffix = entry->d_name + 24;
        struct stat st;
        if (strcmp(suffix, SUFFIX_PARTIAL) == 0 || strcmp(suffix, SUFFIX_ASIDE) == 0) {
            if (unlinkat(dirfd(dir), entry->d_name, 0) != 0)
                status = error_sys(err, ERR_CONFIG, "cannot remove %s/%s", a->dir, entry->d_name);
        } else if (strcmp(suffix, SUFFIX_SEALED) == 0) {
            if (fstatat(dirfd(dir), entry->d_name, &st, 0) != 0) {
                status = error_sys(err, ERR_CONFIG, "cannot read %s/%s", a->dir, entry->d_name);
                break;
            }
            if (count == cap)
                list = xrealloc(list, (cap = cap * 2 + 64) * sizeof *list);
            list[count++] = (struct found){segment, (uint64_t)st.st_size};
        }
    }
    closedir(dir);
    *ret_list = list;
    *ret_count = count;
    return status;
}

void archive_sizes_push(struct wal_archive *a, uint64_t bytes)
{
    if (a->count == a->cap)
        a->sizes = xrealloc(a->sizes, (a->cap = a->cap * 2 + 64) * sizeof *a->sizes);
    a->sizes[a->count++] = bytes;
    atomic_fetch_add(&a->disk_bytes, bytes);
}

/* The newest run without a gap is the archive; older segments are of no use to a reader. */
static enum status adopt(struct wal_archive *a, struct found *list, size_t count, struct error *err)
{
    if (count == 0)
        return OK;
    qsort(list, count, sizeof *list, compare_found);
    size_t first = count - 1;
    while (first > 0 && list[first - 1].segment + a->segment_bytes == list[first].segment)
        first--;
    for (size_t i = 0; i < first; i++)
        TRY(archive_remove(a, list[i].segment, SUFFIX_SEALED, err));
    for (size_t i = first; i < count; i++)
        archive_sizes_push(a, list[i].bytes);
    a->oldest = list[first].segment;
    a->filled = list[count - 1].segment + a->segment_bytes;
    a->sealed = a->written = a->filled;
    a->started = true;
    return OK;
}

enum status wal_archive_open(const char *dir, uint64_t segment_bytes, uint32_t timeline,
                             struct wal_archive **ret, struct error *err)
{
    if (!wal_segment_bytes_valid(segment_bytes))
        return error_set(err, ERR_BUG, "WAL segment size %llu", (unsigned long long)segment_bytes);
    TRY(file_mkdir_p(dir, 0700, err));
    struct wal_archive *a = xcalloc(1, sizeof *a);
    a->dir = xstrdup(dir);
    a->segment_bytes = segment_bytes;
    a->timeline = timeline;
    a->limit = UINT64_MAX;
    a->zstd = ZSTD_createCCtx();
    CHECK(a->zstd != NULL);
    pthread_mutex_init(&a->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&a->grown, &attr);
    pthread_condattr_destroy(&attr);
    pthread_cond_init(&a->seal_wanted, NULL);
    pthread_cond_init(&a->seal_moved, NULL);
    struct found *list = NULL;
    size_t count = 0;
    enum status status = scan_dir(a, &list, &count, err);
    if (status == OK)
        status = adopt(a, list, count, err);
    free(list);
    if (status != OK) {
        wal_archive_close(a);
        return status;
    }
    *ret = a;
    return OK;
}

void wal_archive_close(struct wal_archive *a)
{
    if (a == NULL)
        return;
    if (a->sealer_started) {
        pthread_mutex_lock(&a->lock);
        a->closing = true;
        pthread_cond_signal(&a->seal_wanted);
        pthread_mutex_unlock(&a->lock);
        pthread_join(a->sealer, NULL);
    }
    for (unsigned i = 0; i < a->ngrowing; i++)
        growing_free(a->growing[i]);
    buf_free(&a->packed);
    ZSTD_freeCCtx(a->zstd);
    noop_cache_fini(&a->packer.noops);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->grown);
    pthread_cond_destroy(&a->seal_wanted);
    pthread_cond_destroy(&a->seal_moved);
    free(a->sizes);
    free(a->dir);
    free(a);
}

/* --- writing --------------------------------------------------------------------------------- */

static void broadcast(struct wal_archive *a)
{
    pthread_mutex_lock(&a->lock);
    pthread_cond_broadcast(&a->grown);
    pthread_mutex_unlock(&a->lock);
}

static enum status growing_make(struct wal_archive *a, XLogRecPtr segment, struct growing **ret,
                                struct error *err)
{
    char path[PATH_MAX];
    archive_path(a, segment, SUFFIX_PARTIAL, path, sizeof path);
    return growing_new(path, segment, a->segment_bytes, &a->lock, ret, err);
}

/* With the lock held. */
static void growing_push(struct wal_archive *a, struct growing *g)
{
    CHECK(a->ngrowing < LENGTH(a->growing));
    a->growing[a->ngrowing++] = g;
    a->current = g;
}

static void *sealer_main(void *arg)
{
    struct wal_archive *a = arg;
    pthread_setname_np(pthread_self(), "sealer");
    /* rows go first: what is sealed later is only read again after a crash */
    setpriority(PRIO_PROCESS, (id_t)gettid(), SEALER_NICENESS);
    pthread_mutex_lock(&a->lock);
    for (;;) {
        while (a->seal_status != OK || a->sealed == a->filled) {
            if (a->closing) {
                pthread_mutex_unlock(&a->lock);
                return NULL;
            }
            pthread_cond_wait(&a->seal_wanted, &a->lock);
        }
        struct growing *g = a->growing[0];
        struct error err = {0};
        pthread_mutex_unlock(&a->lock);
        enum status status = archive_seal(a, g, &err);
        pthread_mutex_lock(&a->lock);
        if (status != OK) {
            a->seal_status = status;
            a->seal_error = err;
        }
        pthread_cond_broadcast(&a->seal_moved);
    }
}

/* Waits until at most `behind` full segments are not sealed; tells of a failure. */
static enum status seal_wait(struct wal_archive *a, uint64_t behind, struct error *err)
{
    pthread_mutex_lock(&a->lock);
    while (a->seal_status == OK && a->filled - a->sealed > behind * a->segment_bytes)
        pthread_cond_wait(&a->seal_moved, &a->lock);
    enum status status = a->seal_status;
    if (status != OK && err != NULL)
        *err = a->seal_error;
    pthread_mutex_unlock(&a->lock);
    return status;
}

/* The unfinished segment is full: the sealer's from now on. */
static enum status segment_filled(struct wal_archive *a, struct error *err)
{
    pthread_mutex_lock(&a->lock);
    a->filled = a->written;
    a->current = NULL;
    pthread_cond_signal(&a->seal_wanted);
    pthread_mutex_unlock(&a->lock);
    if (!a->sealer_started) {
        int rc = pthread_create(&a->sealer, NULL, sealer_main, a);
        if (rc != 0)
            return error_set(err, ERR_RETRY, "cannot start a thread: error %d", rc);
        a->sealer_started = true;
    }
    uint64_t behind = SEAL_BEHIND_BYTES / a->segment_bytes;
    return seal_wait(a, MAX(SEAL_BEHIND_MIN, MIN(behind, SEAL_BEHIND_MAX)), err);
}

enum status wal_archive_settle(struct wal_archive *a, struct error *err)
{
    return seal_wait(a, 0, err) == OK ? OK : io_failed(a, err);
}

/* The first part of a sealed segment as a growing one. */
static enum status unseal_head(struct wal_archive *a, XLogRecPtr segment, XLogRecPtr lsn,
                               XLogRecPtr readable, struct growing **ret, struct error *err)
{
    struct growing *g;
    TRY(growing_make(a, segment, &g, err));
    struct wal_archive_cursor *c = wal_archive_cursor_new(a);
    CLEANUP_FREE uint8_t *chunk = xmalloc(CHUNK_BYTES);
    enum status status = OK;
    while (status == OK && g->end < lsn) {
        size_t got = 0, len = MIN(CHUNK_BYTES, lsn - g->end);
        status = archive_cursor_read(c, readable, g->end, chunk, len, &got, err);
        if (status == OK)
            status = growing_append(g, &a->packer, &a->packed, chunk, got, err);
    }
    wal_archive_cursor_free(c);
    if (status != OK)
        growing_free(g);
    else
        *ret = g;
    return status;
}

/* Nothing of the unfinished segment stays. */
static enum status growing_drop(struct wal_archive *a, struct error *err)
{
    struct growing *g = a->current;
    if (g == NULL)
        return OK;
    pthread_mutex_lock(&a->lock);
    a->current = NULL;
    a->ngrowing = 0;
    pthread_mutex_unlock(&a->lock);
    XLogRecPtr segment = g->start;
    atomic_fetch_sub(&a->disk_bytes, growing_file_bytes(g));
    growing_free(g);
    return archive_remove(a, segment, SUFFIX_PARTIAL, err);
}

static enum status cut_current(struct wal_archive *a, XLogRecPtr lsn, struct error *err)
{
    struct growing *g = a->current;
    uint64_t before = growing_file_bytes(g);
    TRY(growing_cut(g, &a->packer, &a->packed, lsn, err));
    atomic_fetch_sub(&a->disk_bytes, before - growing_file_bytes(g));
    return OK;
}

/* Takes back everything from lsn on. */
static enum status rewind_to(struct wal_archive *a, XLogRecPtr lsn, struct error *err)
{
    TRY(seal_wait(a, 0, err));
    XLogRecPtr sealed = a->sealed, oldest = a->oldest;
    XLogRecPtr segment = lsn_segment_start(lsn, a->segment_bytes);
    if (lsn < oldest && lsn != segment)
        return error_lsn(err, ERR_BUG, lsn, "WAL archive %s begins at " LSN_FMT, a->dir,
                         LSN_ARGS(oldest));
    pthread_mutex_lock(&a->lock);
    a->written = lsn;
    a->generation++;
    pthread_mutex_unlock(&a->lock);
    if (lsn >= sealed)
        return cut_current(a, lsn, err);
    TRY(growing_drop(a, err));
    struct growing *head = NULL;
    if (lsn > segment)
        TRY(unseal_head(a, segment, lsn, sealed, &head, err));
    XLogRecPtr keep = MAX(segment, oldest);
    for (XLogRecPtr s = sealed; s > keep; s -= a->segment_bytes) /* no gap whenever we are killed */
        TRY(archive_remove(a, s - a->segment_bytes, SUFFIX_SEALED, err));
    TRY(file_fsync_dir(a->dir, err));
    pthread_mutex_lock(&a->lock);
    while (a->count > (keep - oldest) / a->segment_bytes)
        atomic_fetch_sub(&a->disk_bytes, a->sizes[--a->count]);
    a->sealed = segment;
    a->filled = segment;
    if (segment < oldest)
        a->oldest = segment;
    if (head != NULL) {
        growing_push(a, head);
        atomic_fetch_add(&a->disk_bytes, growing_file_bytes(head));
    }
    a->generation++; /* cursors that opened a file in between look again */
    pthread_mutex_unlock(&a->lock);
    return OK;
}

/* Within one segment. */
static enum status write_piece(struct wal_archive *a, const void *data, size_t len,
                               struct error *err)
{
    XLogRecPtr at = a->written;
    if (a->current == NULL) {
        struct growing *made;
        TRY(growing_make(a, lsn_segment_start(at, a->segment_bytes), &made, err));
        pthread_mutex_lock(&a->lock);
        growing_push(a, made);
        pthread_mutex_unlock(&a->lock);
    }
    struct growing *g = a->current;
    uint64_t before = growing_file_bytes(g);
    if (growing_append(g, &a->packer, &a->packed, data, len, err) != OK)
        return error_prefix(err, "segment at " LSN_FMT, LSN_ARGS(g->start));
    atomic_fetch_add(&a->disk_bytes, growing_file_bytes(g) - before);
    atomic_store_explicit(&a->written, at + len, memory_order_release);
    broadcast(a);
    if ((at + len) % a->segment_bytes == 0)
        TRY(segment_filled(a, err));
    return OK;
}

enum status wal_archive_write(struct wal_archive *a, XLogRecPtr lsn, const void *data, size_t len,
                              struct noop_marks *marks, struct error *err)
{
    if (!a->started) {
        if (lsn % a->segment_bytes != 0)
            return error_lsn(err, ERR_BUG, lsn, "WAL archive %s cannot begin inside a segment",
                             a->dir);
        a->filled = lsn;
        a->oldest = a->sealed = a->written = lsn;
        a->started = true;
    }
    if (lsn > a->written)
        return error_lsn(err, ERR_BUG, lsn, "gap in the WAL archive %s, which ends at " LSN_FMT,
                         a->dir, LSN_ARGS(a->written));
    if (lsn < a->written && rewind_to(a, lsn, err) != OK)
        return io_failed(a, err);
    const uint8_t *at = data;
    a->packer.marks = marks;
    while (len > 0) {
        size_t n = MIN(MIN(len, PIECE_MAX), a->segment_bytes - a->written % a->segment_bytes);
        if (write_piece(a, at, n, err) != OK)
            return io_failed(a, err);
        at += n;
        len -= n;
    }
    a->packer.marks = NULL;
    return OK;
}

/* --- positions ------------------------------------------------------------------------------- */

XLogRecPtr wal_archive_written_lsn(const struct wal_archive *a)
{
    return a->written;
}

XLogRecPtr wal_archive_sealed_lsn(const struct wal_archive *a)
{
    return a->sealed;
}

XLogRecPtr wal_archive_oldest_lsn(const struct wal_archive *a)
{
    return a->oldest;
}

uint64_t wal_archive_bytes(const struct wal_archive *a)
{
    return a->disk_bytes;
}

XLogRecPtr wal_archive_visible_lsn(const struct wal_archive *a)
{
    XLogRecPtr written = atomic_load_explicit(&a->written, memory_order_acquire);
    XLogRecPtr limit = a->limit;
    return MIN(written, limit);
}

void wal_archive_set_limit(struct wal_archive *a, XLogRecPtr limit)
{
    a->limit = limit;
    broadcast(a);
}

XLogRecPtr wal_archive_wait(struct wal_archive *a, XLogRecPtr lsn, uint64_t deadline_ns)
{
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000),
                             .tv_nsec = (long)(deadline_ns % 1000000000)};
    pthread_mutex_lock(&a->lock);
    uint64_t wakes = a->wakes;
    while (wal_archive_visible_lsn(a) <= lsn && a->wakes == wakes) {
        if (deadline_ns == UINT64_MAX)
            pthread_cond_wait(&a->grown, &a->lock);
        else if (pthread_cond_timedwait(&a->grown, &a->lock, &until) == ETIMEDOUT)
            break;
    }
    pthread_mutex_unlock(&a->lock);
    return wal_archive_visible_lsn(a);
}

void wal_archive_wake(struct wal_archive *a)
{
    pthread_mutex_lock(&a->lock);
    a->wakes++;
    pthread_cond_broadcast(&a->grown);
    pthread_mutex_unlock(&a->lock);
}

/* --- retention ------------------------------------------------------------------------------- */

/* Takes the oldest segment off the list if it may go. */
static bool trim_one(struct wal_archive *a, XLogRecPtr below, XLogRecPtr *ret_segment)
{
    pthread_mutex_lock(&a->lock);
    XLogRecPtr oldest = a->oldest;
    /* one segment before `below` stays: the record that crosses below begins there (or earlier) */
    bool go = a->count > 1 && oldest + 2 * a->segment_bytes <= below;
    if (go) {
        atomic_fetch_sub(&a->disk_bytes, a->sizes[0]);
        memmove(a->sizes, a->sizes + 1, --a->count * sizeof *a->sizes);
        a->oldest = oldest + a->segment_bytes;
    }
    pthread_mutex_unlock(&a->lock);
    *ret_segment = oldest;
    return go;
}

enum status wal_archive_trim(struct wal_archive *a, XLogRecPtr below_lsn, struct error *err)
{
    XLogRecPtr segment;
    below_lsn = MIN(below_lsn, wal_archive_sealed_lsn(a));
    while (trim_one(a, below_lsn, &segment)) /* oldest first: no gap whenever we are killed */
        TRY(archive_remove(a, segment, SUFFIX_SEALED, err));
    return OK;
}
