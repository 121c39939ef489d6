/* What the configuration and the table's history make of a table at each destination. */
#include "pipeline/tables_internal.h"

#include <stdlib.h>
#include <string.h>

struct found_owner {
    struct tables *tables;
    const struct target *target;
    const struct table_entry *owner;
    size_t destination;
    XLogRecPtr lsn;
};

/* A table that is copied again, or whose turn comes at the same commit, may have been renamed: its
 * target's name is up for others. */
static bool keeps_name(struct tables *t, const struct table_entry *e, size_t i, XLogRecPtr lsn)
{
    struct config_target ct;
    const struct target *target = e->targets[i];
    if (atomic_load(&e->life) == TABLE_LIFE_RESYNCING)
        lsn = UINT64_MAX;
    else if (lsn == 0)
        return true;
    struct rel_desc *now = history_by_oid(t->options.history, e->oid, lsn);
    if (now == NULL)
        return false;
    const struct config *c = t->config;
    config_table_resolve(c, &c->destinations[i], now->schema, now->name, &ct);
    rel_desc_unref(now);
    return strcmp(ct.table, target->table) == 0 && strcmp(ct.database, target->database) == 0;
}

static void find_owner(void *ctx, const struct table_entry *e)
{
    struct found_owner *f = ctx;
    const struct target *theirs = e->targets[f->destination];
    if (theirs != NULL && e->oid != f->target->rel_oid &&
        atomic_load(&e->life) != TABLE_LIFE_DROPPED &&
        strcmp(theirs->table, f->target->table) == 0 &&
        strcmp(theirs->database, f->target->database) == 0 &&
        keeps_name(f->tables, e, f->destination, f->lsn))
        f->owner = e;
}

static enum bad_value_policy policy_of(const struct config_target *ct)
{
    if (!ct->on_bad_value_set)
        return BAD_VALUE_DEFAULT;
    switch ((enum config_bad_value)ct->on_bad_value) {
    case CONFIG_BAD_VALUE_NULL:
        return BAD_VALUE_NULL;
    case CONFIG_BAD_VALUE_CLAMP:
        return BAD_VALUE_CLAMP;
    case CONFIG_BAD_VALUE_ERROR:
        return BAD_VALUE_ERROR;
    }
    return BAD_VALUE_DEFAULT;
}

size_t tables_text_keys(struct tables *t, Oid oid, struct target_text_key *ret)
{
    const struct table_entry *e = tables_find(t, oid);
    if (e == NULL)
        return 0;
    pthread_mutex_lock(&t->lock);
    size_t n = e->ntext_keys;
    memcpy(ret, e->text_keys, n * sizeof *ret);
    pthread_mutex_unlock(&t->lock);
    return n;
}

/* False: there is no room for one more. */
bool tables_text_key_add(struct tables *t, struct table_entry *e, struct target_text_key key,
                         bool *ret_new)
{
    bool known = false;
    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < e->ntext_keys; i++)
        known =
            known || (e->text_keys[i].attnum == key.attnum && e->text_keys[i].typid == key.typid);
    bool full = !known && e->ntext_keys == TABLE_TEXT_KEYS;
    if (!known && !full)
        e->text_keys[e->ntext_keys++] = key;
    pthread_mutex_unlock(&t->lock);
    *ret_new = !known;
    return !full;
}

void tables_plan_make(struct tables *t, const struct rel_desc *desc, size_t i,
                      struct target_plan *plan)
{
    tables_plan_make_from(t, t->config, desc, i, plan);
}

void tables_plan_make_from(struct tables *t, const struct config *config,
                           const struct rel_desc *desc, size_t i, struct target_plan *plan)
{
    const struct config_destination *cd = &config->destinations[i];
    config_table_resolve(config, cd, desc->schema, desc->name, &plan->ct);
    plan->view = cd->views;
    snprintf(plan->comment, sizeof plan->comment, "walshadow %llu/%u/%u",
             (unsigned long long)t->options.system_id, t->options.database_oid, desc->oid);
    snprintf(plan->fresh_name, sizeof plan->fresh_name, TABLES_FRESH_PREFIX "%llx_%u_%u",
             (unsigned long long)t->options.system_id, t->options.database_oid, desc->oid);
    struct target_override *overrides = xcalloc(plan->ct.ncolumns, sizeof *overrides);
    for (size_t c = 0; c < plan->ct.ncolumns; c++)
        overrides[c] = (struct target_override){
            plan->ct.columns[c].attnum, plan->ct.columns[c].target, plan->ct.columns[c].type};
    plan->options = (struct target_options){
        .database = plan->ct.database,
        .table = plan->ct.table,
        .on_bad_value = policy_of(&plan->ct),
        .chdb_fsync = cd->kind == DESTINATION_CHDB,
        .fsync_each_insert = cd->fsync == FSYNC_INSERT,
        .no_create = !plan->ct.auto_create,
        .comment = plan->comment,
        .columns = overrides,
        .ncolumns = plan->ct.ncolumns,
        .text_keys = plan->text_keys,
        .ntext_keys = tables_text_keys(t, desc->oid, plan->text_keys),
    };
}

void tables_plan_fini(struct target_plan *plan)
{
    free((void *)(uintptr_t)plan->options.columns);
}

enum status tables_plan_target(struct tables *t, const struct rel_desc *desc, size_t i,
                               const struct target_plan *plan, XLogRecPtr lsn, struct target **ret,
                               struct error *err)
{
    struct target *target = NULL;
    TRY(target_new(desc, &plan->options, &t->options.destinations[i]->caps, &target, err));
    struct found_owner owner = {.tables = t, .target = target, .destination = i, .lsn = lsn};
    tables_each(t, find_owner, &owner);
    if (owner.owner != NULL) {
        error_set(err, ERR_CONFIG, "its target %s.%s belongs to %s", target->database,
                  target->table, owner.owner->name);
        target_unref(target);
        return ERR_CONFIG;
    }
    *ret = target;
    return OK;
}
