#include "pump/boundary.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/queue.h"
#include "catalog/query.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define READ_RETRY_MS 100
#define CLOSED_NS UINT64_C(2000000000) /* from replayed to accepting takes a moment */

void boundary_init(struct boundary *b)
{
    pthread_mutex_init(&b->lock, NULL);
}

void boundary_fini(struct boundary *b)
{
    pthread_mutex_destroy(&b->lock);
}

static void set_waiting(struct boundary *b, const char *text)
{
    pthread_mutex_lock(&b->lock);
    snprintf(b->waiting, sizeof b->waiting, "%.159s", text);
    pthread_mutex_unlock(&b->lock);
}

static bool is_accepting(const struct boundary *b)
{
    return shadow_cluster_state(b->cluster) == SHADOW_READY;
}

/* It runs, has replayed everything it may, and accepts nobody. *since_ns: of the caller, 0 at
 * first.
 */
static bool is_closed(const struct boundary *b, XLogRecPtr at, uint64_t *since_ns)
{
    uint64_t now = clock_now_ns();
    if (shadow_cluster_state(b->cluster) != SHADOW_STARTING ||
        shadow_walsender_connections(b->walsender) == 0 ||
        shadow_walsender_applied(b->walsender) < at) {
        *since_ns = 0;
        return false;
    }
    *since_ns = *since_ns == 0 ? now : *since_ns;
    return now - *since_ns >= CLOSED_NS;
}

/* The shadow may be restarting: as long as it takes. ERR_RETRY: it accepts no connections, and
 * waiting does not help. */
static enum status read_catalog(struct boundary *b, XLogRecPtr at, const Oid *oids, size_t n,
                                struct rel_desc ***ret, size_t *ret_n, struct error *err)
{
    bool logged = false;
    uint64_t closed_ns = 0;
    shadow_reader_expect(b->reader, at, at);
    for (;;) {
        enum status st = shadow_reader_read(b->reader, oids, n, ret, ret_n, err);
        if (st != ERR_RETRY)
            return st;
        if (atomic_load(b->stopping))
            return error_set(err, ERR_CANCELLED, "stopping");
        if (is_closed(b, at, &closed_ns))
            return ERR_RETRY;
        if (!logged)
            log_info("msg=\"waiting for the shadow's catalog\" lsn=" LSN_FMT " error=%s",
                     LSN_ARGS(at), LOG_Q(err->message));
        logged = true;
        struct timespec pause = {.tv_nsec = READ_RETRY_MS * 1000000L};
        nanosleep(&pause, NULL);
    }
}

static struct rel_desc *dropped_desc(const struct rel_desc *was, XLogRecPtr lsn)
{
    struct rel_desc *d = rel_desc_new(0);
    d->oid = was->oid;
    d->relkind = was->relkind;
    d->root_oid = was->root_oid;
    d->dropped = true;
    d->valid_from = lsn;
    memcpy(d->schema, was->schema, sizeof d->schema);
    memcpy(d->name, was->name, sizeof d->name);
    rel_desc_seal(d);
    return d;
}

static bool contains(struct rel_desc *const *descs, size_t n, Oid oid)
{
    for (size_t i = 0; i < n; i++)
        if (descs[i]->oid == oid)
            return true;
    return false;
}

/* What of the relations read differs from the history; and those that are gone. */
static size_t differences(struct boundary *b, XLogRecPtr lsn, struct rel_desc **read, size_t nread,
                          const Oid *oids, size_t noids, struct rel_desc **out)
{
    size_t n = 0;
    for (size_t i = 0; i < nread; i++) {
        if (read[i]->relkind == 't')
            continue;
        struct rel_desc *was = history_by_oid(b->history, read[i]->oid, lsn);
        if (was == NULL || !rel_desc_equal(was, read[i], true)) {
            read[i]->valid_from = lsn;
            out[n++] = rel_desc_ref(read[i]);
        }
        rel_desc_unref(was);
    }
    for (size_t i = 0; i < noids; i++) {
        if (contains(read, nread, oids[i]))
            continue;
        struct rel_desc *was = history_by_oid(b->history, oids[i], lsn);
        if (was != NULL)
            out[n++] = dropped_desc(was, lsn);
        rel_desc_unref(was);
    }
    return n;
}

/* Every relation the history knows, so that those gone are noticed when all are compared. */
static Oid *known_oids(struct boundary *b, XLogRecPtr lsn, size_t *ret_n)
{
    struct rel_desc **all;
    history_all(b->history, lsn, &all, ret_n);
    Oid *oids = xcalloc(*ret_n, sizeof *oids);
    for (size_t i = 0; i < *ret_n; i++) {
        oids[i] = all[i]->oid;
        rel_desc_unref(all[i]);
    }
    free(all);
    return oids;
}

/* *ret_closed: the shadow accepts no connections, nothing is captured. */
static enum status capture(struct boundary *b, XLogRecPtr lsn, const Oid *oids, size_t n, bool all,
                           bool seen, bool *ret_closed, struct error *err)
{
    struct rel_desc **read = NULL;
    size_t nread = 0;
    CLEANUP_FREE Oid *known = NULL;
    if (all) {
        known = known_oids(b, lsn, &n);
        oids = known;
    }
    enum status st = read_catalog(b, lsn, all ? NULL : oids, all ? 0 : n, &read, &nread, err);
    *ret_closed = st == ERR_RETRY;
    if (st != OK)
        return *ret_closed ? OK : st;
    struct rel_desc **changed = xcalloc(nread + n, sizeof(struct rel_desc *));
    size_t nchanged = differences(b, lsn, read, nread, oids, n, changed);
    st = seen ? history_append_seen(b->history, changed, nchanged, lsn, err)
              : history_append(b->history, changed, nchanged, lsn, err);
    for (size_t i = 0; i < nchanged; i++)
        rel_desc_unref(changed[i]);
    free(changed);
    catalog_query_free(read, nread);
    return st;
}

static void note_hold(struct boundary *b, uint64_t ns, const char *kind)
{
    double ms = (double)ns / 1e6;
    pthread_mutex_lock(&b->lock);
    b->samples_ms[b->count++ % BOUNDARY_SAMPLES] = ms;
    b->max_ms = MAX(b->max_ms, ms);
    b->waiting[0] = '\0';
    pthread_mutex_unlock(&b->lock);
    metric_observe_ns(metric_series_get(METRIC_HOLD_SECONDS, NULL, NULL), ns);
    metric_add(metric_series_get(METRIC_HOLDS, kind, NULL), 1);
}

static enum status pass_unseen(struct boundary *b, XLogRecPtr lsn, const Oid *oids, size_t n,
                               bool all, struct error *err)
{
    log_warn(
        "msg=\"the shadow accepts no connections: what this commit changed is looked at later, "
        "its tables are copied again\" lsn=" LSN_FMT " relations=%zu",
        LSN_ARGS(lsn), n);
    FAULT_POINT("unseen-before-pass");
    TRY(history_pass_unseen(b->history, lsn, oids, n, all, err));
    FAULT_POINT("unseen-passed");
    return OK;
}

/* With what was passed before, if there is such. *ret_closed: it cannot be seen now. */
static enum status see(struct boundary *b, XLogRecPtr lsn, const Oid *oids, size_t n, bool all,
                       bool *ret_closed, struct error *err)
{
    CLEANUP_BUF struct buf every = {0};
    buf_put(&every, oids, n * sizeof *oids);
    bool behind = history_unseen_until(b->history, UINT64_MAX, &every, &all);
    *ret_closed = behind && !is_accepting(b);
    if (*ret_closed)
        return OK;
    TRY(shadow_walsender_wait_applied(b->walsender, lsn, UINT64_MAX, err));
    FAULT_POINT("boundary-before-capture");
    return capture(b, lsn, (const Oid *)every.data, every.len / sizeof *oids, all, behind,
                   ret_closed, err);
}

enum status boundary_hold(struct boundary *b, XLogRecPtr commit_end, const Oid *oids, size_t n,
                          bool all, struct error *err)
{
    char text[160];
    if (commit_end <= history_captured_lsn(b->history))
        return OK; /* replayed: the history answers */
    uint64_t start = clock_now_ns();
    snprintf(text, sizeof text, "shadow: replay through the shape change at " LSN_FMT,
             LSN_ARGS(commit_end));
    set_waiting(b, text);
    bool closed;
    TRY(see(b, commit_end, oids, n, all, &closed, err));
    if (closed)
        TRY(pass_unseen(b, commit_end, oids, n, all, err));
    else
        log_debug("msg=\"boundary captured\" lsn=" LSN_FMT " relations=%zu", LSN_ARGS(commit_end),
                  n);
    note_hold(b, clock_now_ns() - start, closed ? "unseen" : "shape");
    return OK;
}

/* The next that was seen and is to be told; UINT64_MAX = none. */
static XLogRecPtr next_seen(const struct boundary *b)
{
    return history_next_seen(b->history, b->told, b->start);
}

bool boundary_look_due(struct boundary *b, XLogRecPtr lsn, XLogRecPtr *ret_next)
{
    bool behind = history_unseen_until(b->history, UINT64_MAX, NULL, NULL);
    XLogRecPtr next = next_seen(b);
    *ret_next = behind ? 0 : next;
    return next <= lsn || (behind && lsn > history_captured_lsn(b->history) && is_accepting(b));
}

static enum status look(struct boundary *b, XLogRecPtr lsn, bool *ret_seen, struct error *err)
{
    uint64_t start = clock_now_ns();
    set_waiting(b, "shadow: replay up to a look at what changed while it accepted no connections");
    FAULT_POINT("unseen-before-look");
    bool closed;
    TRY(see(b, lsn, NULL, 0, false, &closed, err));
    *ret_seen = !closed;
    FAULT_POINT("unseen-seen");
    note_hold(b, clock_now_ns() - start, "unseen");
    if (*ret_seen)
        log_info("msg=\"the shadow accepts connections again: what changed meanwhile is known\" "
                 "lsn=" LSN_FMT,
                 LSN_ARGS(lsn));
    return OK;
}

enum status boundary_look(struct boundary *b, XLogRecPtr lsn, XLogRecPtr *ret_seen,
                          struct error *err)
{
    bool seen = next_seen(b) <= lsn; /* at the boundary of this record, or before a restart */
    if (!seen)
        TRY(look(b, lsn, &seen, err));
    *ret_seen = seen ? next_seen(b) : 0;
    b->told = MAX(b->told, *ret_seen);
    return OK;
}

enum status boundary_capture_start(struct boundary *b, XLogRecPtr lsn, struct error *err)
{
    struct rel_desc **read = NULL;
    size_t nread = 0, nknown, n = 0;
    TRY(read_catalog(b, lsn, NULL, 0, &read, &nread, err));
    CLEANUP_FREE Oid *known = known_oids(b, UINT64_MAX, &nknown);
    struct rel_desc **all = xcalloc(nread + nknown, sizeof(struct rel_desc *));
    for (size_t i = 0; i < nread; i++)
        if (read[i]->relkind != 't')
            all[n++] = rel_desc_ref(read[i]);
    for (size_t i = 0; i < nknown; i++) {
        struct rel_desc *was = history_by_oid(b->history, known[i], UINT64_MAX);
        if (was != NULL && !contains(read, nread, known[i]))
            all[n++] = dropped_desc(was, 0);
        rel_desc_unref(was);
    }
    enum status st = history_append(b->history, all, n, lsn, err);
    for (size_t i = 0; i < n; i++)
        rel_desc_unref(all[i]);
    free(all);
    catalog_query_free(read, nread);
    return st;
}

static int ms_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void boundary_stats(struct boundary *b, uint64_t *ret_count, double *ret_p50_ms, double *ret_max_ms)
{
    double sorted[BOUNDARY_SAMPLES];
    pthread_mutex_lock(&b->lock);
    size_t n = MIN(b->count, (uint64_t)BOUNDARY_SAMPLES);
    memcpy(sorted, b->samples_ms, n * sizeof sorted[0]);
    *ret_count = b->count;
    *ret_max_ms = b->max_ms;
    pthread_mutex_unlock(&b->lock);
    qsort(sorted, n, sizeof sorted[0], ms_order);
    *ret_p50_ms = n == 0 ? 0 : sorted[n / 2];
}

void boundary_waiting(struct boundary *b, char *text, size_t cap)
{
    pthread_mutex_lock(&b->lock);
    snprintf(text, cap, "%s", b->waiting);
    pthread_mutex_unlock(&b->lock);
}
