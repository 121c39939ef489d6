#include "source/reader.h"

#include "base/queue.h"

#include <pthread.h>
#include <stdlib.h>

/* Some of the source's messages, which hold 128 KB at most. */
#define AHEAD_BYTES ((size_t)2 << 20)

struct received {
    enum status status;
    struct error error; /* status != OK: the last item */
    struct source_chunk chunk;
    char *message; /* libpq's, behind chunk.data */
};

struct source_reader {
    struct source_repl *repl;
    struct queue queue;
    pthread_t thread;
    /* the receiver's */
    struct received *current; /* what the last chunk points into, or the last item */
};

static void received_free(struct received *m)
{
    if (m == NULL)
        return;
    PQfreemem(m->message);
    free(m);
}

static void *reader_main(void *arg)
{
    struct source_reader *r = arg;
    bool last = false;
    pthread_setname_np(pthread_self(), "source");
    while (!last) {
        struct received *m = xcalloc(1, sizeof *m);
        m->status = source_repl_receive(r->repl, UINT64_MAX, &m->chunk, &m->error);
        m->message = source_repl_take_message(r->repl);
        last = m->status != OK || m->chunk.kind == SOURCE_CHUNK_ENDED;
        struct error ignored;
        if (queue_push(&r->queue, m, sizeof *m + m->chunk.len, &ignored) != OK) {
            received_free(m); /* it is being stopped */
            break;
        }
    }
    return NULL;
}

enum status source_reader_start(struct source_repl *repl, struct source_reader **ret,
                                struct error *err)
{
    struct source_reader *r = xcalloc(1, sizeof *r);
    r->repl = repl;
    queue_init(&r->queue, AHEAD_BYTES);
    int rc = pthread_create(&r->thread, NULL, reader_main, r);
    if (rc != 0) {
        queue_fini(&r->queue);
        free(r);
        return error_set(err, ERR_RETRY, "cannot start a thread: error %d", rc);
    }
    *ret = r;
    return OK;
}

void source_reader_stop(struct source_reader *r)
{
    if (r == NULL)
        return;
    source_repl_wake(r->repl);
    queue_close(&r->queue);
    pthread_join(r->thread, NULL);
    for (struct received *m; (m = queue_pop(&r->queue)) != NULL;)
        received_free(m);
    received_free(r->current);
    queue_fini(&r->queue);
    free(r);
}

static bool is_last(const struct received *m)
{
    return m != NULL && (m->status != OK || m->chunk.kind == SOURCE_CHUNK_ENDED);
}

enum status source_reader_receive(struct source_reader *r, uint64_t deadline_ns,
                                  struct source_chunk *ret, struct error *err)
{
    if (source_repl_is_woken(r->repl))
        return error_set(err, ERR_CANCELLED, "stopping");
    if (!is_last(r->current)) {
        bool closed;
        received_free(r->current);
        r->current = queue_pop_until(&r->queue, deadline_ns, &closed);
        if (r->current == NULL) {
            *ret = (struct source_chunk){.kind = SOURCE_CHUNK_NONE};
            return OK;
        }
    }
    *ret = r->current->chunk;
    if (r->current->status != OK && err != NULL)
        *err = r->current->error;
    return r->current->status;
}
