/* Sessions are lowered, the startup process is found beside the walreceiver by its title. */
#include "test.h"

#include "shadow/priority.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A process of its own session that sleeps under this title. */
static pid_t sleeper(const char *title)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setsid();
        execl("/bin/sleep", title, "60", NULL);
        _exit(127);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 0); /* closed by exec */
    close(ready[0]);
    return pid;
}

/* -1: the system has no such thing. */
static int session_niceness(pid_t pid)
{
    char path[64];
    int niceness = -1;
    snprintf(path, sizeof path, "/proc/%d/autogroup", (int)pid);
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return -1;
    if (fscanf(f, "/autogroup-%*d nice %d", &niceness) != 1)
        niceness = -1;
    fclose(f);
    return niceness;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void test_lower(void **state)
{
    (void)state;
    pid_t receiver = sleeper("postgres: walreceiver");
    pid_t other = sleeper("postgres: checkpointer");
    pid_t startup = sleeper("postgres: startup recovering 000000010000000000000001");
    enum priority_step step = PRIORITY_WALRECEIVER;
    for (int i = 0; i < 100 && step != PRIORITY_DONE; i++) { /* a change in 100 ms is allowed */
        struct timespec pause = {.tv_nsec = 50000000};
        shadow_priority_lower(receiver, &step);
        nanosleep(&pause, NULL);
    }
    assert_int_equal(step, PRIORITY_DONE);
    if (session_niceness(receiver) != -1) {
        assert_int_equal(session_niceness(receiver), SHADOW_NICENESS);
        assert_int_equal(session_niceness(startup), SHADOW_NICENESS);
        assert_int_equal(session_niceness(other), 0);
    }
    end(receiver);
    end(other);
    end(startup);
}

/* Whoever else connects: its own session is lowered, its parent's children are left alone. */
static void test_gone(void **state)
{
    (void)state;
    pid_t pid = sleeper("pg_receivewal");
    end(pid);
    enum priority_step step = PRIORITY_WALRECEIVER;
    shadow_priority_lower(pid, &step);
    shadow_priority_lower(pid, &step);
    assert_int_equal(step, PRIORITY_DONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lower),
        cmocka_unit_test(test_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
