#include "base/fault.h"

#ifdef WALSHADOW_FAULT_POINTS
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_long passed;

void fault_point(const char *name)
{
    const char *want = getenv("WALSHADOW_TEST_FAULT");
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
