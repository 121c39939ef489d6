#include "shadow/cluster.h"

#include "base/child.h"
#include "base/file.h"
#include "base/log.h"
#include "base/queue.h"
#include "shadow/paths.h"
#include "shadow/priority.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BACKOFF_FIRST_MS 200
#define BACKOFF_MAX_MS 10000
#define ROOM_MIN_BYTES (1u << 20) /* less is a full disk: the init files alone need 200 kB */

struct shadow_cluster {
    struct shadow_cluster_options options; /* texts are our own copies */
    char *socket_dir;
    pthread_t thread;
    int wake_fd; /* eventfd: stop or restart was asked for */
    int inotify_fd;

    pthread_mutex_t lock; /* guards all that follows */
    pthread_cond_t changed;
    enum shadow_state state;
    char detail[160];   /* what is waited for */
    struct error error; /* why FAILED */
    pid_t pid;
    unsigned restarts;
    unsigned grace_ms;
    bool stop, restart, interrupted;
    char no_space[200]; /* what the process said of a full disk; "" = nothing */
};

/* ---- state ---- */

static void set_state(struct shadow_cluster *c, enum shadow_state state, const char *detail)
{
    pthread_mutex_lock(&c->lock);
    c->state = state;
    snprintf(c->detail, sizeof c->detail, "%s", detail);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static void set_pid(struct shadow_cluster *c, pid_t pid)
{
    pthread_mutex_lock(&c->lock);
    c->pid = pid;
    pthread_mutex_unlock(&c->lock);
}

static bool stop_asked(struct shadow_cluster *c)
{
    pthread_mutex_lock(&c->lock);
    bool stop = c->stop;
    pthread_mutex_unlock(&c->lock);
    return stop;
}

/* True once, when a restart was asked for. */
static bool take_restart(struct shadow_cluster *c)
{
    pthread_mutex_lock(&c->lock);
    bool restart = c->restart;
    c->restart = false;
    pthread_mutex_unlock(&c->lock);
    return restart;
}

static void wake(struct shadow_cluster *c)
{
    uint64_t one = 1;
    ssize_t ignored = write(c->wake_fd, &one, sizeof one);
    (void)ignored;
}

static bool disk_is_full(const char *path)
{
    struct statvfs fs;
    return statvfs(path, &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize < ROOM_MIN_BYTES;
}

/* A full disk ends the receiver of WAL, the recovery or a session, and the postmaster, which lives
 * on, starts them again for ever: only the log tells. Its language is C. Not every such line gives
 * the reason ("could not write init file"). */
static void on_line(void *ctx, const char *line)
{
    struct shadow_cluster *c = ctx;
    if (strncmp(line, "FATAL:", 6) != 0 && strncmp(line, "PANIC:", 6) != 0)
        return;
    if (strstr(line, "No space left on device") == NULL &&
        (strstr(line, "could not write") == NULL || !disk_is_full(c->options.data_dir)))
        return;
    pthread_mutex_lock(&c->lock);
    snprintf(c->no_space, sizeof c->no_space, "%.199s", line);
    pthread_mutex_unlock(&c->lock);
    wake(c);
}

static bool no_space(struct shadow_cluster *c, struct error *err)
{
    pthread_mutex_lock(&c->lock);
    bool full = c->no_space[0] != '\0';
    if (full)
        error_set(err, ERR_CONFIG,
                  "no space left on device for the shadow in %s: free some space. It said: %s",
                  c->options.data_dir, c->no_space);
    pthread_mutex_unlock(&c->lock);
    return full;
}

/* postmaster.pid's eighth line tells how far the postmaster is: "starting", "standby" (recovering,
 * no connections yet), "ready", "stopping". Source: utils/pidfile.h, LOCK_FILE_LINE_PM_STATUS. */
static void read_progress(struct shadow_cluster *c, bool *ret_ready)
{
    CLEANUP_FREE char *path = xasprintf("%s/postmaster.pid", c->options.data_dir);
    CLEANUP_BUF struct buf text = {0};
    struct error ignored;
    const char *line = NULL;
    *ret_ready = false;
    if (file_exists(path) && file_read_all(path, 65536, &text, &ignored) == OK) {
        line = buf_cstr(&text);
        for (int i = 1; line != NULL && i < 8; i++) {
            line = strchr(line, '\n');
            line = line != NULL ? line + 1 : NULL;
        }
    }
    if (line != NULL && strncmp(line, "ready", 5) == 0) {
        *ret_ready = true;
        set_state(c, SHADOW_READY, "");
    } else if (line != NULL && strncmp(line, "standby", 7) == 0) {
        set_state(c, SHADOW_STARTING,
                  "shadow: recovering until it is consistent and no transaction with more than 64 "
                  "subtransactions is open");
    } else {
        set_state(c, SHADOW_STARTING, "shadow: starting");
    }
}

/* ---- the supervisor ---- */

static void drain(int fd)
{
    char bytes[4096];
    while (read(fd, bytes, sizeof bytes) > 0)
        ;
}

static int start_postgres(struct shadow_cluster *c, struct child *child, struct error *err)
{
    CLEANUP_FREE char *program = xasprintf("%s/postgres", c->options.bin_dir);
    const char *const argv[] = {program, "-D", c->options.data_dir, NULL};
    /* a clean environment: PGPORT and the like would override the configuration */
    static const char *const env[] = {"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC", NULL};
    const struct child_options options = {.argv = argv,
                                          .environ = env,
                                          .log_prefix = "shadow",
                                          .death_signal = SIGINT,
                                          .niceness = SHADOW_NICENESS,
                                          .on_line = on_line,
                                          .line_ctx = c};
    enum status st = child_start(child, &options, err);
    if (st != OK)
        return -1;
    set_pid(c, child->pid);
    log_info("msg=\"shadow started\" pid=%d", (int)child->pid);
    return (int)syscall(SYS_pidfd_open, child->pid, 0);
}

/* Until the process ends, has no room to write, or a stop or restart is asked for: true.
 * *ret_was_ready: it accepted connections. */
static bool watch(struct shadow_cluster *c, int pidfd, bool *ret_was_ready)
{
    struct pollfd fds[3] = {
        {pidfd, POLLIN, 0}, {c->wake_fd, POLLIN, 0}, {c->inotify_fd, POLLIN, 0}};
    bool ready = false;
    *ret_was_ready = false;
    for (;;) {
        read_progress(c, &ready);
        *ret_was_ready |= ready;
        if (poll(fds, 3, -1) < 0)
            continue;
        if (fds[0].revents != 0)
            return false;
        if (fds[2].revents != 0)
            drain(c->inotify_fd);
        if (fds[1].revents != 0) {
            drain(c->wake_fd);
            if (no_space(c, NULL))
                return false;
            if (stop_asked(c) || take_restart(c))
                return true;
        }
    }
}

static void end_postgres(struct shadow_cluster *c, struct child *child)
{
    pthread_mutex_lock(&c->lock);
    unsigned grace = c->stop ? c->grace_ms : 30000;
    pthread_mutex_unlock(&c->lock);
    bool ended = false;
    struct error ignored;
    if (child->pid != 0)
        kill(child->pid, SIGINT); /* fast */
    enum status st =
        child_wait(child, clock_now_ns() + (uint64_t)grace * 1000000u, &ended, &ignored);
    if (st != OK || !ended)
        child_stop(child, SIGQUIT, grace); /* immediate, then SIGKILL */
    set_pid(c, 0);
}

static void fail(struct shadow_cluster *c, const struct error *err)
{
    pthread_mutex_lock(&c->lock);
    c->state = SHADOW_FAILED;
    c->error = *err;
    snprintf(c->detail, sizeof c->detail, "shadow: given up");
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    log_error("msg=%s", LOG_Q(err->message));
    if (c->options.failed != NULL)
        c->options.failed(c->options.failed_ctx, err);
}

/* Waits before the next try; false when a stop was asked for. */
static bool back_off(struct shadow_cluster *c, unsigned tries)
{
    unsigned ms = BACKOFF_FIRST_MS;
    for (unsigned i = 1; i < tries && ms < BACKOFF_MAX_MS; i++)
        ms *= 2;
    struct pollfd p = {c->wake_fd, POLLIN, 0};
    uint64_t until = clock_now_ns() + (uint64_t)MIN(ms, BACKOFF_MAX_MS) * 1000000u;
    while (!stop_asked(c)) {
        uint64_t now = clock_now_ns();
        if (now >= until)
            return true;
        if (poll(&p, 1, (int)((until - now) / 1000000u) + 1) > 0)
            drain(c->wake_fd);
    }
    return false;
}

/* One life of the process. *ret_asked: it was ended by us; *ret_ready: it had accepted connections.
 */
static enum status run_once(struct shadow_cluster *c, bool *ret_asked, bool *ret_ready,
                            struct error *err)
{
    struct child child = {0};
    char text[80];
    set_state(c, SHADOW_STARTING, "shadow: starting");
    TRY(shadow_cluster_configure(&c->options, err));
    int pidfd = start_postgres(c, &child, err);
    if (child.pid == 0)
        return err->kind;
    if (pidfd < 0) {
        enum status st = error_sys(err, ERR_RETRY, "pidfd_open");
        end_postgres(c, &child);
        return st;
    }
    *ret_asked = watch(c, pidfd, ret_ready);
    close(pidfd);
    if (no_space(c, err))
        child_stop(&child, SIGQUIT, 5000); /* a fast stop wants to write as well */
    end_postgres(c, &child);
    if (no_space(c, err))
        return ERR_CONFIG;
    if (!*ret_asked)
        return error_set(err, ERR_RETRY, "the shadow ended by itself: %s; its last words: %s",
                         child_status_text(child.wait_status, text, sizeof text), child.last_line);
    return OK;
}

static void *supervisor_main(void *arg)
{
    struct shadow_cluster *c = arg;
    unsigned failures = 0;
    while (!stop_asked(c)) {
        struct error err = {0};
        bool asked = false, ready = false;
        enum status st = run_once(c, &asked, &ready, &err);
        if (st == OK)
            continue;
        failures = ready ? 1 : failures + 1;
        if (stop_asked(c))
            break;
        if (st == ERR_CONFIG || st == ERR_DATA || failures >= SHADOW_START_TRIES) {
            err.kind = ERR_CONFIG;
            fail(c, &err);
            return NULL;
        }
        log_warn("msg=%s try=%u", LOG_Q(err.message), failures);
        set_state(c, SHADOW_RESTARTING, "shadow: ended unexpectedly, is started again");
        pthread_mutex_lock(&c->lock);
        c->restarts++;
        pthread_mutex_unlock(&c->lock);
        if (!back_off(c, failures))
            break;
    }
    set_state(c, SHADOW_STOPPED, "shadow: stopped");
    return NULL;
}

/* ---- public ---- */

static void cluster_free(struct shadow_cluster *c)
{
    if (c->wake_fd >= 0)
        close(c->wake_fd);
    if (c->inotify_fd >= 0)
        close(c->inotify_fd);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c->socket_dir);
    free((char *)(uintptr_t)c->options.state_dir);
    free((char *)(uintptr_t)c->options.data_dir);
    free((char *)(uintptr_t)c->options.bin_dir);
    free((char *)(uintptr_t)c->options.login_role);
    free(c);
}

static struct shadow_cluster *cluster_new(const struct shadow_cluster_options *o)
{
    struct shadow_cluster *c = xcalloc(1, sizeof *c);
    pthread_condattr_t attr;
    c->options = *o;
    c->options.state_dir = xstrdup(o->state_dir);
    c->options.data_dir = xstrdup(o->data_dir);
    c->options.bin_dir = xstrdup(o->bin_dir);
    c->options.login_role = xstrdup(o->login_role);
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &attr);
    pthread_condattr_destroy(&attr);
    c->state = SHADOW_STARTING;
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    snprintf(c->detail, sizeof c->detail, "shadow: starting");
    return c;
}

/* The postmaster writes its status into postmaster.pid in place. */
static enum status watch_directory(struct shadow_cluster *c, struct error *err)
{
    if (c->wake_fd < 0 || c->inotify_fd < 0 ||
        inotify_add_watch(c->inotify_fd, c->options.data_dir,
                          IN_CREATE | IN_MODIFY | IN_MOVED_TO | IN_DELETE) < 0)
        return error_sys(err, ERR_CONFIG, "cannot watch %s", c->options.data_dir);
    return OK;
}

enum status shadow_cluster_start(const struct shadow_cluster_options *options,
                                 struct shadow_cluster **ret, struct error *err)
{
    struct shadow_cluster *c = cluster_new(options);
    enum status st = shadow_cluster_stop_orphan(options->data_dir, NULL, err);
    if (st == OK)
        st = shadow_socket_dir(options->state_dir, &c->socket_dir, err);
    if (st == OK)
        st = shadow_cluster_configure(options, err); /* what is wrong is told to the caller */
    if (st == OK)
        st = watch_directory(c, err);
    if (st == OK && (errno = pthread_create(&c->thread, NULL, supervisor_main, c)) != 0)
        st = error_sys(err, ERR_RETRY, "cannot start the shadow's thread");
    if (st != OK) {
        cluster_free(c);
        return st;
    }
    *ret = c;
    return OK;
}

/* With the lock held. False once the deadline has passed. */
static bool wait_changed(struct shadow_cluster *c, uint64_t deadline_ns)
{
    struct timespec t = {(time_t)(deadline_ns / 1000000000u), (long)(deadline_ns % 1000000000u)};
    if (deadline_ns == UINT64_MAX)
        return pthread_cond_wait(&c->changed, &c->lock) == 0;
    return pthread_cond_timedwait(&c->changed, &c->lock, &t) != ETIMEDOUT;
}

enum status shadow_cluster_wait_ready(struct shadow_cluster *c, uint64_t deadline_ns,
                                      struct error *err)
{
    enum status st = OK;
    pthread_mutex_lock(&c->lock);
    while (st == OK && c->state != SHADOW_READY) {
        if (c->stop || c->interrupted || c->state == SHADOW_STOPPED)
            st = error_set(err, ERR_CANCELLED, "stopping");
        else if (c->state == SHADOW_FAILED) {
            st = c->error.kind;
            if (err != NULL)
                *err = c->error;
        } else if (!wait_changed(c, deadline_ns) && c->state != SHADOW_READY)
            st = error_set(err, ERR_RETRY, "%s", c->detail);
    }
    pthread_mutex_unlock(&c->lock);
    return st;
}

void shadow_cluster_interrupt(struct shadow_cluster *c)
{
    pthread_mutex_lock(&c->lock);
    c->interrupted = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

enum shadow_state shadow_cluster_state(struct shadow_cluster *c)
{
    pthread_mutex_lock(&c->lock);
    enum shadow_state state = c->state;
    pthread_mutex_unlock(&c->lock);
    return state;
}

void shadow_cluster_waiting_on(struct shadow_cluster *c, char *text, size_t cap)
{
    pthread_mutex_lock(&c->lock);
    snprintf(text, cap, "%s", c->detail);
    pthread_mutex_unlock(&c->lock);
}

unsigned shadow_cluster_restarts(struct shadow_cluster *c)
{
    pthread_mutex_lock(&c->lock);
    unsigned n = c->restarts;
    pthread_mutex_unlock(&c->lock);
    return n;
}

pid_t shadow_cluster_pid(struct shadow_cluster *c)
{
    pthread_mutex_lock(&c->lock);
    pid_t pid = c->pid;
    pthread_mutex_unlock(&c->lock);
    return pid;
}

const char *shadow_cluster_socket_dir(const struct shadow_cluster *c)
{
    return c->socket_dir;
}

void shadow_cluster_restart(struct shadow_cluster *c)
{
    pthread_mutex_lock(&c->lock);
    c->restart = true;
    pthread_mutex_unlock(&c->lock);
    wake(c);
}

void shadow_cluster_stop(struct shadow_cluster *c, unsigned grace_ms)
{
    if (c == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    c->grace_ms = grace_ms;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    wake(c);
    pthread_join(c->thread, NULL);
    cluster_free(c);
}
