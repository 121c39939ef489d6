/* Batches from the tar wait here until the window has passed the flush position that was sampled
 * after their bytes arrived: by then any image of their blocks that could mend a torn page has been
 * seen. */
#include "base/queue.h"
#include "load/load_internal.h"

#include <stdlib.h>
#include <time.h>

/* One sample serves every batch that arrived before it was taken, and there is at most one sample
 * in this time: small tables come by the hundred. */
#define SAMPLE_INTERVAL_NS (5 * 1000000ull)

struct waiting {
    struct waiting *next;
    struct page_batch *batch;
    struct budget_permit permit;
};

struct release {
    struct load *load;
    struct budget budget; /* of waiting batches */
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct waiting *first, **last;
    bool closed, cancelled;
    bool started;
    pthread_t thread;
    enum status outcome;
    struct error err; /* the thread's until it is joined */
};

struct release *release_new(struct load *l, size_t max_bytes)
{
    struct release *r = xcalloc(1, sizeof *r);
    pthread_condattr_t attr;
    r->load = l;
    r->last = &r->first;
    budget_init(&r->budget, &(struct budget_limits){.admitted = max_bytes});
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &attr);
    pthread_condattr_destroy(&attr);
    return r;
}

void release_free(struct release *r)
{
    if (r == NULL)
        return;
    for (struct waiting *w = r->first, *next; w != NULL; w = next) {
        next = w->next;
        page_batch_free(w->batch);
        free(w);
    }
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    budget_fini(&r->budget);
    free(r);
}

enum status release_push(struct release *r, struct page_batch *batch, struct error *err)
{
    load_tear_pages(r->load, batch);
    struct budget_permit permit = {0};
    if (budget_admit(&r->budget, page_batch_bytes(batch), &permit, err) != OK) {
        page_batch_free(batch);
        return ERR_CANCELLED;
    }
    struct waiting *w = xcalloc(1, sizeof *w);
    w->batch = batch;
    w->permit = permit;
    pthread_mutex_lock(&r->lock);
    *r->last = w;
    r->last = &w->next;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return OK;
}

/* All that has arrived, once there is something and `not_before` has passed (or no more comes).
 * NULL: closed and drained, or cancelled. */
static struct waiting *arrived_take(struct release *r, uint64_t not_before_ns)
{
    struct timespec until = {.tv_sec = (time_t)(not_before_ns / 1000000000ull),
                             .tv_nsec = (long)(not_before_ns % 1000000000ull)};
    pthread_mutex_lock(&r->lock);
    while (!r->cancelled) {
        if (r->first == NULL) {
            if (r->closed)
                break;
            pthread_cond_wait(&r->changed, &r->lock);
        } else if (r->closed || clock_now_ns() >= not_before_ns) {
            break;
        } else {
            pthread_cond_timedwait(&r->changed, &r->lock, &until);
        }
    }
    struct waiting *list = r->cancelled ? NULL : r->first;
    if (list != NULL) {
        r->first = NULL;
        r->last = &r->first;
    }
    pthread_mutex_unlock(&r->lock);
    return list;
}

/* Takes the batch. */
static enum status batch_release(struct release *r, struct page_batch *batch, XLogRecPtr accept_lsn,
                                 struct error *err)
{
    batch->accept_lsn = accept_lsn;
    window_accept(&r->load->window, batch);
    if (batch->npages == 0 || atomic_load(&batch->rel->stopped)) {
        page_batch_free(batch);
        return OK;
    }
    return load_submit(r->load, batch, err);
}

/* Takes the list. */
static enum status list_release(struct release *r, struct waiting *list, struct error *err)
{
    XLogRecPtr lsn = 0;
    const struct load_options *o = &r->load->options;
    enum status status = o->sample_flush_lsn(o->ctx, &lsn, err);
    if (status == OK)
        status = window_wait(&r->load->window, lsn, err);
    for (struct waiting *w = list, *next; w != NULL; w = next) {
        next = w->next;
        if (status == OK)
            status = batch_release(r, w->batch, lsn, err);
        else
            page_batch_free(w->batch);
        budget_release(&r->budget, &w->permit);
        free(w);
    }
    return status;
}

static void *release_main(void *arg)
{
    struct release *r = arg;
    uint64_t not_before = 0;
    struct waiting *list;
    while (r->outcome == OK && (list = arrived_take(r, not_before)) != NULL) {
        not_before = clock_now_ns() + SAMPLE_INTERVAL_NS;
        r->outcome = list_release(r, list, &r->err);
    }
    if (r->outcome != OK)
        load_fail(r->load, &r->err);
    return NULL;
}

enum status release_start(struct release *r, struct error *err)
{
    int rc = pthread_create(&r->thread, NULL, release_main, r);
    if (rc != 0)
        return error_set(err, ERR_RETRY, "cannot start a thread: error %d", rc);
    r->started = true;
    return OK;
}

enum status release_join(struct release *r, struct error *err)
{
    pthread_mutex_lock(&r->lock);
    r->closed = true;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (!r->started)
        return OK;
    pthread_join(r->thread, NULL);
    r->started = false;
    if (r->outcome != OK && err != NULL)
        *err = r->err;
    return r->outcome;
}

void release_cancel(struct release *r)
{
    pthread_mutex_lock(&r->lock);
    r->cancelled = true;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
    budget_close(&r->budget);
}
