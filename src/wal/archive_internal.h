/* Shared by archive.c (writer, list of segments), archive_seal.c and archive_read.c (cursors). */
#pragma once
#include "base/buf.h"
#include "wal/archive.h"
#include "wal/growing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <zstd.h>

#define SUFFIX_SEALED ".packed"
#define SUFFIX_ASIDE ".packed.tmp"
#define SUFFIX_PARTIAL ".partial"
/* Full segments that may wait for the sealer before the writer does: as many as hold these bytes of
 * WAL, within these bounds. Their files are short, and a disk that syncs slowly need not be waited
 * for. */
#define SEAL_BEHIND_BYTES ((uint64_t)1 << 30)
#define SEAL_BEHIND_MIN 2
#define SEAL_BEHIND_MAX 64
/* A sealed segment is one zstd frame of this and its packed pages (pack.h). */
#define ARCHIVE_FORMAT "WALPACK1"

struct wal_archive {
    char *dir;
    uint64_t segment_bytes;
    uint32_t timeline;

    /* Guards sizes, count, wakes, growing, what the sealer shares, and every change of oldest,
     * sealed and generation. */
    pthread_mutex_t lock;
    pthread_cond_t grown; /* written, limit or wakes changed */

    /* The sealer: a thread that compresses and syncs full segments, so that the writer need not
     * wait for the disk. It owns the growing segments between sealed and filled. */
    pthread_t sealer;
    pthread_cond_t seal_wanted, seal_moved;
    XLogRecPtr filled; /* end of the full segments */
    bool sealer_started, closing;
    enum status seal_status; /* of the first failure; nothing is sealed after it */
    struct error seal_error;
    uint64_t wakes;
    struct growing *growing[SEAL_BEHIND_MAX + 2]; /* those from sealed on, in order */
    unsigned ngrowing;
    uint64_t *sizes; /* bytes on disk of the sealed segments from oldest on */
    size_t count, cap;

    _Atomic XLogRecPtr written, sealed, oldest, limit;
    atomic_uint_least64_t disk_bytes; /* of sealed and growing segments */
    atomic_uint_least64_t generation; /* grows when written bytes are taken back */

    ZSTD_CCtx *zstd; /* the sealer's own */

    /* the writer's own */
    bool started;            /* a position is known */
    struct growing *current; /* the last of growing, NULL when that is full or there is none */
    struct wal_packer packer;
    struct buf packed; /* the writer's pages on their way to the file */
};

void archive_path(const struct wal_archive *a, XLogRecPtr segment, const char *suffix, char *path,
                  size_t cap);

enum status archive_remove(const struct wal_archive *a, XLogRecPtr segment, const char *suffix,
                           struct error *err) CHECKED; /* fine if it is not there */

/* With the lock held, or before there are threads: one more sealed segment. */
void archive_sizes_push(struct wal_archive *a, uint64_t bytes);
/* The sealer's: makes the first of the growing segments, which is full, durable and takes it off
 * the list. */
enum status archive_seal(struct wal_archive *a, struct growing *g, struct error *err) CHECKED;
/* With the lock held: the growing segment of that start, NULL if there is none. */
static inline struct growing *archive_growing(const struct wal_archive *a, XLogRecPtr segment)
{
    for (unsigned i = 0; i < a->ngrowing; i++)
        if (a->growing[i]->start == segment)
            return a->growing[i];
    return NULL;
}

/* As wal_archive_read, up to `visible` instead of the limit. */
enum status archive_cursor_read(struct wal_archive_cursor *c, XLogRecPtr visible, XLogRecPtr lsn,
                                void *buf, size_t len, size_t *ret_got, struct error *err) CHECKED;
