#include "engine/chdb.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "engine/chdb_api.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#define CHDB_MEMORY_DEFAULT (512ull << 20)
#define CHDB_ERROR_MAX_BYTES (64u << 10)
#define CHDB_STD_EXCEPTION 1001

struct chdb {
    struct chdb_api api;
    int lock_fd;
    char *path_arg; /* "--path=…", the same for every connection */
    char *version, *timezone, *host;
    uint64_t memory_max;
    struct chdb_session *keeper; /* the first connection: the engine stops with the last one */
};

struct chdb_session {
    struct chdb *chdb;
    chdb_api_conn *conn;
    char *error; /* malloc'd, or NULL */
};

struct chdb_reader {
    struct chdb_session *session;
    chdb_api_result stream;
    bool ended;
};

struct chdb_writer {
    struct chdb_session *session;
    chdb_api_insert stream;
    bool finished;
};

int chdb_error_parse(const char *text, const char **ret_text)
{
    int code = 0;
    const char *at = text;
    for (;;) {
        int n = 0, consumed = 0;
        if (sscanf(at, "Code: %d. %n", &n, &consumed) != 1 || consumed == 0)
            break;
        code = n; /* the innermost code is the cause */
        at += consumed;
        if (strncmp(at, "DB::Exception: Code: ", 21) != 0)
            break;
        at += 15;
    }
    *ret_text = at;
    return code > 0 ? code : CHDB_STD_EXCEPTION;
}

/* Takes over an error text of the library, which lives only as long as its result. */
static enum status session_fail(struct chdb_session *s, const char *text, struct error *err)
{
    const char *message;
    int code = chdb_error_parse(text, &message);
    free(s->error);
    s->error = strndup(message, CHDB_ERROR_MAX_BYTES);
    enum status kind = error_set(err, ERR_DATA, "%s", message);
    if (err != NULL)
        err->ch_code = code;
    return kind;
}

const char *chdb_session_error(const struct chdb_session *s)
{
    return s->error != NULL ? s->error : "";
}

static enum status session_connect(struct chdb *chdb, int argc, char **argv,
                                   struct chdb_session **ret_session, struct error *err)
{
    chdb_api_conn *conn = chdb->api.chdb_connect(argc, argv);
    if (conn == NULL || *conn == NULL)
        return error_set(err, ERR_DATA,
                         "the engine refused a connection (its settings may be bad)");
    struct chdb_session *s = xcalloc(1, sizeof *s);
    s->chdb = chdb;
    s->conn = conn;
    *ret_session = s;
    return OK;
}

enum status chdb_session_open(struct chdb *chdb, const char *const *settings,
                              struct chdb_session **ret_session, struct error *err)
{
    size_t n = 0;
    while (settings != NULL && settings[n] != NULL)
        n++;
    char **argv = xcalloc(n + 3, sizeof *argv);
    argv[0] = xstrdup("walshadow");
    argv[1] = xstrdup(chdb->path_arg);
    for (size_t i = 0; i < n; i++)
        argv[i + 2] = xasprintf("--%s", settings[i]);
    enum status status = session_connect(chdb, (int)n + 2, argv, ret_session, err);
    for (size_t i = 0; i < n + 2; i++)
        free(argv[i]);
    free(argv);
    return status;
}

void chdb_session_close(struct chdb_session *s)
{
    if (s == NULL)
        return;
    s->chdb->api.chdb_close_conn(s->conn);
    free(s->error);
    free(s);
}

enum status chdb_session_classify(struct chdb_session *s, const char *sql, size_t len,
                                  enum chdb_class *ret_class, unsigned *ret_statements,
                                  struct error *err)
{
    struct chdb_api_analysis a = {.struct_size = sizeof a};
    if (s->chdb->api.chdb_classify_query_n(*s->conn, sql, len, NULL, 0, &a) != 0)
        return session_fail(s, "Code: 49. DB::Exception: The statement cannot be classified", err);
    *ret_class =
        a.query_class <= CHDB_CLASS_CONTROL ? (enum chdb_class)a.query_class : CHDB_CLASS_UNKNOWN;
    *ret_statements = a.statement_count;
    return OK;
}

void chdb_answer_free(struct chdb_answer *a)
{
    if (a->handle != NULL)
        a->chdb->api.chdb_destroy_query_result(a->handle);
    *a = (struct chdb_answer){0};
}

/* Moves a result into *ret_answer, or its error into err and frees it. */
static enum status session_take(struct chdb_session *s, chdb_api_result result,
                                struct chdb_answer *ret_answer, struct error *err)
{
    const struct chdb_api *api = &s->chdb->api;
    if (result == NULL)
        return session_fail(s, "Code: 1001. DB::Exception: The engine gave no result", err);
    const char *text = api->chdb_result_error(result);
    if (text != NULL && text[0] != 0) {
        enum status status = session_fail(s, text, err);
        api->chdb_destroy_query_result(result);
        return status;
    }
    *ret_answer = (struct chdb_answer){
        .chdb = s->chdb,
        .handle = result,
        .data = (const uint8_t *)api->chdb_result_buffer(result),
        .len = api->chdb_result_length(result),
        .rows_read = api->chdb_result_rows_read(result),
        .bytes_read = api->chdb_result_bytes_read(result),
        .rows_written = api->chdb_result_rows_written(result),
        .bytes_written = api->chdb_result_bytes_written(result),
    };
    return OK;
}

enum status chdb_session_run(struct chdb_session *s, const char *sql, size_t len,
                             const char *format, struct chdb_answer *ret_answer, struct error *err)
{
    chdb_api_result r = s->chdb->api.chdb_query_n(*s->conn, sql, len, format, strlen(format));
    return session_take(s, r, ret_answer, err);
}

enum status chdb_session_do(struct chdb_session *s, const char *sql, struct error *err)
{
    struct chdb_answer answer = {0};
    TRY(chdb_session_run(s, sql, strlen(sql), "Null", &answer, err));
    chdb_answer_free(&answer);
    return OK;
}

enum status chdb_reader_open(struct chdb_session *s, const char *sql, size_t len,
                             const char *format, struct chdb_reader **ret_reader, struct error *err)
{
    const struct chdb_api *api = &s->chdb->api;
    chdb_api_result stream = api->chdb_stream_query_n(*s->conn, sql, len, format, strlen(format));
    const char *text = stream != NULL ? api->chdb_result_error(stream) : NULL;
    /* the library runs only SELECT as a stream and says so before it runs anything */
    if (text != NULL && strstr(text, "DB::Exception: Streaming query is not supported") != NULL) {
        api->chdb_destroy_query_result(stream);
        *ret_reader = NULL;
        return OK;
    }
    struct chdb_answer answer = {0};
    TRY(session_take(s, stream, &answer, err));
    struct chdb_reader *r = xcalloc(1, sizeof *r);
    r->session = s;
    r->stream = stream;
    *ret_reader = r;
    return OK;
}

enum status chdb_reader_next(struct chdb_reader *r, struct chdb_answer *ret_answer,
                             struct error *err)
{
    struct chdb_session *s = r->session;
    struct chdb_answer answer = {0};
    chdb_api_result chunk = s->chdb->api.chdb_stream_fetch_result(*s->conn, r->stream);
    enum status status = session_take(s, chunk, &answer, err);
    if (status != OK || answer.len == 0)
        r->ended = true;
    if (status == OK)
        *ret_answer = answer;
    return status;
}

void chdb_reader_close(struct chdb_reader *r)
{
    if (r == NULL)
        return;
    const struct chdb_api *api = &r->session->chdb->api;
    if (!r->ended)
        api->chdb_stream_cancel_query(*r->session->conn, r->stream);
    api->chdb_destroy_query_result(r->stream);
    free(r);
}

enum status chdb_writer_open(struct chdb_session *s, const char *sql, size_t len,
                             const char *format, struct chdb_writer **ret_writer, struct error *err)
{
    const struct chdb_api *api = &s->chdb->api;
    chdb_api_insert stream = api->chdb_stream_insert_n(*s->conn, sql, len, format, strlen(format));
    if (stream == NULL)
        return session_fail(s, "Code: 1001. DB::Exception: The engine gave no insert stream", err);
    const char *text = api->chdb_stream_insert_error(stream);
    if (text != NULL) {
        enum status status = session_fail(s, text, err);
        api->chdb_destroy_insert_stream(stream);
        return status;
    }
    struct chdb_writer *w = xcalloc(1, sizeof *w);
    w->session = s;
    w->stream = stream;
    *ret_writer = w;
    return OK;
}

enum status chdb_writer_append(struct chdb_writer *w, const void *data, size_t len,
                               struct error *err)
{
    const struct chdb_api *api = &w->session->chdb->api;
    if (api->chdb_stream_append(w->stream, data, len) == 0)
        return OK;
    const char *text = api->chdb_stream_insert_error(w->stream);
    if (text != NULL)
        return session_fail(w->session, text, err);
    uint64_t rows;
    /* the cause of a failed append is told by the end of the stream */
    TRY(chdb_writer_finish(w, &rows, err));
    return session_fail(w->session, "Code: 1001. DB::Exception: The insert stream ended early",
                        err);
}

enum status chdb_writer_finish(struct chdb_writer *w, uint64_t *ret_rows, struct error *err)
{
    struct chdb_answer answer = {0};
    w->finished = true;
    chdb_api_result r = w->session->chdb->api.chdb_stream_done(w->stream);
    TRY(session_take(w->session, r, &answer, err));
    *ret_rows = answer.rows_written;
    chdb_answer_free(&answer);
    return OK;
}

void chdb_writer_close(struct chdb_writer *w)
{
    if (w == NULL)
        return;
    const struct chdb_api *api = &w->session->chdb->api;
    if (!w->finished)
        api->chdb_stream_cancel_insert(w->stream);
    api->chdb_destroy_insert_stream(w->stream);
    free(w);
}

static void lock_alarm(int sig)
{
    (void)sig; /* only interrupts flock */
}

/* One engine per directory. An engine whose daemon died leaves within seconds: wait for it. */
static enum status lock_take(const char *path, unsigned wait_s, int *ret_fd, struct error *err)
{
    CLEANUP_FREE char *name = xasprintf("%s/walshadow-engine.lock", path);
    CLEANUP_FD int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_sys(err, ERR_CONFIG, "open %s", name);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK)
            return error_sys(err, ERR_CONFIG, "lock %s", name);
        log_info("msg=\"waiting for another engine to leave\" path=%s seconds=%u", LOG_Q(path),
                 wait_s);
        struct sigaction act = {.sa_handler = lock_alarm}, old;
        sigaction(SIGALRM, &act, &old); /* no SA_RESTART: flock returns */
        alarm(wait_s);
        int rc = wait_s > 0 ? flock(fd, LOCK_EX) : -1;
        alarm(0);
        sigaction(SIGALRM, &old, NULL);
        if (rc != 0)
            return error_set(err, ERR_CONFIG, "%s is in use by another engine", path);
    }
    *ret_fd = fd;
    fd = -1;
    return OK;
}

/* The engine would read ./config.xml by itself: it is always given one of ours. */
static enum status config_write(const char *path, char **ret_name, struct error *err)
{
    static const char text[] = "<clickhouse>\n"
                               "    <logger><level>none</level></logger>\n"
                               "</clickhouse>\n";
    char *name = xasprintf("%s/walshadow-engine.xml", path);
    enum status status = file_write_atomic(name, text, sizeof text - 1, 0600, err);
    if (status != OK)
        free(name);
    else
        *ret_name = name;
    return status;
}

/* The first connection starts the engine, which tells why it does not start only on stderr. */
static enum status engine_boot(struct chdb *chdb, char **argv, int argc, struct error *err)
{
    CLEANUP_FD int file = memfd_create("stderr", MFD_CLOEXEC);
    CLEANUP_FD int saved = fcntl(2, F_DUPFD_CLOEXEC, 3);
    if (file < 0 || saved < 0)
        return error_sys(err, ERR_RETRY, "capture stderr");
    dup2(file, 2);
    enum status status = session_connect(chdb, argc, argv, &chdb->keeper, err);
    dup2(saved, 2);
    char text[400];
    off_t size = lseek(file, 0, SEEK_END);
    ssize_t n = pread(file, text, sizeof text - 1, size > 399 ? size - 399 : 0);
    text[n > 0 ? n : 0] = 0;
    if (status != OK)
        return error_set(err, ERR_CONFIG, "the engine does not start: %s", text);
    if (n > 0)
        log_debug("msg=\"engine start\" text=%s", LOG_Q(text));
    return OK;
}

/* One line of tab-separated text from a query of ours. */
static enum status keeper_ask(struct chdb *chdb, const char *sql, struct buf *ret,
                              struct error *err)
{
    struct chdb_answer a = {0};
    TRY(chdb_session_run(chdb->keeper, sql, strlen(sql), "TSVRaw", &a, err));
    buf_put(ret, a.data, a.len);
    chdb_answer_free(&a);
    char *text = buf_cstr(ret);
    text[strcspn(text, "\n")] = 0;
    return OK;
}

static enum status engine_describe(struct chdb *chdb, struct error *err)
{
    CLEANUP_BUF struct buf line = {0};
    TRY(keeper_ask(chdb, "SELECT version(), timezone(), hostName()", &line, err));
    char *save = NULL, *text = (char *)line.data;
    chdb->version = xstrdup(strtok_r(text, "\t", &save) ?: "");
    chdb->timezone = xstrdup(strtok_r(NULL, "\t", &save) ?: "UTC");
    chdb->host = xstrdup(strtok_r(NULL, "\t", &save) ?: "localhost");
    buf_reset(&line);
    /* a memory limit that the engine did not take would end in the kernel's OOM killer */
    TRY(keeper_ask(
        chdb, "SELECT value FROM system.server_settings WHERE name = 'max_server_memory_usage'",
        &line, err));
    if (strtoull((char *)line.data, NULL, 10) != chdb->memory_max)
        return error_set(err, ERR_CONFIG, "the engine did not take its memory limit (it says %s)",
                         (char *)line.data);
    return OK;
}

static enum status engine_start(struct chdb *chdb, const struct chdb_options *o, struct error *err)
{
    CLEANUP_FREE char *path = NULL;
    CLEANUP_FREE char *config = NULL;
    TRY(file_mkdir_p(o->path, 0700, err));
    path = realpath(o->path, NULL);
    if (path == NULL)
        return error_sys(err, ERR_CONFIG, "%s", o->path);
    TRY(lock_take(path, o->lock_wait_s, &chdb->lock_fd, err));
    TRY(config_write(path, &config, err));
    TRY(chdb_api_load(o->library, &chdb->api, err));
    chdb->api.chdb_set_signal_handlers_enabled(0);
    chdb->path_arg = xasprintf("--path=%s", path);
    char *argv[] = {
        xstrdup("walshadow"),
        xstrdup(chdb->path_arg),
        xasprintf("--config-file=%s", config),
        xasprintf("--max_server_memory_usage=%llu", (unsigned long long)chdb->memory_max),
        xstrdup("--mark_cache_size=67108864"),
        xstrdup("--index_mark_cache_size=16777216"),
        xstrdup("--primary_index_cache_size=67108864"),
        xstrdup("--background_pool_size=4"),
        NULL,
    };
    enum status status = engine_boot(chdb, argv, (int)LENGTH(argv) - 1, err);
    for (size_t i = 0; i < LENGTH(argv); i++)
        free(argv[i]);
    return status != OK ? status : engine_describe(chdb, err);
}

enum status chdb_start(const struct chdb_options *o, struct chdb **ret_chdb, struct error *err)
{
    struct chdb *chdb = xcalloc(1, sizeof *chdb);
    chdb->lock_fd = -1;
    chdb->memory_max = o->memory_max > 0 ? o->memory_max : CHDB_MEMORY_DEFAULT;
    enum status status = engine_start(chdb, o, err);
    if (status != OK) {
        chdb_stop(chdb);
        return status;
    }
    *ret_chdb = chdb;
    return OK;
}

void chdb_stop(struct chdb *chdb)
{
    if (chdb == NULL)
        return;
    chdb_session_close(chdb->keeper);
    if (chdb->lock_fd >= 0)
        close(chdb->lock_fd);
    free(chdb->path_arg);
    free(chdb->version);
    free(chdb->timezone);
    free(chdb->host);
    free(chdb);
}

const char *chdb_engine_version(const struct chdb *chdb)
{
    return chdb->version;
}

const char *chdb_timezone(const struct chdb *chdb)
{
    return chdb->timezone;
}

const char *chdb_host(const struct chdb *chdb)
{
    return chdb->host;
}

uint64_t chdb_memory_max(const struct chdb *chdb)
{
    return chdb->memory_max;
}
