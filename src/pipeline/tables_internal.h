/* Between the files that change the registry of tables (tables.c, target_plan.c, table_copy.c,
 * reshape.c, remap.c). */
#pragma once
#include "pipeline/target_internal.h"

#include <pthread.h>

struct tables {
    struct tables_options options;
    _Atomic(const struct config *) config; /* the one in force */
    pthread_mutex_t lock; /* guards the table of slots, reasons, target pointers and old names */
    struct table_slot *slots;
    char **old_names; /* workers may still read them */
    size_t nold_names;
};

/* One of each destination, some NULL; NULL: none. */
void targets_free(struct target **targets, size_t n);
void targets_close(struct target *const *targets, size_t n);

/* What a table is to become at one destination. */
struct target_plan {
    struct config_target ct;
    char comment[80], fresh_name[80];
    bool view;                     /* beside the target */
    struct target_options options; /* .columns is the plan's own */
    struct target_text_key text_keys[TABLE_TEXT_KEYS];
};
void tables_plan_make(struct tables *t, const struct rel_desc *desc, size_t i,
                      struct target_plan *plan);
/* The same by another configuration than the one in force. */
void tables_plan_make_from(struct tables *t, const struct config *config,
                           const struct rel_desc *desc, size_t i, struct target_plan *plan);
void tables_plan_fini(struct target_plan *plan);
/* The target of desc at destination i. ERR_CONFIG: it cannot be, or its name is another's. A table
 * that is named otherwise at lsn (0: no table that is replicated is) has given up the name. */
enum status tables_plan_target(struct tables *t, const struct rel_desc *desc, size_t i,
                               const struct target_plan *plan, XLogRecPtr lsn, struct target **ret,
                               struct error *err) CHECKED;
/* Key columns that are String in spite of their type; how many. Plans made after one was
 * added have it; false: there is no room for one more. */
size_t tables_text_keys(struct tables *t, Oid oid, struct target_text_key *ret);
bool tables_text_key_add(struct tables *t, struct table_entry *e, struct target_text_key key,
                         bool *ret_new);
/* reason: copied, or NULL. */
void tables_entry_set(struct tables *t, struct table_entry *e, enum table_life life,
                      const char *reason);
/* The entry of desc, made if there is none, under its present name. */
struct table_entry *tables_entry_get(struct tables *t, const struct rel_desc *desc);
/* Takes the reference. */
void tables_entry_target(struct tables *t, struct table_entry *e, size_t i, struct target *target);
/* reshape.c: types of what rows are sent to now, by attnum; n of them, NULL where there is none. */
void tables_present_types(const struct target *from, const char **types, size_t n);
/* reshape.c: the target that a restart finds, which may be further than desc, the shape at lsn:
 * renamed, made Nullable. As target_table_ensure. */
enum status tables_resume_target(struct tables *t, const struct rel_desc *desc, size_t i,
                                 struct target_plan *plan, XLogRecPtr lsn, struct target **ret,
                                 enum target_loss *ret_loss, struct error *err) CHECKED;
