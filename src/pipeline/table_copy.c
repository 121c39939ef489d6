/* The registry's part of a copy: the fresh targets and their exchange. */
#include "base/fault.h"
#include "base/log.h"
#include "pipeline/tables_internal.h"

#include <stdlib.h>
#include <string.h>

void tables_fresh_attach(struct tables *t, struct table_entry *e, struct target **fresh)
{
    pthread_mutex_lock(&t->lock);
    e->fresh = fresh;
    pthread_mutex_unlock(&t->lock);
}

void tables_generation_attach(struct tables *t, struct table_entry *e, struct target **fresh)
{
    targets_close(e->targets, t->options.ndestinations);
    tables_fresh_attach(t, e, fresh);
}

void tables_fresh_detach(struct tables *t, struct table_entry *e)
{
    targets_close(e->fresh, t->options.ndestinations);
    tables_fresh_attach(t, e, NULL);
}

enum status tables_fresh_make(struct tables *t, const struct table_entry *e,
                              const struct rel_desc *desc, const char *suffix, struct target ***ret,
                              struct error *err)
{
    size_t n = t->options.ndestinations, made = 0;
    struct target **fresh = xcalloc(n, sizeof(struct target *));
    const char *refused = relation_refused_by(t->config, desc);
    enum status st = refused == NULL ? OK : error_set(err, ERR_CONFIG, "%s", refused);
    for (size_t i = 0; i < n && st == OK; i++) {
        struct target_plan plan;
        struct target *final = NULL;
        tables_plan_make(t, desc, i, &plan);
        if (plan.ct.replicate) {
            st = tables_plan_target(t, desc, i, &plan, 0, &final, err);
            target_unref(final);
            CLEANUP_FREE char *name = xasprintf("%s%s", plan.fresh_name, suffix);
            plan.options.table = name;
            if (st == OK)
                st = target_new(desc, &plan.options, &t->options.destinations[i]->caps, &fresh[i],
                                err);
            if (st == OK)
                st = target_table_fresh(t->options.destinations[i], fresh[i], &plan.options, err);
            made++;
        }
        tables_plan_fini(&plan);
    }
    if (st == OK && made == 0)
        st = error_set(err, ERR_CONFIG, "not selected");
    if (st != OK) {
        struct error quiet; /* else the next copy or start sees to it */
        if (tables_fresh_drop(t, fresh, &quiet) != OK)
            log_debug("msg=\"fresh table not dropped\" error=%s", LOG_Q(quiet.message));
        return error_prefix(err, "table %s", e->name);
    }
    *ret = fresh;
    return OK;
}

enum status tables_fresh_drop(struct tables *t, struct target **fresh, struct error *err)
{
    enum status st = OK;
    for (size_t i = 0; i < t->options.ndestinations && st == OK; i++)
        if (fresh[i] != NULL)
            st = target_table_drop(t->options.destinations[i], fresh[i], err);
    targets_free(fresh, t->options.ndestinations);
    return st;
}

static enum status exchange_one(struct tables *t, struct table_entry *e,
                                const struct rel_desc *desc, size_t i, XLogRecPtr lsn,
                                struct error *err)
{
    struct target_plan plan;
    struct target *target = NULL;
    tables_plan_make(t, desc, i, &plan);
    enum status st = tables_plan_target(t, desc, i, &plan, 0, &target, err);
    if (st == OK)
        st = target_table_exchange(t->options.destinations[i], e->fresh[i], target, &plan.options,
                                   lsn, err);
    if (st == OK && plan.view)
        st = target_view_make(t->options.destinations[i], target, plan.comment, err);
    tables_plan_fini(&plan);
    if (st != OK)
        target_unref(target);
    else
        tables_entry_target(t, e, i, target);
    return st;
}

enum status tables_fresh_exchange(struct tables *t, struct table_entry *e,
                                  const struct rel_desc *desc, XLogRecPtr covered, XLogRecPtr lsn,
                                  struct error *err)
{
    targets_close(e->targets, t->options.ndestinations);
    for (size_t i = 0; i < t->options.ndestinations; i++) {
        if (e->fresh[i] != NULL)
            TRY(exchange_one(t, e, desc, i, lsn, err));
        else
            tables_entry_target(t, e, i, NULL);
    }
    FAULT_POINT("resync-exchanged");
    TRY(history_resynced(t->options.history, e->oid, covered, err));
    atomic_store(&e->covered, covered);
    tables_fresh_detach(t, e);
    tables_entry_get(t, desc); /* its name may be another now */
    tables_entry_set(t, e, TABLE_LIFE_STREAMING, NULL);
    return OK;
}

enum status tables_fresh_clear(struct tables *t, struct error *err)
{
    char comment[80];
    snprintf(comment, sizeof comment, "walshadow %llu/%u/",
             (unsigned long long)t->options.system_id, t->options.database_oid);
    for (size_t i = 0; i < t->options.ndestinations; i++)
        TRY(target_table_drop_all(t->options.destinations[i], TABLES_FRESH_PREFIX, comment, err));
    return OK;
}
