/* A rewrite as a new generation of its table: its rows are all in the WAL of the transaction that
 * wrote it (docs/ddl.md; notes B8). */
#include "base/fault.h"
#include "base/log.h"
#include "pipeline/reorder.h"

#include <stdlib.h>

struct generation {
    struct table_entry *table;
    struct rel_desc *now;
    struct target **fresh;
};

static bool is_replicated(struct tables *t, const struct table_entry *e)
{
    for (size_t i = 0; i < tables_options_of(t)->ndestinations; i++)
        if (e->targets[i] != NULL && target_is_open(e->targets[i]))
            return true;
    return false;
}

/* Why it goes another way; NULL if it does not. */
static const char *refusal(const struct reorder *r, const struct table_entry *e)
{
    if (atomic_load(&e->life) != TABLE_LIFE_STREAMING || e->fresh != NULL)
        return "the table is not complete";
    return is_replicated(r->tables, e) ? NULL : "the table has no target";
}

enum status generation_begin(struct reorder *r, struct table_entry *e, const struct rel_desc *now,
                             XLogRecPtr lsn, char **ret_reason, struct error *err)
{
    struct target **fresh = NULL;
    const char *reason = refusal(r, e);
    *ret_reason = NULL;
    if (reason != NULL) {
        *ret_reason = xstrdup(reason);
        return OK;
    }
    enum status st = tables_fresh_make(r->tables, e, now, "_rewrite", &fresh, err);
    if (st == ERR_CONFIG) { /* it cannot be replicated as it is now */
        *ret_reason = xstrdup(err->message);
        return OK;
    }
    TRY(st);
    tables_generation_attach(r->tables, e, fresh);
    r->generations = xrealloc(r->generations, (r->ngenerations + 1) * sizeof r->generations[0]);
    r->generations[r->ngenerations++] =
        (struct generation){e, history_by_oid(r->history, now->oid, lsn), fresh};
    log_info("msg=\"table rewritten, its rows are taken from the WAL\" table=%s lsn=" LSN_FMT,
             LOG_Q(e->name), LSN_ARGS(lsn));
    return OK;
}

bool generation_is_begun(const struct reorder *r, const struct table_entry *e)
{
    for (size_t i = 0; i < r->ngenerations; i++)
        if (r->generations[i].table == e)
            return true;
    return false;
}

void generations_forget(struct reorder *r)
{
    for (size_t i = 0; i < r->ngenerations; i++)
        rel_desc_unref(r->generations[i].now);
    free(r->generations);
    r->generations = NULL;
    r->ngenerations = 0;
}

/* Rows go to the old target again, what the fresh one got is dropped. */
static enum status give_up(struct reorder *r, struct generation *g, struct error *err)
{
    struct target **fresh = g->fresh;
    g->fresh = NULL;
    tables_fresh_detach(r->tables, g->table);
    return tables_fresh_drop(r->tables, fresh, err);
}

/* Behind a barrier. A worker may have stopped the table, or asked for a copy of it. */
static enum status end_one(struct reorder *r, struct generation *g, XLogRecPtr lsn,
                           struct error *err)
{
    struct target **old = g->fresh;
    if (atomic_load(&g->table->life) != TABLE_LIFE_STREAMING)
        return give_up(r, g, err);
    enum status st = tables_fresh_exchange(r->tables, g->table, g->now, lsn, lsn, err);
    if (st == ERR_CONFIG) {
        CLEANUP_FREE char *reason =
            xasprintf("its new target could not take the old one's place: %s", err->message);
        TRY(give_up(r, g, err));
        return tables_resync(r->tables, g->table->oid, lsn, RESYNC_REWRITE, reason, false, err);
    }
    TRY(st);
    FAULT_POINT("generation-exchanged");
    g->fresh = NULL;
    return tables_fresh_drop(r->tables, old, err); /* what has its name now */
}

enum status generation_end(struct reorder *r, XLogRecPtr lsn, struct error *err)
{
    enum status st = OK;
    if (r->ngenerations == 0)
        return OK;
    st = reorder_barrier(r, err);
    FAULT_POINT("generation-sent");
    for (size_t i = 0; i < r->ngenerations && st == OK; i++)
        st = end_one(r, &r->generations[i], lsn, err);
    generations_forget(r);
    routes_forget(r->routes);
    return st;
}
