#include "base/fatal.h"

void fatal_init(struct fatal *f, void (*wake)(void *ctx), void *ctx)
{
    *f = (struct fatal){.wake = wake, .wake_ctx = ctx};
    pthread_mutex_init(&f->lock, NULL);
}

void fatal_fini(struct fatal *f)
{
    pthread_mutex_destroy(&f->lock);
}

void fatal_raise(struct fatal *f, const struct error *err)
{
    bool won = false;
    if (err->kind == ERR_CANCELLED)
        return;
    pthread_mutex_lock(&f->lock);
    if (!fatal_is_set(f)) {
        f->first = *err;
        won = true;
        atomic_store_explicit(&f->set, true, memory_order_release);
    }
    pthread_mutex_unlock(&f->lock);
    if (won && f->wake != NULL)
        f->wake(f->wake_ctx);
}
