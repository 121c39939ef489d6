/* remove: the slot at the source, tables of chunks at the destinations, then the state directory.
 */
#include "base/file.h"
#include "base/socket.h"
#include "clickhouse/client.h"
#include "clickhouse/supervisor.h"
#include "cmd/cmd.h"
#include "daemon/daemon.h"
#include "ops/manifest.h"
#include "source/sql.h"
#include "toast/store.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

const struct flag flags_remove[] = {
    {"keep-chunks", NULL, NULL,
     "leave the tables of TOAST chunks (toast.mode = clickhouse), for a server that is gone"},
    {"keep-data", NULL, NULL, "leave the embedded engine's data (chdb/)"},
    {"keep-slot", NULL, NULL, "leave the slot, for a source that is gone for good"},
    {"source", "URL", NULL, "source to drop the slot at; default source.conninfo"},
    {NULL, NULL, NULL, NULL},
};

static enum status drop_slot(const char *conninfo, const char *slot, bool *ret_dropped,
                             struct error *err)
{
    struct source_sql *sql = NULL;
    struct source_slot_info info;
    const char *params[] = {slot};
    TRY(source_sql_open(conninfo, "walshadow", &sql, err));
    enum status st = source_sql_slot_info(sql, slot, &info, err);
    if (st == OK && info.exists && !info.physical)
        st = error_set(err, ERR_CONFIG, "slot %s is not a physical slot: it is not ours", slot);
    else if (st == OK && info.exists && info.active_pid != 0)
        st = error_set(err, ERR_CONFIG, "slot %s is in use by process %d at the source", slot,
                       info.active_pid);
    if (st == OK && info.exists)
        st = source_sql_exec(sql, "SELECT pg_catalog.pg_drop_replication_slot($1)", 1, params, NULL,
                             err);
    *ret_dropped = st == OK && info.exists;
    source_sql_close(sql);
    return st;
}

/* A directory of ours has a manifest, or nothing but our names: nothing else is ever deleted. */
static bool is_ours(const char *dir, char *odd, size_t cap)
{
    static const char *const names[] = {"manifest.toml",
                                        "shadow",
                                        "wal",
                                        "spill",
                                        "catalog.log",
                                        "toast",
                                        "chdb",
                                        "control.sock",
                                        "engine.sock",
                                        "http.sock",
                                        "lock",
                                        "shadow.sock",
                                        "manifest.toml.tmp",
                                        "catalog_filenodes",
                                        "load_undecided"};
    CLEANUP_FREE char *manifest = xasprintf("%s/manifest.toml", dir);
    if (file_exists(manifest))
        return true;
    DIR *d = opendir(dir);
    bool ours = d != NULL;
    for (struct dirent *e; ours && (e = readdir(d)) != NULL;) {
        bool known = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
        for (size_t i = 0; i < LENGTH(names) && !known; i++)
            known = strcmp(names[i], e->d_name) == 0;
        if (!known) {
            snprintf(odd, cap, "%s", e->d_name);
            ours = false;
        }
    }
    if (d != NULL)
        closedir(d);
    return ours;
}

static enum status remove_state(const char *dir, bool keep_data, struct error *err)
{
    if (!keep_data)
        return file_remove_tree(dir, true, err);
    DIR *d = opendir(dir);
    if (d == NULL)
        return error_sys(err, ERR_RETRY, "cannot read %s", dir);
    enum status st = OK;
    for (struct dirent *e; st == OK && (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            strcmp(e->d_name, "chdb") == 0)
            continue;
        CLEANUP_FREE char *path = xasprintf("%s/%s", dir, e->d_name);
        st = file_remove_tree(path, true, err);
    }
    closedir(d);
    return st;
}

/* Data of the embedded engine that does not go with the state directory. */
static bool data_stays(const struct config *config, const struct config_destination *d,
                       bool keep_data)
{
    CLEANUP_FREE char *inside = xasprintf("%s/", config->state_dir);
    return file_exists(d->path) && (keep_data || strncmp(d->path, inside, strlen(inside)) != 0);
}

/* In a process of its own, which becomes the data's owner and prints its error. */
static int drop_in_engine(const struct config *config, const struct config_destination *d,
                          const char *comment)
{
    CLEANUP_FREE char *path = cmd_engine_path(config);
    const struct ch_endpoint endpoint = {.unix_path = path};
    struct ch_supervisor *engine = NULL;
    struct error err = {0};
    unsigned n;
    enum status st = cmd_engine_start(config, d, NULL, &engine, &err);
    if (st == OK)
        st = toast_clickhouse_remove(&endpoint, comment, &n, &err);
    ch_supervisor_stop(engine);
    if (st == OK && n > 0)
        printf("%u tables of chunks dropped at destination %s\n", n, d->name);
    if (st != OK)
        complain("remove: %s", err.message);
    fflush(stdout);
    return st == OK ? EXIT_DONE : EXIT_FAILED;
}

static enum status drop_beside(const struct config *config, const struct config_destination *d,
                               const char *comment, struct error *err)
{
    int state = 0;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(drop_in_engine(config, d, comment));
    if (pid < 0 || waitpid(pid, &state, 0) != pid)
        return error_sys(err, ERR_RETRY, "cannot run an engine");
    return WIFEXITED(state) && WEXITSTATUS(state) == EXIT_DONE
               ? OK
               : error_set(err, ERR_RETRY, "the engine did not drop them");
}

static enum status drop_at(const struct config *config, const struct config_destination *d,
                           const char *comment, bool keep_data, struct error *err)
{
    struct ch_endpoint endpoint;
    unsigned n = 0;
    switch (d->kind) {
    case DESTINATION_NULL:
        return OK;
    case DESTINATION_CHDB:
        return data_stays(config, d, keep_data) ? drop_beside(config, d, comment, err) : OK;
    case DESTINATION_CLICKHOUSE:
        daemon_endpoint(d, &endpoint);
        TRY(toast_clickhouse_remove(&endpoint, comment, &n, err));
        printf("%u tables of chunks dropped at destination %s\n", n, d->name);
        return OK;
    }
    return OK;
}

/* Those of our source's database only: their comment names it. */
static enum status drop_chunks(const struct config *config, const struct manifest *m,
                               bool keep_data, struct error *err)
{
    CLEANUP_FREE char *comment = toast_clickhouse_comment(m->system_id, m->database_oid);
    for (size_t i = 0; i < config->ndestinations; i++) {
        const struct config_destination *d = &config->destinations[i];
        if (drop_at(config, d, comment, keep_data, err) != OK)
            return error_prefix(err,
                                "tables of TOAST chunks at destination %s "
                                "(--keep-chunks leaves them)",
                                d->name);
    }
    return OK;
}

/* Slot and chunks; found: there is a manifest. */
static enum status drop_remote(const struct config *config, const struct args *args,
                               const struct manifest *m, bool found, struct error *err)
{
    const char *slot = found && m->slot != NULL ? m->slot : config->source.slot;
    const char *conninfo =
        args_has(args, "source") ? args_get(args, "source") : config->source.conninfo;
    bool dropped = false;
    if (!args_has(args, "keep-slot")) {
        if (conninfo == NULL)
            return error_set(
                err, ERR_CONFIG,
                "no source to drop the slot at: give --source or --config (or --keep-slot)");
        TRY(drop_slot(conninfo, slot, &dropped, err));
        printf(dropped ? "slot %s dropped\n" : "there is no slot %s\n", slot);
    }
    if (!found || config->toast.mode != TOAST_CLICKHOUSE || args_has(args, "keep-chunks"))
        return OK;
    return drop_chunks(config, m, args_has(args, "keep-data"), err);
}

static enum status remove_all(const struct config *config, const struct args *args,
                              struct error *err)
{
    CLEANUP_FREE char *control = cmd_control_path(config);
    CLEANUP_FREE char *manifest_path = xasprintf("%s/manifest.toml", config->state_dir);
    struct manifest manifest;
    bool found = false;
    char odd[256] = "";
    if (socket_unix_is_alive(control))
        return error_set(err, ERR_CONFIG, "a walshadow runs on %s: stop it first",
                         config->state_dir);
    if (file_exists(config->state_dir) && !is_ours(config->state_dir, odd, sizeof odd))
        return error_set(err, ERR_CONFIG, "%s is not a state directory of walshadow (it holds %s)",
                         config->state_dir, odd);
    if (manifest_load(manifest_path, &manifest, &found, err) != OK)
        found = false;
    enum status st = drop_remote(config, args, &manifest, found, err);
    if (found)
        manifest_fini(&manifest);
    if (st != OK)
        return st;
    if (file_exists(config->state_dir))
        TRY(remove_state(config->state_dir, args_has(args, "keep-data"), err));
    printf("%s removed%s\n", config->state_dir,
           args_has(args, "keep-data") ? " but for chdb/" : "");
    return OK;
}

int cmd_remove(const struct command *command, const struct args *args)
{
    struct config_args config_args;
    struct error err = {0};
    (void)command;
    struct config *config = args_config(args, false, &config_args);
    if (config == NULL)
        return EXIT_USAGE;
    enum status st = remove_all(config, args, &err);
    if (st != OK)
        complain("remove: %s", err.message);
    config_free(config);
    return st == OK ? EXIT_DONE : EXIT_FAILED;
}
