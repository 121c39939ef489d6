#include "engine/http.h"

#include "base/log.h"
#include "base/socket.h"
#include "engine/http_request.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define HTTP_STOP_GRACE_S 5

struct engine_http {
    struct engine_shared *shared;
    struct MHD_Daemon *daemon;
    struct socket_address address;
    char *name;
    pthread_mutex_t lock; /* guards running */
    pthread_cond_t ended; /* CLOCK_MONOTONIC */
    unsigned running;
};

static void running_add(struct engine_http *http, int n)
{
    pthread_mutex_lock(&http->lock);
    http->running += (unsigned)n;
    pthread_cond_broadcast(&http->ended);
    pthread_mutex_unlock(&http->lock);
}

/* Paths with a fixed answer; NULL for the one that runs statements. */
static const char *path_text(const char *url, unsigned *ret_status)
{
    *ret_status = 200;
    if (strcmp(url, "/ping") == 0 || strcmp(url, "/replicas_status") == 0)
        return "Ok.\n";
    if (strcmp(url, "/") == 0)
        return NULL;
    *ret_status = 404;
    return "There is no such page. Statements go to /?query=…, /ping answers Ok.\n";
}

static enum MHD_Result request_end(struct http_request *r, const char *url, const char *method)
{
    unsigned status;
    const char *text = path_text(url, &status);
    if (strcmp(method, "GET") != 0 && strcmp(method, "POST") != 0 && strcmp(method, "HEAD") != 0)
        return http_text_answer(r->connection, 501, 48, "Only GET, HEAD and POST are served\n");
    if (text != NULL)
        return http_text_answer(r->connection, status, 0, text);
    if (r->sql.len == 0)
        return http_text_answer(r->connection, 200, 0, "Ok.\n");
    return http_request_answer(r);
}

static enum MHD_Result request_handle(void *ctx, struct MHD_Connection *connection, const char *url,
                                      const char *method, const char *version, const char *data,
                                      size_t *data_len, void **request)
{
    struct engine_http *http = ctx;
    struct http_request *r = *request;
    (void)version;
    if (r == NULL) {
        r = http_request_new(http->shared, connection);
        *request = r;
        running_add(http, 1);
        http_request_read(r);
        return MHD_YES;
    }
    if (*data_len > 0) {
        /* what is too much is read and dropped, so that the client can read the answer */
        if (r->sql.len + *data_len > ENGINE_SQL_MAX)
            r->too_large = true;
        else
            buf_put(&r->sql, data, *data_len);
        *data_len = 0;
        return MHD_YES;
    }
    return request_end(r, url, method);
}

static void request_completed(void *ctx, struct MHD_Connection *connection, void **request,
                              enum MHD_RequestTerminationCode why)
{
    struct engine_http *http = ctx;
    (void)connection;
    (void)why;
    if (*request == NULL)
        return;
    http_request_free(*request);
    *request = NULL;
    running_add(http, -1);
}

__attribute__((format(printf, 2, 0))) static void library_log(void *ctx, const char *fmt,
                                                              va_list args)
{
    char text[300];
    (void)ctx;
    vsnprintf(text, sizeof text, fmt, args);
    log_debug("msg=http text=%s", LOG_Q(text));
}

static enum status daemon_start(struct engine_http *http, int fd, struct error *err)
{
    http->daemon = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
            MHD_USE_ERROR_LOG,
        0, NULL, NULL, request_handle, http, MHD_OPTION_EXTERNAL_LOGGER, library_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, ENGINE_HTTP_CONNECTIONS_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, ENGINE_HTTP_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)1 << 20, MHD_OPTION_NOTIFY_COMPLETED, request_completed, http, MHD_OPTION_END);
    if (http->daemon == NULL)
        return error_set(err, ERR_CONFIG, "the HTTP interface does not start on %s", http->name);
    return OK;
}

static void http_free(struct engine_http *http)
{
    if (http->address.is_unix)
        unlink(http->address.path);
    pthread_mutex_destroy(&http->lock);
    pthread_cond_destroy(&http->ended);
    free(http->name);
    free(http);
}

enum status engine_http_start(struct engine_shared *shared, const char *address,
                              struct engine_http **ret_http, struct error *err)
{
    struct socket_address a;
    int fd;
    uint16_t port;
    pthread_condattr_t attr;
    TRY(socket_address_parse(address, &a, err));
    TRY(socket_listen(&a, &fd, &port, err));
    struct engine_http *http = xcalloc(1, sizeof *http);
    http->shared = shared;
    http->address = a;
    http->name = a.is_unix ? xasprintf("unix:%s", a.path) : xasprintf("%s:%u", a.host, port);
    pthread_mutex_init(&http->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&http->ended, &attr);
    pthread_condattr_destroy(&attr);
    enum status status = daemon_start(http, fd, err);
    if (status != OK) {
        close(fd);
        http_free(http);
        return status;
    }
    *ret_http = http;
    return OK;
}

const char *engine_http_address(const struct engine_http *http)
{
    return http->name;
}

bool engine_http_stop(struct engine_http *http)
{
    struct timespec until;
    int fd = MHD_quiesce_daemon(http->daemon);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += HTTP_STOP_GRACE_S;
    pthread_mutex_lock(&http->lock);
    int rc = 0;
    while (http->running > 0 && rc == 0)
        rc = pthread_cond_timedwait(&http->ended, &http->lock, &until);
    bool ended = http->running == 0;
    pthread_mutex_unlock(&http->lock);
    if (fd >= 0)
        close(fd);
    if (!ended) {
        if (http->address.is_unix)
            unlink(http->address.path);
        return false;
    }
    MHD_stop_daemon(http->daemon);
    http_free(http);
    return true;
}
