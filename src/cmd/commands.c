/* The table of verbs. */
#include "cmd/cmd.h"
#include "cmd/engine.h"
#include "cmd/filter.h"
#include "cmd/wal.h"

#include <string.h>

static const struct flag flags_none[] = {{NULL, NULL, NULL, NULL}};

static const struct flag *const find_only[] = {flags_find, NULL};
static const struct flag *const find_json[] = {flags_find, flags_json, NULL};
static const struct flag *const for_run[] = {flags_find, flags_source, flags_run, NULL};
static const struct flag *const for_check[] = {flags_find, flags_source, flags_json, NULL};
static const struct flag *const for_status[] = {flags_find, flags_json, flags_status, NULL};
static const struct flag *const for_config[] = {flags_find, flags_source, flags_config, NULL};
static const struct flag *const for_wait[] = {flags_find, flags_wait, NULL};
static const struct flag *const for_sql[] = {flags_find, flags_sql, NULL};
static const struct flag *const for_resync[] = {flags_find, flags_resync, NULL};
static const struct flag *const for_remove[] = {flags_find, flags_remove, NULL};
static const struct flag *const for_own[] = {flags_none, NULL};

const struct command commands[] = {
    {"run", "[SOURCE_URL]", 0, 1, "copies the source database and keeps the copy equal",
     "SOURCE_URL is a libpq URL or conninfo, e.g. postgresql://user@host/database. SIGTERM stops\n"
     "cleanly, SIGHUP reloads the configuration.",
     for_run, NULL, cmd_run},
    {"check", "[SOURCE_URL]", 0, 1, "preflight: everything that is wrong, in one report",
     "Exit code 1 if there are errors.", for_check, NULL, cmd_check},
    {"status", "", 0, 0, "what the daemon is doing", NULL, for_status, NULL, cmd_status},
    {"tables", "", 0, 0, "state, reason, target and rows of every table", NULL, find_json, NULL,
     cmd_status},
    {"config", "", 0, 0, "effective configuration and where each value comes from", NULL,
     for_config, NULL, cmd_config},
    {"wait", "", 0, 0, "waits until every destination holds everything up to a position",
     "Exit code 0 once it does, 1 if tables are stopped, 2 on timeout.", for_wait, NULL, cmd_wait},
    {"sql", "'SELECT …'", 1, 1, "one reading statement at the destination",
     "Rows deleted at the source are not seen (final=1) unless --raw is given.", for_sql, NULL,
     cmd_sql},
    {"verify", "[TABLE…]", 0, -1, "compares source and destination, value by value",
     "Needs the running daemon. Exit code 1 on a difference.", find_json, NULL, cmd_verify},
    {"resync", "TABLE", 1, 1, "copies one table again while the stream runs",
     "Follows the copy; exit code 0 once the table streams, 1 if it is stopped.", for_resync, NULL,
     cmd_resync},
    {"pause", "", 0, 0, "stops reading; returns when what was read is at the destinations", NULL,
     find_only, NULL, cmd_control},
    {"resume", "", 0, 0, "ends a pause", NULL, find_only, NULL, cmd_control},
    {"reload", "", 0, 0, "reads the configuration again", NULL, find_only, NULL, cmd_control},
    {"remove", "", 0, 0, "drops the replication slot and the state directory", NULL, for_remove,
     NULL, cmd_remove},
    {"engine", "--path DIR --listen ADDR", 0, -1,
     "the embedded engine (started by run; also alone)", NULL, for_own, cmd_engine, NULL},
    {"filter", "--in SEGMENT… --out-dir DIR", 0, -1, "the filtered form of WAL segments, offline",
     NULL, for_own, cmd_filter, NULL},
    {"wal", "--in SEGMENT…", 0, -1, "what is in WAL segments", NULL, for_own, cmd_wal, NULL},
    {NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL},
};

const struct command *command_find(const char *name)
{
    for (const struct command *c = commands; c->name != NULL; c++) {
        if (strcmp(c->name, name) == 0)
            return c;
    }
    return NULL;
}

char *cmd_control_path(const struct config *config)
{
    return xasprintf("%s/control.sock", config->state_dir);
}

char *cmd_http_path(const struct config *config)
{
    return xasprintf("%s/http.sock", config->state_dir);
}

char *cmd_engine_path(const struct config *config)
{
    return xasprintf("%s/engine.sock", config->state_dir);
}
