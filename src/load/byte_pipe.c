#include "load/byte_pipe.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct byte_pipe {
    pthread_mutex_t
        lock; /* guards all that follows; bytes in the ring belong to the side they are on */
    pthread_cond_t readable, writable;
    uint8_t *ring;
    size_t size, head, filled; /* head: where the reader is */
    size_t worth_waking;       /* to wake a thread costs more than to copy what a message brings */
    size_t lent;               /* bytes at head the reader still looks at */
    Oid tablespace_oid;
    bool open;      /* an archive is being written */
    bool announced; /* the reader has not taken this archive yet */
    bool closed, cancelled;
};

struct byte_pipe *byte_pipe_new(size_t max_bytes)
{
    struct byte_pipe *p = xcalloc(1, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->readable, NULL);
    pthread_cond_init(&p->writable, NULL);
    p->ring = xmalloc(max_bytes);
    p->size = max_bytes;
    p->worth_waking = max_bytes / 4;
    return p;
}

void byte_pipe_free(struct byte_pipe *p)
{
    if (p == NULL)
        return;
    pthread_cond_destroy(&p->readable);
    pthread_cond_destroy(&p->writable);
    pthread_mutex_destroy(&p->lock);
    free(p->ring);
    free(p);
}

static enum status cancelled(struct error *err)
{
    return error_set(err, ERR_CANCELLED, "the initial load was cancelled");
}

enum status byte_pipe_begin(struct byte_pipe *p, Oid tablespace_oid, struct error *err)
{
    pthread_mutex_lock(&p->lock);
    p->open = false;
    pthread_cond_signal(&p->readable);
    while ((p->filled > 0 || p->announced) && !p->cancelled)
        pthread_cond_wait(&p->writable, &p->lock);
    bool ok = !p->cancelled;
    p->open = p->announced = ok;
    p->tablespace_oid = tablespace_oid;
    pthread_cond_signal(&p->readable);
    pthread_mutex_unlock(&p->lock);
    return ok ? OK : cancelled(err);
}

enum status byte_pipe_write(struct byte_pipe *p, const uint8_t *bytes, size_t len,
                            struct error *err)
{
    while (len > 0) {
        pthread_mutex_lock(&p->lock);
        while (p->filled == p->size && !p->cancelled)
            pthread_cond_wait(&p->writable, &p->lock);
        if (p->cancelled || !p->open) {
            bool stop = p->cancelled;
            pthread_mutex_unlock(&p->lock);
            return stop ? cancelled(err)
                        : error_set(err, ERR_BUG, "backup bytes outside of an archive");
        }
        size_t tail = (p->head + p->filled) % p->size;
        size_t n = MIN(len, MIN(p->size - p->filled, p->size - tail));
        pthread_mutex_unlock(&p->lock);
        memcpy(p->ring + tail, bytes, n); /* only the writer adds, so the room stays */
        pthread_mutex_lock(&p->lock);
        p->filled += n;
        if (p->filled >=
            p->worth_waking) /* what is less waits for more, or for the archive's end */
            pthread_cond_signal(&p->readable);
        pthread_mutex_unlock(&p->lock);
        bytes += n;
        len -= n;
    }
    return OK;
}

void byte_pipe_close(struct byte_pipe *p)
{
    pthread_mutex_lock(&p->lock);
    p->open = false;
    p->closed = true;
    pthread_cond_broadcast(&p->readable);
    pthread_mutex_unlock(&p->lock);
}

/* Gives back what the last read lent out. */
static void lent_return(struct byte_pipe *p)
{
    p->head = (p->head + p->lent) % p->size;
    p->filled -= p->lent;
    if (p->lent > 0 && (p->filled == 0 || p->size - p->filled >= p->worth_waking))
        pthread_cond_signal(&p->writable);
    p->lent = 0;
}

enum status byte_pipe_next(struct byte_pipe *p, bool *ret_more, Oid *ret_tablespace_oid,
                           struct error *err)
{
    pthread_mutex_lock(&p->lock);
    lent_return(p);
    while (!p->announced && !p->closed && !p->cancelled)
        pthread_cond_wait(&p->readable, &p->lock);
    bool stop = p->cancelled;
    if (!stop) {
        *ret_more = p->announced;
        *ret_tablespace_oid = p->tablespace_oid;
        p->announced = false;
    }
    pthread_mutex_unlock(&p->lock);
    return stop ? cancelled(err) : OK;
}

enum status byte_pipe_read(struct byte_pipe *p, const uint8_t **ret, size_t *ret_len,
                           struct error *err)
{
    pthread_mutex_lock(&p->lock);
    lent_return(p);
    while (p->filled == 0 && p->open && !p->cancelled)
        pthread_cond_wait(&p->readable, &p->lock);
    bool stop = p->cancelled;
    p->lent = MIN(p->filled, p->size - p->head);
    *ret = p->ring + p->head;
    *ret_len = p->lent;
    pthread_mutex_unlock(&p->lock);
    return stop ? cancelled(err) : OK;
}

void byte_pipe_cancel(struct byte_pipe *p)
{
    pthread_mutex_lock(&p->lock);
    p->cancelled = true;
    pthread_cond_broadcast(&p->readable);
    pthread_cond_broadcast(&p->writable);
    pthread_mutex_unlock(&p->lock);
}
