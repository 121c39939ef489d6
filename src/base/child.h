/* Child processes that must not outlive us: the shadow server and the engine.
 *
 * Two ways tell a child that we are gone: PR_SET_PDEATHSIG, which the kernel sends when the
 * *thread* that started the child ends (so start children from a thread that lives as long as they
 * may), and a control pipe whose read end the child may watch for its end of file. */
#pragma once
#include "base/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct child_options {
    const char *const *argv;    /* NULL-terminated; argv[0] is a path, or looked up in PATH */
    const char *const *environ; /* NULL-terminated NAME=VALUE; NULL = ours */
    const char *directory;      /* working directory; NULL = ours */
    const char *log_prefix; /* not NULL: lines of stdout and stderr are logged as child=<prefix> */
    /* not NULL: also told of each of those lines, by the thread that logs them */
    void (*on_line)(void *ctx, const char *line);
    void *line_ctx;
    int death_signal; /* PR_SET_PDEATHSIG; 0 = none */
    int niceness;     /* > 0: so much lower a priority than ours */
    int control_fd;   /* > 2: the child finds the control pipe's read end there; 0 = none */
};

struct child {
    pid_t pid;         /* 0 = not running, or waited for */
    int control_write; /* closing it is the end of file the child watches; -1 = none */
    int log_fd;
    bool has_log_thread;
    pthread_t log_thread;
    char *log_prefix;
    void (*on_line)(void *ctx, const char *line);
    void *line_ctx;
    int wait_status;     /* of waitpid, once pid is 0 */
    char last_line[300]; /* of its output: why it went, for messages; read after the wait */
};

/* Starts the child: stdin is /dev/null, other descriptors stay ours (close-on-exec), signal
 * handlers and mask are the defaults. A program that cannot be executed is an error here,
 * ERR_CONFIG. */
enum status child_start(struct child *c, const struct child_options *options,
                        struct error *err) CHECKED;

/* Waits until it ends or the CLOCK_MONOTONIC deadline (ns; 0 = only look) passes: *ret_ended. */
enum status child_wait(struct child *c, uint64_t deadline_ns, bool *ret_ended,
                       struct error *err) CHECKED;

/* The same, and returns early when wake_fd (-1 = none) is readable. */
enum status child_wait_wake(struct child *c, uint64_t deadline_ns, int wake_fd, bool *ret_ended,
                            struct error *err) CHECKED;

/* Sends `signal`, waits up to timeout_ms, then SIGKILL; always reaps. Not running: fine. */
void child_stop(struct child *c, int signal, unsigned timeout_ms);

/* "exit code 1", "killed by signal 9 (Killed)": static per call in buf. */
const char *child_status_text(int wait_status, char *buf, size_t cap);
