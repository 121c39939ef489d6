#include "pipeline/tables_internal.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/metrics.h"
#include "clickhouse/sql_quote.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

struct table_slot {
    Oid oid;
    struct table_entry entry;
    UT_hash_handle hh;
};

struct tables *tables_new(const struct tables_options *options)
{
    struct tables *t = xcalloc(1, sizeof *t);
    t->options = *options;
    t->config = options->config;
    pthread_mutex_init(&t->lock, NULL);
    return t;
}

void targets_free(struct target **targets, size_t n)
{
    for (size_t i = 0; targets != NULL && i < n; i++)
        target_unref(targets[i]);
    free(targets);
}

void targets_close(struct target *const *targets, size_t n)
{
    for (size_t i = 0; targets != NULL && i < n; i++)
        if (targets[i] != NULL)
            atomic_store(&targets[i]->closed, true);
}

void tables_free(struct tables *t)
{
    struct table_slot *s, *next;
    if (t == NULL)
        return;
    HASH_ITER (hh, t->slots, s, next) {
        HASH_DEL(t->slots, s);
        for (size_t i = 0; i < t->options.ndestinations; i++)
            target_unref(s->entry.targets[i]);
        targets_free(s->entry.fresh, t->options.ndestinations);
        free(s->entry.targets);
        free(s->entry.rows);
        free(s->entry.name);
        free(s->entry.reason);
        free(s);
    }
    for (size_t i = 0; i < t->nold_names; i++)
        free(t->old_names[i]);
    free(t->old_names);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

const struct tables_options *tables_options_of(const struct tables *t)
{
    return &t->options;
}

const struct config *tables_config(const struct tables *t)
{
    return t->config;
}

void tables_config_set(struct tables *t, const struct config *config)
{
    t->config = config;
}

struct table_entry *tables_find(struct tables *t, Oid root_oid)
{
    struct table_slot *s;
    pthread_mutex_lock(&t->lock);
    HASH_FIND(hh, t->slots, &root_oid, sizeof root_oid, s);
    pthread_mutex_unlock(&t->lock);
    return s == NULL ? NULL : &s->entry;
}

const char *relation_refused(const struct rel_desc *d)
{
    if (d->relkind == 'm')
        return "materialized views are not replicated";
    if (d->relkind != 'r' && d->relkind != 'p')
        return "not an ordinary table";
    if (d->relpersistence == 'u')
        return "unlogged tables are not in the WAL";
    if (d->relpersistence == 't')
        return "temporary tables are not in the WAL";
    if (d->relkind == 'r' && d->relam != 2)
        return "its access method is not heap";
    return NULL;
}

const char *relation_refused_by(const struct config *c, const struct rel_desc *d)
{
    const char *refused = relation_refused(d);
    if (refused == NULL && d->relkind == 'p' && config_splits(c, d->schema, d->name))
        refused = "partitions = \"leaf\": its partitions have targets of their own";
    return refused;
}

static void entry_name(struct tables *t, struct table_entry *e, const struct rel_desc *desc)
{
    char *name = xasprintf("%s.%s", desc->schema, desc->name);
    char *old = e->name;
    if (old != NULL && strcmp(old, name) == 0) {
        free(name);
        return;
    }
    if (old != NULL) {
        t->old_names = xrealloc(t->old_names, (t->nold_names + 1) * sizeof *t->old_names);
        t->old_names[t->nold_names++] = old;
    }
    e->name = name;
}

struct table_entry *tables_entry_get(struct tables *t, const struct rel_desc *desc)
{
    struct table_slot *s;
    pthread_mutex_lock(&t->lock);
    HASH_FIND(hh, t->slots, &desc->oid, sizeof desc->oid, s);
    if (s == NULL) {
        s = xcalloc(1, sizeof *s);
        s->oid = s->entry.oid = desc->oid;
        s->entry.targets = xcalloc(t->options.ndestinations, sizeof(struct target *));
        s->entry.rows = xcalloc(t->options.ndestinations, sizeof *s->entry.rows);
        HASH_ADD(hh, t->slots, oid, sizeof s->oid, s);
    }
    entry_name(t, &s->entry, desc);
    pthread_mutex_unlock(&t->lock);
    return &s->entry;
}

void tables_entry_set(struct tables *t, struct table_entry *e, enum table_life life,
                      const char *reason)
{
    pthread_mutex_lock(&t->lock);
    free(e->reason);
    e->reason = reason == NULL ? NULL : xstrdup(reason);
    atomic_store(&e->life, (int)life);
    pthread_mutex_unlock(&t->lock);
}

static void entry_stop(struct tables *t, struct table_entry *e, const char *reason)
{
    pthread_mutex_lock(&t->lock);
    targets_close(e->targets, t->options.ndestinations);
    targets_close(e->fresh, t->options.ndestinations);
    pthread_mutex_unlock(&t->lock);
    tables_entry_set(t, e, TABLE_LIFE_STOPPED, reason);
    atomic_store(&e->chunks_known, false);
    tables_copy_void(e);
}

static void skip(struct tables *t, struct table_entry *e, const char *reason)
{
    log_warn("msg=\"table is not replicated\" table=%s reason=%s", LOG_Q(e->name), LOG_Q(reason));
    tables_entry_set(t, e, TABLE_LIFE_SKIPPED, reason);
    atomic_store(&e->chunks_known, false);
}

/* What became of a table at its destinations. */
struct added {
    size_t made;
    char *reason;    /* why the last one has no target */
    bool lost;       /* the name of a target that must be there is another's */
    bool missing;    /* a target that must be there is not */
    bool unselected; /* a target is there, but the configuration no longer wants it */
};

static void added_reason(struct added *a, bool lost, const char *reason)
{
    if (a->lost && !lost) /* what is lost is said first */
        return;
    a->lost = lost;
    free(a->reason);
    a->reason = xstrdup(reason);
}

static enum status not_selected(struct destination *d, const struct config_target *ct,
                                const char *comment, enum tables_mode mode, struct added *added,
                                struct error *err)
{
    bool ours = false;
    added_reason(added, false, ct->reason == NULL ? "not selected" : ct->reason);
    if (mode == TABLES_RESUME)
        TRY(target_table_has(d, ct->database, ct->table, comment, &ours, err));
    added->unselected = added->unselected || ours;
    return OK;
}

void tables_entry_target(struct tables *t, struct table_entry *e, size_t i, struct target *target)
{
    pthread_mutex_lock(&t->lock);
    target_unref(e->targets[i]);
    e->targets[i] = target;
    pthread_mutex_unlock(&t->lock);
}

/* The target of one destination. resync: the table is to be copied again, what is there does not
 * matter. */
static enum status add_target(struct tables *t, struct table_entry *e, const struct rel_desc *desc,
                              size_t i, enum tables_mode mode, bool resync, XLogRecPtr lsn,
                              struct added *added, struct error *err)
{
    struct destination *d = t->options.destinations[i];
    struct target_plan plan;
    struct target *target = NULL;
    enum target_loss loss = TARGET_KEPT;
    struct error why;
    tables_plan_make(t, desc, i, &plan);
    if (!plan.ct.replicate) {
        tables_plan_fini(&plan);
        return not_selected(d, &plan.ct, plan.comment, mode, added, err);
    }
    enum status st;
    if (mode == TABLES_RESUME && !resync) {
        st = tables_resume_target(t, desc, i, &plan, lsn, &target, &loss, &why);
    } else {
        st = tables_plan_target(t, desc, i, &plan, 0, &target, &why);
        if (st == OK && mode != TABLES_RESUME)
            st = target_table_ensure(d, target, &plan.options, mode, t->options.history, lsn, &loss,
                                     &why);
    }
    if (loss == TARGET_MISSING && plan.ct.initial_load == LOAD_NONE) {
        loss = TARGET_KEPT; /* what was before is not asked for */
        st = target_table_ensure(d, target, &plan.options, TABLES_KEEP, t->options.history, lsn,
                                 &loss, &why);
    }
    if (st == OK && plan.view && !resync)
        st = target_view_make(d, target, plan.comment, &why);
    tables_plan_fini(&plan);
    if (st != OK && loss != TARGET_MISSING) {
        target_unref(target);
        if (st != ERR_CONFIG) {
            *err = why;
            return error_prefix(err, "table %s", e->name);
        }
        added_reason(added, loss == TARGET_TAKEN, why.message);
        return OK;
    }
    added->missing = added->missing || loss == TARGET_MISSING;
    if (resync || loss == TARGET_MISSING)
        atomic_store(&target->closed, true);
    tables_entry_target(t, e, i, target);
    added->made++;
    return OK;
}

/* Its target went with it, the drop comes again. */
static bool is_dropped_later(struct tables *t, Oid oid)
{
    struct rel_desc *newest = history_by_oid(t->options.history, oid, UINT64_MAX);
    rel_desc_unref(newest);
    return newest == NULL;
}

/* Rows are missing: it is copied again, or, where its name is taken, never again looks whole. */
static enum status mark_incomplete(struct tables *t, struct table_entry *e, XLogRecPtr lsn,
                                   const struct added *added, struct error *err)
{
    if (added->lost)
        return tables_stop(t, e->oid, lsn, added->reason, err);
    if (added->missing && !is_dropped_later(t, e->oid))
        return tables_resync(t, e->oid, lsn, RESYNC_TARGET, "its target does not exist", false,
                             err);
    if (added->made == 0 && added->unselected)
        return history_resync(t->options.history, e->oid, lsn, "it was not selected for a time",
                              err);
    return OK;
}

static enum status add(struct tables *t, const struct rel_desc *desc, enum tables_mode mode,
                       XLogRecPtr lsn, struct error *err)
{
    char reason[400];
    struct table_entry *e = tables_entry_get(t, desc);
    const char *refused = relation_refused_by(t->config, desc);
    if (refused != NULL) {
        skip(t, e, refused);
        return OK;
    }
    struct added added = {0};
    enum status st = OK;
    enum history_state stands = history_state(t->options.history, desc->oid, reason, sizeof reason);
    for (size_t i = 0; i < t->options.ndestinations && st == OK; i++)
        st = add_target(t, e, desc, i, mode, stands == HISTORY_RESYNC, lsn, &added, err);
    if (st == OK && added.made == 0 && !added.lost)
        skip(t, e, added.reason);
    else if (st == OK && stands == HISTORY_STOPPED)
        entry_stop(t, e, reason);
    else if (st == OK && stands == HISTORY_RESYNC)
        tables_entry_set(t, e, TABLE_LIFE_RESYNCING, reason);
    else if (st == OK && !added.lost)
        tables_entry_set(t, e, TABLE_LIFE_STREAMING, NULL);
    atomic_store(&e->chunks_known, st == OK && stands == HISTORY_FOLLOWED && added.made > 0 &&
                                       !added.lost && !added.missing);
    if (st == OK && stands == HISTORY_FOLLOWED)
        st = mark_incomplete(t, e, lsn, &added, err);
    free(added.reason);
    return st;
}

enum status tables_add(struct tables *t, const struct rel_desc *desc, enum tables_mode mode,
                       XLogRecPtr lsn, struct error *err)
{
    if (desc->relkind == 't' || desc->relpersistence == 't')
        return OK; /* TOAST tables; temporary ones, which come and go unnoticed */
    if (desc->root_oid != 0 && desc->root_oid != desc->oid)
        return OK; /* rows of a leaf go to its root's target */
    /* read again after a restart: the target has the shape of its copy */
    XLogRecPtr covered = history_resynced_lsn(t->options.history, desc->oid);
    struct rel_desc *copied =
        covered > lsn ? history_by_oid(t->options.history, desc->oid, covered) : NULL;
    enum status st = add(t, copied != NULL ? copied : desc, mode, lsn, err);
    struct table_entry *e = tables_find(t, desc->oid);
    if (e != NULL) {
        atomic_store(&e->covered, covered);
        e->shaped = mode == TABLES_RESUME ? lsn : 0;
    }
    rel_desc_unref(copied);
    return st;
}

static enum status drop_target(struct tables *t, const struct table_entry *e,
                               const struct rel_desc *was, size_t i, struct error *err)
{
    const struct target *target = e->targets[i];
    struct target_plan plan;
    enum status st = OK;
    if (target == NULL)
        return OK;
    tables_plan_make(t, was, i, &plan);
    enum config_drop_strategy strategy = (enum config_drop_strategy)plan.ct.drop_table_strategy;
    log_write(strategy == DROP_WARN ? LOG_WARN : LOG_INFO,
              "msg=\"table dropped at the source, target %s\" table=%s target=%s",
              strategy == DROP_DROP ? "dropped" : "kept", LOG_Q(e->name), LOG_Q(target->table));
    if (strategy == DROP_DROP) {
        atomic_store(&e->targets[i]->closed, true);
        st = target_table_drop_ours(t->options.destinations[i], target, plan.comment, err);
        if (st == OK && plan.view)
            st = target_view_drop(t->options.destinations[i], target, plan.comment, err);
    }
    tables_plan_fini(&plan);
    return st;
}

enum status tables_drop(struct tables *t, const struct rel_desc *was, struct error *err)
{
    struct table_entry *e = tables_find(t, was->oid);
    if (e == NULL)
        return OK;
    tables_entry_set(t, e, TABLE_LIFE_DROPPED, NULL);
    for (size_t i = 0; i < t->options.ndestinations; i++)
        TRY(drop_target(t, e, was, i, err));
    return OK;
}

enum status tables_stop(struct tables *t, Oid root_oid, XLogRecPtr lsn, const char *reason,
                        struct error *err)
{
    struct table_entry *e = tables_find(t, root_oid);
    TRY(history_stop(t->options.history, root_oid, lsn, reason, err));
    if (e == NULL || !table_is_live(e))
        return OK;
    log_error("msg=\"table stopped: its rows are no longer replicated\" table=%s lsn=" LSN_FMT
              " reason=%s",
              LOG_Q(e->name), LSN_ARGS(lsn), LOG_Q(reason));
    entry_stop(t, e, reason);
    return OK;
}

enum status tables_deselect(struct tables *t, struct table_entry *e, XLogRecPtr lsn,
                            const char *reason, struct error *err)
{
    /* what it misses from now on is missing when it is selected again */
    TRY(history_resync(t->options.history, e->oid, lsn, "it was not selected for a time", err));
    skip(t, e, reason);
    for (size_t i = 0; i < t->options.ndestinations; i++)
        tables_entry_target(t, e, i, NULL);
    tables_copy_void(e);
    return OK;
}

bool tables_selects(const struct tables *t, const struct rel_desc *desc)
{
    const struct config *c = t->config;
    bool any = false;
    for (size_t i = 0; i < c->ndestinations && !any; i++) {
        struct config_target ct;
        config_table_resolve(c, &c->destinations[i], desc->schema, desc->name, &ct);
        any = ct.replicate;
    }
    return any && relation_refused_by(t->config, desc) == NULL;
}

static const char *const cause_names[] = {"asked", "shape",        "rewrite", "partition", "unseen",
                                          "load",  "initial_copy", "target",  "values"};

enum status tables_resync(struct tables *t, Oid root_oid, XLogRecPtr lsn, enum resync_cause cause,
                          const char *reason, bool keep_target, struct error *err)
{
    struct table_entry *e = tables_find(t, root_oid);
    if (e != NULL && atomic_load(&e->life) == TABLE_LIFE_DROPPED)
        return OK;
    TRY(history_resync(t->options.history, root_oid, lsn, reason, err));
    if (e == NULL)
        return OK;
    log_warn("msg=\"table is copied again\" table=%s lsn=" LSN_FMT " reason=%s", LOG_Q(e->name),
             LSN_ARGS(lsn), LOG_Q(reason));
    metric_add(metric_series_get(METRIC_RESYNCS, cause_names[cause], NULL), 1);
    /* a stopped or skipped table has lost it already; a rewrite gives chunks new places */
    if (cause != RESYNC_ASKED && cause != RESYNC_SHAPE && cause != RESYNC_PARTITION)
        atomic_store(&e->chunks_known, false);
    pthread_mutex_lock(&t->lock);
    if (!keep_target)
        targets_close(e->targets, t->options.ndestinations);
    e->retry_ns = 0;
    free(e->reason);
    e->reason = xstrdup(reason);
    atomic_store(&e->life, TABLE_LIFE_RESYNCING);
    pthread_mutex_unlock(&t->lock);
    tables_copy_void(e);
    return OK;
}

enum status tables_target_unfit(struct tables *t, const struct target *target, const char *why,
                                struct error *err)
{
    struct table_entry *e = tables_find(t, target->rel_oid);
    if (e == NULL || !table_is_live(e) || !target_is_open(target))
        return OK; /* it was given up before */
    CLEANUP_FREE char *reason = xasprintf("its target cannot take rows: %s", why);
    return tables_resync(t, e->oid, 0, RESYNC_TARGET, reason, false, err);
}

enum status tables_value_lost(struct tables *t, struct table_entry *e, XLogRecPtr lsn,
                              struct error *err)
{
    /* once: until a copy has put the chunks again */
    if (t->config->toast.mode == TOAST_DISABLED || !table_is_live(e) ||
        !atomic_exchange(&e->chunks_known, false))
        return OK;
    return tables_resync(t, e->oid, lsn, RESYNC_VALUES,
                         "a value out of line is not in the chunk store, or not whole", false, err);
}

enum status tables_key_unfit(struct tables *t, struct table_entry *e, struct target_text_key key,
                             XLogRecPtr lsn, const char *reason, bool *ret_done, struct error *err)
{
    bool is_new;
    *ret_done = tables_text_key_add(t, e, key, &is_new);
    if (!*ret_done || !is_new || !table_is_live(e))
        return OK;
    return tables_resync(t, e->oid, lsn, RESYNC_SHAPE, reason, false, err);
}

void tables_copy_void(struct table_entry *e)
{
    atomic_fetch_add(&e->changes, 1);
}

struct table_entry *tables_copier_take(struct tables *t)
{
    struct table_slot *s, *next;
    struct table_entry *found = NULL;
    uint64_t now = clock_now_ns();
    pthread_mutex_lock(&t->lock);
    HASH_ITER (hh, t->slots, s, next)
        if (found == NULL && atomic_load(&s->entry.life) == TABLE_LIFE_RESYNCING &&
            !atomic_load(&s->entry.copying) && s->entry.retry_ns <= now)
            found = &s->entry;
    if (found != NULL)
        atomic_store(&found->copying, true);
    pthread_mutex_unlock(&t->lock);
    return found;
}

void tables_copier_leave(struct tables *t, struct table_entry *e, uint64_t retry_ns)
{
    pthread_mutex_lock(&t->lock);
    e->retry_ns = retry_ns;
    atomic_store(&e->copying, false);
    pthread_mutex_unlock(&t->lock);
}

enum status tables_copy_failed(struct tables *t, struct table_entry *e, const char *reason,
                               struct error *err)
{
    for (size_t i = 0; i < t->options.ndestinations; i++)
        if (e->targets[i] != NULL)
            return tables_stop(t, e->oid, 0, reason, err);
    skip(t, e, reason);
    return OK;
}

enum status tables_by_name(struct tables *t, const char *name, struct table_entry **ret,
                           struct error *err)
{
    struct table_slot *s, *next;
    unsigned n = 0;
    pthread_mutex_lock(&t->lock);
    HASH_ITER (hh, t->slots, s, next) {
        const char *full = s->entry.name, *dot = strchr(full, '.');
        if (atomic_load(&s->entry.life) == TABLE_LIFE_DROPPED ||
            (strcmp(full, name) != 0 && (dot == NULL || strcmp(dot + 1, name) != 0)))
            continue;
        n++;
        *ret = &s->entry;
        if (strcmp(full, name) == 0) {
            n = 1;
            break;
        }
    }
    pthread_mutex_unlock(&t->lock);
    if (n == 0)
        return error_set(err, ERR_CONFIG, "there is no table %s; see walshadow tables", name);
    if (n > 1)
        return error_set(err, ERR_CONFIG, "%s names several tables: say schema.table", name);
    return OK;
}

static enum status truncate_open(struct destination *d, const struct target *target,
                                 struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    if (target == NULL || !target_is_open(target))
        return OK;
    buf_printf(&sql, "TRUNCATE TABLE IF EXISTS ");
    sql_quote_ident(&sql, target->database);
    buf_printf(&sql, ".");
    sql_quote_ident(&sql, target->table);
    return destination_execute(d, buf_cstr(&sql), err);
}

enum status tables_truncate(struct tables *t, struct table_entry *e, struct error *err)
{
    for (size_t i = 0; i < t->options.ndestinations; i++) {
        TRY(truncate_open(t->options.destinations[i], e->targets[i], err));
        if (e->fresh != NULL)
            TRY(truncate_open(t->options.destinations[i], e->fresh[i], err));
    }
    return OK;
}

void tables_each(struct tables *t, void (*fn)(void *ctx, const struct table_entry *e), void *ctx)
{
    struct table_slot *s, *next;
    pthread_mutex_lock(&t->lock);
    HASH_ITER (hh, t->slots, s, next)
        fn(ctx, &s->entry);
    pthread_mutex_unlock(&t->lock);
}
