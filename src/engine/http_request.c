#include "engine/http_request.h"

#include "engine/sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

enum { /* ClickHouse's exception codes */
       CODE_NOT_IMPLEMENTED = 48,
       CODE_UNKNOWN_SETTING = 115,
       CODE_READONLY = 164,
       CODE_ABORTED = 236,
       CODE_TOO_MANY_BYTES = 307,
       CODE_AUTHENTICATION_FAILED = 516,
};

unsigned http_status_of(int code)
{
    static const struct {
        short code;
        short status;
    } map[] = {
        {6, 400},   {26, 400},  {27, 400},  {36, 400},  {38, 400},  {41, 400},  {43, 400},
        {47, 404},  {46, 404},  {48, 501},  {50, 404},  {53, 400},  {56, 404},  {60, 404},
        {62, 400},  {63, 404},  {69, 400},  {70, 400},  {72, 400},  {73, 404},  {81, 404},
        {115, 404}, {159, 408}, {164, 403}, {192, 404}, {202, 503}, {210, 503}, {236, 503},
        {307, 413}, {396, 413}, {497, 403}, {516, 401},
    };
    for (size_t i = 0; i < LENGTH(map); i++)
        if (map[i].code == code)
            return (unsigned)map[i].status;
    return 500;
}

bool http_format_is_streamed(struct str format)
{
    static const char *const names[] = {"TSV",         "TabSeparated",       "TSVRaw",
                                        "CSV",         "TabSeparatedRaw",    "Native",
                                        "JSONEachRow", "JSONCompactEachRow", "RowBinary"};
    for (size_t i = 0; i < LENGTH(names); i++)
        if (format.len == strlen(names[i]) && strncasecmp(format.data, names[i], format.len) == 0)
            return true;
    return false;
}

struct http_request *http_request_new(struct engine_shared *shared,
                                      struct MHD_Connection *connection)
{
    struct http_request *r = xcalloc(1, sizeof *r);
    r->shared = shared;
    r->connection = connection;
    return r;
}

void http_request_free(struct http_request *r)
{
    if (r == NULL)
        return;
    chdb_answer_free(&r->chunk);
    chdb_reader_close(r->reader);
    chdb_session_close(r->session);
    free(r->settings.items);
    free(r->parameters.items);
    buf_free(&r->tail);
    buf_free(&r->sql);
    free(r);
}

static void setting_add(struct packet_settings *list, struct str name, struct str value)
{
    list->items = xrealloc(list->items, (list->n + 1) * sizeof *list->items);
    list->items[list->n++] = (struct packet_setting){.name = name, .value = value};
}

static void url_refuse(struct http_request *r, int code, const char *what, struct str name)
{
    r->refused_code = code;
    snprintf(r->refused, sizeof r->refused, "%s '%.*s'", what, (int)MIN(name.len, 100), name.data);
}

/* Parameters that say how a server should answer and change nothing here. */
static bool url_is_ignored(struct str name)
{
    static const char *const names[] = {
        "query_id",    "wait_end_of_query",
        "buffer_size", "enable_http_compression",
        "quota_key",   "add_http_cors_header",
        "log_comment", "send_progress_in_http_headers",
        "readonly",    "cancel_http_readonly_queries_on_client_close",
        "stacktrace"};
    for (size_t i = 0; i < LENGTH(names); i++)
        if (str_is(name, names[i]))
            return true;
    return false;
}

static bool url_is_unsupported(struct str name)
{
    return str_is(name, "session_id") || str_is(name, "compress") || str_is(name, "decompress") ||
           str_is(name, "client_protocol_version") || str_is(name, "role");
}

static enum MHD_Result url_argument(void *ctx, enum MHD_ValueKind kind, const char *key,
                                    size_t key_len, const char *value, size_t value_len)
{
    struct http_request *r = ctx;
    struct str name = {key, key_len},
               v = {value != NULL ? value : "", value != NULL ? value_len : 0};
    (void)kind;
    if (str_is(name, "query"))
        buf_put(&r->sql, v.data, v.len);
    else if (str_is(name, "database"))
        r->database = v;
    else if (str_is(name, "default_format"))
        r->format = v;
    else if (str_is(name, "user"))
        r->user = v;
    else if (str_is(name, "password"))
        r->password = v;
    else if (name.len > 6 && memcmp(name.data, "param_", 6) == 0)
        setting_add(&r->parameters, (struct str){name.data + 6, name.len - 6}, v);
    else if (url_is_ignored(name))
        return MHD_YES;
    else if (url_is_unsupported(name))
        url_refuse(r, CODE_NOT_IMPLEMENTED, "Not supported by this engine: URL parameter", name);
    else if (!engine_settings_is_known(&r->shared->settings, name))
        url_refuse(r, CODE_UNKNOWN_SETTING, "Unknown setting", name);
    else if (!engine_settings_is_reader_safe(name))
        url_refuse(r, CODE_READONLY, "This interface only reads and cannot change the setting",
                   name);
    else
        setting_add(&r->settings, name, v);
    return MHD_YES;
}

static void header_take(struct http_request *r, const char *name, struct str *ret)
{
    const char *value = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
    if (value != NULL && ret->len == 0)
        *ret = str_of(value);
}

void http_request_read(struct http_request *r)
{
    MHD_get_connection_values_n(r->connection, MHD_GET_ARGUMENT_KIND, url_argument, r);
    if (r->sql.len > 0)
        buf_put_u8(&r->sql, '\n'); /* the body goes on with the statement */
    r->body_at = r->sql.len;
    header_take(r, "X-ClickHouse-User", &r->user);
    header_take(r, "X-ClickHouse-Key", &r->password);
    header_take(r, "X-ClickHouse-Database", &r->database);
    header_take(r, "X-ClickHouse-Format", &r->format);
}

enum MHD_Result http_text_answer(struct MHD_Connection *connection, unsigned status, int code,
                                 const char *text)
{
    char number[16];
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_MUST_COPY);
    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", "text/plain; charset=UTF-8");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (code != 0) {
        snprintf(number, sizeof number, "%d", code);
        MHD_add_response_header(response, "X-ClickHouse-Exception-Code", number);
    }
    if (status == 401)
        MHD_add_response_header(response, "WWW-Authenticate", "Basic realm=\"ClickHouse\"");
    enum MHD_Result rc = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return rc;
}

/* The text of a failure as a server writes it into the body. */
static char *error_text(const struct http_request *r, const struct error *err)
{
    const char *text = err->message;
    if (r->session != NULL &&
        strncmp(chdb_session_error(r->session), text, sizeof err->message - 1) == 0)
        text = chdb_session_error(r->session);
    return xasprintf("Code: %d. %s%s (version %s)\n", err->ch_code,
                     strncmp(text, "DB::Exception", 13) == 0 ? "" : "DB::Exception: ", text,
                     chdb_engine_version(r->shared->chdb));
}

static enum MHD_Result error_answer(const struct http_request *r, const struct error *err)
{
    CLEANUP_FREE char *text = error_text(r, err);
    return http_text_answer(r->connection, http_status_of(err->ch_code), err->ch_code, text);
}

static enum status request_fail(struct error *err, int code, const char *text)
{
    error_set(err, ERR_DATA, "%s", text);
    err->ch_code = code;
    return ERR_DATA;
}

static bool request_is_allowed(struct http_request *r)
{
    char *password = NULL, *user = NULL;
    if (r->user.len > 0 || r->password.len > 0)
        return engine_auth_check(r->shared, r->user, r->password);
    user = MHD_basic_auth_get_username_password(r->connection, &password);
    bool ok = engine_auth_check(r->shared, str_of(user != NULL ? user : ""),
                                str_of(password != NULL ? password : ""));
    MHD_free(user);
    MHD_free(password);
    return ok;
}

/* Runs the statement up to its first bytes. */
static enum status request_run(struct http_request *r, struct error *err)
{
    struct sql_shape shape;
    if (!request_is_allowed(r))
        return request_fail(
            err, CODE_AUTHENTICATION_FAILED,
            "Authentication failed: password is incorrect, or there is no user with "
            "such name. (AUTHENTICATION_FAILED)");
    if (r->too_large)
        return request_fail(err, CODE_TOO_MANY_BYTES, "The statement is too large");
    if (r->refused_code != 0)
        return request_fail(err, r->refused_code, r->refused);
    if (atomic_load(&r->shared->stopping))
        return request_fail(err, CODE_ABORTED, "The engine is stopping");
    const char *sql = buf_cstr(&r->sql);
    sql_shape_read(sql, r->sql.len, &shape);
    if (shape.format_name.len > 0)
        r->format = (struct str){sql + shape.format_name.at, shape.format_name.len};
    if (r->format.len == 0)
        r->format = str_of("TabSeparated");
    struct engine_reader_request request = {
        .database = r->database,
        .sql = {sql, r->sql.len},
        .settings = &r->settings,
        .parameters = &r->parameters,
        .streamed = http_format_is_streamed(r->format),
    };
    CLEANUP_FREE char *format = strndup(r->format.data, r->format.len);
    TRY(engine_guard_open(r->shared->chdb, &request, &r->session, err));
    if (request.streamed)
        TRY(chdb_reader_open(r->session, sql, r->sql.len, format, &r->reader, err));
    if (r->reader != NULL)
        return chdb_reader_next(r->reader, &r->chunk, err);
    TRY(chdb_session_run(r->session, sql, r->sql.len, format, &r->chunk, err));
    if (r->chunk.len > ENGINE_READER_RESULT_MAX)
        return request_fail(err, CODE_TOO_MANY_BYTES,
                            "The result is larger than 64 MiB; formats that are streamed have no "
                            "limit: TSV, CSV, JSONEachRow, JSONCompactEachRow, Native, RowBinary");
    return OK;
}

/* MHD asks for the next bytes of a streamed result. */
static ssize_t response_read(void *ctx, uint64_t pos, char *out, size_t max)
{
    struct http_request *r = ctx;
    struct error err;
    (void)pos;
    if (r->failed && r->tail.len == 0)
        return MHD_CONTENT_READER_END_WITH_ERROR; /* the client sees a body cut short */
    while (!r->failed && r->chunk_at == r->chunk.len) {
        bool end = r->reader == NULL || r->chunk.len == 0;
        chdb_answer_free(&r->chunk);
        r->chunk_at = 0;
        if (end)
            return MHD_CONTENT_READER_END_OF_STREAM;
        enum status status = atomic_load(&r->shared->stopping)
                                 ? request_fail(&err, CODE_ABORTED, "The engine is stopping")
                                 : chdb_reader_next(r->reader, &r->chunk, &err);
        if (status != OK) {
            CLEANUP_FREE char *text = error_text(r, &err);
            buf_put(&r->tail, text, strlen(text));
            r->failed = true;
        } else if (r->chunk.len == 0) {
            return MHD_CONTENT_READER_END_OF_STREAM;
        }
    }
    const uint8_t *from = r->failed ? r->tail.data : r->chunk.data + r->chunk_at;
    size_t n = MIN(max, r->failed ? r->tail.len : r->chunk.len - r->chunk_at);
    memcpy(out, from, n);
    if (!r->failed) {
        r->chunk_at += n;
        return (ssize_t)n;
    }
    memmove(r->tail.data, r->tail.data + n, r->tail.len - n);
    r->tail.len -= n;
    return (ssize_t)n;
}

static const char *content_type(struct str format)
{
    static const char *const map[][2] = {
        {"JSON", "application/json; charset=UTF-8"},
        {"CSV", "text/csv; charset=UTF-8"},
        {"TSV", "text/tab-separated-values; charset=UTF-8"},
        {"Tab", "text/tab-separated-values; charset=UTF-8"},
        {"XML", "application/xml; charset=UTF-8"},
        {"Pretty", "text/plain; charset=UTF-8"},
        {"Vertical", "text/plain; charset=UTF-8"},
        {"Markdown", "text/plain; charset=UTF-8"},
        {"Values", "text/plain; charset=UTF-8"},
    };
    for (size_t i = 0; i < LENGTH(map); i++) {
        size_t n = strlen(map[i][0]);
        if (format.len >= n && strncasecmp(format.data, map[i][0], n) == 0)
            return map[i][1];
    }
    return "application/octet-stream";
}

enum MHD_Result http_request_answer(struct http_request *r)
{
    struct error err = {0};
    char summary[120];
    if (request_run(r, &err) != OK)
        return error_answer(r, &err);
    uint64_t size = r->reader == NULL ? r->chunk.len : MHD_SIZE_UNKNOWN;
    struct MHD_Response *response =
        MHD_create_response_from_callback(size, 65536, response_read, r, NULL);
    if (response == NULL)
        return MHD_NO;
    CLEANUP_FREE char *format = strndup(r->format.data, r->format.len);
    MHD_add_response_header(response, "Content-Type", content_type(r->format));
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "X-ClickHouse-Format", format);
    MHD_add_response_header(response, "X-ClickHouse-Timezone", chdb_timezone(r->shared->chdb));
    MHD_add_response_header(response, "X-ClickHouse-Server-Display-Name",
                            chdb_host(r->shared->chdb));
    if (r->reader == NULL) {
        snprintf(summary, sizeof summary, "{\"read_rows\":\"%llu\",\"read_bytes\":\"%llu\"}",
                 (unsigned long long)r->chunk.rows_read, (unsigned long long)r->chunk.bytes_read);
        MHD_add_response_header(response, "X-ClickHouse-Summary", summary);
    }
    enum MHD_Result rc = MHD_queue_response(r->connection, 200, response);
    MHD_destroy_response(response);
    return rc;
}
