#include "shadow/paths.h"

#include "base/crc32c.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* the longest file name in it: postgres puts ".s.PGSQL.<port>.lock" beside its socket, which need
 * not fit; the socket itself must, with its NUL */
#define SOCKET_NAME_MAX (sizeof "/.s.PGSQL.65535" - 1)

/* Commas, quotes and blanks would have to survive libpq's host lists and postgresql.conf. */
static bool is_plain(const char *dir)
{
    return strspn(dir, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+-@") ==
           strlen(dir);
}

static bool fits(const char *dir)
{
    return is_plain(dir) &&
           strlen(dir) + SOCKET_NAME_MAX < sizeof((struct sockaddr_un *)NULL)->sun_path;
}

/* Ours, and nobody else may put or take sockets there. */
static enum status make_private(const char *dir, struct error *err)
{
    struct stat st;
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return error_sys(err, ERR_CONFIG, "cannot create the socket directory %s", dir);
    if (lstat(dir, &st) != 0)
        return error_sys(err, ERR_CONFIG, "cannot look at the socket directory %s", dir);
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return error_set(err, ERR_CONFIG,
                         "the socket directory %s is not a directory of our user: remove it", dir);
    if ((st.st_mode & 077) != 0 && chmod(dir, 0700) != 0)
        return error_sys(err, ERR_CONFIG, "cannot make the socket directory %s private", dir);
    return OK;
}

static char *short_dir(const char *base, const char *absolute)
{
    return xasprintf("%s/walshadow-%u-%08x", base, (unsigned)geteuid(),
                     crc32c(absolute, strlen(absolute)));
}

enum status shadow_socket_dir(const char *state_dir, char **ret, struct error *err)
{
    CLEANUP_FREE char *absolute = realpath(state_dir, NULL);
    if (absolute == NULL)
        return error_sys(err, ERR_CONFIG, "cannot find the state directory %s", state_dir);
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char *dir = xasprintf("%s/sock", absolute);
    if (!fits(dir)) {
        free(dir);
        dir = short_dir(runtime != NULL && runtime[0] == '/' && access(runtime, W_OK) == 0 ? runtime
                                                                                           : "/tmp",
                        absolute);
    }
    if (!fits(dir)) { /* a long XDG_RUNTIME_DIR */
        free(dir);
        dir = short_dir("/tmp", absolute);
    }
    enum status st = make_private(dir, err);
    if (st != OK) {
        free(dir);
        return st;
    }
    *ret = dir;
    return OK;
}
