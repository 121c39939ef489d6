#include "base/queue.h"

#include <stdlib.h>
#include <time.h>

uint64_t clock_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void queue_init(struct queue *q, size_t max_bytes)
{
    pthread_condattr_t attr;
    *q = (struct queue){.max_bytes = max_bytes, .cap = 64};
    q->slots = xmalloc(q->cap * sizeof *q->slots);
    pthread_mutex_init(&q->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&q->not_empty, &attr);
    pthread_cond_init(&q->not_full, &attr);
    pthread_condattr_destroy(&attr);
}

void queue_fini(struct queue *q)
{
    free(q->slots);
    pthread_cond_destroy(&q->not_empty);
    pthread_cond_destroy(&q->not_full);
    pthread_mutex_destroy(&q->lock);
}

static void grow(struct queue *q)
{
    struct queue_slot *bigger = xmalloc(2 * q->cap * sizeof *bigger);
    for (size_t i = 0; i < q->count; i++)
        bigger[i] = q->slots[(q->head + i) % q->cap];
    free(q->slots);
    q->slots = bigger;
    q->head = 0;
    q->cap *= 2;
}

static void append(struct queue *q, void *item, size_t bytes)
{
    if (q->count == q->cap)
        grow(q);
    q->slots[(q->head + q->count++) % q->cap] = (struct queue_slot){item, bytes};
    q->bytes += bytes;
}

enum status queue_push(struct queue *q, void *item, size_t bytes, struct error *err)
{
    pthread_mutex_lock(&q->lock);
    while (!q->closed && q->count > 0 && q->bytes + bytes > q->max_bytes)
        pthread_cond_wait(&q->not_full, &q->lock);
    bool closed = q->closed;
    if (!closed)
        append(q, item, bytes);
    pthread_mutex_unlock(&q->lock);
    pthread_cond_signal(&q->not_empty);
    return closed ? error_set(err, ERR_CANCELLED, "stopping") : OK;
}

enum status queue_push_urgent(struct queue *q, void *item, struct error *err)
{
    pthread_mutex_lock(&q->lock);
    bool closed = q->closed;
    if (!closed)
        append(q, item, 0);
    pthread_mutex_unlock(&q->lock);
    pthread_cond_signal(&q->not_empty);
    return closed ? error_set(err, ERR_CANCELLED, "stopping") : OK;
}

static void *take(struct queue *q)
{
    struct queue_slot slot = q->slots[q->head];
    q->head = (q->head + 1) % q->cap;
    q->count--;
    q->bytes -= slot.bytes;
    pthread_cond_broadcast(&q->not_full);
    return slot.item;
}

void *queue_pop_until(struct queue *q, uint64_t deadline_ns, bool *ret_closed)
{
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
                             .tv_nsec = (long)(deadline_ns % 1000000000u)};
    void *item = NULL;
    pthread_mutex_lock(&q->lock);
    while (q->count == 0 && !q->closed) {
        if (deadline_ns == UINT64_MAX)
            pthread_cond_wait(&q->not_empty, &q->lock);
        else if (pthread_cond_timedwait(&q->not_empty, &q->lock, &until) != 0)
            break;
    }
    if (q->count > 0)
        item = take(q);
    if (ret_closed != NULL)
        *ret_closed = item == NULL && q->closed;
    pthread_mutex_unlock(&q->lock);
    return item;
}

void *queue_pop(struct queue *q)
{
    return queue_pop_until(q, UINT64_MAX, NULL);
}

void queue_close(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->not_empty);
    pthread_cond_broadcast(&q->not_full);
    pthread_mutex_unlock(&q->lock);
}

size_t queue_bytes(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    size_t bytes = q->bytes;
    pthread_mutex_unlock(&q->lock);
    return bytes;
}

bool queue_is_empty(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    bool empty = q->count == 0;
    pthread_mutex_unlock(&q->lock);
    return empty;
}
