#include "load/job.h"

#include <stdlib.h>
#include <uthash.h>

#define ROWS_PER_PAGE 60 /* a guess that sizes blocks */

struct load_route {
    Oid oid;
    struct route *route;
    UT_hash_handle hh;
};

struct load_jobs {
    struct pipeline *pipeline;
    struct load *load;
    struct ack **acks;
    size_t ndestinations;
    XLogRecPtr lsn;
    struct load_route *routes; /* complete before the first job */
};

struct load_job {
    struct job job;
    struct load_jobs *owner;
    struct page_batch *batch;
    const struct route *route;
    struct budget_permit permit;
    uint64_t seqs[];
};

struct emit_context {
    struct worker *worker;
    struct load_job *job;
};

struct load_jobs *load_jobs_new(struct pipeline *pipeline, struct load *load,
                                struct ack *const *acks, XLogRecPtr lsn)
{
    struct load_jobs *j = xcalloc(1, sizeof *j);
    struct destination **destinations;
    j->pipeline = pipeline;
    j->load = load;
    j->lsn = lsn;
    j->ndestinations = pipeline_destinations(pipeline, &destinations);
    j->acks = xcalloc(j->ndestinations, sizeof(struct ack *));
    for (size_t d = 0; d < j->ndestinations; d++)
        j->acks[d] = acks[d];
    return j;
}

void load_jobs_free(struct load_jobs *j)
{
    struct load_route *r, *next;
    if (j == NULL)
        return;
    HASH_ITER (hh, j->routes, r, next) {
        HASH_DEL(j->routes, r);
        route_unref(r->route);
        free(r);
    }
    free(j->acks);
    free(j);
}

void load_jobs_add(struct load_jobs *j, struct rel_desc *desc)
{
    struct load_route *r = xcalloc(1, sizeof *r);
    r->oid = desc->oid;
    r->route = route_new(pipeline_tables(j->pipeline), desc, false);
    HASH_ADD(hh, j->routes, oid, sizeof r->oid, r);
}

static enum status emit(void *ctx, const struct rel_desc *desc, const struct raw_tuple *tuple,
                        uint64_t tid, TransactionId xmin, struct error *err)
{
    struct emit_context *e = ctx;
    const struct route *route = e->job->route;
    const struct row_meta meta = {.lsn = e->job->owner->lsn, .xid = xmin, .tid = tid};
    (void)desc;
    if (!route_is_live(route))
        return OK;
    return worker_add_new(e->worker, route, tuple, NULL, 0, &meta, err);
}

static void job_free(struct load_job *job, struct budget *budget)
{
    budget_release(budget, &job->permit);
    page_batch_free(job->batch);
    free(job);
}

static void job_discard(struct job *job, struct budget *budget)
{
    job_free((struct load_job *)job, budget);
}

static void job_run(struct worker *w, struct job *job)
{
    struct load_job *l = (struct load_job *)job;
    struct load_jobs *owner = l->owner;
    struct error err = {0};
    struct emit_context e = {w, l};
    enum status st = OK;
    w->rows_hint = l->batch->npages * ROWS_PER_PAGE + 16;
    if (l->route != NULL && route_is_live(l->route))
        st = page_batch_walk(l->batch, owner->load, emit, &e, &err);
    if (st == ERR_DATA) { /* a damaged page: this table ends, the load goes on */
        st = tables_stop(w->shared->tables, l->route->table->oid, owner->lsn, err.message, &err);
        worker_discard(w);
    }
    if (st == OK) {
        st = worker_finish(w, owner->acks, l->seqs, &l->permit, &err);
    } else {
        worker_discard(w);
    }
    job_free(l, w->shared->budget);
    if (st != OK)
        fatal_raise(w->shared->fatal, &err);
}

enum status load_jobs_submit(struct load_jobs *j, struct page_batch *batch, struct error *err)
{
    struct load_route *r;
    struct budget *budget = pipeline_budget(j->pipeline);
    size_t bytes = 2 * page_batch_bytes(batch);
    struct budget_permit permit = {0};
    enum status st = budget_admit(budget, bytes, &permit, err);
    if (st != OK) {
        page_batch_free(batch);
        return st;
    }
    struct load_job *job = xcalloc(1, sizeof *job + j->ndestinations * sizeof job->seqs[0]);
    HASH_FIND(hh, j->routes, &batch->desc->oid, sizeof batch->desc->oid, r);
    job->job = (struct job){.run = job_run, .discard = job_discard, .bytes = bytes};
    job->owner = j;
    job->batch = batch;
    job->route = r == NULL ? NULL : r->route;
    job->permit = permit;
    for (size_t d = 0; d < j->ndestinations; d++)
        job->seqs[d] = ack_register(j->acks[d], j->lsn);
    return pipeline_submit(j->pipeline, &job->job, err);
}
