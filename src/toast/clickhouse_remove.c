/* What `walshadow remove` does to tables of chunks. */
#include "toast/clickhouse.h"

#include "clickhouse/sql_quote.h"

#include <inttypes.h>
#include <stdlib.h>

char *toast_clickhouse_comment(uint64_t system_id, Oid database)
{
    return xasprintf("walshadow %" PRIu64 "/%u/toast", system_id, database);
}

struct found {
    struct buf sql; /* statements, each with its NUL */
    unsigned n;
};

static enum status take_name(void *ctx, const char *const *fields, const size_t *lengths,
                             unsigned nfields, struct error *err)
{
    struct found *f = ctx;
    (void)lengths;
    if (nfields != 2 || fields[0] == NULL || fields[1] == NULL)
        return error_set(err, ERR_DATA, "unexpected answer about tables of chunks");
    buf_printf(&f->sql, "DROP TABLE IF EXISTS ");
    sql_quote_ident(&f->sql, fields[0]);
    buf_put_u8(&f->sql, '.');
    sql_quote_ident(&f->sql, fields[1]);
    buf_printf(&f->sql, " SYNC");
    buf_put_u8(&f->sql, 0);
    f->n++;
    return OK;
}

static enum status drop_all(struct ch_client *c, const char *comment, struct found *f,
                            struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    buf_printf(&sql,
               "SELECT database, name FROM system.tables WHERE match(name, '^" TOAST_TABLE_PREFIX
               "[0-9]+$') AND comment = ");
    sql_quote_string(&sql, comment);
    TRY(ch_client_select(c, buf_cstr(&sql), NULL, 0, take_name, f, err));
    const char *drop = (const char *)f->sql.data;
    for (unsigned i = 0; i < f->n; i++, drop += strlen(drop) + 1)
        TRY(ch_client_execute(c, drop, NULL, 0, err));
    return OK;
}

enum status toast_clickhouse_remove(const struct ch_endpoint *endpoint, const char *comment,
                                    unsigned *ret_dropped, struct error *err)
{
    struct ch_client *c;
    struct found found = {0};
    TRY(ch_client_open(endpoint, &c, err));
    enum status st = drop_all(c, comment, &found, err);
    ch_client_close(c);
    buf_free(&found.sql);
    if (st == OK)
        *ret_dropped = found.n;
    return st;
}
