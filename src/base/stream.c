#include "base/stream.h"
#include "base/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static ssize_t plain_result(ssize_t got, ssize_t want)
{
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return want;
    return got;
}

static ssize_t plain_read(struct stream *s, void *data, size_t n)
{
    ssize_t got;
    do
        got = read(s->fd, data, n);
    while (got < 0 && errno == EINTR);
    return plain_result(got, STREAM_WANT_READ);
}

static ssize_t plain_writev(struct stream *s, const struct iovec *iov, int n)
{
    ssize_t got;
    /* sendmsg: a peer that is gone is an error, not a SIGPIPE */
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
    do
        got = sendmsg(s->fd, &msg, MSG_NOSIGNAL);
    while (got < 0 && errno == EINTR);
    return plain_result(got, STREAM_WANT_WRITE);
}

static const struct stream_ops plain_ops = {.read = plain_read, .writev = plain_writev};

void stream_init(struct stream *s, int fd, const char *name)
{
    memset(s, 0, sizeof *s);
    s->ops = &plain_ops;
    s->fd = fd;
    snprintf(s->name, sizeof s->name, "%s", name);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void stream_close(struct stream *s)
{
    if (s->ops == NULL)
        return;
    if (s->ops->close != NULL)
        s->ops->close(s);
    close(s->fd);
    s->fd = -1;
    s->ops = NULL;
}

void stream_cancel(struct stream *s)
{
    atomic_store(&s->cancelled, true);
    /* wakes a poll in the other thread */
    shutdown(s->fd, SHUT_RDWR);
}

static enum status failed(struct stream *s, const char *what, struct error *err)
{
    if (atomic_load(&s->cancelled))
        return error_set(err, ERR_CANCELLED, "%s: cancelled", s->name);
    return error_sys(err, ERR_RETRY, "%s: %s", s->name, what);
}

/* Waits for events; *ret_events 0 is not returned: the deadline is an error. */
static enum status wait_events(struct stream *s, short events, uint64_t deadline_ns,
                               short *ret_events, struct error *err)
{
    for (;;) {
        struct pollfd p = {.fd = s->fd, .events = events};
        int timeout = -1;
        if (atomic_load(&s->cancelled))
            return failed(s, "", err);
        if (deadline_ns != STREAM_NO_DEADLINE) {
            uint64_t now = clock_now_ns();
            uint64_t left_ms = deadline_ns > now ? (deadline_ns - now + 999999) / 1000000 : 0;
            timeout = (int)MIN(left_ms, 3600000u);
        }
        int got = poll(&p, 1, timeout);
        if (got > 0) {
            *ret_events = p.revents;
            return OK;
        }
        if (got < 0 && errno != EINTR)
            return failed(s, "poll", err);
        if (got == 0 && clock_now_ns() >= deadline_ns) {
            errno = ETIMEDOUT;
            return failed(s, events & POLLOUT ? "write" : "read", err);
        }
    }
}

enum status stream_read(struct stream *s, void *data, size_t n, uint64_t deadline_ns, size_t *ret_n,
                        struct error *err)
{
    for (;;) {
        short events;
        if (atomic_load(&s->cancelled))
            return failed(s, "", err);
        ssize_t got = s->ops->read(s, data, n);
        if (got >= 0) {
            /* a shutdown by stream_cancel reads as the end of the stream */
            if (got == 0 && atomic_load(&s->cancelled))
                return failed(s, "", err);
            *ret_n = (size_t)got;
            return OK;
        }
        if (got == -1)
            return failed(s, "read", err);
        TRY(wait_events(s, got == STREAM_WANT_READ ? POLLIN : POLLOUT, deadline_ns, &events, err));
    }
}

enum status stream_write(struct stream *s, const void *data, size_t n, uint64_t deadline_ns,
                         struct error *err)
{
    const char *at = data;
    while (n > 0) {
        struct iovec iov = {(void *)at, n};
        short events;
        if (atomic_load(&s->cancelled))
            return failed(s, "", err);
        ssize_t got = s->ops->writev(s, &iov, 1);
        if (got == -1)
            return failed(s, "write", err);
        if (got >= 0) {
            at += got;
            n -= (size_t)got;
            continue;
        }
        TRY(wait_events(s, got == STREAM_WANT_READ ? POLLIN : POLLOUT, deadline_ns, &events, err));
    }
    return OK;
}

enum status stream_writev_step(struct stream *s, const struct iovec *iov, int n, bool want_read,
                               uint64_t deadline_ns, size_t *ret_written, bool *ret_readable,
                               struct error *err)
{
    short events = 0;
    *ret_written = 0;
    *ret_readable = want_read && s->ops->pending != NULL && s->ops->pending(s) > 0;
    if (*ret_readable)
        return OK;
    /* what the peer has to say comes first: it may have stopped reading */
    TRY(wait_events(s, (short)(POLLOUT | (want_read ? POLLIN : 0)), deadline_ns, &events, err));
    *ret_readable = want_read && (events & (POLLIN | POLLHUP | POLLERR)) != 0;
    if (*ret_readable || !(events & (POLLOUT | POLLERR | POLLHUP)))
        return OK;
    ssize_t got = s->ops->writev(s, iov, n);
    if (got == -1)
        return failed(s, "write", err);
    if (got >= 0)
        *ret_written = (size_t)got;
    else if (got == STREAM_WANT_READ)
        return wait_events(s, POLLIN, deadline_ns, &events, err);
    return OK;
}

bool stream_is_readable(struct stream *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLIN};
    if (s->ops->pending != NULL && s->ops->pending(s) > 0)
        return true;
    return poll(&p, 1, 0) > 0;
}
