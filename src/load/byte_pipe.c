#include "load/byte_pipe.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* To wake a thread costs more than to copy what a message brings: they go by the parcel. */
#define PARCEL_PIECES 64
#define PARCEL_BYTES ((size_t)256 << 10)

struct parcel {
    struct parcel *next;
    size_t bytes;
    unsigned n;
    struct byte_piece pieces[PARCEL_PIECES];
};

struct byte_memory {
    atomic_uint refs;
    void (*release)(void *memory);
    struct byte_piece piece;
};

struct byte_pipe {
    void (*release)(void *memory);
    size_t max_bytes;
    struct parcel *filling;   /* the writer's */
    struct parcel *reading;   /* the reader's */
    unsigned at;              /* its next piece; the one before is lent out */
    struct byte_memory *lent; /* that one's, if somebody asked */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t readable, writable;
    struct parcel *first, **last;
    size_t bytes; /* of those queued */
    Oid tablespace_oid;
    bool open;      /* an archive is being written */
    bool announced; /* the reader has not taken this archive yet */
    bool inside;    /* the reader has not seen the end of the one it took */
    bool closed, cancelled;
};

struct byte_pipe *byte_pipe_new(size_t max_bytes, void (*release)(void *memory))
{
    struct byte_pipe *p = xcalloc(1, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->readable, NULL);
    pthread_cond_init(&p->writable, NULL);
    p->release = release;
    p->max_bytes = max_bytes;
    p->last = &p->first;
    return p;
}

/* Its pieces from `from` on, and itself. */
static void parcel_free(struct byte_pipe *p, struct parcel *parcel, unsigned from)
{
    if (parcel == NULL)
        return;
    for (unsigned i = from; i < parcel->n; i++)
        p->release(parcel->pieces[i].memory);
    free(parcel);
}

/* What the last read lent out. */
static void take_back(struct byte_pipe *p)
{
    if (p->lent != NULL)
        byte_memory_unref(p->lent);
    else if (p->at > 0)
        p->release(p->reading->pieces[p->at - 1].memory);
    p->lent = NULL;
}

void byte_pipe_free(struct byte_pipe *p)
{
    if (p == NULL)
        return;
    for (struct parcel *parcel = p->first, *next; parcel != NULL; parcel = next) {
        next = parcel->next;
        parcel_free(p, parcel, 0);
    }
    parcel_free(p, p->filling, 0);
    take_back(p);
    parcel_free(p, p->reading, p->at);
    pthread_cond_destroy(&p->readable);
    pthread_cond_destroy(&p->writable);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static enum status cancelled(struct error *err)
{
    return error_set(err, ERR_CANCELLED, "the initial load was cancelled");
}

/* Under the lock. */
static void queue_filling(struct byte_pipe *p)
{
    struct parcel *parcel = p->filling;
    p->filling = NULL;
    if (parcel == NULL)
        return;
    *p->last = parcel;
    p->last = &parcel->next;
    p->bytes += parcel->bytes;
}

enum status byte_pipe_begin(struct byte_pipe *p, Oid tablespace_oid, struct error *err)
{
    pthread_mutex_lock(&p->lock);
    queue_filling(p);
    p->open = false;
    pthread_cond_signal(&p->readable);
    while ((p->first != NULL || p->announced || p->inside) && !p->cancelled)
        pthread_cond_wait(&p->writable, &p->lock);
    bool ok = !p->cancelled;
    p->open = p->announced = ok;
    p->tablespace_oid = tablespace_oid;
    pthread_cond_signal(&p->readable);
    pthread_mutex_unlock(&p->lock);
    return ok ? OK : cancelled(err);
}

static enum status parcel_send(struct byte_pipe *p, struct error *err)
{
    pthread_mutex_lock(&p->lock);
    while (p->bytes >= p->max_bytes && !p->cancelled)
        pthread_cond_wait(&p->writable, &p->lock);
    bool stop = p->cancelled, outside = !p->open;
    if (!stop && !outside)
        queue_filling(p);
    pthread_cond_signal(&p->readable);
    pthread_mutex_unlock(&p->lock);
    if (stop)
        return cancelled(err);
    return outside ? error_set(err, ERR_BUG, "backup bytes outside of an archive") : OK;
}

enum status byte_pipe_write(struct byte_pipe *p, struct byte_piece piece, struct error *err)
{
    struct parcel *parcel = p->filling;
    if (piece.len == 0) { /* to the reader that is the end */
        p->release(piece.memory);
        return OK;
    }
    if (parcel == NULL) {
        parcel = p->filling = xmalloc(sizeof *parcel);
        parcel->next = NULL;
        parcel->bytes = parcel->n = 0;
    }
    parcel->pieces[parcel->n++] = piece;
    parcel->bytes += piece.len;
    if (parcel->n == PARCEL_PIECES || parcel->bytes >= PARCEL_BYTES)
        return parcel_send(p, err);
    return OK;
}

void byte_pipe_close(struct byte_pipe *p)
{
    pthread_mutex_lock(&p->lock);
    queue_filling(p);
    p->open = false;
    p->closed = true;
    pthread_cond_broadcast(&p->readable);
    pthread_mutex_unlock(&p->lock);
}

enum status byte_pipe_next(struct byte_pipe *p, bool *ret_more, Oid *ret_tablespace_oid,
                           struct error *err)
{
    pthread_mutex_lock(&p->lock);
    while (!p->announced && !p->closed && !p->cancelled)
        pthread_cond_wait(&p->readable, &p->lock);
    bool stop = p->cancelled;
    if (!stop) {
        *ret_more = p->announced;
        *ret_tablespace_oid = p->tablespace_oid;
        p->inside = p->announced;
        p->announced = false;
    }
    pthread_mutex_unlock(&p->lock);
    return stop ? cancelled(err) : OK;
}

/* NULL in p->reading: the archive's end, or cancelled. */
static bool parcel_take(struct byte_pipe *p)
{
    pthread_mutex_lock(&p->lock);
    while (p->first == NULL && p->open && !p->cancelled)
        pthread_cond_wait(&p->readable, &p->lock);
    bool stop = p->cancelled;
    struct parcel *parcel = stop ? NULL : p->first;
    if (parcel != NULL) {
        p->first = parcel->next;
        p->last = p->first == NULL ? &p->first : p->last;
        p->bytes -= parcel->bytes;
    }
    p->inside = parcel != NULL;
    pthread_cond_signal(&p->writable);
    pthread_mutex_unlock(&p->lock);
    p->reading = parcel;
    p->at = 0;
    return !stop;
}

enum status byte_pipe_read(struct byte_pipe *p, const uint8_t **ret, size_t *ret_len,
                           struct error *err)
{
    take_back(p);
    if (p->reading != NULL && p->at == p->reading->n) {
        free(p->reading);
        p->reading = NULL;
        p->at = 0;
    }
    if (p->reading == NULL && !parcel_take(p))
        return cancelled(err);
    *ret_len = 0;
    if (p->reading == NULL)
        return OK;
    *ret = p->reading->pieces[p->at].bytes;
    *ret_len = p->reading->pieces[p->at++].len;
    return OK;
}

struct byte_memory *byte_pipe_lent(struct byte_pipe *p, const uint8_t *bytes, size_t len)
{
    if (p->at == 0)
        return NULL;
    const struct byte_piece *piece = &p->reading->pieces[p->at - 1];
    uintptr_t from = (uintptr_t)piece->bytes, at = (uintptr_t)bytes;
    if (at < from || at - from > piece->len || len > piece->len - (at - from))
        return NULL;
    if (p->lent == NULL) {
        p->lent = xmalloc(sizeof *p->lent);
        *p->lent = (struct byte_memory){.release = p->release, .piece = *piece};
        atomic_init(&p->lent->refs, 1);
    }
    return p->lent;
}

struct byte_memory *byte_memory_ref(struct byte_memory *m)
{
    atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
    return m;
}

void byte_memory_unref(struct byte_memory *m)
{
    if (atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1)
        return;
    m->release(m->piece.memory);
    free(m);
}

size_t byte_memory_len(const struct byte_memory *m)
{
    return m->piece.len;
}

void byte_pipe_cancel(struct byte_pipe *p)
{
    pthread_mutex_lock(&p->lock);
    p->cancelled = true;
    pthread_cond_broadcast(&p->readable);
    pthread_cond_broadcast(&p->writable);
    pthread_mutex_unlock(&p->lock);
}
