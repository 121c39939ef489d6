/* The fixed questions asked of the source. */
#include "base/buf.h"
#include "source/sql.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static enum status one_lsn(struct source_sql *s, const char *sql, XLogRecPtr *ret,
                           struct error *err)
{
    struct sql_result *r = NULL;
    TRY(source_sql_exec(s, sql, 0, NULL, &r, err));
    enum status st = sql_result_rows(r) == 1 ? sql_result_lsn(r, 0, 0, ret, err)
                                             : error_set(err, ERR_DATA, "%s: no row", sql);
    sql_result_free(r);
    return st;
}

enum status source_sql_flush_lsn(struct source_sql *s, XLogRecPtr *ret, struct error *err)
{
    return one_lsn(s, "SELECT pg_catalog.pg_current_wal_flush_lsn()", ret, err);
}

enum status source_sql_insert_lsn(struct source_sql *s, XLogRecPtr *ret, struct error *err)
{
    return one_lsn(s, "SELECT pg_catalog.pg_current_wal_insert_lsn()", ret, err);
}

static void copy_text(char *to, size_t cap, const char *from)
{
    snprintf(to, cap, "%s", from == NULL ? "" : from);
}

enum status source_sql_slot_info(struct source_sql *s, const char *name,
                                 struct source_slot_info *ret, struct error *err)
{
    CLEANUP_FREE char *sql = xasprintf(
        "SELECT slot_type = 'physical', temporary, active_pid, restart_lsn, wal_status, %s, "
        "pg_catalog.pg_wal_lsn_diff(CASE WHEN pg_catalog.pg_is_in_recovery() "
        "THEN pg_catalog.pg_last_wal_receive_lsn() ELSE pg_catalog.pg_current_wal_flush_lsn() END, "
        "restart_lsn), r.application_name, "
        "(EXTRACT(epoch FROM r.reply_time) * 1000000)::pg_catalog.int8 "
        "FROM pg_catalog.pg_replication_slots s LEFT JOIN pg_catalog.pg_stat_replication r "
        "ON r.pid = s.active_pid WHERE slot_name = $1",
        source_sql_major(s) >= 17 ? "invalidation_reason" : "NULL::pg_catalog.text");
    struct source_slot_info info = {0};
    struct sql_result *r = NULL;
    enum status st = OK;
    TRY(source_sql_exec(s, sql, 1, &name, &r, err));
    if (sql_result_rows(r) == 1) {
        info.exists = true;
        info.physical = sql_result_bool(r, 0, 0);
        info.temporary = sql_result_bool(r, 0, 1);
        const char *pid = sql_result_get(r, 0, 2);
        info.active_pid = pid == NULL ? 0 : atoi(pid);
        if (sql_result_get(r, 0, 3) != NULL)
            st = sql_result_lsn(r, 0, 3, &info.restart_lsn, err);
        copy_text(info.wal_status, sizeof info.wal_status, sql_result_get(r, 0, 4));
        copy_text(info.invalidation, sizeof info.invalidation, sql_result_get(r, 0, 5));
        const char *diff = sql_result_get(r, 0, 6);
        if (diff != NULL && diff[0] != '-') /* behind: nothing is retained */
            info.retained_bytes = strtoull(diff, NULL, 10);
        copy_text(info.holder, sizeof info.holder, sql_result_get(r, 0, 7));
        const char *reply = sql_result_get(r, 0, 8);
        info.holder_reply_us = reply == NULL ? 0 : strtoll(reply, NULL, 10);
    }
    sql_result_free(r);
    TRY(st);
    *ret = info;
    return OK;
}

enum status source_sql_sync_priority(struct source_sql *s, int walsender_pid, int *ret_priority,
                                     struct error *err)
{
    char pid[16];
    const char *params[] = {pid};
    struct sql_result *r = NULL;
    snprintf(pid, sizeof pid, "%d", walsender_pid);
    TRY(source_sql_exec(
        s, "SELECT sync_priority FROM pg_catalog.pg_stat_replication WHERE pid = $1::int4", 1,
        params, &r, err));
    const char *text = sql_result_rows(r) == 1 ? sql_result_get(r, 0, 0) : NULL;
    *ret_priority = text == NULL ? -1 : atoi(text);
    sql_result_free(r);
    return OK;
}

/* Full xid of a 32-bit one that lies within 2^31 of the server's next. */
static enum status next_full_xid(struct source_sql *s, uint64_t *ret, struct error *err)
{
    struct sql_result *r = NULL;
    TRY(source_sql_exec(
        s, "SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::pg_catalog.text",
        0, NULL, &r, err));
    enum status st = sql_result_u64(r, 0, 0, ret, err);
    sql_result_free(r);
    return st;
}

static enum source_xact_status parse_status(const char *text)
{
    if (text == NULL)
        return SOURCE_XACT_UNKNOWN;
    return text[0] == 'c'   ? SOURCE_XACT_COMMITTED
           : text[0] == 'a' ? SOURCE_XACT_ABORTED
                            : SOURCE_XACT_IN_PROGRESS;
}

enum status source_sql_xact_status(struct source_sql *s, const TransactionId *xids, size_t n,
                                   enum source_xact_status *ret, struct error *err)
{
    CLEANUP_BUF struct buf list = {0};
    struct sql_result *r = NULL;
    uint64_t next = 0;
    if (n == 0)
        return OK;
    TRY(next_full_xid(s, &next, err));
    buf_put_u8(&list, '{');
    for (size_t i = 0; i < n; i++) {
        uint64_t full = next + (uint64_t)(int64_t)(int32_t)(xids[i] - (uint32_t)next);
        /* the permanent xids do not age: 1 and 2 are committed, 0 is nobody's */
        if (xids[i] < FirstNormalTransactionId)
            full = xids[i];
        buf_printf(&list, "%s%" PRIu64, i == 0 ? "" : ",", full);
    }
    buf_put_u8(&list, '}');
    const char *params[] = {buf_cstr(&list)};
    TRY(source_sql_exec(
        s,
        "SELECT CASE WHEN x < 3 THEN CASE WHEN x > 0 THEN 'committed' END "
        "ELSE pg_catalog.pg_xact_status(x::pg_catalog.text::pg_catalog.xid8) END "
        "FROM pg_catalog.unnest($1::pg_catalog.int8[]) WITH ORDINALITY u (x, i) ORDER BY i",
        1, params, &r, err));
    enum status st = OK;
    if (sql_result_rows(r) != n)
        st =
            error_set(err, ERR_DATA, "pg_xact_status: %u rows for %zu xids", sql_result_rows(r), n);
    for (size_t i = 0; st == OK && i < n; i++)
        ret[i] = parse_status(sql_result_get(r, (unsigned)i, 0));
    sql_result_free(r);
    return st;
}

enum status source_sql_catalog_locks(struct source_sql *s, unsigned *ret_n, char **ret_text,
                                     struct error *err)
{
    struct sql_result *r = NULL;
    TRY(source_sql_exec(
        s,
        "SELECT l.pid, c.relname FROM pg_catalog.pg_locks l "
        "LEFT JOIN pg_catalog.pg_class c ON c.oid = l.relation "
        "WHERE l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock' AND l.granted "
        "AND l.relation < 16384 AND l.database IN (0, (SELECT oid FROM pg_catalog.pg_database "
        "WHERE datname = pg_catalog.current_database())) ORDER BY l.pid, l.relation",
        0, NULL, &r, err));
    *ret_n = sql_result_rows(r);
    if (ret_text != NULL) {
        *ret_text = NULL;
        if (*ret_n > 0) {
            const char *pid = sql_result_get(r, 0, 0), *name = sql_result_get(r, 0, 1);
            *ret_text =
                pid == NULL /* a prepared transaction has no process */
                    ? xasprintf("a prepared transaction holds %s", name ? name : "a catalog")
                    : xasprintf("pid %s holds %s", pid, name ? name : "a catalog");
        }
    }
    sql_result_free(r);
    return OK;
}

enum status source_sql_login_role(struct source_sql *s, struct source_login *ret, struct error *err)
{
    struct source_login login = {0};
    struct sql_result *r = NULL;
    TRY(source_sql_exec(s,
                        "SELECT rolname, rolsuper FROM pg_catalog.pg_roles WHERE rolcanlogin "
                        "AND (rolsuper OR rolname = session_user) "
                        "ORDER BY rolsuper DESC, oid = 10 DESC, oid LIMIT 1",
                        0, NULL, &r, err));
    enum status st = OK;
    if (sql_result_rows(r) != 1)
        st = error_set(err, ERR_CONFIG, "the source has no role that may log in");
    if (st == OK) {
        copy_text(login.name, sizeof login.name, sql_result_get(r, 0, 0));
        login.superuser = sql_result_bool(r, 0, 1);
        *ret = login;
    }
    sql_result_free(r);
    return st;
}
