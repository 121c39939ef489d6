#include "daemon/daemon.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/metrics.h"
#include "daemon/reload.h"
#include "daemon/resync.h"
#include "daemon/state.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#define DRAIN_NS UINT64_C(30000000000)

void daemon_set_state(struct daemon *d, enum daemon_state state)
{
    if (atomic_exchange(&d->state, (int)state) != (int)state)
        log_info("msg=state state=%s", daemon_state_name(state));
}

void daemon_set_waiting(struct daemon *d, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    pthread_mutex_lock(&d->lock);
    vsnprintf(d->waiting, sizeof d->waiting, fmt, args);
    pthread_mutex_unlock(&d->lock);
    va_end(args);
}

enum status daemon_pause(struct daemon *d, unsigned ms, struct error *err)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000 + (until.tv_nsec + (long)(ms % 1000) * 1000000) / 1000000000;
    until.tv_nsec = (until.tv_nsec + (long)(ms % 1000) * 1000000) % 1000000000;
    pthread_mutex_lock(&d->status_lock);
    while (!atomic_load(&d->stopping) &&
           pthread_cond_timedwait(&d->status_wake, &d->status_lock, &until) == 0)
        ;
    pthread_mutex_unlock(&d->status_lock);
    return daemon_check(d, err);
}

static void wake_main(void *ctx)
{
    struct daemon *d = ctx;
    uint64_t one = 1;
    ssize_t ignored = write(d->wake_fd, &one, sizeof one);
    (void)ignored; /* the counter is full: it wakes anyway */
}

static enum status load_manifest(struct daemon *d, struct error *err)
{
    bool found = false;
    struct error why;
    enum status st = manifest_load(d->paths.manifest, &d->manifest, &found, &why);
    if (st == ERR_DATA && d->options.ignore_cursor) {
        log_warn("msg=\"the manifest is discarded\" error=%s", LOG_Q(why.message));
        d->manifest.load.state = MANIFEST_LOAD_STARTED; /* what lies beside it is ours */
        return OK;
    }
    if (st != OK)
        *err = why;
    return st;
}

/* --ignore-cursor: no position counts, so nothing that is there can be gone on with. */
static void cursor_discard(struct daemon *d)
{
    if (!d->options.ignore_cursor || d->manifest.load.state == MANIFEST_LOAD_NONE)
        return;
    log_warn("msg=\"--ignore-cursor: what was read is discarded, everything is loaded again\" "
             "floor=" LSN_FMT,
             LSN_ARGS(d->manifest.floor));
    d->manifest.load.state = MANIFEST_LOAD_STARTED;
}

static enum status resume(struct daemon *d, struct error *err)
{
    XLogRecPtr ack = daemon_resume_ack(d);
    for (size_t i = 0; i < d->config->ndestinations; i++) {
        const char *name = d->config->destinations[i].name;
        if (manifest_ack_get(&d->manifest, name) == 0)
            return error_set(
                err, ERR_CONFIG,
                "destination %s is not in %s: it has no initial load, and loading into "
                "a new destination is not supported by this version. Give it its old "
                "name, or remove the state directory and load again",
                name, d->paths.manifest);
    }
    TRY(daemon_slot_ensure(d, true, err));
    TRY(daemon_storage_open(d, err));
    TRY(daemon_split_check(d, err));
    TRY(daemon_engines_start(d, err));
    TRY(daemon_shadow_start(d, err));
    TRY(daemon_pipeline_open(d, ack, err));
    /* what was seen late, and has had no effect yet, comes again */
    XLogRecPtr seen = history_next_seen(d->history, 0, UINT64_MAX);
    TRY(pipeline_add_tables(d->pipeline, MIN(ack, seen - 1), TABLES_RESUME, err));
    return daemon_load_resume(d, err);
}

/* Everything from the start to streaming. */
static enum status sequence(struct daemon *d, struct error *err)
{
    TRY(load_manifest(d, err));
    cursor_discard(d);
    bool needs_load = d->manifest.load.state < MANIFEST_LOAD_WAITING;
    TRY(daemon_source_open(d, err));
    if (d->manifest.system_id != 0)
        TRY(manifest_identity_check(&d->manifest, d->source.system_id, d->source.timeline,
                                    d->options.ignore_cursor, err));
    TRY(daemon_start_lsn_check(d, needs_load, err));
    TRY(daemon_preflight(d, needs_load, err));
    if (d->options.dry_run) {
        log_info("msg=\"dry run: preflight passed, nothing was created\"");
        atomic_store(&d->finished, true);
        wake_main(d);
        return OK;
    }
    TRY(needs_load ? daemon_bootstrap(d, err) : resume(d, err));
    if (needs_load)
        TRY(daemon_load_save(d, err));
    pthread_mutex_lock(&d->lock);
    d->floor = d->manifest.floor;
    pthread_mutex_unlock(&d->lock);
    TRY(daemon_stream_start(d, err));
    if (pthread_create(&d->status_thread, NULL, daemon_status_main, d) != 0)
        return error_sys(err, ERR_RETRY, "cannot start a thread");
    d->status_started = true;
    if (pthread_create(&d->watch_thread, NULL, daemon_watch_main, d) != 0)
        return error_sys(err, ERR_RETRY, "cannot start a thread");
    d->watch_started = true;
    return daemon_resync_start(d, err);
}

static void *sequence_main(void *arg)
{
    struct daemon *d = arg;
    struct error err;
    if (sequence(d, &err) != OK)
        fatal_raise(&d->fatal, &err);
    return NULL;
}

/* Ends every wait there may be; the threads leave. */
static void interrupt_all(struct daemon *d, bool keep_pipeline)
{
    pthread_mutex_lock(&d->status_lock);
    atomic_store(&d->stopping, true);
    pthread_cond_broadcast(&d->status_wake);
    pthread_mutex_unlock(&d->status_lock);
    pthread_mutex_lock(&d->lock);
    if (d->backup_repl != NULL)
        source_repl_wake(d->backup_repl);
    if (d->sql != NULL)
        source_sql_interrupt(d->sql);
    if (d->watch_sql != NULL)
        source_sql_interrupt(d->watch_sql);
    daemon_resync_interrupt(d);
    if (d->load != NULL && !keep_pipeline)
        load_cancel(d->load);
    if (!keep_pipeline) /* else the drain may have to ask for fates */
        daemon_load_interrupt(d);
    for (size_t i = 0; d->supervisors != NULL && i < d->config->ndestinations; i++)
        if (d->supervisors[i] != NULL)
            ch_supervisor_interrupt(d->supervisors[i]);
    for (size_t i = 0; d->load_acks != NULL && !keep_pipeline && i < d->config->ndestinations; i++)
        ack_cancel(d->load_acks[i]);
    if (d->walsender != NULL)
        shadow_walsender_wake(d->walsender);
    if (d->cluster != NULL)
        shadow_cluster_interrupt(d->cluster);
    if (d->pump != NULL)
        pump_stop(d->pump);
    if (d->pipeline != NULL && !keep_pipeline)
        pipeline_cancel(d->pipeline);
    pthread_mutex_unlock(&d->lock);
}

/* Waits for a signal, a fatal error or the end of the work. */
static void wait_for_end(struct daemon *d, int signals)
{
    struct pollfd fds[] = {{.fd = signals, .events = POLLIN}, {.fd = d->wake_fd, .events = POLLIN}};
    while (!fatal_is_set(&d->fatal) && !atomic_load(&d->finished)) {
        struct signalfd_siginfo info;
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return;
        if (!(fds[0].revents & POLLIN) || read(signals, &info, sizeof info) != sizeof info)
            continue;
        if (info.ssi_signo == SIGHUP) {
            daemon_reload_ask(d);
            continue;
        }
        log_info("msg=stopping signal=%s", strsignal((int)info.ssi_signo));
        return;
    }
}

/* Beside the drain: every stage of it may wait for a destination that does not answer. */
struct drain_watch {
    struct daemon *d;
    uint64_t until_ns;
    atomic_bool done;
    pthread_t thread;
    bool started;
};

static void *watch_main(void *arg)
{
    struct drain_watch *w = arg;
    struct pollfd fd = {.fd = w->d->wake_fd, .events = POLLIN};
    uint64_t count;
    while (!atomic_load(&w->done)) {
        uint64_t now = clock_now_ns();
        if (now >= w->until_ns || fatal_is_set(&w->d->fatal)) {
            interrupt_all(w->d, false);
            return NULL;
        }
        if (poll(&fd, 1, (int)((w->until_ns - now) / 1000000u) + 1) > 0 &&
            read(w->d->wake_fd, &count, sizeof count) < 0 && errno != EAGAIN)
            return NULL;
    }
    return NULL;
}

static void watch_start(struct drain_watch *w)
{
    w->until_ns = clock_now_ns() + DRAIN_NS;
    w->started = pthread_create(&w->thread, NULL, watch_main, w) == 0;
}

static void watch_stop(struct drain_watch *w)
{
    if (!w->started)
        return;
    atomic_store(&w->done, true);
    wake_main(w->d);
    pthread_join(w->thread, NULL);
}

/* What was read is made durable and acknowledged. */
static bool drain(struct daemon *d, uint64_t until_ns)
{
    struct error err;
    FAULT_POINT("stop-before-drain");
    if (pipeline_drain(d->pipeline, until_ns, &err) != OK) {
        log_error("msg=\"not all that was read is acknowledged; the next start reads it again\" "
                  "error=%s",
                  LOG_Q(err.message));
        return false;
    }
    FAULT_POINT("stop-after-drain");
    if (daemon_floor_save(d, &err) != OK) {
        log_error("msg=\"floor not saved\" error=%s", LOG_Q(err.message));
        return false;
    }
    return true;
}

static void join_all(struct daemon *d)
{
    if (d->sequence_started)
        pthread_join(d->sequence_thread, NULL);
    if (d->status_started)
        pthread_join(d->status_thread, NULL);
    daemon_status_left(d);
    if (d->watch_started)
        pthread_join(d->watch_thread, NULL);
    daemon_resync_join(d);
    daemon_reload_join(d);
    if (d->pump != NULL) {
        pump_stop(d->pump); /* it may have been started only just now */
        pump_join(d->pump);
    }
}

static void free_all(struct daemon *d)
{
    daemon_serve_stop(d);
    pthread_mutex_lock(&d->lock);
    struct pump *pump = d->pump;
    struct pipeline *pipeline = d->pipeline;
    d->pump = NULL;
    d->pipeline = NULL;
    pthread_mutex_unlock(&d->lock);
    pump_free(pump);
    pipeline_close(pipeline);
    daemon_resync_free(d);
    daemon_load_free(d);
    toast_store_close(d->toast);
    daemon_shadow_stop(d);
    daemon_engines_stop(d);
    history_free(d->history);
    wal_archive_close(d->archive);
    catalog_filenodes_free(d->filenodes);
    free(d->catalog_files);
    buf_free(&d->temporary);
    source_sql_close(d->sql);
    manifest_fini(&d->manifest);
    boundary_fini(&d->boundary);
    daemon_paths_free(d);
    daemon_reload_free(d);
    fatal_fini(&d->fatal);
    pthread_mutex_destroy(&d->lock);
    pthread_mutex_destroy(&d->status_lock);
    pthread_cond_destroy(&d->status_wake);
    pthread_cond_destroy(&d->status_saved);
    close(d->wake_fd);
}

static void daemon_init(struct daemon *d)
{
    pthread_condattr_t attr;
    d->lock_fd = -1;
    d->started_ns = clock_now_ns();
    d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->status_lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&d->status_wake, &attr);
    pthread_cond_init(&d->status_saved, NULL);
    pthread_condattr_destroy(&attr);
    boundary_init(&d->boundary);
    fatal_init(&d->fatal, wake_main, d);
}

static int signals_block(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* A second signal during the stop exits at once. */
static void signals_default(int signals)
{
    sigset_t set;
    close(signals);
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static int stop(struct daemon *d)
{
    pthread_mutex_lock(&d->lock); /* the sequence may just be making it */
    bool streaming = d->pump != NULL && !fatal_is_set(&d->fatal);
    pthread_mutex_unlock(&d->lock);
    bool clean = !fatal_is_set(&d->fatal);
    struct drain_watch watch = {.d = d};
    daemon_set_state(d, DAEMON_STOPPING);
    interrupt_all(d, streaming);
    if (streaming)
        watch_start(&watch);
    join_all(d);
    if (streaming && !fatal_is_set(&d->fatal))
        clean = drain(d, watch.until_ns);
    watch_stop(&watch);
    if (fatal_is_set(&d->fatal)) {
        clean = false;
        log_error("msg=fatal error=%s", LOG_Q(d->fatal.first.message));
    }
    if (d->pipeline != NULL)
        pipeline_cancel(d->pipeline);
    return clean ? 0 : 1;
}

int daemon_run(const struct config *config, const struct run_options *options)
{
    struct daemon *d = xcalloc(1, sizeof *d);
    struct error err;
    d->config = config;
    d->options = *options;
    log_set_level((enum log_level)config->log.level);
    /* buffers of up to some MB come and go all the time: pages that went back to the kernel each
     * time would be faulted in again */
    mallopt(M_MMAP_THRESHOLD, 64 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
    int signals = signals_block();
    daemon_init(d);
    enum status st = daemon_prepare(d, &err);
    if (st == OK)
        st = daemon_reload_start(d, &err);
    if (st == OK)
        st = daemon_serve_start(d, &err);
    if (st == OK && pthread_create(&d->sequence_thread, NULL, sequence_main, d) != 0)
        st = error_sys(&err, ERR_RETRY, "cannot start a thread");
    if (st == OK) {
        d->sequence_started = true;
        wait_for_end(d, signals);
    } else {
        fatal_raise(&d->fatal, &err);
    }
    signals_default(signals);
    int code = stop(d);
    bool holds = d->manifest.load.state != MANIFEST_LOAD_NONE && d->source.system_id != 0;
    XLogRecPtr floor = d->manifest.floor;
    free_all(d);
    free(d);
    if (holds) /* the last line, after those of the engine */
        log_info("msg=\"stopped; the slot still holds WAL at the source\" slot=%s floor=" LSN_FMT,
                 LOG_Q(config->source.slot), LSN_ARGS(floor));
    return code;
}
