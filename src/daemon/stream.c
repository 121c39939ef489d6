/* Streaming, after a load and after a restart alike: from the manifest's floor. */
#include "base/file.h"
#include "base/log.h"
#include "daemon/reload.h"
#include "daemon/state.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static bool toast_stopping(void *ctx)
{
    return atomic_load(&((struct daemon *)ctx)->stopping);
}

/* In the first destination that is a server. */
static enum status toast_open_clickhouse(struct daemon *d, struct error *err)
{
    CLEANUP_FREE char *comment =
        toast_clickhouse_comment(d->source.system_id, d->source.database.oid);
    struct config_target ct;
    size_t i = 0;
    while (i < d->config->ndestinations && d->config->destinations[i].kind == DESTINATION_NULL)
        i++;
    if (i == d->config->ndestinations)
        return error_set(err, ERR_CONFIG,
                         "toast.mode = clickhouse needs a destination other than null:");
    config_table_resolve(d->config, &d->config->destinations[i], "public", "walshadow_toast", &ct);
    const struct toast_clickhouse_options options = {
        .endpoint = &d->endpoints[i].ch,
        .database = ct.database,
        .comment = comment,
        .empty = d->manifest.load.state == MANIFEST_LOAD_STARTED,
        .ctx = d,
        .stopping = toast_stopping,
    };
    return toast_store_open_clickhouse(&options, &d->toast, err);
}

/* After the load has emptied its directory, if there is one. */
static enum status toast_open(struct daemon *d, struct error *err)
{
    const struct toast_local_options options = {.dir = d->paths.toast};
    bool created;
    if (d->config->toast.mode == TOAST_DISABLED) {
        d->toast = toast_store_open_disabled();
        return OK;
    }
    if (d->config->toast.mode == TOAST_CLICKHOUSE)
        return toast_open_clickhouse(d, err);
    TRY(toast_store_open_local(&options, &d->toast, &created, err));
    if (created && d->manifest.load.state != MANIFEST_LOAD_STARTED)
        log_warn("msg=\"the chunk store was not there: a table whose rows keep out-of-line values "
                 "(TOAST) written until now is copied again\" dir=%s",
                 LOG_Q(d->paths.toast));
    return OK;
}

/* History, archive, catalog filenodes. */
enum status daemon_storage_open(struct daemon *d, struct error *err)
{
    TRY(history_open(d->paths.catalog_log, &d->history, err));
    struct wal_archive *archive = NULL;
    TRY(wal_archive_open(d->paths.wal, d->source.segment_bytes, d->source.timeline, &archive, err));
    pthread_mutex_lock(&d->lock);
    d->archive = archive;
    pthread_mutex_unlock(&d->lock);
    d->filenodes = catalog_filenodes_new();
    struct error missing = {0};
    if (file_exists(d->paths.filenodes) &&
        catalog_filenodes_load(d->filenodes, d->paths.filenodes, &missing) != OK) {
        *err = missing;
        return missing.kind;
    }
    TRY(catalog_query_filenodes(source_sql_conn(d->sql), &d->catalog_files, &d->ncatalog_files,
                                err));
    TRY(catalog_query_temporary(source_sql_conn(d->sql), &d->temporary, err));
    for (size_t i = 0; i < d->ncatalog_files; i++)
        catalog_filenodes_add(d->filenodes, d->catalog_files[i].locator.db_oid,
                              d->catalog_files[i].locator.rel_number);
    return OK;
}

enum status daemon_pipeline_open(struct daemon *d, XLogRecPtr lsn, struct error *err)
{
    struct pipeline *p = NULL;
    TRY(toast_open(d, err));
    for (size_t i = 0; i < d->config->ndestinations; i++)
        d->endpoints[i].ack = lsn;
    const struct pipeline_options options = {
        .config = d->config,
        .history = d->history,
        .fatal = &d->fatal,
        .spill_dir = d->paths.spill,
        .system_id = d->source.system_id,
        .database_oid = d->source.database.oid,
        .endpoints = d->endpoints,
        .toast = d->toast,
    };
    enum status st = pipeline_open(&options, &p, err);
    pthread_mutex_lock(&d->lock);
    d->pipeline = p;
    pthread_mutex_unlock(&d->lock);
    return st == OK ? daemon_check(d, err) : st;
}

static enum status feed(void *ctx, struct feed_batch *batch, struct error *err)
{
    struct daemon *d = ctx;
    return pipeline_feed(d->pipeline, batch, err);
}

static void segments_done(void *ctx)
{
    struct daemon *d = ctx;
    log_info("msg=\"segments read as asked for, stopping\"");
    atomic_store(&d->finished, true);
    uint64_t one = 1;
    ssize_t ignored = write(d->wake_fd, &one, sizeof one);
    (void)ignored;
}

static enum status hold(void *ctx, XLogRecPtr commit_end, const Oid *oids, size_t n, bool all,
                        struct error *err)
{
    struct daemon *d = ctx;
    return boundary_hold(&d->boundary, commit_end, oids, n, all, err);
}

static bool look_due(void *ctx, XLogRecPtr lsn, XLogRecPtr *ret_next)
{
    return boundary_look_due(&((struct daemon *)ctx)->boundary, lsn, ret_next);
}

static enum status look(void *ctx, XLogRecPtr lsn, XLogRecPtr *ret_seen, struct error *err)
{
    return boundary_look(&((struct daemon *)ctx)->boundary, lsn, ret_seen, err);
}

/* On the reorder thread: the status thread completes the load. */
static void tell_decided(struct daemon *d)
{
    if (d->told_decided || load_undecided_count(d->load) > 0)
        return;
    d->told_decided = true;
    pthread_mutex_lock(&d->status_lock);
    d->load_decided = true;
    pthread_cond_broadcast(&d->status_wake);
    pthread_mutex_unlock(&d->status_lock);
}

static enum status load_barrier_hook(void *ctx, struct error *err)
{
    struct daemon *d = ctx;
    struct destination **destinations;
    size_t n = pipeline_destinations(d->pipeline, &destinations);
    for (size_t i = 0; i < n; i++)
        TRY(destination_barrier(destinations[i], d->load_acks[i], err));
    return OK;
}

/* What a transaction's end decided is durable before that end can be acknowledged. */
static enum status decided_rows_durable(struct daemon *d, struct error *err)
{
    for (size_t i = 0; i < d->config->ndestinations; i++)
        if (ack_pending_count(d->load_acks[i]) > 0)
            return load_barrier_hook(d, err);
    return OK;
}

/* First the chunks, then the rows that needed them. */
static enum status decided_rows_settle(struct daemon *d, struct error *err)
{
    TRY(decided_rows_durable(d, err));
    TRY(load_toasted_submit(d->load, err));
    return decided_rows_durable(d, err);
}

static enum status load_fate_hook(void *ctx, TransactionId xid, bool committed, struct error *err)
{
    struct daemon *d = ctx;
    load_settle_begin(d->load);
    enum status st = load_fate(d->load, xid, committed, err);
    if (st == OK)
        st = decided_rows_settle(d, err);
    load_settle_end(d->load);
    TRY(st);
    tell_decided(d);
    return OK;
}

static enum status load_running_hook(void *ctx, TransactionId oldest, struct error *err)
{
    struct daemon *d = ctx;
    load_settle_begin(d->load);
    enum status st = load_running_xacts(d->load, oldest, err);
    if (st == OK)
        st = decided_rows_settle(d, err);
    load_settle_end(d->load);
    TRY(st);
    tell_decided(d);
    return OK;
}

static void load_super_delete_hook(void *ctx, struct rel_file_locator locator, uint64_t tid,
                                   TransactionId xid)
{
    load_super_delete(((struct daemon *)ctx)->load, locator, tid, xid);
}

static enum status save_hook(void *ctx, struct error *err)
{
    return daemon_floor_save_now(ctx, err);
}

/* With --start-lsn everything behind it is sent again, and acknowledged again: until then `wait`
 * waits. The manifest keeps what was acknowledged before. */
XLogRecPtr daemon_resume_ack(const struct daemon *d)
{
    XLogRecPtr ack = d->options.start_lsn == 0 ? UINT64_MAX : d->options.start_lsn;
    for (size_t i = 0; i < d->config->ndestinations; i++)
        ack = MIN(ack, manifest_ack_get(&d->manifest, d->config->destinations[i].name));
    return ack;
}

static enum status pipeline_begin(struct daemon *d, struct error *err)
{
    XLogRecPtr ack = daemon_resume_ack(d);
    struct reorder_options options = {
        .skip_until = ack,
        .load_end = history_captured_lsn(d->history),
        .load_xid = (TransactionId)d->manifest.load.next_xid,
    };
    if (d->load != NULL)
        options.hooks = (struct reorder_hooks){.ctx = d,
                                               .fate = load_fate_hook,
                                               .running = load_running_hook,
                                               .super_delete = load_super_delete_hook,
                                               .barrier = load_barrier_hook};
    options.hooks.save = save_hook;
    options.hooks.save_ctx = d;
    struct destination **destinations;
    size_t n = pipeline_destinations(d->pipeline, &destinations);
    for (size_t i = 0; i < n; i++)
        ack_dispatched(destinations[i]->ack, ack);
    pthread_mutex_lock(&d->lock); /* status reports look into the reorder stage under it */
    enum status st = pipeline_start(d->pipeline, &options, err);
    pthread_mutex_unlock(&d->lock);
    return st;
}

enum status daemon_start_lsn_check(const struct daemon *d, bool needs_load, struct error *err)
{
    if (d->options.start_lsn == 0)
        return OK;
    if (needs_load)
        return error_set(err, ERR_CONFIG,
                         "--start-lsn " LSN_FMT " has no meaning for an initial load, which begins "
                         "where its backup does: leave it out",
                         LSN_ARGS(d->options.start_lsn));
    if (lsn_segment_start(d->options.start_lsn, d->source.segment_bytes) > d->manifest.floor)
        return error_set(err, ERR_CONFIG,
                         "--start-lsn " LSN_FMT " lies above the floor " LSN_FMT
                         ": transactions and shape changes between them would be lost. Leave it "
                         "out, or name a position at or below the floor",
                         LSN_ARGS(d->options.start_lsn), LSN_ARGS(d->manifest.floor));
    return OK;
}

enum status daemon_stream_start(struct daemon *d, struct error *err)
{
    XLogRecPtr start = d->manifest.floor;
    if (d->options.start_lsn != 0)
        start = lsn_segment_start(d->options.start_lsn, d->source.segment_bytes);
    TRY(pipeline_begin(d, err));
    const struct pump_options options = {
        .conninfo = d->config->source.conninfo,
        .application_name = APPLICATION_NAME,
        .slot = d->config->source.slot,
        .system_id = d->source.system_id,
        .timeline = d->source.timeline,
        .major = d->source.major,
        .segment_bytes = d->source.segment_bytes,
        .database = d->source.database.oid,
        .start = start,
        .archive = d->archive,
        .walsender = d->walsender,
        .filenodes = d->filenodes,
        .filenodes_path = d->paths.filenodes,
        .records = {.changes_from = d->manifest.load.start_lsn,
                    .load_xid = (TransactionId)d->manifest.load.next_xid,
                    .history = d->history,
                    .temporary = (const Oid *)d->temporary.data,
                    .ntemporary = d->temporary.len / sizeof(Oid),
                    .catalog_oid = daemon_catalog_oid,
                    .boundary = hold,
                    .ctx = d},
        .max_segments = d->options.max_segments,
        .fatal = &d->fatal,
        .ctx = d,
        .feed = feed,
        .segments_done = segments_done,
        .look_due = look_due,
        .look = look,
    };
    struct pump *pump = NULL;
    struct error quiet;
    d->boundary.start = start;
    TRY(pump_start(&options, &pump, err));
    /* the first reply has a flush position too */
    if (pump_send_status(pump, d->floor, &quiet) != OK)
        log_debug("msg=\"status reply not sent\" error=%s", LOG_Q(quiet.message));
    pthread_mutex_lock(&d->lock);
    d->pump = pump;
    pthread_mutex_unlock(&d->lock);
    daemon_set_state(d, DAEMON_STREAMING);
    daemon_reload_settle(d);
    return daemon_check(d, err);
}
