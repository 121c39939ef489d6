/* Metrics: one table (metrics.def), atomics, Prometheus text. Updating one is one relaxed atomic
 * add; a metric with labels gets its series once (metric_series_get) and keeps the pointer. */
#pragma once
#include "base/buf.h"

#include <stdatomic.h>
#include <stdint.h>

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

enum metric_id {
#define METRIC(id, kind, name, labels, help) METRIC_##id,
#include "base/metrics.def"
#undef METRIC
    METRIC_COUNT
};

#define METRIC_BUCKETS 16
#define METRIC_LABELS_MAX 2

/* One series. Gauges hold a signed number or the bits of a double; a histogram observes seconds. */
struct metric_series {
    _Atomic int64_t value;
    _Atomic bool is_double;
    _Atomic uint64_t buckets[METRIC_BUCKETS];
    _Atomic uint64_t count, sum_ns;
    const char *labels[METRIC_LABELS_MAX]; /* values, owned */
    struct metric_series *next;
};

/* The series of these label values, made on the first call; never freed, never NULL. Pass NULL for
 * labels the metric does not have. Takes a lock: not for hot paths. */
struct metric_series *metric_series_get(enum metric_id id, const char *label0, const char *label1);

static inline void metric_add(struct metric_series *s, int64_t n)
{
    atomic_fetch_add_explicit(&s->value, n, memory_order_relaxed);
}
static inline void metric_set(struct metric_series *s, int64_t v)
{
    atomic_store_explicit(&s->value, v, memory_order_relaxed);
}
void metric_set_double(struct metric_series *s, double v); /* +Inf allowed */
void metric_observe_ns(struct metric_series *s, uint64_t ns);

/* Metrics without labels. */
void metric_inc(enum metric_id id, int64_t n);
void metric_gauge(enum metric_id id, int64_t v);

void metrics_render(struct buf *out);          /* Prometheus text format 0.0.4 */
void metrics_render_markdown(struct buf *out); /* docs/metrics.md */
void metrics_reset(void);                      /* for tests: all series back to 0 */
