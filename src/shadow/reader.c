#include "shadow/reader.h"

#include "catalog/query.h"
#include "shadow/paths.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shadow_reader {
    char *socket_dir, *database, *login_role;
    char port[8];
    bool superuser;
    unsigned major;
    const struct catalog_split *split;
    PGconn *conn; /* NULL: not connected */
    XLogRecPtr min_lsn, max_lsn;
};

struct shadow_reader *shadow_reader_new(const struct shadow_reader_options *o)
{
    struct shadow_reader *r = xcalloc(1, sizeof *r);
    r->socket_dir = xstrdup(o->socket_dir);
    r->database = xstrdup(o->database);
    r->login_role = xstrdup(o->login_role);
    snprintf(r->port, sizeof r->port, "%u",
             (o->port != 0 ? o->port : SHADOW_POSTGRES_PORT) & 0xffff);
    r->superuser = o->login_superuser;
    r->major = o->major;
    r->split = o->split;
    return r;
}

static void disconnect(struct shadow_reader *r)
{
    PQfinish(r->conn);
    r->conn = NULL;
}

void shadow_reader_free(struct shadow_reader *r)
{
    if (r == NULL)
        return;
    disconnect(r);
    free(r->socket_dir);
    free(r->database);
    free(r->login_role);
    free(r);
}

void shadow_reader_expect(struct shadow_reader *r, XLogRecPtr min_lsn, XLogRecPtr max_lsn)
{
    r->min_lsn = min_lsn;
    r->max_lsn = max_lsn;
}

/* At startup: a role's or database's preload library that is not installed here would end the
 * session before it begins; only a superuser may override that. Search path and the rest are set
 * below. */
static PGconn *dial(const struct shadow_reader *r)
{
    const char *options = r->superuser
                              ? "-c session_preload_libraries= -c local_preload_libraries= "
                                "-c statement_timeout=0"
                              : "-c local_preload_libraries= -c statement_timeout=0";
    const char *keywords[] = {
        "host",    "port",       "dbname", "user", "connect_timeout", "options", "application_name",
        "sslmode", "gssencmode", NULL};
    const char *values[] = {r->socket_dir, r->port, r->database,         r->login_role,
                            "10",          options, "walshadow catalog", "disable",
                            "disable",     NULL};
    return PQconnectdbParams(keywords, values, 0);
}

static enum status broken(struct shadow_reader *r, const char *what, struct error *err)
{
    error_set(err, ERR_RETRY, "shadow: %s: %.*s", what, (int)strcspn(PQerrorMessage(r->conn), "\n"),
              PQerrorMessage(r->conn));
    disconnect(r);
    return ERR_RETRY;
}

static void ignore_notice(void *ctx, const PGresult *result)
{
    (void)ctx;
    (void)result;
}

static enum status connect_once(struct shadow_reader *r, struct error *err)
{
    static const char settings[] =
        "SET search_path = ''; SET DateStyle = 'ISO, MDY'; SET TimeZone = 'UTC'; "
        "SET bytea_output = 'hex'; SET statement_timeout = 0; SET lock_timeout = 0; "
        "SET idle_in_transaction_session_timeout = 0";
    if (r->conn != NULL && PQstatus(r->conn) == CONNECTION_OK)
        return OK;
    disconnect(r);
    r->conn = dial(r);
    if (PQstatus(r->conn) != CONNECTION_OK)
        return broken(r, "cannot connect", err);
    PQsetNoticeReceiver(r->conn, ignore_notice, NULL);
    PGresult *result = PQexec(r->conn, settings);
    bool ok = PQresultStatus(result) == PGRES_COMMAND_OK;
    PQclear(result);
    if (!ok)
        return broken(r, "cannot set up the session", err);
    const char *encoding = PQparameterStatus(r->conn, "server_encoding");
    if (encoding == NULL || PQsetClientEncoding(r->conn, encoding) != 0)
        return broken(r, "cannot set the client encoding", err);
    return OK;
}

enum status shadow_reader_replay_lsn(struct shadow_reader *r, XLogRecPtr *ret, struct error *err)
{
    XLogRecPtr lsn = 0;
    TRY(connect_once(r, err));
    PGresult *result = PQexec(r->conn, "SELECT pg_catalog.pg_last_wal_replay_lsn()");
    if (PQresultStatus(result) != PGRES_TUPLES_OK || PQntuples(result) != 1) {
        PQclear(result);
        return broken(r, "cannot ask how far it has replayed", err);
    }
    bool ok = lsn_parse(PQgetvalue(result, 0, 0), &lsn);
    PQclear(result);
    if (!ok)
        return error_set(err, ERR_DATA, "shadow: it is not in recovery");
    *ret = lsn;
    return OK;
}

static enum status check_replay(struct shadow_reader *r, struct error *err)
{
    XLogRecPtr lsn = 0;
    if (r->min_lsn == 0 && r->max_lsn == 0)
        return OK;
    TRY(shadow_reader_replay_lsn(r, &lsn, err));
    if (lsn < r->min_lsn)
        return error_lsn(err, ERR_RETRY, r->min_lsn,
                         "the shadow has replayed through " LSN_FMT " only", LSN_ARGS(lsn));
    if (r->max_lsn != 0 && lsn > r->max_lsn)
        return error_lsn(err, ERR_BUG, r->max_lsn,
                         "the shadow has replayed past the catalog boundary, through " LSN_FMT,
                         LSN_ARGS(lsn));
    return OK;
}

static enum status read_once(struct shadow_reader *r, const Oid *oids, size_t noids,
                             struct rel_desc ***ret, size_t *ret_n, struct error *err)
{
    struct rel_desc **descs = NULL;
    size_t n = 0;
    TRY(connect_once(r, err));
    TRY(check_replay(r, err));
    enum status st =
        catalog_query_read_split(r->conn, r->major, r->split, oids, noids, &descs, &n, err);
    if (st != OK) {
        /* also after an error inside a transaction: the next read begins afresh */
        disconnect(r);
        error_prefix(err, "shadow");
        return st;
    }
    st = check_replay(r, err);
    if (st != OK) {
        catalog_query_free(descs, n);
        return st;
    }
    *ret = descs;
    *ret_n = n;
    return OK;
}

enum status shadow_reader_read(void *ctx, const Oid *oids, size_t noids, struct rel_desc ***ret,
                               size_t *ret_n, struct error *err)
{
    struct shadow_reader *r = ctx;
    bool was_open = r->conn != NULL;
    enum status st = read_once(r, oids, noids, ret, ret_n, err);
    /* a session that was left open may have died with a restart of the shadow: tried once more */
    if (st == ERR_RETRY && was_open && r->conn == NULL)
        st = read_once(r, oids, noids, ret, ret_n, err);
    return st;
}
