/* Children: their output, their end, what they inherit, and that they go when asked. */
#include "test.h"

#include "base/child.h"
#include "base/queue.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static struct error err;

static void start(struct child *c, const char *script, struct child_options options)
{
    const char *argv[] = {"sh", "-c", script, NULL};
    options.argv = argv;
    assert_ok(child_start(c, &options, &err));
    assert_true(c->pid > 0);
}

static void wait_end(struct child *c)
{
    bool ended = false;
    assert_ok(child_wait(c, clock_now_ns() + 10000000000u, &ended, &err));
    assert_true(ended);
    assert_int_equal(c->pid, 0);
}

static void test_exit_and_output(void **state)
{
    (void)state;
    struct child c;
    char text[80];
    start(&c, "echo first; echo last words >&2; exit 3",
          (struct child_options){.log_prefix = "test", .death_signal = SIGKILL});
    wait_end(&c);
    assert_string_equal(child_status_text(c.wait_status, text, sizeof text), "exit code 3");
    assert_string_equal(c.last_line, "last words");
}

static void test_cannot_execute(void **state)
{
    (void)state;
    struct child c;
    const char *argv[] = {"/nonexistent/program", NULL};
    struct child_options options = {.argv = argv};
    assert_int_equal(child_start(&c, &options, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "/nonexistent/program"));
    assert_int_equal(c.pid, 0);
}

/* Only 0, 1, 2 and the control pipe: other descriptors of ours would keep sockets and locks alive.
 */
static void test_descriptors(void **state)
{
    (void)state;
    struct child c;
    /* 3 is the directory that the shell lists */
    start(&c, "for f in /proc/$$/fd/*; do printf '%s ' ${f##*/}; done; echo",
          (struct child_options){.log_prefix = "test", .control_fd = 7});
    wait_end(&c);
    assert_string_equal(c.last_line, "0 1 2 3 7 ");
}

static void test_control_pipe(void **state)
{
    (void)state;
    struct child c;
    bool ended = true;
    start(&c, "read line <&7; echo gone",
          (struct child_options){.log_prefix = "test", .control_fd = 7});
    assert_ok(child_wait(&c, clock_now_ns() + 100000000, &ended, &err));
    assert_false(ended);
    close(c.control_write);
    c.control_write = -1;
    wait_end(&c);
    assert_string_equal(c.last_line, "gone");
}

static bool ignores_sigterm(pid_t pid)
{
    char path[64];
    char status[4096];
    FILE *f;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    f = fopen(path, "r");
    assert_non_null(f);
    status[fread(status, 1, sizeof status - 1, f)] = '\0';
    fclose(f);
    bool found = strstr(status, "SigIgn:\t0000000000004000") != NULL;
    return found;
}

static void test_stop(void **state)
{
    (void)state;
    struct child c;
    uint64_t begin = clock_now_ns();
    start(&c, "exec sleep 100", (struct child_options){.death_signal = SIGKILL});
    child_stop(&c, SIGTERM, 5000);
    assert_int_equal(WTERMSIG(c.wait_status), SIGTERM);
    /* one that does not listen */
    start(&c, "trap '' TERM; while :; do sleep 0.05; done",
          (struct child_options){.log_prefix = "test"});
    for (int i = 0; i < 100 && !ignores_sigterm(c.pid); i++)
        usleep(20000);
    child_stop(&c, SIGTERM, 200);
    assert_int_equal(WTERMSIG(c.wait_status), SIGKILL);
    child_stop(&c, SIGTERM, 200); /* again: fine */
    assert_true(clock_now_ns() - begin < 8000000000u);
}

static void test_signals_are_default(void **state)
{
    (void)state;
    struct child c;
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    signal(SIGPIPE, SIG_IGN);
    start(&c, "grep -E 'Sig(Blk|Ign)' /proc/$$/status | tr -d '\\n\\t'",
          (struct child_options){.log_prefix = "test"});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    wait_end(&c);
    assert_string_equal(c.last_line, "SigBlk:0000000000000000SigIgn:0000000000000000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exit_and_output),
        cmocka_unit_test(test_cannot_execute),
        cmocka_unit_test(test_descriptors),
        cmocka_unit_test(test_control_pipe),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_signals_are_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
