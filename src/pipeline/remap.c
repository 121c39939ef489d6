/* Another configuration while the stream runs: what it changes for tables that are there. First
 * everything is planned, without effect; what cannot be had refuses the whole. */
#include "base/fault.h"
#include "base/log.h"
#include "pipeline/remap.h"
#include "pipeline/tables_internal.h"

#include <stdlib.h>
#include <string.h>

struct mapping_change {
    struct rel_desc *desc;
    struct table_entry *entry; /* NULL: there is none yet */
    bool leaves;               /* no longer selected */
    bool comes;                /* selected from now on */
    bool moves;                /* another name or bad-value policy, rows stay */
    bool copied;               /* other columns */
    bool waits;                /* it comes only if its target can be had now */
    struct target **to;        /* of one that moves, per destination; NULL: stays as it is */
};

struct remap {
    struct reorder *r;
    struct tables *t;
    const struct config *from, *to;
    XLogRecPtr lsn;
    struct rel_desc **all;
    size_t nall;
    struct mapping_change *changes;
    size_t nchanges;
};

/* ---- what differs ---- */

static bool same_text(const char *a, const char *b)
{
    return (a == NULL) == (b == NULL) && (a == NULL || strcmp(a, b) == 0);
}

static bool same_columns(const struct config_target *a, const struct config_target *b)
{
    bool same = a->ncolumns == b->ncolumns;
    for (size_t i = 0; same && i < a->ncolumns; i++)
        same = a->columns[i].attnum == b->columns[i].attnum &&
               same_text(a->columns[i].target, b->columns[i].target) &&
               same_text(a->columns[i].type, b->columns[i].type);
    return same;
}

static bool same_place(const struct config_target *a, const struct config_target *b)
{
    return strcmp(a->database, b->database) == 0 && strcmp(a->table, b->table) == 0;
}

static bool same_policy(const struct config_target *a, const struct config_target *b)
{
    return a->on_bad_value_set == b->on_bad_value_set && a->on_bad_value == b->on_bad_value;
}

static void resolve(const struct config *c, size_t i, const struct rel_desc *d,
                    struct config_target *ret)
{
    config_table_resolve(c, &c->destinations[i], d->schema, d->name, ret);
}

/* Tables of their own: not leaves, not what is never replicated. */
static bool is_candidate(const struct remap *m, const struct rel_desc *d)
{
    return d->relkind != 't' && (d->root_oid == 0 || d->root_oid == d->oid) &&
           relation_refused_by(m->to, d) == NULL;
}

/* Its target has another name than this: a kill cut off a reload, or the last run had another
 * configuration. */
static bool is_elsewhere(const struct table_entry *e, size_t i, const struct config_target *is)
{
    const struct target *at = e == NULL ? NULL : e->targets[i];
    return at != NULL &&
           (strcmp(at->database, is->database) != 0 || strcmp(at->table, is->table) != 0);
}

/* False if nothing that concerns it is another now. */
static bool compare(const struct remap *m, struct rel_desc *d, struct mapping_change *ret)
{
    bool was = false, is = false, selection = false, moves = false, columns = false;
    struct table_entry *e = tables_find(m->t, d->oid);
    for (size_t i = 0; i < m->to->ndestinations; i++) {
        struct config_target a, b;
        resolve(m->from, i, d, &a);
        resolve(m->to, i, d, &b);
        was = was || a.replicate;
        is = is || b.replicate;
        selection = selection || a.replicate != b.replicate;
        if (!a.replicate || !b.replicate)
            continue;
        moves = moves || !same_place(&a, &b) || !same_policy(&a, &b) || is_elsewhere(e, i, &b);
        columns = columns || !same_columns(&a, &b);
    }
    int life = e == NULL ? TABLE_LIFE_SKIPPED : atomic_load(&e->life);
    *ret = (struct mapping_change){.desc = d, .entry = e};
    /* one that had to wait for its name */
    bool waits = is && e != NULL && life == TABLE_LIFE_SKIPPED;
    if (!selection && !moves && !columns && !waits)
        return false;
    if (life == TABLE_LIFE_DROPPED || (life == TABLE_LIFE_STOPPED && is))
        return false; /* a stopped one takes the new mapping when it is asked for again */
    ret->leaves = !is && life != TABLE_LIFE_SKIPPED;
    ret->comes = is && (!was || life == TABLE_LIFE_SKIPPED);
    ret->moves = is && !ret->comes && moves;
    ret->copied = is && !ret->comes && (columns || selection);
    ret->waits = waits && !selection && !moves && !columns;
    return ret->leaves || ret->comes || ret->moves || ret->copied;
}

/* ---- refusals ---- */

static enum status refuse_clash(const struct remap *m, const struct rel_desc *d, size_t i,
                                struct error *err)
{
    struct config_target mine, other;
    resolve(m->to, i, d, &mine);
    for (size_t k = 0; mine.replicate && k < m->nall; k++) {
        const struct rel_desc *o = m->all[k];
        if (o->oid == d->oid || !is_candidate(m, o))
            continue;
        resolve(m->to, i, o, &other);
        if (other.replicate && same_place(&mine, &other))
            return error_set(err, ERR_CONFIG, "tables %s.%s and %s.%s have the same target %s.%s",
                             d->schema, d->name, o->schema, o->name, mine.database, mine.table);
    }
    return OK;
}

/* Its new name must be free, or belong to a target of this source; or, where others make them, to
 * one of theirs. */
static enum status refuse_taken(const struct remap *m, const struct mapping_change *c, size_t i,
                                const struct target_plan *plan, struct error *err)
{
    const struct rel_desc *d = c->desc;
    bool no_create = plan->options.no_create;
    struct destination *dest = tables_options_of(m->t)->destinations[i];
    struct found_table found;
    if (dest->options.null)
        return OK;
    TRY(target_table_look(dest, plan->ct.database, plan->ct.table, &found, err));
    if (!found.exists && no_create && !c->moves) {
        enum status st = target_not_created(plan->ct.database, plan->ct.table, err);
        error_prefix(err, "table %s.%s", d->schema, d->name);
        return st;
    }
    if (found.exists && !no_create && !target_comment_is_ours(found.comment, plan->comment))
        return error_set(err, ERR_CONFIG,
                         "table %s.%s: target %s.%s exists and is not walshadow's (no comment of "
                         "this source): drop or rename it",
                         d->schema, d->name, plan->ct.database, plan->ct.table);
    return OK;
}

/* ---- plans ---- */

/* The present columns under the new name, with the new policy. */
static enum status plan_move(const struct remap *m, struct mapping_change *c, size_t i,
                             struct error *err)
{
    struct target_plan was, is;
    const struct target *from = c->entry->targets[i];
    CLEANUP_FREE const char **types = xcalloc(c->desc->natts, sizeof *types);
    if (from == NULL)
        return OK;
    tables_plan_make_from(m->t, m->from, c->desc, i, &was);
    tables_plan_make_from(m->t, m->to, c->desc, i, &is);
    tables_present_types(from, types, c->desc->natts);
    was.options.database = is.options.database;
    was.options.table = is.options.table;
    was.options.on_bad_value = is.options.on_bad_value;
    was.options.stored_types = types;
    was.options.nstored = c->desc->natts;
    enum status st = target_new(c->desc, &was.options,
                                &tables_options_of(m->t)->destinations[i]->caps, &c->to[i], err);
    if (st == OK)
        atomic_store(&c->to[i]->closed, !target_is_open(from));
    tables_plan_fini(&was);
    tables_plan_fini(&is);
    return st;
}

/* That its target can be what the configuration says. */
static enum status check_target(const struct remap *m, const struct mapping_change *c, size_t i,
                                struct error *err)
{
    struct target_plan plan;
    struct target *target = NULL;
    enum status st = OK;
    tables_plan_make_from(m->t, m->to, c->desc, i, &plan);
    if (plan.ct.replicate)
        st = target_new(c->desc, &plan.options, &tables_options_of(m->t)->destinations[i]->caps,
                        &target, err);
    target_unref(target);
    if (st == ERR_CONFIG)
        st = error_prefix(err, "table %s.%s", c->desc->schema, c->desc->name);
    if (st == OK && plan.ct.replicate)
        st = refuse_taken(m, c, i, &plan, err);
    tables_plan_fini(&plan);
    return st;
}

static enum status plan_change(const struct remap *m, struct mapping_change *c, struct error *err)
{
    size_t n = m->to->ndestinations;
    for (size_t i = 0; i < n && !c->leaves; i++) {
        struct config_target ct;
        resolve(m->to, i, c->desc, &ct);
        if (c->comes && ct.initial_load == LOAD_NONE)
            return error_set(err, ERR_CONFIG,
                             "table %s.%s: initial_load = \"none\" of a table that is selected "
                             "while walshadow runs is not supported: leave it out, and the table "
                             "is copied, or restart",
                             c->desc->schema, c->desc->name);
        TRY(refuse_clash(m, c->desc, i, err));
        TRY(check_target(m, c, i, err));
    }
    if (c->moves) {
        c->to = xcalloc(n, sizeof(struct target *));
        for (size_t i = 0; i < n; i++)
            TRY(plan_move(m, c, i, err));
    }
    return OK;
}

/* What kept it from having a target still does: the configuration gives its name to two, something
 * that is not ours has it, nobody has made it. */
static enum status still_waits(const struct remap *m, const struct mapping_change *c, bool *ret,
                               struct error *err)
{
    enum status st = OK;
    for (size_t i = 0; c->waits && i < m->to->ndestinations && st == OK; i++) {
        st = refuse_clash(m, c->desc, i, err);
        if (st == OK)
            st = check_target(m, c, i, err);
    }
    *ret = st == ERR_CONFIG;
    return *ret ? OK : st;
}

static enum status plan_all(struct remap *m, struct error *err)
{
    m->changes = xcalloc(m->nall + 1, sizeof *m->changes);
    for (size_t i = 0; i < m->nall; i++) {
        struct mapping_change *c = &m->changes[m->nchanges];
        bool waits;
        if (!is_candidate(m, m->all[i]) || !compare(m, m->all[i], c))
            continue;
        TRY(still_waits(m, c, &waits, err));
        if (waits)
            continue;
        m->nchanges++;
        TRY(plan_change(m, c, err));
    }
    return OK;
}

/* ---- effects ---- */

static bool is_live(void *ctx, Oid oid)
{
    const struct table_entry *e = tables_find(ctx, oid);
    return e != NULL && table_is_live(e);
}

static enum status move_one(const struct remap *m, struct mapping_change *c, size_t i,
                            struct error *err)
{
    struct destination *d = tables_options_of(m->t)->destinations[i];
    const struct target *from = c->entry->targets[i];
    struct target_plan plan;
    enum status st = OK;
    if (c->to[i] == NULL)
        return OK;
    if (strcmp(from->table, c->to[i]->table) != 0 ||
        strcmp(from->database, c->to[i]->database) != 0) {
        tables_plan_make(m->t, c->desc, i, &plan);
        const struct target_rename rename = {plan.comment, m->lsn, is_live, m->t};
        st = target_table_rename(d, c->to[i], &rename, err);
        if (st == OK && plan.view)
            st = target_view_make(d, c->to[i], plan.comment, err);
        if (st == OK && plan.view)
            st = target_view_drop(d, from, plan.comment, err);
        tables_plan_fini(&plan);
    }
    if (st == OK) {
        tables_entry_target(m->t, c->entry, i, c->to[i]);
        c->to[i] = NULL;
    }
    return st;
}

static bool has_new_name(const struct mapping_change *c, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (c->to[i] != NULL && (strcmp(c->entry->targets[i]->table, c->to[i]->table) != 0 ||
                                 strcmp(c->entry->targets[i]->database, c->to[i]->database) != 0))
            return true;
    return false;
}

/* Between the two marks a kill makes it be copied again. The fence has made durable what committed
 * until here, so that the second one is true. */
static enum status move(const struct remap *m, struct mapping_change *c, struct error *err)
{
    struct history *history = tables_options_of(m->t)->history;
    size_t n = m->to->ndestinations;
    bool renamed = has_new_name(c, n);
    bool again = c->copied || atomic_load(&c->entry->life) != TABLE_LIFE_STREAMING;
    enum status st = OK;
    if (renamed)
        TRY(history_resync(history, c->desc->oid, m->lsn, "its target was renamed", err));
    for (size_t i = 0; i < n && st == OK; i++)
        st = move_one(m, c, i, err);
    FAULT_POINT("reload-renamed");
    if (st == ERR_CONFIG) /* the copy tries again, or says by name that it cannot be */
        return tables_resync(m->t, c->desc->oid, m->lsn, RESYNC_TARGET, err->message, false, err);
    TRY(st);
    if (renamed && !again) {
        TRY(history_resynced(history, c->desc->oid, m->lsn, err));
        atomic_store(&c->entry->covered, m->lsn);
        log_info("msg=\"target has the name of the new configuration\" table=%s lsn=" LSN_FMT,
                 LOG_Q(c->entry->name), LSN_ARGS(m->lsn));
    }
    /* what a copy under way fills has the old policy, or goes to the old name */
    return again ? tables_resync(m->t, c->desc->oid, m->lsn, RESYNC_SHAPE,
                                 "its mapping in the configuration changed", true, err)
                 : OK;
}

static enum status leave(const struct remap *m, struct mapping_change *c, struct error *err)
{
    struct config_target ct;
    resolve(m->to, 0, c->desc, &ct);
    return tables_deselect(m->t, c->entry, m->lsn, ct.reason == NULL ? "not selected" : ct.reason,
                           err);
}

static enum status come(const struct remap *m, struct mapping_change *c, struct error *err)
{
    tables_entry_get(m->t, c->desc);
    return tables_resync(m->t, c->desc->oid, m->lsn, c->comes ? RESYNC_INITIAL_COPY : RESYNC_SHAPE,
                         c->waits   ? "its target can be had now"
                         : c->comes ? "the configuration selects it now"
                                    : "its mapping in the configuration changed",
                         c->copied, err);
}

/* Names are given up before they are taken. */
static enum status run_all(struct remap *m, struct error *err)
{
    for (size_t i = 0; i < m->nchanges; i++)
        if (m->changes[i].leaves)
            TRY(leave(m, &m->changes[i], err));
    for (size_t i = 0; i < m->nchanges; i++)
        if (m->changes[i].moves)
            TRY(move(m, &m->changes[i], err));
    for (size_t i = 0; i < m->nchanges; i++)
        if (m->changes[i].comes || (m->changes[i].copied && !m->changes[i].moves))
            TRY(come(m, &m->changes[i], err));
    return OK;
}

static void release(struct remap *m)
{
    for (size_t i = 0; i < m->nchanges; i++) {
        for (size_t k = 0; m->changes[i].to != NULL && k < m->to->ndestinations; k++)
            target_unref(m->changes[i].to[k]);
        free(m->changes[i].to);
    }
    free(m->changes);
    for (size_t i = 0; i < m->nall; i++)
        rel_desc_unref(m->all[i]);
    free(m->all);
}

static enum status plan_and_run(struct remap *m, struct reorder_remap *call, struct error *err)
{
    TRY(plan_all(m, err));
    if (m->nchanges > 0)
        TRY(reorder_fence(m->r, err));
    call->applied = true; /* what fails from here on ends the daemon: a restart finds it whole */
    tables_config_set(m->t, m->to);
    call->ntables = m->nchanges;
    enum status st = run_all(m, err);
    routes_forget(m->r->routes);
    return st;
}

enum status reorder_remap(struct reorder *r, void *ctx, struct error *err)
{
    struct reorder_remap *call = ctx;
    struct remap m = {.r = r,
                      .t = r->tables,
                      .from = tables_config(r->tables),
                      .to = call->config,
                      .lsn = atomic_load(&r->read_lsn)};
    /* and no change of names that was known then comes again */
    if (m.lsn == 0 || m.lsn < r->options.skip_until || m.lsn < r->options.load_end)
        return error_set(err, ERR_RETRY, "the stream is not yet where it was at the last stop");
    if (history_any_unseen(r->history, m.lsn))
        return error_set(err, ERR_RETRY, "the shapes of some tables are not known yet");
    history_all(r->history, m.lsn, &m.all, &m.nall);
    enum status st = plan_and_run(&m, call, err);
    release(&m);
    return st;
}
