/* The table behind a target: created, or checked before it is used. */
#include "base/log.h"
#include "clickhouse/sql_quote.h"
#include "native/type_name.h"
#include "pipeline/target_internal.h"

#include <stdlib.h>
#include <string.h>

#define EXCHANGE_RETRY_MS 500u
#define CH_NOT_IMPLEMENTED 48
#define NO_UUID                                                                                    \
    "00000000-0000-0000-0000-000000000000" /* not in an Atomic database: no EXCHANGE               \
                                            */

static void copy_field(char *to, size_t cap, const char *field, size_t len)
{
    size_t n = field == NULL ? 0 : MIN(len, cap - 1);
    if (n > 0)
        memcpy(to, field, n);
    to[n] = '\0';
}

static enum status found_row(void *ctx, const char *const *fields, const size_t *lengths,
                             unsigned nfields, struct error *err)
{
    struct found_table *f = ctx;
    char number[24];
    if (nfields != 6)
        return error_set(err, ERR_DATA, "system.tables gave %u columns", nfields);
    f->exists = true;
    copy_field(f->engine, sizeof f->engine, fields[0], lengths[0]);
    copy_field(f->comment, sizeof f->comment, fields[1], lengths[1]);
    copy_field(number, sizeof number, fields[2], lengths[2]);
    f->rows = strtoull(number, NULL, 10);
    copy_field(f->sorting_key, sizeof f->sorting_key, fields[3], lengths[3]);
    copy_field(f->engine_full, sizeof f->engine_full, fields[4], lengths[4]);
    copy_field(f->uuid, sizeof f->uuid, fields[5], lengths[5]);
    return OK;
}

enum status target_table_look(struct destination *d, const char *database, const char *table,
                              struct found_table *ret, struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    *ret = (struct found_table){0};
    buf_printf(&sql, "SELECT toString(engine), toString(comment), "
                     "toString(ifNull(total_rows, 1)), toString(sorting_key), "
                     "toString(engine_full), toString(uuid) FROM system.tables WHERE database = ");
    sql_quote_string(&sql, database);
    buf_printf(&sql, " AND name = ");
    sql_quote_string(&sql, table);
    return destination_select(d, buf_cstr(&sql), found_row, ret, err);
}

void target_full_name(struct buf *sql, const struct target *t)
{
    sql_quote_ident(sql, t->database);
    buf_printf(sql, ".");
    sql_quote_ident(sql, t->table);
}

static enum status create(struct destination *d, const struct target *t,
                          const struct target_options *options, struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    buf_printf(&sql, "CREATE DATABASE IF NOT EXISTS ");
    sql_quote_ident(&sql, t->database);
    TRY(destination_execute(d, buf_cstr(&sql), err));
    buf_reset(&sql);
    target_create_sql(t, options, &sql);
    return destination_execute(d, buf_cstr(&sql), err);
}

enum status target_not_created(const char *database, const char *table, struct error *err)
{
    return error_set(err, ERR_CONFIG,
                     "its target %s.%s does not exist, and auto_create is false for its schema: "
                     "create it, empty, and reload, or resync the table if it is stopped",
                     database, table);
}

static enum status create_allowed(struct destination *d, const struct target *t,
                                  const struct target_options *options, struct error *err)
{
    return options->no_create ? target_not_created(t->database, t->table, err)
                              : create(d, t, options, err);
}

struct column_check {
    const struct target *target;
    unsigned matched, seen;
};

static enum status check_column(void *ctx, const char *const *fields, const size_t *lengths,
                                unsigned nfields, struct error *err)
{
    struct column_check *c = ctx;
    const struct block_header *h = c->target->header;
    if (nfields != 2 || fields[0] == NULL || fields[1] == NULL)
        return error_set(err, ERR_DATA, "system.columns gave no name or type");
    CLEANUP_FREE char *type = xasprintf("%.*s", (int)lengths[1], fields[1]);
    c->seen++;
    for (unsigned i = 0; i < h->ncols; i++)
        if (strlen(h->cols[i].name) == lengths[0] &&
            memcmp(h->cols[i].name, fields[0], lengths[0]) == 0 &&
            type_text_accepts(type, h->cols[i].type))
            c->matched++;
    return OK;
}

static enum status columns_match(struct destination *d, const struct target *t, bool *ret,
                                 struct error *err)
{
    struct column_check check = {.target = t};
    CLEANUP_BUF struct buf sql = {0};
    buf_printf(&sql, "SELECT toString(name), toString(type) FROM system.columns WHERE database = ");
    sql_quote_string(&sql, t->database);
    buf_printf(&sql, " AND table = ");
    sql_quote_string(&sql, t->table);
    TRY(destination_select(d, buf_cstr(&sql), check_column, &check, err));
    *ret = check.matched == t->header->ncols && check.seen == t->header->ncols;
    return OK;
}

static enum status other_columns(const struct target *t, struct error *err)
{
    return error_set(err, ERR_CONFIG,
                     "target %s.%s exists with other columns than the source table needs: drop or "
                     "rename it",
                     t->database, t->table);
}

/* A table that is not ours is used only if it is empty and has our columns. It gets our comment, so
 * that the next start knows it. */
static enum status adopt(struct destination *d, const struct target *t,
                         const struct target_options *options, const struct found_table *found,
                         struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    bool match;
    if (strstr(found->engine, "ReplacingMergeTree") == NULL)
        return error_set(err, ERR_CONFIG,
                         "target %s.%s exists with engine %s; walshadow needs ReplacingMergeTree: "
                         "drop or rename it",
                         t->database, t->table, found->engine);
    if (found->rows > 0)
        return error_set(err, ERR_CONFIG,
                         "target %s.%s exists and is not walshadow's (no comment of this source): "
                         "drop, rename or empty it",
                         t->database, t->table);
    TRY(columns_match(d, t, &match, err));
    if (!match)
        return other_columns(t, err);
    buf_printf(&sql, "ALTER TABLE ");
    target_full_name(&sql, t);
    buf_printf(&sql, " MODIFY COMMENT ");
    sql_quote_string(&sql, options->comment);
    return destination_execute(d, buf_cstr(&sql), err);
}

bool target_comment_is_ours(const char *comment, const char *ours)
{
    const char *slash = strrchr(ours, '/');
    size_t n = slash == NULL ? strlen(ours) : (size_t)(slash - ours) + 1;
    return strncmp(comment, ours, n) == 0;
}

static enum status drop(struct destination *d, const struct target *t, struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    buf_printf(&sql, "DROP TABLE ");
    target_full_name(&sql, t);
    buf_printf(&sql, " SYNC");
    return destination_execute(d, buf_cstr(&sql), err);
}

static void put_without(const char *drop, const char *text, struct buf *out)
{
    for (; *text != '\0'; text++)
        if (strchr(drop, *text) == NULL)
            buf_put_u8(out, (uint8_t)*text);
}

/* It is as it would be made now: what decides which rows are versions of each other, and whether an
 * INSERT is synced. */
static bool is_made_alike(const struct found_table *found, const struct target *t,
                          const struct target_options *options)
{
    CLEANUP_BUF struct buf key = {0};
    CLEANUP_BUF struct buf want = {0};
    CLEANUP_BUF struct buf engine = {0};
    CLEANUP_BUF struct buf sql = {0};
    const struct target_options plain = {0};
    target_create_sql(t, &plain, &sql);
    const char *order = strstr(buf_cstr(&sql), ") ORDER BY (");
    if (order == NULL)
        return false;
    put_without("` ()", order + strlen(") ORDER BY ("), &want);
    put_without("` ()", found->sorting_key, &key);
    put_without("` ", found->engine_full, &engine);
    bool synced = strstr(found->engine_full, "fsync_after_insert = 1") != NULL;
    return strcmp(buf_cstr(&key), buf_cstr(&want)) == 0 &&
           strstr(buf_cstr(&engine), t->soft_delete ? "_lsn)" : "_lsn,_is_deleted)") != NULL &&
           synced == (options->chdb_fsync && options->fsync_each_insert);
}

/* What an earlier load left: emptied if it is still right (it may be a table that was found and
 * adopted, with more to it than we would make), else made again. */
static enum status replace(struct destination *d, const struct target *t,
                           const struct target_options *options, const struct found_table *found,
                           struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    bool match;
    TRY(columns_match(d, t, &match, err));
    if (!match && options->no_create)
        return other_columns(t, err);
    if (!options->no_create && (!match || !is_made_alike(found, t, options))) {
        log_info("msg=\"target of an earlier load dropped\" table=%s", LOG_Q(t->table));
        TRY(drop(d, t, err));
        return create(d, t, options, err);
    }
    log_info("msg=\"target of an earlier load emptied\" table=%s", LOG_Q(t->table));
    buf_printf(&sql, "TRUNCATE TABLE ");
    target_full_name(&sql, t);
    return destination_execute(d, buf_cstr(&sql), err);
}

/* A retained table of a dropped source table gives up the name. Where the new name is taken, this
 * was done before a kill, and what has the old name is what the replay made of it since. */
enum status target_table_move_aside(struct destination *d, const struct target *t,
                                    const char *comment, XLogRecPtr lsn, struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    struct found_table found;
    CLEANUP_FREE char *aside =
        xasprintf("%s_dropped_%08X%08X", t->table, (uint32_t)(lsn >> 32), (uint32_t)lsn);
    TRY(target_table_look(d, t->database, aside, &found, err));
    if (found.exists && target_comment_is_ours(found.comment, comment))
        return drop(d, t, err);
    log_info("msg=\"retained target renamed, its name is needed\" table=%s to=%s", LOG_Q(t->table),
             LOG_Q(aside));
    buf_printf(&sql, "RENAME TABLE ");
    target_full_name(&sql, t);
    buf_printf(&sql, " TO ");
    sql_quote_ident(&sql, t->database);
    buf_printf(&sql, ".");
    sql_quote_ident(&sql, aside);
    return destination_execute(d, buf_cstr(&sql), err);
}

/* The relation a comment of ours names. */
Oid target_comment_oid(const char *comment)
{
    const char *slash = strrchr(comment, '/');
    return slash == NULL ? InvalidOid : (Oid)strtoul(slash + 1, NULL, 10);
}

enum status target_table_has(struct destination *d, const char *database, const char *table,
                             const char *comment, bool *ret, struct error *err)
{
    struct found_table found = {0};
    if (!d->options.null)
        TRY(target_table_look(d, database, table, &found, err));
    *ret = found.exists && strcmp(found.comment, comment) == 0;
    return OK;
}

/* It was made when the table came: an empty one would look whole. */
static enum status lost(const struct target *t, const char *how, enum target_loss loss,
                        enum target_loss *ret_loss, struct error *err)
{
    *ret_loss = loss;
    return error_set(err, ERR_CONFIG,
                     "its target is missing: %s.%s %s (dropped or renamed by hand, or the table "
                     "was not selected before)",
                     t->database, t->table, how);
}

enum status target_table_ensure(struct destination *d, const struct target *target,
                                const struct target_options *options, enum tables_mode mode,
                                struct history *history, XLogRecPtr lsn, enum target_loss *ret_loss,
                                struct error *err)
{
    struct found_table found;
    if (d->options.null)
        return OK;
    TRY(target_table_look(d, target->database, target->table, &found, err));
    if (!found.exists)
        return mode == TABLES_RESUME ? lost(target, "does not exist", TARGET_MISSING, ret_loss, err)
                                     : create_allowed(d, target, options, err);
    if (strcmp(found.comment, options->comment) == 0)
        return mode == TABLES_REPLACE ? replace(d, target, options, &found, err) : OK;
    if (target_comment_is_ours(found.comment, options->comment)) {
        /* read again after a restart: the later owner of the name is there already (it never goes
         * back), and of ours nothing is left to be done but its drop */
        if (history_begins_after(history, target_comment_oid(found.comment), lsn))
            return error_set(err, ERR_CONFIG, "dropped since; its target %s.%s is another table's",
                             target->database, target->table);
        if (mode == TABLES_RESUME)
            return lost(target, "is another table's", TARGET_TAKEN, ret_loss, err);
        TRY(target_table_move_aside(d, target, options->comment, lsn, err));
        return create_allowed(d, target, options, err);
    }
    if (mode == TABLES_RESUME)
        return lost(target, "is not walshadow's", TARGET_TAKEN, ret_loss, err);
    return adopt(d, target, options, &found, err);
}

enum status target_table_drop(struct destination *d, const struct target *t, struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    buf_printf(&sql, "DROP TABLE IF EXISTS ");
    target_full_name(&sql, t);
    buf_printf(&sql, " SYNC");
    return destination_execute(d, buf_cstr(&sql), err);
}

enum status target_table_fresh(struct destination *d, const struct target *fresh,
                               const struct target_options *options, struct error *err)
{
    TRY(target_table_drop(d, fresh, err));
    return create(d, fresh, options, err);
}

static void between(struct buf *sql, const struct target *a, const char *word,
                    const struct target *b)
{
    target_full_name(sql, a);
    buf_printf(sql, " %s ", word);
    target_full_name(sql, b);
}

/* Neither statement may simply be sent again when its answer is lost: a second EXCHANGE undoes the
 * first. What is there tells. */
static enum status exchange(struct destination *d, const struct target *fresh,
                            const struct target *target, const char *uuid, struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    CLEANUP_FREE char *aside_name = xasprintf("%s_old", fresh->table);
    const struct target aside = {.database = fresh->database, .table = aside_name};
    bool pair = strcmp(uuid, NO_UUID) == 0;
    for (;;) {
        struct found_table now, other;
        TRY(target_table_look(d, target->database, target->table, &now, err));
        TRY(target_table_look(d, fresh->database, fresh->table, &other, err));
        if (now.exists && (!other.exists || (!pair && strcmp(now.uuid, uuid) == 0)))
            return pair ? target_table_drop(d, &aside, err) : OK;
        buf_reset(&sql);
        if (!now.exists) {
            buf_printf(&sql, "RENAME TABLE ");
            between(&sql, fresh, "TO", target);
        } else if (pair) {
            TRY(target_table_drop(d, &aside, err));
            buf_printf(&sql, "RENAME TABLE ");
            between(&sql, target, "TO", &aside);
            buf_printf(&sql, ", ");
            between(&sql, fresh, "TO", target);
        } else {
            buf_printf(&sql, "EXCHANGE TABLES ");
            between(&sql, fresh, "AND", target);
        }
        enum status st = destination_execute_once(d, buf_cstr(&sql), err);
        if (st != OK && err->ch_code == CH_NOT_IMPLEMENTED && !pair && now.exists)
            pair = true;
        else if (st != OK && !destination_retryable(err))
            return st;
        else if (st != OK)
            destination_sleep(d, EXCHANGE_RETRY_MS);
    }
}

static bool keeps_its_name(void *ctx, Oid oid)
{
    (void)ctx;
    (void)oid;
    return true;
}

/* A reload was cut off before the target had its new name: under the old one it would stay for
 * ever. */
static enum status bring_former(struct destination *d, const struct target *target,
                                const char *comment, XLogRecPtr lsn, struct error *err)
{
    CLEANUP_FREE char *database = NULL;
    CLEANUP_FREE char *table = NULL;
    const struct target_rename rename = {comment, lsn, keeps_its_name, NULL};
    TRY(target_table_locate(d, comment, &database, &table, err));
    return table == NULL ? OK : target_table_rename(d, target, &rename, err);
}

static enum status must_exist(struct destination *d, const struct target *t, struct error *err)
{
    struct found_table found;
    TRY(target_table_look(d, t->database, t->table, &found, err));
    return found.exists ? OK : target_not_created(t->database, t->table, err);
}

enum status target_table_exchange(struct destination *d, const struct target *fresh,
                                  const struct target *target, const struct target_options *options,
                                  XLogRecPtr lsn, struct error *err)
{
    struct found_table found, new;
    const char *comment = options->comment;
    if (d->options.null)
        return OK;
    TRY(target_table_look(d, fresh->database, fresh->table, &new, err));
    TRY(target_table_look(d, target->database, target->table, &found, err));
    if (!new.exists)
        return error_set(err, ERR_CONFIG, "%s.%s was dropped by another", fresh->database,
                         fresh->table);
    if (found.exists && !target_comment_is_ours(found.comment, comment))
        TRY(adopt(d, target, options, &found, err));
    else if (found.exists && strcmp(found.comment, comment) != 0)
        TRY(target_table_move_aside(d, target, comment, lsn, err));
    if (!found.exists)
        TRY(bring_former(d, target, comment, lsn, err));
    if (!found.exists && options->no_create)
        TRY(must_exist(d, target, err));
    return exchange(d, fresh, target, new.uuid, err);
}

static enum status collect_name(void *ctx, const char *const *fields, const size_t *lengths,
                                unsigned nfields, struct error *err)
{
    struct buf *list = ctx;
    if (nfields != 2 || fields[0] == NULL || fields[1] == NULL)
        return error_set(err, ERR_DATA, "system.tables gave no name");
    CLEANUP_FREE char *database = xasprintf("%.*s", (int)lengths[0], fields[0]);
    CLEANUP_FREE char *table = xasprintf("%.*s", (int)lengths[1], fields[1]);
    const struct target t = {.database = database, .table = table};
    target_full_name(list, &t);
    buf_put_u8(list, 0);
    return OK;
}

enum status target_table_drop_all(struct destination *d, const char *prefix, const char *comment,
                                  struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    CLEANUP_BUF struct buf names = {0}; /* quoted, database.table */
    buf_printf(&sql, "SELECT toString(database), toString(name) FROM system.tables WHERE "
                     "startsWith(name, ");
    sql_quote_string(&sql, prefix);
    buf_printf(&sql, ") AND startsWith(comment, ");
    sql_quote_string(&sql, comment);
    buf_printf(&sql, ")");
    TRY(destination_select(d, buf_cstr(&sql), collect_name, &names, err));
    for (size_t at = 0; at < names.len; at += strlen((const char *)names.data + at) + 1) {
        const char *name = (const char *)names.data + at;
        log_info("msg=\"what a copy left is dropped\" table=%s", LOG_Q(name));
        buf_reset(&sql);
        buf_printf(&sql, "DROP TABLE IF EXISTS %s SYNC", name);
        TRY(destination_execute(d, buf_cstr(&sql), err));
    }
    return OK;
}
