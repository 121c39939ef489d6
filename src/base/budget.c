#include "base/budget.h"

struct budget_limits budget_limits_of(size_t max_bytes, size_t buffered, size_t grown)
{
    struct budget_limits l = {.buffered = MIN(buffered, max_bytes / 2)};
    size_t rest = max_bytes - l.buffered;
    l.grown = MIN(grown, rest / 2);
    l.admitted = rest - l.grown;
    return l;
}

void budget_init(struct budget *b, const struct budget_limits *limits)
{
    *b = (struct budget){.limits = *limits};
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->freed, NULL);
}

void budget_fini(struct budget *b)
{
    pthread_cond_destroy(&b->freed);
    pthread_mutex_destroy(&b->lock);
}

size_t budget_used(const struct budget *b)
{
    return atomic_load(&b->buffered) + atomic_load(&b->admitted) + atomic_load(&b->lane) +
           atomic_load(&b->grown);
}

static void note_peak(struct budget *b)
{
    size_t used = budget_used(b);
    size_t peak = atomic_load(&b->peak);
    while (used > peak && !atomic_compare_exchange_weak(&b->peak, &peak, used))
        ;
}

typedef bool (*take_fn)(struct budget *b, size_t bytes, struct budget_permit *permit);

/* With the lock held, so that takers exclude each other. */
static bool take_admitted(struct budget *b, size_t bytes, struct budget_permit *permit)
{
    if (bytes > b->limits.admitted / 2) {
        if (atomic_load(&b->lane) > 0)
            return false;
        atomic_fetch_add(&b->lane, bytes);
        atomic_fetch_add(&b->overshoots, 1);
        permit->lane += bytes;
        return true;
    }
    if (atomic_load(&b->admitted) + bytes > b->limits.admitted)
        return false;
    atomic_fetch_add(&b->admitted, bytes);
    permit->admitted += bytes;
    return true;
}

static bool take_grown(struct budget *b, size_t bytes, struct budget_permit *permit)
{
    size_t held = atomic_load(&b->grown);
    if (held > 0 && held + bytes > b->limits.grown)
        return false;
    if (bytes > b->limits.grown)
        atomic_fetch_add(&b->overshoots, 1);
    atomic_fetch_add(&b->grown, bytes);
    permit->grown += bytes;
    return true;
}

static enum status take(struct budget *b, take_fn fn, size_t bytes, struct budget_permit *permit,
                        struct error *err)
{
    bool waited = false;
    if (bytes == 0)
        return OK;
    pthread_mutex_lock(&b->lock);
    atomic_fetch_add(&b->waiters, 1); /* before looking: a release from now on wakes */
    while (!b->closed && !fn(b, bytes, permit)) {
        waited = true;
        pthread_cond_wait(&b->freed, &b->lock);
    }
    atomic_fetch_sub(&b->waiters, 1);
    bool closed = b->closed;
    pthread_mutex_unlock(&b->lock);
    if (waited)
        atomic_fetch_add(&b->waits, 1);
    if (closed)
        return error_set(err, ERR_CANCELLED, "stopping");
    note_peak(b);
    return OK;
}

enum status budget_admit(struct budget *b, size_t bytes, struct budget_permit *permit,
                         struct error *err)
{
    return take(b, take_admitted, bytes, permit, err);
}

enum status budget_grow(struct budget *b, size_t bytes, struct budget_permit *permit,
                        struct error *err)
{
    return take(b, take_grown, bytes, permit, err);
}

static size_t move(size_t *from, size_t *to, size_t bytes)
{
    size_t n = MIN(*from, bytes);
    *from -= n;
    *to += n;
    return n;
}

size_t budget_permit_move(struct budget_permit *from, struct budget_permit *to, size_t bytes)
{
    size_t n = move(&from->admitted, &to->admitted, bytes);
    n += move(&from->lane, &to->lane, bytes - n);
    return n + move(&from->grown, &to->grown, bytes - n);
}

static void give_back(atomic_size_t *counter, size_t bytes)
{
    if (bytes > 0)
        CHECK(atomic_fetch_sub(counter, bytes) >= bytes);
}

void budget_release(struct budget *b, struct budget_permit *permit)
{
    if (budget_permit_bytes(permit) == 0)
        return;
    give_back(&b->admitted, permit->admitted);
    give_back(&b->lane, permit->lane);
    give_back(&b->grown, permit->grown);
    *permit = (struct budget_permit){0};
    if (atomic_load(&b->waiters) > 0) {
        pthread_mutex_lock(&b->lock);
        pthread_cond_broadcast(&b->freed);
        pthread_mutex_unlock(&b->lock);
    }
}

void budget_buffered_add(struct budget *b, size_t bytes)
{
    atomic_fetch_add(&b->buffered, bytes);
    note_peak(b);
}

void budget_buffered_sub(struct budget *b, size_t bytes)
{
    give_back(&b->buffered, bytes);
}

bool budget_is_waited_for(const struct budget *b)
{
    return atomic_load(&b->waiters) > 0;
}

void budget_close(struct budget *b)
{
    pthread_mutex_lock(&b->lock);
    b->closed = true;
    pthread_cond_broadcast(&b->freed);
    pthread_mutex_unlock(&b->lock);
}
