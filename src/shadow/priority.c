#include "shadow/priority.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STARTUP_TITLE "postgres: startup"

/* Up to cap - 1 bytes of a file under /proc, NUL-terminated; "" if there is none. */
static void proc_read(pid_t pid, const char *name, char *text, size_t cap)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, cap - 1);
    text[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

/* False if it is to be tried again. */
static bool session_lower(pid_t pid)
{
    char path[64], value[16];
    snprintf(path, sizeof path, "/proc/%d/autogroup", (int)pid);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return true; /* no such feature, or the process is gone */
    int len = snprintf(value, sizeof value, "%d", SHADOW_NICENESS);
    bool again = write(fd, value, (size_t)len) < 0 && errno == EAGAIN;
    close(fd);
    return !again;
}

static pid_t parent_of(pid_t pid)
{
    char text[512];
    int parent = 0;
    proc_read(pid, "stat", text, sizeof text);
    const char *behind = strrchr(text, ')'); /* the name before it may hold anything */
    if (behind == NULL || sscanf(behind, ") %*c %d", &parent) != 1)
        return 0;
    return parent;
}

/* The child of the postmaster that replays; 0 if it cannot be told. */
static pid_t startup_process(pid_t postmaster)
{
    char name[48], list[1024], title[64];
    snprintf(name, sizeof name, "task/%d/children", (int)postmaster);
    proc_read(postmaster, name, list, sizeof list);
    for (char *at = list, *end; *at != '\0'; at = end) {
        long pid = strtol(at, &end, 10);
        if (end == at)
            break;
        proc_read((pid_t)pid, "cmdline", title, sizeof title);
        if (strncmp(title, STARTUP_TITLE, strlen(STARTUP_TITLE)) == 0)
            return (pid_t)pid;
    }
    return 0;
}

void shadow_priority_lower(pid_t walreceiver, enum priority_step *step)
{
    if (*step == PRIORITY_WALRECEIVER && session_lower(walreceiver)) {
        *step = PRIORITY_STARTUP;
    } else if (*step == PRIORITY_STARTUP) {
        pid_t parent = parent_of(walreceiver);
        pid_t startup = parent > 1 ? startup_process(parent) : 0;
        if (startup == 0 || session_lower(startup))
            *step = PRIORITY_DONE;
    }
}
