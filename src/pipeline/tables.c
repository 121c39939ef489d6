#include "pipeline/tables.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

struct slot {
    Oid oid;
    struct table_entry entry;
    UT_hash_handle hh;
};

struct tables {
    struct tables_options options;
    pthread_mutex_t lock; /* guards the table of slots, reasons, target pointers and old names */
    struct slot *slots;
    char **old_names; /* workers may still read them */
    size_t nold_names;
};

struct tables *tables_new(const struct tables_options *options)
{
    struct tables *t = xcalloc(1, sizeof *t);
    t->options = *options;
    pthread_mutex_init(&t->lock, NULL);
    return t;
}

void tables_free(struct tables *t)
{
    struct slot *s, *next;
    if (t == NULL)
        return;
    HASH_ITER (hh, t->slots, s, next) {
        HASH_DEL(t->slots, s);
        for (size_t i = 0; i < t->options.ndestinations; i++)
            target_unref(s->entry.targets[i]);
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

struct table_entry *tables_find(struct tables *t, Oid root_oid)
{
    struct slot *s;
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

static struct table_entry *entry_get(struct tables *t, const struct rel_desc *desc)
{
    struct slot *s;
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

static void entry_set(struct tables *t, struct table_entry *e, enum table_life life,
                      const char *reason)
{
    pthread_mutex_lock(&t->lock);
    free(e->reason);
    e->reason = reason == NULL ? NULL : xstrdup(reason);
    atomic_store(&e->life, (int)life);
    pthread_mutex_unlock(&t->lock);
}

static void skip(struct tables *t, struct table_entry *e, const char *reason)
{
    log_warn("msg=\"table is not replicated\" table=%s reason=%s", LOG_Q(e->name), LOG_Q(reason));
    entry_set(t, e, TABLE_LIFE_SKIPPED, reason);
}

struct found_owner {
    const struct target *target;
    const struct table_entry *owner;
    size_t destination;
};

static void find_owner(void *ctx, const struct table_entry *e)
{
    struct found_owner *f = ctx;
    const struct target *theirs = e->targets[f->destination];
    if (theirs != NULL && e->oid != f->target->rel_oid &&
        atomic_load(&e->life) != TABLE_LIFE_DROPPED &&
        strcmp(theirs->table, f->target->table) == 0 &&
        strcmp(theirs->database, f->target->database) == 0)
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

/* What became of a table at its destinations. */
struct added {
    size_t made;
    char *reason;    /* why the last one has no target */
    bool lost;       /* a target that must be there is not */
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

/* The target of one destination. */
static enum status add_target(struct tables *t, struct table_entry *e, const struct rel_desc *desc,
                              size_t i, enum tables_mode mode, XLogRecPtr lsn, struct added *added,
                              struct error *err)
{
    const struct config_destination *cd = &t->options.config->destinations[i];
    struct destination *d = t->options.destinations[i];
    struct config_target ct;
    struct target *target = NULL;
    bool lost = false;
    char comment[80];
    config_table_resolve(t->options.config, cd, desc->schema, desc->name, &ct);
    snprintf(comment, sizeof comment, "walshadow %llu/%u/%u",
             (unsigned long long)t->options.system_id, t->options.database_oid, desc->oid);
    if (!ct.replicate)
        return not_selected(d, &ct, comment, mode, added, err);
    struct target_override *overrides = xcalloc(ct.ncolumns, sizeof *overrides);
    for (size_t c = 0; c < ct.ncolumns; c++)
        overrides[c] = (struct target_override){ct.columns[c].attnum, ct.columns[c].target,
                                                ct.columns[c].type};
    struct target_options options = {
        .database = ct.database,
        .table = ct.table,
        .on_bad_value = policy_of(&ct),
        .chdb_fsync = cd->kind == DESTINATION_CHDB,
        .fsync_each_insert = cd->fsync == FSYNC_INSERT,
        .comment = comment,
        .columns = overrides,
        .ncolumns = ct.ncolumns,
    };
    struct error why;
    enum status st = target_new(desc, &options, &d->caps, &target, &why);
    if (st == OK) {
        struct found_owner owner = {.target = target, .destination = i};
        tables_each(t, find_owner, &owner);
        if (owner.owner != NULL) {
            st = error_set(&why, ERR_CONFIG, "its target %s.%s belongs to %s", target->database,
                           target->table, owner.owner->name);
        } else {
            st = target_table_ensure(d, target, &options, mode, t->options.history, lsn, &lost,
                                     &why);
        }
    }
    free(overrides);
    if (st != OK) {
        target_unref(target);
        if (st != ERR_CONFIG) {
            *err = why;
            return error_prefix(err, "table %s", e->name);
        }
        added_reason(added, lost, why.message);
        return OK;
    }
    pthread_mutex_lock(&t->lock);
    target_unref(e->targets[i]);
    e->targets[i] = target;
    pthread_mutex_unlock(&t->lock);
    added->made++;
    return OK;
}

/* Rows are lost from here on, or have been: the table never again looks whole. */
static enum status stop_incomplete(struct tables *t, struct table_entry *e, XLogRecPtr lsn,
                                   const struct added *added, struct error *err)
{
    if (added->lost)
        return tables_stop(t, e->oid, lsn, added->reason, err);
    if (added->made == 0 && added->unselected)
        TRY(history_stop(t->options.history, e->oid, lsn,
                         "it was not selected for a time: rows are missing. Remove the state "
                         "directory and load again",
                         err));
    return OK;
}

enum status tables_add(struct tables *t, const struct rel_desc *desc, enum tables_mode mode,
                       XLogRecPtr lsn, struct error *err)
{
    char stopped[400];
    if (desc->relkind == 't' || desc->relpersistence == 't')
        return OK; /* TOAST tables; temporary ones, which come and go unnoticed */
    if (desc->root_oid != 0 && desc->root_oid != desc->oid)
        return OK; /* rows of a leaf go to its root's target */
    struct table_entry *e = entry_get(t, desc);
    const char *refused = relation_refused(desc);
    if (refused != NULL) {
        skip(t, e, refused);
        return OK;
    }
    struct added added = {0};
    enum status st = OK;
    for (size_t i = 0; i < t->options.ndestinations && st == OK; i++)
        st = add_target(t, e, desc, i, mode, lsn, &added, err);
    bool was_stopped =
        history_state(t->options.history, desc->oid, stopped, sizeof stopped) == HISTORY_STOPPED;
    if (st == OK && !was_stopped)
        st = stop_incomplete(t, e, lsn, &added, err);
    if (st == OK && added.made == 0 && !added.lost)
        skip(t, e, added.reason);
    else if (st == OK && was_stopped)
        entry_set(t, e, TABLE_LIFE_STOPPED, stopped);
    else if (st == OK && !added.lost)
        entry_set(t, e, TABLE_LIFE_STREAMING, NULL);
    free(added.reason);
    return st;
}

void tables_drop(struct tables *t, Oid oid)
{
    struct table_entry *e = tables_find(t, oid);
    if (e == NULL)
        return;
    log_info("msg=\"table dropped at the source, target kept\" table=%s", LOG_Q(e->name));
    entry_set(t, e, TABLE_LIFE_DROPPED, NULL);
}

enum status tables_stop(struct tables *t, Oid root_oid, XLogRecPtr lsn, const char *reason,
                        struct error *err)
{
    struct table_entry *e = tables_find(t, root_oid);
    TRY(history_stop(t->options.history, root_oid, lsn, reason, err));
    if (e == NULL || atomic_load(&e->life) != TABLE_LIFE_STREAMING)
        return OK;
    log_error("msg=\"table stopped: its rows are no longer replicated\" table=%s lsn=" LSN_FMT
              " reason=%s",
              LOG_Q(e->name), LSN_ARGS(lsn), LOG_Q(reason));
    entry_set(t, e, TABLE_LIFE_STOPPED, reason);
    return OK;
}

enum status tables_truncate(struct tables *t, struct table_entry *e, struct error *err)
{
    for (size_t i = 0; i < t->options.ndestinations; i++) {
        CLEANUP_BUF struct buf sql = {0};
        const struct target *target = e->targets[i];
        if (target == NULL)
            continue;
        buf_printf(&sql, "TRUNCATE TABLE IF EXISTS ");
        sql_quote_ident(&sql, target->database);
        buf_printf(&sql, ".");
        sql_quote_ident(&sql, target->table);
        TRY(destination_execute(t->options.destinations[i], buf_cstr(&sql), err));
    }
    return OK;
}

void tables_each(struct tables *t, void (*fn)(void *ctx, const struct table_entry *e), void *ctx)
{
    struct slot *s, *next;
    pthread_mutex_lock(&t->lock);
    HASH_ITER (hh, t->slots, s, next)
        fn(ctx, &s->entry);
    pthread_mutex_unlock(&t->lock);
}
