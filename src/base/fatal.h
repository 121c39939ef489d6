/* The one-shot fatal slot: the first error wins, every thread leaves. */
#pragma once
#include "base/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct fatal {
    pthread_mutex_t lock; /* guards first */
    atomic_bool set;
    struct error first;
    void (*wake)(void *ctx); /* called once, outside the lock: closes queues, wakes waits */
    void *wake_ctx;
};

void fatal_init(struct fatal *f, void (*wake)(void *ctx), void *ctx);
void fatal_fini(struct fatal *f);
/* Records err unless another came first; ERR_CANCELLED is not recorded (it is an echo). */
void fatal_raise(struct fatal *f, const struct error *err);
static inline bool fatal_is_set(const struct fatal *f)
{
    return atomic_load_explicit(&f->set, memory_order_acquire);
}
