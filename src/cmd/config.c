#include "base/metrics.h"
#include "cmd/cmd.h"

#include <stdio.h>
#include <string.h>

const struct flag flags_config[] = {
    {"markdown", "WHAT", NULL, "configuration or metrics: the reference page of docs/"},
    {NULL, NULL, NULL, NULL},
};

static int print_markdown(const char *what)
{
    CLEANUP_BUF struct buf out = {0};
    if (strcmp(what, "configuration") == 0) {
        options_render_markdown(&out);
    } else if (strcmp(what, "metrics") == 0) {
        metrics_render_markdown(&out);
    } else {
        complain("config: --markdown %s: must be configuration or metrics", what);
        return EXIT_USAGE;
    }
    fputs(buf_cstr(&out), stdout);
    return EXIT_DONE;
}

int cmd_config(const struct command *command, const struct args *args)
{
    CLEANUP_BUF struct buf out = {0};
    struct config_args config_args;
    (void)command;
    if (args_has(args, "markdown"))
        return print_markdown(args_get(args, "markdown"));
    struct config *config = args_config(args, false, &config_args);
    if (config == NULL)
        return EXIT_USAGE;
    config_print(config, &out);
    fputs(buf_cstr(&out), stdout);
    config_free(config);
    return EXIT_DONE;
}
