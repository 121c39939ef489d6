#include "base/child.h"
#include "base/log.h"
#include "base/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* What the new process needs; prepared before fork, because between fork and exec in a threaded
 * process only async-signal-safe calls are allowed: no malloc, no stdio. */
struct launch {
    const struct child_options *options;
    char **env;
    int null_fd, log_write, control_read, report_write;
    pid_t parent;
};

static void __attribute__((noreturn)) report_and_exit(const struct launch *l)
{
    int code = errno;
    ssize_t ignored = write(l->report_write, &code, sizeof code);
    (void)ignored;
    _exit(127);
}

static void reset_signals(void)
{
    sigset_t none;
    for (int i = 1; i < NSIG; i++)
        signal(i, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* dup2 clears close-on-exec, except onto itself */
static int place_fd(int fd, int at)
{
    return fd == at ? fcntl(fd, F_SETFD, 0) : dup2(fd, at);
}

static void __attribute__((noreturn)) run_child(struct launch *l)
{
    const struct child_options *o = l->options;
    reset_signals();
    if (o->death_signal != 0 && prctl(PR_SET_PDEATHSIG, o->death_signal) != 0)
        report_and_exit(l);
    /* the parent may have died before prctl */
    if (o->death_signal != 0 && getppid() != l->parent)
        _exit(127);
    /* the place of the control pipe may be taken by one of our own descriptors: move those first */
    if (o->control_fd > 2 && l->report_write == o->control_fd &&
        (l->report_write = fcntl(l->report_write, F_DUPFD_CLOEXEC, o->control_fd + 1)) < 0)
        _exit(127);
    if (place_fd(l->null_fd, 0) < 0)
        report_and_exit(l);
    if (l->log_write >= 0 && (place_fd(l->log_write, 1) < 0 || place_fd(l->log_write, 2) < 0))
        report_and_exit(l);
    /* also what our own parent left open; a kernel before 5.11 knows the flag not and leaves those
     */
    syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC);
    if (l->control_read >= 0 && place_fd(l->control_read, o->control_fd) < 0)
        report_and_exit(l);
    if (o->directory != NULL && chdir(o->directory) != 0)
        report_and_exit(l);
    if (o->niceness > 0) {
        int now = nice(o->niceness); /* lowering the own priority is always allowed */
        (void)now;
    }
    execvpe(o->argv[0], (char *const *)o->argv, l->env);
    report_and_exit(l);
}

static void log_line(struct child *c, const char *line)
{
    if (line[0] == '\0')
        return;
    snprintf(c->last_line, sizeof c->last_line, "%.299s", line);
    log_info("child=%s msg=%s", c->log_prefix, LOG_Q(line));
    if (c->on_line != NULL)
        c->on_line(c->line_ctx, line);
}

/* Ends when the last holder of the pipe's write end is gone. */
static void *log_main(void *arg)
{
    struct child *c = arg;
    char line[1024];
    size_t len = 0;
    for (;;) {
        char chunk[4096];
        ssize_t got = read(c->log_fd, chunk, sizeof chunk);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        for (ssize_t i = 0; i < got; i++) {
            if (chunk[i] != '\n')
                line[len++] = chunk[i] == '\0' ? ' ' : chunk[i];
            if (chunk[i] == '\n' || len == sizeof line - 1) {
                line[len] = '\0';
                log_line(c, line);
                len = 0;
            }
        }
    }
    line[len] = '\0';
    log_line(c, line);
    return NULL;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static enum status open_pipe(int fds[2], struct error *err)
{
    if (pipe2(fds, O_CLOEXEC) == 0)
        return OK;
    fds[0] = fds[1] = -1;
    return error_sys(err, ERR_RETRY, "pipe");
}

struct pipes {
    int log[2], control[2], report[2], null_fd;
};

static void pipes_close(struct pipes *p)
{
    int *all[] = {&p->log[0],    &p->log[1],    &p->control[0], &p->control[1],
                  &p->report[0], &p->report[1], &p->null_fd};
    for (size_t i = 0; i < LENGTH(all); i++)
        close_fd(all[i]);
}

static enum status pipes_open(struct pipes *p, const struct child_options *o, struct error *err)
{
    TRY(open_pipe(p->report, err));
    if (o->log_prefix != NULL)
        TRY(open_pipe(p->log, err));
    if (o->control_fd > 2)
        TRY(open_pipe(p->control, err));
    p->null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return p->null_fd >= 0 ? OK : error_sys(err, ERR_RETRY, "open /dev/null");
}

/* All signals stay blocked across the fork, so that no handler of ours runs in the child. */
static pid_t fork_child(struct launch *l)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0)
        run_child(l);
    int saved = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = saved;
    return pid;
}

static enum status launch(struct child *c, const struct child_options *o, struct pipes *p,
                          struct error *err)
{
    int failure = 0;
    TRY(pipes_open(p, o, err));
    struct launch l = {.options = o,
                       .env = o->environ != NULL ? (char **)o->environ : environ,
                       .null_fd = p->null_fd,
                       .log_write = p->log[1],
                       .control_read = p->control[0],
                       .report_write = p->report[1],
                       .parent = getpid()};
    c->pid = fork_child(&l);
    if (c->pid < 0) {
        c->pid = 0;
        return error_sys(err, ERR_RETRY, "fork");
    }
    close_fd(&p->report[1]);
    ssize_t got;
    do
        got = read(p->report[0], &failure, sizeof failure);
    while (got < 0 && errno == EINTR);
    if (got == (ssize_t)sizeof failure) {
        while (waitpid(c->pid, &c->wait_status, 0) < 0 && errno == EINTR)
            continue;
        c->pid = 0;
        errno = failure;
        return error_sys(err, ERR_CONFIG, "start %s", o->argv[0]);
    }
    return OK;
}

enum status child_start(struct child *c, const struct child_options *options, struct error *err)
{
    struct pipes p = {{-1, -1}, {-1, -1}, {-1, -1}, -1};
    memset(c, 0, sizeof *c);
    c->control_write = c->log_fd = -1;
    enum status status = launch(c, options, &p, err);
    if (status == OK) {
        c->control_write = p.control[1];
        c->log_fd = p.log[0];
        p.control[1] = p.log[0] = -1;
        if (c->log_fd >= 0) {
            c->log_prefix = xstrdup(options->log_prefix);
            c->on_line = options->on_line;
            c->line_ctx = options->line_ctx;
            c->has_log_thread = pthread_create(&c->log_thread, NULL, log_main, c) == 0;
            if (!c->has_log_thread)
                log_warn("msg=\"no thread for a child's output\" child=%s", c->log_prefix);
        }
    }
    pipes_close(&p);
    return status;
}

static void finish(struct child *c)
{
    c->pid = 0;
    close_fd(&c->control_write);
    /* grandchildren may still hold the pipe: what they have to say is not waited for */
    if (c->has_log_thread) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 2;
        if (pthread_timedjoin_np(c->log_thread, NULL, &until) != 0) {
            pthread_cancel(c->log_thread);
            pthread_join(c->log_thread, NULL);
        }
        c->has_log_thread = false;
    }
    close_fd(&c->log_fd);
    free(c->log_prefix);
    c->log_prefix = NULL;
}

/* A descriptor that becomes readable when the process ends (Linux 5.3), or -1. */
static int open_pidfd(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

enum status child_wait(struct child *c, uint64_t deadline_ns, bool *ret_ended, struct error *err)
{
    return child_wait_wake(c, deadline_ns, -1, ret_ended, err);
}

enum status child_wait_wake(struct child *c, uint64_t deadline_ns, int wake_fd, bool *ret_ended,
                            struct error *err)
{
    bool woken = false;
    CLEANUP_FD int pidfd = c->pid > 0 ? open_pidfd(c->pid) : -1;
    while (c->pid > 0) {
        pid_t got = waitpid(c->pid, &c->wait_status, WNOHANG);
        if (got < 0 && errno != EINTR)
            return error_sys(err, ERR_BUG, "waitpid %d", (int)c->pid);
        if (got > 0) {
            finish(c);
            break;
        }
        uint64_t now = clock_now_ns();
        if (now >= deadline_ns || woken) {
            *ret_ended = false;
            return OK;
        }
        /* poll passes over a negative descriptor */
        struct pollfd p[2] = {{.fd = pidfd, .events = POLLIN}, {.fd = wake_fd, .events = POLLIN}};
        uint64_t left_ms = (deadline_ns - now) / 1000000 + 1;
        /* without a pidfd only looking again helps */
        poll(p, 2, (int)MIN(left_ms, pidfd >= 0 ? 3600000u : 20u));
        woken = p[1].revents != 0;
    }
    *ret_ended = true;
    return OK;
}

void child_stop(struct child *c, int signal, unsigned timeout_ms)
{
    bool ended = false;
    if (c->pid <= 0)
        return;
    kill(c->pid, signal);
    close_fd(&c->control_write);
    if (child_wait(c, clock_now_ns() + timeout_ms * UINT64_C(1000000), &ended, NULL) == OK && ended)
        return;
    if (c->pid <= 0)
        return;
    log_warn("msg=\"a child did not stop in time and is killed\" pid=%d timeout_ms=%u", (int)c->pid,
             timeout_ms);
    kill(c->pid, SIGKILL);
    if (child_wait(c, UINT64_MAX, &ended, NULL) != OK)
        c->pid = 0;
}

const char *child_status_text(int wait_status, char *buf, size_t cap)
{
    if (WIFEXITED(wait_status))
        snprintf(buf, cap, "exit code %d", WEXITSTATUS(wait_status));
    else if (WIFSIGNALED(wait_status))
        snprintf(buf, cap, "killed by signal %d (%s)", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)));
    else
        snprintf(buf, cap, "wait status 0x%x", (unsigned)wait_status);
    return buf;
}
