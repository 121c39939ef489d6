/* A catalog log of any bytes: read, cut or refused. */
#include "catalog/history.h"

#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err;
    struct history *h = NULL;
    char path[40];
    int fd = memfd_create("log", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (write(fd, data, size) == (ssize_t)size && history_open(path, &h, &err) == OK)
        history_free(h);
    close(fd);
    return 0;
}
