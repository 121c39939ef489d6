/* What holds progress, looked at once a second: a line in the log when there is work and nothing
 * moves; and a source that waits for the end of its stream is let go, whatever the pump does. A
 * question of this thread to the source may wait for a lock there: nobody waits for this thread. */
#include "base/log.h"
#include "base/metrics.h"
#include "daemon/state.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TICK_MS 1000u
#define STALL_NS UINT64_C(30000000000)
#define UNHEARD_NS UINT64_C(1500000000)

struct watch {
    struct daemon *d;
    uint64_t seen; /* of progress() */
    uint64_t moved_ns, told_ns;
    uint64_t asked_ns; /* whether the source counts us as a synchronous standby */
};

/* Changes whenever anything moves. Under the daemon's lock. */
static uint64_t progress(struct daemon *d)
{
    uint64_t sum = 0;
    if (d->pump != NULL)
        sum += pump_received_lsn(d->pump);
    if (d->walsender != NULL)
        sum = sum * 31 + shadow_walsender_applied(d->walsender);
    if (d->pipeline == NULL)
        return sum;
    struct reorder *r = pipeline_reorder(d->pipeline);
    struct destination **destinations;
    size_t n = pipeline_destinations(d->pipeline, &destinations);
    sum = sum * 31 + atomic_load(&r->read_lsn);
    sum = sum * 31 + atomic_load(&r->commit_lsn);
    if (r->xacts != NULL)
        sum = sum * 31 + xact_buffer_bytes(r->xacts) + xact_buffer_spilled_bytes(r->xacts) +
              xact_buffer_blocks_read(r->xacts);
    for (size_t i = 0; i < n; i++)
        if (destinations[i] != NULL) {
            sum = sum * 31 + ack_lsn(destinations[i]->ack);
            sum = sum * 31 + atomic_load(&destinations[i]->rows);
        }
    return sum;
}

/* Something was read or is at the source, and is not acknowledged. Under the daemon's lock. */
static bool has_work(struct daemon *d)
{
    if (d->pump == NULL || d->pipeline == NULL || atomic_load(&d->state) == DAEMON_PAUSED)
        return false;
    struct destination **destinations;
    size_t n = pipeline_destinations(d->pipeline, &destinations);
    XLogRecPtr received = pump_received_lsn(d->pump);
    if (!pump_connected(d->pump) || pump_server_lsn(d->pump) > received)
        return true;
    for (size_t i = 0; i < n; i++)
        if (destinations[i] != NULL && ack_pending_count(destinations[i]->ack) > 0)
            return true;
    return atomic_load(&pipeline_reorder(d->pipeline)->read_lsn) < received;
}

/* A shadow that is not ready, and why changed tables wait for it: a transaction with more than 64
 * subtransactions that was open when it started keeps it closed (notes C5). */
static void shadow_waiting(struct daemon *d, char *text, size_t cap)
{
    char hold[160], detail[200];
    boundary_waiting(&d->boundary, hold, sizeof hold);
    if (d->cluster == NULL || shadow_cluster_state(d->cluster) == SHADOW_READY) {
        snprintf(text, cap, "%s", hold);
        return;
    }
    shadow_cluster_waiting_on(d->cluster, detail, sizeof detail);
    bool many = d->pipeline != NULL && pipeline_reorder(d->pipeline)->xacts != NULL &&
                xact_buffer_has_many_subs(pipeline_reorder(d->pipeline)->xacts);
    snprintf(text, cap, "%s%s%s%s", detail,
             many ? "; it accepts no connections while a transaction with more than 64 "
                    "subtransactions is open that was open when it started"
                  : "",
             hold[0] != '\0' ? "; " : "", hold);
}

static void destinations_waiting(struct daemon *d, char *text, size_t cap)
{
    struct destination **destinations;
    size_t n = pipeline_destinations(d->pipeline, &destinations);
    for (size_t i = 0; text[0] == '\0' && i < n; i++)
        if (destinations[i] != NULL)
            destination_waiting(destinations[i], text, cap);
}

static void budget_waiting(struct daemon *d, char *text, size_t cap)
{
    struct budget *b = pipeline_budget(d->pipeline);
    if (budget_is_waited_for(b))
        snprintf(text, cap,
                 "memory: room within memory.resident_payload_max, %zu bytes are held until they "
                 "are acknowledged",
                 budget_used(b));
}

static void large_waiting(struct daemon *d, char *text, size_t cap)
{
    struct reorder *r = pipeline_reorder(d->pipeline);
    unsigned xid = atomic_load(&r->draining);
    if (xid != 0)
        snprintf(text, cap, "transaction %u: its %llu bytes are planned and sent", xid,
                 (unsigned long long)atomic_load(&r->draining_bytes));
}

/* Rows that transactions open since before the load have written or deleted are not decided: they
 * are sent at those transactions' end, and the load is not complete before. */
static void load_waiting(struct daemon *d, char *text, size_t cap)
{
    uint64_t n = atomic_load(&d->state) == DAEMON_STREAMING ? load_undecided_count(d->load) : 0;
    if (n > 0)
        snprintf(text, cap,
                 "source: the end of transactions that were open or prepared during the initial "
                 "load, %llu rows of it wait for that",
                 (unsigned long long)n);
}

/* All that was read has been planned, and acknowledged. */
static bool all_is_done(struct daemon *d)
{
    struct destination **destinations;
    size_t n = pipeline_destinations(d->pipeline, &destinations);
    for (size_t i = 0; i < n; i++)
        if (destinations[i] == NULL || ack_pending_count(destinations[i]->ack) > 0)
            return false;
    return atomic_load(&pipeline_reorder(d->pipeline)->read_lsn) >= pump_received_lsn(d->pump);
}

/* The first of these that waits names what holds progress. Under the daemon's lock. */
void daemon_waiting_text(struct daemon *d, char *text, size_t cap)
{
    text[0] = '\0';
    if (d->waiting[0] != '\0')
        snprintf(text, cap, "%s", d->waiting);
    if (text[0] == '\0' && d->pump != NULL)
        pump_waiting(d->pump, text, cap);
    if (text[0] == '\0')
        shadow_waiting(d, text, cap);
    for (size_t i = 0; text[0] == '\0' && d->supervisors != NULL && i < d->config->ndestinations;
         i++)
        if (d->supervisors[i] != NULL)
            ch_supervisor_state(d->supervisors[i], text, cap);
    if (text[0] == '\0' && d->pipeline != NULL)
        destinations_waiting(d, text, cap);
    if (text[0] == '\0' && d->pipeline != NULL)
        budget_waiting(d, text, cap);
    if (text[0] == '\0' && d->pipeline != NULL)
        large_waiting(d, text, cap);
    if (text[0] == '\0' && d->stalled[0] != '\0')
        snprintf(text, cap, "%s", d->stalled);
    if (text[0] == '\0' && d->load != NULL)
        load_waiting(d, text, cap);
}

static void look_for_stall(struct watch *w)
{
    struct daemon *d = w->d;
    char text[300];
    uint64_t now = clock_now_ns();
    pthread_mutex_lock(&d->lock);
    uint64_t seen = progress(d);
    if (seen != w->seen || !has_work(d) || w->moved_ns == 0) {
        w->seen = seen;
        w->moved_ns = w->told_ns = now;
        d->stalled[0] = '\0';
        pthread_mutex_unlock(&d->lock);
        return;
    }
    uint64_t seconds = (now - w->moved_ns) / 1000000000u;
    bool tell = now - w->told_ns >= STALL_NS;
    if (tell && all_is_done(d))
        snprintf(d->stalled, sizeof d->stalled,
                 "source: nothing has come for %llu s, read up to " LSN_FMT " of " LSN_FMT,
                 (unsigned long long)seconds, LSN_ARGS(pump_received_lsn(d->pump)),
                 LSN_ARGS(pump_server_lsn(d->pump)));
    else if (tell)
        snprintf(d->stalled, sizeof d->stalled,
                 "nothing that says so: no progress for %llu s, read up to " LSN_FMT
                 ", planned up to " LSN_FMT,
                 (unsigned long long)seconds, LSN_ARGS(pump_received_lsn(d->pump)),
                 LSN_ARGS(atomic_load(&pipeline_reorder(d->pipeline)->read_lsn)));
    daemon_waiting_text(d, text, sizeof text);
    pthread_mutex_unlock(&d->lock);
    if (!tell)
        return;
    w->told_ns = now;
    log_warn("msg=\"no progress\" seconds=%llu waiting_on=%s", (unsigned long long)seconds,
             LOG_Q(text));
}

/* Whoever holds the source's catalog must not keep this thread from its other work for long. */
static enum status limit_waits(struct source_sql *sql, struct error *err)
{
    struct sql_result *none = NULL;
    TRY(source_sql_exec(sql, "SET lock_timeout = '1s'", 0, NULL, &none, err));
    sql_result_free(none);
    return OK;
}

static enum status watch_sql_open(struct daemon *d, struct source_sql **sql, struct error *err)
{
    struct source_sql *fresh = NULL, *old;
    pthread_mutex_lock(&d->lock); /* who stops the daemon may be about to interrupt it */
    old = *sql;
    *sql = NULL;
    pthread_mutex_unlock(&d->lock);
    source_sql_close(old);
    enum status st = source_sql_open(d->config->source.conninfo, APPLICATION_NAME, &fresh, err);
    if (st == OK)
        st = limit_waits(fresh, err);
    pthread_mutex_lock(&d->lock);
    *sql = fresh;
    if (fresh != NULL && atomic_load(&d->stopping))
        source_sql_interrupt(fresh);
    pthread_mutex_unlock(&d->lock);
    return st;
}

/* While the pump waits for something else nobody reads what the source says, and its walsender may
 * be stuck in sending. Two things must not wait for it:
 * - a source that is going down waits for our flush, which cannot come: a session of ours is ended
 *   at once, and the next is refused with cannot_connect_now;
 * - a checkpoint that removes WAL beyond max_slot_wal_keep_size ends the walsender first, which
 *   cannot say so before it has said what it was sending: the slot is "unreserved" until then. */
static void look_for_release(struct daemon *d, struct source_sql **sql)
{
    struct error err = {0};
    struct source_slot_info slot = {0};
    if (d->pump == NULL || pump_unheard_ns(d->pump) < UNHEARD_NS)
        return;
    enum status st = OK;
    if (*sql == NULL || source_sql_broken(*sql))
        st = watch_sql_open(d, sql, &err);
    if (st == OK)
        st = source_sql_slot_info(*sql, d->config->source.slot, &slot, &err);
    bool ends =
        st != OK && (strcmp(err.sqlstate, "57P01") == 0 || strcmp(err.sqlstate, "57P03") == 0);
    bool removes = st == OK && (strcmp(slot.wal_status, "unreserved") == 0 ||
                                strcmp(slot.wal_status, "lost") == 0);
    if (ends)
        log_info("msg=\"the source is shutting down: its stream is let go\"");
    else if (removes)
        log_warn("msg=\"the source removes WAL that is not read yet, beyond "
                 "max_slot_wal_keep_size: its stream is let go\" slot=%s",
                 d->config->source.slot);
    if (ends || removes)
        pump_disconnect(d->pump);
}

/* As a synchronous standby we would hold up the source's commits (notes A2). */
static void look_for_synchronous(struct watch *w, struct source_sql **sql)
{
    struct daemon *d = w->d;
    struct error err;
    int pid = d->pump == NULL ? 0 : pump_backend_pid(d->pump), priority = 0;
    uint64_t now = clock_now_ns();
    if (pid == 0 ||
        now - w->asked_ns < (uint64_t)d->config->ops.status_interval_ms * UINT64_C(1000000))
        return;
    w->asked_ns = now;
    if ((*sql == NULL || source_sql_broken(*sql)) && watch_sql_open(d, sql, &err) != OK)
        return; /* the pump tells about an unreachable source */
    if (source_sql_sync_priority(*sql, pid, &priority, &err) != OK || priority <= 0)
        return;
    (void)error_set(&err, ERR_CONFIG,
                    "the source counts walshadow as a synchronous standby (sync_priority %d): its "
                    "commits would wait for us. Take %s out of synchronous_standby_names",
                    priority, APPLICATION_NAME);
    fatal_raise(&d->fatal, &err);
}

static void update_gauges(struct daemon *d)
{
    pthread_mutex_lock(&d->lock);
    struct reorder *r = d->pipeline == NULL ? NULL : pipeline_reorder(d->pipeline);
    if (r != NULL && r->xacts != NULL) {
        metric_gauge(METRIC_SPILL_XACTS, (int64_t)xact_buffer_spilled_count(r->xacts));
        metric_gauge(METRIC_SPILL_BYTES, (int64_t)xact_buffer_spilled_bytes(r->xacts));
    }
    pthread_mutex_unlock(&d->lock);
}

void *daemon_watch_main(void *arg)
{
    struct daemon *d = arg;
    struct watch w = {.d = d};
    struct error err;
    pthread_setname_np(pthread_self(), "watch");
    while (daemon_pause(d, TICK_MS, &err) == OK) {
        look_for_stall(&w);
        look_for_release(d, &d->watch_sql);
        look_for_synchronous(&w, &d->watch_sql);
        update_gauges(d);
    }
    pthread_mutex_lock(&d->lock);
    struct source_sql *sql = d->watch_sql;
    d->watch_sql = NULL;
    pthread_mutex_unlock(&d->lock);
    source_sql_close(sql);
    return NULL;
}
