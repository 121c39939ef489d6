/* The control socket and the HTTP endpoint. */
#include "base/file.h"
#include "base/metrics.h"
#include "daemon/reload.h"
#include "daemon/resync.h"
#include "daemon/state.h"
#include "daemon/wait.h"

#include <string.h>
#include <unistd.h>

static json_t *status_json(void *ctx)
{
    struct status_report r = {0};
    daemon_report_fill(ctx, &r);
    json_t *json = status_report_json(&r);
    status_report_fini(&r);
    return json;
}

static enum status verb_status(void *ctx, const struct control_request *request,
                               json_t **ret_result, struct error *err)
{
    (void)request;
    (void)err;
    *ret_result = status_json(ctx);
    return OK;
}

static enum status verb_pause(void *ctx, const struct control_request *request, json_t **ret_result,
                              struct error *err)
{
    struct daemon *d = ctx;
    if (atomic_load(&d->state) == DAEMON_PAUSED)
        return error_set(err, ERR_CONFIG, "it is paused already");
    if (d->pump == NULL || atomic_load(&d->state) != DAEMON_STREAMING)
        return error_set(err, ERR_CONFIG, "not streaming");
    pump_pause(d->pump, true);
    daemon_set_state(d, DAEMON_PAUSED);
    (void)ret_result;
    while (!pump_is_parked(d->pump) && !control_request_is_cancelled(request))
        TRY(daemon_pause(d, 20, err));
    return daemon_wait_acks(d, request, pump_received_lsn(d->pump), UINT64_MAX, err);
}

static enum status verb_resume(void *ctx, const struct control_request *request,
                               json_t **ret_result, struct error *err)
{
    struct daemon *d = ctx;
    (void)request;
    (void)ret_result;
    if (d->pump == NULL || atomic_load(&d->state) != DAEMON_PAUSED)
        return error_set(err, ERR_CONFIG, "not paused");
    daemon_set_state(d, DAEMON_STREAMING);
    pump_pause(d->pump, false);
    return OK;
}

static enum status verb_stop(void *ctx, const struct control_request *request, json_t **ret_result,
                             struct error *err)
{
    struct daemon *d = ctx;
    uint64_t one = 1;
    (void)request;
    (void)ret_result;
    atomic_store(&d->finished, true);
    if (write(d->wake_fd, &one, sizeof one) < 0)
        return error_sys(err, ERR_BUG, "cannot wake the daemon");
    return OK;
}

/* For the verbs that read the source themselves: the socket is the owner's alone. */
static enum status verb_source(void *ctx, const struct control_request *request,
                               json_t **ret_result, struct error *err)
{
    struct daemon *d = ctx;
    (void)request;
    (void)err;
    *ret_result = json_pack("{s:s}", "conninfo", d->config->source.conninfo);
    return OK;
}

static void metrics(void *ctx, struct buf *out)
{
    (void)ctx;
    metrics_render(out);
}

static bool ready(void *ctx, char *why, size_t cap)
{
    struct daemon *d = ctx;
    enum daemon_state state = (enum daemon_state)atomic_load(&d->state);
    bool connected = d->pump != NULL && pump_connected(d->pump);
    if (state == DAEMON_STREAMING && connected)
        return true;
    snprintf(why, cap, "%s", state == DAEMON_STREAMING ? "reconnecting" : daemon_state_name(state));
    return false;
}

static bool engine_socket(void *ctx, char *path, size_t cap)
{
    struct daemon *d = ctx;
    if (!file_exists(d->paths.http_sock))
        return false;
    snprintf(path, cap, "%s", d->paths.http_sock);
    return true;
}

enum status daemon_serve_start(struct daemon *d, struct error *err)
{
    static const struct control_verb verbs[] = {
        {"status", verb_status}, {"wait", daemon_wait_verb},     {"pause", verb_pause},
        {"resume", verb_resume}, {"reload", daemon_reload_verb}, {"resync", daemon_resync_verb},
        {"stop", verb_stop},     {"source", verb_source},
    };
    const struct config *c = d->config;
    const struct http_options ho = {
        .host = c->http.host,
        .port = c->http.port,
        .user = c->http.user,
        .password = c->http.password,
        .ctx = d,
        .status = status_json,
        .metrics = metrics,
        .ready = ready,
        .engine_socket = engine_socket,
    };
    struct http_server *http = NULL;
    TRY(control_server_start(d->paths.control_sock, verbs, LENGTH(verbs), d, &d->control, err));
    TRY(http_server_start(&ho, &http, err));
    pthread_mutex_lock(&d->lock);
    d->http = http;
    pthread_mutex_unlock(&d->lock);
    return OK;
}

void daemon_serve_stop(struct daemon *d)
{
    pthread_mutex_lock(&d->lock);
    struct http_server *http = d->http;
    d->http = NULL;
    pthread_mutex_unlock(&d->lock);
    control_server_stop(d->control);
    http_server_stop(http);
    d->control = NULL;
}
