/* The initial load, from an empty state directory to the point where streaming starts as after a
 * restart:
 *
 *   slot → BASE_BACKUP (catalog files land in the shadow, user pages go to the workers) beside a
 * reader of the WAL window, which fills the archive → all rows durable → shadow up, stopped exactly
 * at the window's end → its catalog is the beginning of the history → the stream starts again at
 * the backup's start, with everything up to the window's end answered from that history. */
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/bootstrap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct catalog_filenode *catalog_file(const struct daemon *d,
                                                   struct rel_file_locator locator)
{
    for (size_t i = 0; i < d->ncatalog_files; i++)
        if (d->catalog_files[i].locator.rel_number == locator.rel_number &&
            d->catalog_files[i].locator.db_oid == locator.db_oid)
            return &d->catalog_files[i];
    return NULL;
}

Oid daemon_catalog_oid(void *ctx, struct rel_file_locator locator)
{
    const struct catalog_filenode *f = catalog_file(ctx, locator);
    return f == NULL ? InvalidOid : f->oid;
}

static bool is_catalog(void *ctx, struct rel_file_locator locator)
{
    struct bootstrap *b = ctx;
    return catalog_filenodes_contains(b->d->filenodes, locator.db_oid, locator.rel_number);
}

static enum status submit(void *ctx, struct page_batch *batch, struct error *err)
{
    struct bootstrap *b = ctx;
    return load_jobs_submit(b->d->load_jobs, batch, err);
}

static void table_stopped(void *ctx, const struct rel_desc *desc, const char *reason)
{
    struct bootstrap *b = ctx;
    struct error err;
    Oid root = desc->root_oid == 0 ? desc->oid : desc->root_oid;
    if (tables_resync(pipeline_tables(b->d->pipeline), root, 0, RESYNC_LOAD, reason, false, &err) !=
        OK)
        fatal_raise(&b->d->fatal, &err);
}

/* Its load rows came from a file that is gone: the stream discards them, or the table stopped. */
static bool rows_obsolete(void *ctx, const struct rel_desc *desc)
{
    return window_facts_file_is_gone(((struct bootstrap *)ctx)->facts, desc->locator);
}

static enum status run_backup(void *ctx, const struct source_backup_callbacks *callbacks,
                              struct error *err)
{
    struct daemon *d = ((struct bootstrap *)ctx)->d;
    struct source_repl *repl;
    TRY(source_repl_open(d->config->source.conninfo, APPLICATION_NAME, &repl, err));
    pthread_mutex_lock(&d->lock);
    d->backup_repl = repl;
    pthread_mutex_unlock(&d->lock);
    enum status st = daemon_check(d, err);
    if (st == OK)
        st = source_base_backup_run(repl, APPLICATION_NAME, callbacks, err);
    pthread_mutex_lock(&d->lock);
    d->backup_repl = NULL;
    pthread_mutex_unlock(&d->lock);
    source_repl_close(repl);
    return st;
}

/* Records of the window: for the load, and for the comparison at its end. */
static enum status window_record(void *ctx, const struct wal_record *record, struct error *err)
{
    struct bootstrap *b = ctx;
    TRY(window_facts_record(b->facts, record, err));
    return load_window_record(load_window(b->d->load), record, err);
}

static void window_position(void *ctx, XLogRecPtr lsn)
{
    struct bootstrap *b = ctx;
    load_window_position(load_window(b->d->load), lsn);
}

/* The shadow gets nothing from beyond the window until it has been asked for its catalog. */
static bool window_may_end(void *ctx)
{
    struct bootstrap *b = ctx;
    if (window_facts_shadow_ready(b->facts))
        return true;
    if (!b->told_waiting) {
        TransactionId oldest = window_facts_oldest_running(b->facts);
        log_info("msg=\"the load waits for the end of a transaction with more than 64 "
                 "subtransactions: until then the shadow accepts no connections\" oldest_xid=%u",
                 oldest);
        daemon_set_waiting(b->d,
                           "source: a transaction with more than 64 open subtransactions (the "
                           "oldest that runs is %u): until its end the shadow accepts no "
                           "connections",
                           oldest);
    }
    b->told_waiting = true;
    return false;
}

static enum status window_start(struct bootstrap *b, XLogRecPtr start_lsn, struct error *err)
{
    struct daemon *d = b->d;
    const struct pump_options options = {
        .conninfo = d->config->source.conninfo,
        .application_name = APPLICATION_NAME,
        .slot = d->config->source.slot,
        .system_id = d->source.system_id,
        .timeline = d->source.timeline,
        .major = d->source.major,
        .segment_bytes = d->source.segment_bytes,
        .database = d->source.database.oid,
        .start = lsn_segment_start(start_lsn, d->source.segment_bytes),
        .archive = d->archive,
        .filenodes = d->filenodes,
        .filenodes_path = d->paths.filenodes,
        .fatal = &d->fatal,
        .ctx = b,
        .window_record = window_record,
        .window_position = window_position,
        .window_may_end = window_may_end,
    };
    struct pump *window = NULL;
    TRY(pump_start(&options, &window, err));
    pthread_mutex_lock(&d->lock);
    b->window = window;
    if (b->interrupted) /* the stop came before it was known */
        pump_stop(window);
    pthread_mutex_unlock(&d->lock);
    return OK;
}

void daemon_load_interrupt(struct daemon *d)
{
    struct bootstrap *b = d->bootstrap;
    if (b == NULL)
        return;
    b->interrupted = true;
    load_sql_interrupt(b);
    if (b->window != NULL) /* it may wait for a transaction of the source */
        pump_stop(b->window);
}

bool bootstrap_is_loaded(struct daemon *d, const struct rel_desc *desc)
{
    struct config_target ct;
    Oid root = desc->root_oid == 0 ? desc->oid : desc->root_oid;
    struct table_entry *e = tables_find(pipeline_tables(d->pipeline), root);
    if (desc->relkind != 'r' || desc->locator.rel_number == 0 || relation_refused(desc) != NULL ||
        e == NULL || atomic_load(&e->life) != TABLE_LIFE_STREAMING)
        return false;
    for (size_t i = 0; i < d->config->ndestinations; i++) {
        config_table_resolve(d->config, &d->config->destinations[i], desc->schema, desc->name, &ct);
        if (e->targets[i] != NULL && ct.initial_load == LOAD_BASE_BACKUP)
            return true;
    }
    return false;
}

/* Tables that are copied once the stream runs. */
static enum status mark_copies(struct daemon *d, struct rel_desc *const *rels, size_t n,
                               struct error *err)
{
    struct tables *tables = pipeline_tables(d->pipeline);
    for (size_t i = 0; i < n; i++) {
        struct table_entry *e = tables_find(tables, rels[i]->oid);
        bool copied = false;
        if (e == NULL || atomic_load(&e->life) != TABLE_LIFE_STREAMING)
            continue;
        for (size_t k = 0; k < d->config->ndestinations; k++) {
            struct config_target ct;
            config_table_resolve(d->config, &d->config->destinations[k], rels[i]->schema,
                                 rels[i]->name, &ct);
            copied = copied || (e->targets[k] != NULL && ct.initial_load == LOAD_COPY);
        }
        if (copied)
            TRY(tables_resync(tables, e->oid, 0, RESYNC_INITIAL_COPY, "initial_load = copy", false,
                              err));
    }
    return OK;
}

/* The catalog in a snapshot taken after the backup's start (D6), its targets, what is loaded. */
static enum status seed(struct bootstrap *b, XLogRecPtr start_lsn, struct error *err)
{
    struct daemon *d = b->d;
    size_t n = 0;
    TRY(catalog_query_read_split(source_sql_conn(d->sql), d->source.major, daemon_split(d), NULL, 0,
                                 &b->seed, &b->nseed, err));
    struct rel_desc **kept = xcalloc(b->nseed, sizeof(struct rel_desc *));
    for (size_t i = 0; i < b->nseed; i++)
        if (b->seed[i]->relkind != 't')
            kept[n++] = b->seed[i];
    enum status st = history_append(d->history, kept, n, 0, err);
    if (st == OK)
        st = pipeline_add_tables(d->pipeline, UINT64_MAX, TABLES_REPLACE, err);
    if (st == OK)
        st = mark_copies(d, kept, n, err);
    size_t loaded = 0;
    d->load_jobs = load_jobs_new(d->pipeline, d->load, d->load_acks, start_lsn - 1,
                                 d->config->toast.mode != TOAST_DISABLED);
    for (size_t i = 0; i < n && st == OK; i++)
        if (bootstrap_is_loaded(d, kept[i])) {
            load_jobs_add(d->load_jobs, kept[i]);
            kept[loaded++] = kept[i];
        }
    if (st == OK)
        load_set_relations(d->load, kept, loaded);
    free(kept);
    log_info("msg=\"load begins\" start_lsn=" LSN_FMT " relations=%zu", LSN_ARGS(start_lsn),
             loaded);
    return st;
}

static enum status started(void *ctx, XLogRecPtr start_lsn, uint32_t timeline, struct error *err)
{
    struct bootstrap *b = ctx;
    struct daemon *d = b->d;
    if (timeline != d->source.timeline)
        return error_set(err, ERR_CONFIG, "the source changed to timeline %u", timeline);
    d->manifest.load.start_lsn = start_lsn;
    window_facts_set_start(b->facts, start_lsn);
    TRY(seed(b, start_lsn, err));
    daemon_split_save(d);
    TRY(manifest_save(&d->manifest, d->paths.manifest, err));
    FAULT_POINT("load-started");
    return window_start(b, start_lsn, err);
}

/* What an earlier, unfinished load left. The targets are replaced when they are made again. */
static enum status clear(struct daemon *d, struct error *err)
{
    const char *const trees[] = {d->paths.shadow,    d->paths.wal,   d->paths.catalog_log,
                                 d->paths.filenodes, d->paths.toast, d->paths.undecided};
    if (d->manifest.load.state == MANIFEST_LOAD_STARTED)
        log_warn("msg=\"an earlier initial load was not finished: it is discarded and begins "
                 "again\"");
    else if (file_exists(d->paths.shadow))
        return error_set(err, ERR_CONFIG,
                         "%s exists but no manifest says that this program made it: remove it or "
                         "use another state directory",
                         d->paths.shadow);
    TRY(shadow_cluster_stop_orphan(d->paths.shadow, NULL, err));
    for (size_t i = 0; i < LENGTH(trees); i++)
        TRY(file_remove_tree(trees[i], true, err));
    return OK;
}

static enum status wait_catalog_unlocked(struct daemon *d, struct error *err)
{
    for (;;) {
        unsigned n;
        CLEANUP_FREE char *text = NULL;
        TRY(source_sql_catalog_locks(d->sql, &n, &text, err));
        if (n == 0)
            break;
        daemon_set_waiting(d, "source: a transaction rewrites a system catalog (%s)",
                           text == NULL ? "?" : text);
        TRY(daemon_pause(d, 200, err));
    }
    daemon_set_waiting(d, "%s", "");
    return OK;
}

static enum status all_rows_durable(struct daemon *d, struct error *err)
{
    struct destination **destinations;
    size_t n = pipeline_destinations(d->pipeline, &destinations);
    for (size_t i = 0; i < n; i++)
        TRY(destination_barrier(destinations[i], d->load_acks[i], err));
    return OK;
}

static const struct rel_desc *seed_find(const struct bootstrap *b, Oid oid)
{
    for (size_t i = 0; i < b->nseed; i++)
        if (b->seed[i]->oid == oid)
            return b->seed[i];
    return NULL;
}

/* VACUUM FULL of the TOAST table alone. */
static bool toast_moved(const struct bootstrap *b, const struct rel_desc *was,
                        const struct rel_desc *now)
{
    return was->toast_oid != 0 && !window_facts_truncated(b->facts, now->oid) &&
           window_facts_rewritten(b->facts, now->toast_oid) &&
           (!rel_file_locator_equal(was->toast_locator, now->toast_locator) ||
            window_facts_file_is_new(b->facts, now->toast_locator));
}

/* Why load and stream together may not have the whole table; NULL if they do. */
static const char *incomplete_reason(const struct bootstrap *b, const struct rel_desc *was,
                                     const struct rel_desc *now)
{
    if (window_facts_old_xact(b->facts, now->oid) &&
        (was == NULL || !rel_desc_equal(was, now, true)))
        return "changed during the initial load by a transaction that was open when it began";
    if (was == NULL)
        return NULL; /* created meanwhile: all its rows are in the stream */
    if (!rel_desc_equal(was, now, false))
        return "its shape changed during the initial load";
    bool rewritten = window_facts_rewritten(b->facts, now->oid);
    /* also between the backup's start and the seed: changes of the old file are in neither */
    bool moved = !rel_file_locator_equal(was->locator, now->locator) ||
                 (rewritten && window_facts_file_is_new(b->facts, now->locator));
    if (now->relkind != 'r')
        return NULL;
    if (!moved)
        return toast_moved(b, was, now) ? "its TOAST table was rewritten during the initial load"
                                        : NULL;
    if (rewritten || !window_facts_truncated(b->facts, now->oid))
        return "rewritten (VACUUM FULL, CLUSTER, SET TABLESPACE) during the initial load";
    return NULL; /* TRUNCATE: what came after is in the stream */
}

/* The catalog at the window's end replaces the seed; relations that are gone end. */
static enum status compare_with_seed(struct bootstrap *b, struct rel_desc **now, size_t n,
                                     struct error *err)
{
    struct daemon *d = b->d;
    struct tables *tables = pipeline_tables(d->pipeline);
    for (size_t i = 0; i < n; i++) {
        Oid root = now[i]->root_oid == 0 ? now[i]->oid : now[i]->root_oid;
        const char *reason = incomplete_reason(b, seed_find(b, now[i]->oid), now[i]);
        TRY(tables_add(tables, now[i], TABLES_KEEP, b->end, err));
        if (reason != NULL && relation_refused(now[i]) == NULL)
            TRY(tables_resync(tables, root, b->end, RESYNC_LOAD, reason, false, err));
    }
    return OK;
}

/* No row of the load is on its way any more, but for those that wait for a transaction. */
static enum status load_rows_durable(struct daemon *d, struct error *err)
{
    struct destination **destinations;
    size_t n = pipeline_destinations(d->pipeline, &destinations);
    for (size_t i = 0; i < n; i++)
        TRY(destination_barrier(destinations[i], d->load_acks[i], err));
    return OK;
}

/* Relations of the seed that do not exist any more; so do their chunks. */
static enum status drop_gone(struct daemon *d, const struct bootstrap *b, struct error *err)
{
    for (size_t i = 0; i < b->nseed; i++) {
        const struct rel_desc *was = b->seed[i];
        struct rel_desc *now = history_by_oid(d->history, was->oid, UINT64_MAX);
        const struct toast_event reset = {.kind = TOAST_RESET, .owner = was->oid, .lsn = b->end};
        bool gone = now == NULL && was->relkind != 't';
        rel_desc_unref(now);
        if (!gone)
            continue;
        TRY(load_rows_durable(d, err));
        TRY(tables_drop(pipeline_tables(d->pipeline), was, err));
        if (was->toast_oid != 0)
            TRY(toast_store_put(d->toast, &reset, 1, err));
    }
    return OK;
}

static enum status shadow_consistent(struct bootstrap *b, struct error *err)
{
    struct daemon *d = b->d;
    struct rel_desc **now;
    size_t n;
    TRY(daemon_shadow_start(d, err));
    daemon_set_waiting(d, "shadow: recovery to " LSN_FMT, LSN_ARGS(b->end));
    TRY(shadow_cluster_wait_ready(d->cluster, UINT64_MAX, err)); /* first: it tells of a failure */
    TRY(shadow_walsender_wait_applied(d->walsender, b->end, UINT64_MAX, err));
    TRY(boundary_capture_start(&d->boundary, b->end, err));
    daemon_set_waiting(d, "%s", "");
    /* first: a new table may have the name, and so the target, of one that is gone */
    TRY(drop_gone(d, b, err));
    history_all(d->history, UINT64_MAX, &now, &n);
    enum status st = compare_with_seed(b, now, n, err);
    for (size_t i = 0; i < n; i++)
        rel_desc_unref(now[i]);
    free(now);
    return st;
}

static void bootstrap_free(struct bootstrap *b)
{
    if (b == NULL)
        return;
    if (b->window != NULL)
        pump_free(b->window);
    catalog_query_free(b->seed, b->nseed);
    window_facts_free(b->facts);
    load_sql_fini(b);
    free(b);
}

void daemon_load_free(struct daemon *d)
{
    load_free(d->load);
    load_jobs_free(d->load_jobs);
    bootstrap_free(d->bootstrap);
    for (size_t i = 0; d->load_acks != NULL && i < d->config->ndestinations; i++)
        ack_free(d->load_acks[i]);
    free(d->load_acks);
    d->load = NULL;
    d->load_jobs = NULL;
    d->bootstrap = NULL;
    d->load_acks = NULL;
}

static enum status load_run(struct bootstrap *b, struct error *err)
{
    struct daemon *d = b->d;
    struct load_progress progress;
    enum status st = load_backup_run(d->load, err);
    load_progress_get(d->load, &progress);
    if (b->window != NULL) {
        if (st == OK)
            pump_stop_at(b->window, progress.end_lsn);
        else
            pump_stop(b->window);
        b->end = pump_join(b->window);
        daemon_set_waiting(d, "%s", "");
    }
    TRY(st);
    TRY(daemon_check(d, err));
    d->manifest.load.end_lsn = progress.end_lsn;
    TRY(all_rows_durable(d, err));
    TRY(load_finish(d->load, err));
    TRY(all_rows_durable(d, err)); /* and all chunks are in the store */
    TRY(load_toasted_submit(d->load, err));
    TRY(all_rows_durable(d, err));
    log_info("msg=\"pages walked\" rows=%llu end_lsn=" LSN_FMT " window_end=" LSN_FMT
             " undecided=%llu",
             (unsigned long long)progress.rows, LSN_ARGS(progress.end_lsn), LSN_ARGS(b->end),
             (unsigned long long)load_undecided_count(d->load));
    FAULT_POINT("load-rows-durable");
    return OK;
}

/* From here on a restart knows that a load was begun. */
static enum status manifest_begin_load(struct daemon *d, struct error *err)
{
    struct manifest *m = &d->manifest;
    manifest_fini(m);
    m->system_id = d->source.system_id;
    m->timeline = d->source.timeline;
    m->database_oid = d->source.database.oid;
    m->slot = xstrdup(d->config->source.slot);
    m->load.state = MANIFEST_LOAD_STARTED;
    return manifest_save(m, d->paths.manifest, err);
}

enum status bootstrap_load_open(struct daemon *d, bool backup, struct error *err)
{
    struct bootstrap *b = xcalloc(1, sizeof *b);
    load_sql_init(b, d);
    b->facts = window_facts_new(d->source.major, d->source.database.oid);
    pthread_mutex_lock(&d->lock);
    d->bootstrap = b;
    pthread_mutex_unlock(&d->lock);
    if (backup)
        TRY(load_sql_open(b, err));
    struct ack **acks = xcalloc(d->config->ndestinations, sizeof(struct ack *));
    for (size_t i = 0; i < d->config->ndestinations; i++)
        acks[i] = ack_new(0);
    pthread_mutex_lock(&d->lock);
    d->load_acks = acks;
    pthread_mutex_unlock(&d->lock);
    const struct load_options options = {
        .db_oid = d->source.database.oid,
        .db_tablespace = d->source.database.spc_oid,
        .major = d->source.major,
        .shadow_dir = d->paths.shadow,
        .spill_dir = d->paths.spill,
        .ctx = b,
        .is_catalog = is_catalog,
        .run_backup = run_backup,
        .sample_next_xid = load_sql_next_xid,
        .started = started,
        .sample_flush_lsn = load_sql_flush_lsn,
        .ask_fates = load_sql_fates,
        .submit = submit,
        .table_stopped = table_stopped,
        .chunks = d->config->toast.mode != TOAST_DISABLED,
        .rows_obsolete = rows_obsolete,
    };
    struct load *load = load_new(&options);
    pthread_mutex_lock(&d->lock);
    d->load = load;
    pthread_mutex_unlock(&d->lock);
    return daemon_check(d, err);
}

enum status daemon_bootstrap(struct daemon *d, struct error *err)
{
    daemon_set_state(d, DAEMON_BOOTSTRAPPING);
    d->load_started_ns = clock_now_ns();
    TRY(clear(d, err));
    TRY(manifest_begin_load(d, err));
    TRY(file_mkdir_p(d->paths.shadow, 0700, err)); /* now it is known to be ours */
    TRY(daemon_slot_ensure(d, false, err));
    TRY(daemon_storage_open(d, err));
    TRY(wait_catalog_unlocked(d, err));
    TRY(daemon_engines_start(d, err));
    TRY(daemon_pipeline_open(d, 0, err));
    TRY(bootstrap_load_open(d, true, err));
    TRY(load_run(d->bootstrap, err));
    TRY(shadow_consistent(d->bootstrap, err));
    d->manifest.floor = lsn_segment_start(d->manifest.load.start_lsn, d->source.segment_bytes);
    for (size_t i = 0; i < d->config->ndestinations; i++)
        manifest_ack_set(&d->manifest, d->config->destinations[i].name, d->manifest.load.start_lsn);
    return OK;
}
