/* The source connections against a real server. */
#include "source/live_server.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/queue.h"
#include "source/base_backup.h"
#include "source/conn.h"
#include "source/pg_error.h"
#include "source/replication.h"
#include "source/sql.h"

#include <pthread.h>
#include <time.h>

static struct live_server server;
static bool have_server;

#define NEED_SERVER()                                                                              \
    do {                                                                                           \
        if (!have_server)                                                                          \
            skip();                                                                                \
    } while (0)

static uint64_t in_ms(unsigned ms)
{
    return clock_now_ns() + (uint64_t)ms * 1000000u;
}

static struct source_repl *open_repl(void)
{
    struct source_repl *r = NULL;
    struct error err = {0};
    assert_ok(source_repl_open(server.conninfo, "walshadow_test", &r, &err));
    return r;
}

static struct source_sql *open_sql(void)
{
    struct source_sql *s = NULL;
    struct error err = {0};
    assert_ok(source_sql_open(server.conninfo, "walshadow_test", &s, &err));
    return s;
}

static void test_identify(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    struct source_identity id;
    struct source_repl *r = open_repl();
    char text[64];
    uint64_t bytes = 0;
    (void)state;
    assert_ok(source_repl_identify(r, &id, &err));
    live_sql(&server, text, sizeof text, "SELECT system_identifier FROM pg_control_system()");
    assert_int_equal(id.system_id, strtoull(text, NULL, 10));
    assert_int_equal(id.timeline, 1);
    live_sql(&server, text, sizeof text, "SHOW server_version_num");
    assert_int_equal(id.server_version, atoi(text));
    assert_int_equal(id.major, atoi(text) / 10000);
    assert_ok(source_repl_segment_bytes(r, &bytes, &err));
    assert_int_equal(bytes, 1 << 20);
    int64_t timeout_ms = -1;
    assert_ok(source_repl_sender_timeout(r, &timeout_ms, &err));
    live_sql(&server, text, sizeof text,
             "SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout'"); /* in ms */
    assert_int_equal(timeout_ms, atoll(text));
    source_repl_close(r);
}

static void test_slot(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    struct source_slot_info info;
    struct source_repl *r = open_repl();
    struct source_sql *s = open_sql();
    char text[64];
    (void)state;
    assert_ok(source_sql_slot_info(s, "ws_slot", &info, &err));
    assert_false(info.exists);
    assert_ok(source_repl_slot_create(r, "ws_slot", &err));
    assert_int_equal(source_repl_slot_create(r, "ws_slot", &err), ERR_CONFIG);
    assert_string_equal(err.sqlstate, "42710");
    assert_int_equal(source_repl_slot_create(r, "Bad\"name", &err), ERR_CONFIG);
    assert_ok(source_sql_slot_info(s, "ws_slot", &info, &err));
    assert_true(info.exists && info.physical && !info.temporary);
    assert_int_equal(info.active_pid, 0);
    assert_string_equal(info.wal_status, "reserved");
    live_sql(&server, text, sizeof text,
             "SELECT restart_lsn FROM pg_replication_slots WHERE slot_name = 'ws_slot'");
    XLogRecPtr want;
    assert_true(lsn_parse(text, &want));
    assert_int_equal(info.restart_lsn, want);
    assert_ok(source_repl_slot_drop(r, "ws_slot", &err));
    assert_int_equal(source_repl_slot_drop(r, "ws_slot", &err), ERR_CONFIG);
    source_sql_close(s);
    source_repl_close(r);
}

/* What arrives must be the bytes of the server's own segment files. */
static void compare_with_segment(XLogRecPtr start, const struct buf *got)
{
    char path[200], name[64], sql[100];
    struct error err = {0};
    CLEANUP_BUF struct buf file = {0};
    snprintf(sql, sizeof sql, "SELECT pg_walfile_name('" LSN_FMT "'::pg_lsn + 1)", LSN_ARGS(start));
    live_sql(&server, name, sizeof name, sql);
    snprintf(path, sizeof path, "%s/data/pg_wal/%s", server.dir, name);
    assert_ok(file_read_all(path, 2u << 20, &file, &err));
    size_t at = start % (1u << 20), n = MIN(got->len, (1u << 20) - at);
    assert_memory_equal(file.data + at, got->data, n);
}

static void test_stream(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    struct source_identity id;
    struct source_chunk chunk;
    CLEANUP_BUF struct buf got = {0};
    (void)state;
    struct source_repl *r = open_repl();
    struct source_sql *s = open_sql();
    assert_ok(source_repl_slot_create(r, "ws_stream", &err));
    assert_ok(source_repl_identify(r, &id, &err));
    XLogRecPtr start = lsn_segment_start(id.xlogpos, 1u << 20), end = 0;
    assert_ok(source_repl_start(r, "ws_stream", start, 1, &err));
    live_do(
        &server,
        "CREATE TABLE stream_t AS SELECT g, repeat('x', 200) t FROM generate_series(1, 3000) g");
    assert_ok(source_sql_flush_lsn(s, &end, &err));
    XLogRecPtr next = start;
    while (next < end) {
        assert_ok(source_repl_receive(r, in_ms(10000), &chunk, &err));
        assert_int_not_equal(chunk.kind, SOURCE_CHUNK_NONE);
        if (chunk.kind != SOURCE_CHUNK_DATA)
            continue;
        assert_int_equal(chunk.lsn, next);
        buf_put(&got, chunk.data, chunk.len);
        next += chunk.len;
    }
    compare_with_segment(start, &got);
    /* an idle stream: the deadline, and an answer to a request */
    uint64_t before = clock_now_ns();
    do
        assert_ok(source_repl_receive(r, in_ms(200), &chunk, &err));
    while (chunk.kind != SOURCE_CHUNK_NONE);
    assert_true(clock_now_ns() - before >= 199000000u);
    assert_ok(source_repl_status(r, next, end, end, true, &err));
    assert_ok(source_repl_receive(r, in_ms(5000), &chunk, &err));
    assert_int_equal(chunk.kind, SOURCE_CHUNK_KEEPALIVE);
    /* the slot follows flush, and flush never goes back */
    struct source_slot_info info;
    assert_ok(source_sql_slot_info(s, "ws_stream", &info, &err));
    assert_int_equal(info.restart_lsn, end);
    assert_int_equal(info.active_pid, source_repl_backend_pid(r));
    char text[64];
    live_sql(&server, text, sizeof text,
             "SELECT application_name FROM pg_stat_replication WHERE reply_time IS NOT NULL");
    assert_string_equal(info.holder, text);
    assert_true(info.holder_reply_us > 0);
    assert_int_equal(source_repl_status(r, next, start, start, false, &err), ERR_BUG);
    /* a second one is told who holds the slot */
    struct source_repl *other = open_repl();
    assert_int_equal(source_repl_start(other, "ws_stream", start, 1, &err), ERR_RETRY);
    assert_string_equal(err.sqlstate, "55006");
    char pid[16];
    snprintf(pid, sizeof pid, "%d", info.active_pid);
    assert_non_null(strstr(err.message, pid));
    source_repl_close(other);
    int priority = -2;
    assert_ok(source_sql_sync_priority(s, source_repl_backend_pid(r), &priority, &err));
    assert_int_equal(priority, 0);
    source_repl_close(r);
    source_sql_close(s);
}

static void test_start_errors(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    struct source_repl *r = open_repl();
    (void)state;
    assert_int_equal(source_repl_start(r, "no_such_slot", 0x1000000, 1, &err), ERR_CONFIG);
    assert_string_equal(err.sqlstate, "42704");
    /* WAL of the distant past: removed, and the text says what to do */
    live_do(
        &server,
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active");
    for (int i = 0; i < 4; i++)
        live_do(&server,
                "CHECKPOINT; SELECT pg_switch_wal(); "
                "CREATE TABLE IF NOT EXISTS z (a int); INSERT INTO z VALUES (1); CHECKPOINT");
    /* the server begins the stream and then finds that it cannot go on */
    struct source_chunk chunk;
    enum status st = source_repl_start(r, NULL, 0x100000, 1, &err);
    while (st == OK)
        st = source_repl_receive(r, in_ms(10000), &chunk, &err);
    if (st != ERR_CONFIG)
        fail_msg("status %d: %s", (int)st, err.message);
    assert_string_equal(err.sqlstate, "58P01");
    assert_non_null(strstr(err.message, "load again"));
    source_repl_close(r);
}

static void *wake_later(void *r)
{
    usleep(200000);
    source_repl_wake(r);
    return NULL;
}

static void test_wake(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    struct source_identity id;
    struct source_chunk chunk = {0};
    pthread_t thread;
    enum status st;
    struct source_repl *r = open_repl();
    (void)state;
    assert_ok(source_repl_identify(r, &id, &err));
    assert_ok(source_repl_start(r, NULL, id.xlogpos, 1, &err));
    assert_int_equal(pthread_create(&thread, NULL, wake_later, r), 0);
    uint64_t before = clock_now_ns();
    do
        st = source_repl_receive(r, UINT64_MAX, &chunk, &err);
    while (st == OK);
    assert_int_equal(st, ERR_CANCELLED);
    assert_true(clock_now_ns() - before < 2000000000u);
    pthread_join(thread, NULL);
    assert_int_equal(source_repl_receive(r, 0, &chunk, &err), ERR_CANCELLED);
    source_repl_close(r);
}

/* More has come than is read ahead: replies still go out, and a wake or the end waits for nobody.
 */
static void test_reads_ahead(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    struct source_identity id;
    struct source_chunk chunk = {0};
    XLogRecPtr end;
    (void)state;
    struct source_sql *s = open_sql();
    for (int woken = 0; woken < 2; woken++) {
        struct source_repl *r = open_repl();
        assert_ok(source_repl_slot_create(r, woken ? "ws_ahead_1" : "ws_ahead_0", &err));
        assert_ok(source_repl_identify(r, &id, &err));
        live_do(&server, "CREATE TABLE ahead_t AS SELECT g, repeat('x', 1000) t FROM "
                         "generate_series(1, 12000) g; DROP TABLE ahead_t");
        assert_ok(source_repl_start(r, woken ? "ws_ahead_1" : "ws_ahead_0", id.xlogpos, 1, &err));
        do
            assert_ok(source_repl_receive(r, in_ms(10000), &chunk, &err));
        while (chunk.kind != SOURCE_CHUNK_DATA);
        usleep(300000);
        end = chunk.lsn + chunk.len;
        assert_ok(source_repl_status(r, end, 0, 0, false, &err));
        char text[64], sql[120];
        snprintf(sql, sizeof sql,
                 "SELECT pg_sleep(0.2), write_lsn FROM pg_stat_replication WHERE pid = %d",
                 source_repl_backend_pid(r));
        live_sql(&server, text, sizeof text, sql);
        char expected[LSN_TEXT_MAX];
        snprintf(expected, sizeof expected, LSN_FMT, LSN_ARGS(end));
        assert_non_null(strstr(text, expected));
        if (woken) {
            source_repl_wake(r);
            assert_int_equal(source_repl_receive(r, UINT64_MAX, &chunk, &err), ERR_CANCELLED);
        } else {
            assert_ok(source_repl_receive(r, 0, &chunk, &err)); /* it is there already */
            assert_int_equal(chunk.kind, SOURCE_CHUNK_DATA);
            assert_int_equal(chunk.lsn, end);
        }
        source_repl_close(r);
    }
    source_sql_close(s);
}

/* A standby that stays connected must not hold up a fast shutdown; its stream ends. */
static void test_server_stops(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    struct source_identity id;
    struct source_chunk chunk = {0};
    struct source_repl *r = open_repl();
    (void)state;
    assert_ok(source_repl_identify(r, &id, &err));
    assert_ok(source_repl_start(r, NULL, id.xlogpos, 1, &err));
    assert_ok(source_repl_status(r, id.xlogpos, id.xlogpos, id.xlogpos, false, &err));
    assert_int_equal(live_shell(NULL, 0, "kill -INT $(head -1 %s/data/postmaster.pid)", server.dir),
                     0);
    enum status st = OK;
    XLogRecPtr next = id.xlogpos;
    while (st == OK && chunk.kind != SOURCE_CHUNK_ENDED) {
        st = source_repl_receive(r, in_ms(10000), &chunk, &err);
        assert_int_not_equal(chunk.kind, SOURCE_CHUNK_NONE);
        if (st == OK && chunk.kind == SOURCE_CHUNK_DATA)
            next = chunk.lsn + chunk.len;
        if (st == OK && chunk.kind != SOURCE_CHUNK_ENDED)
            assert_ok(source_repl_status(r, next, next, next, false, &err));
    }
    if (st == OK)
        st = source_repl_receive(r, in_ms(1000), &chunk, &err);
    if (st != ERR_RETRY)
        fail_msg("status %d: %s", (int)st, err.message);
    source_repl_close(r);
    struct source_sql *s = NULL;
    assert_int_equal(source_sql_open(server.conninfo, "x", &s, &err), ERR_RETRY);
    assert_int_equal(live_shell(NULL, 0,
                                "%s/pg_ctl -D %s/data -w -t 20 stop >/dev/null 2>&1; "
                                "%s/pg_ctl -D %s/data -w -l %s/log start >/dev/null",
                                live_bin_dir(), server.dir, live_bin_dir(), server.dir, server.dir),
                     0);
}

static void test_no_password_in_errors(void **state)
{
    struct error err = {0};
    struct source_sql *s = NULL;
    static const char *const bad[] = {
        "postgresql://u:s3cr%zzt@host/db",
        "host=x password='s3cr3t",
        "hostx s3cr3t",
        "postgresql://u:s3cr3t@host:notaport/db",
        "host=/nonexistent user=u password=s3cr3t",
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(bad); i++) {
        memset(&err, 0, sizeof err);
        enum status st = source_sql_open(bad[i], "x", &s, &err);
        assert_int_not_equal(st, OK);
        assert_null(strstr(err.message, "s3cr"));
        assert_int_not_equal(err.message[0], '\0');
    }
}

static void test_wrong_password(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    struct source_sql *s = NULL;
    char conninfo[200];
    (void)state;
    live_do(&server,
            "SET password_encryption='scram-sha-256'; CREATE ROLE locked LOGIN PASSWORD 'right'");
    live_shell(NULL, 0,
               "sed -i '1i local all locked scram-sha-256' %s/data/pg_hba.conf; "
               "%s/pg_ctl -D %s/data reload >/dev/null",
               server.dir, live_bin_dir(), server.dir);
    snprintf(conninfo, sizeof conninfo,
             "host=%s port=" LIVE_PORT " dbname=postgres user=locked password=wr0ng", server.dir);
    enum status st = source_sql_open(conninfo, "x", &s, &err);
    assert_int_equal(st, ERR_CONFIG);
    assert_string_equal(err.sqlstate, "28P01");
    assert_null(strstr(err.message, "wr0ng"));
    assert_null(strstr(err.message, "LOCATION"));
    /* a role without REPLICATION; a database that does not exist */
    snprintf(conninfo, sizeof conninfo,
             "host=%s port=" LIVE_PORT " dbname=postgres user=locked password=right", server.dir);
    struct source_repl *r = NULL;
    assert_int_equal(source_repl_open(conninfo, "x", &r, &err), ERR_CONFIG);
    snprintf(conninfo, sizeof conninfo, "host=%s port=" LIVE_PORT " dbname=nowhere user=postgres",
             server.dir);
    assert_int_equal(source_sql_open(conninfo, "x", &s, &err), ERR_CONFIG);
    assert_string_equal(err.sqlstate, "3D000");
}

static void test_session_is_pinned(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    struct sql_result *res = NULL;
    (void)state;
    live_do(
        &server,
        "CREATE ROLE odd SUPERUSER LOGIN; ALTER ROLE odd SET search_path = 'evil'; "
        "ALTER ROLE odd SET datestyle = 'German'; ALTER ROLE odd SET statement_timeout = 1; "
        "ALTER ROLE odd SET extra_float_digits = -5; ALTER ROLE odd SET timezone = 'Asia/Tokyo'; "
        "ALTER ROLE odd SET bytea_output = 'escape'; ALTER ROLE odd SET role = 'pg_monitor'");
    char conninfo[200];
    snprintf(conninfo, sizeof conninfo, "host=%s port=" LIVE_PORT " dbname=postgres user=odd",
             server.dir);
    struct source_sql *s = NULL;
    assert_ok(source_sql_open(conninfo, "x", &s, &err));
    assert_ok(source_sql_exec(s,
                              "SELECT '2020-02-03 00:00:00+00'::timestamptz, 0.1::float8 + 0.2, "
                              "'\\x01'::bytea, current_user, current_setting('search_path'), "
                              "current_setting('statement_timeout')",
                              0, NULL, &res, &err));
    assert_string_equal(sql_result_get(res, 0, 0), "2020-02-03 00:00:00+00");
    assert_string_equal(sql_result_get(res, 0, 1), "0.30000000000000004");
    assert_string_equal(sql_result_get(res, 0, 2), "\\x01");
    assert_string_equal(sql_result_get(res, 0, 3), "odd");
    assert_string_equal(sql_result_get(res, 0, 4), "\"\"");
    assert_string_equal(sql_result_get(res, 0, 5), "0");
    sql_result_free(res);
    assert_int_not_equal(source_sql_exec(s, "CREATE TABLE public.no (a int)", 0, NULL, NULL, &err),
                         OK);
    assert_string_equal(err.sqlstate, "25006");
    source_sql_close(s);
}

static void test_xact_status(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    struct source_sql *a = open_sql(), *b = open_sql();
    struct sql_result *res = NULL;
    TransactionId xids[6];
    enum source_xact_status fate[6];
    (void)state;
    assert_ok(source_sql_exec(b, "SET default_transaction_read_only = off", 0, NULL, NULL, &err));
    const char *const run[] = {"BEGIN", "SELECT pg_current_xact_id()::xid", "COMMIT",
                               "BEGIN", "SELECT pg_current_xact_id()::xid", "ROLLBACK",
                               "BEGIN", "SELECT pg_current_xact_id()::xid"};
    size_t n = 0;
    for (size_t i = 0; i < LENGTH(run); i++) {
        assert_ok(source_sql_exec(b, run[i], 0, NULL, &res, &err));
        if (sql_result_rows(res) == 1)
            xids[n++] = (TransactionId)strtoul(sql_result_get(res, 0, 0), NULL, 10);
        sql_result_free(res);
    }
    assert_int_equal(n, 3);
    xids[3] = FrozenTransactionId;
    xids[4] = InvalidTransactionId;
    xids[5] = 3; /* long before: known or not, but no error */
    assert_ok(source_sql_xact_status(a, xids, 6, fate, &err));
    assert_int_equal(fate[0], SOURCE_XACT_COMMITTED);
    assert_int_equal(fate[1], SOURCE_XACT_ABORTED);
    assert_int_equal(fate[2], SOURCE_XACT_IN_PROGRESS);
    assert_int_equal(fate[3], SOURCE_XACT_COMMITTED);
    assert_int_equal(fate[4], SOURCE_XACT_UNKNOWN);
    source_sql_close(a);
    source_sql_close(b);
}

static void test_catalog_locks(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    struct source_sql *a = open_sql(), *b = open_sql();
    unsigned n = 99;
    char *text = NULL;
    (void)state;
    assert_ok(source_sql_catalog_locks(a, &n, &text, &err));
    assert_int_equal(n, 0);
    assert_null(text);
    assert_ok(source_sql_exec(b, "BEGIN READ WRITE", 0, NULL, NULL, &err));
    assert_ok(source_sql_exec(b, "LOCK TABLE pg_catalog.pg_rewrite IN ACCESS EXCLUSIVE MODE", 0,
                              NULL, NULL, &err));
    assert_ok(source_sql_catalog_locks(a, &n, &text, &err));
    assert_int_equal(n, 1);
    assert_non_null(strstr(text, "pg_rewrite"));
    free(text);
    source_sql_close(b);
    source_sql_close(a);
}

static void test_login_role(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    struct source_login login;
    struct source_sql *s = open_sql();
    (void)state;
    assert_ok(source_sql_login_role(s, &login, &err));
    assert_string_equal(login.name, "postgres");
    assert_true(login.superuser);
    source_sql_close(s);
}

static void *interrupt_later(void *s)
{
    usleep(200000);
    source_sql_interrupt(s);
    return NULL;
}

static void test_sql_interrupt(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    struct source_sql *s = open_sql();
    pthread_t thread;
    char count[16];
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, interrupt_later, s), 0);
    uint64_t before = clock_now_ns();
    assert_int_equal(source_sql_exec(s, "SELECT pg_sleep(30)", 0, NULL, NULL, &err), ERR_CANCELLED);
    assert_true(clock_now_ns() - before < 3000000000u);
    pthread_join(thread, NULL);
    usleep(300000);
    live_sql(&server, count, sizeof count,
             "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE "
             "'%pg_sleep(30)%' "
             "AND pid <> pg_backend_pid()");
    assert_string_equal(count, "0");
    source_sql_close(s);
}

struct backup_seen {
    FILE *tar;
    char dir[100];
    XLogRecPtr start, end;
    uint64_t bytes, done, total;
    size_t ntablespaces;
    int archives;
    int fail_after; /* data calls; -1 = never */
};

static enum status on_begin(void *ctx, XLogRecPtr start_lsn, uint32_t timeline,
                            const struct source_tablespace *t, size_t n, struct error *err)
{
    struct backup_seen *b = ctx;
    (void)err;
    b->start = start_lsn;
    b->ntablespaces = n;
    assert_int_equal(timeline, 1);
    assert_int_equal(t[n - 1].oid, 0);
    return OK;
}

static enum status on_archive(void *ctx, const char *name, Oid oid, struct error *err)
{
    struct backup_seen *b = ctx;
    char path[200];
    (void)err;
    assert_int_equal(oid == 0, strcmp(name, "base.tar") == 0);
    if (b->tar != NULL)
        fclose(b->tar);
    snprintf(path, sizeof path, "%s/%s", b->dir, name);
    b->tar = fopen(path, "we");
    assert_non_null(b->tar);
    b->archives++;
    return OK;
}

static enum status on_data(void *ctx, void *memory, const uint8_t *bytes, size_t len,
                           struct error *err)
{
    struct backup_seen *b = ctx;
    bool fails = b->fail_after == 0;
    if (!fails) {
        b->fail_after -= b->fail_after > 0;
        b->bytes += len;
        assert_int_equal(fwrite(bytes, 1, len, b->tar), len);
    }
    source_backup_memory_free(memory);
    return fails ? error_set(err, ERR_BUG, "enough") : OK;
}

static enum status on_progress(void *ctx, uint64_t done, uint64_t total, struct error *err)
{
    struct backup_seen *b = ctx;
    (void)err;
    assert_true(done >= b->done);
    b->done = done;
    b->total = total;
    return OK;
}

static enum status on_end(void *ctx, XLogRecPtr end_lsn, struct error *err)
{
    (void)err;
    ((struct backup_seen *)ctx)->end = end_lsn;
    return OK;
}

static enum status run_backup(struct source_repl *r, struct backup_seen *b, struct error *err)
{
    const struct source_backup_callbacks cb = {b,       on_begin,    on_archive,
                                               on_data, on_progress, on_end};
    enum status st = source_base_backup_run(r, "walshadow", &cb, err);
    if (b->tar != NULL)
        fclose(b->tar);
    b->tar = NULL;
    return st;
}

/* pg_basebackup's own tars are the oracle for the names. */
static void test_base_backup(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    struct backup_seen b = {.fail_after = -1};
    struct source_repl *r = open_repl();
    char out[4096];
    (void)state;
    live_do(&server, "CHECKPOINT");
    assert_int_equal(live_shell(NULL, 0, "mkdir %s/ts", server.dir), 0);
    snprintf(out, sizeof out, "CREATE TABLESPACE ts LOCATION '%s/ts'", server.dir);
    live_do(&server, out);
    live_do(&server, "CREATE TABLE in_ts (a int) TABLESPACE ts");
    live_do(&server, "INSERT INTO in_ts SELECT generate_series(1, 1000)");
    snprintf(b.dir, sizeof b.dir, "%s", server.dir);
    assert_ok(run_backup(r, &b, &err));
    assert_int_equal(b.archives, 2);
    assert_int_equal(b.ntablespaces, 2);
    assert_true(b.start != 0 && b.end > b.start);
    assert_true(b.bytes > 10u << 20 && b.done > 0 && b.total > 10u << 20);
    source_repl_close(r);
    int rc =
        live_shell(out, sizeof out,
                   "cd %s && mkdir ref && pg_basebackup -d '%s' -Ft -X none -c fast --no-manifest "
                   "-D ref 2>/dev/null; "
                   "for t in *.tar; do "
                   "tar tf $t | grep -v -E 'pg_tblspc/[0-9]|pg_internal|pgstat' | sort >$t.a; "
                   "tar tf ref/$t | grep -v -E 'tablespace_map|pg_internal|pgstat' | sort >$t.b; "
                   "diff $t.a $t.b | head -5; done; "
                   "tar xOf base.tar backup_label | grep -c 'LABEL: walshadow'",
                   server.dir, server.conninfo);
    assert_int_equal(rc, 0);
    assert_string_equal(out, "1");
}

static void test_base_backup_fails_cleanly(void **state)
{
    NEED_SERVER();
    struct error err = {0};
    struct backup_seen b = {.fail_after = 3};
    struct source_repl *r = open_repl();
    (void)state;
    snprintf(b.dir, sizeof b.dir, "%s", server.dir);
    assert_int_equal(run_backup(r, &b, &err), ERR_BUG);
    assert_string_equal(err.message, "enough");
    source_repl_close(r);
    b.fail_after = -1;
    r = open_repl();
    source_repl_wake(r);
    assert_int_equal(run_backup(r, &b, &err), ERR_CANCELLED);
    source_repl_close(r);
}

static void test_sqlstate_kinds(void **state)
{
    (void)state;
    assert_int_equal(source_sqlstate_kind(""), ERR_RETRY);
    assert_int_equal(source_sqlstate_kind(NULL), ERR_RETRY);
    assert_int_equal(source_sqlstate_kind("08006"), ERR_RETRY);
    assert_int_equal(source_sqlstate_kind("57P01"), ERR_RETRY);
    assert_int_equal(source_sqlstate_kind("57P03"), ERR_RETRY);
    assert_int_equal(source_sqlstate_kind("55006"), ERR_RETRY);
    assert_int_equal(source_sqlstate_kind("53300"), ERR_RETRY);
    assert_int_equal(source_sqlstate_kind("53400"), ERR_CONFIG);
    assert_int_equal(source_sqlstate_kind("58P01"), ERR_CONFIG);
    assert_int_equal(source_sqlstate_kind("28P01"), ERR_CONFIG);
    assert_int_equal(source_sqlstate_kind("42704"), ERR_CONFIG);
    assert_int_equal(source_sqlstate_kind("22012"), ERR_DATA);
}

static int set_up(void **state)
{
    (void)state;
    have_server = live_server_start(&server, "max_replication_slots=4\nmax_wal_senders=4");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (have_server)
        live_server_remove(&server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sqlstate_kinds), cmocka_unit_test(test_no_password_in_errors),
        cmocka_unit_test(test_identify),       cmocka_unit_test(test_slot),
        cmocka_unit_test(test_stream),         cmocka_unit_test(test_start_errors),
        cmocka_unit_test(test_wake),           cmocka_unit_test(test_reads_ahead),
        cmocka_unit_test(test_wrong_password), cmocka_unit_test(test_session_is_pinned),
        cmocka_unit_test(test_xact_status),    cmocka_unit_test(test_catalog_locks),
        cmocka_unit_test(test_login_role),     cmocka_unit_test(test_sql_interrupt),
        cmocka_unit_test(test_base_backup),    cmocka_unit_test(test_base_backup_fails_cleanly),
        cmocka_unit_test(test_server_stops),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
