/* One pool of payload bytes over all stages (memory.resident_payload_max).
 *
 * Admission blocks at the pipeline's entry; the bytes ride on the object and are returned when it
 * is freed, after the insert was acknowledged. One object larger than the pool is let through
 * alone. */
#pragma once
#include "base/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct budget {
    pthread_mutex_t lock; /* guards closed and the wait; used is atomic */
    pthread_cond_t freed;
    size_t max;
    atomic_size_t used;
    atomic_size_t peak;
    atomic_ulong waits, overshoots;
    atomic_int waiters;
    bool closed;
};

void budget_init(struct budget *b, size_t max_bytes);
void budget_fini(struct budget *b);
/* Waits until bytes fit (or the pool is empty); ERR_CANCELLED after budget_close. */
enum status budget_acquire(struct budget *b, size_t bytes, struct error *err) CHECKED;
/* Adds without waiting: for growth of something already admitted. */
void budget_add(struct budget *b, size_t bytes);
void budget_release(struct budget *b, size_t bytes);
void budget_close(struct budget *b);
