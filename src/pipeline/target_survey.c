/* What a start finds at a destination, asked once for all tables: a question for each would make
 * the start of thousands of tables take minutes. */
#include "clickhouse/sql_quote.h"
#include "pipeline/target_internal.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

struct surveyed {
    char *place; /* `database`.`table` */
    char *comment;
    struct found_columns columns;
    UT_hash_handle hh;
};

struct target_survey {
    struct surveyed *tables;
};

static struct surveyed *find(const struct target_survey *s, const char *database, const char *table)
{
    CLEANUP_BUF struct buf place = {0};
    struct surveyed *found = NULL;
    const struct target t = {.database = (char *)(uintptr_t)database,
                             .table = (char *)(uintptr_t)table};
    target_full_name(&place, &t);
    HASH_FIND_STR(s->tables, buf_cstr(&place), found);
    return found;
}

static char *field_copy(const char *field, size_t len)
{
    return xasprintf("%.*s", field == NULL ? 0 : (int)len, field == NULL ? "" : field);
}

static enum status table_row(void *ctx, const char *const *fields, const size_t *lengths,
                             unsigned nfields, struct error *err)
{
    struct target_survey *s = ctx;
    CLEANUP_BUF struct buf place = {0};
    if (nfields != 3)
        return error_set(err, ERR_DATA, "system.tables gave %u columns", nfields);
    CLEANUP_FREE char *database = field_copy(fields[0], lengths[0]);
    CLEANUP_FREE char *table = field_copy(fields[1], lengths[1]);
    if (find(s, database, table) != NULL)
        return OK;
    const struct target t = {.database = database, .table = table};
    struct surveyed *one = xcalloc(1, sizeof *one);
    target_full_name(&place, &t);
    one->place = xstrdup(buf_cstr(&place));
    one->comment = field_copy(fields[2], lengths[2]);
    HASH_ADD_KEYPTR(hh, s->tables, one->place, strlen(one->place), one);
    return OK;
}

static enum status column_row(void *ctx, const char *const *fields, const size_t *lengths,
                              unsigned nfields, struct error *err)
{
    const struct target_survey *s = ctx;
    if (nfields != 5)
        return error_set(err, ERR_DATA, "system.columns gave %u columns", nfields);
    CLEANUP_FREE char *database = field_copy(fields[0], lengths[0]);
    CLEANUP_FREE char *table = field_copy(fields[1], lengths[1]);
    struct surveyed *one = find(s, database, table);
    if (one != NULL)
        found_columns_add(&one->columns, field_copy(fields[2], lengths[2]),
                          field_copy(fields[3], lengths[3]), field_copy(fields[4], lengths[4]));
    return OK;
}

static enum status ask(struct destination *d, const char *comment_prefix, struct target_survey *s,
                       struct error *err)
{
    CLEANUP_BUF struct buf ours = {0};
    CLEANUP_BUF struct buf sql = {0};
    buf_printf(&ours, " FROM system.tables WHERE startsWith(comment, ");
    sql_quote_string(&ours, comment_prefix);
    buf_printf(&ours, ")");
    buf_printf(&sql, "SELECT toString(database), toString(name), toString(comment)%s",
               buf_cstr(&ours));
    TRY(destination_select(d, buf_cstr(&sql), table_row, s, err));
    buf_reset(&sql);
    buf_printf(&sql,
               "SELECT toString(database), toString(table), toString(name), toString(type), "
               "toString(comment) FROM system.columns WHERE (database, table) IN (SELECT database, "
               "name%s) ORDER BY database, table, position",
               buf_cstr(&ours));
    return destination_select(d, buf_cstr(&sql), column_row, s, err);
}

enum status target_survey_take(struct destination *d, const char *comment_prefix,
                               struct target_survey **ret, struct error *err)
{
    struct target_survey *s = xcalloc(1, sizeof *s);
    enum status st = d->options.null ? OK : ask(d, comment_prefix, s, err);
    if (st != OK) {
        target_survey_free(s);
        return st;
    }
    *ret = s;
    return OK;
}

const struct found_columns *target_survey_find(const struct target_survey *s, const char *database,
                                               const char *table, const char *comment)
{
    const struct surveyed *one = s == NULL ? NULL : find(s, database, table);
    return one == NULL || strcmp(one->comment, comment) != 0 ? NULL : &one->columns;
}

void target_survey_free(struct target_survey *s)
{
    struct surveyed *one, *next;
    if (s == NULL)
        return;
    HASH_ITER (hh, s->tables, one, next) {
        HASH_DEL(s->tables, one);
        found_columns_fini(&one->columns);
        free(one->comment);
        free(one->place);
        free(one);
    }
    free(s);
}
