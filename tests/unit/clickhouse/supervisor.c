/* The supervisor with an engine of the test's own: this program again, with the verb "engine". */
#include "test.h"

#include "base/queue.h"
#include "base/socket.h"
#include "clickhouse/client.h"
#include "clickhouse/supervisor.h"
#include "native/packet.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static struct error err;
static char socket_path[100];

static const char *option(int argc, char **argv, const char *name)
{
    for (int i = 2; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return "";
}

/* Says hello to everyone; leaves when its control pipe ends. --path says how it behaves. */
static int engine_main(int argc, char **argv)
{
    struct socket_address a;
    int fd, control = atoi(option(argc, argv, "--control-fd"));
    const char *how = option(argc, argv, "--path");
    if (strcmp(how, "/dies") == 0) {
        fprintf(stderr, "no room on the disk\n");
        return 1;
    }
    if (strcmp(how, "/slow") == 0)
        usleep(300000);
    if (strcmp(how, "/silent") == 0) {
        for (;;)
            pause();
    }
    if (strcmp(how, "/stubborn") == 0)
        signal(SIGTERM, SIG_IGN);
    if (strcmp(option(argc, argv, "--memory-max"), "1000000") != 0 ||
        socket_address_parse(option(argc, argv, "--listen"), &a, &err) != OK ||
        socket_listen(&a, &fd, NULL, &err) != OK)
        return 2;
    /* the stubborn one does not watch its pipe either */
    for (struct stream s;
         socket_accept(fd, strcmp(how, "/stubborn") == 0 ? -1 : control, &s, &err) == OK;) {
        struct buf out = {0};
        struct packet_server_hello hello = {.name = str_of("ClickHouse"),
                                            .major = 26,
                                            .revision = PACKET_REVISION,
                                            .timezone = str_of("UTC"),
                                            .display_name = str_of("e")};
        packet_put_server_hello(&out, PACKET_REVISION, &hello);
        char addendum[1000];
        size_t n = 1;
        /* an answer before the client's own hello would be out of order */
        enum status ignored =
            stream_read(&s, addendum, sizeof addendum, STREAM_NO_DEADLINE, &n, NULL);
        ignored = stream_write(&s, out.data, out.len, STREAM_NO_DEADLINE, NULL);
        (void)ignored;
        while (n > 0 &&
               stream_read(&s, addendum, sizeof addendum, STREAM_NO_DEADLINE, &n, NULL) == OK)
            continue;
        stream_close(&s);
        buf_free(&out);
    }
    return 0;
}

static struct ch_supervisor *start(const char *how)
{
    struct ch_supervisor *s = NULL;
    struct ch_supervisor_options options = {.engine_bin = "/proc/self/exe",
                                            .path = how,
                                            .listen = socket_path,
                                            .memory_max = 1000000,
                                            .stop_ms = 300};
    assert_ok(ch_supervisor_start(&options, &s, &err));
    return s;
}

static void test_start_and_stop(void **state)
{
    (void)state;
    char text[400];
    struct ch_supervisor *s = start("/slow");
    assert_ok(ch_supervisor_wait(s, 1, &err));
    pid_t pid = ch_supervisor_pid(s);
    assert_true(pid > 0);
    assert_string_equal(ch_supervisor_state(s, text, sizeof text), "");
    struct ch_client *c;
    struct ch_endpoint ep = {.unix_path = socket_path};
    assert_ok(ch_client_open(&ep, &c, &err));
    ch_client_close(c);
    ch_supervisor_stop(s);
    assert_int_equal(kill(pid, 0), -1); /* reaped, not only signalled */
}

static void test_restart(void **state)
{
    (void)state;
    struct ch_supervisor *s = start("/plain");
    assert_ok(ch_supervisor_wait(s, 1, &err));
    pid_t first = ch_supervisor_pid(s);
    for (unsigned round = 1; round <= 2; round++) {
        pid_t before = ch_supervisor_pid(s);
        assert_int_equal(kill(before, SIGKILL), 0);
        for (int i = 0; i < 500 && (ch_supervisor_pid(s) == before || ch_supervisor_pid(s) == 0);
             i++)
            usleep(10000);
        assert_ok(ch_supervisor_wait(s, 1, &err));
        assert_int_equal(ch_supervisor_restarts(s), round);
    }
    assert_int_not_equal(ch_supervisor_pid(s), first);
    ch_supervisor_stop(s);
}

static void *interrupt_main(void *arg)
{
    usleep(100000);
    ch_supervisor_interrupt(arg);
    return NULL;
}

/* A wait for an engine that never answers ends; one that runs is left alone. */
static void test_interrupt(void **state)
{
    pthread_t thread;
    (void)state;
    struct ch_supervisor *s = start("/silent");
    assert_int_equal(pthread_create(&thread, NULL, interrupt_main, s), 0);
    assert_int_equal(ch_supervisor_wait(s, 1, &err), ERR_CANCELLED);
    assert_int_equal(ch_supervisor_wait(s, 1, &err), ERR_CANCELLED); /* also later */
    pthread_join(thread, NULL);
    ch_supervisor_stop(s);
    s = start("/steady");
    assert_ok(ch_supervisor_wait(s, 1, &err));
    ch_supervisor_interrupt(s);
    usleep(50000);
    assert_true(ch_supervisor_pid(s) > 0);
    assert_int_equal(kill(ch_supervisor_pid(s), 0), 0);
    ch_supervisor_stop(s);
}

static void test_dies(void **state)
{
    (void)state;
    char text[400];
    struct ch_supervisor *s = start("/dies");
    assert_int_equal(ch_supervisor_wait(s, 2, &err), ERR_RETRY);
    assert_non_null(strstr(err.message, "exit code 1"));
    assert_non_null(strstr(err.message, "no room on the disk"));
    assert_non_null(strstr(ch_supervisor_state(s, text, sizeof text), "no room on the disk"));
    uint64_t begin = clock_now_ns();
    ch_supervisor_stop(s); /* does not wait for the end of the backoff */
    assert_true(clock_now_ns() - begin < 1000000000);
}

static void test_missing_program(void **state)
{
    (void)state;
    struct ch_supervisor *s;
    struct ch_supervisor_options options = {
        .engine_bin = "/nonexistent", .path = "/x", .listen = socket_path};
    assert_ok(ch_supervisor_start(&options, &s, &err));
    assert_int_equal(ch_supervisor_wait(s, 1, &err), ERR_CONFIG);
    ch_supervisor_stop(s);
}

static void test_stubborn(void **state)
{
    (void)state;
    struct ch_supervisor *s = start("/stubborn");
    assert_ok(ch_supervisor_wait(s, 1, &err));
    pid_t pid = ch_supervisor_pid(s);
    ch_supervisor_stop(s);
    assert_int_equal(kill(pid, 0), -1);
    ch_supervisor_stop(NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start_and_stop), cmocka_unit_test(test_restart),
        cmocka_unit_test(test_dies),           cmocka_unit_test(test_missing_program),
        cmocka_unit_test(test_stubborn),       cmocka_unit_test(test_interrupt),
    };
    if (argc > 1 && strcmp(argv[1], "engine") == 0)
        return engine_main(argc, argv);
    snprintf(socket_path, sizeof socket_path, "/tmp/test_supervisor.%d", (int)getpid());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(socket_path);
    return failed;
}
