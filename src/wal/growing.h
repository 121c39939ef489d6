/* An archived segment that is being written, or waits to be sealed: its whole pages packed (pack.h)
 * in a file, the page that is not whole yet in memory. The file is scratch, never read after a
 * restart, so nothing of it is synced.
 *
 * One thread (the writer) appends and cuts; readers ask for places, with the archive's lock held.
 */
#pragma once
#include "base/buf.h"
#include "base/error.h"
#include "wal/pack.h"

#include <pthread.h>

struct growing_place {
    uint64_t offset; /* in the file */
    XLogRecPtr last; /* what the packer knew before that page */
};

struct growing {
    XLogRecPtr start, end; /* of what is in it */
    uint64_t segment_bytes;
    pthread_mutex_t *lock; /* the archive's: guards end, npages and tail */
    int fd;
    uint32_t npages;              /* whole ones */
    struct growing_place *places; /* of those, and of the next */
    uint8_t tail[PG_XLOG_BLCKSZ]; /* its first bytes: the page that is not whole */
};

/* Creates (or empties) the file. */
enum status growing_new(const char *path, XLogRecPtr start, uint64_t segment_bytes,
                        pthread_mutex_t *lock, struct growing **ret, struct error *err) CHECKED;
void growing_free(struct growing *g); /* closes the file and leaves it; NULL is fine */

static inline uint64_t growing_file_bytes(const struct growing *g)
{
    return g->places[g->npages].offset;
}

/* Appends at end; the bytes do not go beyond the segment. When it fails nothing was appended.
 * `packed` is room to work in, the packer's place in the WAL is set to g's. */
enum status growing_append(struct growing *g, struct wal_packer *packer, struct buf *packed,
                           const uint8_t *data, size_t len, struct error *err) CHECKED;

/* Takes back everything from lsn (start ≤ lsn ≤ end) on. */
enum status growing_cut(struct growing *g, struct wal_packer *packer, struct buf *packed,
                        XLogRecPtr lsn, struct error *err) CHECKED;
