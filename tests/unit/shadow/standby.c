/* Walsender, cluster and reader with a real primary and a real standby: the primary's WAL goes
 * through the archive, unfiltered, to a shadow made from a cold copy. The primary's own answers are
 * the oracle. WALSHADOW_TEST_PG_BIN chooses the version. */
#include "source/live_server.h"

#include "base/file.h"
#include "base/queue.h"
#include "catalog/query.h"
#include "shadow/cluster.h"
#include "shadow/paths.h"
#include "shadow/reader.h"
#include "shadow/walsender.h"
#include "source/replication.h"
#include "source/sql.h"
#include "wal/archive.h"

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#define SEGMENT (1u << 20)

static struct live_server primary;
static bool have_server;
static char state_dir[100], data_dir[120];
static struct source_identity identity;
static struct wal_archive *archive;
static struct shadow_walsender *ws;
static struct shadow_cluster *cluster;
static struct shadow_reader *reader;
static struct source_repl *stream;
static struct source_sql *sql;
static pthread_t feeder;

static uint64_t in_ms(unsigned ms)
{
    return clock_now_ns() + (uint64_t)ms * 1000000u;
}

static void *feed(void *arg)
{
    struct error err = {0};
    struct source_chunk chunk;
    (void)arg;
    while (source_repl_receive(stream, UINT64_MAX, &chunk, &err) == OK &&
           chunk.kind != SOURCE_CHUNK_ENDED) {
        if (chunk.kind == SOURCE_CHUNK_DATA &&
            wal_archive_write(archive, chunk.lsn, chunk.data, chunk.len, NULL, &err) != OK)
            break;
    }
    if (err.kind != ERR_CANCELLED)
        fprintf(stderr, "feeder: %s\n", err.message);
    return NULL;
}

static void start_walsender(void)
{
    struct error err = {0};
    CLEANUP_FREE char *sock = NULL;
    assert_ok(shadow_socket_dir(state_dir, &sock, &err));
    const struct shadow_walsender_options options = {.socket_dir = sock,
                                                     .port = SHADOW_WALSENDER_PORT,
                                                     .system_id = identity.system_id,
                                                     .timeline = 1,
                                                     .major = identity.major,
                                                     .segment_bytes = SEGMENT,
                                                     .archive = archive};
    assert_ok(shadow_walsender_start(&options, &ws, &err));
}

static struct shadow_cluster_options cluster_options(void)
{
    return (struct shadow_cluster_options){.state_dir = state_dir,
                                           .data_dir = data_dir,
                                           .bin_dir = live_bin_dir(),
                                           .major = identity.major,
                                           .login_role = "post\"gres"};
}

static void start_cluster(void)
{
    struct error err = {0};
    const struct shadow_cluster_options options = cluster_options();
    assert_ok(shadow_cluster_start(&options, &cluster, &err));
}

static void start_stream(void)
{
    struct error err = {0};
    CLEANUP_FREE char *dir = xasprintf("%s/wal", state_dir);
    assert_ok(source_repl_open(primary.conninfo, "feeder", &stream, &err));
    assert_ok(source_repl_identify(stream, &identity, &err));
    assert_ok(wal_archive_open(dir, SEGMENT, 1, &archive, &err));
    assert_ok(
        source_repl_start(stream, NULL, lsn_segment_start(identity.xlogpos, SEGMENT), 1, &err));
    assert_int_equal(pthread_create(&feeder, NULL, feed, NULL), 0);
}

static int set_up(void **state)
{
    struct error err = {0};
    (void)state;
    have_server = live_server_start(&primary, "wal_keep_size=512MB\nmax_connections=40");
    if (!have_server)
        return 0;
    live_do(&primary, "CREATE ROLE \"post\"\"gres\" SUPERUSER LOGIN; "
                      "ALTER ROLE \"post\"\"gres\" SET session_preload_libraries = 'not_there'");
    snprintf(state_dir, sizeof state_dir, "%s/state", primary.dir);
    snprintf(data_dir, sizeof data_dir, "%s/shadow", state_dir);
    live_server_stop(&primary, "fast");
    assert_int_equal(
        live_shell(NULL, 0,
                   "mkdir %s && cp -a %s/data %s && "
                   "echo garbage >%s/postgresql.conf && ln -s /etc %s/pg_tblspc/77777 && "
                   "%s/pg_ctl -D %s/data -w -l %s/log start >/dev/null",
                   state_dir, primary.dir, data_dir, data_dir, data_dir, live_bin_dir(),
                   primary.dir, primary.dir),
        0);
    assert_ok(source_sql_open(primary.conninfo, "test", &sql, &err));
    start_stream();
    start_walsender();
    start_cluster();
    const struct shadow_reader_options options = {.socket_dir = shadow_cluster_socket_dir(cluster),
                                                  .database = "postgres",
                                                  .login_role = "post\"gres",
                                                  .login_superuser = true,
                                                  .major = identity.major};
    reader = shadow_reader_new(&options);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (!have_server)
        return 0;
    shadow_reader_free(reader);
    shadow_cluster_stop(cluster, 10000);
    shadow_walsender_stop(ws);
    source_repl_wake(stream);
    pthread_join(feeder, NULL);
    source_repl_close(stream);
    source_sql_close(sql);
    wal_archive_close(archive);
    live_server_remove(&primary);
    return 0;
}

#define NEED_SERVER()                                                                              \
    do {                                                                                           \
        if (!have_server)                                                                          \
            skip();                                                                                \
    } while (0)

static XLogRecPtr flush_lsn(void)
{
    struct error err = {0};
    XLogRecPtr lsn = 0;
    assert_ok(source_sql_flush_lsn(sql, &lsn, &err));
    return lsn;
}

static void test_becomes_ready(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    char text[200];
    (void)state;
    assert_ok(shadow_cluster_wait_ready(cluster, in_ms(60000), &err));
    assert_int_equal(shadow_cluster_state(cluster), SHADOW_READY);
    shadow_cluster_waiting_on(cluster, text, sizeof text);
    assert_string_equal(text, "");
    /* nothing of the source's tablespaces is left */
    snprintf(text, sizeof text, "%s/pg_tblspc/77777", data_dir);
    assert_false(file_exists(text));
}

static void compare_catalogs(void)
{
    struct error err = {0};
    struct rel_desc **ours = NULL, **theirs = NULL;
    size_t nours = 0, ntheirs = 0;
    assert_ok(shadow_reader_read(reader, NULL, 0, &ours, &nours, &err));
    assert_ok(
        catalog_query_read(source_sql_conn(sql), identity.major, NULL, 0, &theirs, &ntheirs, &err));
    assert_int_equal(nours, ntheirs);
    for (size_t i = 0; i < nours; i++)
        assert_true(rel_desc_equal(ours[i], theirs[i], true));
    catalog_query_free(ours, nours);
    catalog_query_free(theirs, ntheirs);
}

static void test_replays(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    XLogRecPtr lsn, replayed = 0;
    (void)state;
    live_do(&primary, "CREATE TABLE t1 (a int PRIMARY KEY, b text); "
                      "INSERT INTO t1 SELECT g, repeat('x', 500) FROM generate_series(1, 20000) g; "
                      "ALTER TABLE t1 ADD COLUMN c numeric(10, 2) DEFAULT 12.5");
    lsn = flush_lsn();
    assert_ok(shadow_walsender_wait_applied(ws, lsn, in_ms(60000), &err));
    assert_true(shadow_walsender_applied(ws) >= lsn);
    assert_true(shadow_walsender_flushed(ws) >= lsn);
    assert_true(shadow_walsender_sent(ws) >= lsn);
    assert_int_equal(shadow_walsender_connections(ws), 1);
    assert_ok(shadow_reader_replay_lsn(reader, &replayed, &err));
    assert_true(replayed >= lsn);
    compare_catalogs();
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* From a commit's return at the primary to the end of the wait: by event, so far below any
 * interval. */
static void test_wait_is_prompt(void **state)
{
    NEED_SERVER();
    enum { N = 60 };
    uint64_t ns[N];
    struct error err = {0};
    struct source_sql *writer = NULL;
    (void)state;
    assert_ok(source_sql_open(primary.conninfo, "writer", &writer, &err));
    assert_ok(
        source_sql_exec(writer, "SET default_transaction_read_only = off", 0, NULL, NULL, &err));
    for (int i = 0; i < N; i++) {
        assert_ok(
            source_sql_exec(writer, "COMMENT ON TABLE public.t1 IS 'x'", 0, NULL, NULL, &err));
        XLogRecPtr lsn = flush_lsn();
        uint64_t before = clock_now_ns();
        assert_ok(shadow_walsender_wait_applied(ws, lsn, in_ms(20000), &err));
        ns[i] = clock_now_ns() - before;
    }
    source_sql_close(writer);
    qsort(ns, N, sizeof ns[0], by_value);
    print_message("wait_applied: p50 %.2f ms, p95 %.2f ms, max %.2f ms\n", (double)ns[N / 2] / 1e6,
                  (double)ns[N * 95 / 100] / 1e6, (double)ns[N - 1] / 1e6);
    assert_true(ns[N / 2] < 80000000u); /* wal_retrieve_retry_interval is 100 ms */
}

static void *wake_later(void *arg)
{
    (void)arg;
    usleep(200000);
    shadow_walsender_wake(ws);
    return NULL;
}

static void test_limit(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    XLogRecPtr boundary, replayed = 0;
    struct rel_desc **descs = NULL;
    size_t n = 0;
    (void)state;
    live_do(&primary, "CREATE TABLE t2 (a int)");
    boundary = flush_lsn();
    assert_ok(shadow_walsender_wait_applied(ws, boundary, in_ms(20000), &err));
    wal_archive_set_limit(archive, boundary);
    live_do(&primary, "CREATE TABLE t3 (a int)");
    XLogRecPtr after = flush_lsn();
    assert_int_equal(shadow_walsender_wait_applied(ws, after, in_ms(500), &err), ERR_RETRY);
    assert_non_null(strstr(err.message, "has replayed through"));
    assert_ok(shadow_reader_replay_lsn(reader, &replayed, &err));
    assert_int_equal(replayed, boundary);
    shadow_reader_expect(reader, boundary, boundary);
    assert_ok(shadow_reader_read(reader, NULL, 0, &descs, &n, &err));
    assert_string_equal(descs[n - 1]->name, "t2");
    catalog_query_free(descs, n);
    shadow_reader_expect(reader, after, 0);
    assert_int_equal(shadow_reader_read(reader, NULL, 0, &descs, &n, &err), ERR_RETRY);
    wal_archive_set_limit(archive, UINT64_MAX);
    assert_ok(shadow_walsender_wait_applied(ws, after, in_ms(20000), &err));
    shadow_reader_expect(reader, boundary, boundary);
    assert_int_equal(shadow_reader_read(reader, NULL, 0, &descs, &n, &err), ERR_BUG);
    assert_non_null(strstr(err.message, "past the catalog boundary"));
    shadow_reader_expect(reader, 0, 0);
}

/* Rows first: nothing is sent for that time, but at once when someone waits, and afterwards. */
static void test_rows_first(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    (void)state;
    uint64_t until = in_ms(60000);
    shadow_walsender_rows_first(ws, until);
    live_do(&primary, "COMMENT ON TABLE t2 IS 'kept back'");
    XLogRecPtr lsn = flush_lsn();
    usleep(300000);
    assert_true(shadow_walsender_sent(ws) < lsn);
    assert_ok(shadow_walsender_wait_applied(ws, lsn, in_ms(20000), &err));
    assert_true(clock_now_ns() < until);
    live_do(&primary, "COMMENT ON TABLE t2 IS 'kept back again'");
    lsn = flush_lsn();
    usleep(300000);
    assert_true(shadow_walsender_sent(ws) < lsn);
    shadow_walsender_rows_first(ws, in_ms(10));
    for (uint64_t limit = in_ms(20000); shadow_walsender_sent(ws) < lsn;) {
        assert_true(clock_now_ns() < limit);
        usleep(10000);
    }
}

static void test_reconnects(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    pthread_t thread;
    (void)state;
    /* a wait that runs is woken, then the walsender goes and comes back */
    assert_int_equal(pthread_create(&thread, NULL, wake_later, NULL), 0);
    assert_int_equal(shadow_walsender_wait_applied(ws, UINT64_MAX, UINT64_MAX, &err),
                     ERR_CANCELLED);
    pthread_join(thread, NULL);
    uint64_t before = clock_now_ns();
    shadow_walsender_stop(ws);
    assert_true(clock_now_ns() - before < 2000000000u);
    live_do(&primary, "CREATE TABLE t4 (a int)");
    start_walsender();
    assert_ok(shadow_walsender_wait_applied(ws, flush_lsn(), in_ms(20000), &err));
    compare_catalogs();
}

static void test_killed_and_started_again(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    (void)state;
    pid_t pid = shadow_cluster_pid(cluster);
    assert_true(pid > 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    while (shadow_cluster_restarts(cluster) == 0)
        usleep(10000);
    assert_ok(shadow_cluster_wait_ready(cluster, in_ms(60000), &err));
    live_do(&primary, "CREATE TABLE t5 (a int)");
    assert_ok(shadow_walsender_wait_applied(ws, flush_lsn(), in_ms(60000), &err));
    struct rel_desc **descs = NULL;
    size_t n = 0;
    /* the reader's old session is gone: one clear error, then it works again */
    if (shadow_reader_read(reader, NULL, 0, &descs, &n, &err) == OK)
        catalog_query_free(descs, n);
    compare_catalogs();
}

/* The source raises a limit beyond ours: a restart with fresh settings lets replay go on. */
static void test_restart_takes_new_limits(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    char text[600];
    (void)state;
    pid_t before = shadow_cluster_pid(cluster);
    shadow_cluster_restart(cluster);
    while (shadow_cluster_pid(cluster) == before || shadow_cluster_pid(cluster) == 0)
        usleep(10000);
    assert_ok(shadow_cluster_wait_ready(cluster, in_ms(60000), &err));
    live_shell(text, sizeof text,
               "psql -X -A -t -h %s -p %d -U 'post\"gres' -c 'SHOW max_connections' postgres 2>&1",
               shadow_cluster_socket_dir(cluster), SHADOW_POSTGRES_PORT);
    /* the role's preload library does not exist: without our startup options nobody gets in */
    assert_non_null(strstr(text, "not_there"));
    compare_catalogs();
}

static int dial(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s/.s.PGSQL.%d", shadow_cluster_socket_dir(cluster),
             SHADOW_WALSENDER_PORT);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static size_t talk(const void *bytes, size_t n, char *answer, size_t cap)
{
    int fd = dial();
    size_t got = 0;
    ssize_t r;
    ssize_t ignored = send(fd, bytes, n, MSG_NOSIGNAL);
    (void)ignored;
    shutdown(fd, SHUT_WR);
    while (got < cap && (r = read(fd, answer + got, cap - got)) > 0)
        got += (size_t)r;
    close(fd);
    return got;
}

static void test_garbage(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    char answer[4096], noise[3000];
    static const char no_replication[] = "\0\0\0\x12\0\3\0\0user\0x\0\0\0";
    static const char huge[] = "\x7f\xff\xff\xff\0\3\0\0";
    static const char ssl[] = "\0\0\0\x08\x04\xd2\x16\x2f";
    static const char good[] = "\0\0\0\x1f\0\3\0\0replication\0true\0u\0v\0\0"; /* 31 bytes */
    char query[200];
    (void)state;
    srand(7);
    for (int round = 0; round < 60; round++) {
        for (size_t i = 0; i < sizeof noise; i++)
            noise[i] = (char)rand();
        talk(noise, (size_t)(rand() % (int)sizeof noise), answer, sizeof answer);
        /* behind a good login */
        memcpy(noise, good, 31);
        noise[31] = round % 2 ? 'Q' : (char)rand();
        noise[32] = noise[33] = 0;
        noise[34] = (char)(rand() % 8);
        talk(noise, sizeof noise, answer, sizeof answer);
    }
    assert_int_equal(talk(huge, 8, answer, sizeof answer), 0);
    assert_int_equal(talk(ssl, 8, answer, sizeof answer), 1);
    assert_int_equal(answer[0], 'N');
    assert_true(talk(no_replication, 18, answer, sizeof answer) > 0);
    assert_int_equal(answer[0], 'E');
    /* garbage inside the stream */
    memcpy(query, good, 31);
    int n =
        snprintf(query + 36, sizeof query - 36, "START_REPLICATION 0/%X", (unsigned)flush_lsn());
    query[31] = 'Q';
    query[32] = query[33] = query[34] = 0;
    query[35] = (char)(n + 5);
    query[36 + n] = '\0';
    memcpy(query + 37 + n, "d\0\0\0\x07rrr", 8);
    assert_true(talk(query, 37 + (size_t)n + 8, answer, sizeof answer) > 100);
    /* the standby does not care */
    live_do(&primary, "CREATE TABLE t6 (a int)");
    assert_ok(shadow_walsender_wait_applied(ws, flush_lsn(), in_ms(20000), &err));
    assert_int_equal(shadow_walsender_connections(ws), 1);
}

/* PostgreSQL's own client: what it writes is the primary's segment, byte for byte. */
static void test_pg_receivewal(void **state)
{
    NEED_SERVER();
    char out[400];
    (void)state;
    if (identity.major != 15)
        skip(); /* the other versions' packages do not have it */
    int rc = live_shell(
        out, sizeof out,
        "cd %s && mkdir recv && { timeout 5 pg_receivewal -h %s -p %d -D recv -n >recv.log 2>&1 & "
        "} && "
        "sleep 1; psql -X -q -d '%s' -c 'CREATE TABLE t7 AS SELECT generate_series(1, 40000) g' "
        "-c 'SELECT pg_switch_wal()' >/dev/null; wait; "
        "n=0; for f in recv/*; do case $f in *.partial) continue;; esac; "
        "cmp $f data/pg_wal/$(basename $f) && n=$((n+1)); done; test $n -ge 2 && echo same; "
        "ls recv; cat recv.log",
        primary.dir, shadow_cluster_socket_dir(cluster), SHADOW_WALSENDER_PORT, primary.conninfo);
    assert_int_equal(rc, 0);
    if (strstr(out, "same") == NULL)
        fail_msg("%s", out);
}

static void test_orphan(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    bool stopped = true;
    char text[32];
    (void)state;
    shadow_cluster_stop(cluster, 10000);
    cluster = NULL;
    assert_ok(shadow_cluster_stop_orphan(data_dir, &stopped, &err));
    assert_false(stopped);
    /* a stale pid file that names somebody else: not touched */
    CLEANUP_FREE char *pid_file = xasprintf("%s/postmaster.pid", data_dir);
    snprintf(text, sizeof text, "%d\n", (int)getpid());
    assert_ok(file_write_atomic(pid_file, text, strlen(text), 0600, &err));
    assert_ok(shadow_cluster_stop_orphan(data_dir, &stopped, &err));
    assert_false(stopped);
    unlink(pid_file);
    assert_int_equal(live_shell(NULL, 0, "%s/pg_ctl -D %s -w -l %s/orphan.log start >/dev/null",
                                live_bin_dir(), data_dir, primary.dir),
                     0);
    start_cluster();
    assert_ok(shadow_cluster_wait_ready(cluster, in_ms(60000), &err));
    assert_ok(shadow_walsender_wait_applied(ws, flush_lsn(), in_ms(20000), &err));
}

static void test_cannot_start(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    struct shadow_cluster *c = NULL;
    struct shadow_cluster_options options = cluster_options();
    (void)state;
    shadow_cluster_stop(cluster, 10000);
    cluster = NULL;
    options.major = identity.major == 15 ? 16 : 15;
    assert_int_equal(shadow_cluster_start(&options, &c, &err), ERR_CONFIG);
    options = cluster_options();
    options.bin_dir = "/nonexistent";
    assert_ok(shadow_cluster_start(&options, &c, &err));
    assert_int_equal(shadow_cluster_wait_ready(c, in_ms(20000), &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "/nonexistent"));
    shadow_cluster_stop(c, 1000);
    /* postgres itself refuses: its words are in the error */
    CLEANUP_FREE char *wal_dir = xasprintf("%s/pg_wal", data_dir);
    CLEANUP_FREE char *aside = xasprintf("%s.aside", wal_dir);
    assert_int_equal(rename(wal_dir, aside), 0);
    options = cluster_options();
    assert_ok(shadow_cluster_start(&options, &c, &err));
    assert_int_equal(shadow_cluster_wait_ready(c, in_ms(60000), &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "pg_wal"));
    shadow_cluster_stop(c, 1000);
    assert_int_equal(rename(aside, wal_dir), 0);
    start_cluster();
    assert_ok(shadow_cluster_wait_ready(cluster, in_ms(60000), &err));
}

int main(int argc, char **argv)
{
    /* postgres does not run as root, and the walsender lets in its own user only */
    if (geteuid() == 0) {
        execlp("runuser", "runuser", "-u", "postgres", "--", argv[0], (char *)NULL);
        return 77;
    }
    (void)argc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_becomes_ready),
        cmocka_unit_test(test_replays),
        cmocka_unit_test(test_wait_is_prompt),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_rows_first),
        cmocka_unit_test(test_reconnects),
        cmocka_unit_test(test_killed_and_started_again),
        cmocka_unit_test(test_restart_takes_new_limits),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_pg_receivewal),
        cmocka_unit_test(test_orphan),
        cmocka_unit_test(test_cannot_start),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
