/* The table behind a target: created, or checked before it is used. */
#include "base/log.h"
#include "pipeline/tables.h"

#include <stdlib.h>
#include <string.h>

struct found_table {
    bool exists;
    char engine[64], comment[100];
    uint64_t rows;
};

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
    if (nfields != 3)
        return error_set(err, ERR_DATA, "system.tables gave %u columns", nfields);
    f->exists = true;
    copy_field(f->engine, sizeof f->engine, fields[0], lengths[0]);
    copy_field(f->comment, sizeof f->comment, fields[1], lengths[1]);
    copy_field(number, sizeof number, fields[2], lengths[2]);
    f->rows = strtoull(number, NULL, 10);
    return OK;
}

static enum status look(struct destination *d, const char *database, const char *table,
                        struct found_table *ret, struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    *ret = (struct found_table){0};
    buf_printf(&sql, "SELECT toString(engine), toString(comment), "
                     "toString(ifNull(total_rows, 1)) FROM system.tables WHERE database = ");
    sql_quote_string(&sql, database);
    buf_printf(&sql, " AND name = ");
    sql_quote_string(&sql, table);
    return destination_select(d, buf_cstr(&sql), found_row, ret, err);
}

static void full_name(struct buf *sql, const struct target *t)
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

struct column_check {
    const struct target *target;
    unsigned matched, seen;
};

static enum status check_column(void *ctx, const char *const *fields, const size_t *lengths,
                                unsigned nfields, struct error *err)
{
    struct column_check *c = ctx;
    const struct block_header *h = c->target->header;
    if (nfields != 1 || fields[0] == NULL)
        return error_set(err, ERR_DATA, "system.columns gave no name");
    c->seen++;
    for (unsigned i = 0; i < h->ncols; i++)
        if (strlen(h->cols[i].name) == lengths[0] &&
            memcmp(h->cols[i].name, fields[0], lengths[0]) == 0)
            c->matched++;
    return OK;
}

/* A table that is not ours is used only if it is empty and has our columns. */
static enum status adopt(struct destination *d, const struct target *t,
                         const struct found_table *found, struct error *err)
{
    struct column_check check = {.target = t};
    CLEANUP_BUF struct buf sql = {0};
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
    buf_printf(&sql, "SELECT toString(name) FROM system.columns WHERE database = ");
    sql_quote_string(&sql, t->database);
    buf_printf(&sql, " AND table = ");
    sql_quote_string(&sql, t->table);
    TRY(destination_select(d, buf_cstr(&sql), check_column, &check, err));
    if (check.matched != t->header->ncols || check.seen != t->header->ncols)
        return error_set(err, ERR_CONFIG,
                         "target %s.%s exists with other columns than the source table needs: drop "
                         "or rename it",
                         t->database, t->table);
    return OK;
}

static bool same_database(const char *comment, const char *ours)
{
    const char *slash = strrchr(ours, '/');
    size_t n = slash == NULL ? strlen(ours) : (size_t)(slash - ours) + 1;
    return strncmp(comment, ours, n) == 0;
}

static enum status drop(struct destination *d, const struct target *t, struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    buf_printf(&sql, "DROP TABLE ");
    full_name(&sql, t);
    buf_printf(&sql, " SYNC");
    return destination_execute(d, buf_cstr(&sql), err);
}

/* A retained table of a dropped source table gives up the name. Where the new name is taken, this
 * was done before a kill, and what has the old name is what the replay made of it since. */
static enum status move_aside(struct destination *d, const struct target *t, const char *comment,
                              XLogRecPtr lsn, struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    struct found_table found;
    CLEANUP_FREE char *aside =
        xasprintf("%s_dropped_%08X%08X", t->table, (uint32_t)(lsn >> 32), (uint32_t)lsn);
    TRY(look(d, t->database, aside, &found, err));
    if (found.exists && same_database(found.comment, comment))
        return drop(d, t, err);
    log_info("msg=\"retained target renamed, its name is needed\" table=%s to=%s", LOG_Q(t->table),
             LOG_Q(aside));
    buf_printf(&sql, "RENAME TABLE ");
    full_name(&sql, t);
    buf_printf(&sql, " TO ");
    sql_quote_ident(&sql, t->database);
    buf_printf(&sql, ".");
    sql_quote_ident(&sql, aside);
    return destination_execute(d, buf_cstr(&sql), err);
}

/* The relation a comment of ours names. */
static Oid comment_oid(const char *comment)
{
    const char *slash = strrchr(comment, '/');
    return slash == NULL ? InvalidOid : (Oid)strtoul(slash + 1, NULL, 10);
}

enum status target_table_ensure(struct destination *d, const struct target *target,
                                const struct target_options *options, enum tables_mode mode,
                                struct history *history, XLogRecPtr lsn, struct error *err)
{
    struct found_table found;
    if (d->options.null)
        return OK;
    TRY(look(d, target->database, target->table, &found, err));
    if (!found.exists)
        return create(d, target, options, err);
    if (strcmp(found.comment, options->comment) == 0) {
        if (mode == TABLES_KEEP)
            return OK;
        log_info("msg=\"target of an earlier load dropped\" table=%s", LOG_Q(target->table));
        TRY(drop(d, target, err));
        return create(d, target, options, err);
    }
    if (same_database(found.comment, options->comment)) {
        /* read again after a restart: the later owner of the name is there already (it never goes
         * back), and of ours nothing is left to be done but its drop */
        if (history_begins_after(history, comment_oid(found.comment), lsn))
            return error_set(err, ERR_CONFIG, "dropped since; its target %s.%s is another table's",
                             target->database, target->table);
        TRY(move_aside(d, target, options->comment, lsn, err));
        return create(d, target, options, err);
    }
    return adopt(d, target, &found, err);
}
