/* The control socket and the HTTP endpoint. */
#include "base/file.h"
#include "base/metrics.h"
#include "daemon/reload.h"
#include "daemon/resync.h"
#include "daemon/state.h"

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

struct wait_call {
    struct ack *ack;
    atomic_bool cancelled;
};

static void wait_cancel(void *arg)
{
    struct wait_call *call = arg;
    atomic_store(&call->cancelled, true);
    ack_wake(call->ack);
}

static enum status current_lsn(struct daemon *d, XLogRecPtr *ret, struct error *err)
{
    struct source_sql *sql = NULL;
    TRY(source_sql_open(d->config->source.conninfo, APPLICATION_NAME, &sql, err));
    enum status st = source_sql_insert_lsn(sql, ret, err);
    source_sql_close(sql);
    return st;
}

static void stopped_tables(void *ctx, const struct table_entry *e)
{
    json_t *list = ctx;
    if (atomic_load(&e->life) == TABLE_LIFE_STOPPED)
        json_array_append_new(list, json_pack("{s:s, s:s}", "name", e->name, "reason",
                                              e->reason == NULL ? "" : e->reason));
}

static enum status wait_all(struct daemon *d, const struct control_request *request, XLogRecPtr lsn,
                            uint64_t deadline, struct error *err)
{
    struct destination **destinations;
    size_t n = pipeline_destinations(d->pipeline, &destinations);
    for (size_t i = 0; i < n; i++) {
        struct wait_call call = {.ack = destinations[i]->ack};
        control_request_on_cancel(request, wait_cancel, &call);
        enum status st = ack_wait_lsn(destinations[i]->ack, lsn, deadline, &call.cancelled, err);
        control_request_on_cancel(request, NULL, NULL);
        TRY(st);
    }
    return OK;
}

static enum status verb_wait(void *ctx, const struct control_request *request, json_t **ret_result,
                             struct error *err)
{
    struct daemon *d = ctx;
    const char *text = json_string_value(json_object_get(request->body, "lsn"));
    const json_t *timeout = json_object_get(request->body, "timeout_ms");
    uint64_t deadline = UINT64_MAX;
    XLogRecPtr lsn;
    if (json_is_integer(timeout))
        deadline = clock_now_ns() + (uint64_t)MAX(json_integer_value(timeout), 0) * 1000000u;
    if (text != NULL && !lsn_parse(text, &lsn))
        return error_set(err, ERR_CONFIG, "%.40s is not an LSN", text);
    /* during a load nothing is acknowledged yet: wait for the stream itself */
    while (atomic_load(&d->state) < DAEMON_STREAMING) {
        if (control_request_is_cancelled(request) || clock_now_ns() > deadline)
            break;
        TRY(daemon_pause(d, 50, err));
    }
    if (text == NULL)
        TRY(current_lsn(d, &lsn, err));
    enum status st = ERR_RETRY;
    if (atomic_load(&d->state) >= DAEMON_STREAMING && d->pipeline != NULL)
        st = wait_all(d, request, lsn_before_page_header(lsn, d->source.segment_bytes), deadline,
                      err);
    if (st != OK && st != ERR_RETRY)
        return st;
    char lsn_text[LSN_TEXT_MAX];
    snprintf(lsn_text, sizeof lsn_text, LSN_FMT, LSN_ARGS(lsn));
    json_t *stopped = json_array();
    if (d->pipeline != NULL && pipeline_tables(d->pipeline) != NULL)
        tables_each(pipeline_tables(d->pipeline), stopped_tables, stopped);
    *ret_result =
        json_pack("{s:b, s:s, s:o}", "reached", st == OK, "lsn", lsn_text, "stopped", stopped);
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
    return wait_all(d, request, pump_received_lsn(d->pump), UINT64_MAX, err);
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
        {"status", verb_status},
        {"wait", verb_wait},
        {"pause", verb_pause},
        {"resume", verb_resume},
        {"reload", daemon_reload_verb},
        {"resync", daemon_resync_verb},
        {"stop", verb_stop},
        {"source", verb_source},
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
