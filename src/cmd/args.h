/* Command lines: one table per verb drives parsing and --help. */
#pragma once
#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>

#define EXIT_DONE 0
#define EXIT_FAILED 1
#define EXIT_USAGE 2

struct flag {
    const char *name;  /* "config", without the dashes */
    const char *value; /* what stands for it in --help; NULL = takes none */
    const char *set;   /* the configuration key it is short for, or NULL */
    const char *help;
};

struct args;

struct command {
    const char *name;
    const char *arguments;            /* positional ones, for --help: "[SOURCE_URL]" */
    int min_arguments, max_arguments; /* max -1 = any number */
    const char *summary;              /* one line */
    const char *details;              /* or NULL */
    const struct flag *const *flags; /* NULL-terminated lists of flags, each ended by a NULL name */
    int (*run)(int argc, char **argv); /* verbs that parse for themselves; else NULL */
    int (*call)(const struct command *command, const struct args *args);
};

#define ARGS_MAX 128

struct args {
    const struct flag *flags[ARGS_MAX]; /* given, in order */
    const char *values[ARGS_MAX];       /* "" for flags without value */
    size_t nflags;
    const char *positional[ARGS_MAX];
    size_t npositional;
    struct config_set sets[ARGS_MAX];
    size_t nsets;
};

/* argv[0] is the verb. Prints usage errors. EXIT_DONE: go on; otherwise *ret_code is the exit code
 * (--help gives EXIT_DONE there and false here). */
bool args_parse(const struct command *command, int argc, char **argv, struct args *ret,
                int *ret_code);
bool args_has(const struct args *args, const char *flag);
const char *args_get(const struct args *args, const char *flag); /* last one given; NULL = none */
void command_help(const struct command *command);

/* The configuration a command works with; prints the error. NULL: exit with EXIT_USAGE. With
 * need_source the first positional argument, if any, is the source's URL. */
struct config *args_config(const struct args *args, bool need_source, struct config_args *ret_args);

/* "walshadow: <text>" on stderr. */
void complain(const char *fmt, ...) PRINTF(1, 2);

/* Flags that several verbs share. */
extern const struct flag flags_find[];   /* --config --state-dir --set --log-level */
extern const struct flag flags_source[]; /* --destination --initial-load --http-bind */
extern const struct flag flags_json[];   /* --json */
