/* A throwaway PostgreSQL 15 on a unix socket below /tmp; skips the test where there is none. */
#pragma once
#include "test.h"

#include <libpq-fe.h>
#include <stdbool.h>
#include <unistd.h>

#define PG_BIN "/usr/lib/postgresql/15/bin"

struct scratch_pg {
    char dir[64];
    char conninfo[160];
};

static inline int shell(const char *fmt, ...) PRINTF(1, 2);
static inline int shell(const char *fmt, ...)
{
    char cmd[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(cmd, sizeof cmd, fmt, args);
    va_end(args);
    return system(cmd);
}

/* A server does not run as root. */
static inline const char *as_postgres(void)
{
    return geteuid() == 0 ? "runuser -u postgres --" : "";
}

/* A test that fails leaves by longjmp: what it started is stopped at exit. */
static char scratch_pg_running[64];
static volatile bool scratch_pg_stopping; /* threads that lose their connection now say nothing */
static inline void scratch_pg_clean(void)
{
    if (scratch_pg_running[0] == '\0')
        return;
    scratch_pg_stopping = true;
    shell("%s " PG_BIN "/pg_ctl -D %s/pg -m immediate -w stop >/dev/null", as_postgres(),
          scratch_pg_running);
    shell("rm -rf %s", scratch_pg_running);
    scratch_pg_running[0] = '\0';
    scratch_pg_stopping = false;
}

static inline void scratch_pg_start(struct scratch_pg *pg)
{
    if (access(PG_BIN "/initdb", X_OK) != 0)
        skip();
    strcpy(pg->dir, "/tmp/load-test-XXXXXX");
    assert_non_null(mkdtemp(pg->dir));
    scratch_pg_clean(); /* of a test that failed before */
    atexit(scratch_pg_clean);
    strcpy(scratch_pg_running, pg->dir);
    if (geteuid() == 0)
        assert_int_equal(shell("chown postgres %s", pg->dir), 0);
    assert_int_equal(shell("%s " PG_BIN "/initdb -D %s/pg -A trust -U postgres -E UTF8 --locale=C "
                           "-N >/dev/null",
                           as_postgres(), pg->dir),
                     0);
    assert_int_equal(
        shell("%s " PG_BIN "/pg_ctl -D %s/pg -w -l %s/log -o \"-k %s -c listen_addresses='' "
              "-c wal_level=logical -c max_wal_senders=8 -c wal_keep_size=1GB -c fsync=off "
              "-c autovacuum=off -c max_prepared_transactions=4 -c wal_compression=lz4 "
              "-c synchronous_commit=off\" start >/dev/null",
              as_postgres(), pg->dir, pg->dir, pg->dir),
        0);
    snprintf(pg->conninfo, sizeof pg->conninfo, "host=%s user=postgres dbname=app", pg->dir);
    assert_int_equal(shell("psql -q -h %s -U postgres -c 'create database app' postgres", pg->dir),
                     0);
}

static inline PGconn *scratch_pg_connect(const struct scratch_pg *pg)
{
    PGconn *c = PQconnectdb(pg->conninfo);
    if (PQstatus(c) != CONNECTION_OK)
        fail_msg("%s", PQerrorMessage(c));
    return c;
}

static inline PGresult *query(PGconn *c, const char *sql)
{
    PGresult *r = PQexec(c, sql);
    if (PQresultStatus(r) != PGRES_TUPLES_OK && PQresultStatus(r) != PGRES_COMMAND_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(c));
    return r;
}
static inline void run(PGconn *c, const char *sql)
{
    PQclear(query(c, sql));
}
/* One field, copied into buf. */
static inline const char *value(PGconn *c, const char *sql, char *buf, size_t cap)
{
    PGresult *r = query(c, sql);
    snprintf(buf, cap, "%s", PQgetvalue(r, 0, 0));
    PQclear(r);
    return buf;
}
