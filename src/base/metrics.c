#include "base/metrics.h"

#include "base/error.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdbool.h>
#include <stdlib.h>

#define PREFIX "walshadow_"

static const struct metric {
    enum metric_kind kind;
    const char *name, *labels, *help;
} metrics[METRIC_COUNT] = {
#define METRIC(id, kind, name, labels, help) {METRIC_##kind, name, labels, help},
#include "base/metrics.def"
#undef METRIC
};

/* Upper bounds of the histogram's buckets, in seconds; the last bucket is +Inf. */
static const double bounds[METRIC_BUCKETS - 1] = {
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the lists, not the values */
static struct metric_series *_Atomic series[METRIC_COUNT];

static bool label_equal(const char *a, const char *b)
{
    return (a == NULL && b == NULL) || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static unsigned label_count(enum metric_id id)
{
    const char *l = metrics[id].labels;
    return l[0] == '\0' ? 0 : strchr(l, ',') != NULL ? 2 : 1;
}

struct metric_series *metric_series_get(enum metric_id id, const char *label0, const char *label1)
{
    unsigned n = label_count(id);
    label0 = n > 0 ? (label0 != NULL ? label0 : "") : NULL;
    label1 = n > 1 ? (label1 != NULL ? label1 : "") : NULL;
    pthread_mutex_lock(&lock);
    struct metric_series *head = atomic_load(&series[id]), *s = head;
    while (s != NULL && !(label_equal(s->labels[0], label0) && label_equal(s->labels[1], label1)))
        s = s->next;
    if (s == NULL) {
        s = xcalloc(1, sizeof *s);
        s->labels[0] = label0 != NULL ? xstrdup(label0) : NULL;
        s->labels[1] = label1 != NULL ? xstrdup(label1) : NULL;
        s->next = head;
        atomic_store_explicit(&series[id], s, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return s;
}

/* The one series of a metric without labels: after the first call no lock is taken. */
static struct metric_series *single(enum metric_id id)
{
    struct metric_series *s = atomic_load_explicit(&series[id], memory_order_acquire);
    CHECK(metrics[id].labels[0] == '\0');
    return s != NULL ? s : metric_series_get(id, NULL, NULL);
}

void metric_inc(enum metric_id id, int64_t n)
{
    metric_add(single(id), n);
}

void metric_gauge(enum metric_id id, int64_t v)
{
    metric_set(single(id), v);
}

void metric_set_double(struct metric_series *s, double v)
{
    int64_t bits;
    memcpy(&bits, &v, sizeof bits);
    atomic_store_explicit(&s->is_double, true, memory_order_relaxed);
    atomic_store_explicit(&s->value, bits, memory_order_relaxed);
}

void metric_observe_ns(struct metric_series *s, uint64_t ns)
{
    double seconds = (double)ns / 1e9;
    unsigned i = 0;
    while (i < METRIC_BUCKETS - 1 && seconds > bounds[i])
        i++;
    atomic_fetch_add_explicit(&s->buckets[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->sum_ns, ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->count, 1, memory_order_relaxed);
}

/* ---- rendering: https://prometheus.io/docs/instrumenting/exposition_formats/ ---- */

static void put_label(struct buf *out, const char *name, size_t name_len, const char *value)
{
    buf_printf(out, "%.*s=\"", (int)name_len, name);
    for (; *value != '\0'; value++) {
        if (*value == '\n')
            buf_printf(out, "\\n");
        else if (*value == '"' || *value == '\\')
            buf_printf(out, "\\%c", *value);
        else
            buf_put_u8(out, (uint8_t)*value);
    }
    buf_put_u8(out, '"');
}

/* {a="…",b="…"} and, for a bucket, le. */
static void put_labels(struct buf *out, enum metric_id id, const struct metric_series *s,
                       const char *le)
{
    const char *name = metrics[id].labels;
    bool first = true;
    for (unsigned i = 0; i < label_count(id); i++) {
        size_t n = strcspn(name, ",");
        buf_put_u8(out, first ? '{' : ',');
        put_label(out, name, n, s->labels[i]);
        name += n + (name[n] == ',');
        first = false;
    }
    if (le != NULL) {
        buf_put_u8(out, first ? '{' : ',');
        put_label(out, "le", 2, le);
        first = false;
    }
    if (!first)
        buf_put_u8(out, '}');
}

static void put_double(struct buf *out, double v)
{
    if (isinf(v))
        buf_printf(out, v > 0 ? "+Inf" : "-Inf");
    else if (isnan(v))
        buf_printf(out, "NaN");
    else
        buf_printf(out, "%.3f", v);
}

static void put_simple(struct buf *out, enum metric_id id, const struct metric_series *s)
{
    int64_t v = s == NULL ? 0 : atomic_load_explicit(&s->value, memory_order_relaxed);
    buf_printf(out, PREFIX "%s", metrics[id].name);
    if (s != NULL)
        put_labels(out, id, s, NULL);
    buf_put_u8(out, ' ');
    if (s != NULL && atomic_load_explicit(&s->is_double, memory_order_relaxed)) {
        double d;
        memcpy(&d, &v, sizeof d);
        put_double(out, d);
    } else {
        buf_printf(out, "%" PRId64, v);
    }
    buf_put_u8(out, '\n');
}

static void put_histogram(struct buf *out, enum metric_id id, const struct metric_series *s)
{
    uint64_t total = 0;
    for (unsigned i = 0; i < METRIC_BUCKETS; i++) {
        char le[32];
        snprintf(le, sizeof le, "%g", i < METRIC_BUCKETS - 1 ? bounds[i] : 0.0);
        total += s == NULL ? 0 : atomic_load_explicit(&s->buckets[i], memory_order_relaxed);
        buf_printf(out, PREFIX "%s_bucket", metrics[id].name);
        put_labels(out, id, s, i < METRIC_BUCKETS - 1 ? le : "+Inf");
        buf_printf(out, " %" PRIu64 "\n", total);
    }
    buf_printf(out, PREFIX "%s_sum", metrics[id].name);
    put_labels(out, id, s, NULL);
    buf_printf(out, " %.6f\n",
               s == NULL ? 0.0
                         : (double)atomic_load_explicit(&s->sum_ns, memory_order_relaxed) / 1e9);
    buf_printf(out, PREFIX "%s_count", metrics[id].name);
    put_labels(out, id, s, NULL);
    buf_printf(out, " %" PRIu64 "\n", total);
}

static const char *kind_name(enum metric_kind kind)
{
    return kind == METRIC_COUNTER ? "counter" : kind == METRIC_GAUGE ? "gauge" : "histogram";
}

void metrics_render(struct buf *out)
{
    for (enum metric_id id = 0; id < METRIC_COUNT; id++) {
        const struct metric *m = &metrics[id];
        const struct metric_series *s = atomic_load_explicit(&series[id], memory_order_acquire);
        buf_printf(out, "# HELP " PREFIX "%s %s\n# TYPE " PREFIX "%s %s\n", m->name, m->help,
                   m->name, kind_name(m->kind));
        if (s == NULL && m->labels[0] != '\0')
            continue; /* nothing to say about label values nobody has seen */
        do {
            if (m->kind == METRIC_HISTOGRAM)
                put_histogram(out, id, s);
            else
                put_simple(out, id, s);
            s = s == NULL ? NULL : s->next;
        } while (s != NULL);
    }
}

void metrics_render_markdown(struct buf *out)
{
    buf_printf(out, "# Metrics\n\nMade from the metrics table (src/base/metrics.def) by `walshadow "
                    "config --markdown metrics`; do not edit.\n\nGET /metrics, Prometheus text.\n\n"
                    "| name | kind | labels | meaning |\n|---|---|---|---|\n");
    for (enum metric_id id = 0; id < METRIC_COUNT; id++) {
        const struct metric *m = &metrics[id];
        buf_printf(out, "| `" PREFIX "%s` | %s | %s | %s |\n", m->name, kind_name(m->kind),
                   m->labels, m->help);
    }
}

void metrics_reset(void)
{
    for (enum metric_id id = 0; id < METRIC_COUNT; id++) {
        for (struct metric_series *s = atomic_load(&series[id]); s != NULL; s = s->next) {
            atomic_store(&s->value, 0);
            atomic_store(&s->count, 0);
            atomic_store(&s->sum_ns, 0);
            for (unsigned i = 0; i < METRIC_BUCKETS; i++)
                atomic_store(&s->buckets[i], 0);
        }
    }
}
