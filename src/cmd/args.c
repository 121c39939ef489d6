#include "cmd/args.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

const struct flag flags_find[] = {
    {"config", "FILE", NULL, "configuration file (TOML)"},
    {"state-dir", "DIR", NULL, "state directory, default ./walshadow-state"},
    {"set", "SECTION.KEY=VALUE", NULL, "one configuration value; may be repeated"},
    {"log-level", "LEVEL", "log.level", "error, warn, info or debug"},
    {NULL, NULL, NULL, NULL},
};

const struct flag flags_source[] = {
    {"destination", "URL", "destination.default.url", "chdb:[PATH], clickhouse://… or null:"},
    {"initial-load", "HOW", NULL, "base_backup, copy or none"},
    {"http-bind", "HOST:PORT", "http.bind", "address of the HTTP endpoint; port 0 = any"},
    {NULL, NULL, NULL, NULL},
};

const struct flag flags_json[] = {
    {"json", NULL, NULL, "JSON on stdout"},
    {NULL, NULL, NULL, NULL},
};

void complain(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("walshadow: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
}

static const struct flag *find_flag(const struct command *command, const char *name, size_t len)
{
    for (const struct flag *const *list = command->flags; *list != NULL; list++) {
        for (const struct flag *f = *list; f->name != NULL; f++) {
            if (strlen(f->name) == len && memcmp(f->name, name, len) == 0)
                return f;
        }
    }
    return NULL;
}

void command_help(const struct command *command)
{
    printf("usage: walshadow %s%s%s", command->name, command->arguments[0] != '\0' ? " " : "",
           command->arguments);
    bool any = false;
    for (const struct flag *const *list = command->flags; *list != NULL; list++)
        any |= (*list)->name != NULL;
    printf("%s\n\n%s\n", any ? " [options]" : "", command->summary);
    if (command->details != NULL)
        printf("\n%s\n", command->details);
    printf("\noptions:\n");
    for (const struct flag *const *list = command->flags; *list != NULL; list++) {
        for (const struct flag *f = *list; f->name != NULL; f++) {
            char left[80];
            snprintf(left, sizeof left, "--%s%s%s", f->name, f->value != NULL ? " " : "",
                     f->value != NULL ? f->value : "");
            printf("  %-26s %s\n", left, f->help);
        }
    }
    printf("  %-26s %s\n", "--help", "this text");
}

static bool usage_error(const struct command *command, int *ret_code, const char *what,
                        const char *which)
{
    complain("%s: %s%s (walshadow %s --help)", command->name, what, which, command->name);
    *ret_code = EXIT_USAGE;
    return false;
}

/* --set and flags that are short for a key. */
static bool note_set(const struct command *command, struct args *args, const struct flag *flag,
                     const char *value, int *ret_code)
{
    const char *key = flag->set;
    if (strcmp(flag->name, "set") == 0) {
        const char *eq = strchr(value, '=');
        if (eq == NULL || eq == value)
            return usage_error(command, ret_code, "--set takes SECTION.KEY=VALUE, not ", value);
        key = xasprintf("%.*s", (int)(eq - value), value); /* lives as long as the process */
        value = eq + 1;
    }
    if (key != NULL)
        args->sets[args->nsets++] = (struct config_set){key, value};
    return true;
}

static bool take_flag(const struct command *command, int argc, char **argv, int *at,
                      struct args *args, int *ret_code)
{
    const char *text = argv[*at] + 2, *eq = strchr(text, '=');
    size_t len = eq != NULL ? (size_t)(eq - text) : strlen(text);
    const struct flag *flag = find_flag(command, text, len);
    const char *value = "";
    if (flag == NULL)
        return usage_error(command, ret_code, "unknown option ", argv[*at]);
    if (flag->value == NULL && eq != NULL)
        return usage_error(command, ret_code, "takes no value: --", flag->name);
    if (flag->value != NULL) {
        if (eq == NULL && *at + 1 >= argc)
            return usage_error(command, ret_code, "needs a value: --", flag->name);
        value = eq != NULL ? eq + 1 : argv[++*at];
    }
    args->flags[args->nflags] = flag;
    args->values[args->nflags++] = value;
    return note_set(command, args, flag, value, ret_code);
}

bool args_parse(const struct command *command, int argc, char **argv, struct args *ret,
                int *ret_code)
{
    bool flags_end = false;
    memset(ret, 0, sizeof *ret);
    if (argc > ARGS_MAX)
        return usage_error(command, ret_code, "too many arguments", "");
    for (int i = 1; i < argc; i++) {
        if (!flags_end && strcmp(argv[i], "--") == 0) {
            flags_end = true;
        } else if (!flags_end && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
            command_help(command);
            *ret_code = EXIT_DONE;
            return false;
        } else if (!flags_end && argv[i][0] == '-' && argv[i][1] == '-') {
            if (!take_flag(command, argc, argv, &i, ret, ret_code))
                return false;
        } else if (!flags_end && argv[i][0] == '-' && argv[i][1] != '\0') {
            return usage_error(command, ret_code, "unknown option ", argv[i]);
        } else {
            ret->positional[ret->npositional++] = argv[i];
        }
    }
    if (command->max_arguments >= 0 && ret->npositional > (size_t)command->max_arguments)
        return usage_error(command, ret_code, "unexpected argument ",
                           ret->positional[command->max_arguments]);
    if (ret->npositional < (size_t)command->min_arguments)
        return usage_error(command, ret_code, "needs ", command->arguments);
    return true;
}

const char *args_get(const struct args *args, const char *flag)
{
    for (size_t i = args->nflags; i-- > 0;) {
        if (strcmp(args->flags[i]->name, flag) == 0)
            return args->values[i];
    }
    return NULL;
}

bool args_has(const struct args *args, const char *flag)
{
    return args_get(args, flag) != NULL;
}

struct config *args_config(const struct args *args, bool need_source, struct config_args *ret_args)
{
    struct config *config;
    struct error err;
    bool url_first = need_source && args->npositional > 0;
    *ret_args = (struct config_args){
        .source_url = url_first ? args->positional[0] : NULL,
        .file = args_get(args, "config"),
        .state_dir = args_get(args, "state-dir"),
        .initial_load = args_get(args, "initial-load"),
        .sets = args->sets,
        .nsets = args->nsets,
        .env = environ,
        .need_source = need_source,
    };
    if (config_load(ret_args, &config, &err) != OK) {
        complain("%s", err.message);
        return NULL;
    }
    log_set_level((enum log_level)config->log.level);
    return config;
}
