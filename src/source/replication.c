#include "source/replication.h"

#include "base/cursor.h"
#include "base/queue.h"
#include "source/conn.h"
#include "source/pg_error.h"

#include <endian.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* seconds from 1970-01-01 to 2000-01-01 */
#define POSTGRES_EPOCH_S 946684800

/* Read ahead of source_repl_receive. A walsender's messages have at most 128 KiB. */
#define READ_AHEAD_BYTES ((size_t)2 << 20)
/* A reply that the socket did not take is tried again after that long, at the latest. */
#define UNSENT_NS 500000000u

struct message {
    char *bytes; /* libpq's */
    size_t len;
};

struct source_repl {
    pthread_mutex_t lock; /* guards every libpq call on conn, and the six below */
    PGconn *conn;
    bool streaming;
    bool copy_done; /* by the server: it takes no replies any more */
    bool unsent;    /* libpq holds bytes the socket did not take */
    XLogRecPtr sent_write, sent_flush, sent_apply;

    int wake_fd;
    atomic_bool woken;
    int backend_pid;

    /* While it streams a thread of its own keeps the socket empty: receiving and copying the bytes
     * then runs beside what is done with them. */
    pthread_t reader;
    bool reader_started;
    struct queue messages; /* closed when it has ended */
    enum status reader_status;
    struct error reader_error; /* both before the queue is closed */

    /* the receiving thread's */
    struct message *message; /* behind the last chunk */
    uint64_t silent_ns;
    bool asked;
};

static void message_free(struct message *m)
{
    if (m == NULL)
        return;
    PQfreemem(m->bytes);
    free(m);
}

enum status source_repl_open(const char *conninfo, const char *application_name,
                             struct source_repl **ret, struct error *err)
{
    const struct source_conn_option options[] = {
        {"replication", "true"},
        {"application_name", application_name},
    };
    struct source_repl *r = xcalloc(1, sizeof *r);
    r->wake_fd = source_wake_new();
    enum status st =
        source_conn_open(conninfo, options, LENGTH(options), r->wake_fd, &r->conn, err);
    if (st != OK) {
        close(r->wake_fd);
        free(r);
        return st;
    }
    pthread_mutex_init(&r->lock, NULL);
    queue_init(&r->messages, READ_AHEAD_BYTES);
    r->backend_pid = PQbackendPID(r->conn);
    *ret = r;
    return OK;
}

void source_repl_close(struct source_repl *r)
{
    if (r == NULL)
        return;
    source_wake_set(r->wake_fd);
    queue_close(&r->messages);
    if (r->reader_started)
        pthread_join(r->reader, NULL);
    for (bool closed; !queue_is_empty(&r->messages);)
        message_free(queue_pop_until(&r->messages, 0, &closed));
    queue_fini(&r->messages);
    message_free(r->message);
    PQfinish(r->conn);
    close(r->wake_fd);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* Runs a command; *ret is its result, which must have the status wanted. */
static enum status command(struct source_repl *r, const char *sql, ExecStatusType want,
                           const char *what, PGresult **ret, struct error *err)
{
    PGresult *result = NULL;
    if (atomic_load(&r->woken))
        return error_set(err, ERR_CANCELLED, "stopping");
    TRY(source_conn_query(r->conn, sql, r->wake_fd, &result, err));
    if (PQresultStatus(result) == want) {
        *ret = result;
        return OK;
    }
    enum status st = source_error_result(err, r->conn, result, what);
    PQclear(result);
    return st;
}

static bool parse_u64(const char *text, uint64_t max, uint64_t *ret)
{
    char *end;
    if (text[0] < '0' || text[0] > '9')
        return false;
    unsigned long long v = strtoull(text, &end, 10);
    if (*end != '\0' || v > max)
        return false;
    *ret = v;
    return true;
}

enum status source_repl_identify(struct source_repl *r, struct source_identity *ret,
                                 struct error *err)
{
    PGresult *result = NULL;
    struct source_identity id = {0};
    uint64_t timeline = 0;
    TRY(command(r, "IDENTIFY_SYSTEM", PGRES_TUPLES_OK, "IDENTIFY_SYSTEM", &result, err));
    bool ok = PQntuples(result) == 1 && PQnfields(result) >= 3 &&
              parse_u64(PQgetvalue(result, 0, 0), UINT64_MAX, &id.system_id) &&
              parse_u64(PQgetvalue(result, 0, 1), UINT32_MAX, &timeline) &&
              lsn_parse(PQgetvalue(result, 0, 2), &id.xlogpos);
    PQclear(result);
    if (!ok)
        return error_set(err, ERR_DATA, "IDENTIFY_SYSTEM: the answer has another form");
    id.timeline = (uint32_t)timeline;
    id.major = source_conn_major(r->conn);
    id.server_version = PQserverVersion(r->conn);
    *ret = id;
    return OK;
}

enum status source_repl_show(struct source_repl *r, const char *name, char **ret, struct error *err)
{
    CLEANUP_FREE char *sql = xasprintf("SHOW %s", name);
    PGresult *result = NULL;
    TRY(command(r, sql, PGRES_TUPLES_OK, sql, &result, err));
    if (PQntuples(result) != 1 || PQnfields(result) != 1) {
        PQclear(result);
        return error_set(err, ERR_DATA, "%s: the answer has another form", sql);
    }
    *ret = xstrdup(PQgetvalue(result, 0, 0));
    PQclear(result);
    return OK;
}

enum status source_repl_segment_bytes(struct source_repl *r, uint64_t *ret, struct error *err)
{
    CLEANUP_FREE char *text = NULL;
    unsigned long n = 0;
    char unit[3] = "";
    TRY(source_repl_show(r, "wal_segment_size", &text, err));
    uint64_t bytes = 0;
    if (sscanf(text, "%4lu%2s", &n, unit) == 2)
        bytes = strcmp(unit, "MB") == 0   ? (uint64_t)n << 20
                : strcmp(unit, "GB") == 0 ? (uint64_t)n << 30
                : strcmp(unit, "kB") == 0 ? (uint64_t)n << 10
                                          : 0;
    if (bytes < 1u << 20 || bytes > 1u << 30 || (bytes & (bytes - 1)) != 0)
        return error_set(err, ERR_DATA, "wal_segment_size \"%s\" is not a segment size", text);
    *ret = bytes;
    return OK;
}

enum status source_repl_sender_timeout(struct source_repl *r, int64_t *ret_ms, struct error *err)
{
    CLEANUP_FREE char *text = NULL;
    long n = 0;
    char unit[4] = "ms";
    TRY(source_repl_show(r, "wal_sender_timeout", &text, err));
    if (sscanf(text, "%9ld%3s", &n, unit) < 1 || n < 0)
        return error_set(err, ERR_DATA, "wal_sender_timeout \"%s\" is not a duration", text);
    int64_t factor = strcmp(unit, "h") == 0     ? 3600000
                     : strcmp(unit, "d") == 0   ? 86400000
                     : strcmp(unit, "min") == 0 ? 60000
                     : strcmp(unit, "s") == 0   ? 1000
                                                : 1;
    *ret_ms = n * factor;
    return OK;
}

/* Slot names hold a-z, 0-9 and _ only; the server checks, this keeps the command well-formed. */
static enum status check_slot_name(const char *name, struct error *err)
{
    size_t n = strlen(name);
    if (n == 0 || n > 63 || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != n)
        return error_set(err, ERR_CONFIG,
                         "slot name \"%s\": 1 to 63 characters a-z, 0-9 and _ are allowed", name);
    return OK;
}

enum status source_repl_slot_create(struct source_repl *r, const char *name, struct error *err)
{
    PGresult *result = NULL;
    TRY(check_slot_name(name, err));
    CLEANUP_FREE char *sql = xasprintf("CREATE_REPLICATION_SLOT \"%s\" PHYSICAL RESERVE_WAL", name);
    CLEANUP_FREE char *what = xasprintf("cannot create replication slot \"%s\"", name);
    TRY(command(r, sql, PGRES_TUPLES_OK, what, &result, err));
    PQclear(result);
    return OK;
}

enum status source_repl_slot_drop(struct source_repl *r, const char *name, struct error *err)
{
    PGresult *result = NULL;
    TRY(check_slot_name(name, err));
    CLEANUP_FREE char *sql = xasprintf("DROP_REPLICATION_SLOT \"%s\"", name);
    CLEANUP_FREE char *what = xasprintf("cannot drop replication slot \"%s\"", name);
    TRY(command(r, sql, PGRES_COMMAND_OK, what, &result, err));
    PQclear(result);
    return OK;
}

/* Takes what libpq has, reading the socket without waiting. *ret_len is that of PQgetCopyData: 0 =
 * nothing yet, -1 = the stream ended. */
static enum status take_message(struct source_repl *r, char **ret, int *ret_len, struct error *err)
{
    int n = PQgetCopyData(r->conn, ret, 1);
    if (n == 0) {
        if (!PQconsumeInput(r->conn))
            return source_error_conn(err, r->conn, "the connection to the source broke");
        n = PQgetCopyData(r->conn, ret, 1);
    }
    if (n == -2)
        return source_error_conn(err, r->conn, "the stream broke");
    if (n == 0 && r->unsent) {
        int left = PQflush(r->conn);
        if (left < 0)
            return source_error_conn(err, r->conn, "the connection to the source broke");
        r->unsent = left > 0;
    }
    r->copy_done = n == -1;
    *ret_len = n;
    return OK;
}

static enum status read_messages(struct source_repl *r, struct error *err)
{
    for (;;) {
        char *bytes = NULL;
        int n = 0;
        pthread_mutex_lock(&r->lock);
        enum status st = take_message(r, &bytes, &n, err);
        bool unsent = r->unsent;
        pthread_mutex_unlock(&r->lock);
        if (st != OK || n == -1)
            return st;
        if (n > 0) {
            struct message *m = xmalloc(sizeof *m);
            *m = (struct message){bytes, (size_t)n};
            st = queue_push(&r->messages, m, m->len, err);
            if (st != OK)
                message_free(m);
            TRY(st);
        } else if (source_conn_poll(r->conn, unsent, r->wake_fd, clock_now_ns() + UNSENT_NS) &
                   SOURCE_READY_WAKE) {
            return error_set(err, ERR_CANCELLED, "stopping");
        }
    }
}

static void *reader_main(void *arg)
{
    struct source_repl *r = arg;
    pthread_setname_np(pthread_self(), "receiver");
    r->reader_status = read_messages(r, &r->reader_error);
    queue_close(&r->messages);
    return NULL;
}

static enum status reader_start(struct source_repl *r, struct error *err)
{
    int rc = pthread_create(&r->reader, NULL, reader_main, r);
    if (rc != 0)
        return error_set(err, ERR_RETRY, "cannot start a thread: error %d", rc);
    r->reader_started = true;
    return OK;
}

enum status source_repl_start(struct source_repl *r, const char *slot, XLogRecPtr lsn,
                              uint32_t timeline, struct error *err)
{
    char name[80] = "";
    PGresult *result = NULL;
    if (slot != NULL) {
        TRY(check_slot_name(slot, err));
        snprintf(name, sizeof name, " SLOT \"%s\"", slot);
    }
    CLEANUP_FREE char *sql = xasprintf("START_REPLICATION%s PHYSICAL " LSN_FMT " TIMELINE %u", name,
                                       LSN_ARGS(lsn), timeline);
    CLEANUP_FREE char *what =
        xasprintf("cannot stream from " LSN_FMT "%s%s", LSN_ARGS(lsn),
                  slot != NULL ? " over slot " : "", slot != NULL ? slot : "");
    pthread_mutex_lock(&r->lock);
    enum status st = command(r, sql, PGRES_COPY_BOTH, what, &result, err);
    if (st == OK) {
        PQclear(result);
        PQsetnonblocking(r->conn, 1);
        r->streaming = true;
        r->sent_write = lsn;
        r->sent_flush = r->sent_apply = 0;
        r->silent_ns = 0;
        r->asked = false;
    } else if (err != NULL && err->lsn == 0) {
        err->lsn = lsn;
    }
    pthread_mutex_unlock(&r->lock);
    return st == OK ? reader_start(r, err) : st;
}

static int64_t postgres_now_us(void)
{
    struct timeval tv;
    gettimeofday(&tv, NULL);
    return ((int64_t)tv.tv_sec - POSTGRES_EPOCH_S) * 1000000 + tv.tv_usec;
}

static void put_be64(uint8_t *at, uint64_t v)
{
    v = htobe64(v);
    memcpy(at, &v, sizeof v);
}

/* With the lock held. */
static enum status send_status(struct source_repl *r, bool request_reply, struct error *err)
{
    uint8_t m[34];
    m[0] = 'r';
    put_be64(m + 1, r->sent_write);
    put_be64(m + 9, r->sent_flush);
    put_be64(m + 17, r->sent_apply);
    put_be64(m + 25, (uint64_t)postgres_now_us());
    m[33] = request_reply;
    int n = PQputCopyData(r->conn, (const char *)m, sizeof m);
    if (n < 0)
        return source_error_conn(err, r->conn, "cannot send a status reply");
    /* 0: libpq's buffer is full and the socket takes nothing: earlier replies are still on their
     * way and the next one says more than this */
    int left = PQflush(r->conn);
    if (left < 0)
        return source_error_conn(err, r->conn, "cannot send a status reply");
    r->unsent = left > 0;
    return OK;
}

enum status source_repl_status(struct source_repl *r, XLogRecPtr write_lsn, XLogRecPtr flush_lsn,
                               XLogRecPtr apply_lsn, bool request_reply, struct error *err)
{
    enum status st = OK;
    pthread_mutex_lock(&r->lock);
    if (flush_lsn < r->sent_flush) {
        st = error_lsn(err, ERR_BUG, flush_lsn,
                       "flush reported to the source would go back from " LSN_FMT,
                       LSN_ARGS(r->sent_flush));
    } else if (r->streaming && !r->copy_done) {
        r->sent_write = MAX(r->sent_write, write_lsn);
        r->sent_flush = flush_lsn;
        r->sent_apply = MAX(r->sent_apply, apply_lsn);
        st = send_status(r, request_reply, err);
    }
    pthread_mutex_unlock(&r->lock); /* what is unsent is the reader's to flush */
    return st;
}

void source_repl_wake(struct source_repl *r)
{
    atomic_store(&r->woken, true);
    source_wake_set(r->wake_fd);
    queue_close(&r->messages);
}

void source_repl_cut(struct source_repl *r)
{
    int fd = PQsocket(r->conn);
    if (fd >= 0)
        shutdown(fd, SHUT_RDWR);
}

int source_repl_backend_pid(const struct source_repl *r)
{
    return r->backend_pid;
}

PGconn *source_repl_conn(struct source_repl *r)
{
    return r->conn;
}

int source_repl_wake_fd(const struct source_repl *r)
{
    return r->wake_fd;
}

static uint64_t take_be64(struct cursor *c)
{
    return be64toh(cursor_u64(c));
}

static enum status parse_message(const uint8_t *data, size_t len, struct source_chunk *ret,
                                 struct error *err)
{
    struct cursor c = cursor_of(data, len);
    struct source_chunk chunk = {0};
    uint8_t kind = cursor_u8(&c);
    if (kind == 'w') {
        chunk.kind = SOURCE_CHUNK_DATA;
        chunk.lsn = take_be64(&c);
        chunk.server_end = take_be64(&c);
        chunk.server_time = (int64_t)take_be64(&c);
        chunk.len = cursor_left(&c);
        chunk.data = data + c.pos;
    } else if (kind == 'k') {
        chunk.kind = SOURCE_CHUNK_KEEPALIVE;
        chunk.server_end = take_be64(&c);
        chunk.server_time = (int64_t)take_be64(&c);
        chunk.reply_requested = cursor_u8(&c) != 0;
    } else {
        return error_set(err, ERR_DATA, "the source sent a stream message of unknown kind 0x%02x",
                         kind);
    }
    if (!cursor_ok(&c))
        return error_set(err, ERR_DATA, "the source sent a stream message of only %zu bytes", len);
    *ret = chunk;
    return OK;
}

/* The results behind the end of a stream: the next timeline, if the server names one, or an error.
 * With the lock held. Source: walsender.c StartReplication, receivelog.c HandleEndOfCopyStream. */
static enum status end_of_stream(struct source_repl *r, struct source_chunk *ret, struct error *err)
{
    enum status st = OK;
    ret->kind = SOURCE_CHUNK_ENDED;
    r->streaming = false;
    for (;;) {
        PGresult *result = NULL;
        uint64_t timeline = 0;
        TRY(source_conn_result(r->conn, r->wake_fd, &result, err));
        if (result == NULL)
            return st;
        ExecStatusType status = PQresultStatus(result);
        if (status == PGRES_COPY_IN || status == PGRES_COPY_BOTH) {
            if (PQputCopyEnd(r->conn, NULL) < 0 || PQflush(r->conn) < 0)
                st = source_error_conn(err, r->conn, "cannot end the stream");
        } else if (status == PGRES_TUPLES_OK && PQntuples(result) == 1 && PQnfields(result) >= 2) {
            if (parse_u64(PQgetvalue(result, 0, 0), UINT32_MAX, &timeline) &&
                lsn_parse(PQgetvalue(result, 0, 1), &ret->next_timeline_lsn))
                ret->next_timeline = (uint32_t)timeline;
        } else if (status != PGRES_COMMAND_OK) {
            /* whatever a server says that goes down in the middle of it: nothing is wrong with the
             * bytes, and the position is kept */
            st = source_error_result(err, r->conn, result, "the source ended the stream");
            if (st == ERR_DATA && err != NULL)
                err->kind = ERR_RETRY;
            if (st == ERR_DATA)
                st = ERR_RETRY;
        }
        PQclear(result);
        if (st != OK)
            return st;
    }
}

/* Counts silence only while waiting here: a pump that was blocked has not heard because it did not
 * listen. */
static enum status note_silence(struct source_repl *r, uint64_t waited_ns, struct error *err)
{
    r->silent_ns += waited_ns;
    if (r->silent_ns > (uint64_t)SOURCE_SILENCE_MS * 1000000u)
        return error_set(err, ERR_RETRY, "the source has sent nothing for %d s",
                         SOURCE_SILENCE_MS / 1000);
    if (!r->asked && r->silent_ns > (uint64_t)SOURCE_SILENCE_MS * 500000u) {
        r->asked = true;
        pthread_mutex_lock(&r->lock);
        enum status st = send_status(r, true, err);
        pthread_mutex_unlock(&r->lock);
        return st;
    }
    return OK;
}

/* Behind the last message. */
static enum status reader_ended(struct source_repl *r, struct source_chunk *ret, struct error *err)
{
    pthread_mutex_lock(&r->lock);
    enum status st = r->reader_status;
    if (!r->streaming)
        st = error_set(err, ERR_RETRY, "the stream from the source has ended");
    else if (st != OK && err != NULL)
        *err = r->reader_error;
    else if (st == OK)
        st = end_of_stream(r, ret, err);
    r->streaming = false;
    pthread_mutex_unlock(&r->lock);
    return st;
}

enum status source_repl_receive(struct source_repl *r, uint64_t deadline_ns,
                                struct source_chunk *ret, struct error *err)
{
    message_free(r->message);
    r->message = NULL;
    *ret = (struct source_chunk){.kind = SOURCE_CHUNK_NONE};
    for (;;) {
        bool closed = false;
        uint64_t before = clock_now_ns();
        uint64_t until = MIN(deadline_ns, before + (uint64_t)SOURCE_SILENCE_MS * 250000u);
        if (r->reader_started)
            r->message = queue_pop_until(&r->messages, until, &closed);
        if (atomic_load(&r->woken))
            return error_set(err, ERR_CANCELLED, "stopping");
        if (r->message != NULL) {
            r->silent_ns = 0;
            r->asked = false;
            return parse_message((const uint8_t *)r->message->bytes, r->message->len, ret, err);
        }
        if (closed || !r->reader_started)
            return reader_ended(r, ret, err);
        TRY(note_silence(r, clock_now_ns() - before, err));
        if (clock_now_ns() >= deadline_ns)
            return OK;
    }
}
