#include "shadow/walsender.h"

#include "base/log.h"
#include "base/queue.h"
#include "base/socket.h"
#include "shadow/walsender_conn.h"
#include "wal/archive.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_KEEPALIVE_MS 10000
#define DEFAULT_CONNECTIONS 8

/* Only we ourselves: the WAL holds catalog data, and a stranger's status replies would count. */
static bool peer_is_us(int fd, pid_t *ret_pid)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0 || peer.uid != geteuid())
        return false;
    *ret_pid = peer.pid;
    return true;
}

static void conn_free(struct walsender_conn *c)
{
    pthread_join(c->thread, NULL);
    stream_close(&c->in);
    stream_close(&c->out);
    free(c);
}

/* With the lock held: takes connections whose threads have ended out of the list. */
static struct walsender_conn *take_finished(struct shadow_walsender *ws)
{
    struct walsender_conn *finished = NULL;
    for (struct walsender_conn **at = &ws->conns; *at != NULL;) {
        struct walsender_conn *c = *at;
        if (!c->finished) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        c->next = finished;
        finished = c;
        ws->nconns--;
    }
    return finished;
}

static void free_list(struct walsender_conn *c)
{
    while (c != NULL) {
        struct walsender_conn *next = c->next;
        conn_free(c);
        c = next;
    }
}

static void admit(struct shadow_walsender *ws, struct stream *s)
{
    int second = dup(s->fd);
    pid_t peer = 0;
    if (!peer_is_us(s->fd, &peer) || second < 0) {
        log_warn("msg=\"connection to the walsender refused: not our user\"");
        if (second >= 0)
            close(second);
        stream_close(s);
        return;
    }
    struct walsender_conn *c = xcalloc(1, sizeof *c);
    c->ws = ws;
    c->peer = peer;
    stream_init(&c->out, s->fd, "standby");
    stream_init(&c->in, second, "standby");
    pthread_mutex_lock(&ws->lock);
    struct walsender_conn *finished = take_finished(ws);
    bool admitted = !ws->stopping && ws->nconns < ws->options.max_connections &&
                    pthread_create(&c->thread, NULL, walsender_conn_main, c) == 0;
    if (admitted) {
        c->next = ws->conns;
        ws->conns = c;
        ws->nconns++;
    }
    pthread_mutex_unlock(&ws->lock);
    free_list(finished);
    if (!admitted) {
        log_warn("msg=\"connection to the walsender refused: too many\" max=%u",
                 ws->options.max_connections);
        stream_close(&c->in);
        stream_close(&c->out);
        free(c);
    }
}

static void *accept_main(void *arg)
{
    struct shadow_walsender *ws = arg;
    for (;;) {
        struct stream s = {0};
        struct error err = {0};
        enum status st = socket_accept(ws->listen_fd, ws->stop_fd, &s, &err);
        if (st == ERR_CANCELLED)
            return NULL;
        if (st == OK)
            admit(ws, &s);
        else
            log_warn("msg=%s", LOG_Q(err.message));
    }
}

static void init_sync(struct shadow_walsender *ws)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&ws->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&ws->moved, &attr);
    pthread_condattr_destroy(&attr);
}

static void ws_free(struct shadow_walsender *ws)
{
    if (ws->listen_fd >= 0)
        close(ws->listen_fd);
    if (ws->stop_fd >= 0)
        close(ws->stop_fd);
    pthread_cond_destroy(&ws->moved);
    pthread_mutex_destroy(&ws->lock);
    free(ws->socket_path);
    free((char *)(uintptr_t)ws->options.socket_dir);
    free(ws);
}

static enum status listen_and_run(struct shadow_walsender *ws, struct error *err)
{
    struct socket_address address = {.is_unix = true};
    int n = snprintf(address.path, sizeof address.path, "%s", ws->socket_path);
    if (n < 0 || (size_t)n >= sizeof address.path)
        return error_set(err, ERR_CONFIG, "the socket path %s is too long", ws->socket_path);
    TRY(socket_listen(&address, &ws->listen_fd, NULL, err));
    ws->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ws->stop_fd < 0)
        return error_sys(err, ERR_RETRY, "cannot create an eventfd");
    int rc = pthread_create(&ws->accept_thread, NULL, accept_main, ws);
    if (rc != 0) {
        errno = rc;
        return error_sys(err, ERR_RETRY, "cannot start the walsender's thread");
    }
    return OK;
}

enum status shadow_walsender_start(const struct shadow_walsender_options *options,
                                   struct shadow_walsender **ret, struct error *err)
{
    struct shadow_walsender *ws = xcalloc(1, sizeof *ws);
    ws->options = *options;
    ws->options.socket_dir = xstrdup(options->socket_dir);
    ws->socket_path = xasprintf("%s/.s.PGSQL.%u", options->socket_dir, options->port);
    ws->listen_fd = ws->stop_fd = -1;
    if (ws->options.keepalive_ms == 0)
        ws->options.keepalive_ms = DEFAULT_KEEPALIVE_MS;
    if (ws->options.max_connections == 0)
        ws->options.max_connections = DEFAULT_CONNECTIONS;
    init_sync(ws);
    enum status st = listen_and_run(ws, err);
    if (st != OK) {
        ws_free(ws);
        return st;
    }
    *ret = ws;
    return OK;
}

void shadow_walsender_stop(struct shadow_walsender *ws)
{
    uint64_t one = 1;
    if (ws == NULL)
        return;
    pthread_mutex_lock(&ws->lock);
    ws->stopping = ws->cancelled = true;
    pthread_cond_broadcast(&ws->moved);
    pthread_mutex_unlock(&ws->lock);
    ssize_t ignored = write(ws->stop_fd, &one, sizeof one);
    (void)ignored;
    pthread_join(ws->accept_thread, NULL);
    /* nobody is admitted any more; a sender that waits for WAL is woken by its receiver, which sees
     * the socket shut down */
    pthread_mutex_lock(&ws->lock);
    struct walsender_conn *all = ws->conns;
    ws->conns = NULL;
    for (struct walsender_conn *c = all; c != NULL; c = c->next) {
        stream_cancel(&c->out);
        stream_cancel(&c->in);
    }
    pthread_mutex_unlock(&ws->lock);
    free_list(all);
    unlink(ws->socket_path);
    ws_free(ws);
}

void shadow_walsender_note(struct shadow_walsender *ws, XLogRecPtr flushed, XLogRecPtr applied)
{
    pthread_mutex_lock(&ws->lock);
    /* 0: a client that only receives (pg_receivewal), or a standby that has not begun to replay */
    if (flushed != 0)
        ws->flushed = flushed;
    if (applied != 0)
        ws->applied = applied;
    pthread_cond_broadcast(&ws->moved);
    pthread_mutex_unlock(&ws->lock);
}

XLogRecPtr shadow_walsender_applied(struct shadow_walsender *ws)
{
    pthread_mutex_lock(&ws->lock);
    XLogRecPtr lsn = ws->applied;
    pthread_mutex_unlock(&ws->lock);
    return lsn;
}

XLogRecPtr shadow_walsender_flushed(struct shadow_walsender *ws)
{
    pthread_mutex_lock(&ws->lock);
    XLogRecPtr lsn = ws->flushed;
    pthread_mutex_unlock(&ws->lock);
    return lsn;
}

/* With the lock held. */
static XLogRecPtr furthest_sent(const struct shadow_walsender *ws)
{
    XLogRecPtr sent = 0;
    for (const struct walsender_conn *c = ws->conns; c != NULL; c = c->next)
        if (c->streaming)
            sent = MAX(sent, c->sent);
    return sent;
}

XLogRecPtr shadow_walsender_sent(struct shadow_walsender *ws)
{
    pthread_mutex_lock(&ws->lock);
    XLogRecPtr lsn = furthest_sent(ws);
    pthread_mutex_unlock(&ws->lock);
    return lsn;
}

unsigned shadow_walsender_connections(struct shadow_walsender *ws)
{
    pthread_mutex_lock(&ws->lock);
    unsigned n = ws->nstreaming;
    pthread_mutex_unlock(&ws->lock);
    return n;
}

/* With the lock held. False once the deadline has passed. */
static bool wait_moved(struct shadow_walsender *ws, uint64_t deadline_ns)
{
    struct timespec t = {(time_t)(deadline_ns / 1000000000u), (long)(deadline_ns % 1000000000u)};
    if (deadline_ns == UINT64_MAX)
        return pthread_cond_wait(&ws->moved, &ws->lock) == 0;
    return pthread_cond_timedwait(&ws->moved, &ws->lock, &t) != ETIMEDOUT;
}

static enum status too_late(const struct shadow_walsender *ws, XLogRecPtr lsn, struct error *err)
{
    if (ws->nstreaming == 0)
        return error_lsn(err, ERR_RETRY, lsn,
                         "the shadow is not connected; it had replayed through " LSN_FMT,
                         LSN_ARGS(ws->applied));
    return error_lsn(err, ERR_RETRY, lsn,
                     "the shadow has replayed through " LSN_FMT " only (sent " LSN_FMT ")",
                     LSN_ARGS(ws->applied), LSN_ARGS(furthest_sent(ws)));
}

enum status shadow_walsender_wait_applied(struct shadow_walsender *ws, XLogRecPtr lsn,
                                          uint64_t deadline_ns, struct error *err)
{
    enum status st = OK;
    pthread_mutex_lock(&ws->lock);
    ws->waiters++;
    if (ws->applied < lsn && lsn > atomic_load(&ws->wanted)) {
        atomic_store(&ws->wanted, lsn);
        /* a sender that has sent it already sleeps in the archive */
        if (furthest_sent(ws) >= lsn)
            wal_archive_wake(ws->options.archive);
    }
    while (ws->applied < lsn && !ws->cancelled && st == OK)
        if (!wait_moved(ws, deadline_ns) && ws->applied < lsn)
            st = too_late(ws, lsn, err);
    if (st == OK && ws->applied < lsn)
        st = error_set(err, ERR_CANCELLED, "stopping");
    if (--ws->waiters == 0)
        atomic_store(&ws->wanted, 0);
    pthread_mutex_unlock(&ws->lock);
    return st;
}

void shadow_walsender_rows_first(struct shadow_walsender *ws, uint64_t until_ns)
{
    atomic_store(&ws->rows_first_until, until_ns);
}

void shadow_walsender_wake(struct shadow_walsender *ws)
{
    pthread_mutex_lock(&ws->lock);
    ws->cancelled = true;
    pthread_cond_broadcast(&ws->moved);
    pthread_mutex_unlock(&ws->lock);
}
