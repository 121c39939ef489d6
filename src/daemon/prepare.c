/* State directory, user, lock: what comes before any thread. */
#include "base/file.h"
#include "base/log.h"
#include "daemon/state.h"
#include "shadow/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_WANTED 65536u

/* PostgreSQL does not run as root: neither do we. */
static enum status drop_root(struct daemon *d, struct error *err)
{
    const char *dir = d->config->state_dir;
    const char *name = d->config->shadow.os_user;
    struct stat st;
    struct passwd *pw = NULL;
    if (geteuid() != 0)
        return OK;
    errno = 0;
    if (name != NULL && name[0] != '\0')
        pw = getpwnam(name);
    else if (stat(dir, &st) == 0 && st.st_uid != 0)
        pw = getpwuid(st.st_uid);
    else
        pw = getpwnam(name = "postgres");
    if (pw == NULL || pw->pw_uid == 0)
        return error_set(err, ERR_CONFIG,
                         "started as root: shadow.os_user must name an unprivileged user (%s is "
                         "none)",
                         name == NULL ? "the state directory's owner" : name);
    TRY(file_mkdir_p(dir, 0700, err));
    if (chown(dir, pw->pw_uid, pw->pw_gid) != 0)
        return error_sys(err, ERR_CONFIG, "cannot give %s to user %s", dir, pw->pw_name);
    if (initgroups(pw->pw_name, pw->pw_gid) != 0 || setgid(pw->pw_gid) != 0 ||
        setuid(pw->pw_uid) != 0)
        return error_sys(err, ERR_CONFIG, "cannot become user %s", pw->pw_name);
    setenv("HOME", pw->pw_dir, 1);
    log_info("msg=\"running as\" user=%s", pw->pw_name);
    return OK;
}

static enum status lock_state(struct daemon *d, struct error *err)
{
    char pid[32] = "";
    d->lock_fd = open(d->paths.lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (d->lock_fd < 0)
        return error_sys(err, ERR_CONFIG, "cannot open %s", d->paths.lock);
    if (flock(d->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        ssize_t n = read(d->lock_fd, pid, sizeof pid - 1);
        pid[n > 0 ? n : 0] = '\0';
        return error_set(err, ERR_CONFIG,
                         "another walshadow (pid %s) runs on state directory %s: stop it, or use "
                         "another --state-dir",
                         pid, d->config->state_dir);
    }
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    if (ftruncate(d->lock_fd, 0) != 0 || pwrite(d->lock_fd, pid, strlen(pid), 0) < 0)
        return error_sys(err, ERR_CONFIG, "cannot write %s", d->paths.lock);
    return OK;
}

static void paths_init(struct daemon *d)
{
    const char *dir = d->config->state_dir;
    d->paths = (struct paths){
        .shadow = xasprintf("%s/shadow", dir),
        .wal = xasprintf("%s/wal", dir),
        .spill = xasprintf("%s/spill", dir),
        .toast = xasprintf("%s/toast", dir),
        .manifest = xasprintf("%s/manifest.toml", dir),
        .catalog_log = xasprintf("%s/catalog.log", dir),
        .filenodes = xasprintf("%s/catalog_filenodes", dir),
        .undecided = xasprintf("%s/load_undecided", dir),
        .control_sock = xasprintf("%s/control.sock", dir),
        .engine_sock = xasprintf("%s/engine.sock", dir),
        .http_sock = xasprintf("%s/http.sock", dir),
        .lock = xasprintf("%s/lock", dir),
    };
}

void daemon_paths_free(struct daemon *d)
{
    char **all[] = {&d->paths.shadow,       &d->paths.wal,         &d->paths.spill,
                    &d->paths.manifest,     &d->paths.catalog_log, &d->paths.filenodes,
                    &d->paths.control_sock, &d->paths.engine_sock, &d->paths.http_sock,
                    &d->paths.lock,         &d->paths.socket_dir,  &d->paths.toast,
                    &d->paths.undecided};
    for (size_t i = 0; i < LENGTH(all); i++) {
        free(*all[i]);
        *all[i] = NULL;
    }
    if (d->lock_fd >= 0)
        close(d->lock_fd);
}

/* Each transaction that spills holds a file. Where this is not allowed, the limit stays. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= FILES_WANTED)
        return;
    limit.rlim_cur = MIN(limit.rlim_max, (rlim_t)FILES_WANTED);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        log_debug("msg=\"limit of open files stays\" limit=%llu",
                  (unsigned long long)limit.rlim_cur);
}

enum status daemon_prepare(struct daemon *d, struct error *err)
{
    raise_file_limit();
    paths_init(d);
    TRY(drop_root(d, err));
    TRY(file_mkdir_p(d->config->state_dir, 0700, err));
    if (access(d->config->state_dir, R_OK | W_OK | X_OK) != 0)
        return error_sys(err, ERR_CONFIG, "cannot use state directory %s", d->config->state_dir);
    TRY(lock_state(d, err));
    TRY(file_mkdir_p(d->paths.spill, 0700, err));
    TRY(file_remove_tree(d->paths.spill, false, err));
    return shadow_socket_dir(d->config->state_dir, &d->paths.socket_dir, err);
}
