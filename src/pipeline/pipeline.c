#include "pipeline/pipeline.h"
#include "base/log.h"
#include "clickhouse/sql_quote.h"
#include "pipeline/target_internal.h"

#include <stdlib.h>

#define FEED_QUEUE_BYTES ((size_t)16 << 20)
#define JOB_QUEUE_BYTES ((size_t)16 << 20)

struct pipeline {
    struct pipeline_options options;
    struct budget budget;
    struct block_pool blocks;
    struct queue feed, jobs;
    size_t xact_buffer_max;
    struct destination **destinations;
    size_t ndestinations; /* opened, perhaps in part */
    struct tables *tables;
    struct worker_shared shared;
    struct reorder reorder;
    bool reorder_ready;
    pthread_t *workers;
    unsigned nworkers;
    pthread_t reorder_thread;
    bool reorder_started;
};

static struct destination_options destination_options_of(struct pipeline *p, size_t i)
{
    const struct config *c = p->options.config;
    const struct config_destination *cd = &c->destinations[i];
    return (struct destination_options){
        .name = cd->name,
        .null = cd->kind == DESTINATION_NULL,
        .endpoint = p->options.endpoints[i].ch,
        .inserters = (unsigned)c->pipeline.inserter_pool_size,
        .row_budget = (size_t)cd->row_budget,
        .byte_budget = (size_t)cd->byte_budget,
        .flush_ns = (uint64_t)cd->flush_timeout_ms * 1000000u,
        .budget = &p->budget,
        .blocks = &p->blocks,
        .fatal = p->options.fatal,
    };
}

static enum status target_unfit(void *ctx, const struct target *t, const char *why,
                                struct error *err)
{
    return tables_target_unfit(((struct pipeline *)ctx)->tables, t, why, err);
}

static enum status rejects_open(struct pipeline *p, size_t i, struct error *err)
{
    const struct config_destination *cd = &p->options.config->destinations[i];
    CLEANUP_BUF struct buf sql = {0};
    TRY(reject_target_new(cd->database, &p->shared.rejects[i], err));
    buf_printf(&sql, "CREATE DATABASE IF NOT EXISTS ");
    sql_quote_ident(&sql, cd->database);
    TRY(destination_execute(p->destinations[i], buf_cstr(&sql), err));
    buf_reset(&sql);
    reject_create_sql(p->shared.rejects[i], &sql);
    return destination_execute(p->destinations[i], buf_cstr(&sql), err);
}

static enum status destinations_open(struct pipeline *p, struct error *err)
{
    size_t n = p->options.config->ndestinations;
    p->destinations = xcalloc(n, sizeof(struct destination *));
    p->shared.rejects = xcalloc(n, sizeof(struct target *));
    for (size_t i = 0; i < n; i++) {
        struct destination_options o = destination_options_of(p, i);
        o.target_unfit = target_unfit;
        o.ctx = p;
        enum status st =
            destination_open(&o, p->options.endpoints[i].ack, &p->destinations[i], err);
        p->ndestinations++;
        TRY(st);
        TRY(rejects_open(p, i, err));
    }
    return OK;
}

static enum status workers_start(struct pipeline *p, struct error *err)
{
    unsigned n = (unsigned)p->options.config->pipeline.decoder_pool_size;
    p->workers = xcalloc(n, sizeof *p->workers);
    for (unsigned i = 0; i < n; i++) {
        if (pthread_create(&p->workers[i], NULL, worker_main, &p->shared) != 0)
            return error_sys(err, ERR_RETRY, "cannot start a thread");
        p->nworkers++;
    }
    return OK;
}

/* The feed and the transaction buffer have limits of their own within resident_payload_max. */
static void budget_open(struct pipeline *p)
{
    const struct config *c = p->options.config;
    size_t max = (size_t)c->memory.resident_payload_max;
    size_t feed = MIN(FEED_QUEUE_BYTES, max / 8);
    p->xact_buffer_max = MIN((size_t)c->memory.xact_buffer_max, max / 2 - feed);
    struct budget_limits limits =
        budget_limits_of(max, feed + p->xact_buffer_max, (size_t)c->memory.inline_value_max);
    budget_init(&p->budget, &limits);
    queue_init(&p->feed, feed);
}

enum status pipeline_open(const struct pipeline_options *options, struct pipeline **ret,
                          struct error *err)
{
    struct pipeline *p = xcalloc(1, sizeof *p);
    p->options = *options;
    *ret = p;
    budget_open(p);
    block_pool_init(&p->blocks);
    queue_init(&p->jobs, JOB_QUEUE_BYTES);
    TRY(destinations_open(p, err));
    p->tables = tables_new(&(struct tables_options){
        .config = options->config,
        .history = options->history,
        .destinations = p->destinations,
        .ndestinations = p->ndestinations,
        .system_id = options->system_id,
        .database_oid = options->database_oid,
    });
    p->shared.jobs = &p->jobs;
    p->shared.destinations = p->destinations;
    p->shared.ndestinations = p->ndestinations;
    p->shared.tables = p->tables;
    p->shared.budget = &p->budget;
    p->shared.blocks = &p->blocks;
    p->shared.fatal = options->fatal;
    p->shared.toast = options->toast != NULL ? options->toast : toast_store_open_disabled();
    p->shared.inline_value_max = (size_t)options->config->memory.inline_value_max;
    return workers_start(p, err);
}

static void end_survey(struct pipeline *p)
{
    for (size_t i = 0; i < p->ndestinations; i++) {
        target_survey_free(p->destinations[i]->survey);
        p->destinations[i]->survey = NULL;
    }
}

static enum status survey(struct pipeline *p, struct error *err)
{
    const struct tables_options *o = tables_options_of(p->tables);
    CLEANUP_FREE char *prefix =
        xasprintf("walshadow %llu/%u/", (unsigned long long)o->system_id, o->database_oid);
    for (size_t i = 0; i < p->ndestinations; i++)
        TRY(target_survey_take(p->destinations[i], prefix, &p->destinations[i]->survey, err));
    return OK;
}

enum status pipeline_add_tables(struct pipeline *p, XLogRecPtr lsn, enum tables_mode mode,
                                struct error *err)
{
    struct rel_desc **all;
    size_t n;
    enum status st = mode == TABLES_RESUME ? survey(p, err) : OK;
    history_all(p->options.history, lsn, &all, &n);
    for (size_t i = 0; i < n; i++) {
        if (st == OK)
            st = tables_add(p->tables, all[i], mode, lsn, err);
        rel_desc_unref(all[i]);
    }
    free(all);
    end_survey(p);
    return st;
}

enum status pipeline_start(struct pipeline *p, const struct reorder_options *options,
                           struct error *err)
{
    const struct config *c = p->options.config;
    p->reorder = (struct reorder){
        .options = *options,
        .feed = &p->feed,
        .jobs = &p->jobs,
        .destinations = p->destinations,
        .ndestinations = p->ndestinations,
        .tables = p->tables,
        .history = p->options.history,
        .budget = &p->budget,
        .fatal = p->options.fatal,
        .toast_store = p->shared.toast,
    };
    p->reorder.options.spill_dir = p->options.spill_dir;
    p->reorder.options.xact_buffer_max = p->xact_buffer_max;
    p->reorder.options.inline_value_max = (size_t)c->memory.inline_value_max;
    reorder_init(&p->reorder);
    p->reorder_ready = true;
    if (pthread_create(&p->reorder_thread, NULL, reorder_main, &p->reorder) != 0)
        return error_sys(err, ERR_RETRY, "cannot start a thread");
    p->reorder_started = true;
    return OK;
}

enum status pipeline_feed(struct pipeline *p, struct feed_batch *batch, struct error *err)
{
    size_t bytes = batch->frames.len;
    budget_buffered_add(&p->budget, bytes);
    enum status st = queue_push(&p->feed, batch, bytes + sizeof *batch, err);
    if (st != OK) {
        budget_buffered_sub(&p->budget, bytes);
        feed_batch_free(batch);
    }
    return st;
}

enum status pipeline_call(struct pipeline *p, reorder_fn fn, void *ctx, struct error *err)
{
    struct feed_call call = {.fn = fn, .ctx = ctx, .err = err};
    struct feed_batch *batch = xcalloc(1, sizeof *batch);
    pthread_mutex_init(&call.lock, NULL);
    pthread_cond_init(&call.ended, NULL);
    batch->call = &call;
    enum status st = pipeline_feed(p, batch, err);
    if (st == OK) {
        pthread_mutex_lock(&call.lock);
        while (!call.done)
            pthread_cond_wait(&call.ended, &call.lock);
        pthread_mutex_unlock(&call.lock);
        st = call.status;
    }
    pthread_cond_destroy(&call.ended);
    pthread_mutex_destroy(&call.lock);
    return st;
}

enum status pipeline_submit(struct pipeline *p, struct job *job, struct error *err)
{
    enum status st = queue_push(&p->jobs, job, job->bytes, err);
    if (st != OK)
        job->discard(job, &p->budget);
    return st;
}

static void workers_join(struct pipeline *p)
{
    queue_close(&p->jobs);
    for (unsigned i = 0; i < p->nworkers; i++)
        pthread_join(p->workers[i], NULL);
    p->nworkers = 0;
}

static void reorder_join(struct pipeline *p)
{
    queue_close(&p->feed);
    if (p->reorder_started)
        pthread_join(p->reorder_thread, NULL);
    p->reorder_started = false;
}

enum status pipeline_drain(struct pipeline *p, uint64_t deadline_ns, struct error *err)
{
    reorder_join(p);
    workers_join(p);
    for (size_t d = 0; d < p->ndestinations; d++)
        destination_close_input(p->destinations[d]);
    for (size_t d = 0; d < p->ndestinations; d++)
        TRY(ack_wait_all_until(p->destinations[d]->ack, deadline_ns, err));
    return OK;
}

void pipeline_cancel(struct pipeline *p)
{
    budget_close(&p->budget);
    queue_close(&p->feed);
    queue_close(&p->jobs);
    for (size_t d = 0; d < p->ndestinations; d++)
        destination_cancel(p->destinations[d]);
}

void pipeline_close(struct pipeline *p)
{
    if (p == NULL)
        return;
    reorder_join(p);
    workers_join(p);
    for (size_t d = 0; d < p->ndestinations; d++) {
        destination_free(p->destinations[d]);
        target_unref(p->shared.rejects[d]);
    }
    if (p->reorder_ready)
        reorder_fini(&p->reorder);
    tables_free(p->tables);
    queue_fini(&p->feed);
    queue_fini(&p->jobs);
    budget_fini(&p->budget);
    block_pool_fini(&p->blocks);
    free(p->shared.rejects);
    free(p->destinations);
    free(p->workers);
    free(p);
}

XLogRecPtr pipeline_floor(struct pipeline *p, XLogRecPtr *ret_acks)
{
    XLogRecPtr floor = UINT64_MAX;
    for (size_t d = 0; d < p->ndestinations; d++) {
        ret_acks[d] = ack_lsn(p->destinations[d]->ack);
        floor = MIN(floor, ret_acks[d]);
    }
    /* a transaction leaves the buffer only after its slices are registered: in this order none is
     * missed */
    if (p->reorder_ready)
        floor = MIN(floor, xact_buffer_oldest_lsn(p->reorder.xacts));
    for (size_t d = 0; d < p->ndestinations; d++)
        floor = MIN(floor, ack_pending_first(p->destinations[d]->ack));
    return floor;
}

struct tables *pipeline_tables(struct pipeline *p)
{
    return p->tables;
}

struct reorder *pipeline_reorder(struct pipeline *p)
{
    return &p->reorder;
}

struct budget *pipeline_budget(struct pipeline *p)
{
    return &p->budget;
}

struct toast_store *pipeline_toast(struct pipeline *p)
{
    return p->shared.toast;
}

size_t pipeline_destinations(struct pipeline *p, struct destination ***ret)
{
    *ret = p->destinations;
    return p->ndestinations;
}
