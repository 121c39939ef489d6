#include "daemon/reload.h"
#include "base/log.h"
#include "daemon/state.h"
#include "pipeline/remap.h"

#include <stdlib.h>

#define RETRY_MS 50u

struct reload {
    pthread_t thread;
    bool started;
    bool asked, settle;     /* under the daemon's status_lock */
    pthread_mutex_t lock;   /* one reload at a time; guards the snapshots */
    struct config **loaded; /* in the order of loading: plans and reports may still borrow from old
                               ones */
    size_t nloaded;
};

struct placed {
    struct daemon *d;
    struct reorder_remap remap;
};

static enum status remap_here(struct reorder *r, void *ctx, struct error *err)
{
    struct placed *p = ctx;
    if (p->d->load != NULL && load_undecided_count(p->d->load) > 0)
        return error_set(err, ERR_CONFIG,
                         "rows of the initial load still wait for transactions that were open "
                         "then: nothing is changed, ask again when they have ended");
    return reorder_remap(r, &p->remap, err);
}

/* The stream may not be where a change can be placed yet. */
static enum status remap(struct daemon *d, const struct control_request *request,
                         struct placed *call, struct error *err)
{
    enum status st;
    while ((st = pipeline_call(d->pipeline, remap_here, call, err)) == ERR_RETRY &&
           !call->remap.applied) {
        if (request != NULL && control_request_is_cancelled(request))
            return error_set(err, ERR_CANCELLED, "given up by the caller");
        TRY(daemon_pause(d, RETRY_MS, err));
    }
    if (st != OK && st != ERR_CANCELLED && call->remap.applied)
        fatal_raise(&d->fatal, err);
    return st;
}

static enum status check_ready(struct daemon *d, struct error *err)
{
    pthread_mutex_lock(&d->lock);
    bool streaming = d->pipeline != NULL && d->pump != NULL;
    pthread_mutex_unlock(&d->lock);
    int state = atomic_load(&d->state);
    if (!streaming || (state != DAEMON_STREAMING && state != DAEMON_PAUSED))
        return error_set(err, ERR_CONFIG, "not streaming yet: nothing is changed, ask again then");
    return OK;
}

/* Loaded and compared; in force once the reorder thread has taken it. */
static enum status reload(struct daemon *d, const struct control_request *request,
                          size_t *ret_ntables, struct error *err)
{
    struct reload *r = d->reload;
    struct config *fresh = NULL;
    char key[CONFIG_KEY_MAX];
    TRY(check_ready(d, err));
    TRY(config_load(d->options.config_args, &fresh, err));
    if (config_boot_difference(d->config, fresh, key)) {
        config_free(fresh);
        return error_set(err, ERR_CONFIG,
                         "%s cannot change while walshadow runs: nothing is changed; restart, or "
                         "give it its old value",
                         key);
    }
    struct placed call = {.d = d, .remap = {.config = fresh}};
    enum status st = remap(d, request, &call, err);
    if (!call.remap.applied) {
        config_free(fresh);
        return st;
    }
    r->loaded = xrealloc(r->loaded, (r->nloaded + 1) * sizeof(struct config *));
    r->loaded[r->nloaded++] = fresh;
    d->config = fresh;
    log_set_level((enum log_level)fresh->log.level);
    *ret_ntables = call.remap.ntables;
    return st;
}

static enum status reload_told(struct daemon *d, const struct control_request *request,
                               size_t *ret_ntables, struct error *err)
{
    pthread_mutex_lock(&d->reload->lock);
    enum status st = reload(d, request, ret_ntables, err);
    pthread_mutex_unlock(&d->reload->lock);
    if (st == OK)
        log_info("msg=\"configuration reloaded\" tables_changed=%zu", *ret_ntables);
    else if (st != ERR_CANCELLED)
        log_error("msg=\"configuration not reloaded\" error=%s", LOG_Q(err->message));
    return st;
}

/* What another configuration than the last run's asks of tables that were there, and what a kill
 * cut off in a reload: the same as a reload does. */
static void settle(struct daemon *d)
{
    struct error err;
    struct placed call = {.d = d};
    if (d->load != NULL && load_undecided_count(d->load) > 0)
        return; /* asked for again when nothing of the load waits any more */
    pthread_mutex_lock(&d->reload->lock);
    call.remap.config = d->config;
    enum status st = remap(d, NULL, &call, &err);
    pthread_mutex_unlock(&d->reload->lock);
    if (st == OK && call.remap.ntables > 0)
        log_info("msg=\"tables have the names of the configuration\" tables_changed=%zu",
                 call.remap.ntables);
    else if (st != OK && st != ERR_CANCELLED)
        log_warn("msg=\"tables keep the names they had\" error=%s", LOG_Q(err.message));
}

/* Sleeps until something is to be done; false on a stop. */
static bool wait_asked(struct daemon *d, bool *ret_settle, bool *ret_asked)
{
    struct reload *r = d->reload;
    pthread_mutex_lock(&d->status_lock);
    while (!r->asked && !r->settle && !atomic_load(&d->stopping))
        pthread_cond_wait(&d->status_wake, &d->status_lock);
    *ret_settle = r->settle;
    *ret_asked = r->asked;
    r->settle = false;
    r->asked = false;
    pthread_mutex_unlock(&d->status_lock);
    return !atomic_load(&d->stopping);
}

static void *reload_main(void *arg)
{
    struct daemon *d = arg;
    bool settles, asked;
    struct error err;
    size_t ntables = 0;
    pthread_setname_np(pthread_self(), "reload");
    while (wait_asked(d, &settles, &asked)) {
        if (settles)
            settle(d);
        if (asked && reload_told(d, NULL, &ntables, &err) != OK)
            continue; /* it is in the log */
    }
    return NULL;
}

enum status daemon_reload_start(struct daemon *d, struct error *err)
{
    struct reload *r = xcalloc(1, sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
    d->reload = r;
    if (pthread_create(&r->thread, NULL, reload_main, d) != 0)
        return error_sys(err, ERR_RETRY, "cannot start a thread");
    r->started = true;
    return OK;
}

void daemon_reload_ask(struct daemon *d)
{
    pthread_mutex_lock(&d->status_lock);
    d->reload->asked = true;
    pthread_cond_broadcast(&d->status_wake);
    pthread_mutex_unlock(&d->status_lock);
}

void daemon_reload_settle(struct daemon *d)
{
    pthread_mutex_lock(&d->status_lock);
    d->reload->settle = true;
    pthread_cond_broadcast(&d->status_wake);
    pthread_mutex_unlock(&d->status_lock);
}

void daemon_reload_join(struct daemon *d)
{
    if (d->reload != NULL && d->reload->started)
        pthread_join(d->reload->thread, NULL);
}

void daemon_reload_free(struct daemon *d)
{
    struct reload *r = d->reload;
    if (r == NULL)
        return;
    d->reload = NULL;
    for (size_t i = 0; i < r->nloaded; i++)
        config_free(r->loaded[i]);
    free(r->loaded);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

enum status daemon_reload_verb(void *ctx, const struct control_request *request,
                               json_t **ret_result, struct error *err)
{
    struct daemon *d = ctx;
    size_t ntables = 0;
    TRY(reload_told(d, request, &ntables, err));
    char note[80];
    snprintf(note, sizeof note, "reloaded; tables it changed: %zu", ntables);
    *ret_result = json_pack("{s:s}", "note", note);
    return OK;
}
