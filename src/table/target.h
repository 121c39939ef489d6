/* A target: one table of one destination, as one source relation (or partitioned root) maps to it.
 * Made from a descriptor and the configuration; immutable and reference-counted; a shape change
 * makes a new one with a higher epoch. */
#pragma once
#include "catalog/descriptor.h"
#include "native/block.h"
#include "types/encoder.h"

struct target_column {
    int16_t attnum;     /* source attribute */
    uint16_t key_index; /* 1 + position in the key, 0 = not in the key */
    bool type_given;    /* by an override */
    struct encoder encoder;
};

/* Columns in the order of the table: mapped ones, [_part,] [_ctid,] _lsn, _xid, _commit_ts,
 * _is_deleted. */
struct target {
    atomic_int refs;
    atomic_bool closed; /* rows for it are discarded: the one thing that changes */
    uint32_t epoch;
    Oid rel_oid; /* the relation, or the root of its partition tree */
    char *database, *table;
    bool has_ctid, has_part;
    bool soft_delete;
    enum bad_value_policy on_bad_value;
    unsigned ncols; /* mapped columns, without the synthetic ones */
    struct target_column *cols;
    struct block_header *header; /* mapped and synthetic columns */
    char *insert_sql;            /* INSERT INTO `db`.`t` (`a`, …) FORMAT Native */
};

struct target_options {
    const char *database, *table;
    bool soft_delete;
    enum bad_value_policy on_bad_value;
    bool chdb_fsync; /* engine tables: fsync_after_insert etc. (clickhouse-notes 4) */
    bool fsync_each_insert;
    bool no_create;      /* its table is another's to make (auto_create = false) */
    const char *comment; /* walshadow <system_id>/<db oid>/<rel oid> */
    /* column overrides, NULL target or type = default; ncolumns 0 = all columns */
    const struct target_override {
        int16_t attnum;
        const char *target, *type;
    } * columns;
    size_t ncolumns;
    /* types that the columns of attnums 1 … nstored have at the destination already, NULL where
     * there is none: a column made Nullable stays so */
    const char *const *stored_types;
    size_t nstored;
    /* key columns that are String, as one of their values did not fit what is made of the type */
    const struct target_text_key {
        int16_t attnum;
        Oid typid; /* of another type it may fit */
    } * text_keys;
    size_t ntext_keys;
};

/* ERR_CONFIG if a column's type is not carried or a name clashes: the table is skipped by name. */
enum status target_new(const struct rel_desc *desc, const struct target_options *options,
                       const struct ch_caps *caps, struct target **ret, struct error *err) CHECKED;
struct target *target_ref(struct target *t);
void target_unref(struct target *t);
static inline bool target_is_open(const struct target *t)
{
    return !atomic_load_explicit(&t->closed, memory_order_relaxed);
}

/* What a column is created as, where that differs from what is sent. */
const char *target_column_type(const struct target *t, unsigned i);

/* DDL text, appended to out. All names quoted with backquotes. */
void target_create_sql(const struct target *t, const struct target_options *options,
                       struct buf *out);
