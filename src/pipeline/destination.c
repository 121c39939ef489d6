#include "pipeline/destination.h"
#include "base/fault.h"
#include "base/log.h"
#include "table/insert_settings.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BLOCK_QUEUE_BYTES ((size_t)8 << 20)
#define BATCH_QUEUE_BYTES ((size_t)16 << 20)
#define DDL_BACKOFF_MAX_MS 30000u
#define FLIGHT_TELL_NS UINT64_C(2000000000) /* an answer may take so long */

void destination_note_error(struct destination *d, const struct error *err)
{
    pthread_mutex_lock(&d->text_lock);
    snprintf(d->last_error, sizeof d->last_error, "%.299s", err->message);
    pthread_mutex_unlock(&d->text_lock);
}

void destination_note_waiting(struct destination *d, const char *text)
{
    pthread_mutex_lock(&d->text_lock);
    snprintf(d->waiting_on, sizeof d->waiting_on, "%.299s", text == NULL ? "" : text);
    pthread_mutex_unlock(&d->text_lock);
}

void destination_flight_begin(struct destination *d, unsigned index, const char *what,
                              uint64_t rows)
{
    struct flight *f = &d->flights[index];
    pthread_mutex_lock(&d->text_lock);
    f->since_ns = clock_now_ns();
    f->rows = rows;
    snprintf(f->what, sizeof f->what, "%.99s", what);
    pthread_mutex_unlock(&d->text_lock);
}

void destination_flight_end(struct destination *d, unsigned index)
{
    pthread_mutex_lock(&d->text_lock);
    d->flights[index].since_ns = 0;
    pthread_mutex_unlock(&d->text_lock);
}

/* With the text lock held: the one that is out longest. */
static const struct flight *oldest_flight(const struct destination *d)
{
    const struct flight *oldest = NULL;
    for (unsigned i = 0; i <= d->options.inserters; i++) {
        const struct flight *f = &d->flights[i];
        if (f->since_ns != 0 && (oldest == NULL || f->since_ns < oldest->since_ns))
            oldest = f;
    }
    return oldest;
}

void destination_waiting(struct destination *d, char *text, size_t cap)
{
    uint64_t now = clock_now_ns();
    pthread_mutex_lock(&d->text_lock);
    const struct flight *f = oldest_flight(d);
    snprintf(text, cap, "%s", d->waiting_on);
    if (text[0] == '\0' && f != NULL && now > f->since_ns + FLIGHT_TELL_NS) {
        unsigned long long seconds = (now - f->since_ns) / 1000000000u;
        if (f->rows > 0)
            snprintf(text, cap, "destination %s: INSERT of %llu rows into %s, for %llu s",
                     d->options.name, (unsigned long long)f->rows, f->what, seconds);
        else
            snprintf(text, cap, "destination %s: statement %s, for %llu s", d->options.name,
                     f->what, seconds);
    }
    pthread_mutex_unlock(&d->text_lock);
}

void destination_sleep(struct destination *d, unsigned ms)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ms / 1000 + (until.tv_nsec + (long)(ms % 1000) * 1000000) / 1000000000;
    until.tv_nsec = (until.tv_nsec + (long)(ms % 1000) * 1000000) % 1000000000;
    pthread_mutex_lock(&d->text_lock);
    while (!atomic_load(&d->stopping) &&
           pthread_cond_timedwait(&d->stopped, &d->text_lock, &until) == 0)
        ;
    pthread_mutex_unlock(&d->text_lock);
}

/* Under clients_lock, so that cancel can interrupt it. */
static void ddl_set(struct destination *d, struct ch_client *c)
{
    pthread_mutex_lock(&d->clients_lock);
    struct ch_client *old = d->ddl;
    d->ddl = c;
    if (c != NULL && atomic_load(&d->stopping))
        ch_client_interrupt(c);
    pthread_mutex_unlock(&d->clients_lock);
    ch_client_close(old);
}

static enum status ddl_open(struct destination *d, struct error *err)
{
    struct ch_client *c = NULL;
    TRY(ch_client_open(&d->options.endpoint, &c, err));
    ddl_set(d, c);
    return OK;
}

typedef enum status (*statement_fn)(struct destination *d, void *ctx, struct error *err);

/* One statement on the connection for statements, again while the server cannot be reached. */
static enum status with_ddl(struct destination *d, statement_fn fn, void *ctx, struct error *err)
{
    unsigned backoff = 100;
    enum status st = OK;
    pthread_mutex_lock(&d->ddl_lock);
    for (;;) {
        if (atomic_load(&d->stopping)) {
            st = error_set(err, ERR_CANCELLED, "stopping");
            break;
        }
        if (d->ddl != NULL && ch_client_broken(d->ddl))
            ddl_set(d, NULL);
        st = d->ddl == NULL ? ddl_open(d, err) : OK;
        if (st == OK)
            st = fn(d, ctx, err);
        if (st == OK || !destination_retryable(err))
            break;
        atomic_fetch_add(&d->errors, 1);
        destination_note_error(d, err);
        char text[300];
        snprintf(text, sizeof text, "destination %s: %.200s, retry in %u ms", d->options.name,
                 err->message, backoff);
        destination_note_waiting(d, text);
        log_warn("msg=\"statement failed, it is tried again\" destination=%s retry_ms=%u error=%s",
                 d->options.name, backoff, LOG_Q(err->message));
        ddl_set(d, NULL);
        destination_sleep(d, backoff);
        backoff = MIN(2 * backoff, DDL_BACKOFF_MAX_MS);
    }
    destination_note_waiting(d, NULL);
    pthread_mutex_unlock(&d->ddl_lock);
    if (st != OK && st != ERR_CANCELLED)
        error_prefix(err, "destination %s", d->options.name);
    return st;
}

static enum status execute_once(struct destination *d, void *ctx, struct error *err)
{
    FAULT_POINT("statement-before");
    destination_flight_begin(d, d->options.inserters, ctx, 0);
    enum status st = ch_client_execute(d->ddl, ctx, ddl_settings, ddl_settings_count, err);
    destination_flight_end(d, d->options.inserters);
    TRY(st);
    FAULT_POINT("statement-after");
    return OK;
}

enum status destination_execute(struct destination *d, const char *sql, struct error *err)
{
    if (d->options.null)
        return OK;
    log_debug("msg=statement destination=%s sql=%s", d->options.name, LOG_Q(sql));
    return with_ddl(d, execute_once, (void *)(uintptr_t)sql, err);
}

enum status destination_execute_once(struct destination *d, const char *sql, struct error *err)
{
    enum status st = OK;
    if (d->options.null)
        return OK;
    log_debug("msg=statement destination=%s sql=%s", d->options.name, LOG_Q(sql));
    pthread_mutex_lock(&d->ddl_lock);
    if (d->ddl != NULL && ch_client_broken(d->ddl))
        ddl_set(d, NULL);
    if (d->ddl == NULL)
        st = ddl_open(d, err);
    if (st == OK)
        st = execute_once(d, (void *)(uintptr_t)sql, err);
    pthread_mutex_unlock(&d->ddl_lock);
    return st == OK ? OK : error_prefix(err, "destination %s", d->options.name);
}

struct select_call {
    const char *sql;
    ch_row_fn fn;
    void *ctx;
};

static enum status select_once(struct destination *d, void *ctx, struct error *err)
{
    struct select_call *call = ctx;
    return ch_client_select(d->ddl, call->sql, NULL, 0, call->fn, call->ctx, err);
}

enum status destination_select(struct destination *d, const char *sql, ch_row_fn fn, void *ctx,
                               struct error *err)
{
    struct select_call call = {sql, fn, ctx};
    return d->options.null ? OK : with_ddl(d, select_once, &call, err);
}

/* The first connection tells what the server can hold. */
static enum status learn_server(struct destination *d, void *ctx, struct error *err)
{
    const struct ch_server_info *s = ch_client_server(d->ddl);
    (void)ctx;
    if (s->major < 23 || (s->major == 23 && s->minor < 2))
        return error_set(err, ERR_CONFIG,
                         "ClickHouse %u.%u is too old: ReplacingMergeTree with is_deleted needs "
                         "23.2 or newer",
                         s->major, s->minor);
    d->caps.wide_dates = s->major > 26 || (s->major == 26 && s->minor >= 7);
    d->caps.time64 = s->major > 25 || (s->major == 25 && s->minor >= 6);
    return OK;
}

static enum status connect_first(struct destination *d, struct error *err)
{
    if (d->options.null) {
        d->caps = (struct ch_caps){.wide_dates = true, .time64 = true};
        return OK;
    }
    /* the target database need not exist yet: this connection names none */
    TRY(with_ddl(d, learn_server, NULL, err));
    log_info("msg=\"destination connected\" destination=%s", d->options.name);
    return OK;
}

static enum status threads_start(struct destination *d, struct error *err)
{
    if (pthread_create(&d->batcher, NULL, destination_batcher_main, d) != 0)
        return error_sys(err, ERR_RETRY, "cannot start a thread");
    d->batcher_started = true;
    for (unsigned i = 0; i < d->options.inserters; i++) {
        void *arg = destination_inserter_new(d, i);
        if (pthread_create(&d->inserters[i], NULL, destination_inserter_main, arg) != 0) {
            free(arg);
            return error_sys(err, ERR_RETRY, "cannot start a thread");
        }
        d->ninserters++;
    }
    return OK;
}

enum status destination_open(const struct destination_options *options, XLogRecPtr ack_start,
                             struct destination **ret, struct error *err)
{
    struct destination *d = xcalloc(1, sizeof *d);
    d->options = *options;
    d->ack = ack_new(ack_start);
    d->inserters = xcalloc(options->inserters, sizeof *d->inserters);
    d->clients = xcalloc(options->inserters, sizeof(struct ch_client *));
    d->flights = xcalloc(options->inserters + 1u, sizeof *d->flights);
    queue_init(&d->blocks, BLOCK_QUEUE_BYTES);
    queue_init(&d->batches, BATCH_QUEUE_BYTES);
    pthread_mutex_init(&d->ddl_lock, NULL);
    pthread_mutex_init(&d->clients_lock, NULL);
    pthread_mutex_init(&d->text_lock, NULL);
    pthread_cond_init(&d->stopped, NULL);
    *ret = d; /* already known to whoever cancels: connecting may take long */
    enum status st = connect_first(d, err);
    if (st == OK)
        st = threads_start(d, err);
    return st;
}

enum status destination_push(struct destination *d, struct block_item *item, struct error *err)
{
    enum status st = queue_push(&d->blocks, item, item->bytes, err);
    if (st != OK)
        block_item_free(d->options.blocks, d->options.budget, item);
    return st;
}

enum status destination_barrier(struct destination *d, struct ack *ack, struct error *err)
{
    atomic_fetch_add(&d->flush_now, 1);
    destination_batcher_wake(d);
    enum status st = ack_wait_all(ack, err);
    atomic_fetch_sub(&d->flush_now, 1);
    return st;
}

void destination_close_input(struct destination *d)
{
    queue_close(&d->blocks);
}

void destination_cancel(struct destination *d)
{
    pthread_mutex_lock(&d->text_lock);
    atomic_store(&d->stopping, true);
    pthread_cond_broadcast(&d->stopped);
    pthread_mutex_unlock(&d->text_lock);
    pthread_mutex_lock(&d->clients_lock);
    if (d->ddl != NULL)
        ch_client_interrupt(d->ddl);
    for (unsigned i = 0; i < d->options.inserters; i++)
        if (d->clients[i] != NULL)
            ch_client_interrupt(d->clients[i]);
    pthread_mutex_unlock(&d->clients_lock);
    queue_close(&d->blocks);
    queue_close(&d->batches);
    ack_cancel(d->ack);
}

void destination_free(struct destination *d)
{
    if (d == NULL)
        return;
    queue_close(&d->blocks);
    if (d->batcher_started)
        pthread_join(d->batcher, NULL);
    queue_close(&d->batches);
    for (unsigned i = 0; i < d->ninserters; i++)
        pthread_join(d->inserters[i], NULL);
    ch_client_close(d->ddl);
    queue_fini(&d->blocks);
    queue_fini(&d->batches);
    pthread_mutex_destroy(&d->ddl_lock);
    pthread_mutex_destroy(&d->clients_lock);
    pthread_mutex_destroy(&d->text_lock);
    pthread_cond_destroy(&d->stopped);
    ack_free(d->ack);
    free(d->inserters);
    free(d->clients);
    free(d->flights);
    free(d);
}
