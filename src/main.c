/* Finds the verb and calls it. */
#include "cmd/cmd.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static void usage(FILE *out)
{
    fprintf(out,
            "usage: walshadow VERB [arguments]\n\n"
            "Keeps ClickHouse an exact, fresh copy of PostgreSQL tables by reading the physical "
            "WAL.\n\n");
    for (const struct command *c = commands; c->name != NULL; c++)
        fprintf(out, "  %-8s %s\n", c->name, c->summary);
    fprintf(out, "\nwalshadow VERB --help tells more; walshadow --version names the version.\n"
                 "A first run: walshadow run postgresql://user@host/database\n");
}

int main(int argc, char **argv)
{
    struct args args;
    int code = EXIT_DONE;
    if (argc < 2) {
        usage(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return EXIT_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("walshadow %s\n", WALSHADOW_VERSION);
        return EXIT_DONE;
    }
    const struct command *command = command_find(argv[1]);
    if (command == NULL) {
        complain("unknown verb \"%s\" (walshadow --help lists them)", argv[1]);
        return EXIT_USAGE;
    }
    signal(SIGPIPE, SIG_IGN); /* a peer that goes away is an error of that write */
    if (command->run != NULL)
        return command->run(argc - 1, argv + 1);
    if (!args_parse(command, argc - 1, argv + 1, &args, &code))
        return code;
    return command->call(command, &args);
}
