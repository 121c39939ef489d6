/* Shared by archive.c (writer, list of segments), archive_seal.c and archive_read.c (cursors). */
#pragma once
#include "wal/archive.h"
#include "wal/pack.h"

#include <pthread.h>
#include <stdatomic.h>
#include <zstd.h>

#define SUFFIX_SEALED ".packed"
#define SUFFIX_ASIDE ".packed.tmp"
#define SUFFIX_PARTIAL ".partial"
#define SPARE_NAME "spare"
/* A sealed segment is one zstd frame of this and its packed pages (pack.h). */
#define ARCHIVE_FORMAT "WALPACK1"

struct wal_archive {
    char *dir;
    uint64_t segment_bytes;
    uint32_t timeline;

    /* Guards sizes, count, wakes, what the sealer shares, and every change of oldest, sealed and
     * generation. */
    pthread_mutex_t lock;
    pthread_cond_t grown; /* written, limit or wakes changed */

    /* The sealer: a thread that compresses and syncs full segments, so that the writer need not
     * wait for the disk. It owns the .partial files between sealed and filled. */
    pthread_t sealer;
    pthread_cond_t seal_wanted, seal_moved;
    XLogRecPtr filled; /* end of the full segments */
    bool sealer_started, closing;
    enum status seal_status; /* of the first failure; nothing is sealed after it */
    struct error seal_error;
    uint64_t wakes;
    uint64_t *sizes; /* bytes on disk of the sealed segments from oldest on */
    size_t count, cap;

    _Atomic XLogRecPtr written, sealed, oldest, limit;
    atomic_uint_least64_t sealed_disk_bytes;
    atomic_bool has_spare; /* a file to write over; set by the sealer, taken by the writer */
    atomic_uint_least64_t generation; /* grows when written bytes are taken back */

    /* the sealer's own */
    ZSTD_CCtx *zstd;
    struct wal_packer packer;

    /* the writer's own */
    bool started; /* a position is known */
    int fd;       /* the unfinished segment, -1 = none */
};

void archive_path(const struct wal_archive *a, XLogRecPtr segment, const char *suffix, char *path,
                  size_t cap);

void archive_spare_path(const struct wal_archive *a, char *path, size_t cap);
enum status archive_remove(const struct wal_archive *a, XLogRecPtr segment, const char *suffix,
                           struct error *err) CHECKED; /* fine if it is not there */

/* With the lock held, or before there are threads: one more sealed segment. */
void archive_sizes_push(struct wal_archive *a, uint64_t bytes);
/* The sealer's: makes a full segment durable in its sealed form. */
enum status archive_seal(struct wal_archive *a, XLogRecPtr segment, struct error *err) CHECKED;

/* As wal_archive_read, up to `visible` instead of the limit. */
enum status archive_cursor_read(struct wal_archive_cursor *c, XLogRecPtr visible, XLogRecPtr lsn,
                                void *buf, size_t len, size_t *ret_got, struct error *err) CHECKED;
