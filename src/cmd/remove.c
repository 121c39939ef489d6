/* remove: the slot at the source, then the state directory. */
#include "base/file.h"
#include "base/socket.h"
#include "cmd/cmd.h"
#include "ops/manifest.h"
#include "source/sql.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const struct flag flags_remove[] = {
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
    static const char *const names[] = {"manifest.toml",    "shadow",    "wal",  "spill",
                                        "catalog.log",      "toast",     "chdb", "control.sock",
                                        "engine.sock",      "http.sock", "lock", "shadow.sock",
                                        "manifest.toml.tmp"};
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

static enum status remove_all(const struct config *config, const struct args *args,
                              struct error *err)
{
    CLEANUP_FREE char *control = cmd_control_path(config);
    CLEANUP_FREE char *manifest_path = xasprintf("%s/manifest.toml", config->state_dir);
    const char *conninfo =
        args_has(args, "source") ? args_get(args, "source") : config->source.conninfo;
    struct manifest manifest;
    bool found = false, dropped = false;
    char odd[256] = "";
    if (socket_unix_is_alive(control))
        return error_set(err, ERR_CONFIG, "a walshadow runs on %s: stop it first",
                         config->state_dir);
    if (file_exists(config->state_dir) && !is_ours(config->state_dir, odd, sizeof odd))
        return error_set(err, ERR_CONFIG, "%s is not a state directory of walshadow (it holds %s)",
                         config->state_dir, odd);
    if (manifest_load(manifest_path, &manifest, &found, err) != OK)
        found = false;
    CLEANUP_FREE char *slot =
        xstrdup(found && manifest.slot != NULL ? manifest.slot : config->source.slot);
    if (found)
        manifest_fini(&manifest);
    if (!args_has(args, "keep-slot")) {
        if (conninfo == NULL)
            return error_set(
                err, ERR_CONFIG,
                "no source to drop the slot at: give --source or --config (or --keep-slot)");
        TRY(drop_slot(conninfo, slot, &dropped, err));
        printf(dropped ? "slot %s dropped\n" : "there is no slot %s\n", slot);
    }
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
