/* The server: one thread accepts, watches for clients that hang up and joins finished ones; each
 * client has a thread that reads requests and runs handlers. */
#include "ops/control.h"

#include "base/log.h"
#include "base/queue.h"
#include "base/socket.h"
#include "ops/control_request.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define WRITE_TIMEOUT_NS UINT64_C(30000000000)
#define ACCEPT_PAUSE_MS 100

struct control_client {
    struct control_server *server;
    struct control_client *next;
    struct stream stream;
    pthread_t thread;
    bool done;      /* its thread is about to end */
    bool cancelled; /* hung up, or the server stops */
    void (*cancel_fn)(void *arg);
    void *cancel_arg;
};

struct control_server {
    pthread_mutex_t
        lock; /* guards clients, stopping, and every client's done, cancelled, cancel_fn */
    struct control_client *clients;
    size_t nclients;
    bool stopping;
    int listen_fd, wake_fd;
    char *path;
    struct control_verb *verbs;
    size_t nverbs;
    void *ctx;
    pthread_t thread;
};

static void wake(struct control_server *s)
{
    uint64_t one = 1;
    ssize_t n = write(s->wake_fd, &one, sizeof one);
    (void)n; /* a full counter wakes as well */
}

static const struct control_verb *find_verb(const struct control_server *s, const char *name)
{
    for (size_t i = 0; i < s->nverbs; i++) {
        if (strcmp(s->verbs[i].name, name) == 0)
            return &s->verbs[i];
    }
    return NULL;
}

/* One request line to one reply line; malloc'd. */
static char *answer(struct control_client *c, const char *line, size_t len)
{
    struct error err = {0};
    json_t *body = NULL, *result = NULL;
    const char *name;
    enum status st = control_request_parse(line, len, &body, &name, &err);
    if (st == OK) {
        const struct control_verb *verb = find_verb(c->server, name);
        struct control_request request = {name, body, c};
        st = verb != NULL ? verb->handler(c->server->ctx, &request, &result, &err)
                          : error_set(&err, ERR_DATA, "unknown verb \"%s\"", name);
        control_request_on_cancel(&request, NULL, NULL);
    }
    char *reply = control_reply_render(st, result, &err);
    json_decref(body);
    return reply;
}

static enum status reply(struct control_client *c, const char *text, struct error *err)
{
    return stream_write(&c->stream, text, strlen(text), clock_now_ns() + WRITE_TIMEOUT_NS, err);
}

/* Lines until the client leaves; a line too long ends the connection with an error. */
static enum status serve(struct control_client *c, char *line, struct error *err)
{
    size_t have = 0;
    for (;;) {
        char *newline = memchr(line, '\n', have);
        if (newline != NULL) {
            size_t len = (size_t)(newline - line);
            CLEANUP_FREE char *text = answer(c, line, len);
            TRY(reply(c, text, err));
            have -= len + 1;
            memmove(line, newline + 1, have);
            continue;
        }
        if (have == CONTROL_REQUEST_MAX) {
            error_set(err, ERR_DATA, "a request is longer than %d bytes", CONTROL_REQUEST_MAX);
            CLEANUP_FREE char *text = control_reply_render(ERR_DATA, NULL, err);
            return reply(c, text, err);
        }
        size_t n;
        TRY(stream_read(&c->stream, line + have, CONTROL_REQUEST_MAX - have, STREAM_NO_DEADLINE, &n,
                        err));
        if (n == 0)
            return OK;
        have += n;
    }
}

static void *client_main(void *arg)
{
    struct control_client *c = arg;
    struct control_server *s = c->server;
    struct error err = {0};
    char *line = xmalloc(CONTROL_REQUEST_MAX);
    if (serve(c, line, &err) != OK && err.kind != ERR_CANCELLED)
        log_debug("msg=\"control connection ended\" error=%s", LOG_Q(err.message));
    free(line);
    pthread_mutex_lock(&s->lock);
    c->done = true;
    pthread_mutex_unlock(&s->lock);
    wake(s);
    return NULL;
}

/* With the lock held. */
static void cancel(struct control_client *c)
{
    if (c->cancelled)
        return;
    c->cancelled = true;
    if (c->cancel_fn != NULL)
        c->cancel_fn(c->cancel_arg);
    c->cancel_fn = NULL;
}

void control_request_on_cancel(const struct control_request *request, void (*fn)(void *arg),
                               void *arg)
{
    struct control_client *c = request->client;
    pthread_mutex_lock(&c->server->lock);
    c->cancel_fn = c->cancelled ? NULL : fn;
    c->cancel_arg = arg;
    if (fn != NULL && c->cancelled)
        fn(arg);
    pthread_mutex_unlock(&c->server->lock);
}

bool control_request_is_cancelled(const struct control_request *request)
{
    struct control_client *c = request->client;
    pthread_mutex_lock(&c->server->lock);
    bool cancelled = c->cancelled;
    pthread_mutex_unlock(&c->server->lock);
    return cancelled;
}

/* false: the process is out of descriptors, try later. */
static bool accept_one(struct control_server *s)
{
    int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS;
    struct control_client *c = xcalloc(1, sizeof *c);
    c->server = s;
    stream_init(&c->stream, fd, "control client");
    pthread_mutex_lock(&s->lock);
    bool room = s->nclients < CONTROL_CLIENTS_MAX;
    if (room && pthread_create(&c->thread, NULL, client_main, c) == 0) {
        c->next = s->clients;
        s->clients = c;
        s->nclients++;
        c = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    if (c != NULL) { /* one attempt to say so; a client that does not read is not waited for */
        struct error err;
        error_set(&err, ERR_RETRY, "more than %d control connections", CONTROL_CLIENTS_MAX);
        CLEANUP_FREE char *text = control_reply_render(ERR_RETRY, NULL, &err);
        ssize_t n = send(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)n;
        stream_close(&c->stream);
        free(c);
    }
    return true;
}

/* Takes finished clients out of the list. */
static void reap(struct control_server *s)
{
    struct control_client *done = NULL;
    pthread_mutex_lock(&s->lock);
    for (struct control_client **at = &s->clients; *at != NULL;) {
        struct control_client *c = *at;
        if (!c->done) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        c->next = done;
        done = c;
        s->nclients--;
    }
    pthread_mutex_unlock(&s->lock);
    while (done != NULL) {
        struct control_client *next = done->next;
        pthread_join(done->thread, NULL);
        stream_close(&done->stream);
        free(done);
        done = next;
    }
}

/* Descriptors to poll: ours, then one for each client that has not hung up. */
static nfds_t fill_poll(struct control_server *s, struct pollfd *fds,
                        struct control_client **clients, bool accepting)
{
    nfds_t n = 2;
    fds[0] = (struct pollfd){s->wake_fd, POLLIN, 0};
    fds[1] = (struct pollfd){accepting ? s->listen_fd : -1, POLLIN, 0};
    pthread_mutex_lock(&s->lock);
    for (struct control_client *c = s->clients; c != NULL; c = c->next) {
        if (c->cancelled || c->done)
            continue;
        clients[n] = c;
        /* hang-ups only: a client may close its sending side and still wait for the reply */
        fds[n++] = (struct pollfd){c->stream.fd, 0, 0};
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}

static void *server_main(void *arg)
{
    struct control_server *s = arg;
    struct pollfd fds[CONTROL_CLIENTS_MAX + 2];
    struct control_client *clients[CONTROL_CLIENTS_MAX + 2];
    bool accepting = true;
    for (;;) {
        nfds_t n = fill_poll(s, fds, clients, accepting);
        int ready = poll(fds, n, accepting ? -1 : ACCEPT_PAUSE_MS);
        accepting = true;
        if (ready <= 0)
            continue;
        if (fds[0].revents != 0) {
            uint64_t count;
            ssize_t got = read(s->wake_fd, &count, sizeof count);
            (void)got;
        }
        pthread_mutex_lock(&s->lock);
        bool stopping = s->stopping;
        for (nfds_t i = 2; i < n; i++) {
            if (fds[i].revents & (POLLHUP | POLLERR))
                cancel(clients[i]);
        }
        pthread_mutex_unlock(&s->lock);
        if (stopping)
            return NULL;
        reap(s);
        if (fds[1].revents != 0)
            accepting = accept_one(s);
    }
}

enum status control_server_start(const char *path, const struct control_verb *verbs, size_t nverbs,
                                 void *ctx, struct control_server **ret, struct error *err)
{
    struct socket_address address = {.is_unix = true};
    if (strlen(path) >= sizeof address.path)
        return error_set(err, ERR_CONFIG, "the state directory's path is too long for a socket: %s",
                         path);
    snprintf(address.path, sizeof address.path, "%s", path);
    int fd, wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd < 0)
        return error_sys(err, ERR_RETRY, "cannot make an event descriptor");
    enum status st = socket_listen(&address, &fd, NULL, err);
    if (st != OK) {
        close(wake_fd);
        return st;
    }
    struct control_server *s = xcalloc(1, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    s->listen_fd = fd;
    s->wake_fd = wake_fd;
    s->path = xstrdup(path);
    s->verbs = xcalloc(nverbs, sizeof *verbs);
    memcpy(s->verbs, verbs, nverbs * sizeof *verbs);
    s->nverbs = nverbs;
    s->ctx = ctx;
    CHECK(pthread_create(&s->thread, NULL, server_main, s) == 0);
    *ret = s;
    return OK;
}

void control_server_stop(struct control_server *s)
{
    if (s == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_mutex_unlock(&s->lock);
    wake(s);
    pthread_join(s->thread, NULL);
    unlink(s->path);
    close(s->listen_fd);
    pthread_mutex_lock(&s->lock);
    for (struct control_client *c = s->clients; c != NULL; c = c->next) {
        cancel(c);
        stream_cancel(&c->stream);
    }
    pthread_mutex_unlock(&s->lock);
    while (s->clients != NULL) {
        struct control_client *c = s->clients;
        pthread_join(c->thread, NULL);
        s->clients = c->next;
        stream_close(&c->stream);
        free(c);
    }
    close(s->wake_fd);
    pthread_mutex_destroy(&s->lock);
    free(s->path);
    free(s->verbs);
    free(s);
}
