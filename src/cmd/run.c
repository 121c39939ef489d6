#include "cmd/cmd.h"
#include "daemon/daemon.h"

#include <errno.h>
#include <stdlib.h>

const struct flag flags_run[] = {
    {"start-lsn", "LSN", NULL, "read from here instead of the saved position"},
    {"ignore-cursor", NULL, NULL, "leave the saved positions aside and load again"},
    {"skip-preflight", NULL, NULL, "start in spite of preflight errors"},
    {"max-segments", "N", NULL, "stop cleanly after N WAL segments"},
    {"dry-run", NULL, NULL, "preflight and plan; nothing is created"},
    {NULL, NULL, NULL, NULL},
};

static bool parse_options(const struct args *args, struct run_options *ret)
{
    const char *lsn = args_get(args, "start-lsn"), *segments = args_get(args, "max-segments");
    ret->ignore_cursor = args_has(args, "ignore-cursor");
    ret->skip_preflight = args_has(args, "skip-preflight");
    ret->dry_run = args_has(args, "dry-run");
    if (lsn != NULL && (!lsn_parse(lsn, &ret->start_lsn) || ret->start_lsn == 0)) {
        complain("run: --start-lsn %s is not an LSN such as 16/B374D848", lsn);
        return false;
    }
    if (segments != NULL) {
        char *end;
        errno = 0;
        long long n = strtoll(segments, &end, 10);
        if (errno != 0 || *end != '\0' || n < 1) {
            complain("run: --max-segments %s is not a positive number", segments);
            return false;
        }
        ret->max_segments = (uint64_t)n;
    }
    return true;
}

int cmd_run(const struct command *command, const struct args *args)
{
    (void)command;
    struct run_options options = {0};
    struct config_args config_args;
    if (!parse_options(args, &options))
        return EXIT_USAGE;
    struct config *config = args_config(args, true, &config_args);
    if (config == NULL)
        return EXIT_USAGE;
    options.config_args = &config_args;
    int code = daemon_run(config, &options);
    config_free(config);
    return code;
}
