/* The tables being replicated: one entry per source table or partitioned root, with its target at
 * every destination. Changed by the reorder thread (and, when a value stops a table, by workers);
 * read by the status thread. Entries live as long as the registry. */
#pragma once
#include "catalog/history.h"
#include "config/config.h"
#include "pipeline/destination.h"

enum table_life {
    TABLE_LIFE_STREAMING,
    TABLE_LIFE_STOPPED,
    TABLE_LIFE_SKIPPED,
    TABLE_LIFE_DROPPED
};

struct table_entry {
    Oid oid;
    _Atomic(char *) name;    /* schema.table; what was read stays valid as long as the registry */
    atomic_int life;         /* enum table_life */
    char *reason;            /* why stopped or skipped; under the registry's lock */
    struct target **targets; /* one per destination, NULL if not replicated there */
    atomic_ulong *rows;      /* one per destination: acknowledged */
    atomic_ulong rejects;
};

struct tables;

struct tables_options {
    const struct config *config;
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
    TABLES_RESUME,  /* a restart: a target that is not there has lost rows, the table stops */
    TABLES_REPLACE, /* a load begins: what an earlier one left is emptied or dropped first */
};
/* Makes the entry and the targets of a relation (leaves have none of their own). A relation that
 * cannot be replicated gets state skipped and a reason. Fails only if the destination does. */
enum status tables_add(struct tables *t, const struct rel_desc *desc, enum tables_mode mode,
                       XLogRecPtr lsn, struct error *err) CHECKED;
/* NULL if there is none. */
struct table_entry *tables_find(struct tables *t, Oid root_oid);
void tables_drop(struct tables *t, Oid oid);
/* Stops a table by name, durably: the stream goes on without it. */
enum status tables_stop(struct tables *t, Oid root_oid, XLogRecPtr lsn, const char *reason,
                        struct error *err) CHECKED;
/* Empties the targets. */
enum status tables_truncate(struct tables *t, struct table_entry *e, struct error *err) CHECKED;
/* Calls fn for each entry under the lock. */
void tables_each(struct tables *t, void (*fn)(void *ctx, const struct table_entry *e), void *ctx);
const struct tables_options *tables_options_of(const struct tables *t);

/* Why a relation is not replicated, whatever its columns: NULL if it may be. */
const char *relation_refused(const struct rel_desc *desc);

/* Target tables at one destination: makes or checks the table, as it is due at lsn. ERR_CONFIG,
 * with nothing done, if the name belongs to something else; *ret_lost (else untouched) is set to
 * true where TABLES_RESUME did not find the target that must be there. */
enum status target_table_ensure(struct destination *d, const struct target *target,
                                const struct target_options *options, enum tables_mode mode,
                                struct history *history, XLogRecPtr lsn, bool *ret_lost,
                                struct error *err) CHECKED;
/* True if the table is there and carries this comment. */
enum status target_table_has(struct destination *d, const char *database, const char *table,
                             const char *comment, bool *ret, struct error *err) CHECKED;
