#include "table/target.h"
#include "clickhouse/sql_quote.h"
#include "native/type_name.h"

#include <stdlib.h>
#include <string.h>

/* The columns every target ends with; the first two only by identity (contract: "Auto-created"). */
static const struct synthetic_column {
    const char *name, *type;
} synthetic_columns[] = {
    {"_part", "UInt32"},
    {"_ctid", "UInt64"},
    {"_lsn", "UInt64"},
    {"_xid", "UInt32"},
    {"_commit_ts", "DateTime64(6, 'UTC')"},
    {"_is_deleted", "Bool"},
};

/* Index of the first synthetic column this target has. */
static unsigned synthetic_first(const struct target *t)
{
    return t->has_part ? 0 : t->has_ctid ? 1 : 2;
}

static const struct target_override *find_override(const struct target_options *options, int attnum)
{
    for (size_t i = 0; i < options->ncolumns; i++)
        if (options->columns[i].attnum == attnum)
            return &options->columns[i];
    return NULL;
}

static uint16_t key_index(const struct rel_desc *desc, int attnum)
{
    if (desc->identity != IDENTITY_KEY)
        return 0;
    for (unsigned i = 0; i < desc->nkeys; i++)
        if (desc->key_attnums[i] == attnum)
            return (uint16_t)(i + 1);
    return 0;
}

/* A dropped column has no values, a virtual generated one none in the heap. */
static bool att_has_values(const struct att_desc *att)
{
    return !att->dropped && att->generated != 'v';
}

static enum status check_overrides(const struct rel_desc *desc,
                                   const struct target_options *options, struct error *err)
{
    for (size_t i = 0; i < options->ncolumns; i++) {
        int attnum = options->columns[i].attnum;
        if (attnum < 1 || attnum > desc->natts)
            return error_set(err, ERR_CONFIG, "columns: the table has no attnum %d", attnum);
        if (desc->atts[attnum - 1].dropped)
            continue; /* a mapping outlives its column */
        if (!att_has_values(&desc->atts[attnum - 1]))
            return error_set(err, ERR_CONFIG,
                             "columns: \"%s\" is a virtual generated column, which is not stored",
                             desc->atts[attnum - 1].name);
        for (size_t j = 0; j < i; j++)
            if (options->columns[j].attnum == attnum)
                return error_set(err, ERR_CONFIG, "columns: attnum %d is named twice", attnum);
    }
    return OK;
}

static bool is_text_key(const struct att_desc *att, const struct target_options *options)
{
    for (size_t i = 0; i < options->ntext_keys; i++)
        if (options->text_keys[i].attnum == att->attnum &&
            options->text_keys[i].typid == att->typid)
            return true;
    return false;
}

/* A target that may hold NULL goes on doing so when the source's column no longer can: old versions
 * of rows and tombstones have some. */
static enum status plan_encoder(const struct att_desc *att, bool key, const char *override,
                                const struct target_options *options, const struct ch_caps *caps,
                                struct encoder *ret, struct error *err)
{
    const char *stored = override == NULL && !key && (size_t)att->attnum <= options->nstored
                             ? options->stored_types[att->attnum - 1]
                             : NULL;
    if (key && override == NULL && is_text_key(att, options))
        override = "String";
    TRY(encoder_plan(att, key, override, caps, ret, err));
    if (stored == NULL || ret->nullable || type_text_accepts(stored, ret->ch_type))
        return OK;
    CLEANUP_FREE char *nullable = xasprintf("Nullable(%s)", ret->ch_type);
    if (!type_text_accepts(stored, nullable))
        return OK;
    encoder_fini(ret);
    return encoder_plan(att, key, stored, caps, ret, err);
}

/* One mapped column at the end of t->cols and its header. */
static enum status add_column(struct target *t, const struct rel_desc *desc,
                              const struct att_desc *att, const struct target_override *override,
                              const struct target_options *options, const struct ch_caps *caps,
                              struct error *err)
{
    struct target_column *col = &t->cols[t->ncols];
    struct column_header *header = &t->header->cols[t->ncols];
    const char *name = override != NULL && override->target != NULL ? override->target : att->name;
    col->attnum = att->attnum;
    col->key_index = key_index(desc, att->attnum);
    for (unsigned i = 0; i < t->ncols; i++)
        if (strcmp(t->header->cols[i].name, name) == 0)
            return error_set(err, ERR_CONFIG, "two columns have the target name \"%s\"", name);
    for (unsigned i = synthetic_first(t); i < LENGTH(synthetic_columns); i++)
        if (strcmp(synthetic_columns[i].name, name) == 0)
            return error_set(err, ERR_CONFIG,
                             "column \"%s\" has a name that walshadow's own column uses: rename it "
                             "with columns = [{ attnum = %d, target = \"…\" }]",
                             name, att->attnum);
    if (name[0] == 0)
        return error_set(err, ERR_CONFIG, "column \"%s\" has an empty target name", att->name);
    TRY(plan_encoder(att, col->key_index > 0, override != NULL ? override->type : NULL, options,
                     caps, &col->encoder, err));
    col->type_given = override != NULL && override->type != NULL;
    header->name = xstrdup(name);
    header->type = xstrdup(col->encoder.ch_type);
    t->ncols++;
    t->header->ncols = t->ncols;
    return OK;
}

static enum status add_columns(struct target *t, const struct rel_desc *desc,
                               const struct target_options *options, const struct ch_caps *caps,
                               struct error *err)
{
    unsigned nkeys = 0;
    for (unsigned i = 0; i < desc->natts; i++) {
        const struct target_override *override = find_override(options, desc->atts[i].attnum);
        if (!att_has_values(&desc->atts[i]) || (options->ncolumns > 0 && override == NULL))
            continue;
        TRY(add_column(t, desc, &desc->atts[i], override, options, caps, err));
        nkeys += t->cols[t->ncols - 1].key_index > 0;
    }
    if (desc->identity == IDENTITY_KEY && nkeys != desc->nkeys)
        return error_set(err, ERR_CONFIG, "columns must name all %u columns of the key",
                         desc->nkeys);
    for (unsigned i = synthetic_first(t); i < LENGTH(synthetic_columns); i++) {
        struct column_header *header = &t->header->cols[t->header->ncols++];
        header->name = xstrdup(synthetic_columns[i].name);
        header->type = xstrdup(synthetic_columns[i].type);
    }
    return OK;
}

static char *insert_sql(const struct target *t)
{
    struct buf sql = {0};
    buf_printf(&sql, "INSERT INTO ");
    sql_quote_ident(&sql, t->database);
    buf_put_u8(&sql, '.');
    sql_quote_ident(&sql, t->table);
    for (unsigned i = 0; i < t->header->ncols; i++) {
        buf_printf(&sql, i == 0 ? " (" : ", ");
        sql_quote_ident(&sql, t->header->cols[i].name);
    }
    buf_printf(&sql, ") FORMAT Native");
    return buf_cstr(&sql);
}

enum status target_new(const struct rel_desc *desc, const struct target_options *options,
                       const struct ch_caps *caps, struct target **ret, struct error *err)
{
    static atomic_uint last_epoch;
    size_t max_cols = (size_t)desc->natts + LENGTH(synthetic_columns);
    struct target *t = xcalloc(1, sizeof *t);
    atomic_init(&t->refs, 1);
    t->epoch = atomic_fetch_add(&last_epoch, 1) + 1;
    t->rel_oid = desc->oid;
    t->database = xstrdup(options->database);
    t->table = xstrdup(options->table);
    t->has_ctid = desc->identity == IDENTITY_TID;
    t->has_part = t->has_ctid && desc->relkind == 'p';
    t->soft_delete = options->soft_delete;
    t->on_bad_value = options->on_bad_value;
    t->cols = xcalloc(max_cols, sizeof *t->cols);
    t->header = xcalloc(1, sizeof *t->header + max_cols * sizeof t->header->cols[0]);
    enum status status = check_overrides(desc, options, err);
    if (status == OK)
        status = add_columns(t, desc, options, caps, err);
    if (status != OK) {
        target_unref(t);
        return status;
    }
    t->insert_sql = insert_sql(t);
    *ret = t;
    return OK;
}

struct target *target_ref(struct target *t)
{
    atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    return t;
}

void target_unref(struct target *t)
{
    if (t == NULL || atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (unsigned i = 0; i < t->ncols; i++)
        encoder_fini(&t->cols[i].encoder);
    for (unsigned i = 0; i < t->header->ncols; i++) {
        free(t->header->cols[i].name);
        free(t->header->cols[i].type);
    }
    free(t->header);
    free(t->cols);
    free(t->database);
    free(t->table);
    free(t->insert_sql);
    free(t);
}
