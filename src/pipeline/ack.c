#include "pipeline/ack.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct slot {
    XLogRecPtr lsn, first_lsn;
    int64_t commit_time;
    uint32_t pending;
};

struct ack {
    pthread_mutex_t lock; /* guards all that follows */
    pthread_cond_t moved;
    struct slot *slots; /* ring of the numbers first … next-1 */
    size_t cap;
    uint64_t first, next;
    XLogRecPtr watermark; /* of the last number that left the ring */
    XLogRecPtr dispatched;
    bool cancelled;
};

struct ack *ack_new(XLogRecPtr start)
{
    struct ack *a = xcalloc(1, sizeof *a);
    pthread_mutex_init(&a->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&a->moved, &attr);
    pthread_condattr_destroy(&attr);
    a->cap = 256;
    a->slots = xcalloc(a->cap, sizeof *a->slots);
    a->watermark = a->dispatched = start;
    return a;
}

void ack_free(struct ack *a)
{
    if (a == NULL)
        return;
    pthread_cond_destroy(&a->moved);
    pthread_mutex_destroy(&a->lock);
    free(a->slots);
    free(a);
}

static struct slot *slot_of(struct ack *a, uint64_t seq)
{
    CHECK(seq >= a->first && seq < a->next);
    return &a->slots[seq % a->cap];
}

static void ring_grow(struct ack *a)
{
    struct slot *bigger = xcalloc(2 * a->cap, sizeof *bigger);
    for (uint64_t seq = a->first; seq < a->next; seq++)
        bigger[seq % (2 * a->cap)] = a->slots[seq % a->cap];
    free(a->slots);
    a->slots = bigger;
    a->cap *= 2;
}

uint64_t ack_register(struct ack *a, XLogRecPtr first_lsn)
{
    pthread_mutex_lock(&a->lock);
    if (a->next - a->first == a->cap)
        ring_grow(a);
    uint64_t seq = a->next++;
    a->slots[seq % a->cap] = (struct slot){.first_lsn = first_lsn, .pending = 1};
    pthread_mutex_unlock(&a->lock);
    return seq;
}

void ack_lower_first(struct ack *a, uint64_t seq, XLogRecPtr first_lsn)
{
    pthread_mutex_lock(&a->lock);
    struct slot *s = slot_of(a, seq);
    s->first_lsn = MIN(s->first_lsn, first_lsn);
    pthread_mutex_unlock(&a->lock);
}

void ack_set_lsn(struct ack *a, uint64_t seq, XLogRecPtr lsn, int64_t commit_time)
{
    pthread_mutex_lock(&a->lock);
    struct slot *s = slot_of(a, seq);
    s->lsn = lsn;
    if (s->commit_time == 0)
        s->commit_time = commit_time;
    pthread_mutex_unlock(&a->lock);
}

void ack_add(struct ack *a, uint64_t seq, uint32_t n)
{
    pthread_mutex_lock(&a->lock);
    slot_of(a, seq)->pending += n;
    pthread_mutex_unlock(&a->lock);
}

void ack_done(struct ack *a, uint64_t seq, uint32_t n)
{
    pthread_mutex_lock(&a->lock);
    struct slot *s = slot_of(a, seq);
    CHECK(s->pending >= n);
    s->pending -= n;
    while (a->first < a->next && a->slots[a->first % a->cap].pending == 0) {
        a->watermark = MAX(a->watermark, a->slots[a->first % a->cap].lsn);
        a->first++;
    }
    pthread_cond_broadcast(&a->moved);
    pthread_mutex_unlock(&a->lock);
}

static XLogRecPtr lsn_locked(struct ack *a)
{
    if (a->first == a->next)
        a->watermark = MAX(a->watermark, a->dispatched);
    return a->watermark;
}

void ack_dispatched(struct ack *a, XLogRecPtr lsn)
{
    pthread_mutex_lock(&a->lock);
    a->dispatched = MAX(a->dispatched, lsn);
    lsn_locked(a); /* with nothing pending it is the watermark from now on */
    pthread_cond_broadcast(&a->moved);
    pthread_mutex_unlock(&a->lock);
}

XLogRecPtr ack_lsn(struct ack *a)
{
    pthread_mutex_lock(&a->lock);
    XLogRecPtr lsn = lsn_locked(a);
    pthread_mutex_unlock(&a->lock);
    return lsn;
}

enum status ack_wait_lsn(struct ack *a, XLogRecPtr lsn, uint64_t deadline_ns,
                         const atomic_bool *cancel, struct error *err)
{
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
                             .tv_nsec = (long)(deadline_ns % 1000000000u)};
    bool late = false, reached = false;
    pthread_mutex_lock(&a->lock);
    while (!(reached = lsn_locked(a) >= lsn) && !late && !a->cancelled && !atomic_load(cancel)) {
        if (deadline_ns == UINT64_MAX)
            pthread_cond_wait(&a->moved, &a->lock);
        else
            late = pthread_cond_timedwait(&a->moved, &a->lock, &until) != 0;
    }
    bool cancelled = a->cancelled || atomic_load(cancel);
    pthread_mutex_unlock(&a->lock);
    if (reached)
        return OK;
    if (cancelled)
        return error_set(err, ERR_CANCELLED, "stopping");
    return error_set(err, ERR_RETRY, "not reached in time");
}

void ack_wake(struct ack *a)
{
    pthread_mutex_lock(&a->lock);
    pthread_cond_broadcast(&a->moved);
    pthread_mutex_unlock(&a->lock);
}

XLogRecPtr ack_pending_first(struct ack *a)
{
    XLogRecPtr first = UINT64_MAX;
    pthread_mutex_lock(&a->lock);
    for (uint64_t seq = a->first; seq < a->next; seq++)
        first = MIN(first, a->slots[seq % a->cap].first_lsn);
    pthread_mutex_unlock(&a->lock);
    return first;
}

int64_t ack_pending_time(struct ack *a)
{
    int64_t time = 0;
    pthread_mutex_lock(&a->lock);
    for (uint64_t seq = a->first; seq < a->next && time == 0; seq++)
        time = a->slots[seq % a->cap].commit_time;
    pthread_mutex_unlock(&a->lock);
    return time;
}

uint64_t ack_pending_count(struct ack *a)
{
    pthread_mutex_lock(&a->lock);
    uint64_t n = a->next - a->first;
    pthread_mutex_unlock(&a->lock);
    return n;
}

enum status ack_wait_all_until(struct ack *a, uint64_t deadline_ns, struct error *err)
{
    bool late = false;
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
                             .tv_nsec = (long)(deadline_ns % 1000000000u)};
    pthread_mutex_lock(&a->lock);
    uint64_t last = a->next;
    while (!a->cancelled && a->first < last && !late) {
        if (deadline_ns == UINT64_MAX)
            pthread_cond_wait(&a->moved, &a->lock);
        else
            late = pthread_cond_timedwait(&a->moved, &a->lock, &until) != 0;
    }
    bool cancelled = a->cancelled;
    bool done = a->first >= last;
    pthread_mutex_unlock(&a->lock);
    if (cancelled)
        return error_set(err, ERR_CANCELLED, "stopping");
    return done ? OK : error_set(err, ERR_RETRY, "not everything was acknowledged in time");
}

enum status ack_wait_all(struct ack *a, struct error *err)
{
    return ack_wait_all_until(a, UINT64_MAX, err);
}

void ack_cancel(struct ack *a)
{
    pthread_mutex_lock(&a->lock);
    a->cancelled = true;
    pthread_cond_broadcast(&a->moved);
    pthread_mutex_unlock(&a->lock);
}
