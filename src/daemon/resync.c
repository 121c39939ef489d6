#include "daemon/resync.h"

#include "base/fault.h"
#include "base/log.h"
#include "daemon/resync_session.h"
#include "daemon/state.h"
#include "load/copy.h"
#include "load/copy_chunks.h"
#include "source/copy.h"

#include <stdlib.h>
#include <string.h>

#define COPIERS 2u
#define IDLE_MS 100u
#define POLL_MS 20u
#define NS_PER_MS UINT64_C(1000000)
#define RETRY_SOON_MS 200u /* the stream has to come to the table's shape */
#define RETRY_SOURCE_MS 2000u

struct copier {
    struct daemon *d;
    pthread_t thread;
    bool started;
    struct source_sql *sql;   /* set, closed and interrupted under the daemon's lock */
    struct copy *copy;        /* the same */
    size_t part;              /* that is being copied */
    _Atomic XLogRecPtr seeds; /* LSN of the seeds that are being put, 0 = none */
};

struct resync_threads {
    struct copier copiers[COPIERS];
    struct copy *left[COPIERS]; /* of a stop: rows of them may still be in the pipeline's queues */
    struct resync *left_resync[COPIERS];
};

static void set_sql(struct copier *c, struct source_sql *sql)
{
    pthread_mutex_lock(&c->d->lock);
    struct source_sql *old = c->sql;
    c->sql = sql;
    if (sql != NULL && atomic_load(&c->d->stopping))
        source_sql_interrupt(sql);
    pthread_mutex_unlock(&c->d->lock);
    source_sql_close(old);
}

static void set_copy(struct copier *c, struct copy *copy)
{
    pthread_mutex_lock(&c->d->lock);
    c->copy = copy;
    if (copy != NULL && atomic_load(&c->d->stopping))
        copy_cancel(copy);
    pthread_mutex_unlock(&c->d->lock);
}

static struct resync_session session_of(const struct copier *c)
{
    return (struct resync_session){c->d, c->sql};
}

static enum status begin_snapshot(struct copier *c, const struct resync *s, XLogRecPtr *ret_lsn,
                                  struct error *err)
{
    struct resync_session session = session_of(c);
    return resync_session_snapshot(&session, s, ret_lsn, err);
}

static enum status wait_stream(struct copier *c, const struct resync *s, XLogRecPtr lsn,
                               struct error *err)
{
    while (!resync_stream_passed(s, lsn)) {
        TRY(resync_check(c->d, s, err));
        TRY(daemon_pause(c->d, POLL_MS, err));
    }
    return OK;
}

typedef enum status (*message_fn)(void *ctx, const uint8_t *data, size_t len, struct error *err);

static enum status copy_messages(struct copier *c, const struct resync *s, const char *sql,
                                 message_fn fn, void *ctx, struct error *err)
{
    struct source_copy *in = NULL;
    const uint8_t *data;
    size_t len;
    TRY(source_copy_begin(c->sql, sql, &in, err));
    enum status st = OK;
    do {
        st = source_copy_next(in, &data, &len, err);
        if (st == OK && data != NULL)
            st = fn(ctx, data, len, err);
        if (st == OK)
            st = resync_check(c->d, s, err);
    } while (st == OK && data != NULL);
    source_copy_end(in);
    return st;
}

static enum status chunk_message(void *ctx, const uint8_t *data, size_t len, struct error *err)
{
    return copy_chunks_put(ctx, data, len, err);
}

/* The chunks of one part, as the transaction sees them. */
static enum status seed_part(struct copier *c, const struct resync *s, const struct rel_desc *part,
                             struct error *err)
{
    CLEANUP_FREE char *ask =
        xasprintf("SELECT relname FROM pg_catalog.pg_class WHERE oid = %u", part->toast_oid);
    CLEANUP_BUF struct buf sql = {0};
    struct sql_result *r = NULL;
    struct copy_chunks *chunks = NULL;
    TRY(source_sql_exec(c->sql, ask, 0, NULL, &r, err));
    if (sql_result_rows(r) == 1)
        copy_chunks_sql(sql_result_get(r, 0, 0), &sql);
    sql_result_free(r);
    if (sql.len == 0)
        return error_set(err, ERR_RETRY, "its TOAST table is gone at the source");
    XLogRecPtr moved = history_unseen_file_lsn(c->d->history, part->oid);
    TRY(copy_chunks_new(c->d->toast, part->oid, MAX(s->lsn, moved), &chunks, err));
    enum status st = copy_messages(c, s, buf_cstr(&sql), chunk_message, chunks, err);
    if (st == OK)
        st = copy_chunks_end(chunks, err);
    copy_chunks_free(chunks);
    return st;
}

/* The chunk store gets what it does not have of values out of line, before any row may need them.
 */
static enum status seed_chunks(struct copier *c, struct resync *s, struct error *err)
{
    XLogRecPtr lsn;
    bool any = false;
    for (size_t i = 0; i < s->nparts; i++)
        any = any || s->parts[i]->toast_oid != InvalidOid;
    if (!any || c->d->config->toast.mode == TOAST_DISABLED || atomic_load(&s->table->chunks_known))
        return OK;
    atomic_store(&c->seeds, 1); /* nothing is reclaimed until their LSN is known */
    TRY(resync_open_chunks(s, err));
    atomic_store(&c->seeds, s->lsn);
    TRY(begin_snapshot(c, s, &lsn, err));
    for (size_t i = 0; i < s->nparts; i++)
        if (s->parts[i]->toast_oid != InvalidOid)
            TRY(seed_part(c, s, s->parts[i], err));
    TRY(source_sql_exec(c->sql, "ROLLBACK", 0, NULL, NULL, err));
    FAULT_POINT("resync-seeded");
    TRY(toast_store_sync(c->d->toast, UINT64_MAX, err));
    TRY(wait_stream(c, s, lsn, err));
    if (!resync_chunks_known(s))
        return error_set(err, ERR_RETRY, "the table changed while its chunks were copied");
    return OK;
}

static enum status row_message(void *ctx, const uint8_t *data, size_t len, struct error *err)
{
    const struct copier *c = ctx;
    return copy_put(c->copy, c->part, data, len, err);
}

static enum status copy_part(struct copier *c, const struct resync *s, size_t part,
                             struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    copy_sql(c->copy, part, &sql);
    c->part = part;
    TRY(copy_messages(c, s, buf_cstr(&sql), row_message, c, err));
    return copy_part_end(c->copy, part, err);
}

/* From the open copy to the exchange. */
static enum status fill(struct copier *c, struct resync *s, struct error *err)
{
    struct copy *copy = NULL;
    XLogRecPtr lsn;
    TRY(begin_snapshot(c, s, &lsn, err));
    TRY(copy_new(s, &copy, err));
    set_copy(c, copy);
    FAULT_POINT("resync-copying");
    for (size_t i = 0; i < copy_parts(copy); i++)
        TRY(copy_part(c, s, i, err));
    TRY(copy_wait(copy, err));
    FAULT_POINT("resync-copied");
    TRY(wait_stream(c, s, lsn, err));
    TRY(resync_exchange(s, err));
    FAULT_POINT("resync-done");
    return OK;
}

static enum status attempt(struct copier *c, struct resync *s, struct error *err)
{
    struct source_sql *sql = NULL;
    atomic_store(&s->table->copied, 0);
    TRY(source_sql_open(c->d->config->source.conninfo, APPLICATION_NAME, &sql, err));
    set_sql(c, sql);
    struct resync_session session = session_of(c);
    TRY(resync_session_look(&session, s, err));
    enum status st = seed_chunks(c, s, err);
    atomic_store(&c->seeds, 0);
    TRY(st);
    FAULT_POINT("resync-before-open");
    TRY(resync_open(s, err));
    log_info("msg=\"copy of a table begins\" table=%s lsn=" LSN_FMT " opened=" LSN_FMT,
             LOG_Q(s->table->name), LSN_ARGS(s->lsn), LSN_ARGS(s->opened));
    return fill(c, s, err);
}

/* Everything of the attempt goes away; nothing of it may be on its way any more. */
static enum status clean_up(struct copier *c, struct resync *s, struct error *err)
{
    if (c->copy != NULL)
        TRY(copy_wait(c->copy, err));
    struct copy *copy = c->copy;
    set_copy(c, NULL);
    copy_free(copy);
    return resync_close(s, err);
}

/* changes: of the table when the attempt began. */
static void copy_failed(struct copier *c, struct table_entry *e, unsigned changes,
                        struct error *why)
{
    struct tables *tables = pipeline_tables(c->d->pipeline);
    struct error err;
    if (why->kind == ERR_CONFIG && atomic_load(&e->changes) != changes)
        why->kind = ERR_RETRY; /* a reason of another mapping or shape */
    if (why->kind == ERR_RETRY) {
        bool source = why->sqlstate[0] != '\0' || (c->sql != NULL && source_sql_broken(c->sql));
        unsigned ms = source || c->sql == NULL ? RETRY_SOURCE_MS : RETRY_SOON_MS;
        log_write(source ? LOG_WARN : LOG_DEBUG,
                  "msg=\"copy begins again\" table=%s retry_ms=%u error=%s", LOG_Q(e->name), ms,
                  LOG_Q(why->message));
        tables_copier_leave(tables, e, clock_now_ns() + ms * NS_PER_MS);
        return;
    }
    enum status st = tables_copy_failed(tables, e, why->message, &err);
    if (st == OK && why->kind == ERR_BUG)
        fatal_raise(&c->d->fatal, why);
    else if (st != OK)
        fatal_raise(&c->d->fatal, &err);
    tables_copier_leave(tables, e, 0);
}

/* False: the daemon stops, and what the attempt has made is left to daemon_resync_free. */
static bool copy_table(struct copier *c, struct table_entry *e)
{
    struct resync *s = xcalloc(1, sizeof *s);
    struct error why, err;
    s->pipeline = c->d->pipeline;
    s->table = e;
    unsigned changes = atomic_load(&e->changes);
    enum status st = attempt(c, s, &why);
    enum status cleaned = st == ERR_CANCELLED ? st : clean_up(c, s, &err);
    if (cleaned == ERR_CANCELLED || daemon_check(c->d, &err) != OK) {
        size_t i = (size_t)(c - c->d->resync->copiers);
        c->d->resync->left[i] = c->copy;
        c->d->resync->left_resync[i] = s;
        set_copy(c, NULL);
        return false;
    }
    free(s);
    if (cleaned != OK)
        fatal_raise(&c->d->fatal, &err);
    if (st != OK)
        copy_failed(c, e, changes, &why);
    else
        tables_copier_leave(pipeline_tables(c->d->pipeline), e, 0);
    set_sql(c, NULL); /* and with it the transaction: only now may the table be changed */
    return cleaned == OK;
}

static void *copier_main(void *arg)
{
    struct copier *c = arg;
    struct error err;
    bool going = true;
    pthread_setname_np(pthread_self(), "resync");
    while (going && daemon_pause(c->d, IDLE_MS, &err) == OK) {
        struct table_entry *e = tables_copier_take(pipeline_tables(c->d->pipeline));
        if (e != NULL)
            going = copy_table(c, e);
    }
    set_sql(c, NULL);
    return NULL;
}

enum status daemon_resync_start(struct daemon *d, struct error *err)
{
    TRY(tables_fresh_clear(pipeline_tables(d->pipeline), err));
    struct resync_threads *r = xcalloc(1, sizeof *r);
    pthread_mutex_lock(&d->lock);
    d->resync = r;
    pthread_mutex_unlock(&d->lock);
    for (size_t i = 0; i < COPIERS; i++) {
        r->copiers[i].d = d;
        if (pthread_create(&r->copiers[i].thread, NULL, copier_main, &r->copiers[i]) != 0)
            return error_sys(err, ERR_RETRY, "cannot start a thread");
        r->copiers[i].started = true;
    }
    return OK;
}

XLogRecPtr daemon_resync_seeds(struct daemon *d)
{
    XLogRecPtr lowest = UINT64_MAX;
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; d->resync != NULL && i < COPIERS; i++) {
        XLogRecPtr lsn = atomic_load(&d->resync->copiers[i].seeds);
        lowest = lsn != 0 ? MIN(lowest, lsn) : lowest;
    }
    pthread_mutex_unlock(&d->lock);
    return lowest;
}

void daemon_resync_interrupt(struct daemon *d)
{
    for (size_t i = 0; d->resync != NULL && i < COPIERS; i++) {
        struct copier *c = &d->resync->copiers[i];
        if (c->sql != NULL)
            source_sql_interrupt(c->sql);
        if (c->copy != NULL)
            copy_cancel(c->copy);
    }
}

void daemon_resync_join(struct daemon *d)
{
    for (size_t i = 0; d->resync != NULL && i < COPIERS; i++)
        if (d->resync->copiers[i].started)
            pthread_join(d->resync->copiers[i].thread, NULL);
}

void daemon_resync_free(struct daemon *d)
{
    struct resync_threads *r = d->resync;
    d->resync = NULL;
    for (size_t i = 0; r != NULL && i < COPIERS; i++) {
        copy_free(r->left[i]);
        if (r->left_resync[i] != NULL)
            resync_forget(r->left_resync[i]);
        free(r->left_resync[i]);
    }
    free(r);
}

enum status daemon_resync_verb(void *ctx, const struct control_request *request,
                               json_t **ret_result, struct error *err)
{
    struct daemon *d = ctx;
    const char *name = json_string_value(json_object_get(request->body, "table"));
    struct table_entry *e = NULL;
    if (name == NULL)
        return error_set(err, ERR_DATA, "resync: no table");
    pthread_mutex_lock(&d->lock);
    bool ready = d->resync != NULL;
    pthread_mutex_unlock(&d->lock);
    if (!ready || atomic_load(&d->state) < DAEMON_STREAMING)
        return error_set(err, ERR_CONFIG, "not streaming yet");
    struct tables *tables = pipeline_tables(d->pipeline);
    XLogRecPtr lsn = atomic_load(&pipeline_reorder(d->pipeline)->read_lsn);
    TRY(tables_by_name(tables, name, &e, err));
    int life = atomic_load(&e->life);
    if (life == TABLE_LIFE_SKIPPED)
        return error_set(err, ERR_CONFIG, "%s is not replicated; walshadow tables says why",
                         e->name);
    if (life != TABLE_LIFE_RESYNCING)
        TRY(tables_resync(tables, e->oid, lsn, RESYNC_ASKED, "asked for by walshadow resync",
                          life == TABLE_LIFE_STREAMING, err));
    *ret_result = json_pack("{s:s}", "table", e->name);
    return OK;
}
