/* The control socket: several clients, blocking handlers, hang-ups, garbage, a stop in between. */
#include "test.h"

#include "base/queue.h"
#include "base/socket.h"
#include "ops/control.h"
#include "ops/control_request.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[64];
static struct control_server *server;

/* What the blocking handler waits on. */
static struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open, cancelled;
    int waiting, cancels;
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false, 0, 0};

static void gate_cancel(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&gate.lock);
    gate.cancelled = true;
    gate.cancels++;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

static enum status handle_wait(void *ctx, const struct control_request *request, json_t **ret,
                               struct error *err)
{
    (void)ctx, (void)ret;
    control_request_on_cancel(request, gate_cancel, NULL);
    pthread_mutex_lock(&gate.lock);
    gate.waiting++;
    pthread_cond_broadcast(&gate.changed);
    while (!gate.open && !gate.cancelled)
        pthread_cond_wait(&gate.changed, &gate.lock);
    bool cancelled = gate.cancelled;
    gate.waiting--;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
    control_request_on_cancel(request, NULL, NULL);
    return cancelled ? error_set(err, ERR_CANCELLED, "stopped waiting") : OK;
}

static enum status handle_echo(void *ctx, const struct control_request *request, json_t **ret,
                               struct error *err)
{
    (void)err;
    *ret = json_pack("{s:s, s:O}", "ctx", (const char *)ctx, "body", request->body);
    return OK;
}

static enum status handle_fail(void *ctx, const struct control_request *request, json_t **ret,
                               struct error *err)
{
    (void)ctx, (void)request, (void)ret;
    return error_set(err, ERR_CONFIG, "bad \"thing\"\nwith \xff in it");
}

static int setup(void **state)
{
    static const struct control_verb verbs[] = {
        {"wait", handle_wait}, {"echo", handle_echo}, {"fail", handle_fail}};
    static char ctx[] = "context";
    struct error err = {0};
    (void)state;
    gate.open = gate.cancelled = false;
    gate.waiting = gate.cancels = 0;
    snprintf(path, sizeof path, "/tmp/walshadow-control-%d.sock", (int)getpid());
    if (control_server_start(path, verbs, 3, ctx, &server, &err) != OK) {
        print_error("%s\n", err.message);
        return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    control_server_stop(server);
    server = NULL;
    return access(path, F_OK) == 0 ? -1 : 0;
}

static enum status call(const char *verb, json_t **ret, struct error *err)
{
    json_t *request = json_pack("{s:s}", "verb", verb);
    enum status st = control_call(path, request, 5000, ret, err);
    json_decref(request);
    return st;
}

static void test_call(void **state)
{
    (void)state;
    struct error err = {0};
    struct stat st;
    json_t *result = NULL;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_ok(call("echo", &result, &err));
    assert_string_equal(json_string_value(json_object_get(result, "ctx")), "context");
    json_decref(result);
    assert_int_equal(call("fail", &result, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "bad \"thing\"\nwith ?"));
    assert_int_equal(call("nosuch", &result, &err), ERR_DATA);
    assert_non_null(strstr(err.message, "unknown verb \"nosuch\""));
}

static void *waiter(void *arg)
{
    struct error err = {0};
    json_t *result = NULL;
    enum status *ret = arg;
    *ret = call("wait", &result, &err);
    json_decref(result);
    return NULL;
}

static void await_waiting(int n)
{
    pthread_mutex_lock(&gate.lock);
    while (gate.waiting != n)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static void test_blocking_handlers_do_not_hold_others(void **state)
{
    (void)state;
    struct error err = {0};
    pthread_t threads[8];
    enum status results[8];
    json_t *result = NULL;
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, waiter, &results[i]), 0);
    await_waiting(8);
    assert_ok(call("echo", &result, &err));
    json_decref(result);
    pthread_mutex_lock(&gate.lock);
    gate.open = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(results[i], OK);
    }
}

static void connect_raw(struct stream *s)
{
    struct error err = {0};
    memset(s, 0, sizeof *s);
    assert_ok(socket_connect_unix(path, clock_now_ns() + 5000000000u, s, &err));
}

static void test_hang_up_cancels(void **state)
{
    (void)state;
    struct error err = {0};
    struct stream s;
    connect_raw(&s);
    assert_ok(stream_write(&s, "{\"verb\":\"wait\"}\n", 16, STREAM_NO_DEADLINE, &err));
    await_waiting(1);
    stream_close(&s);
    await_waiting(0);
    assert_int_equal(gate.cancels, 1);
}

static void test_stop_cancels(void **state)
{
    (void)state;
    pthread_t thread;
    enum status result;
    assert_int_equal(pthread_create(&thread, NULL, waiter, &result), 0);
    await_waiting(1);
    control_server_stop(server);
    server = NULL;
    pthread_join(thread, NULL);
    assert_int_equal(gate.cancels, 1);
    assert_true(result == ERR_CANCELLED || result == ERR_RETRY);
}

/* Sends bytes, returns the first reply line (or "" if the server closed). */
static void exchange(const void *data, size_t len, char *reply, size_t cap)
{
    struct error err = {0};
    struct stream s;
    size_t have = 0, n = 1;
    connect_raw(&s);
    enum status st = stream_write(&s, data, len, clock_now_ns() + 5000000000u, &err);
    (void)st; /* the server may have closed already */
    while (n > 0 && have + 1 < cap && memchr(reply, '\n', have) == NULL &&
           stream_read(&s, reply + have, cap - 1 - have, clock_now_ns() + 5000000000u, &n, &err) ==
               OK)
        have += n;
    reply[have] = '\0';
    stream_close(&s);
}

static void test_garbage(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "\n",
        "hello\n",
        "[]\n",
        "{}\n",
        "{\"verb\":5}\n",
        "{\"verb\":\"\"}\n",
        "{\"verb\":\"echo\",\"verb\":\"echo\"}\n",
        "{\"verb\":\"\\u0000\"}\n",
        "\"\xff\xfe\"\n",
        "GET / HTTP/1.1\r\n\r\n",
        "{\"verb\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}\n"};
    char reply[1000];
    for (size_t i = 0; i < LENGTH(lines); i++) {
        exchange(lines[i], strlen(lines[i]), reply, sizeof reply);
        if (strstr(reply, "\"ok\":false") == NULL || strstr(reply, "\"kind\":\"data\"") == NULL)
            fail_msg("%s gave %s", lines[i], reply);
    }
    size_t n = CONTROL_REQUEST_MAX + 1000;
    char *big = malloc(n);
    memset(big, '[', n);
    exchange(big, n, reply, sizeof reply);
    big[n - 1] = '\n';
    exchange(big, n, reply, sizeof reply);
    free(big);
    /* and it still answers */
    struct error err = {0};
    json_t *result = NULL;
    assert_ok(call("echo", &result, &err));
    json_decref(result);
}

static void test_two_requests_and_a_split_one(void **state)
{
    (void)state;
    struct error err = {0};
    struct stream s;
    char reply[2000];
    size_t have = 0, lines = 0, n;
    connect_raw(&s);
    assert_ok(stream_write(&s, "{\"verb\":\"echo\"}\n{\"ve", 20, STREAM_NO_DEADLINE, &err));
    assert_ok(stream_write(&s, "rb\":\"echo\",\"n\":2}\n", 18, STREAM_NO_DEADLINE, &err));
    while (lines < 2) {
        assert_ok(stream_read(&s, reply + have, sizeof reply - 1 - have,
                              clock_now_ns() + 5000000000u, &n, &err));
        assert_true(n > 0);
        have += n;
        lines = 0;
        for (size_t i = 0; i < have; i++)
            lines += reply[i] == '\n';
    }
    reply[have] = '\0';
    assert_non_null(strstr(reply, "\"n\":2"));
    stream_close(&s);
}

static void test_too_many_clients(void **state)
{
    (void)state;
    struct stream s[CONTROL_CLIENTS_MAX + 1];
    struct error err = {0};
    char reply[300] = "";
    size_t n;
    for (size_t i = 0; i < LENGTH(s); i++) {
        connect_raw(&s[i]);
        if (i < CONTROL_CLIENTS_MAX) { /* an answer: this one is surely counted */
            assert_ok(stream_write(&s[i], "{}\n", 3, STREAM_NO_DEADLINE, &err));
            assert_ok(stream_read(&s[i], reply, sizeof reply - 1, clock_now_ns() + 5000000000u, &n,
                                  &err));
        }
    }
    assert_ok(stream_read(&s[CONTROL_CLIENTS_MAX], reply, sizeof reply - 1,
                          clock_now_ns() + 5000000000u, &n, &err));
    reply[n] = '\0';
    assert_non_null(strstr(reply, "\"kind\":\"retry\""));
    for (size_t i = 0; i < LENGTH(s); i++)
        stream_close(&s[i]);
}

static void test_second_server_is_refused(void **state)
{
    (void)state;
    struct error err = {0};
    struct control_server *second = NULL;
    struct control_verb verb = {"echo", handle_echo};
    assert_int_equal(control_server_start(path, &verb, 1, NULL, &second, &err), ERR_CONFIG);
}

static void test_nobody_there(void **state)
{
    (void)state;
    struct error err = {0};
    json_t *result = NULL, *request = json_pack("{s:s}", "verb", "status");
    assert_int_equal(control_call("/nonexistent/control.sock", request, 1000, &result, &err),
                     ERR_RETRY);
    assert_non_null(strstr(err.message, "no walshadow runs"));
    json_decref(request);
    assert_int_equal(control_reply_parse("{\"ok\":1}", 8, &result, &err), ERR_DATA);
    assert_int_equal(control_reply_parse("nope", 4, &result, &err), ERR_DATA);
    assert_int_equal(control_reply_parse("{\"ok\":false}", 12, &result, &err), ERR_BUG);
}

#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SERVER(test_call),
        WITH_SERVER(test_blocking_handlers_do_not_hold_others),
        WITH_SERVER(test_hang_up_cancels),
        WITH_SERVER(test_stop_cancels),
        WITH_SERVER(test_garbage),
        WITH_SERVER(test_two_requests_and_a_split_one),
        WITH_SERVER(test_too_many_clients),
        WITH_SERVER(test_second_server_is_refused),
        cmocka_unit_test(test_nobody_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
