#include "source/sql.h"

#include "source/conn.h"
#include "source/pg_error.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct source_sql {
    PGconn *conn;
    int wake_fd;
    atomic_bool interrupted;
};

/* Handed out as struct sql_result *: a PGresult, never dereferenced as anything else. */
static const PGresult *pg(const struct sql_result *r)
{
    return (const PGresult *)r;
}

/* What ALTER ROLE / DATABASE SET could have spoiled. Session settings win over all of those. */
static const char session_settings[] =
    "SET search_path = ''; SET DateStyle = 'ISO, MDY'; SET IntervalStyle = 'postgres'; "
    "SET TimeZone = 'UTC'; SET extra_float_digits = 1; SET bytea_output = 'hex'; "
    "SET lc_monetary = 'C'; SET default_transaction_isolation = 'read "
    "committed'; "
    "SET default_transaction_read_only = on; SET default_transaction_deferrable = off; "
    "SET row_security = off; SET standard_conforming_strings = on; "
    "SET max_parallel_workers_per_gather = 0; SET jit = off; SET ROLE NONE";

static enum status pin_session(struct source_sql *s, struct error *err)
{
    PGresult *result = NULL;
    const char *encoding = PQparameterStatus(s->conn, "server_encoding");
    TRY(source_conn_query(s->conn, session_settings, s->wake_fd, &result, err));
    if (PQresultStatus(result) != PGRES_COMMAND_OK) {
        enum status st = source_error_result(err, s->conn, result, "cannot set up the session");
        PQclear(result);
        return st;
    }
    PQclear(result);
    if (source_conn_major(s->conn) >= 17) {
        TRY(source_conn_query(s->conn, "SET transaction_timeout = 0", s->wake_fd, &result, err));
        PQclear(result);
    }
    if (encoding == NULL || PQsetClientEncoding(s->conn, encoding) != 0)
        return source_error_conn(err, s->conn, "cannot set the client encoding");
    return OK;
}

/* A timeout that ALTER ROLE set could end even the statement that sets it to 0: these go with the
 * startup packet, behind what conninfo itself says in `options`. malloc'd. */
static char *startup_options(const char *conninfo)
{
    const char *given = "";
    PQconninfoOption *parsed = PQconninfoParse(conninfo, NULL);
    for (const PQconninfoOption *o = parsed; o != NULL && o->keyword != NULL; o++)
        if (strcmp(o->keyword, "options") == 0 && o->val != NULL)
            given = o->val;
    char *all = xasprintf("%s -c statement_timeout=0 -c lock_timeout=0 -c idle_session_timeout=0 "
                          "-c idle_in_transaction_session_timeout=0",
                          given);
    PQconninfoFree(parsed);
    return all;
}

enum status source_sql_open(const char *conninfo, const char *application_name,
                            struct source_sql **ret, struct error *err)
{
    CLEANUP_FREE char *startup = startup_options(conninfo);
    const struct source_conn_option options[] = {{"application_name", application_name},
                                                 {"options", startup}};
    struct source_sql *s = xcalloc(1, sizeof *s);
    s->wake_fd = source_wake_new();
    enum status st =
        source_conn_open(conninfo, options, LENGTH(options), s->wake_fd, &s->conn, err);
    if (st == OK)
        st = pin_session(s, err);
    if (st != OK) {
        source_sql_close(s);
        return st;
    }
    *ret = s;
    return OK;
}

void source_sql_close(struct source_sql *s)
{
    if (s == NULL)
        return;
    PQfinish(s->conn);
    close(s->wake_fd);
    free(s);
}

void source_sql_interrupt(struct source_sql *s)
{
    atomic_store(&s->interrupted, true);
    source_wake_set(s->wake_fd);
}

bool source_sql_broken(const struct source_sql *s)
{
    return PQstatus(s->conn) != CONNECTION_OK;
}

unsigned source_sql_major(const struct source_sql *s)
{
    return source_conn_major(s->conn);
}

const char *source_sql_database(const struct source_sql *s)
{
    return PQdb(s->conn);
}

PGconn *source_sql_conn(struct source_sql *s)
{
    return s->conn;
}

int source_sql_wake_fd(const struct source_sql *s)
{
    return s->wake_fd;
}

/* The statement that runs is told to stop, so that the server does not go on working for nobody. */
static void cancel_running(struct source_sql *s)
{
    char text[256];
    PGcancel *cancel = PQgetCancel(s->conn);
    if (cancel != NULL)
        PQcancel(cancel, text, sizeof text);
    PQfreeCancel(cancel);
}

/* All results of the statement; the last one that is not NULL is returned. */
static enum status collect(struct source_sql *s, PGresult **ret, struct error *err)
{
    PGresult *last = NULL;
    for (;;) {
        PGresult *next = NULL;
        enum status st = source_conn_result(s->conn, s->wake_fd, &next, err);
        if (st != OK) {
            PQclear(last);
            if (st == ERR_CANCELLED)
                cancel_running(s);
            return st;
        }
        if (next == NULL)
            break;
        PQclear(last);
        last = next;
        ExecStatusType status = PQresultStatus(last);
        if (status == PGRES_COPY_BOTH || status == PGRES_COPY_OUT || status == PGRES_COPY_IN)
            break;
    }
    *ret = last;
    return OK;
}

enum status source_sql_exec(struct source_sql *s, const char *sql, int nparams,
                            const char *const *params, struct sql_result **ret, struct error *err)
{
    PGresult *result = NULL;
    if (atomic_load(&s->interrupted))
        return error_set(err, ERR_CANCELLED, "stopping");
    if (!PQsendQueryParams(s->conn, sql, nparams, NULL, params, NULL, NULL, 0))
        return source_error_conn(err, s->conn, "cannot send a query to the source");
    TRY(collect(s, &result, err));
    ExecStatusType status = result == NULL ? PGRES_FATAL_ERROR : PQresultStatus(result);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
        enum status st = source_error_result(err, s->conn, result, "a query at the source failed");
        PQclear(result);
        return st;
    }
    if (ret != NULL)
        *ret = (struct sql_result *)result;
    else
        PQclear(result);
    return OK;
}

void sql_result_free(struct sql_result *r)
{
    PQclear((PGresult *)r);
}

unsigned sql_result_rows(const struct sql_result *r)
{
    return (unsigned)PQntuples(pg(r));
}

unsigned sql_result_columns(const struct sql_result *r)
{
    return (unsigned)PQnfields(pg(r));
}

const char *sql_result_get(const struct sql_result *r, unsigned row, unsigned column)
{
    if (PQgetisnull(pg(r), (int)row, (int)column))
        return NULL;
    return PQgetvalue(pg(r), (int)row, (int)column);
}

size_t sql_result_len(const struct sql_result *r, unsigned row, unsigned column)
{
    return (size_t)PQgetlength(pg(r), (int)row, (int)column);
}

enum status sql_result_u64(const struct sql_result *r, unsigned row, unsigned column, uint64_t *ret,
                           struct error *err)
{
    const char *text = sql_result_get(r, row, column);
    char *end = NULL;
    unsigned long long v = 0;
    if (text != NULL && text[0] >= '0' && text[0] <= '9')
        v = strtoull(text, &end, 10);
    if (end == NULL || *end != '\0')
        return error_set(err, ERR_DATA, "column %s: \"%.60s\" is not a number",
                         PQfname(pg(r), (int)column), text == NULL ? "NULL" : text);
    *ret = v;
    return OK;
}

enum status sql_result_lsn(const struct sql_result *r, unsigned row, unsigned column,
                           XLogRecPtr *ret, struct error *err)
{
    const char *text = sql_result_get(r, row, column);
    if (text == NULL || !lsn_parse(text, ret))
        return error_set(err, ERR_DATA, "column %s: \"%.60s\" is not an LSN",
                         PQfname(pg(r), (int)column), text == NULL ? "NULL" : text);
    return OK;
}

bool sql_result_bool(const struct sql_result *r, unsigned row, unsigned column)
{
    const char *text = sql_result_get(r, row, column);
    return text != NULL && text[0] == 't';
}
