/* resync: asks for the copy, then follows it in the daemon's status. */
#include "cmd/cmd.h"
#include "ops/control.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define POLL_MS 250

const struct flag flags_resync[] = {
    {"no-wait", NULL, NULL, "return once the copy has been asked for"},
    {NULL, NULL, NULL, NULL},
};

/* The table's entry for one destination in the status; NULL = none. */
static const json_t *find(const json_t *status, const char *name)
{
    size_t i;
    const json_t *t;
    json_array_foreach(json_object_get(status, "tables"), i, t)
    {
        const char *its = json_string_value(json_object_get(t, "name"));
        if (its != NULL && strcmp(its, name) == 0)
            return t;
    }
    return NULL;
}

static const char *text_of(const json_t *entry, const char *key)
{
    const char *text = json_string_value(json_object_get(entry, key));
    return text == NULL ? "" : text;
}

/* What to say and return once it is no longer resyncing. */
static int judge(const char *name, const json_t *entry)
{
    const char *state = text_of(entry, "state");
    if (strcmp(state, "streaming") == 0) {
        printf("%s: streaming\n", name);
        return EXIT_DONE;
    }
    /* renamed meanwhile, it is there under another name */
    complain("resync: %s is %s: %s", name, entry == NULL ? "no longer there" : state,
             text_of(entry, "reason"));
    return EXIT_FAILED;
}

static int follow(const char *path, const char *name)
{
    CLEANUP_FREE char *last = xstrdup("");
    json_t *request = json_pack("{s:s}", "verb", "status");
    int code = -1;
    while (code < 0) {
        struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
        struct error err;
        json_t *status = NULL;
        if (control_call(path, request, -1, &status, &err) != OK) {
            complain("resync: %s", err.message);
            code = EXIT_FAILED;
            break;
        }
        const json_t *entry = find(status, name);
        const char *reason = text_of(entry, "reason");
        if (entry == NULL || strcmp(text_of(entry, "state"), "resyncing") != 0) {
            code = judge(name, entry);
        } else if (strcmp(reason, last) != 0) {
            printf("%s: %s\n", name, reason);
            fflush(stdout);
            free(last);
            last = xstrdup(reason);
        }
        json_decref(status);
        if (code < 0)
            nanosleep(&pause, NULL);
    }
    json_decref(request);
    return code;
}

int cmd_resync(const struct command *command, const struct args *args)
{
    struct config_args config_args;
    struct error err;
    json_t *result = NULL;
    struct config *config = args_config(args, false, &config_args);
    (void)command;
    if (config == NULL)
        return EXIT_USAGE;
    CLEANUP_FREE char *path = cmd_control_path(config);
    json_t *request = json_pack("{s:s, s:s}", "verb", "resync", "table", args->positional[0]);
    int code = EXIT_FAILED;
    if (control_call(path, request, -1, &result, &err) != OK)
        complain("resync: %s", err.message);
    else if (args_has(args, "no-wait"))
        code = EXIT_DONE;
    else
        code = follow(path, text_of(result, "table"));
    json_decref(request);
    json_decref(result);
    config_free(config);
    return code;
}
