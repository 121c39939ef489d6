#include "toast/pending.h"

#define BYTES_MAX_DEFAULT ((size_t)8 << 20)

void toast_pending_init(struct toast_pending *p, size_t bytes_max,
                        enum status (*write)(void *ctx, const struct overlay *writing,
                                             struct error *err),
                        void *ctx)
{
    pthread_rwlockattr_t attr;
    p->pending = &p->overlays[0];
    p->writing = &p->overlays[1];
    p->bytes_max = bytes_max == 0 ? BYTES_MAX_DEFAULT : bytes_max;
    p->write = write;
    p->ctx = ctx;
    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&p->lock, &attr);
    pthread_rwlockattr_destroy(&attr);
    pthread_mutex_init(&p->write_lock, NULL);
}

void toast_pending_fini(struct toast_pending *p)
{
    overlay_free(&p->overlays[0]);
    overlay_free(&p->overlays[1]);
    pthread_mutex_destroy(&p->write_lock);
    pthread_rwlock_destroy(&p->lock);
}

/* On failure the events stay in `writing`, for another try. */
static enum status write_writing(struct toast_pending *p, struct error *err)
{
    TRY(p->write(p->ctx, p->writing, err));
    pthread_rwlock_wrlock(&p->lock);
    overlay_clear(p->writing);
    pthread_rwlock_unlock(&p->lock);
    return OK;
}

static enum status write_all(struct toast_pending *p, struct error *err)
{
    TRY(write_writing(p, err)); /* what an earlier call could not */
    pthread_rwlock_wrlock(&p->lock);
    struct overlay *o = p->pending;
    p->pending = p->writing;
    p->writing = o;
    pthread_rwlock_unlock(&p->lock);
    return write_writing(p, err);
}

enum status toast_pending_put(struct toast_pending *p, const struct toast_event *events, size_t n,
                              struct error *err)
{
    uint64_t births = 0;
    pthread_rwlock_wrlock(&p->lock);
    for (size_t i = 0; i < n; i++) {
        overlay_add(p->pending, &events[i]);
        births += events[i].kind == TOAST_BIRTH;
    }
    bool full = overlay_bytes(p->pending) >= p->bytes_max;
    pthread_rwlock_unlock(&p->lock);
    atomic_fetch_add(&p->put_chunks, births);
    if (!full)
        return OK;
    pthread_mutex_lock(&p->write_lock);
    pthread_rwlock_rdlock(&p->lock); /* another thread may have written meanwhile */
    full = overlay_bytes(p->pending) >= p->bytes_max;
    pthread_rwlock_unlock(&p->lock);
    enum status st = full ? write_all(p, err) : OK;
    pthread_mutex_unlock(&p->write_lock);
    return st;
}

static bool overlay_is_before(const struct overlay *o, XLogRecPtr floor)
{
    return o->first != NULL && o->min_lsn < floor;
}

enum status toast_pending_flush(struct toast_pending *p, XLogRecPtr floor, struct error *err)
{
    pthread_rwlock_rdlock(&p->lock);
    bool needed = overlay_is_before(p->pending, floor) || overlay_is_before(p->writing, floor);
    pthread_rwlock_unlock(&p->lock);
    return needed ? write_all(p, err) : OK;
}

size_t toast_pending_bytes(struct toast_pending *p)
{
    pthread_rwlock_rdlock(&p->lock);
    size_t bytes = overlay_bytes(p->pending) + overlay_bytes(p->writing);
    pthread_rwlock_unlock(&p->lock);
    return bytes;
}
