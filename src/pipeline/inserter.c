/* Sends batches: one INSERT each, acknowledged only after the end of its stream. What cannot be
 * sent for want of a server is sent again, unchanged, until it is; `_lsn` makes a second copy
 * harmless. */
#include "clickhouse/error_class.h"
#include "base/fault.h"
#include "base/log.h"
#include "pipeline/destination.h"
#include "table/insert_settings.h"

#include <stdlib.h>

#define BACKOFF_FIRST_MS 100u
#define BACKOFF_MAX_MS 30000u

struct inserter {
    struct destination *d;
    unsigned index;        /* of its client in d->clients */
    struct block **blocks; /* scratch */
    size_t cap;
};

bool destination_retryable(const struct error *err)
{
    if (err->kind == ERR_CANCELLED)
        return false;
    if (err->ch_code != 0) {
        enum ch_error_class class = ch_error_classify(err->ch_code, err->message);
        return class == CH_ERROR_RETRY || class == CH_ERROR_RECONNECT_ONCE;
    }
    return err->kind == ERR_RETRY;
}

static void client_set(struct inserter *in, struct ch_client *c)
{
    struct destination *d = in->d;
    pthread_mutex_lock(&d->clients_lock);
    struct ch_client *old = d->clients[in->index];
    d->clients[in->index] = c;
    if (c != NULL && atomic_load(&d->stopping))
        ch_client_interrupt(c);
    pthread_mutex_unlock(&d->clients_lock);
    ch_client_close(old);
}

static enum status send_once(struct inserter *in, const struct batch *b, struct error *err)
{
    struct destination *d = in->d;
    struct ch_client *c = d->clients[in->index];
    size_t n = 0;
    if (c == NULL || ch_client_broken(c)) {
        client_set(in, NULL);
        TRY(ch_client_open(&d->options.endpoint, &c, err));
        client_set(in, c);
    }
    if (in->cap < b->nblocks) {
        in->cap = b->nblocks;
        in->blocks = xrealloc(in->blocks, in->cap * sizeof(struct block *));
    }
    for (struct block_item *i = b->items; i != NULL; i = i->next)
        in->blocks[n++] = i->block;
    destination_flight_begin(d, in->index, b->target->table, b->rows);
    enum status st = ch_client_insert(c, b->target->insert_sql, b->target->header, in->blocks, n,
                                      insert_settings, insert_settings_count, err);
    destination_flight_end(d, in->index);
    return st;
}

static enum status send_until_done(struct inserter *in, const struct batch *b, struct error *err)
{
    struct destination *d = in->d;
    unsigned backoff = BACKOFF_FIRST_MS;
    for (unsigned tries = 1;; tries++) {
        if (atomic_load(&d->stopping))
            return error_set(err, ERR_CANCELLED, "stopping");
        enum status st = send_once(in, b, err);
        if (st == OK)
            break;
        if (st == ERR_CANCELLED)
            return st;
        atomic_fetch_add(&d->errors, 1);
        destination_note_error(d, err);
        if (!destination_retryable(err)) {
            error_prefix(err, "destination %s, table %s.%s", d->options.name, b->target->database,
                         b->target->table);
            return st;
        }
        char text[300];
        snprintf(text, sizeof text, "destination %s: %.180s, retry %u in %u ms", d->options.name,
                 err->message, tries, backoff);
        destination_note_waiting(d, text);
        log_warn("msg=\"insert failed, it is sent again\" destination=%s table=%s retry_ms=%u "
                 "error=%s",
                 d->options.name, LOG_Q(b->target->table), backoff, LOG_Q(err->message));
        client_set(in, NULL);
        destination_sleep(d, backoff);
        backoff = MIN(2 * backoff, BACKOFF_MAX_MS);
    }
    destination_note_waiting(d, NULL);
    return OK;
}

/* Rows that went nowhere (counted false) are acknowledged as well: their table is copied again. */
static void acknowledge(struct destination *d, struct batch *b, bool counted)
{
    for (struct block_item *i = b->items, *next; i != NULL; i = next) {
        struct ack *ack = i->ack;
        uint64_t seq = i->seq;
        next = i->next;
        if (i->rows_counter != NULL && counted)
            atomic_fetch_add(i->rows_counter, i->block->rows);
        block_item_free(d->options.blocks, d->options.budget, i);
        ack_done(ack, seq, 1);
    }
    if (counted) {
        atomic_fetch_add(&d->rows, b->rows);
        atomic_fetch_add(&d->inserts, 1);
    }
    b->items = NULL;
}

static bool is_unfit(const struct batch *b, enum status st, const struct error *err)
{
    return st != OK && st != ERR_CANCELLED && err->ch_code != 0 &&
           b->target->rel_oid != InvalidOid &&
           ch_error_classify(err->ch_code, err->message) == CH_ERROR_SCHEMA;
}

static enum status insert_batch(struct inserter *in, struct batch *b, struct error *err)
{
    struct destination *d = in->d;
    uint64_t start = clock_now_ns();
    if (!d->options.null) {
        enum status st = send_until_done(in, b, err);
        if (is_unfit(b, st, err) && d->options.target_unfit != NULL) {
            struct error why = *err;
            TRY(d->options.target_unfit(d->options.ctx, b->target, why.message, err));
            acknowledge(d, b, false);
            return OK;
        }
        TRY(st);
        uint64_t took = clock_now_ns() - start;
        uint64_t mean = atomic_load(&d->insert_ns);
        atomic_store(&d->insert_ns, mean == 0 ? took : (mean * 7 + took) / 8);
    }
    FAULT_POINT("insert-before-ack");
    acknowledge(d, b, true);
    FAULT_POINT("insert-after-ack");
    return OK;
}

void *destination_inserter_main(void *arg)
{
    struct inserter *in = arg;
    struct destination *d = in->d;
    struct batch *b;
    bool failed = false;
    pthread_setname_np(pthread_self(), "inserter");
    while ((b = queue_pop(&d->batches)) != NULL) {
        struct error err;
        if (!failed && insert_batch(in, b, &err) != OK) {
            failed = true;
            fatal_raise(d->options.fatal, &err);
            queue_close(&d->batches);
        }
        batch_free(d->options.blocks, d->options.budget, b);
    }
    client_set(in, NULL);
    free(in->blocks);
    free(in);
    return NULL;
}

void *destination_inserter_new(struct destination *d, unsigned index)
{
    struct inserter *in = xcalloc(1, sizeof *in);
    in->d = d;
    in->index = index;
    return in;
}
