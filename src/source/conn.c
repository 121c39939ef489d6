#include "source/conn.h"

#include "base/queue.h"
#include "source/pg_error.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_OPTIONS 16

int source_wake_new(void)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(fd >= 0);
    return fd;
}

void source_wake_set(int fd)
{
    uint64_t one = 1;
    ssize_t ignored = write(fd, &one, sizeof one); /* EAGAIN: it is readable already */
    (void)ignored;
}

void source_wake_clear(int fd)
{
    uint64_t count;
    ssize_t ignored = read(fd, &count, sizeof count);
    (void)ignored;
}

unsigned source_conn_poll(const PGconn *conn, bool want_write, int wake_fd, uint64_t deadline_ns)
{
    struct pollfd fds[2] = {
        {PQsocket(conn), (short)(POLLIN | (want_write ? POLLOUT : 0)), 0},
        {wake_fd, POLLIN, 0}, /* poll skips a negative descriptor */
    };
    struct timespec left, *timeout = NULL;
    for (;;) {
        if (deadline_ns != UINT64_MAX) {
            uint64_t now = clock_now_ns();
            uint64_t ns = deadline_ns > now ? deadline_ns - now : 0;
            left.tv_sec = (time_t)(ns / 1000000000u);
            left.tv_nsec = (long)(ns % 1000000000u);
            timeout = &left;
        }
        int n = ppoll(fds, 2, timeout, NULL);
        if (n >= 0)
            break;
        CHECK(errno == EINTR || errno == ENOMEM);
    }
    unsigned ready = 0;
    if (fds[0].revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL))
        ready |= SOURCE_READY_READ;
    if (fds[0].revents & POLLOUT)
        ready |= SOURCE_READY_WRITE;
    if (fds[1].revents != 0)
        ready |= SOURCE_READY_WAKE;
    return ready;
}

/* libpq quotes pieces of a conninfo it cannot parse; they may hold the password. */
static void hide_quoted(char *text)
{
    char *out = text;
    bool inside = false;
    for (const char *p = text; *p != '\0' && *p != '\n'; p++) {
        if (*p == '"') {
            inside = !inside;
            *out++ = '"';
        } else if (!inside) {
            *out++ = *p;
        }
    }
    *out = '\0';
}

static enum status check_conninfo(const char *conninfo, struct error *err)
{
    char *text = NULL;
    PQconninfoOption *parsed = PQconninfoParse(conninfo, &text);
    enum status st = OK;
    if (parsed == NULL) {
        if (text != NULL)
            hide_quoted(text);
        st = error_set(
            err, ERR_CONFIG,
            "source.conninfo cannot be read: %s (quoted parts are left out here: they may "
            "hold the password)",
            text != NULL ? text : "out of memory");
    }
    PQfreemem(text);
    PQconninfoFree(parsed);
    return st;
}

static PGconn *start(const char *conninfo, const struct source_conn_option *options,
                     size_t noptions)
{
    /* what stands before dbname is a default, what stands behind it overrides */
    const char *keywords[MAX_OPTIONS + 8] = {"keepalives_idle", "keepalives_interval",
                                             "keepalives_count", "tcp_user_timeout", "dbname"};
    const char *values[MAX_OPTIONS + 8] = {"30", "10", "3", "60000", conninfo};
    size_t n = 5;
    CHECK(noptions <= MAX_OPTIONS);
    for (size_t i = 0; i < noptions; i++, n++) {
        keywords[n] = options[i].keyword;
        values[n] = options[i].value;
    }
    return PQconnectStartParams(keywords, values, 1);
}

static enum status finish_connect(PGconn *conn, int wake_fd, struct error *err)
{
    uint64_t deadline = clock_now_ns() + (uint64_t)SOURCE_CONNECT_MS * 1000000u;
    PostgresPollingStatusType want = PGRES_POLLING_WRITING;
    /* verbose: a refused login carries its SQLSTATE nowhere else */
    PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
    while (want != PGRES_POLLING_OK) {
        if (PQstatus(conn) == CONNECTION_BAD || want == PGRES_POLLING_FAILED)
            return source_error_conn(err, conn, "cannot connect to the source");
        unsigned ready = source_conn_poll(conn, want == PGRES_POLLING_WRITING, wake_fd, deadline);
        if (ready & SOURCE_READY_WAKE)
            return error_set(err, ERR_CANCELLED, "stopping");
        if (ready == 0)
            return error_set(err, ERR_RETRY, "cannot connect to the source: no answer within %d s",
                             SOURCE_CONNECT_MS / 1000);
        want = PQconnectPoll(conn);
    }
    PQsetErrorVerbosity(conn, PQERRORS_DEFAULT);
    return OK;
}

static void ignore_notice(void *ctx, const PGresult *result)
{
    (void)ctx;
    (void)result;
}

enum status source_conn_open(const char *conninfo, const struct source_conn_option *options,
                             size_t noptions, int wake_fd, PGconn **ret, struct error *err)
{
    TRY(check_conninfo(conninfo, err));
    PGconn *conn = start(conninfo, options, noptions);
    if (conn == NULL)
        return error_set(err, ERR_RETRY, "cannot connect to the source: out of memory");
    enum status st = finish_connect(conn, wake_fd, err);
    unsigned major = source_conn_major(conn);
    if (st == OK && (major < 15 || major > 18))
        st = error_set(err, ERR_CONFIG, "the source is PostgreSQL %u: 15 to 18 are supported",
                       major);
    if (st != OK) {
        PQfinish(conn);
        return st;
    }
    PQsetNoticeReceiver(conn, ignore_notice, NULL);
    *ret = conn;
    return OK;
}

enum status source_conn_result(PGconn *conn, int wake_fd, PGresult **ret, struct error *err)
{
    while (PQisBusy(conn)) {
        if (source_conn_poll(conn, false, wake_fd, UINT64_MAX) & SOURCE_READY_WAKE)
            return error_set(err, ERR_CANCELLED, "stopping");
        if (!PQconsumeInput(conn))
            return source_error_conn(err, conn, "the connection to the source broke");
    }
    *ret = PQgetResult(conn);
    return OK;
}

enum status source_conn_query(PGconn *conn, const char *sql, int wake_fd, PGresult **ret,
                              struct error *err)
{
    PGresult *last = NULL;
    if (!PQsendQuery(conn, sql))
        return source_error_conn(err, conn, "cannot send to the source");
    for (;;) {
        PGresult *next = NULL;
        enum status st = source_conn_result(conn, wake_fd, &next, err);
        if (st != OK) {
            PQclear(last);
            return st;
        }
        if (next == NULL)
            break;
        PQclear(last);
        last = next;
        ExecStatusType status = PQresultStatus(last);
        /* a COPY state repeats until it is ended; its caller drives it */
        if (status == PGRES_COPY_BOTH || status == PGRES_COPY_OUT || status == PGRES_COPY_IN)
            break;
    }
    if (last == NULL)
        return source_error_conn(err, conn, "the connection to the source broke");
    *ret = last;
    return OK;
}

unsigned source_conn_major(const PGconn *conn)
{
    int version = PQserverVersion(conn);
    return version > 0 ? (unsigned)version / 10000 : 0;
}
