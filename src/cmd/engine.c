#include "cmd/engine.h"

#include "base/file.h"
#include "base/log.h"
#include "engine/server.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXIT_USAGE 2
#define PASSWORD_MAX_BYTES 4096u

static const char usage_text[] =
    "Usage: walshadow engine --path DIR --listen ADDR [options]\n"
    "\n"
    "Serves the ClickHouse engine in libchdb over ClickHouse's native protocol and HTTP.\n"
    "\n"
    "  --path DIR               data directory, created if missing; one engine per directory\n"
    "  --listen ADDR            native protocol, may write: unix:PATH or tcp:HOST:PORT; "
    "repeatable\n"
    "  --read-only-listen ADDR  native protocol, one reading statement at a time; repeatable\n"
    "  --http ADDR              HTTP, read-only: unix:PATH or HOST:PORT; repeatable\n"
    "  --user NAME              the only user (default: default, without a password)\n"
    "  --password-file FILE     first line is that user's password\n"
    "  --memory-max BYTES       limit of the engine's memory (default 512 MiB; K, M, G suffixes)\n"
    "  --libchdb FILE           libchdb.so (default: $WALSHADOW_LIBCHDB, library path, .deps)\n"
    "  --sessions-max N         connections at a time, writing and reading each (default 128)\n"
    "  --lock-wait SECONDS      how long to wait for another engine to leave DIR (default 30)\n"
    "  --control-fd N           leave when this descriptor reads end of file\n"
    "  --fault SPEC             misbehave on demand, for tests; see src/engine/fault.h\n"
    "  --log-level LEVEL        error, warn, info or debug\n"
    "  --help\n"
    "\n"
    "Prints a line that begins with \"ready\" once it serves. SIGTERM stops it.\n";

enum option_id {
    OPT_PATH = 256,
    OPT_LISTEN,
    OPT_READ_ONLY_LISTEN,
    OPT_HTTP,
    OPT_USER,
    OPT_PASSWORD_FILE,
    OPT_MEMORY_MAX,
    OPT_LIBCHDB,
    OPT_SESSIONS_MAX,
    OPT_LOCK_WAIT,
    OPT_CONTROL_FD,
    OPT_FAULT,
    OPT_LOG_LEVEL,
    OPT_TLS,
    OPT_HELP,
};

static const struct option long_options[] = {
    {"path", required_argument, NULL, OPT_PATH},
    {"listen", required_argument, NULL, OPT_LISTEN},
    {"read-only-listen", required_argument, NULL, OPT_READ_ONLY_LISTEN},
    {"http", required_argument, NULL, OPT_HTTP},
    {"user", required_argument, NULL, OPT_USER},
    {"password-file", required_argument, NULL, OPT_PASSWORD_FILE},
    {"memory-max", required_argument, NULL, OPT_MEMORY_MAX},
    {"libchdb", required_argument, NULL, OPT_LIBCHDB},
    {"sessions-max", required_argument, NULL, OPT_SESSIONS_MAX},
    {"lock-wait", required_argument, NULL, OPT_LOCK_WAIT},
    {"control-fd", required_argument, NULL, OPT_CONTROL_FD},
    {"fault", required_argument, NULL, OPT_FAULT},
    {"log-level", required_argument, NULL, OPT_LOG_LEVEL},
    {"tls-cert", required_argument, NULL, OPT_TLS},
    {"tls-key", required_argument, NULL, OPT_TLS},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

/* A number up to max, with K, M or G where `sized`. */
static bool number_parse(const char *text, uint64_t max, bool sized, uint64_t *ret)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    unsigned shift = 0;
    if (errno != 0 || end == text || *text == '-')
        return false;
    if (sized && *end != 0)
        shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (shift > 0)
        end++;
    if (shift > 0 && strcmp(end, "iB") == 0)
        end += 2;
    if (*end != 0 || v > max >> shift)
        return false;
    *ret = (uint64_t)v << shift;
    return true;
}

static enum status password_read(const char *file, char **ret_password, struct error *err)
{
    CLEANUP_BUF struct buf text = {0};
    TRY(file_read_all(file, PASSWORD_MAX_BYTES, &text, err));
    char *line = buf_cstr(&text);
    line[strcspn(line, "\r\n")] = 0;
    *ret_password = xstrdup(line);
    return OK;
}

static enum status address_add(const char **list, unsigned *n, const char *text, struct error *err)
{
    if (*n == ENGINE_ADDRESSES_MAX)
        return error_set(err, ERR_CONFIG, "at most %d addresses of a kind", ENGINE_ADDRESSES_MAX);
    list[(*n)++] = text;
    return OK;
}

static enum status number_take(const char *name, const char *text, uint64_t max, bool sized,
                               uint64_t *ret, struct error *err)
{
    if (number_parse(text, max, sized, ret))
        return OK;
    return error_set(err, ERR_CONFIG, "%s: \"%s\" is not a number that fits", name, text);
}

static enum status option_take_number(struct engine_options *o, int id, const char *text,
                                      struct error *err)
{
    uint64_t n = 0;
    switch (id) {
    case OPT_MEMORY_MAX:
        return number_take("--memory-max", text, UINT64_MAX >> 1, true, &o->memory_max, err);
    case OPT_SESSIONS_MAX:
        TRY(number_take("--sessions-max", text, 10000, false, &n, err));
        o->sessions_max = (unsigned)n;
        return OK;
    case OPT_LOCK_WAIT:
        TRY(number_take("--lock-wait", text, 86400, false, &n, err));
        o->lock_wait_s = (unsigned)n;
        return OK;
    default:
        TRY(number_take("--control-fd", text, 1 << 20, false, &n, err));
        o->control_fd = (int)n;
        return OK;
    }
}

static enum status option_take(struct engine_options *o, int id, char *text, char **password_file,
                               struct error *err)
{
    enum log_level level;
    switch (id) {
    case OPT_PATH:
        o->path = text;
        return OK;
    case OPT_LISTEN:
        return address_add(o->listen, &o->nlisten, text, err);
    case OPT_READ_ONLY_LISTEN:
        return address_add(o->read_only_listen, &o->nread_only, text, err);
    case OPT_HTTP:
        return address_add(o->http, &o->nhttp, text, err);
    case OPT_USER:
        o->user = text;
        return OK;
    case OPT_PASSWORD_FILE:
        *password_file = text;
        return OK;
    case OPT_LIBCHDB:
        o->libchdb = text;
        return OK;
    case OPT_FAULT:
        o->fault = text;
        return OK;
    case OPT_LOG_LEVEL:
        if (!log_level_parse(text, &level))
            return error_set(err, ERR_CONFIG, "--log-level: \"%s\" is not a level", text);
        log_set_level(level);
        return OK;
    case OPT_TLS:
        return error_set(err, ERR_CONFIG, "--tls-cert and --tls-key are not built yet");
    default:
        return option_take_number(o, id, text, err);
    }
}

static enum status options_check(struct engine_options *o, const char *password_file,
                                 struct error *err)
{
    if (o->path == NULL)
        return error_set(err, ERR_CONFIG, "--path is missing");
    if (o->nlisten + o->nread_only + o->nhttp == 0)
        return error_set(err, ERR_CONFIG, "nothing to listen on: give --listen");
    if ((o->user == NULL) != (password_file == NULL))
        return error_set(err, ERR_CONFIG, "--user and --password-file go together");
    if (o->user != NULL && o->user[0] == 0)
        return error_set(err, ERR_CONFIG, "--user is empty");
    char *password = NULL;
    if (password_file != NULL)
        TRY(password_read(password_file, &password, err));
    o->password = password; /* lives as long as the process */
    return OK;
}

int cmd_engine(int argc, char **argv)
{
    struct engine_options o = {.control_fd = -1, .lock_wait_s = 30};
    char *password_file = NULL;
    struct error err = {0};
    enum status status = OK;
    int id;
    optind = 1;
    while (status == OK && (id = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        if (id == OPT_HELP) {
            fputs(usage_text, stdout);
            return 0;
        }
        if (id == '?')
            return EXIT_USAGE; /* getopt has said why */
        status = option_take(&o, id, optarg, &password_file, &err);
    }
    if (status == OK && optind < argc)
        status = error_set(&err, ERR_CONFIG, "unexpected argument \"%s\"", argv[optind]);
    if (status == OK)
        status = options_check(&o, password_file, &err);
    if (status != OK) {
        fprintf(stderr, "walshadow engine: %s\n", err.message);
        return EXIT_USAGE;
    }
    status = engine_serve(&o, &err);
    if (status != OK)
        fprintf(stderr, "walshadow engine: %s\n", err.message);
    fflush(NULL);
    _exit(status == OK ? 0 : 1); /* exit() would run into the library's threads */
}
