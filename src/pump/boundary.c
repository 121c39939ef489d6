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

/* The shadow may be restarting or not yet accept connections: as long as it takes. */
static enum status read_catalog(struct boundary *b, XLogRecPtr at, const Oid *oids, size_t n,
                                struct rel_desc ***ret, size_t *ret_n, struct error *err)
{
    bool logged = false;
    shadow_reader_expect(b->reader, at, at);
    for (;;) {
        enum status st = shadow_reader_read(b->reader, oids, n, ret, ret_n, err);
        if (st != ERR_RETRY)
            return st;
        if (atomic_load(b->stopping))
            return error_set(err, ERR_CANCELLED, "stopping");
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

static enum status capture(struct boundary *b, XLogRecPtr lsn, const Oid *oids, size_t n, bool all,
                           struct error *err)
{
    struct rel_desc **read = NULL;
    size_t nread = 0;
    CLEANUP_FREE Oid *known = NULL;
    if (all) {
        known = known_oids(b, lsn, &n);
        oids = known;
    }
    TRY(read_catalog(b, lsn, all ? NULL : oids, all ? 0 : n, &read, &nread, err));
    struct rel_desc **changed = xcalloc(nread + n, sizeof(struct rel_desc *));
    size_t nchanged = differences(b, lsn, read, nread, oids, n, changed);
    enum status st = history_append(b->history, changed, nchanged, lsn, err);
    for (size_t i = 0; i < nchanged; i++)
        rel_desc_unref(changed[i]);
    free(changed);
    catalog_query_free(read, nread);
    return st;
}

static void note_hold(struct boundary *b, uint64_t ns)
{
    double ms = (double)ns / 1e6;
    pthread_mutex_lock(&b->lock);
    b->samples_ms[b->count++ % BOUNDARY_SAMPLES] = ms;
    b->max_ms = MAX(b->max_ms, ms);
    b->waiting[0] = '\0';
    pthread_mutex_unlock(&b->lock);
    metric_observe_ns(metric_series_get(METRIC_HOLD_SECONDS, NULL, NULL), ns);
    metric_add(metric_series_get(METRIC_HOLDS, "shape", NULL), 1);
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
    TRY(shadow_walsender_wait_applied(b->walsender, commit_end, UINT64_MAX, err));
    FAULT_POINT("boundary-before-capture");
    TRY(capture(b, commit_end, oids, n, all, err));
    note_hold(b, clock_now_ns() - start);
    log_debug("msg=\"boundary captured\" lsn=" LSN_FMT " relations=%zu", LSN_ARGS(commit_end), n);
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
