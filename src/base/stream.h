/* A byte stream with deadlines: TCP or unix socket now, TLS behind the same functions.
 *
 * One thread reads and writes a stream; stream_cancel may come from any other while it exists. */
#pragma once
#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct stream;

/* What a transport implements. Each returns bytes moved, or a negative STREAM_WANT_ value after
 * which the caller polls the descriptor and tries again, or -1 with errno. read gives 0 at the end.
 */
#define STREAM_WANT_READ (-2)
#define STREAM_WANT_WRITE (-3)
struct stream_ops {
    ssize_t (*read)(struct stream *s, void *data, size_t n);
    ssize_t (*writev)(struct stream *s, const struct iovec *iov, int n);
    size_t (*pending)(
        const struct stream *s);     /* bytes readable without the descriptor; may be NULL */
    void (*close)(struct stream *s); /* what the transport owns beside fd; may be NULL */
};

struct stream {
    const struct stream_ops *ops;
    int fd;         /* non-blocking; owned */
    char name[128]; /* of the peer, for messages: "10.0.0.1:9000", "unix:/…" */
    atomic_bool cancelled;
    void *transport; /* of ops */
};

#define STREAM_NO_DEADLINE UINT64_MAX

/* Takes fd (made non-blocking) as a plain socket. Never fails. */
void stream_init(struct stream *s, int fd, const char *name);
void stream_close(struct stream *s); /* zeroed or closed already: fine */

/* From another thread: running and later calls fail with ERR_CANCELLED. */
void stream_cancel(struct stream *s);

/* Deadlines are CLOCK_MONOTONIC ns (clock_now_ns() + …). ERR_RETRY: timeout (errno ETIMEDOUT), the
 * peer is gone; ERR_CANCELLED. */

/* At least one byte; *ret_n = 0 is the end of the stream. */
enum status stream_read(struct stream *s, void *data, size_t n, uint64_t deadline_ns, size_t *ret_n,
                        struct error *err) CHECKED;
enum status stream_write(struct stream *s, const void *data, size_t n, uint64_t deadline_ns,
                         struct error *err) CHECKED;

/* One step of a conversation that goes both ways: waits until `want_read` bytes can be read or
 * something can be written, and writes once. *ret_written bytes of iov went out (maybe 0);
 * *ret_readable: stream_read will not wait. */
enum status stream_writev_step(struct stream *s, const struct iovec *iov, int n, bool want_read,
                               uint64_t deadline_ns, size_t *ret_written, bool *ret_readable,
                               struct error *err) CHECKED;

/* Whether stream_read would return at once (bytes, or the end of the stream). */
bool stream_is_readable(struct stream *s);
