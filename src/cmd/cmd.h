/* One function per verb: parse what is its own, call, print; the exit code. */
#pragma once
#include "cmd/args.h"

int cmd_run(const struct command *command, const struct args *args);
int cmd_check(const struct command *command, const struct args *args);
int cmd_status(const struct command *command, const struct args *args); /* also tables */
int cmd_config(const struct command *command, const struct args *args);
int cmd_wait(const struct command *command, const struct args *args);
int cmd_sql(const struct command *command, const struct args *args);

int cmd_verify(const struct command *command, const struct args *args);
int cmd_control(const struct command *command, const struct args *args); /* pause … reload */
int cmd_resync(const struct command *command, const struct args *args);
int cmd_remove(const struct command *command, const struct args *args);

extern const struct flag flags_run[], flags_status[], flags_config[], flags_wait[], flags_sql[],
    flags_resync[], flags_remove[];

/* The verb's entry, or NULL. commands ends with a NULL name. */
extern const struct command commands[];
const struct command *command_find(const char *name);

/* Path of a socket in the configuration's state directory; malloc'd. */
char *cmd_control_path(const struct config *config);
char *cmd_http_path(const struct config *config);
char *cmd_engine_path(const struct config *config);

/* An engine on the destination's data while no daemon runs, on cmd_engine_path, and for HTTP on
 * http_path unless that is NULL. The process becomes the data's owner. */
struct ch_supervisor;
enum status cmd_engine_start(const struct config *config, const struct config_destination *d,
                             const char *http_path, struct ch_supervisor **ret,
                             struct error *err) CHECKED;
