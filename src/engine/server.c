#include "engine/server.h"

#include "base/file.h"
#include "base/log.h"
#include "base/queue.h"
#include "base/socket.h"
#include "engine/http.h"
#include "engine/session.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#define SERVER_INSERT_GRACE_S 5u /* for inserts under way at shutdown */
#define SERVER_LEAVE_GRACE_S 5u  /* for the rest to notice */
#define SERVER_LISTENERS_MAX (2 * ENGINE_ADDRESSES_MAX)
#define CODE_TOO_MANY_SESSIONS 202

struct server;

struct listener {
    struct server *server;
    struct socket_address address;
    int fd;
    uint16_t port;
    bool read_only;
    bool started;
    pthread_t thread;
};

struct server {
    struct engine_shared shared;
    struct engine_fault fault;
    struct listener listeners[SERVER_LISTENERS_MAX];
    unsigned nlisteners;
    struct engine_http *http[ENGINE_ADDRESSES_MAX];
    unsigned nhttp;
    int wake_fd; /* readable: stop accepting */
    unsigned sessions_max;
    pthread_mutex_t lock; /* guards all that follows */
    pthread_cond_t ended; /* a session has left; CLOCK_MONOTONIC */
    struct server_session {
        struct engine_session session;
        struct server *server;
        struct server_session *next, **at;
    } * sessions;
    unsigned counts[2]; /* by read_only: readers cannot lock the daemon out */
};

/* Takes a session out of the list, then frees it, then counts it as gone. */
static void session_end(struct server_session *e)
{
    struct server *srv = e->server;
    bool read_only = e->session.read_only;
    /* out of the list first: shutdown must not touch a stream that is being closed */
    pthread_mutex_lock(&srv->lock);
    *e->at = e->next;
    if (e->next != NULL)
        e->next->at = e->at;
    pthread_mutex_unlock(&srv->lock);
    engine_session_fini(&e->session);
    free(e);
    pthread_mutex_lock(&srv->lock);
    srv->counts[read_only]--;
    pthread_cond_broadcast(&srv->ended);
    pthread_mutex_unlock(&srv->lock);
}

static void *session_thread(void *arg)
{
    struct server_session *e = arg;
    engine_session_run(&e->session);
    session_end(e);
    return NULL;
}

/* A client too many is told so: its hello is not even read. */
static void client_refuse(struct stream *stream)
{
    CLEANUP_BUF struct buf out = {0};
    struct error err;
    packet_put_exception(&out, CODE_TOO_MANY_SESSIONS, str_of("DB::Exception"),
                         str_of("DB::Exception: Too many connections to this engine"), str_of(""));
    if (stream_write(stream, out.data, out.len, clock_now_ns() + 1000000000u, &err) != OK)
        log_debug("msg=\"client gone\" error=%s", LOG_Q(err.message));
    log_warn("msg=\"too many connections\" client=%s", LOG_Q(stream->name));
    stream_close(stream);
}

static void client_start(struct listener *l, struct stream *stream)
{
    struct server *srv = l->server;
    pthread_t thread;
    pthread_attr_t attr;
    struct server_session *e = xcalloc(1, sizeof *e);
    pthread_mutex_lock(&srv->lock);
    bool full = srv->counts[l->read_only] >= srv->sessions_max;
    if (!full) {
        srv->counts[l->read_only]++;
        e->next = srv->sessions;
        e->at = &srv->sessions;
        if (e->next != NULL)
            e->next->at = &e->next;
        srv->sessions = e;
        e->server = srv;
        e->session.shared = &srv->shared;
        e->session.read_only = l->read_only;
        engine_peer_init(&e->session.peer, stream, &srv->fault);
    }
    pthread_mutex_unlock(&srv->lock);
    if (full) {
        free(e);
        client_refuse(stream);
        return;
    }
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int rc = pthread_create(&thread, &attr, session_thread, e);
    pthread_attr_destroy(&attr);
    if (rc != 0) {
        log_error("msg=\"no thread for a client\" error=%s", LOG_Q(strerror(rc)));
        session_end(e);
    }
}

static void *listener_thread(void *arg)
{
    struct listener *l = arg;
    for (;;) {
        struct stream stream;
        struct error err;
        enum status status = socket_accept(l->fd, l->server->wake_fd, &stream, &err);
        if (status == ERR_CANCELLED)
            return NULL;
        if (status == OK) {
            client_start(l, &stream);
            continue;
        }
        /* out of descriptors or memory: others must leave first */
        log_error("msg=\"cannot accept\" error=%s", LOG_Q(err.message));
        struct pollfd wake = {.fd = l->server->wake_fd, .events = POLLIN};
        if (poll(&wake, 1, 1000) > 0)
            return NULL;
    }
}

static enum status listener_open(struct server *srv, const char *text, bool read_only,
                                 struct error *err)
{
    struct listener *l = &srv->listeners[srv->nlisteners];
    *l = (struct listener){.server = srv, .fd = -1, .read_only = read_only};
    TRY(socket_address_parse(text, &l->address, err));
    TRY(socket_listen(&l->address, &l->fd, &l->port, err));
    srv->nlisteners++;
    return OK;
}

static enum status server_open(struct server *srv, const struct engine_options *o,
                               struct error *err)
{
    for (unsigned i = 0; i < o->nlisten; i++)
        TRY(listener_open(srv, o->listen[i], false, err));
    for (unsigned i = 0; i < o->nread_only; i++)
        TRY(listener_open(srv, o->read_only_listen[i], true, err));
    for (unsigned i = 0; i < o->nhttp; i++) {
        TRY(engine_http_start(&srv->shared, o->http[i], &srv->http[srv->nhttp], err));
        srv->nhttp++;
    }
    for (unsigned i = 0; i < srv->nlisteners; i++) {
        struct listener *l = &srv->listeners[i];
        if (pthread_create(&l->thread, NULL, listener_thread, l) != 0)
            return error_set(err, ERR_RETRY, "no thread for a listener");
        l->started = true;
    }
    return OK;
}

/* One line for whoever waits for the engine, with the ports that were chosen. */
static void ready_print(const struct server *srv, const struct engine_options *o)
{
    printf("ready");
    for (unsigned i = 0; i < srv->nlisteners; i++) {
        const struct listener *l = &srv->listeners[i];
        const char *key = l->read_only ? "read-only-listen" : "listen";
        if (l->address.is_unix)
            printf(" %s=unix:%s", key, l->address.path);
        else
            printf(" %s=tcp:%s:%u", key, l->address.host, l->port);
    }
    for (unsigned i = 0; i < srv->nhttp; i++)
        printf(" http=%s", engine_http_address(srv->http[i]));
    printf("\n");
    fflush(stdout);
    log_info("msg=\"engine ready\" version=%s path=%s", chdb_engine_version(srv->shared.chdb),
             LOG_Q(o->path));
}

/* Waits for a signal or the end of the control pipe. */
static void server_wait(int signal_fd, int control_fd)
{
    for (;;) {
        char byte[64];
        struct pollfd p[2] = {{.fd = signal_fd, .events = POLLIN},
                              {.fd = control_fd, .events = POLLIN}};
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return;
        if (p[0].revents != 0) {
            log_info("msg=\"asked to stop\" by=signal");
            return;
        }
        if (p[1].revents == 0)
            continue;
        ssize_t n = read(control_fd, byte, sizeof byte); /* bytes mean nothing */
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) {
            log_info("msg=\"asked to stop\" by=\"end of the control pipe\"");
            return;
        }
    }
}

/* Cuts sessions off, those with an INSERT under way only if `all`. Under the lock. */
static void sessions_cancel(struct server *srv, bool all)
{
    for (struct server_session *e = srv->sessions; e != NULL; e = e->next)
        if (all || atomic_load(&e->session.state) != ENGINE_SESSION_INSERT)
            stream_cancel(&e->session.peer.stream);
}

/* True once no session is left, false after so many seconds. Under the lock. */
static bool sessions_wait(struct server *srv, unsigned seconds, bool inserts_only)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds;
    for (;;) {
        bool busy = false;
        for (struct server_session *e = srv->sessions; e != NULL; e = e->next)
            busy |= !inserts_only || atomic_load(&e->session.state) == ENGINE_SESSION_INSERT;
        if (!busy && (inserts_only || srv->counts[0] + srv->counts[1] == 0))
            return true;
        if (pthread_cond_timedwait(&srv->ended, &srv->lock, &until) != 0)
            return false;
    }
}

/* Returns whether everything has ended, so that the engine can be closed. */
static bool server_close(struct server *srv)
{
    uint64_t one = 1;
    bool http_ended = true;
    atomic_store(&srv->shared.stopping, true);
    if (write(srv->wake_fd, &one, sizeof one) != sizeof one)
        log_error("msg=\"cannot wake the listeners\"");
    for (unsigned i = 0; i < srv->nlisteners; i++) {
        struct listener *l = &srv->listeners[i];
        if (l->started)
            pthread_join(l->thread, NULL);
        close(l->fd);
        if (l->address.is_unix)
            unlink(l->address.path);
    }
    pthread_mutex_lock(&srv->lock);
    sessions_cancel(srv, false);
    bool ended = sessions_wait(srv, SERVER_INSERT_GRACE_S, true);
    if (!ended)
        log_warn("msg=\"inserts did not end in time\" seconds=%u", SERVER_INSERT_GRACE_S);
    sessions_cancel(srv, true);
    ended = sessions_wait(srv, SERVER_LEAVE_GRACE_S, false);
    pthread_mutex_unlock(&srv->lock);
    for (unsigned i = 0; i < srv->nhttp; i++)
        http_ended &= engine_http_stop(srv->http[i]);
    return ended && http_ended;
}

static void server_init(struct server *srv, const struct engine_options *o)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&srv->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&srv->ended, &attr);
    pthread_condattr_destroy(&attr);
    srv->sessions_max = o->sessions_max > 0 ? o->sessions_max : ENGINE_SESSIONS_DEFAULT;
    srv->shared.user = o->user;
    srv->shared.password = o->password != NULL ? o->password : "";
    srv->shared.fault = &srv->fault;
}

static enum status server_start(struct server *srv, const struct engine_options *o,
                                struct error *err)
{
    struct chdb_options c = {o->libchdb, o->path, o->memory_max, o->lock_wait_s};
    struct chdb_session *session;
    TRY(engine_fault_parse(&srv->fault, getenv("WALSHADOW_TEST_ENGINE_FAULT"), err));
    TRY(engine_fault_parse(&srv->fault, o->fault, err));
    srv->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (srv->wake_fd < 0)
        return error_sys(err, ERR_RETRY, "eventfd");
    TRY(chdb_start(&c, &srv->shared.chdb, err));
    TRY(chdb_session_open(srv->shared.chdb, NULL, &session, err));
    enum status status = engine_settings_known_read(session, &srv->shared.settings, err);
    chdb_session_close(session);
    TRY(status);
    return server_open(srv, o, err);
}

enum status engine_serve(const struct engine_options *o, struct error *err)
{
    /* never freed: a session that does not end in time may still use it while the process leaves */
    struct server *srv = xcalloc(1, sizeof *srv);
    sigset_t signals;
    server_init(srv, o);
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before the library starts threads */
    sigdelset(&signals, SIGPIPE);
    int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
    if (signal_fd < 0)
        return error_sys(err, ERR_RETRY, "signalfd");
    enum status status = server_start(srv, o, err);
    if (status == OK) {
        ready_print(srv, o);
        server_wait(signal_fd, o->control_fd);
    }
    if (server_close(srv))
        chdb_stop(srv->shared.chdb);
    log_info("msg=\"engine stopped\"");
    return status;
}
