/* A throwaway PostgreSQL for tests that need a real one: initdb in a temporary directory, a unix
 * socket only, stopped and removed at the end. PostgreSQL refuses to run as root: then `postgres`
 * runs it. */
#pragma once
#include "test.h"

#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIVE_PORT "6543"

struct live_server {
    char dir[64];       /* holds data/ and the socket */
    char conninfo[160]; /* of database postgres, role postgres */
};

static inline const char *live_bin_dir(void)
{
    const char *dir = getenv("WALSHADOW_TEST_PG_BIN");
    return dir != NULL ? dir : "/usr/lib/postgresql/15/bin";
}

/* Runs a shell command as the unprivileged user; its stdout (first 64 KiB) into out, if asked. */
static inline int live_shell(char *out, size_t cap, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static inline int live_shell(char *out, size_t cap, const char *fmt, ...)
{
    char command[4096], line[8192];
    va_list args;
    va_start(args, fmt);
    vsnprintf(command, sizeof command, fmt, args);
    va_end(args);
    if (geteuid() == 0) {
        setenv("LIVE_COMMAND", command, 1);
        snprintf(line, sizeof line, "exec runuser -u postgres -- sh -c \"$LIVE_COMMAND\"");
    } else {
        snprintf(line, sizeof line, "%s", command);
    }
    FILE *p = popen(line, "re");
    size_t n = 0;
    assert_non_null(p);
    if (out != NULL) {
        n = fread(out, 1, cap - 1, p);
        out[n] = '\0';
        while (n > 0 && out[n - 1] == '\n')
            out[--n] = '\0';
    }
    while (fread(line, 1, sizeof line, p) > 0)
        ;
    return pclose(p);
}

/* One statement through psql, tuples only. */
#define live_sql(s, out, cap, sql)                                                                 \
    live_shell(out, cap, "psql -X -q -A -t -v ON_ERROR_STOP=1 -d '%s' <<'SQL'\n%s\nSQL",           \
               (s)->conninfo, sql)
#define live_do(s, sql) assert_int_equal(live_sql(s, NULL, 0, sql), 0)

static inline bool live_server_start(struct live_server *s, const char *conf)
{
    char path[128];
    snprintf(path, sizeof path, "%s/postgres", live_bin_dir());
    if (access(path, X_OK) != 0) {
        print_message("skipped: there is no %s\n", path);
        return false;
    }
    snprintf(s->dir, sizeof s->dir, "/tmp/walshadow-test-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    chmod(s->dir, 0777);
    snprintf(s->conninfo, sizeof s->conninfo,
             "host=%s port=" LIVE_PORT " dbname=postgres user=postgres", s->dir);
    assert_int_equal(
        live_shell(NULL, 0,
                   "%s/initdb -D %s/data -A trust -U postgres -E UTF8 --locale=C --wal-segsize=1 "
                   ">%s/initdb.log 2>&1 && cat >>%s/data/postgresql.conf <<'C'\n"
                   "listen_addresses=''\nunix_socket_directories='%s'\nport=" LIVE_PORT "\n"
                   "wal_level=logical\nfsync=off\nmax_prepared_transactions=5\nautovacuum=off\n"
                   "max_wal_size=8MB\nmin_wal_size=2MB\n%s\nC\n"
                   "%s/pg_ctl -D %s/data -w -l %s/log start >/dev/null",
                   live_bin_dir(), s->dir, s->dir, s->dir, s->dir, conf, live_bin_dir(), s->dir,
                   s->dir),
        0);
    return true;
}

static inline void live_server_stop(struct live_server *s, const char *mode)
{
    live_shell(NULL, 0, "%s/pg_ctl -D %s/data -m %s -w -t 20 stop >/dev/null", live_bin_dir(),
               s->dir, mode);
}

static inline void live_server_remove(struct live_server *s)
{
    char command[128];
    live_server_stop(s, "immediate");
    snprintf(command, sizeof command, "rm -rf '%s'", s->dir);
    assert_int_equal(system(command), 0);
}
