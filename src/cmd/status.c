/* status and tables: the daemon's report, as JSON or text. */
#include "cmd/cmd.h"
#include "ops/control.h"
#include "ops/status.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CALL_TIMEOUT_MS 10000
#define WATCH_INTERVAL_S 1

const struct flag flags_status[] = {
    {"watch", NULL, NULL, "print again every second"},
    {NULL, NULL, NULL, NULL},
};

static enum status fetch(const char *path, json_t **ret, struct error *err)
{
    json_t *request = json_pack("{s:s}", "verb", "status");
    enum status st = control_call(path, request, CALL_TIMEOUT_MS, ret, err);
    json_decref(request);
    return st;
}

static void print_json(const json_t *json)
{
    json_dumpf(json, stdout, JSON_INDENT(1) | JSON_ENCODE_ANY);
    putchar('\n');
}

static void print(const struct command *command, const json_t *status, bool json)
{
    CLEANUP_BUF struct buf text = {0};
    bool tables = strcmp(command->name, "tables") == 0;
    if (json && tables)
        print_json(json_object_get(status, "tables"));
    else if (json)
        print_json(status);
    else if (tables)
        status_json_render_tables(status, &text);
    else
        status_json_render_text(status, &text);
    if (text.len > 0)
        fputs(buf_cstr(&text), stdout);
    fflush(stdout);
}

int cmd_status(const struct command *command, const struct args *args)
{
    struct config_args config_args;
    struct error err;
    bool watch = args_has(args, "watch"), json = args_has(args, "json");
    struct config *config = args_config(args, false, &config_args);
    if (config == NULL)
        return EXIT_USAGE;
    CLEANUP_FREE char *path = cmd_control_path(config);
    enum status st;
    do {
        json_t *status = NULL;
        st = fetch(path, &status, &err);
        if (st == OK) {
            if (watch && !json && isatty(STDOUT_FILENO))
                fputs("\033[H\033[2J", stdout);
            print(command, status, json);
            json_decref(status);
        }
        if (watch && st == OK)
            nanosleep(&(struct timespec){.tv_sec = WATCH_INTERVAL_S}, NULL);
    } while (watch && st == OK);
    if (st != OK)
        complain("%s: %s", command->name, err.message);
    config_free(config);
    return st == OK ? EXIT_DONE : EXIT_FAILED;
}
