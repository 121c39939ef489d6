/* A target that has rows takes another shape or name. Each step is planned from what is found at
 * the destination, so that a step whose answer was lost, or that a kill cut off, is taken up where
 * it is. */
#include "base/fault.h"
#include "base/log.h"
#include "clickhouse/sql_quote.h"
#include "pipeline/target_internal.h"

#include <stdlib.h>
#include <string.h>

#define SHAPE_RETRY_MS 500u
#define STEPS_MAX 50u /* a few are enough for any change */

static char *field_copy(const char *field, size_t len)
{
    return xasprintf("%.*s", field == NULL ? 0 : (int)len, field == NULL ? "" : field);
}

static enum status column_row(void *ctx, const char *const *fields, const size_t *lengths,
                              unsigned nfields, struct error *err)
{
    if (nfields != 3)
        return error_set(err, ERR_DATA, "system.columns gave %u columns", nfields);
    found_columns_add(ctx, field_copy(fields[0], lengths[0]), field_copy(fields[1], lengths[1]),
                      field_copy(fields[2], lengths[2]));
    return OK;
}

enum status target_table_columns(struct destination *d, const char *database, const char *table,
                                 struct found_columns *ret, struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    buf_printf(&sql, "SELECT toString(name), toString(type), toString(comment) FROM system.columns "
                     "WHERE database = ");
    sql_quote_string(&sql, database);
    buf_printf(&sql, " AND table = ");
    sql_quote_string(&sql, table);
    buf_printf(&sql, " ORDER BY position");
    return destination_select(d, buf_cstr(&sql), column_row, ret, err);
}

struct places {
    unsigned n;
    char *database, *table;
};

static enum status place_row(void *ctx, const char *const *fields, const size_t *lengths,
                             unsigned nfields, struct error *err)
{
    struct places *p = ctx;
    if (nfields != 2)
        return error_set(err, ERR_DATA, "system.tables gave %u columns", nfields);
    if (p->n++ > 0)
        return OK;
    p->database = field_copy(fields[0], lengths[0]);
    p->table = field_copy(fields[1], lengths[1]);
    return OK;
}

enum status target_table_locate(struct destination *d, const char *comment, char **ret_database,
                                char **ret_table, struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    struct places p = {0};
    buf_printf(&sql,
               "SELECT toString(database), toString(name) FROM system.tables WHERE comment = ");
    sql_quote_string(&sql, comment);
    buf_printf(&sql, " AND NOT startsWith(name, '" TABLES_FRESH_PREFIX "') AND "
                     "NOT match(name, '_dropped_[0-9A-F]{16}$')");
    enum status st = destination_select(d, buf_cstr(&sql), place_row, &p, err);
    if (st != OK || p.n != 1) { /* two: nobody knows which */
        free(p.database);
        free(p.table);
        p.database = p.table = NULL;
    }
    *ret_database = p.database;
    *ret_table = p.table;
    return st;
}

/* The answer of a statement that changes a table: again where it was lost, else a reason. */
static enum status answered(struct destination *d, enum status st, struct error *err)
{
    if (st == OK || st == ERR_CANCELLED)
        return st;
    if (!destination_retryable(err)) {
        err->kind = ERR_CONFIG;
        return ERR_CONFIG;
    }
    log_warn("msg=\"a change of a target is tried again\" error=%s", LOG_Q(err->message));
    destination_sleep(d, SHAPE_RETRY_MS);
    return atomic_load(&d->stopping) ? error_set(err, ERR_CANCELLED, "stopping") : OK;
}

static enum status rename_to(struct destination *d, const struct target *from, const char *database,
                             const char *table, struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    buf_printf(&sql, "CREATE DATABASE IF NOT EXISTS ");
    sql_quote_ident(&sql, database);
    TRY(destination_execute(d, buf_cstr(&sql), err));
    buf_reset(&sql);
    buf_printf(&sql, "RENAME TABLE ");
    target_full_name(&sql, from);
    buf_printf(&sql, " TO ");
    sql_quote_ident(&sql, database);
    buf_printf(&sql, ".");
    sql_quote_ident(&sql, table);
    FAULT_POINT("rename-before");
    TRY(answered(d, destination_execute_once(d, buf_cstr(&sql), err), err));
    FAULT_POINT("rename-after");
    return OK;
}

/* The name is another table's of this source: one that is to be renamed itself steps aside until
 * its turn comes, one that was dropped gives it up. */
static enum status clear_name(struct destination *d, const struct target *to,
                              const struct found_table *there, const struct target_rename *r,
                              struct error *err)
{
    Oid owner = target_comment_oid(there->comment);
    if (!target_comment_is_ours(there->comment, r->comment))
        return error_set(err, ERR_CONFIG,
                         "target %s.%s exists and is not walshadow's (no comment of this source): "
                         "drop or rename it",
                         to->database, to->table);
    if (!r->is_live(r->ctx, owner))
        return target_table_move_aside(d, to, r->comment, r->lsn, err);
    CLEANUP_FREE char *aside =
        xasprintf("walshadow_moved_%u_%08X%08X", owner, (uint32_t)(r->lsn >> 32), (uint32_t)r->lsn);
    return rename_to(d, to, to->database, aside, err);
}

enum status target_table_rename(struct destination *d, const struct target *to,
                                const struct target_rename *r, struct error *err)
{
    for (unsigned step = 0; !d->options.null && step < STEPS_MAX; step++) {
        struct found_table there;
        TRY(target_table_look(d, to->database, to->table, &there, err));
        if (there.exists && strcmp(there.comment, r->comment) == 0)
            return OK;
        if (there.exists) {
            TRY(clear_name(d, to, &there, r, err));
            continue;
        }
        CLEANUP_FREE char *database = NULL;
        CLEANUP_FREE char *table = NULL;
        TRY(target_table_locate(d, r->comment, &database, &table, err));
        if (table == NULL)
            return error_set(err, ERR_CONFIG, "its target is not at the destination");
        const struct target from = {.database = database, .table = table};
        TRY(rename_to(d, &from, to->database, to->table, err));
    }
    return d->options.null ? OK : error_set(err, ERR_CONFIG, "renaming does not come to an end");
}

enum status target_table_alter(struct destination *d, const struct target_alter *a,
                               struct error *err)
{
    for (unsigned step = 0; !d->options.null && step < STEPS_MAX; step++) {
        CLEANUP_BUF struct buf sql = {0};
        struct found_columns found = {0};
        enum status st = target_table_columns(d, a->to->database, a->to->table, &found, err);
        if (st == OK)
            st = target_alter_next(a, &found, &sql, err);
        found_columns_fini(&found);
        TRY(st);
        if (sql.len == 0)
            return OK;
        FAULT_POINT("alter-before");
        TRY(answered(d, destination_execute_once(d, buf_cstr(&sql), err), err));
        FAULT_POINT("alter-after");
    }
    return d->options.null ? OK : error_set(err, ERR_CONFIG, "ALTER does not come to an end");
}

enum status target_table_drop_ours(struct destination *d, const struct target *t,
                                   const char *comment, struct error *err)
{
    struct found_table found;
    if (d->options.null)
        return OK;
    TRY(target_table_look(d, t->database, t->table, &found, err));
    return found.exists && strcmp(found.comment, comment) == 0 ? target_table_drop(d, t, err) : OK;
}
