#include "load/job.h"
#include "toast/chunk.h"

#include <stdlib.h>
#include <uthash.h>

#define ROWS_PER_PAGE 60 /* a guess that sizes blocks */
#define CHUNKS_MAX 64u   /* put at once */

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
    bool keeps_chunks;
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
    struct datum *datums; /* scratch, made when a row needs it */
    struct toast_event events[CHUNKS_MAX];
    unsigned nevents;
};

struct load_jobs *load_jobs_new(struct pipeline *pipeline, struct load *load,
                                struct ack *const *acks, XLogRecPtr lsn, bool keeps_chunks)
{
    struct load_jobs *j = xcalloc(1, sizeof *j);
    struct destination **destinations;
    j->pipeline = pipeline;
    j->load = load;
    j->lsn = lsn;
    j->keeps_chunks = keeps_chunks;
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

/* What was put of a row before it was certain that it stays comes before what is. */
static XLogRecPtr row_lsn(const struct load_jobs *j, enum load_row_kind kind)
{
    return j->lsn - LOAD_ROW_LIVE + kind;
}

/* A row with values out of line: their chunks may lie in a file that is still to come. */
static enum status keep_row(struct emit_context *e, enum load_row_kind kind,
                            const struct raw_tuple *tuple, uint64_t tid, TransactionId xid,
                            struct error *err)
{
    const struct page_batch *batch = e->job->batch;
    const struct rel_desc *desc = batch->desc;
    size_t max = e->worker->shared->inline_value_max;
    struct load_toasted_row row = {.raw = *tuple, .tid = tid, .xid = xid, .kind = (uint8_t)kind};
    if (e->datums == NULL)
        e->datums = xmalloc((desc->natts + 1u) * sizeof *e->datums);
    TRY(tuple_deform(desc->shape, tuple, e->datums, err));
    for (unsigned i = 0; i < desc->natts; i++) {
        struct toast_pointer p;
        if (e->datums[i].state != DATUM_EXTERNAL)
            continue;
        TRY(toast_pointer_parse(&e->datums[i], &p, err));
        if (p.rawsize <= max && p.extsize <= max)
            row.value_bytes += p.rawsize;
    }
    return load_toasted_add(e->job->owner->load, batch, &row, err);
}

static enum status put_chunks(struct emit_context *e, struct error *err)
{
    enum status st =
        toast_store_put(pipeline_toast(e->job->owner->pipeline), e->events, e->nevents, err);
    e->nevents = 0;
    return st;
}

/* The chunk points into the batch. It is older than any row that may refer to it; one that was
 * deleted dies with the row that did. */
static enum status emit_chunk(struct emit_context *e, enum load_row_kind kind,
                              const struct raw_tuple *tuple, uint64_t tid, struct error *err)
{
    struct toast_chunk chunk;
    TRY(toast_chunk_parse(tuple, &chunk, err));
    bool deleted = kind == LOAD_ROW_DELETED;
    e->events[e->nevents++] = (struct toast_event){
        .kind = deleted ? TOAST_DEATH : TOAST_BIRTH,
        .seed = !deleted,
        .owner = e->job->batch->desc->oid,
        .lsn = row_lsn(e->job->owner, deleted ? LOAD_ROW_LIVE : LOAD_ROW_DELETING),
        .tid = tid,
        .value_id = chunk.value_id,
        .seq = chunk.seq,
        .len = deleted ? 0 : chunk.len,
        .data = deleted ? NULL : chunk.data};
    return e->nevents == CHUNKS_MAX ? put_chunks(e, err) : OK;
}

static enum status add_row(struct emit_context *e, enum load_row_kind kind,
                           const struct raw_tuple *tuple, uint64_t tid, TransactionId xid,
                           struct error *err)
{
    const struct row_meta meta = {.lsn = row_lsn(e->job->owner, kind),
                                  .xid = xid,
                                  .tid = tid,
                                  .deleted = kind == LOAD_ROW_DELETED};
    return worker_add_new(e->worker, e->job->route, tuple, NULL, 0, &meta, err);
}

static enum status emit(void *ctx, enum load_row_kind kind, const struct raw_tuple *tuple,
                        uint64_t tid, TransactionId xid, struct error *err)
{
    struct emit_context *e = ctx;
    if (!route_is_live(e->job->route))
        return OK;
    if (e->job->batch->chunks)
        return emit_chunk(e, kind, tuple, tid, err);
    if ((tuple->infomask & HEAP_HASEXTERNAL) && e->job->owner->keeps_chunks)
        return keep_row(e, kind, tuple, tid, xid, err);
    return add_row(e, kind, tuple, tid, xid, err);
}

typedef enum status (*toasted_fn)(struct emit_context *e, const struct load_toasted_row *row,
                                  struct error *err);

static enum status toasted_each(struct emit_context *e, toasted_fn fn, struct error *err)
{
    size_t pos = 0;
    for (;;) {
        struct load_toasted_row row;
        bool more;
        TRY(load_toasted_next(e->job->batch, &pos, &more, &row, err));
        if (!more)
            return OK;
        TRY(fn(e, &row, err));
    }
}

static enum status toasted_note(struct emit_context *e, const struct load_toasted_row *row,
                                struct error *err)
{
    (void)err;
    stored_note(e->worker, e->job->route, &row->raw, NULL, 0,
                row_lsn(e->job->owner, (enum load_row_kind)row->kind));
    return OK;
}

static enum status toasted_emit(struct emit_context *e, const struct load_toasted_row *row,
                                struct error *err)
{
    return add_row(e, (enum load_row_kind)row->kind, &row->raw, row->tid, row->xid, err);
}

/* Their values are asked for at once. */
static enum status emit_toasted(struct emit_context *e, struct error *err)
{
    TRY(toasted_each(e, toasted_note, err));
    TRY(stored_ask(e->worker, err));
    return toasted_each(e, toasted_emit, err);
}

static enum status job_walk(struct worker *w, struct load_job *job, struct error *err)
{
    struct emit_context e = {.worker = w, .job = job};
    if (job->route == NULL || !route_is_live(job->route))
        return OK;
    if (job->batch->toasted)
        return emit_toasted(&e, err);
    enum status st = page_batch_walk(job->batch, job->owner->load, emit, &e, err);
    free(e.datums);
    return st == OK ? put_chunks(&e, err) : st;
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
    w->rows_hint = l->batch->npages * ROWS_PER_PAGE + (uint32_t)l->batch->nrows + 16;
    enum status st = job_walk(w, l, &err);
    if (st == ERR_DATA) { /* a damaged page: the source may have it whole, or says why not */
        struct error why = err;
        st = tables_resync(w->shared->tables, l->route->table->oid, owner->lsn, RESYNC_LOAD,
                           why.message, false, &err);
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
    size_t bytes = 2 * page_batch_bytes(batch) + batch->value_bytes;
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
