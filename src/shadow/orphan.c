/* A postgres left behind by an earlier run. */
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/queue.h"
#include "shadow/cluster.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FAST_MS 30000
#define IMMEDIATE_MS 10000

/* The first line of postmaster.pid; 0 if there is none. Source: utils/pidfile.h. */
static pid_t read_pid(const char *data_dir)
{
    CLEANUP_FREE char *path = xasprintf("%s/postmaster.pid", data_dir);
    CLEANUP_BUF struct buf text = {0};
    struct error ignored;
    if (!file_exists(path) || file_read_all(path, 65536, &text, &ignored) != OK)
        return 0;
    long pid = strtol(buf_cstr(&text), NULL, 10);
    return pid > 1 && pid < INT32_MAX ? (pid_t)pid : 0;
}

/* Pids are used again: it must run in this very directory, as postgres does. */
static bool works_in(pid_t pid, const char *data_dir)
{
    struct stat ours, its;
    CLEANUP_FREE char *cwd = xasprintf("/proc/%d/cwd", (int)pid);
    return stat(data_dir, &ours) == 0 && stat(cwd, &its) == 0 && ours.st_dev == its.st_dev &&
           ours.st_ino == its.st_ino;
}

static bool ends_within(int pidfd, unsigned ms)
{
    struct pollfd p = {pidfd, POLLIN, 0};
    uint64_t deadline = clock_now_ns() + (uint64_t)ms * 1000000u;
    for (;;) {
        uint64_t now = clock_now_ns();
        int left = now < deadline ? (int)((deadline - now) / 1000000u) + 1 : 0;
        int n = poll(&p, 1, left);
        if (n > 0 || (n == 0 && left == 0) || (n < 0 && errno != EINTR))
            return n > 0;
    }
}

static enum status stop_it(int pidfd, pid_t pid, struct error *err)
{
    static const struct {
        int signal;
        unsigned ms;
    } steps[] = {{SIGINT, FAST_MS}, {SIGQUIT, IMMEDIATE_MS}, {SIGKILL, IMMEDIATE_MS}};
    for (size_t i = 0; i < LENGTH(steps); i++) {
        if (syscall(SYS_pidfd_send_signal, pidfd, steps[i].signal, NULL, 0) != 0)
            return errno == ESRCH
                       ? OK
                       : error_sys(err, ERR_CONFIG,
                                   "cannot stop postgres (pid %d) of an earlier run", (int)pid);
        if (ends_within(pidfd, steps[i].ms))
            return OK;
    }
    return error_set(err, ERR_CONFIG, "postgres (pid %d) of an earlier run does not end", (int)pid);
}

enum status shadow_cluster_stop_orphan(const char *data_dir, bool *ret_stopped, struct error *err)
{
    pid_t pid = read_pid(data_dir);
    bool stopped = false;
    enum status st = OK;
    /* the descriptor first, the check second: what was checked is what gets the signal */
    CLEANUP_FD int pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    if (pidfd >= 0 && works_in(pid, data_dir)) {
        log_warn("msg=\"stopping the shadow of an earlier run\" pid=%d", (int)pid);
        st = stop_it(pidfd, pid, err);
        stopped = st == OK;
    }
    if (st == OK && ret_stopped != NULL)
        *ret_stopped = stopped;
    return st;
}
