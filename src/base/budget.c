#include "base/budget.h"

void budget_init(struct budget *b, size_t max_bytes)
{
    *b = (struct budget){.max = max_bytes};
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->freed, NULL);
}

void budget_fini(struct budget *b)
{
    pthread_cond_destroy(&b->freed);
    pthread_mutex_destroy(&b->lock);
}

void budget_add(struct budget *b, size_t bytes)
{
    size_t used = atomic_fetch_add(&b->used, bytes) + bytes;
    size_t peak = atomic_load(&b->peak);
    while (used > peak && !atomic_compare_exchange_weak(&b->peak, &peak, used))
        ;
    if (used > b->max)
        atomic_fetch_add(&b->overshoots, 1);
}

static bool fits(struct budget *b, size_t bytes)
{
    size_t used = atomic_load(&b->used);
    return used == 0 || used + bytes <= b->max;
}

enum status budget_acquire(struct budget *b, size_t bytes, struct error *err)
{
    bool waited = false;
    pthread_mutex_lock(&b->lock);
    atomic_fetch_add(&b->waiters, 1);
    while (!b->closed && !fits(b, bytes)) {
        waited = true;
        pthread_cond_wait(&b->freed, &b->lock);
    }
    atomic_fetch_sub(&b->waiters, 1);
    bool closed = b->closed;
    if (!closed)
        budget_add(b, bytes);
    pthread_mutex_unlock(&b->lock);
    if (waited)
        atomic_fetch_add(&b->waits, 1);
    return closed ? error_set(err, ERR_CANCELLED, "stopping") : OK;
}

void budget_release(struct budget *b, size_t bytes)
{
    size_t before = atomic_fetch_sub(&b->used, bytes);
    CHECK(before >= bytes);
    if (atomic_load(&b->waiters) > 0) {
        pthread_mutex_lock(&b->lock);
        pthread_cond_broadcast(&b->freed);
        pthread_mutex_unlock(&b->lock);
    }
}

void budget_close(struct budget *b)
{
    pthread_mutex_lock(&b->lock);
    b->closed = true;
    pthread_cond_broadcast(&b->freed);
    pthread_mutex_unlock(&b->lock);
}
