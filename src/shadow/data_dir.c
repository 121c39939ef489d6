/* What the shadow's data directory must hold, and must not, before postgres starts in it. */
#include "base/file.h"
#include "shadow/cluster.h"
#include "shadow/config_files.h"
#include "shadow/paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status check_version(const struct shadow_cluster_options *o, struct error *err)
{
    CLEANUP_FREE char *path = xasprintf("%s/PG_VERSION", o->data_dir);
    CLEANUP_BUF struct buf text = {0};
    TRY(file_read_all(path, 64, &text, err));
    unsigned long major = strtoul(buf_cstr(&text), NULL, 10);
    if (major != o->major)
        return error_set(
            err, ERR_CONFIG,
            "the shadow in %s is of PostgreSQL %lu, the source is %u: remove the state "
            "directory and load again",
            o->data_dir, major, o->major);
    return OK;
}

static enum status remove_file(const struct shadow_cluster_options *o, const char *name,
                               struct error *err)
{
    CLEANUP_FREE char *path = xasprintf("%s/%s", o->data_dir, name);
    if (unlink(path) != 0 && errno != ENOENT)
        return error_sys(err, ERR_CONFIG, "cannot remove %s", path);
    return OK;
}

/* A link there would let the shadow work inside somebody else's directory (A1). */
static enum status remove_links(const char *dir, struct error *err)
{
    DIR *d = opendir(dir);
    enum status st = OK;
    if (d == NULL)
        return error_sys(err, ERR_CONFIG, "cannot open %s", dir);
    for (struct dirent *e; st == OK && (e = readdir(d)) != NULL;) {
        struct stat s;
        if (fstatat(dirfd(d), e->d_name, &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(s.st_mode) &&
            unlinkat(dirfd(d), e->d_name, 0) != 0)
            st = error_sys(err, ERR_CONFIG, "cannot remove the link %s/%s", dir, e->d_name);
    }
    closedir(d);
    return st;
}

static enum status clean_tablespaces(const struct shadow_cluster_options *o, struct error *err)
{
    CLEANUP_FREE char *dir = xasprintf("%s/pg_tblspc", o->data_dir);
    TRY(file_mkdir_p(dir, 0700, err));
    TRY(remove_links(dir, err));
    if (!o->own_tablespace)
        return OK;
    CLEANUP_FREE char *own = xasprintf("%s/%u", dir, o->tablespace_oid);
    return file_mkdir_p(own, 0700, err);
}

enum status shadow_cluster_configure(const struct shadow_cluster_options *options,
                                     struct error *err)
{
    CLEANUP_FREE char *socket_dir = NULL;
    struct control_file control;
    TRY(check_version(options, err));
    TRY(shadow_socket_dir(options->state_dir, &socket_dir, err));
    TRY(control_file_read(options->data_dir, &control, err));
    TRY(remove_file(options, "recovery.signal", err));
    TRY(remove_file(options, "tablespace_map", err));
    TRY(clean_tablespaces(options, err));
    if (chmod(options->data_dir, 0700) != 0)
        return error_sys(err, ERR_CONFIG, "cannot make %s private", options->data_dir);
    return shadow_config_write(options, socket_dir, &control, err);
}
