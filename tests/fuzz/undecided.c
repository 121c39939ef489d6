/* A file of undecided rows of any bytes: read or refused. */
#include "load/load_internal.h"
#include "load/undecided_file.h"

#include <sys/mman.h>
#include <unistd.h>

static struct rel_desc desc = {.oid = 20000};
static struct load_rel rel = {.desc = &desc};

static struct load_rel *find(void *ctx, Oid oid, bool chunks)
{
    (void)ctx, (void)chunks;
    return oid % 2 == 0 ? &rel : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err;
    uint64_t left_out;
    char path[40];
    struct fates *fates = fates_new();
    struct undecided *u = undecided_new(fates, "/tmp", 1u << 30);
    int fd = memfd_create("undecided", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (write(fd, data, size) == (ssize_t)size)
        (void)!undecided_file_read(u, path, find, NULL, &left_out, &err);
    close(fd);
    undecided_free(u);
    fates_free(fates);
    return 0;
}
