/* The tables being replicated: one entry per source table or partitioned root, with its target at
 * every destination. Changed by the reorder thread (and, when a value stops a table, by workers);
 * read by the status thread. Entries live as long as the registry. */
#pragma once
#include "catalog/history.h"
#include "config/config.h"
#include "pipeline/destination.h"

enum table_life {
    TABLE_LIFE_STREAMING,
    TABLE_LIFE_RESYNCING, /* it is to be copied again; rows go to those of its targets that are open
                           */
    TABLE_LIFE_STOPPED,
    TABLE_LIFE_SKIPPED,
    TABLE_LIFE_DROPPED
};

#define TABLE_TEXT_KEYS 8

struct table_entry {
    Oid oid;
    _Atomic(char *) name;    /* schema.table; what was read stays valid as long as the registry */
    atomic_int life;         /* enum table_life */
    char *reason;            /* why not streaming; under the registry's lock */
    struct target **targets; /* one per destination, NULL if not replicated there */
    atomic_ulong *rows;      /* one per destination: acknowledged */
    atomic_ulong rejects;
    struct target **fresh;      /* what a copy fills, one per destination; NULL if there is none */
    _Atomic XLogRecPtr covered; /* commits at or below it are in the targets by a copy */
    XLogRecPtr shaped; /* reorder thread: the targets have the shape of this position, or of a later
                          one that comes again */
    atomic_uint changes;      /* grows with what makes a copy under way void */
    atomic_bool copying;      /* a copier has taken it */
    atomic_bool chunks_known; /* the chunk store has, and follows, its values out of line */
    uint64_t retry_ns;        /* of the copiers, under the registry's lock: not before */
    atomic_ulong copied;      /* rows of the copy under way */
    /* key columns whose values have not all fitted their target; under the registry's lock */
    struct target_text_key text_keys[TABLE_TEXT_KEYS];
    size_t ntext_keys;
};

/* Rows of it may go somewhere. */
static inline bool table_is_live(const struct table_entry *e)
{
    int life = atomic_load_explicit(&e->life, memory_order_relaxed);
    return life == TABLE_LIFE_STREAMING || life == TABLE_LIFE_RESYNCING;
}

/* Names of the tables that copies fill begin with it. */
#define TABLES_FRESH_PREFIX "walshadow_resync_"

struct tables;

struct tables_options {
    const struct config *config; /* the first one */
    struct history *history;
    struct destination **destinations;
    size_t ndestinations;
    uint64_t system_id;
    Oid database_oid;
};

struct tables *tables_new(const struct tables_options *options);
void tables_free(struct tables *t);

enum tables_mode {
    TABLES_KEEP,    /* new in the stream: made, or there already when it is read again */
    TABLES_RESUME,  /* a restart: a table whose target is not there is copied again */
    TABLES_REPLACE, /* a load begins: what an earlier one left is emptied or dropped first */
};
/* Makes the entry and the targets of a relation (leaves have none of their own). A relation that
 * cannot be replicated gets state skipped and a reason. Fails only if the destination does. */
enum status tables_add(struct tables *t, const struct rel_desc *desc, enum tables_mode mode,
                       XLogRecPtr lsn, struct error *err) CHECKED;
/* NULL if there is none. */
struct table_entry *tables_find(struct tables *t, Oid root_oid);
/* The source has dropped it; behind a barrier. What becomes of its targets: drop_table_strategy. */
enum status tables_drop(struct tables *t, const struct rel_desc *was, struct error *err) CHECKED;
/* reshape.c: a change of shape that the targets can follow with their rows in them, on the reorder
 * thread. */
struct tables_reshape {
    struct table_entry *entry;
    const struct rel_desc *before, *now;
    XLogRecPtr lsn; /* of the commit's end */
    /* All that was sent before is durable and will not come again; called before the first effect,
     * not at all where the targets stay what they are. */
    enum status (*fence)(void *ctx, struct error *err);
    void *ctx;
};
/* *ret_reason: NULL if it is done, else why it cannot be and nothing may be taken for done: the
 * table is to be copied again. malloc'd. */
enum status tables_reshape(struct tables *t, const struct tables_reshape *r, char **ret_reason,
                           struct error *err) CHECKED;
/* Stops a table by name, durably: the stream goes on without it. */
enum status tables_stop(struct tables *t, Oid root_oid, XLogRecPtr lsn, const char *reason,
                        struct error *err) CHECKED;
enum resync_cause {
    RESYNC_ASKED,        /* walshadow resync */
    RESYNC_SHAPE,        /* columns, key, name */
    RESYNC_REWRITE,      /* VACUUM FULL and the like of a table without a key; a rewriting ALTER */
    RESYNC_PARTITION,    /* a partition left, came or was emptied */
    RESYNC_UNSEEN,       /* changed while the shadow accepted no connections */
    RESYNC_LOAD,         /* the initial load could not have it whole */
    RESYNC_INITIAL_COPY, /* initial_load = copy */
    RESYNC_TARGET,       /* there is no target, or it was not kept for a time */
    RESYNC_VALUES        /* a value out of line that the chunk store should have is not there */
};
/* The table must be copied again, durably. keep_target: its rows are right so far, the target goes
 * on taking them. No-op for one that was dropped or is refused. */
enum status tables_resync(struct tables *t, Oid root_oid, XLogRecPtr lsn, enum resync_cause cause,
                          const char *reason, bool keep_target, struct error *err) CHECKED;
/* The table behind one of its targets was dropped or altered by hand: copied again. Any thread. */
enum status tables_target_unfit(struct tables *t, const struct target *target, const char *why,
                                struct error *err) CHECKED;
/* A value of one of its rows at lsn is not in the chunk store: if the store followed the table, the
 * table is copied again, its chunks with it. Any thread. */
enum status tables_value_lost(struct tables *t, struct table_entry *e, XLogRecPtr lsn,
                              struct error *err) CHECKED;
/* The table of a key column has a value in it that its target cannot hold: copied again, with that
 * column as String. *ret_done false: it cannot be mended so. Any thread. */
enum status tables_key_unfit(struct tables *t, struct table_entry *e, struct target_text_key key,
                             XLogRecPtr lsn, const char *reason, bool *ret_done,
                             struct error *err) CHECKED;
/* The configuration no longer wants it, durably: its targets are left alone. On the reorder thread,
 * behind a barrier. */
enum status tables_deselect(struct tables *t, struct table_entry *e, XLogRecPtr lsn,
                            const char *reason, struct error *err) CHECKED;
/* The configuration wants it somewhere, and nothing about the relation as such is against it. */
bool tables_selects(const struct tables *t, const struct rel_desc *desc);
/* A TRUNCATE or the like: a copy under way is void. */
void tables_copy_void(struct table_entry *e);
/* Takes one that waits for a copier; NULL if none does. Give it back with tables_copier_leave. */
struct table_entry *tables_copier_take(struct tables *t);
void tables_copier_leave(struct tables *t, struct table_entry *e, uint64_t retry_ns);
/* It cannot be copied: stopped by name, or, where it never had a target, not replicated. */
enum status tables_copy_failed(struct tables *t, struct table_entry *e, const char *reason,
                               struct error *err) CHECKED;
/* The entry "schema.table", or "table" if that is unique; ERR_CONFIG says what else. */
enum status tables_by_name(struct tables *t, const char *name, struct table_entry **ret,
                           struct error *err) CHECKED;

/* Between a copy (resync.c) or a rewrite (generation.c) and the registry; a `fresh` is an array of
 * references, one per destination. Fresh targets for desc are planned and their tables made, empty;
 * their names end with `suffix`, as a copy may begin while a rewrite is not done. ERR_CONFIG: desc
 * cannot be replicated. */
enum status tables_fresh_make(struct tables *t, const struct table_entry *e,
                              const struct rel_desc *desc, const char *suffix, struct target ***ret,
                              struct error *err) CHECKED;
/* Drops the tables of fresh and frees the array. No row may be on its way to them. */
enum status tables_fresh_drop(struct tables *t, struct target **fresh, struct error *err) CHECKED;
/* On the reorder thread: rows go to it from now on; or no longer. */
void tables_fresh_attach(struct tables *t, struct table_entry *e, struct target **fresh);
void tables_fresh_detach(struct tables *t, struct table_entry *e);
/* Instead: rows go to it alone. */
void tables_generation_attach(struct tables *t, struct table_entry *e, struct target **fresh);
/* On the reorder thread, behind a barrier: the fresh tables take the targets' place, the table
 * streams. What they replace has the names of fresh afterwards. */
enum status tables_fresh_exchange(struct tables *t, struct table_entry *e,
                                  const struct rel_desc *desc, XLogRecPtr covered, XLogRecPtr lsn,
                                  struct error *err) CHECKED;
/* Fresh tables that an earlier run left, at every destination. */
enum status tables_fresh_clear(struct tables *t, struct error *err) CHECKED;

/* Empties the targets that are open, and those that a copy or a rewrite fills. */
enum status tables_truncate(struct tables *t, struct table_entry *e, struct error *err) CHECKED;
/* Calls fn for each entry under the lock. */
void tables_each(struct tables *t, void (*fn)(void *ctx, const struct table_entry *e), void *ctx);
const struct tables_options *tables_options_of(const struct tables *t);
/* The configuration in force; set on the reorder thread (remap.c), lives as long as the registry.
 */
const struct config *tables_config(const struct tables *t);
void tables_config_set(struct tables *t, const struct config *config);

/* Why a relation is not replicated, whatever its columns: NULL if it may be. */
const char *relation_refused(const struct rel_desc *desc);
/* The same, or because the configuration gives it no target of its own. */
const char *relation_refused_by(const struct config *c, const struct rel_desc *desc);

enum target_loss { TARGET_KEPT, TARGET_MISSING, TARGET_TAKEN };
/* Target tables at one destination: makes or checks the table, as it is due at lsn. ERR_CONFIG,
 * with nothing done, if the name belongs to something else; *ret_loss (else untouched) says where
 * TABLES_RESUME did not find the target that must be there. */
enum status target_table_ensure(struct destination *d, const struct target *target,
                                const struct target_options *options, enum tables_mode mode,
                                struct history *history, XLogRecPtr lsn, enum target_loss *ret_loss,
                                struct error *err) CHECKED;
/* Fails with what is to be done about a target that another has to make. */
enum status target_not_created(const char *database, const char *table, struct error *err) CHECKED;
/* A table for a copy, empty. */
enum status target_table_fresh(struct destination *d, const struct target *fresh,
                               const struct target_options *options, struct error *err) CHECKED;
/* `fresh` takes the name of `target`; what had it, if it was ours or is empty and of its shape, has
 * the name of fresh afterwards. ERR_CONFIG, with nothing done, if the name belongs to something
 * else, or to nothing where no table may be made. */
enum status target_table_exchange(struct destination *d, const struct target *fresh,
                                  const struct target *target, const struct target_options *options,
                                  XLogRecPtr lsn, struct error *err) CHECKED;
enum status target_table_drop(struct destination *d, const struct target *t,
                              struct error *err) CHECKED;
/* Drops every table whose name begins with `prefix` and whose comment begins with `comment`. */
enum status target_table_drop_all(struct destination *d, const char *prefix, const char *comment,
                                  struct error *err) CHECKED;
/* True if the table is there and carries this comment. */
enum status target_table_has(struct destination *d, const char *database, const char *table,
                             const char *comment, bool *ret, struct error *err) CHECKED;
