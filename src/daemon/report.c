/* What `walshadow status` shows. Called from control and HTTP threads at any time. */
#include "daemon/state.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PG_EPOCH_S INT64_C(946684800)

static const char *keep(struct status_report *r, const char *text)
{
    return text[0] == '\0' ? NULL : arena_strdup(&r->arena, text);
}

static void fill_source(struct daemon *d, struct status_report *r)
{
    r->source.system_id = d->source.system_id;
    r->source.timeline = d->source.timeline;
    r->source.slot = d->config->source.slot;
    if (d->pump != NULL) {
        r->source.received_lsn = r->source.write_lsn = pump_received_lsn(d->pump);
        XLogRecPtr server = pump_server_lsn(d->pump);
        r->source.retained_bytes = server > d->floor ? server - d->floor : 0;
    }
}

static void fill_destination(struct status_report *r, struct destination *dest,
                             struct status_destination *out)
{
    int64_t oldest = ack_pending_time(dest->ack);
    *out = (struct status_destination){
        .name = dest->options.name,
        .ack_lsn = ack_lsn(dest->ack),
        .rows = atomic_load(&dest->rows),
        .inserts = atomic_load(&dest->inserts),
        .errors = atomic_load(&dest->errors),
    };
    if (r->source.received_lsn > out->ack_lsn)
        out->lag_bytes = r->source.received_lsn - out->ack_lsn;
    if (oldest != 0) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        double age = (double)now.tv_sec + (double)now.tv_nsec / 1e9 - (double)oldest / 1e6;
        out->lag_seconds = MAX(age, 0.0);
    }
    pthread_mutex_lock(&dest->text_lock);
    out->last_error = keep(r, dest->last_error);
    pthread_mutex_unlock(&dest->text_lock);
}

static void fill_destinations(struct daemon *d, struct status_report *r)
{
    struct destination **destinations;
    size_t n = pipeline_destinations(d->pipeline, &destinations);
    r->destinations = arena_alloc(&r->arena, (n + 1) * sizeof *r->destinations);
    r->ack_lsn = n == 0 ? 0 : UINT64_MAX;
    for (size_t i = 0; i < n; i++) {
        if (destinations[i] == NULL)
            continue;
        struct status_destination *out = &r->destinations[r->ndestinations++];
        fill_destination(r, destinations[i], out);
        r->ack_lsn = MIN(r->ack_lsn, out->ack_lsn);
    }
}

struct table_fill {
    struct daemon *d;
    struct status_report *r;
    size_t cap;
};

static enum table_state table_state_of(const struct daemon *d, const struct table_entry *e)
{
    switch ((enum table_life)atomic_load(&e->life)) {
    case TABLE_LIFE_STREAMING:
        return atomic_load(&d->state) == DAEMON_BOOTSTRAPPING ? TABLE_LOADING : TABLE_STREAMING;
    case TABLE_LIFE_RESYNCING:
        return TABLE_RESYNCING;
    case TABLE_LIFE_STOPPED:
        return TABLE_STOPPED;
    case TABLE_LIFE_SKIPPED:
        return TABLE_SKIPPED;
    case TABLE_LIFE_DROPPED:
        return TABLE_DROPPED;
    }
    return TABLE_STOPPED;
}

static const char *table_reason(struct status_report *r, const struct table_entry *e)
{
    unsigned long copied = atomic_load(&e->copied);
    if (e->reason == NULL)
        return NULL;
    if (atomic_load(&e->life) != TABLE_LIFE_RESYNCING || !atomic_load(&e->copying) || copied == 0)
        return arena_strdup(&r->arena, e->reason);
    CLEANUP_FREE char *text = xasprintf("%s; %lu rows copied", e->reason, copied);
    return arena_strdup(&r->arena, text);
}

static void fill_table(void *ctx, const struct table_entry *e)
{
    struct table_fill *f = ctx;
    struct status_report *r = f->r;
    for (size_t i = 0; i < f->d->config->ndestinations; i++) {
        const struct target *t = e->targets[i];
        CLEANUP_FREE char *target =
            t == NULL ? xstrdup("") : xasprintf("%s.%s", t->database, t->table);
        if (r->ntables == f->cap) {
            size_t cap = f->cap == 0 ? 64 : 2 * f->cap;
            struct status_table *more = arena_alloc(&r->arena, cap * sizeof *more);
            if (r->ntables > 0)
                memcpy(more, r->tables, r->ntables * sizeof *more);
            r->tables = more;
            f->cap = cap;
        }
        r->tables[r->ntables++] = (struct status_table){
            .name = arena_strdup(&r->arena, e->name),
            .destination = f->d->config->destinations[i].name,
            .target = arena_strdup(&r->arena, target),
            .rows = atomic_load(&e->rows[i]),
            .state = table_state_of(f->d, e),
            .reason = table_reason(r, e),
        };
    }
}

static int table_order(const void *a, const void *b)
{
    return strcmp(((const struct status_table *)a)->name, ((const struct status_table *)b)->name);
}

static void fill_load(struct daemon *d, struct status_report *r)
{
    struct load_progress p;
    if (d->load == NULL)
        return;
    load_progress_get(d->load, &p);
    double seconds = (double)(clock_now_ns() - d->load_started_ns) / 1e9;
    double bytes_per_s = seconds > 0 ? (double)p.bytes_done / seconds : 0;
    r->bootstrap.bytes_done = p.bytes_done;
    r->bootstrap.bytes_total = p.bytes_total;
    r->bootstrap.rows = p.rows;
    r->bootstrap.rows_per_s = seconds > 0 ? (double)p.rows / seconds : 0;
    r->bootstrap.eta_s = p.bytes_total > p.bytes_done && bytes_per_s > 0
                             ? (double)(p.bytes_total - p.bytes_done) / bytes_per_s
                             : 0;
}

static void fill_waiting(struct daemon *d, struct status_report *r)
{
    char text[300];
    daemon_waiting_text(d, text, sizeof text);
    r->waiting_on = keep(r, text);
}

struct prepared_fill {
    struct status_report *r;
    size_t cap;
    int64_t now; /* µs since 2000-01-01 */
};

static void fill_prepared(void *ctx, const struct xact_prepared *p)
{
    struct prepared_fill *f = ctx;
    struct status_report *r = f->r;
    if (r->nprepared == f->cap) {
        size_t cap = f->cap == 0 ? 16 : 2 * f->cap;
        struct status_prepared *more = arena_alloc(&r->arena, cap * sizeof *more);
        if (r->nprepared > 0)
            memcpy(more, r->prepared, r->nprepared * sizeof *more);
        r->prepared = more;
        f->cap = cap;
    }
    r->prepared[r->nprepared++] = (struct status_prepared){
        .gid = arena_strdup(&r->arena, p->gid),
        .age_s = MAX((f->now - p->prepared_at) / 1000000, 0),
        /* of WAL that it keeps from being let go */
        .bytes = r->source.received_lsn > p->first_lsn ? r->source.received_lsn - p->first_lsn : 0,
    };
}

static void fill_open_xacts(struct xact_buffer *xacts, struct status_report *r)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct prepared_fill f = {
        .r = r, .now = ((int64_t)now.tv_sec - PG_EPOCH_S) * 1000000 + now.tv_nsec / 1000};
    XLogRecPtr oldest = xact_buffer_oldest_lsn(xacts);
    r->decoder.open_xacts = xact_buffer_count(xacts);
    r->decoder.oldest_open_lsn = oldest == UINT64_MAX ? 0 : oldest;
    xact_buffer_prepared_each(xacts, fill_prepared, &f);
}

static void fill_pipeline(struct daemon *d, struct status_report *r)
{
    struct reorder *re = pipeline_reorder(d->pipeline);
    struct table_fill f = {.d = d, .r = r};
    fill_destinations(d, r);
    r->resident_bytes = budget_used(pipeline_budget(d->pipeline));
    r->decoder.commit_lsn = atomic_load(&re->commit_lsn);
    if (re->xacts != NULL)
        fill_open_xacts(re->xacts, r);
    if (pipeline_tables(d->pipeline) != NULL)
        tables_each(pipeline_tables(d->pipeline), fill_table, &f);
    if (r->ntables > 1)
        qsort(r->tables, r->ntables, sizeof *r->tables, table_order);
}

void daemon_report_fill(void *ctx, struct status_report *r)
{
    struct daemon *d = ctx;
    r->state = (enum daemon_state)atomic_load(&d->state);
    r->pid = getpid();
    r->uptime_s = (int64_t)((clock_now_ns() - d->started_ns) / 1000000000u);
    r->bootstrap.eta_s = -1;
    pthread_mutex_lock(&d->lock);
    if (d->http != NULL)
        r->http = arena_strdup(&r->arena, http_server_address(d->http));
    fill_source(d, r);
    fill_waiting(d, r);
    if (r->state == DAEMON_STREAMING && d->pump != NULL && !pump_connected(d->pump))
        r->state = DAEMON_RECONNECTING;
    if (d->walsender != NULL) {
        r->shadow.replay_lsn = shadow_walsender_applied(d->walsender);
        r->shadow.connected = shadow_walsender_connections(d->walsender) > 0;
    }
    if (d->archive != NULL)
        r->archive_bytes = wal_archive_bytes(d->archive);
    r->floor_lsn = d->floor;
    boundary_stats(&d->boundary, &r->holds.count, &r->holds.p50_ms, &r->holds.max_ms);
    if (d->pipeline != NULL)
        fill_pipeline(d, r);
    fill_load(d, r);
    pthread_mutex_unlock(&d->lock);
}
