/* DDL text of a target. */
#include "table/target.h"
#include "clickhouse/sql_quote.h"

#include <string.h>

/* Tables with more columns than this write compact parts while those are small (clickhouse-notes
 * 19). */
#define WIDE_PART_COLUMNS 200

/* The key in index order, or (_part, _ctid). */
static void put_order_by(const struct target *t, struct buf *out)
{
    buf_printf(out, "ORDER BY (");
    if (t->has_ctid)
        buf_printf(out, t->has_part ? "`_part`, `_ctid`" : "`_ctid`");
    for (unsigned position = 1; position <= t->ncols && !t->has_ctid; position++) {
        for (unsigned i = 0; i < t->ncols; i++) {
            if (t->cols[i].key_index != position)
                continue;
            buf_printf(out, position == 1 ? "" : ", ");
            sql_quote_ident(out, t->header->cols[i].name);
        }
    }
    buf_put_u8(out, ')');
}

static void put_setting(struct buf *out, bool *first, const char *setting)
{
    buf_printf(out, "%s%s", *first ? " SETTINGS " : ", ", setting);
    *first = false;
}

/* The engine fsyncs nothing by default and merges delete their sources soon (clickhouse-notes 4).
 */
static void put_settings(const struct target *t, const struct target_options *options,
                         struct buf *out)
{
    bool first = true;
    if (options->chdb_fsync) {
        put_setting(out, &first, "min_rows_to_fsync_after_merge = 1");
        put_setting(out, &first, "min_compressed_bytes_to_fsync_after_merge = 1");
    }
    if (options->chdb_fsync && options->fsync_each_insert) {
        put_setting(out, &first, "fsync_after_insert = 1");
        put_setting(out, &first, "fsync_part_directory = 1");
    }
    if (t->header->ncols > WIDE_PART_COLUMNS)
        put_setting(out, &first, "min_bytes_for_wide_part = 1073741824");
}

const char *target_column_type(const struct target *t, unsigned i)
{
    if (i < t->ncols && t->cols[i].encoder.column_type != NULL)
        return t->cols[i].encoder.column_type;
    return t->header->cols[i].type;
}

static void put_column(const struct target *t, unsigned i, bool first, struct buf *out)
{
    buf_printf(out, first ? " (" : ", ");
    sql_quote_ident(out, t->header->cols[i].name);
    buf_printf(out, " %s", target_column_type(t, i));
}

/* In the order in which the configuration lists them, else the source's. Rows name their columns,
 * so only a reader's SELECT * sees it. */
static void put_columns(const struct target *t, const struct target_options *options,
                        struct buf *out)
{
    bool first = true;
    for (size_t k = 0; k < options->ncolumns; k++)
        for (unsigned i = 0; i < t->ncols; i++)
            if (t->cols[i].attnum == options->columns[k].attnum) {
                put_column(t, i, first, out);
                first = false;
            }
    for (unsigned i = options->ncolumns > 0 ? t->ncols : 0; i < t->header->ncols; i++) {
        put_column(t, i, first, out);
        first = false;
    }
}

void target_create_sql(const struct target *t, const struct target_options *options,
                       struct buf *out)
{
    buf_printf(out, "CREATE TABLE IF NOT EXISTS ");
    sql_quote_ident(out, t->database);
    buf_put_u8(out, '.');
    sql_quote_ident(out, t->table);
    put_columns(t, options, out);
    buf_printf(out, ") ENGINE = ReplacingMergeTree(%s) ",
               t->soft_delete ? "`_lsn`" : "`_lsn`, `_is_deleted`");
    put_order_by(t, out);
    put_settings(t, options, out);
    if (options->comment != NULL) {
        buf_printf(out, " COMMENT ");
        sql_quote_string(out, options->comment);
    }
}
