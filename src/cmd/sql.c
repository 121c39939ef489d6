/* sql: one reading statement, which the engine itself classifies and renders. */
#include "base/file.h"
#include "base/socket.h"
#include "clickhouse/supervisor.h"
#include "cmd/cmd.h"
#include "ops/http_client.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define START_ATTEMPTS 2
#define PIECE 65536

const struct flag flags_sql[] = {
    {"on", "NAME", NULL, "destination, if there are several"},
    {"format", "FORMAT", NULL, "ClickHouse output format, default TSV"},
    {"raw", NULL, NULL, "every version of every row, deleted ones too"},
    {NULL, NULL, NULL, NULL},
};

static enum status find_destination(const struct config *config, const char *name,
                                    const struct config_destination **ret, struct error *err)
{
    for (size_t i = 0; i < config->ndestinations; i++) {
        const struct config_destination *d = &config->destinations[i];
        if (name != NULL && strcmp(d->name, name) != 0)
            continue;
        if (d->kind == DESTINATION_NULL)
            return error_set(err, ERR_CONFIG, "destination %s is null: and holds nothing", d->name);
        if (d->kind == DESTINATION_CLICKHOUSE)
            return error_set(
                err, ERR_CONFIG,
                "destination %s: sql for clickhouse:// is not supported by this version; ask "
                "the server with clickhouse-client",
                d->name);
        *ret = d;
        return OK;
    }
    return error_set(err, ERR_CONFIG, "there is no destination %s", name);
}

/* Files an engine makes must belong to whom the daemon runs as: the owner of the data. */
static enum status become_owner(const char *path, struct error *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return error_sys(err, ERR_CONFIG, "no data at %s yet", path);
    if (geteuid() != 0 || st.st_uid == 0)
        return OK;
    if (setgroups(0, NULL) != 0 || setgid(st.st_gid) != 0 || setuid(st.st_uid) != 0)
        return error_sys(err, ERR_CONFIG, "cannot become the owner of %s", path);
    return OK;
}

enum status cmd_engine_start(const struct config *config, const struct config_destination *d,
                             const char *http_path, struct ch_supervisor **ret, struct error *err)
{
    char self[4096];
    CLEANUP_FREE char *listen = cmd_engine_path(config);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    TRY(become_owner(d->path, err));
    struct ch_supervisor_options options = {
        .engine_bin = d->engine_bin[0] != '\0' ? d->engine_bin : self,
        .path = d->path,
        .listen = listen,
        .http = http_path,
        .libchdb = d->libchdb,
        .memory_max = (uint64_t)d->memory_max,
    };
    /* its start and stop are not what was asked for */
    if (config->origin[OPT_LOG_LEVEL] == ORIGIN_DEFAULT)
        log_set_level(LOG_WARN);
    TRY(ch_supervisor_start(&options, ret, err));
    enum status st = ch_supervisor_wait(*ret, START_ATTEMPTS, err);
    if (st != OK) {
        ch_supervisor_stop(*ret);
        *ret = NULL;
    }
    return st;
}

/* The database unqualified names mean: the configured one, else the only one there is. */
static enum status find_database(const struct config_destination *d, const char *http_path,
                                 struct buf *ret, struct error *err)
{
    static const char sql[] = "SELECT name FROM system.databases WHERE lower(name) NOT IN "
                              "('system', 'default', 'information_schema') FORMAT TSVRaw";
    struct http_call *call;
    if (d->database != NULL) {
        buf_printf(ret, "%s", d->database);
        return OK;
    }
    TRY(http_call_open(http_path, "POST", "/", NULL, sql, strlen(sql), &call, err));
    enum status st = http_call_read_all(call, 1 << 20, ret, err);
    char *newline = st == OK ? memchr(ret->data, '\n', ret->len) : NULL;
    if (newline != NULL && newline + 1 == (char *)ret->data + ret->len)
        ret->len--;
    else
        buf_reset(ret); /* none, or several */
    http_call_close(call);
    return st;
}

static enum status print_body(struct http_call *call, FILE *out, struct error *err)
{
    char piece[PIECE];
    for (;;) {
        size_t n;
        TRY(http_call_read(call, piece, sizeof piece, &n, err));
        if (n == 0)
            break;
        if (fwrite(piece, 1, n, out) != n)
            return error_sys(err, ERR_RETRY, "cannot write the result");
    }
    return fflush(out) == 0 ? OK : error_sys(err, ERR_RETRY, "cannot write the result");
}

static enum status ask(const struct config_destination *d, const char *http_path, const char *sql,
                       const struct args *args, struct error *err)
{
    CLEANUP_BUF struct buf target = {0}, database = {0};
    const char *format = args_has(args, "format") ? args_get(args, "format") : "TSV";
    struct http_call *call;
    TRY(find_database(d, http_path, &database, err));
    buf_printf(&target, "/?default_format=");
    url_encode(&target, format, strlen(format));
    buf_printf(&target, "&final=%d", args_has(args, "raw") ? 0 : 1);
    if (database.len > 0) {
        buf_printf(&target, "&database=");
        url_encode(&target, (const char *)database.data, database.len);
    }
    TRY(http_call_open(http_path, "POST", buf_cstr(&target), NULL, sql, strlen(sql), &call, err));
    enum status st;
    if (http_call_code(call) == 200) {
        st = print_body(call, stdout, err);
    } else {
        CLEANUP_BUF struct buf text = {0};
        st = http_call_read_all(call, 1 << 20, &text, err);
        if (st == OK)
            st = error_set(err, ERR_DATA, "%.*s", (int)MIN(text.len, (size_t)500),
                           text.len > 0 ? (char *)text.data : "the engine refused the statement");
    }
    http_call_close(call);
    return st;
}

int cmd_sql(const struct command *command, const struct args *args)
{
    struct config_args config_args;
    struct error err;
    const struct config_destination *d = NULL;
    struct ch_supervisor *engine = NULL;
    (void)command;
    struct config *config = args_config(args, false, &config_args);
    if (config == NULL)
        return EXIT_USAGE;
    CLEANUP_FREE char *http_path = cmd_http_path(config);
    enum status st = find_destination(config, args_get(args, "on"), &d, &err);
    if (st == OK && !socket_unix_is_alive(http_path))
        st = cmd_engine_start(config, d, http_path, &engine, &err);
    if (st == OK)
        st = ask(d, http_path, args->positional[0], args, &err);
    ch_supervisor_stop(engine);
    if (st != OK)
        complain("sql: %s", err.message);
    config_free(config);
    return st == OK ? EXIT_DONE : EXIT_FAILED;
}
