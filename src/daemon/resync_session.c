#include "daemon/resync_session.h"

#include "base/log.h"
#include "daemon/state.h"
#include "load/copy.h"

#include <stdlib.h>
#include <string.h>

#define POLL_MS 20u

static enum status command(const struct resync_session *c, const char *sql, struct error *err)
{
    return source_sql_exec(c->sql, sql, 0, NULL, NULL, err);
}

static enum status begin(const struct resync_session *c, struct error *err)
{
    return command(c, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY", err);
}

/* The relation and, below a root, its leaves, as the transaction sees them. */
static enum status read_shape(const struct resync_session *c, Oid oid, struct rel_desc ***ret,
                              size_t *ret_n, struct error *err)
{
    CLEANUP_FREE char *sql = xasprintf("SELECT relid::pg_catalog.oid FROM "
                                       "pg_catalog.pg_partition_tree(%u) UNION SELECT %u::oid",
                                       oid, oid);
    struct sql_result *r = NULL;
    TRY(source_sql_exec(c->sql, sql, 0, NULL, &r, err));
    unsigned n = sql_result_rows(r);
    CLEANUP_FREE Oid *oids = xcalloc(n + 1, sizeof *oids);
    for (unsigned i = 0; i < n; i++)
        oids[i] = (Oid)strtoul(sql_result_get(r, i, 0), NULL, 10);
    sql_result_free(r);
    return catalog_query_read_split(source_sql_conn(c->sql), c->d->source.major, daemon_split(c->d),
                                    oids, n, ret, ret_n, err);
}

/* Transactions that run, and do or do not have a lock that one needs to write the table: those it
 * took it keeps until its end. */
static enum status ask_writers(const struct resync_session *c, const struct resync *s, bool writers,
                               struct sql_result **ret, struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    buf_printf(&sql,
               "SELECT x.transactionid FROM pg_catalog.pg_locks x WHERE x.locktype = "
               "'transactionid' AND x.granted AND x.mode = 'ExclusiveLock' AND %s EXISTS "
               "(SELECT FROM pg_catalog.pg_locks t WHERE t.virtualtransaction = "
               "x.virtualtransaction AND t.locktype = 'relation' AND t.mode NOT IN "
               "('AccessShareLock', 'RowShareLock') AND t.database = (SELECT oid FROM "
               "pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) AND "
               "t.relation IN (%u",
               writers ? "" : "NOT", s->desc->oid);
    for (size_t i = 0; i < s->nparts; i++)
        buf_printf(&sql, ", %u", s->parts[i]->oid);
    buf_printf(&sql, "))");
    return source_sql_exec(c->sql, buf_cstr(&sql), 0, NULL, ret, err);
}

static TransactionId xid_at(const struct sql_result *r, unsigned row)
{
    return (TransactionId)strtoul(sql_result_get(r, row, 0), NULL, 10);
}

static bool has_xid(const struct sql_result *r, TransactionId xid)
{
    for (unsigned k = 0; k < sql_result_rows(r); k++)
        if (xid_at(r, k) == xid)
            return true;
    return false;
}

/* Leaves out what cannot have written the table: transactions of other databases, and of those
 * older than the load the ones without a lock for it. A transaction that ends gives its locks up
 * one by one, that of its id not first: only what still runs after the locks were read had all of
 * them then. */
static enum status leave_out_strangers(const struct resync_session *c, const struct resync *s,
                                       TransactionId *xids, size_t *n, struct error *err)
{
    struct sql_result *without = NULL, *running = NULL, *foreign = NULL;
    size_t kept = 0;
    TRY(ask_writers(c, s, false, &without, err));
    enum status st = source_sql_exec(
        c->sql,
        "SELECT backend_xid FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL UNION "
        "ALL SELECT transaction FROM pg_catalog.pg_prepared_xacts",
        0, NULL, &running, err);
    if (st == OK)
        st = source_sql_exec(
            c->sql,
            "SELECT backend_xid FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL AND "
            "datname <> pg_catalog.current_database() UNION ALL SELECT transaction FROM "
            "pg_catalog.pg_prepared_xacts WHERE database <> pg_catalog.current_database()",
            0, NULL, &foreign, err);
    for (size_t i = 0; i < *n && st == OK; i++) {
        bool old = resync_is_older_than_load(s, xids[i]) && has_xid(without, xids[i]) &&
                   has_xid(running, xids[i]);
        if (!old && !has_xid(foreign, xids[i]))
            xids[kept++] = xids[i];
    }
    sql_result_free(without);
    sql_result_free(running);
    sql_result_free(foreign);
    *n = kept;
    return st;
}

/* While one runs that wrote the table before the stream began, another table may have its turn. */
static enum status check_old_writers(const struct resync_session *c, const struct resync *s,
                                     struct error *err)
{
    struct sql_result *r = NULL;
    TransactionId old = InvalidTransactionId;
    TRY(ask_writers(c, s, true, &r, err));
    for (unsigned k = 0; k < sql_result_rows(r); k++)
        if (resync_is_older_than_load(s, xid_at(r, k)))
            old = xid_at(r, k);
    sql_result_free(r);
    return old == InvalidTransactionId
               ? OK
               : error_set(err, ERR_RETRY,
                           "transaction %u, which is older than the initial load, has not ended",
                           old);
}

/* The source's shape is what the stream knows at its position; else the stream has yet to get
 * there.
 */
enum status resync_session_look(const struct resync_session *c, struct resync *s, struct error *err)
{
    struct rel_desc **all;
    size_t n;
    TRY(read_shape(c, s->table->oid, &all, &n, err));
    bool exists = resync_take_shape(s, all, n);
    catalog_query_free(all, n);
    if (!exists)
        return error_set(err, ERR_RETRY, "it is gone at the source");
    if (!resync_is_current(s))
        return error_set(err, ERR_RETRY, "the stream has not the table's newest shape yet");
    return check_old_writers(c, s, err);
}

/* "xmin:xmax:xid,xid,…" */
static size_t parse_running(const char *text, TransactionId **ret)
{
    const char *at = strrchr(text, ':');
    size_t n = 0;
    *ret = xcalloc(strlen(text) / 2 + 1, sizeof **ret);
    for (at = at == NULL ? "" : at + 1; *at >= '0' && *at <= '9';) {
        char *end;
        (*ret)[n++] = (TransactionId)strtoull(at, &end, 10);
        at = *end == ',' ? end + 1 : end;
    }
    return n;
}

/* The transaction's snapshot. *ret_missing: a transaction of the table of which neither it nor the
 * stream may have everything, 0 = none. *ret_lsn: everything it sees was written before. */
static enum status take_snapshot(const struct resync_session *c, const struct resync *s,
                                 TransactionId *ret_missing, XLogRecPtr *ret_lsn, struct error *err)
{
    struct sql_result *r = NULL;
    TRY(source_sql_exec(c->sql,
                        "SELECT pg_catalog.pg_current_snapshot(), "
                        "pg_catalog.pg_current_wal_insert_lsn()",
                        0, NULL, &r, err));
    CLEANUP_FREE TransactionId *xids = NULL;
    size_t n = parse_running(sql_result_get(r, 0, 0), &xids);
    enum status st = sql_result_lsn(r, 0, 1, ret_lsn, err);
    sql_result_free(r);
    TRY(st);
    *ret_lsn = lsn_before_page_header(*ret_lsn, c->d->source.segment_bytes);
    n = resync_doubtful_xids(s, xids, n);
    if (n > 0)
        TRY(leave_out_strangers(c, s, xids, &n, err));
    *ret_missing = n > 0 ? xids[0] : InvalidTransactionId;
    return OK;
}

enum status resync_check(struct daemon *d, const struct resync *s, struct error *err)
{
    TRY(daemon_check(d, err));
    return resync_is_valid(s) ? OK
                              : error_set(err, ERR_RETRY, "the table changed while it was copied");
}

static enum status lock_table(const struct resync_session *c, const struct resync *s,
                              struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    buf_printf(&sql, "LOCK TABLE ");
    copy_put_ident(s->desc->schema, &sql);
    buf_put_u8(&sql, '.');
    copy_put_ident(s->desc->name, &sql);
    buf_printf(&sql, " IN ACCESS SHARE MODE");
    enum status st = command(c, buf_cstr(&sql), err);
    if (st != OK && (strcmp(err->sqlstate, "42P01") == 0 || strcmp(err->sqlstate, "3F000") == 0))
        err->kind = st = ERR_RETRY; /* renamed or dropped since it was looked at */
    return st;
}

enum status resync_session_snapshot(const struct resync_session *c, const struct resync *s,
                                    XLogRecPtr *ret_lsn, struct error *err)
{
    struct rel_desc **all;
    size_t n;
    for (TransactionId missing, told = InvalidTransactionId;;) {
        TRY(resync_check(c->d, s, err));
        TRY(begin(c, err));
        TRY(lock_table(c, s, err));
        TRY(take_snapshot(c, s, &missing, ret_lsn, err));
        if (missing == InvalidTransactionId)
            break;
        if (missing != told)
            log_info("msg=\"the copy waits for the end of a transaction that is older than the "
                     "load, or has committed and is not yet seen\" table=%s xid=%u",
                     LOG_Q(s->table->name), missing);
        told = missing;
        TRY(command(c, "ROLLBACK", err));
        TRY(daemon_pause(c->d, POLL_MS, err));
    }
    TRY(read_shape(c, s->table->oid, &all, &n, err));
    bool same = resync_has_shape(s, all, n);
    catalog_query_free(all, n);
    return same ? OK : error_set(err, ERR_RETRY, "the table changed since the copy was opened");
}
