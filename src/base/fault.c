#include "base/fault.h"

#ifdef WALSHADOW_FAULT_POINTS
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_long passed;

/* "@FILE": what the file holds now; it may come, change and go while the process runs. */
static const char *armed(char *text, size_t cap)
{
    const char *want = getenv("WALSHADOW_TEST_FAULT");
    if (want == NULL || want[0] != '@')
        return want;
    int fd = open(want + 1, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, cap - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return NULL;
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return text;
}

void fault_point(const char *name)
{
    char text[120];
    const char *want = armed(text, sizeof text);
    size_t n = strlen(name);
    if (want == NULL || strncmp(want, name, n) != 0 || (want[n] != '\0' && want[n] != ':'))
        return;
    long times = want[n] == ':' ? atol(want + n + 1) : 1;
    if (atomic_fetch_add(&passed, 1) + 1 == times)
        kill(getpid(), SIGKILL);
}
#else
typedef int fault_points_are_compiled_out;
#endif
