/* The shadow's PostgreSQL programs: found by major, checked against the source. */
#include "ops/preflight_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a program prints, cut at cap; false if it cannot be run or fails. No shell is involved. */
static bool program_output(const char *path, const char *argument, char *ret, size_t cap)
{
    int fds[2], code = -1;
    if (access(path, X_OK) != 0 || pipe2(fds, O_CLOEXEC) != 0)
        return false;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], STDOUT_FILENO);
        execl(path, path, argument, (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    size_t have = 0;
    char rest[512];
    for (ssize_t n = 1; pid > 0 && n > 0;) { /* to its end: a closed pipe would fail the program */
        bool room = have + 1 < cap;
        n = room ? read(fds[0], ret + have, cap - 1 - have) : read(fds[0], rest, sizeof rest);
        have += room && n > 0 ? (size_t)n : 0;
    }
    ret[have] = '\0';
    close(fds[0]);
    return pid > 0 && waitpid(pid, &code, 0) == pid && WIFEXITED(code) && WEXITSTATUS(code) == 0 &&
           have > 0;
}

/* Whether a file holds a name: a program's imported symbols are in it as text. */
static bool file_mentions(const char *path, const char *name)
{
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_size <= 0)
        return false;
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return false;
    bool found = memmem(data, (size_t)st.st_size, name, strlen(name)) != NULL;
    munmap(data, (size_t)st.st_size);
    return found;
}

/* "postgres (PostgreSQL) 17.10 (Debian …)" → 170010; 0 if it is anything else. */
static int parse_version(const char *text)
{
    const char *at = strstr(text, "(PostgreSQL) ");
    int major, minor = 0;
    if (at == NULL || sscanf(at + 13, "%d.%d", &major, &minor) < 1 || major < 1 || major > 99)
        return 0;
    return major * 10000 + minor;
}

static int bin_dir_version(const char *dir)
{
    CLEANUP_FREE char *path = xasprintf("%s/postgres", dir);
    char text[200];
    return program_output(path, "--version", text, sizeof text) ? parse_version(text) : 0;
}

struct search {
    int major;
    char *dir;
    size_t cap;
    int version;
    struct buf tried;
};

static bool try_dir(struct search *s, const char *dir)
{
    int version = bin_dir_version(dir);
    if (version / 10000 == s->major) {
        snprintf(s->dir, s->cap, "%s", dir);
        s->version = version;
        return true;
    }
    if (version != 0)
        buf_printf(&s->tried, "%s%s (PostgreSQL %d)", s->tried.len > 0 ? ", " : "", dir,
                   version / 10000);
    else
        buf_printf(&s->tried, "%s%s", s->tried.len > 0 ? ", " : "", dir);
    return false;
}

static bool try_path_variable(struct search *s)
{
    const char *path = getenv("PATH");
    while (path != NULL && *path != '\0') {
        size_t n = strcspn(path, ":");
        CLEANUP_FREE char *dir = xasprintf("%.*s", (int)n, path);
        CLEANUP_FREE char *program = xasprintf("%s/postgres", dir);
        if (n > 0 && access(program, X_OK) == 0 && try_dir(s, dir))
            return true;
        path += n;
        path += *path == ':';
    }
    return false;
}

/* .deps/pgN/bin beside the program, in a directory above it, or below the working directory. */
static bool try_deps(struct search *s)
{
    char self[4000];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    CLEANUP_FREE char *here = xasprintf(".deps/pg%d/bin", s->major);
    if (n > 0) {
        self[n] = '\0';
        for (int up = 0; up < 2; up++) {
            char *slash = strrchr(self, '/');
            if (slash == NULL)
                break;
            *slash = '\0';
            CLEANUP_FREE char *dir = xasprintf("%s/%s", self, here);
            if (access(dir, X_OK) == 0 && try_dir(s, dir))
                return true;
        }
    }
    char *absolute = realpath(here, NULL);
    bool found = absolute != NULL && try_dir(s, absolute);
    free(absolute);
    return found;
}

enum status preflight_find_bin_dir(const char *configured, int major, char *ret_dir, size_t cap,
                                   int *ret_version, struct error *err)
{
    struct search s = {.major = major, .dir = ret_dir, .cap = cap};
    CLEANUP_FREE char *usual = xasprintf("/usr/lib/postgresql/%d/bin", major);
    bool found = configured != NULL ? try_dir(&s, configured)
                                    : try_dir(&s, usual) || try_path_variable(&s) || try_deps(&s);
    enum status st = OK;
    if (found)
        *ret_version = s.version;
    else
        st = error_set(err, ERR_CONFIG,
                       "no PostgreSQL %d programs for the shadow (looked in %s): install "
                       "postgresql-%d or set shadow.bin_dir",
                       major, buf_cstr(&s.tried), major);
    buf_free(&s.tried);
    return st;
}

/* A standby must be able to read the source's compressed page images (notes G). */
static void check_compression(struct preflight_run *run, const char *dir)
{
    PGresult *r = preflight_query(run, "wal_compression",
                                  "SELECT pg_catalog.current_setting('wal_compression')", NULL);
    CLEANUP_FREE char *server = xasprintf("%s/postgres", dir);
    const char *method = r != NULL ? PQgetvalue(r, 0, 0) : "";
    bool lz4 = strcmp(method, "lz4") == 0, zstd = strcmp(method, "zstd") == 0;
    if ((lz4 || zstd) && !file_mentions(server, lz4 ? "LZ4_decompress_safe" : "ZSTD_decompress"))
        preflight_add(
            run->report, PREFLIGHT_ERROR, "wal_compression",
            "the source has wal_compression = %s, %s was built without it: set wal_compression "
            "to pglz or off, or shadow.bin_dir to a build with %s",
            method, server, method);
    PQclear(r);
}

void preflight_check_shadow(struct preflight_run *run)
{
    struct error err;
    int version = 0, source = run->report->server_version;
    char dir[sizeof run->report->bin_dir];
    if (preflight_find_bin_dir(run->options->config->shadow.bin_dir, source / 10000, dir,
                               sizeof dir, &version, &err) != OK) {
        preflight_add(run->report, PREFLIGHT_ERROR, "shadow_bin_dir", "%s", err.message);
        return;
    }
    snprintf(run->report->bin_dir, sizeof run->report->bin_dir, "%s", dir);
    if (version < source)
        preflight_add(
            run->report, PREFLIGHT_WARNING, "shadow_version",
            "the shadow's PostgreSQL %d.%d is older than the source's %d.%d: its minor releases "
            "read what the source writes only from the same one on; upgrade %s",
            version / 10000, version % 10000, source / 10000, source % 10000, dir);
    check_compression(run, dir);
}
