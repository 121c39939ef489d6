/* `<table>_live` beside a target: its current rows, with the source's columns only. */
#include "base/log.h"
#include "clickhouse/sql_quote.h"
#include "pipeline/target_internal.h"

#include <string.h>

#define OURS "walshadow "

/* Of the view that belongs to the target with this comment. */
static char *view_comment(const char *comment)
{
    CHECK(strncmp(comment, OURS, strlen(OURS)) == 0);
    return xasprintf(OURS "view %s", comment + strlen(OURS));
}

static char *view_name(const struct target *t)
{
    return xasprintf("%s_live", t->table);
}

static void put_view(const struct target *t, const char *name, const char *comment, struct buf *sql)
{
    buf_printf(sql, "CREATE OR REPLACE VIEW ");
    sql_quote_ident(sql, t->database);
    buf_printf(sql, ".");
    sql_quote_ident(sql, name);
    buf_printf(sql, " AS SELECT ");
    for (unsigned c = 0; c < t->ncols; c++) {
        buf_printf(sql, c == 0 ? "" : ", ");
        sql_quote_ident(sql, t->header->cols[c].name);
    }
    buf_printf(sql, " FROM ");
    target_full_name(sql, t);
    buf_printf(sql, " FINAL WHERE _is_deleted = 0 COMMENT ");
    sql_quote_string(sql, comment);
}

enum status target_view_make(struct destination *d, const struct target *t, const char *comment,
                             struct error *err)
{
    CLEANUP_FREE char *name = view_name(t);
    CLEANUP_FREE char *ours = view_comment(comment);
    CLEANUP_BUF struct buf sql = {0};
    struct found_table found;
    if (d->options.null || t->ncols == 0)
        return OK;
    /* after a restart the target may have its later name already: the change that gave it comes
     * again, and makes the view */
    TRY(target_table_look(d, t->database, t->table, &found, err));
    if (!found.exists || strcmp(found.comment, comment) != 0)
        return OK;
    TRY(target_table_look(d, t->database, name, &found, err));
    /* one of another table gives way: its own was, or will be, made under that table's new name */
    if (found.exists && !target_comment_is_ours(found.comment, ours)) {
        log_warn("msg=\"view not made: its name is taken\" view=%s", LOG_Q(name));
        return OK;
    }
    put_view(t, name, ours, &sql);
    return destination_execute(d, buf_cstr(&sql), err);
}

enum status target_view_drop(struct destination *d, const struct target *t, const char *comment,
                             struct error *err)
{
    CLEANUP_FREE char *name = view_name(t);
    CLEANUP_FREE char *ours = view_comment(comment);
    CLEANUP_BUF struct buf sql = {0};
    struct found_table found;
    if (d->options.null)
        return OK;
    TRY(target_table_look(d, t->database, name, &found, err));
    if (!found.exists || strcmp(found.comment, ours) != 0)
        return OK;
    buf_printf(&sql, "DROP VIEW IF EXISTS ");
    sql_quote_ident(&sql, t->database);
    buf_printf(&sql, ".");
    sql_quote_ident(&sql, name);
    buf_printf(&sql, " SYNC");
    return destination_execute(d, buf_cstr(&sql), err);
}
