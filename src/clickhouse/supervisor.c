#include "clickhouse/supervisor.h"
#include "base/child.h"
#include "base/log.h"
#include "base/queue.h"
#include "clickhouse/client.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define CONTROL_FD 3
#define ARGS_MAX 64
#define PROBE_MS 2000u     /* for one hello */
#define PROBE_PAUSE_MS 25u /* the socket is not there yet */
#define BACKOFF_FIRST_MS 200u
#define BACKOFF_MAX_MS 10000u
#define STEADY_MS 30000u /* an engine that ran this long starts again without a backoff */
#define STOP_MS 10000u

enum phase { PHASE_STARTING, PHASE_UP, PHASE_BACKOFF, PHASE_STOPPING };

struct ch_supervisor {
    pthread_t thread;
    int stop_event; /* eventfd: readable = stop */
    /* constant after start */
    char *args[ARGS_MAX];
    int nargs;
    char *listen, *log_prefix;
    unsigned stop_ms;
    /* of the thread */
    struct child child;

    pthread_mutex_t lock; /* guards all that follows */
    pthread_cond_t changed;
    enum phase phase;
    pid_t pid;
    bool interrupted;          /* nobody waits any more */
    unsigned starts, failures; /* failures: ends in a row without an answer */
    uint64_t since_ns;         /* of the phase */
    uint64_t until_ns;         /* BACKOFF: the next start */
    struct error last;         /* why it is not up */
};

static void enter(struct ch_supervisor *s, enum phase phase)
{
    pthread_mutex_lock(&s->lock);
    if (s->phase != PHASE_STOPPING) /* that one is final */
        s->phase = phase;
    s->since_ns = clock_now_ns();
    s->pid = s->child.pid;
    if (phase == PHASE_UP)
        s->failures = 0;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static bool stopping(struct ch_supervisor *s)
{
    pthread_mutex_lock(&s->lock);
    bool stop = s->phase == PHASE_STOPPING;
    pthread_mutex_unlock(&s->lock);
    return stop;
}

static bool answers(struct ch_supervisor *s)
{
    struct ch_client *c;
    struct ch_endpoint ep = {.unix_path = s->listen, .connect_ms = PROBE_MS};
    if (ch_client_open(&ep, &c, NULL) != OK)
        return false;
    ch_client_close(c);
    return true;
}

/* Until the engine answers: true; until it ends or we are to stop: false. */
static bool await_answer(struct ch_supervisor *s)
{
    bool ended = false;
    while (!ended && !stopping(s)) {
        if (answers(s))
            return true;
        uint64_t until = clock_now_ns() + PROBE_PAUSE_MS * UINT64_C(1000000);
        if (child_wait_wake(&s->child, until, s->stop_event, &ended, NULL) != OK)
            return false;
    }
    return false;
}

static void note_end(struct ch_supervisor *s, bool was_up)
{
    char text[80];
    struct error err;
    child_status_text(s->child.wait_status, text, sizeof text);
    error_set(&err, ERR_RETRY, "engine: %s%s%s", text, s->child.last_line[0] != '\0' ? ": " : "",
              s->child.last_line);
    log_warn("msg=%s", LOG_Q(err.message));
    pthread_mutex_lock(&s->lock);
    s->last = err;
    if (!was_up)
        s->failures++;
    pthread_mutex_unlock(&s->lock);
}

/* One life of the engine. */
static void run_once(struct ch_supervisor *s, bool *ret_steady)
{
    struct error err = {0};
    struct child_options options = {
        .argv = (const char *const *)s->args,
        .log_prefix = s->log_prefix,
        .death_signal = SIGTERM,
        .control_fd = CONTROL_FD,
    };
    bool ended = false;
    *ret_steady = false;
    /* one left over from an engine that was killed: what answers there must be the new one */
    unlink(s->listen);
    if (child_start(&s->child, &options, &err) != OK) {
        log_error("msg=%s", LOG_Q(err.message));
        pthread_mutex_lock(&s->lock);
        s->last = err;
        s->failures++;
        pthread_mutex_unlock(&s->lock);
        return;
    }
    uint64_t started = clock_now_ns();
    pthread_mutex_lock(&s->lock);
    s->starts++;
    pthread_mutex_unlock(&s->lock);
    enter(s, PHASE_STARTING);
    bool up = await_answer(s);
    if (up && !stopping(s)) {
        log_info("msg=\"engine is up\" pid=%d start_ms=%llu", (int)s->child.pid,
                 (unsigned long long)((clock_now_ns() - started) / 1000000));
        enter(s, PHASE_UP);
        if (child_wait_wake(&s->child, UINT64_MAX, s->stop_event, &ended, &err) != OK)
            log_error("msg=%s", LOG_Q(err.message));
    }
    if (stopping(s)) {
        child_stop(&s->child, SIGTERM, s->stop_ms);
        return;
    }
    child_stop(&s->child, SIGKILL,
               s->stop_ms); /* ended already, unless it could not be waited for */
    note_end(s, up);
    *ret_steady = up && clock_now_ns() - started > STEADY_MS * UINT64_C(1000000);
}

/* Waits for the next start; a stop cuts it short. */
static void back_off(struct ch_supervisor *s, unsigned ms)
{
    struct timespec until;
    pthread_mutex_lock(&s->lock);
    if (s->phase != PHASE_STOPPING) {
        s->phase = PHASE_BACKOFF;
        s->pid = 0;
        s->since_ns = clock_now_ns();
        s->until_ns = s->since_ns + ms * UINT64_C(1000000);
        until.tv_sec = (time_t)(s->until_ns / 1000000000);
        until.tv_nsec = (long)(s->until_ns % 1000000000);
        pthread_cond_broadcast(&s->changed);
        while (s->phase != PHASE_STOPPING &&
               pthread_cond_timedwait(&s->changed, &s->lock, &until) != ETIMEDOUT)
            continue;
    }
    pthread_mutex_unlock(&s->lock);
}

static void *supervisor_main(void *arg)
{
    struct ch_supervisor *s = arg;
    unsigned ms = BACKOFF_FIRST_MS;
    while (!stopping(s)) {
        bool steady;
        run_once(s, &steady);
        if (steady)
            ms = BACKOFF_FIRST_MS;
        back_off(s, ms);
        ms = MIN(ms * 2, BACKOFF_MAX_MS);
    }
    return NULL;
}

static void add_arg(struct ch_supervisor *s, const char *name, const char *value)
{
    CHECK(s->nargs + 3 <= ARGS_MAX);
    s->args[s->nargs++] = xstrdup(name);
    if (value != NULL)
        s->args[s->nargs++] = xstrdup(value);
}

static void add_option(struct ch_supervisor *s, const char *name, const char *prefix,
                       const char *value)
{
    if (value == NULL || value[0] == '\0')
        return;
    CLEANUP_FREE char *text = xasprintf("%s%s", prefix, value);
    add_arg(s, name, text);
}

static void build_args(struct ch_supervisor *s, const struct ch_supervisor_options *o)
{
    char number[32];
    add_arg(s, o->engine_bin, "engine");
    add_option(s, "--path", "", o->path);
    add_option(s, "--listen", "unix:", o->listen);
    add_option(s, "--read-only-listen", "", o->read_only_listen);
    add_option(s, "--http", "unix:", o->http);
    add_option(s, "--libchdb", "", o->libchdb);
    if (o->memory_max > 0) {
        snprintf(number, sizeof number, "%llu", (unsigned long long)o->memory_max);
        add_arg(s, "--memory-max", number);
    }
    snprintf(number, sizeof number, "%d", CONTROL_FD);
    add_arg(s, "--control-fd", number);
    for (size_t i = 0; o->extra != NULL && o->extra[i] != NULL; i++)
        add_arg(s, o->extra[i], NULL);
}

static void supervisor_free(struct ch_supervisor *s)
{
    for (int i = 0; i < s->nargs; i++)
        free(s->args[i]);
    free(s->listen);
    free(s->log_prefix);
    if (s->stop_event >= 0)
        close(s->stop_event);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

enum status ch_supervisor_start(const struct ch_supervisor_options *options,
                                struct ch_supervisor **ret, struct error *err)
{
    struct ch_supervisor *s = xcalloc(1, sizeof *s);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&s->lock, NULL);
    s->listen = xstrdup(options->listen);
    s->log_prefix = xstrdup(options->log_prefix != NULL ? options->log_prefix : "engine");
    s->stop_ms = options->stop_ms > 0 ? options->stop_ms : STOP_MS;
    s->since_ns = clock_now_ns();
    build_args(s, options);
    s->stop_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->stop_event < 0 || (errno = pthread_create(&s->thread, NULL, supervisor_main, s)) != 0) {
        enum status status = error_sys(err, ERR_RETRY, "start the engine's supervisor");
        supervisor_free(s);
        return status;
    }
    *ret = s;
    return OK;
}

enum status ch_supervisor_wait(struct ch_supervisor *s, unsigned attempts, struct error *err)
{
    enum status status = OK;
    pthread_mutex_lock(&s->lock);
    while (s->phase != PHASE_UP && s->phase != PHASE_STOPPING && !s->interrupted &&
           s->failures < attempts)
        pthread_cond_wait(&s->changed, &s->lock);
    if (s->phase == PHASE_STOPPING || s->interrupted) {
        status = error_set(err, ERR_CANCELLED, "the engine is being stopped");
    } else if (s->phase != PHASE_UP) {
        status = s->last.kind;
        if (err != NULL)
            *err = s->last;
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

void ch_supervisor_interrupt(struct ch_supervisor *s)
{
    pthread_mutex_lock(&s->lock);
    s->interrupted = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void ch_supervisor_stop(struct ch_supervisor *s)
{
    uint64_t one = 1;
    if (s == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    s->phase = PHASE_STOPPING;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    ssize_t ignored = write(s->stop_event, &one, sizeof one);
    (void)ignored;
    pthread_join(s->thread, NULL);
    supervisor_free(s);
}

pid_t ch_supervisor_pid(struct ch_supervisor *s)
{
    pthread_mutex_lock(&s->lock);
    pid_t pid = s->phase == PHASE_STARTING || s->phase == PHASE_UP ? s->pid : 0;
    pthread_mutex_unlock(&s->lock);
    return pid;
}

unsigned ch_supervisor_restarts(struct ch_supervisor *s)
{
    pthread_mutex_lock(&s->lock);
    unsigned restarts = s->starts > 0 ? s->starts - 1 : 0;
    pthread_mutex_unlock(&s->lock);
    return restarts;
}

const char *ch_supervisor_state(struct ch_supervisor *s, char *buf, size_t cap)
{
    pthread_mutex_lock(&s->lock);
    uint64_t now = clock_now_ns();
    switch (s->phase) {
    case PHASE_STARTING:
        snprintf(buf, cap, "engine: starting, %u s", (unsigned)((now - s->since_ns) / 1000000000));
        break;
    case PHASE_UP:
        snprintf(buf, cap, "%s", "");
        break;
    case PHASE_BACKOFF:
        snprintf(buf, cap, "%s, restart %u in %u s", s->last.message, s->starts,
                 (unsigned)(s->until_ns > now ? (s->until_ns - now) / 1000000000 + 1 : 0));
        break;
    case PHASE_STOPPING:
        snprintf(buf, cap, "engine: stopping");
        break;
    }
    pthread_mutex_unlock(&s->lock);
    return buf;
}
