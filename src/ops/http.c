/* GNU libmicrohttpd with a thread per connection: a slow client or a long engine query holds up
 * nobody. */
#include "ops/http.h"

#include "base/log.h"
#include "ops/http_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define CONNECTIONS_MAX 64
#define IDLE_TIMEOUT_S 60
#define BODY_MAX_BYTES (1u << 20) /* a query text; the engine's interface only reads */
#define PROXY_BLOCK 65536

struct http_server {
    struct http_options options;
    struct MHD_Daemon *daemon;
    char address[300];
    char *host, *user, *password;
    atomic_int proxied;
};

/* What a request has sent so far. */
struct http_request {
    struct buf body;
    bool too_large;
};

/* A reply that streams from the engine. */
struct proxy_reply {
    struct http_server *server;
    struct http_call *call;
};

static enum MHD_Result respond(struct MHD_Connection *connection, unsigned code, const char *type,
                               const void *data, size_t len)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, (void *)(uintptr_t)data, MHD_RESPMEM_MUST_COPY);
    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    enum MHD_Result r = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return r;
}

static enum MHD_Result respond_text(struct MHD_Connection *connection, unsigned code,
                                    const char *text)
{
    return respond(connection, code, "text/plain; charset=utf-8", text, strlen(text));
}

/* Equal without telling by its time how much of it is. */
static bool equal_constant_time(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    unsigned char diff = n != m;
    for (size_t i = 0; i < n; i++)
        diff |= (unsigned char)(a[i] ^ b[m == 0 ? 0 : i % m]);
    return diff == 0;
}

static bool is_authorised(const struct http_server *s, struct MHD_Connection *connection)
{
    if (s->password[0] == '\0')
        return true;
    char *password = NULL, *user = MHD_basic_auth_get_username_password(connection, &password);
    bool ok = false;
    if (user != NULL && password != NULL) {
        bool same_user = equal_constant_time(user, s->user);
        bool same_password = equal_constant_time(password, s->password);
        ok = same_user && same_password;
    }
    MHD_free(user);
    MHD_free(password);
    return ok;
}

static enum MHD_Result demand_password(struct MHD_Connection *connection)
{
    static const char text[] = "authentication required\n";
    struct MHD_Response *response = MHD_create_response_from_buffer(
        strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_PERSISTENT);
    enum MHD_Result r = MHD_queue_basic_auth_fail_response(connection, "walshadow", response);
    MHD_destroy_response(response);
    return r;
}

/* ---- our own paths ---- */

static enum MHD_Result serve_metrics(struct http_server *s, struct MHD_Connection *connection)
{
    CLEANUP_BUF struct buf out = {0};
    s->options.metrics(s->options.ctx, &out);
    return respond(connection, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", out.data,
                   out.len);
}

static enum MHD_Result serve_ready(struct http_server *s, struct MHD_Connection *connection)
{
    char why[300] = "";
    if (s->options.ready(s->options.ctx, why, sizeof why))
        return respond_text(connection, MHD_HTTP_OK, "ready\n");
    CLEANUP_FREE char *text = xasprintf("not ready: %s\n", why);
    return respond_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, text);
}

static enum MHD_Result serve_status(struct http_server *s, struct MHD_Connection *connection)
{
    json_t *status = s->options.status(s->options.ctx);
    char *text = json_dumps(status, JSON_INDENT(1));
    json_decref(status);
    if (text == NULL)
        return respond_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "no status\n");
    enum MHD_Result r = respond(connection, MHD_HTTP_OK, "application/json", text, strlen(text));
    free(text);
    return r;
}

/* ---- everything else: the engine ---- */

static ssize_t proxy_read(void *cls, uint64_t pos, char *data, size_t max)
{
    struct proxy_reply *p = cls;
    struct error err;
    size_t n;
    (void)pos;
    if (http_call_read(p->call, data, max, &n, &err) != OK) {
        log_warn("msg=\"reply of the engine was cut\" error=%s", LOG_Q(err.message));
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    return n > 0 ? (ssize_t)n : MHD_CONTENT_READER_END_OF_STREAM;
}

static void proxy_free(void *cls)
{
    struct proxy_reply *p = cls;
    http_call_close(p->call);
    atomic_fetch_sub(&p->server->proxied, 1);
    free(p);
}

static enum MHD_Result add_argument(void *cls, enum MHD_ValueKind kind, const char *key,
                                    const char *value)
{
    struct buf *out = cls;
    (void)kind;
    buf_put_u8(out, memchr(out->data, '?', out->len) == NULL ? '?' : '&');
    url_encode(out, key, strlen(key));
    if (value != NULL) {
        buf_put_u8(out, '=');
        url_encode(out, value, strlen(value));
    }
    return MHD_YES;
}

/* ClickHouse's own headers go through both ways; connection headers and our password do not. */
static bool passes(const char *name)
{
    return strncasecmp(name, "X-ClickHouse-", 13) == 0 || strcasecmp(name, "Content-Type") == 0 ||
           strcasecmp(name, "Accept") == 0;
}

static enum MHD_Result add_header(void *cls, enum MHD_ValueKind kind, const char *key,
                                  const char *value)
{
    (void)kind;
    if (value != NULL && passes(key))
        buf_printf(cls, "%s: %s\r\n", key, value);
    return MHD_YES;
}

static enum MHD_Result queue_proxy_reply(struct MHD_Connection *connection, struct proxy_reply *p)
{
    static const char *const back[] = {"Content-Type", "X-ClickHouse-Format",
                                       "X-ClickHouse-Query-Id", "X-ClickHouse-Exception-Code",
                                       "X-ClickHouse-Summary"};
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, PROXY_BLOCK, proxy_read, p, proxy_free);
    if (response == NULL) {
        proxy_free(p);
        return MHD_NO;
    }
    for (size_t i = 0; i < LENGTH(back); i++) {
        const char *value = http_call_header(p->call, back[i]);
        if (value != NULL)
            MHD_add_response_header(response, back[i], value);
    }
    enum MHD_Result r = MHD_queue_response(connection, (unsigned)http_call_code(p->call), response);
    MHD_destroy_response(response);
    return r;
}

static enum MHD_Result serve_engine(struct http_server *s, struct MHD_Connection *connection,
                                    const char *url, const char *method,
                                    const struct http_request *request)
{
    char socket[300];
    struct error err;
    CLEANUP_BUF struct buf target = {0}, headers = {0};
    if (s->options.engine_socket == NULL ||
        !s->options.engine_socket(s->options.ctx, socket, sizeof socket))
        return respond_text(connection, MHD_HTTP_NOT_FOUND,
                            "paths here: /metrics /healthz /readyz /status; queries need a chdb: "
                            "destination whose engine is up\n");
    if (atomic_fetch_add(&s->proxied, 1) >= HTTP_PROXY_MAX) {
        atomic_fetch_sub(&s->proxied, 1);
        return respond_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                            "too many queries at once, try again\n");
    }
    for (const char *c = url; *c != '\0'; c++) { /* MHD has decoded it */
        if (*c == '/')
            buf_put_u8(&target, '/');
        else
            url_encode(&target, c, 1);
    }
    MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, add_argument, &target);
    MHD_get_connection_values(connection, MHD_HEADER_KIND, add_header, &headers);
    struct proxy_reply *p = xcalloc(1, sizeof *p);
    p->server = s;
    if (http_call_open(socket, method, buf_cstr(&target), buf_cstr(&headers), request->body.data,
                       request->body.len, &p->call, &err) != OK) {
        proxy_free(p);
        CLEANUP_FREE char *text = xasprintf("the engine does not answer: %s\n", err.message);
        return respond_text(connection, MHD_HTTP_BAD_GATEWAY, text);
    }
    return queue_proxy_reply(connection, p);
}

/* ---- dispatch ---- */

static enum MHD_Result dispatch(struct http_server *s, struct MHD_Connection *connection,
                                const char *url, const char *method,
                                const struct http_request *request)
{
    bool get = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    if (!is_authorised(s, connection))
        return demand_password(connection);
    if (!get && strcmp(method, "POST") != 0)
        return respond_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET and POST only\n");
    if (request->too_large)
        return respond_text(connection, MHD_HTTP_CONTENT_TOO_LARGE, "the query is too long\n");
    if (strcmp(url, "/metrics") == 0 && get)
        return serve_metrics(s, connection);
    if (strcmp(url, "/healthz") == 0 && get)
        return respond_text(connection, MHD_HTTP_OK, "ok\n");
    if (strcmp(url, "/readyz") == 0 && get)
        return serve_ready(s, connection);
    if (strcmp(url, "/status") == 0 && get)
        return serve_status(s, connection);
    return serve_engine(s, connection, url, method, request);
}

/* Called at the head, for pieces of the body, and at the end. */
static enum MHD_Result handle(void *cls, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *data_len, void **state)
{
    struct http_request *request = *state;
    (void)version;
    if (request == NULL) {
        *state = xcalloc(1, sizeof *request);
        return MHD_YES;
    }
    if (*data_len > 0) {
        if (request->body.len + *data_len > BODY_MAX_BYTES)
            request->too_large = true;
        else
            buf_put(&request->body, data, *data_len);
        *data_len = 0;
        return MHD_YES;
    }
    return dispatch(cls, connection, url, method, request);
}

static void completed(void *cls, struct MHD_Connection *connection, void **state,
                      enum MHD_RequestTerminationCode code)
{
    struct http_request *request = *state;
    (void)cls, (void)connection, (void)code;
    if (request != NULL)
        buf_free(&request->body);
    free(request);
    *state = NULL;
}

/* ---- start and stop ---- */

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)address;
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    }
    const struct sockaddr_in6 *v6 = (const void *)address;
    return memcmp(&v6->sin6_addr, &in6addr_loopback, sizeof in6addr_loopback) == 0;
}

static struct MHD_Daemon *start_daemon(struct http_server *s, const struct sockaddr *address)
{
    unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
                     MHD_USE_POLL | MHD_USE_ITC |
                     (address->sa_family == AF_INET6 ? MHD_USE_IPv6 : 0);
    return MHD_start_daemon(flags, 0, NULL, NULL, handle, s, MHD_OPTION_SOCK_ADDR, address,
                            MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
                            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_TIMEOUT_S,
                            MHD_OPTION_NOTIFY_COMPLETED, completed, NULL, MHD_OPTION_END);
}

static enum status resolve_and_start(struct http_server *s, struct error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
    char port[8];
    snprintf(port, sizeof port, "%u", s->options.port);
    int rc = getaddrinfo(s->host, port, &hints, &list);
    if (rc != 0)
        return error_set(err, ERR_CONFIG, "http.bind: host \"%s\": %s", s->host, gai_strerror(rc));
    enum status st = OK;
    if (!is_loopback(list->ai_addr) && s->password[0] == '\0') {
        st = error_set(err, ERR_CONFIG,
                       "http.bind: %s is not loopback: set http.user and http.password", s->host);
    } else {
        errno = 0;
        s->daemon = start_daemon(s, list->ai_addr);
        if (s->daemon == NULL && errno == EADDRINUSE)
            st = error_set(
                err, ERR_CONFIG,
                "http.bind: %s:%s is in use: stop what listens there, or choose another port "
                "(0 = any)",
                s->host, port);
        else if (s->daemon == NULL)
            st = error_sys(err, ERR_CONFIG, "http.bind: cannot listen at %s:%s", s->host, port);
    }
    freeaddrinfo(list);
    return st;
}

enum status http_server_start(const struct http_options *options, struct http_server **ret,
                              struct error *err)
{
    struct http_server *s = xcalloc(1, sizeof *s);
    s->options = *options;
    s->host = xstrdup(options->host);
    s->user = xstrdup(options->user != NULL ? options->user : "");
    s->password = xstrdup(options->password != NULL ? options->password : "");
    enum status st = resolve_and_start(s, err);
    if (st != OK) {
        http_server_stop(s);
        return st;
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT);
    bool v6 = strchr(s->host, ':') != NULL;
    snprintf(s->address, sizeof s->address, v6 ? "[%s]:%u" : "%s:%u", s->host,
             info != NULL ? info->port : options->port);
    *ret = s;
    return OK;
}

const char *http_server_address(const struct http_server *s)
{
    return s->address;
}

void http_server_stop(struct http_server *s)
{
    if (s == NULL)
        return;
    if (s->daemon != NULL)
        MHD_stop_daemon(s->daemon);
    free(s->host);
    free(s->user);
    free(s->password);
    free(s);
}
