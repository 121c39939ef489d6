/* The status interval: floor and acks made durable together, then told to the source; the archive
 * cut behind the shadow; metrics; the log line. */
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/metrics.h"
#include "daemon/reload.h"
#include "daemon/resync.h"
#include "daemon/state.h"
#include "pg/control_file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define REPLY_MAX_MS 10000
#define LOAD_ROWS_NS UINT64_C(2000000000) /* status replies must go on */
#define LOAD_ROWS_STEP_NS UINT64_C(100000000)

/* Power loss on chdb (clickhouse-notes 4): what is acknowledged is on disk before the floor says
 * so. */
static enum status sync_engines(struct daemon *d, struct error *err)
{
    for (size_t i = 0; i < d->config->ndestinations; i++) {
        const struct config_destination *cd = &d->config->destinations[i];
        if (cd->kind != DESTINATION_CHDB || cd->fsync != FSYNC_FLOOR)
            continue;
        CLEANUP_FREE char *path = cd->path != NULL && cd->path[0] != '\0'
                                      ? xstrdup(cd->path)
                                      : xasprintf("%s/chdb", d->config->state_dir);
        CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || syncfs(fd) != 0)
            return error_sys(err, ERR_RETRY, "cannot sync %s", path);
    }
    return OK;
}

/* Before the engines, which may keep them: seeds of a load do not come again. */
static enum status sync_chunks(struct daemon *d, XLogRecPtr floor, struct error *err)
{
    bool seeds = d->manifest.load.state != MANIFEST_LOAD_COMPLETE;
    return toast_store_sync(d->toast, seeds ? UINT64_MAX : floor, err);
}

static void fill_lsns(struct daemon *d, struct manifest *m, XLogRecPtr ack)
{
    m->lsn.source_received = pump_received_lsn(d->pump);
    m->lsn.filter_durable = wal_archive_sealed_lsn(d->archive);
    m->lsn.shadow_replay = shadow_walsender_applied(d->walsender);
    m->lsn.shadow_flush = shadow_walsender_flushed(d->walsender);
    m->lsn.drain = atomic_load(&pipeline_reorder(d->pipeline)->commit_lsn);
    m->lsn.emitter_ack = ack;
}

/* Every transaction of the load's time is over, and a restart reads from behind all of them. */
static bool load_time_is_over(struct daemon *d, XLogRecPtr floor)
{
    if (atomic_load(&pipeline_reorder(d->pipeline)->load_guard))
        return false;
    if (d->load_time_end == 0)
        d->load_time_end = pump_received_lsn(d->pump);
    return floor >= d->load_time_end;
}

enum status daemon_floor_save(struct daemon *d, struct error *err)
{
    struct manifest *m = &d->manifest;
    size_t n = d->config->ndestinations;
    CLEANUP_FREE XLogRecPtr *acks = xcalloc(n, sizeof *acks);
    XLogRecPtr floor = pipeline_floor(d->pipeline, acks);
    XLogRecPtr lowest = UINT64_MAX;
    floor = MIN(floor, wal_archive_sealed_lsn(d->archive));
    floor = lsn_segment_start(floor, d->source.segment_bytes);
    floor = MAX(floor, m->floor);
    for (size_t i = 0; i < n; i++)
        lowest = MIN(lowest, acks[i]);
    TRY(sync_chunks(d, floor, err));
    TRY(sync_engines(d, err));
    bool keep = false;
    TRY(daemon_load_step(d, &keep, err));
    if (keep)
        return OK;
    if (load_time_is_over(d, floor))
        m->load.next_xid = 0;
    pthread_mutex_lock(&d->lock);
    m->floor = floor;
    for (size_t i = 0; i < n; i++)
        manifest_ack_set(m, d->config->destinations[i].name,
                         MAX(acks[i], manifest_ack_get(m, d->config->destinations[i].name)));
    fill_lsns(d, m, lowest);
    pthread_mutex_unlock(&d->lock);
    FAULT_POINT("manifest-before-save");
    TRY(manifest_save(m, d->paths.manifest, err));
    FAULT_POINT("manifest-after-save");
    pthread_mutex_lock(&d->lock);
    d->floor = floor;
    pthread_mutex_unlock(&d->lock);
    return OK;
}

enum status daemon_load_save(struct daemon *d, struct error *err)
{
    TRY(sync_chunks(d, 0, err));
    TRY(sync_engines(d, err));
    bool keep;
    TRY(daemon_load_step(d, &keep, err));
    return manifest_save(&d->manifest, d->paths.manifest, err);
}

/* The last rows of the load have just been decided: once they are durable, it is complete, and a
 * kill from then on loads nothing again. Where the destination is slow an interval sees to it. */
static enum status load_decided(struct daemon *d, struct error *err)
{
    struct error quiet;
    uint64_t until = clock_now_ns() + LOAD_ROWS_NS;
    for (size_t i = 0; i < d->config->ndestinations; i++)
        while (ack_wait_all_until(d->load_acks[i], clock_now_ns() + LOAD_ROWS_STEP_NS, &quiet) ==
                   ERR_RETRY &&
               !atomic_load(&d->stopping) && clock_now_ns() < until)
            ;
    daemon_reload_settle(d);
    return daemon_floor_save(d, err);
}

/* Segments the shadow can still ask for stay: from its last restartpoint on, and retention_bytes.
 */
static enum status trim_archive(struct daemon *d, struct error *err)
{
    CLEANUP_FREE char *path = xasprintf("%s/global/pg_control", d->paths.shadow);
    CLEANUP_BUF struct buf file = {0};
    struct control_file control;
    XLogRecPtr replay = shadow_walsender_applied(d->walsender);
    XLogRecPtr retention = (XLogRecPtr)d->config->ops.retention_bytes;
    if (retention == 0 || replay <= retention)
        return OK;
    TRY(file_read_all(path, 1 << 20, &file, err));
    TRY(control_file_parse(file.data, file.len, &control, err));
    XLogRecPtr cut = MIN(replay - retention, control.checkpoint.redo);
    /* the filter starts again from the floor and wants the segment before it */
    cut = MIN(cut, d->floor);
    return wal_archive_trim(d->archive, cut, err);
}

static void update_metrics(struct daemon *d)
{
    struct budget *budget = pipeline_budget(d->pipeline);
    struct reorder *r = pipeline_reorder(d->pipeline);
    metric_gauge(METRIC_SOURCE_RECEIVED_LSN, (int64_t)pump_received_lsn(d->pump));
    metric_gauge(METRIC_SHADOW_REPLAY_LSN, (int64_t)shadow_walsender_applied(d->walsender));
    metric_gauge(METRIC_FLOOR_LSN, (int64_t)d->floor);
    metric_gauge(METRIC_ARCHIVE_BYTES, (int64_t)wal_archive_bytes(d->archive));
    metric_gauge(METRIC_DECODER_COMMIT_LSN, (int64_t)atomic_load(&r->commit_lsn));
    metric_gauge(METRIC_FILTER_LSN, (int64_t)wal_archive_sealed_lsn(d->archive));
    metric_gauge(METRIC_XACTS_COMMITTED, (int64_t)atomic_load(&r->committed));
    metric_gauge(METRIC_XACTS_ABORTED, (int64_t)atomic_load(&r->aborted));
    metric_gauge(METRIC_RESIDENT_PAYLOAD, (int64_t)budget_used(budget));
    metric_gauge(METRIC_RESIDENT_PAYLOAD_PEAK, (int64_t)atomic_load(&budget->peak));
    metric_gauge(METRIC_BUDGET_WAITS, (int64_t)atomic_load(&budget->waits));
    metric_gauge(METRIC_BUDGET_OVERSHOOTS, (int64_t)atomic_load(&budget->overshoots));
    metric_gauge(METRIC_XACT_ACTIVE, (int64_t)xact_buffer_count(r->xacts));
    metric_gauge(METRIC_XACT_BYTES, (int64_t)xact_buffer_bytes(r->xacts));
    metric_gauge(METRIC_SPILL_EVICTIONS, (int64_t)xact_buffer_spills(r->xacts));
    metric_gauge(METRIC_SHADOW_CONNECTIONS, (int64_t)shadow_walsender_connections(d->walsender));
    metric_gauge(METRIC_UPTIME_SECONDS, (int64_t)((clock_now_ns() - d->started_ns) / 1000000000u));
    struct destination **destinations;
    size_t n = pipeline_destinations(d->pipeline, &destinations);
    for (size_t i = 0; i < n; i++) {
        const char *name = destinations[i]->options.name;
        XLogRecPtr ack = ack_lsn(destinations[i]->ack);
        metric_set(metric_series_get(METRIC_EMITTER_ACK_LSN, name, NULL), (int64_t)ack);
        metric_set(metric_series_get(METRIC_DEST_LAG_BYTES, name, NULL),
                   (int64_t)(pump_received_lsn(d->pump) - MIN(ack, pump_received_lsn(d->pump))));
        metric_set(metric_series_get(METRIC_EMITTER_ROWS, name, NULL),
                   (int64_t)atomic_load(&destinations[i]->rows));
        metric_set(metric_series_get(METRIC_EMITTER_INSERTS, name, NULL),
                   (int64_t)atomic_load(&destinations[i]->inserts));
        metric_set(metric_series_get(METRIC_EMITTER_ERRORS, name, NULL),
                   (int64_t)atomic_load(&destinations[i]->errors));
    }
}

/* What died before the floor that was saved is of no use, once no seed can come any more. */
static enum status trim_toast(struct daemon *d, struct error *err)
{
    struct toast_stats stats;
    if (d->manifest.load.state == MANIFEST_LOAD_COMPLETE)
        TRY(toast_store_reclaim(d->toast, MIN(d->floor, daemon_resync_seeds(d)), err));
    TRY(toast_store_stats(d->toast, &stats, err));
    metric_gauge(METRIC_TOAST_STORE_CHUNKS, (int64_t)stats.chunks);
    metric_gauge(METRIC_TOAST_STORE_BYTES, (int64_t)stats.disk_bytes);
    metric_gauge(METRIC_TOAST_STORE_PENDING, (int64_t)stats.pending_bytes);
    return OK;
}

static enum status interval(struct daemon *d, struct error *err)
{
    struct error quiet;
    if (shadow_cluster_state(d->cluster) == SHADOW_FAILED) /* a hold would wait for ever */
        TRY(shadow_cluster_wait_ready(d->cluster, UINT64_MAX, err));
    TRY(daemon_floor_save(d, err));
    if (pump_send_status(d->pump, d->floor, &quiet) != OK)
        log_debug("msg=\"status reply not sent\" error=%s", LOG_Q(quiet.message));
    if (trim_archive(d, &quiet) != OK)
        log_warn("msg=\"archive not trimmed\" error=%s", LOG_Q(quiet.message));
    TRY(trim_toast(d, err));
    update_metrics(d);
    log_info("msg=status received=" LSN_FMT " commit=" LSN_FMT " ack=" LSN_FMT " floor=" LSN_FMT
             " shadow=" LSN_FMT " open_xacts=%zu",
             LSN_ARGS(pump_received_lsn(d->pump)),
             LSN_ARGS(atomic_load(&pipeline_reorder(d->pipeline)->commit_lsn)),
             LSN_ARGS(d->manifest.lsn.emitter_ack), LSN_ARGS(d->floor),
             LSN_ARGS(shadow_walsender_applied(d->walsender)),
             xact_buffer_count(pipeline_reorder(d->pipeline)->xacts));
    return OK;
}

enum status daemon_floor_save_now(struct daemon *d, struct error *err)
{
    pthread_mutex_lock(&d->status_lock);
    uint64_t ticket = ++d->saves_asked;
    pthread_cond_broadcast(&d->status_wake);
    while (d->saves_done < ticket && !d->status_left)
        pthread_cond_wait(&d->status_saved, &d->status_lock);
    bool done = d->saves_done >= ticket;
    pthread_mutex_unlock(&d->status_lock);
    /* in the drain of a stop nobody else saves */
    if (done && fatal_is_set(&d->fatal))
        return error_set(err, ERR_CANCELLED, "stopping");
    return done ? OK : daemon_floor_save(d, err);
}

void daemon_status_left(struct daemon *d)
{
    pthread_mutex_lock(&d->status_lock);
    d->status_left = true;
    pthread_cond_broadcast(&d->status_saved);
    pthread_mutex_unlock(&d->status_lock);
}

static void save_asked(struct daemon *d, uint64_t asked, struct error *err)
{
    if (!fatal_is_set(&d->fatal) && daemon_floor_save(d, err) != OK)
        fatal_raise(&d->fatal, err);
    pthread_mutex_lock(&d->status_lock);
    d->saves_done = asked;
    pthread_cond_broadcast(&d->status_saved);
    pthread_mutex_unlock(&d->status_lock);
}

/* Sleeps to the next interval, or until the load is decided or a save asked for; false on a stop.
 */
static bool wait_interval(struct daemon *d, int64_t ms, bool *ret_load_decided, uint64_t *ret_asked)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000 + (until.tv_nsec + (ms % 1000) * 1000000) / 1000000000;
    until.tv_nsec = (until.tv_nsec + (ms % 1000) * 1000000) % 1000000000;
    pthread_mutex_lock(&d->status_lock);
    while (!atomic_load(&d->stopping) && !d->load_decided && d->saves_asked == d->saves_done &&
           pthread_cond_timedwait(&d->status_wake, &d->status_lock, &until) == 0)
        ;
    *ret_asked = d->saves_asked == d->saves_done ? 0 : d->saves_asked;
    *ret_load_decided = d->load_decided;
    d->load_decided = false;
    pthread_mutex_unlock(&d->status_lock);
    return !atomic_load(&d->stopping);
}

static int64_t interval_ms(const struct daemon *d)
{
    int64_t ms = MIN(d->config->ops.status_interval_ms, (int64_t)REPLY_MAX_MS);
    if (d->source.sender_timeout_ms > 0) /* a reply must come before the source gives us up */
        ms = MAX(MIN(ms, d->source.sender_timeout_ms / 3), 100);
    return ms;
}

void *daemon_status_main(void *arg)
{
    struct daemon *d = arg;
    bool decided;
    uint64_t asked;
    struct error err;
    pthread_setname_np(pthread_self(), "status");
    while (wait_interval(d, interval_ms(d), &decided, &asked)) {
        if (asked > 0)
            save_asked(d, asked, &err);
        if (fatal_is_set(&d->fatal) || (asked > 0 && !decided))
            continue;
        if ((decided ? load_decided(d, &err) : interval(d, &err)) != OK)
            fatal_raise(&d->fatal, &err);
    }
    daemon_status_left(d);
    return NULL;
}
