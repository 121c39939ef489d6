/* wait: asks the daemon, and before that waits for its socket to be there. */
#include "base/file.h"
#include "base/lsn.h"
#include "base/queue.h"
#include "base/socket.h"
#include "cmd/cmd.h"
#include "ops/control.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define NS_PER_MS UINT64_C(1000000)
#define RECHECK_MS 1000 /* a listener that comes up between the look and the watch */

const struct flag flags_wait[] = {
    {"lsn", "LSN", NULL, "position; default: where the source is now"},
    {"timeout", "S", NULL, "seconds; default: none"},
    {NULL, NULL, NULL, NULL},
};

static int left_ms(uint64_t deadline_ns)
{
    uint64_t now = clock_now_ns();
    if (deadline_ns == UINT64_MAX)
        return -1;
    return deadline_ns <= now ? 0
                              : (int)MIN((deadline_ns - now) / NS_PER_MS + 1, (uint64_t)INT32_MAX);
}

/* Until something changes in the state directory, or in its parent while it does not exist. */
static void watch_directory(const char *dir, int timeout_ms)
{
    CLEANUP_FD int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    struct pollfd p = {fd, POLLIN, 0};
    CLEANUP_FREE char *parent = xstrdup(dir);
    char *slash = strrchr(parent, '/');
    if (slash != NULL)
        slash[slash == parent ? 1 : 0] = '\0';
    if (fd >= 0 && inotify_add_watch(fd, dir, IN_CREATE | IN_MOVED_TO) < 0)
        (void)inotify_add_watch(fd, parent, IN_CREATE | IN_MOVED_TO);
    timeout_ms = timeout_ms < 0 ? RECHECK_MS : MIN(timeout_ms, RECHECK_MS);
    (void)poll(&p, fd >= 0 ? 1 : 0, timeout_ms);
}

/* false on timeout */
static bool await_socket(const struct config *config, const char *path, uint64_t deadline_ns)
{
    bool told = false;
    while (!socket_unix_is_alive(path)) {
        int left = left_ms(deadline_ns);
        if (left == 0)
            return false;
        if (!told)
            complain("wait: waiting for a walshadow on %s", config->state_dir);
        told = true;
        watch_directory(config->state_dir, left);
    }
    return true;
}

static int judge(const json_t *result)
{
    size_t i;
    const json_t *t;
    int code = EXIT_DONE;
    json_array_foreach(json_object_get(result, "stopped"), i, t)
    {
        const char *name = json_string_value(json_object_get(t, "name"));
        const char *reason = json_string_value(json_object_get(t, "reason"));
        complain("wait: table %s is stopped: %s", name != NULL ? name : "?",
                 reason != NULL ? reason : "?");
        code = EXIT_FAILED;
    }
    if (!json_is_true(json_object_get(result, "reached"))) {
        json_array_foreach(json_object_get(result, "copying"), i, t)
            complain("wait: table %s is still being copied", json_string_value(t));
        complain("wait: timeout before %s", json_string_value(json_object_get(result, "lsn")));
        code = EXIT_USAGE; /* by contract 2 is usage or timeout */
    }
    return code;
}

static int call(const char *path, const char *lsn, uint64_t deadline_ns)
{
    struct error err;
    json_t *request = json_pack("{s:s, s:b}", "verb", "wait", "copies", 1), *result = NULL;
    int left = left_ms(deadline_ns);
    if (lsn != NULL)
        json_object_set_new(request, "lsn", json_string(lsn));
    if (left >= 0)
        json_object_set_new(request, "timeout_ms", json_integer(left));
    /* the daemon keeps the time; ours only guards against one that hangs */
    enum status st = control_call(path, request, left < 0 ? -1 : MIN(left, INT32_MAX - 5000) + 5000,
                                  &result, &err);
    json_decref(request);
    int code = EXIT_FAILED;
    if (st == OK)
        code = judge(result);
    else
        complain("wait: %s", err.message);
    if (st != OK && left_ms(deadline_ns) == 0)
        code = EXIT_USAGE;
    json_decref(result);
    return code;
}

int cmd_wait(const struct command *command, const struct args *args)
{
    const char *lsn = args_get(args, "lsn"), *timeout = args_get(args, "timeout");
    struct config_args config_args;
    uint64_t deadline = UINT64_MAX;
    XLogRecPtr ignored;
    (void)command;
    if (lsn != NULL && !lsn_parse(lsn, &ignored)) {
        complain("wait: --lsn %s is not an LSN such as 16/B374D848", lsn);
        return EXIT_USAGE;
    }
    if (timeout != NULL) {
        char *end;
        double seconds = strtod(timeout, &end);
        if (end == timeout || *end != '\0' || !(seconds >= 0 && seconds < 1e6)) {
            complain("wait: --timeout %s is not a number of seconds", timeout);
            return EXIT_USAGE;
        }
        deadline = clock_now_ns() + (uint64_t)(seconds * 1e9);
    }
    struct config *config = args_config(args, false, &config_args);
    if (config == NULL)
        return EXIT_USAGE;
    CLEANUP_FREE char *path = cmd_control_path(config);
    int code = EXIT_USAGE;
    if (await_socket(config, path, deadline))
        code = call(path, lsn, deadline);
    else
        complain("wait: timeout: no walshadow runs on %s", config->state_dir);
    config_free(config);
    return code;
}
