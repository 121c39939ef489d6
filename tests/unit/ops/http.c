/* The HTTP endpoint over a real socket: paths, authentication, what is refused, and the way to the
 * engine with a stand-in that speaks each kind of body. */
#include "test.h"

#include "base/queue.h"
#include "base/socket.h"
#include "ops/http.h"
#include "ops/http_client.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

static char engine_path[64];
static bool ready, has_engine;

static json_t *get_status(void *ctx)
{
    (void)ctx;
    return json_pack("{s:s}", "state", "streaming");
}

static void get_metrics(void *ctx, struct buf *out)
{
    (void)ctx;
    buf_printf(out, "walshadow_x 1\n");
}

static bool get_ready(void *ctx, char *why, size_t cap)
{
    (void)ctx;
    snprintf(why, cap, "bootstrapping");
    return ready;
}

static bool get_engine(void *ctx, char *path, size_t cap)
{
    (void)ctx;
    snprintf(path, cap, "%s", engine_path);
    return has_engine;
}

static struct http_server *start(const char *user, const char *password)
{
    struct error err = {0};
    struct http_server *server = NULL;
    struct http_options options = {.host = "127.0.0.1",
                                   .user = user,
                                   .password = password,
                                   .status = get_status,
                                   .metrics = get_metrics,
                                   .ready = get_ready,
                                   .engine_socket = get_engine};
    assert_ok(http_server_start(&options, &server, &err));
    return server;
}

/* Sends text, gives everything that comes back. */
static void exchange(const struct http_server *server, const char *request, struct buf *ret)
{
    struct error err = {0};
    struct stream s = {0};
    uint64_t deadline = clock_now_ns() + UINT64_C(10000000000);
    const char *port = strrchr(http_server_address(server), ':') + 1;
    size_t n = 1;
    buf_reset(ret);
    assert_ok(socket_connect_tcp("127.0.0.1", (uint16_t)atoi(port), deadline, &s, &err));
    assert_ok(stream_write(&s, request, strlen(request), deadline, &err));
    while (n > 0) {
        uint8_t *at = buf_reserve(ret, 65536);
        if (stream_read(&s, at, 65536, deadline, &n, &err) != OK)
            break;
        ret->len += n;
    }
    stream_close(&s);
    buf_cstr(ret);
}

static void get(const struct http_server *server, const char *path, struct buf *ret)
{
    CLEANUP_FREE char *request =
        xasprintf("GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path);
    exchange(server, request, ret);
}

static void expect(const struct buf *reply, const char *code, const char *says)
{
    const char *text = (const char *)reply->data;
    if (strncmp(text, "HTTP/1.1 ", 9) != 0 || strncmp(text + 9, code, 3) != 0 ||
        strstr(text, says) == NULL)
        fail_msg("not %s with \"%s\": %s", code, says, text);
}

static void test_paths(void **state)
{
    (void)state;
    CLEANUP_BUF struct buf r = {0};
    struct http_server *server = start("", "");
    ready = has_engine = false;
    get(server, "/metrics", &r);
    expect(&r, "200", "\r\n\r\nwalshadow_x 1\n");
    get(server, "/healthz", &r);
    expect(&r, "200", "ok");
    get(server, "/readyz", &r);
    expect(&r, "503", "not ready: bootstrapping");
    ready = true;
    get(server, "/readyz", &r);
    expect(&r, "200", "ready");
    get(server, "/status", &r);
    expect(&r, "200", "\"state\": \"streaming\"");
    get(server, "/?query=SELECT+1", &r);
    expect(&r, "404", "chdb:");
    exchange(server, "DELETE /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &r);
    expect(&r, "405", "only");
    exchange(server, "\x16\x03\x01garbage\r\n\r\n", &r); /* a TLS hello, say */
    get(server, "/healthz", &r);
    expect(&r, "200", "ok");
    http_server_stop(server);
}

static void test_authentication(void **state)
{
    (void)state;
    CLEANUP_BUF struct buf r = {0};
    struct http_server *server = start("me", "secret");
    get(server, "/metrics", &r);
    expect(&r, "401", "authentication required");
    exchange(server, /* me:wrong */
             "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
             "Authorization: Basic bWU6d3Jvbmc=\r\n\r\n",
             &r);
    expect(&r, "401", "");
    exchange(server, /* me:secret */
             "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
             "Authorization: Basic bWU6c2VjcmV0\r\n\r\n",
             &r);
    expect(&r, "200", "walshadow_x");
    http_server_stop(server);
}

static void test_refused_binds(void **state)
{
    (void)state;
    struct error err = {0};
    struct http_server *first = start("", ""), *second = NULL;
    struct http_options options = {.host = "127.0.0.1", .user = "", .password = ""};
    options.port = (uint16_t)atoi(strrchr(http_server_address(first), ':') + 1);
    assert_int_equal(http_server_start(&options, &second, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "in use"));
    options.host = "0.0.0.0";
    options.port = 0;
    assert_int_equal(http_server_start(&options, &second, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "not loopback"));
    options.host = "no such host";
    assert_int_equal(http_server_start(&options, &second, &err), ERR_CONFIG);
    http_server_stop(first);
}

/* ---- the engine's stand-in: one connection, a canned reply, keeps the request ---- */

static struct stub {
    int fd;
    const char *reply;
    struct buf request;
} stub;

static void *stub_main(void *arg)
{
    struct error err = {0};
    struct stream s = {0};
    uint64_t deadline = clock_now_ns() + UINT64_C(10000000000);
    size_t n;
    (void)arg;
    if (socket_accept(stub.fd, -1, &s, &err) != OK)
        return NULL;
    do {
        uint8_t *at = buf_reserve(&stub.request, 4096);
        if (stream_read(&s, at, 4096, deadline, &n, &err) != OK)
            break;
        stub.request.len += n;
    } while (strstr(buf_cstr(&stub.request), "\r\n\r\n") == NULL);
    if (stream_write(&s, stub.reply, strlen(stub.reply), deadline, &err) != OK)
        print_error("%s\n", err.message);
    stream_close(&s);
    return NULL;
}

static pthread_t stub_start(const char *reply)
{
    struct error err = {0};
    struct socket_address address = {.is_unix = true};
    pthread_t thread;
    buf_reset(&stub.request);
    stub.reply = reply;
    snprintf(address.path, sizeof address.path, "%s", engine_path);
    assert_ok(socket_listen(&address, &stub.fd, NULL, &err));
    assert_int_equal(pthread_create(&thread, NULL, stub_main, NULL), 0);
    return thread;
}

static void stub_end(pthread_t thread)
{
    pthread_join(thread, NULL);
    close(stub.fd);
    unlink(engine_path);
}

static void test_proxy(void **state)
{
    (void)state;
    CLEANUP_BUF struct buf r = {0};
    struct http_server *server = start("", "");
    has_engine = true;
    pthread_t thread = stub_start("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
                                  "Content-Type: text/tab-separated-values\r\n"
                                  "X-ClickHouse-Format: TSV\r\nX-Secret: no\r\n\r\n"
                                  "3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\nTrailer: x\r\n\r\n");
    exchange(server,
             "GET /path%20x?query=SELECT%20%27a%26b%27&max=1 HTTP/1.0\r\nHost: x\r\n"
             "Authorization: Basic bWU6c2VjcmV0\r\nX-ClickHouse-Format: CSV\r\n\r\n",
             &r);
    expect(&r, "200", "\r\n\r\nabcde");
    assert_non_null(strstr((char *)r.data, "X-ClickHouse-Format: TSV"));
    assert_null(strstr((char *)r.data, "X-Secret"));
    stub_end(thread);
    const char *request = buf_cstr(&stub.request);
    assert_non_null(strstr(request, "GET /path%20x?query=SELECT%20%27a%26b%27&max=1 HTTP/1.1\r\n"));
    assert_non_null(strstr(request, "X-ClickHouse-Format: CSV\r\n"));
    assert_null(strstr(request, "Authorization"));
    /* the engine is down */
    get(server, "/?query=SELECT+1", &r);
    expect(&r, "502", "does not answer");
    /* the engine speaks nonsense */
    thread = stub_start("hello\r\n\r\n");
    get(server, "/?query=SELECT+1", &r);
    expect(&r, "502", "not an HTTP reply");
    stub_end(thread);
    http_server_stop(server);
    buf_free(&stub.request);
}

static enum status fetch(const char *reply, struct buf *ret, struct error *err)
{
    struct http_call *call = NULL;
    pthread_t thread = stub_start(reply);
    enum status st = http_call_open(engine_path, "POST", "/", NULL, "SELECT 1", 8, &call, err);
    if (st == OK)
        st = http_call_read_all(call, 1000, ret, err);
    http_call_close(call);
    stub_end(thread);
    return st;
}

static void test_client_bodies(void **state)
{
    static const struct sample {
        const char *reply, *body; /* NULL = an error */
    } samples[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef", "abc"},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", "x"},
        {"HTTP/1.0 500 Oops\r\n\r\nto the end", "to the end"},
        {"HTTP/1.1 204 No Content\r\n\r\n", ""},
        {"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", "a"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\nabc", NULL},
        {"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc", NULL},
        {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nabc", NULL},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", NULL},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc", NULL},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n", NULL},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", NULL},
        {"HTTP/1.1 200 OK\r\n", NULL},
        {"SSH-2.0\r\n\r\n", NULL},
        {"", NULL},
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(samples); i++) {
        struct error err = {0};
        CLEANUP_BUF struct buf body = {0};
        enum status st = fetch(samples[i].reply, &body, &err);
        if ((st == OK) != (samples[i].body != NULL))
            fail_msg("%s: status %d %s", samples[i].reply, st, err.message);
        if (st == OK)
            assert_string_equal(buf_cstr(&body), samples[i].body);
    }
    buf_free(&stub.request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),         cmocka_unit_test(test_authentication),
        cmocka_unit_test(test_refused_binds), cmocka_unit_test(test_proxy),
        cmocka_unit_test(test_client_bodies),
    };
    snprintf(engine_path, sizeof engine_path, "/tmp/walshadow-http-%d.sock", (int)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
