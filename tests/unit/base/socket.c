/* Addresses, listening, connecting, deadlines and cancelling. */
#include "test.h"

#include "base/queue.h"
#include "base/socket.h"

#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static struct error err;
static char path[100];

static void test_addresses(void **state)
{
    (void)state;
    struct socket_address a;
    assert_ok(socket_address_parse("unix:/tmp/x.sock", &a, &err));
    assert_true(a.is_unix);
    assert_string_equal(a.path, "/tmp/x.sock");
    assert_ok(socket_address_parse("tcp:127.0.0.1:9000", &a, &err));
    assert_string_equal(a.host, "127.0.0.1");
    assert_int_equal(a.port, 9000);
    assert_ok(socket_address_parse("[::1]:0", &a, &err));
    assert_string_equal(a.host, "::1");
    static const char *const bad[] = {"",           "9000",    "host",    "host:", "host:x",
                                      "host:70000", "host:-1", "host:1x", "unix:", "host: 1"};
    for (size_t i = 0; i < LENGTH(bad); i++)
        assert_int_equal(socket_address_parse(bad[i], &a, &err), ERR_CONFIG);
    char longer[300] = "unix:/";
    memset(longer + 6, 'a', 200);
    assert_int_equal(socket_address_parse(longer, &a, &err), ERR_CONFIG);
}

static void exchange(struct stream *client, struct stream *server)
{
    char data[8];
    size_t n;
    assert_ok(stream_write(client, "hello", 5, clock_now_ns() + 1000000000, &err));
    assert_ok(stream_read(server, data, sizeof data, clock_now_ns() + 1000000000, &n, &err));
    assert_int_equal(n, 5);
    assert_memory_equal(data, "hello", 5);
    stream_close(client);
    assert_ok(stream_read(server, data, sizeof data, clock_now_ns() + 1000000000, &n, &err));
    assert_int_equal(n, 0);
    stream_close(server);
    stream_close(server); /* again: fine */
}

static void test_unix(void **state)
{
    (void)state;
    struct socket_address a = {.is_unix = true};
    struct stream client, server;
    struct stat st;
    int fd, second;
    snprintf(a.path, sizeof a.path, "%s", path);
    assert_ok(socket_listen(&a, &fd, NULL, &err));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(socket_listen(&a, &second, NULL, &err), ERR_CONFIG); /* in use */
    /* the question whether it is in use was a connection too */
    assert_ok(socket_accept(fd, -1, &server, &err));
    stream_close(&server);
    assert_ok(socket_connect_unix(path, clock_now_ns() + 1000000000, &client, &err));
    assert_ok(socket_accept(fd, -1, &server, &err));
    exchange(&client, &server);
    close(fd);
    assert_false(socket_unix_is_alive(path));
    assert_ok(socket_listen(&a, &fd, NULL, &err)); /* left over: replaced */
    close(fd);
    unlink(path);
    assert_int_equal(socket_connect_unix(path, 0, &client, &err), ERR_RETRY);
}

static void test_tcp(void **state)
{
    (void)state;
    struct socket_address a = {.host = "127.0.0.1"};
    struct stream client, server;
    uint16_t port;
    int fd, second;
    assert_ok(socket_listen(&a, &fd, &port, &err));
    assert_true(port > 0);
    a.port = port;
    assert_int_equal(socket_listen(&a, &second, NULL, &err), ERR_CONFIG);
    assert_ok(socket_connect_tcp("localhost", port, clock_now_ns() + 1000000000, &client, &err));
    assert_ok(socket_accept(fd, -1, &server, &err));
    exchange(&client, &server);
    close(fd);
    assert_int_equal(
        socket_connect_tcp("127.0.0.1", port, clock_now_ns() + 1000000000, &client, &err),
        ERR_RETRY);
}

static void pair(struct stream *a, struct stream *b)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    stream_init(a, fds[0], "a");
    stream_init(b, fds[1], "b");
}

static void test_deadlines(void **state)
{
    (void)state;
    struct stream a, b;
    char data[100];
    size_t n;
    pair(&a, &b);
    uint64_t begin = clock_now_ns();
    assert_int_equal(stream_read(&a, data, sizeof data, begin + 50000000, &n, &err), ERR_RETRY);
    assert_int_equal(err.sys_errno, ETIMEDOUT);
    assert_true(clock_now_ns() - begin >= 50000000);
    static char much[1 << 20];
    enum status status = OK;
    for (int i = 0; i < 100 && status == OK; i++) /* nobody reads */
        status = stream_write(&a, much, sizeof much, clock_now_ns() + 20000000, &err);
    assert_int_equal(status, ERR_RETRY);
    stream_close(&b);
    assert_int_equal(stream_write(&a, much, 1, clock_now_ns() + 20000000, &err), ERR_RETRY);
    stream_close(&a);
}

static void *cancel(void *s)
{
    usleep(50000);
    stream_cancel(s);
    return NULL;
}

static void test_cancel(void **state)
{
    (void)state;
    struct stream a, b;
    pthread_t thread;
    char data[10];
    size_t n;
    pair(&a, &b);
    assert_int_equal(pthread_create(&thread, NULL, cancel, &a), 0);
    assert_int_equal(stream_read(&a, data, sizeof data, STREAM_NO_DEADLINE, &n, &err),
                     ERR_CANCELLED);
    pthread_join(thread, NULL);
    assert_int_equal(stream_write(&a, data, sizeof data, STREAM_NO_DEADLINE, &err), ERR_CANCELLED);
    stream_close(&a);
    stream_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses), cmocka_unit_test(test_unix),   cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_deadlines), cmocka_unit_test(test_cancel),
    };
    snprintf(path, sizeof path, "/tmp/test_socket.%d", (int)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
