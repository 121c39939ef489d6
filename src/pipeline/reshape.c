/* Shape changes that leave the rows where they are: columns added, dropped, renamed, widened,
 * tables renamed (docs/ddl.md). What cannot be proven to end in the source's values is refused
 * here, and the table is copied again. */
#include "base/log.h"
#include "pipeline/tables_internal.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_OID 25u /* catalog/pg_type.dat */
#define VARCHAR_OID 1043u

/* ---- what the source changed ---- */

static bool same_key(const struct rel_desc *a, const struct rel_desc *b)
{
    return a->identity == b->identity && a->nkeys == b->nkeys &&
           memcmp(a->key_attnums, b->key_attnums, a->nkeys * sizeof a->key_attnums[0]) == 0;
}

static Oid value_type(const struct att_desc *att)
{
    return att->base_typid == VARCHAR_OID ? TEXT_OID : att->base_typid;
}

/* Without a rewrite every datum means what it meant, if its type is the same but for its length,
 * precision or domain. */
static bool keeps_values(const struct att_desc *a, const struct att_desc *b)
{
    return a->dropped || b->dropped ||
           (value_type(a) == value_type(b) && a->elem_typid == b->elem_typid &&
            (a->generated == 'v') == (b->generated == 'v'));
}

static const char *refusal(const struct rel_desc *before, const struct rel_desc *now)
{
    if (before->relkind != now->relkind || before->relam != now->relam)
        return "it became another kind of relation";
    if (before->relpersistence != now->relpersistence)
        return "SET LOGGED or SET UNLOGGED";
    if (!same_key(before, now))
        return "its key or replica identity changed";
    if (now->natts < before->natts)
        return "it has fewer columns than before";
    for (unsigned i = 0; i < before->natts; i++)
        if (!keeps_values(&before->atts[i], &now->atts[i]))
            return "a column has another type";
    return type_closure_text_change(before->types, now->types);
}

/* ---- what a new column holds in old rows ---- */

static const struct att_desc *find_att(const struct rel_desc *d, const char *name)
{
    for (unsigned i = 0; i < d->natts; i++)
        if (!d->atts[i].dropped && strcmp(d->atts[i].name, name) == 0)
            return &d->atts[i];
    return NULL;
}

static bool same_missing(const struct att_desc *a, const struct att_desc *b)
{
    return a->has_missing == b->has_missing && a->missing_is_text == b->missing_is_text &&
           a->missing_len == b->missing_len && (a->missing == NULL) == (b->missing == NULL) &&
           (a->missing_len == 0 || memcmp(a->missing, b->missing, a->missing_len) == 0);
}

/* Of a partitioned root each partition says it for its own rows, and they must agree. False: they
 * do not, or one had the column before. */
static bool partitions_agree(const struct tables_reshape *r, struct history *history,
                             const struct rel_desc *part, const char *name,
                             const struct att_desc **ret)
{
    struct rel_desc *before = history_by_oid(history, part->oid, r->lsn - 1);
    const struct att_desc *att = find_att(part, name);
    /* in another file the value may be in the rows themselves, and is kept nowhere else */
    bool ok = before != NULL && att != NULL && find_att(before, name) == NULL &&
              rel_file_locator_equal(before->locator, part->locator) &&
              (*ret == NULL || same_missing(*ret, att));
    if (*ret == NULL)
        *ret = att;
    rel_desc_unref(before);
    return ok;
}

static bool is_partition_of(const struct rel_desc *d, const struct rel_desc *root)
{
    return d->root_oid == root->oid && d->oid != root->oid && d->relkind == 'r';
}

/* ret[c]: the attribute behind a column that is new in `to`. */
static bool find_added(const struct tables_reshape *r, struct history *history,
                       struct rel_desc *const *parts, size_t nparts, const struct target *to,
                       const struct att_desc **ret)
{
    for (unsigned c = 0; c < to->ncols; c++) {
        int16_t attnum = to->cols[c].attnum;
        if (attnum <= r->before->natts)
            continue;
        if (r->now->relkind != 'p') {
            ret[c] = &r->now->atts[attnum - 1];
            continue;
        }
        for (size_t i = 0; i < nparts; i++)
            if (is_partition_of(parts[i], r->now) &&
                !partitions_agree(r, history, parts[i], r->now->atts[attnum - 1].name, &ret[c]))
                return false;
    }
    return true;
}

/* ---- at the destinations ---- */

struct step {
    struct target *to;             /* NULL: not replicated there, before and after */
    const struct att_desc **added; /* per column of to */
    bool changes;
};

static bool same_place(const struct target *a, const struct target *b)
{
    return strcmp(a->database, b->database) == 0 && strcmp(a->table, b->table) == 0;
}

static bool same_target(const struct target *a, const struct target *b)
{
    if (!same_place(a, b) || a->ncols != b->ncols)
        return false;
    for (unsigned c = 0; c < a->ncols; c++)
        if (a->cols[c].attnum != b->cols[c].attnum ||
            strcmp(a->header->cols[c].name, b->header->cols[c].name) != 0 ||
            strcmp(target_column_type(a, c), target_column_type(b, c)) != 0)
            return false;
    return true;
}

void tables_present_types(const struct target *from, const char **types, size_t n)
{
    for (unsigned c = 0; c < from->ncols; c++)
        if ((size_t)from->cols[c].attnum <= n)
            types[from->cols[c].attnum - 1] = target_column_type(from, c);
}

static enum status step_plan(struct tables *t, const struct tables_reshape *r, size_t i,
                             struct step *step, struct error *err)
{
    struct target_plan plan;
    const struct target *from = r->entry->targets[i];
    CLEANUP_FREE const char **types = xcalloc(r->now->natts, sizeof *types);
    tables_plan_make(t, r->now, i, &plan);
    enum status st = OK;
    if (plan.ct.replicate != (from != NULL))
        st = error_set(err, ERR_CONFIG, "under its name the configuration selects it otherwise");
    else if (from != NULL && !target_is_open(from))
        st = error_set(err, ERR_CONFIG, "its target is closed");
    if (st == OK && from != NULL) {
        tables_present_types(from, types, r->now->natts);
        plan.options.stored_types = types;
        plan.options.nstored = r->now->natts;
        st = tables_plan_target(t, r->now, i, &plan, r->lsn, &step->to, err);
    }
    if (st == OK && from != NULL) {
        step->changes = !same_target(from, step->to);
        step->added = xcalloc(step->to->ncols, sizeof *step->added);
    }
    tables_plan_fini(&plan);
    return st;
}

static bool is_live(void *ctx, Oid oid)
{
    const struct table_entry *e = tables_find(ctx, oid);
    return e != NULL && atomic_load(&e->life) == TABLE_LIFE_STREAMING;
}

static enum status step_run(struct tables *t, const struct tables_reshape *r, size_t i,
                            const struct step *step, struct error *err)
{
    struct destination *d = tables_options_of(t)->destinations[i];
    const struct target_alter alter = {r->entry->targets[i], step->to, step->added};
    struct target_plan plan;
    if (!step->changes)
        return OK;
    tables_plan_make(t, r->now, i, &plan);
    const struct target_rename rename = {plan.comment, r->lsn, is_live, t};
    enum status st = target_table_rename(d, step->to, &rename, err);
    if (st == OK)
        st = target_table_alter(d, &alter, err);
    /* first the new one: a swap may have given the old name to another table's view */
    if (st == OK && plan.view)
        st = target_view_make(d, step->to, plan.comment, err);
    if (st == OK && plan.view && !same_place(alter.from, step->to))
        st = target_view_drop(d, alter.from, plan.comment, err);
    tables_plan_fini(&plan);
    return st;
}

static enum status plan_all(struct tables *t, const struct tables_reshape *r,
                            struct rel_desc *const *all, size_t nall, struct step *steps,
                            bool *ret_changes, struct error *err)
{
    const struct tables_options *o = tables_options_of(t);
    for (size_t i = 0; i < o->ndestinations; i++) {
        TRY(step_plan(t, r, i, &steps[i], err));
        *ret_changes = *ret_changes || steps[i].changes;
        if (steps[i].to != NULL &&
            !find_added(r, o->history, all, nall, steps[i].to, steps[i].added))
            return error_set(err, ERR_CONFIG, "its partitions differ in what a new column holds");
    }
    return OK;
}

static enum status run_all(struct tables *t, const struct tables_reshape *r, struct step *steps,
                           bool changes, struct error *err)
{
    size_t n = tables_options_of(t)->ndestinations;
    if (changes && r->fence(r->ctx, err) != OK) {
        if (err->kind == ERR_CONFIG)
            err->kind = ERR_BUG; /* never to be taken for a refusal */
        return err->kind;
    }
    for (size_t i = 0; i < n; i++)
        TRY(step_run(t, r, i, &steps[i], err));
    for (size_t i = 0; i < n; i++) {
        if (steps[i].to != NULL)
            tables_entry_target(t, r->entry, i, steps[i].to);
        steps[i].to = NULL;
    }
    return OK;
}

static enum status plan_and_run(struct tables *t, const struct tables_reshape *r,
                                struct step *steps, bool *ret_changes, struct error *err)
{
    struct rel_desc **all = NULL; /* steps borrow from them */
    size_t nall = 0;
    if (r->now->relkind == 'p')
        history_all(tables_options_of(t)->history, r->lsn, &all, &nall);
    enum status st = plan_all(t, r, all, nall, steps, ret_changes, err);
    if (st == OK)
        st = run_all(t, r, steps, *ret_changes, err);
    for (size_t i = 0; i < nall; i++)
        rel_desc_unref(all[i]);
    free(all);
    return st;
}

static void log_done(const struct tables_reshape *r)
{
    log_info("msg=\"table changed in place\" table=%s lsn=" LSN_FMT, LOG_Q(r->entry->name),
             LSN_ARGS(r->lsn));
}

enum status tables_reshape(struct tables *t, const struct tables_reshape *r, char **ret_reason,
                           struct error *err)
{
    size_t n = tables_options_of(t)->ndestinations;
    const char *reason = refusal(r->before, r->now);
    bool changes = false;
    if (reason != NULL || atomic_load(&r->entry->life) != TABLE_LIFE_STREAMING ||
        r->entry->fresh != NULL) {
        *ret_reason = xstrdup(reason != NULL ? reason : "it is copied again anyway");
        return OK;
    }
    struct step *steps = xcalloc(n, sizeof *steps);
    enum status st = plan_and_run(t, r, steps, &changes, err);
    if (st == OK) {
        r->entry->shaped = MAX(r->entry->shaped, r->lsn);
        tables_entry_get(t, r->now); /* its name may be another now */
        if (changes)
            log_done(r);
        *ret_reason = NULL;
    } else if (st == ERR_CONFIG) {
        *ret_reason = xstrdup(err->message);
        st = OK;
    }
    for (size_t i = 0; i < n; i++) {
        target_unref(steps[i].to);
        free(steps[i].added);
    }
    free(steps);
    return st;
}

/* ---- a restart ---- */

static enum status rebuild(struct tables *t, const struct rel_desc *desc, size_t i,
                           const struct target_plan *plan, struct target **target,
                           struct error *err)
{
    struct target *again = NULL;
    TRY(target_new(desc, &plan->options, &tables_options_of(t)->destinations[i]->caps, &again,
                   err));
    target_unref(*target);
    *target = again;
    return OK;
}

static bool may_be_wider(const struct rel_desc *desc)
{
    for (unsigned i = 0; i < desc->natts; i++)
        if (desc->atts[i].not_null && !desc->atts[i].dropped)
            return true;
    return false;
}

/* Key columns that were made String. */
static void find_text_keys(struct tables *t, const struct rel_desc *desc,
                           const struct target *target, const char *const *types,
                           struct target_plan *plan)
{
    struct table_entry *e = tables_find(t, desc->oid);
    for (unsigned c = 0; c < target->ncols && e != NULL; c++) {
        const struct target_column *col = &target->cols[c];
        const char *type = types[col->attnum - 1];
        bool is_new;
        if (col->key_index > 0 && !col->type_given && type != NULL && strcmp(type, "String") == 0 &&
            strcmp(col->encoder.ch_type, "String") != 0)
            (void)tables_text_key_add(
                t, e, (struct target_text_key){col->attnum, desc->atts[col->attnum - 1].typid},
                &is_new);
    }
    plan->options.ntext_keys = tables_text_keys(t, desc->oid, plan->text_keys);
}

/* Columns that became NOT NULL while the target had NULLs are Nullable still, keys that did not fit
 * are String. */
static enum status keep_wider(struct tables *t, const struct rel_desc *desc, size_t i,
                              struct target_plan *plan, struct target **target, struct error *err)
{
    struct destination *d = tables_options_of(t)->destinations[i];
    struct found_columns found = {0};
    CLEANUP_FREE const char **types = xcalloc(desc->natts, sizeof *types);
    if (d->options.null || !may_be_wider(desc))
        return OK;
    const struct found_columns *columns =
        target_survey_find(d->survey, (*target)->database, (*target)->table, plan->comment);
    enum status st = OK;
    if (columns == NULL) {
        st = target_table_columns(d, (*target)->database, (*target)->table, &found, err);
        columns = &found;
    }
    if (st == OK) {
        target_stored_types(*target, columns, types, desc->natts);
        find_text_keys(t, desc, *target, types, plan);
        plan->options.stored_types = types;
        plan->options.nstored = desc->natts;
        st = rebuild(t, desc, i, plan, target, err);
        plan->options.stored_types = NULL;
        plan->options.nstored = 0;
    }
    found_columns_fini(&found);
    return st;
}

/* Where a target is that does not have the name of desc. */
struct place {
    char *database, *table;
};

/* Under another name than desc's: it was renamed before a kill, or the configuration gave it
 * another. */
static enum status find_elsewhere(struct tables *t, const struct rel_desc *desc, size_t i,
                                  struct target_plan *plan, struct target **target,
                                  struct place *ret, struct error *err)
{
    TRY(target_table_locate(tables_options_of(t)->destinations[i], plan->comment, &ret->database,
                            &ret->table, err));
    if (ret->table == NULL)
        return OK;
    plan->options.database = ret->database;
    plan->options.table = ret->table;
    return rebuild(t, desc, i, plan, target, err);
}

static enum status resume_at(struct tables *t, const struct rel_desc *desc, size_t i,
                             struct target_plan *plan, XLogRecPtr lsn, struct target **target,
                             struct place *place, enum target_loss *ret_loss, struct error *err)
{
    const struct tables_options *o = tables_options_of(t);
    struct destination *d = o->destinations[i];
    struct error other;
    TRY(rebuild(t, desc, i, plan, target, err));
    if (target_survey_find(d->survey, (*target)->database, (*target)->table, plan->comment) != NULL)
        return keep_wider(t, desc, i, plan, target, err);
    enum status st = target_table_ensure(d, *target, &plan->options, TABLES_RESUME, o->history, lsn,
                                         ret_loss, err);
    if (st == ERR_CONFIG && find_elsewhere(t, desc, i, plan, target, place, &other) != OK) {
        *err = other;
        return other.kind;
    }
    if (place->table != NULL) {
        *ret_loss = TARGET_KEPT;
        st = OK;
    }
    return st == OK ? keep_wider(t, desc, i, plan, target, err) : st;
}

static enum status resume_target(struct tables *t, const struct rel_desc *desc, size_t i,
                                 struct target_plan *plan, XLogRecPtr lsn, struct target **target,
                                 enum target_loss *ret_loss, struct error *err)
{
    struct place place = {0};
    enum status st = resume_at(t, desc, i, plan, lsn, target, &place, ret_loss, err);
    plan->options.database = plan->ct.database;
    plan->options.table = plan->ct.table;
    free(place.database);
    free(place.table);
    return st;
}

enum status tables_resume_target(struct tables *t, const struct rel_desc *desc, size_t i,
                                 struct target_plan *plan, XLogRecPtr lsn, struct target **ret,
                                 enum target_loss *ret_loss, struct error *err)
{
    struct target *target = NULL;
    enum status st = resume_target(t, desc, i, plan, lsn, &target, ret_loss, err);
    if (st == OK || *ret_loss == TARGET_MISSING)
        *ret = target;
    else
        target_unref(target);
    return st;
}
