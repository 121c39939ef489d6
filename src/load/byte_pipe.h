/* Bytes of one archive after the other from a thread that is pushed to one that pulls; bounded. The
 * pieces change hands as they are, many at a time. */
#pragma once
#include "base/error.h"
#include "pg/pg.h"

/* Bytes within memory that `release` of byte_pipe_new frees. */
struct byte_piece {
    void *memory;
    const uint8_t *bytes;
    size_t len;
};

struct byte_pipe;
struct byte_pipe *byte_pipe_new(size_t max_bytes, void (*release)(void *memory));
void byte_pipe_free(struct byte_pipe *p); /* both threads have left */

/* Writer: begins an archive (the one before ends), writes, says that no other comes. Wait for the
 * reader; ERR_CANCELLED after byte_pipe_cancel. A piece is the pipe's, also after an error. */
enum status byte_pipe_begin(struct byte_pipe *p, Oid tablespace_oid, struct error *err) CHECKED;
enum status byte_pipe_write(struct byte_pipe *p, struct byte_piece piece,
                            struct error *err) CHECKED;
void byte_pipe_close(struct byte_pipe *p);

/* Reader: the next archive; *ret_more false: there is none. Only after the one before was read to
 * its end. */
enum status byte_pipe_next(struct byte_pipe *p, bool *ret_more, Oid *ret_tablespace_oid,
                           struct error *err) CHECKED;
/* Waits for bytes; *ret_len 0 at the archive's end. Valid until the next call, or as long as
 * somebody has their memory. */
enum status byte_pipe_read(struct byte_pipe *p, const uint8_t **ret, size_t *ret_len,
                           struct error *err) CHECKED;

/* What the last read gave, to be kept beyond the next; any thread. */
struct byte_memory;
/* NULL: these bytes are not in it. Else borrowed until the next read. */
struct byte_memory *byte_pipe_lent(struct byte_pipe *p, const uint8_t *bytes, size_t len);
struct byte_memory *byte_memory_ref(struct byte_memory *m);
void byte_memory_unref(struct byte_memory *m);
size_t byte_memory_len(const struct byte_memory *m);

void byte_pipe_cancel(struct byte_pipe *p);
