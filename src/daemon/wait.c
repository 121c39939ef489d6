#include "daemon/wait.h"
#include "daemon/state.h"

#include <stdlib.h>
#include <string.h>

#define POLL_MS 20u

struct wait {
    struct daemon *d;
    const struct control_request *request;
    XLogRecPtr lsn;
    uint64_t deadline;
    const json_t *tables;               /* only their copies matter; NULL: of all */
    const struct table_entry **copying; /* not done yet */
    size_t ncopying, cap;
};

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

static bool is_over(const struct wait *w)
{
    return control_request_is_cancelled(w->request) || clock_now_ns() > w->deadline;
}

/* During a load nothing is acknowledged yet. */
static enum status wait_streaming(struct wait *w, bool *ret_reached, struct error *err)
{
    while (atomic_load(&w->d->state) < DAEMON_STREAMING && !is_over(w))
        TRY(daemon_pause(w->d, 50, err));
    *ret_reached = atomic_load(&w->d->state) >= DAEMON_STREAMING && w->d->pipeline != NULL;
    return OK;
}

enum status daemon_wait_acks(struct daemon *d, const struct control_request *request,
                             XLogRecPtr lsn, uint64_t deadline, struct error *err)
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

static enum status wait_acks(struct wait *w, bool *ret_reached, struct error *err)
{
    XLogRecPtr lsn = lsn_before_page_header(w->lsn, w->d->source.segment_bytes);
    enum status st = daemon_wait_acks(w->d, w->request, lsn, w->deadline, err);
    *ret_reached = st == OK;
    return st == ERR_RETRY ? OK : st;
}

/* What its target has is from before. A copy that ended holds all up to where it was taken; that it
 * is copied once more is of no matter. */
static bool is_behind(const struct wait *w, const struct table_entry *e)
{
    return atomic_load(&e->life) == TABLE_LIFE_RESYNCING && atomic_load(&e->covered) < w->lsn;
}

/* By schema.table, or table alone. */
static bool is_asked_for(const struct wait *w, const char *name)
{
    size_t i;
    const json_t *asked;
    const char *dot = strchr(name, '.');
    if (w->tables == NULL)
        return true;
    json_array_foreach(w->tables, i, asked)
    {
        const char *text = json_string_value(asked);
        if (text != NULL &&
            (strcmp(text, name) == 0 || (dot != NULL && strcmp(text, dot + 1) == 0)))
            return true;
    }
    return false;
}

static void copying_tables(void *ctx, const struct table_entry *e)
{
    struct wait *w = ctx;
    if (!is_behind(w, e) || !is_asked_for(w, e->name))
        return;
    if (w->ncopying == w->cap) {
        w->cap = MAX(2 * w->cap, 16u);
        w->copying = xrealloc(w->copying, w->cap * sizeof *w->copying);
    }
    w->copying[w->ncopying++] = e;
}

/* Those that were copied when everything had been acknowledged, each until it was done once: where
 * one DDL follows the other there may never be a moment without a copy. */
static enum status wait_copies(struct wait *w, bool *ret_reached, struct error *err)
{
    tables_each(pipeline_tables(w->d->pipeline), copying_tables, w);
    for (;;) {
        size_t left = 0;
        for (size_t i = 0; i < w->ncopying; i++)
            if (is_behind(w, w->copying[i]))
                w->copying[left++] = w->copying[i];
        w->ncopying = left;
        *ret_reached = left == 0;
        if (left == 0 || is_over(w))
            return OK;
        TRY(daemon_pause(w->d, POLL_MS, err));
    }
}

static json_t *answer(const struct wait *w, bool reached)
{
    char lsn[LSN_TEXT_MAX];
    json_t *stopped = json_array(), *copying = json_array();
    snprintf(lsn, sizeof lsn, LSN_FMT, LSN_ARGS(w->lsn));
    if (w->d->pipeline != NULL && pipeline_tables(w->d->pipeline) != NULL)
        tables_each(pipeline_tables(w->d->pipeline), stopped_tables, stopped);
    for (size_t i = 0; i < w->ncopying; i++)
        json_array_append_new(copying, json_string(w->copying[i]->name));
    return json_pack("{s:b, s:s, s:o, s:o}", "reached", reached, "lsn", lsn, "stopped", stopped,
                     "copying", copying);
}

enum status daemon_wait_verb(void *ctx, const struct control_request *request, json_t **ret_result,
                             struct error *err)
{
    const char *text = json_string_value(json_object_get(request->body, "lsn"));
    const json_t *timeout = json_object_get(request->body, "timeout_ms");
    struct wait w = {.d = ctx,
                     .request = request,
                     .deadline = UINT64_MAX,
                     .tables = json_object_get(request->body, "tables")};
    bool reached;
    if (json_is_integer(timeout))
        w.deadline = clock_now_ns() + (uint64_t)MAX(json_integer_value(timeout), 0) * 1000000u;
    if (text != NULL && !lsn_parse(text, &w.lsn))
        return error_set(err, ERR_CONFIG, "%.40s is not an LSN", text);
    TRY(wait_streaming(&w, &reached, err));
    if (text == NULL)
        TRY(current_lsn(w.d, &w.lsn, err));
    if (reached)
        TRY(wait_acks(&w, &reached, err));
    enum status st = OK;
    if (reached && json_is_true(json_object_get(request->body, "copies")))
        st = wait_copies(&w, &reached, err);
    if (st == OK)
        *ret_result = answer(&w, reached);
    free(w.copying);
    return st;
}
