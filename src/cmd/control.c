/* pause, resume, reload: one request, as the daemon answers. */
#include "cmd/cmd.h"
#include "ops/control.h"

#include <stdio.h>
#include <string.h>

int cmd_control(const struct command *command, const struct args *args)
{
    struct config_args config_args;
    struct error err;
    json_t *result = NULL;
    struct config *config = args_config(args, false, &config_args);
    if (config == NULL)
        return EXIT_USAGE;
    CLEANUP_FREE char *path = cmd_control_path(config);
    json_t *request = json_pack("{s:s}", "verb", command->name);
    enum status st = control_call(path, request, -1, &result, &err);
    json_decref(request);
    const char *note = json_string_value(json_object_get(result, "note"));
    if (st != OK)
        complain("%s: %s", command->name, err.message);
    else if (note != NULL)
        printf("%s\n", note);
    json_decref(result);
    config_free(config);
    return st == OK ? EXIT_DONE : EXIT_FAILED;
}
