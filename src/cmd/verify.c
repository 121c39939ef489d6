#include "base/file.h"
#include "cmd/cmd.h"
#include "ops/control.h"
#include "ops/verify.h"

#include <stdio.h>
#include <string.h>

#define STATUS_TIMEOUT_MS 10000
#define WAIT_TIMEOUT_MS 600000

static enum status call(const char *path, json_t *request, int timeout_ms, json_t **ret,
                        struct error *err)
{
    enum status st = control_call(path, request, timeout_ms, ret, err);
    json_decref(request);
    return st;
}

/* The daemon's own wait; ctx is the control socket's path. Tables that are stopped are reported as
 * such, they do not end the wait. */
static enum status wait_for(void *ctx, XLogRecPtr lsn, struct error *err)
{
    char text[LSN_TEXT_MAX];
    json_t *result = NULL;
    snprintf(text, sizeof text, LSN_FMT, LSN_ARGS(lsn));
    TRY(call(
        ctx,
        json_pack("{s:s, s:s, s:i}", "verb", "wait", "lsn", text, "timeout_ms", WAIT_TIMEOUT_MS),
        WAIT_TIMEOUT_MS + 5000, &result, err));
    bool reached = json_is_true(json_object_get(result, "reached"));
    json_decref(result);
    return reached
               ? OK
               : error_set(err, ERR_RETRY, "the destination did not reach %s in 10 minutes", text);
}

/* What a table that is being copied holds says nothing. */
static enum status wait_for_copies(const char *control, const struct args *args, struct error *err)
{
    json_t *request =
        json_pack("{s:s, s:b, s:i}", "verb", "wait", "copies", 1, "timeout_ms", WAIT_TIMEOUT_MS);
    json_t *result = NULL, *names = json_array();
    for (size_t i = 0; i < args->npositional; i++)
        json_array_append_new(names, json_string(args->positional[i]));
    if (args->npositional > 0)
        json_object_set(request, "tables", names);
    json_decref(names);
    TRY(call(control, request, WAIT_TIMEOUT_MS + 5000, &result, err));
    const char *copying = json_string_value(json_array_get(json_object_get(result, "copying"), 0));
    enum status st = OK;
    if (copying != NULL)
        st =
            error_set(err, ERR_RETRY,
                      "table %s is still being copied after 10 minutes: see `walshadow status`, or "
                      "name the tables to verify",
                      copying);
    else if (!json_is_true(json_object_get(result, "reached")))
        st = error_set(err, ERR_RETRY, "the destination did not reach %s in 10 minutes",
                       json_string_value(json_object_get(result, "lsn")));
    json_decref(result);
    return st;
}

/* Without a configured source: the one the daemon was started with, asked over its private socket.
 */
static struct config *with_daemon_source(struct config *config, struct config_args *config_args)
{
    CLEANUP_FREE char *control = cmd_control_path(config);
    json_t *source = NULL;
    struct error err;
    config_free(config);
    config = NULL;
    if (call(control, json_pack("{s:s}", "verb", "source"), STATUS_TIMEOUT_MS, &source, &err) ==
        OK) {
        config_args->source_url = json_string_value(json_object_get(source, "conninfo"));
        config_args->need_source = true;
        if (config_load(config_args, &config, &err) != OK)
            config = NULL;
        json_decref(source);
    }
    if (config == NULL)
        complain("verify: no source: %s (or give --config, --set source.conninfo=…)", err.message);
    return config;
}

static enum status verify(const struct config *config, const struct args *args,
                          struct verify_report *report, struct error *err)
{
    CLEANUP_FREE char *control = cmd_control_path(config);
    CLEANUP_FREE char *http = cmd_http_path(config);
    const struct config_destination *d = &config->destinations[0];
    json_t *status = NULL;
    if (d->kind == DESTINATION_NULL)
        return error_set(err, ERR_CONFIG, "destination %s is null: and holds nothing to compare",
                         d->name);
    if (d->kind == DESTINATION_CLICKHOUSE)
        return error_set(err, ERR_CONFIG,
                         "verify of a clickhouse:// destination is not supported by this version");
    TRY(wait_for_copies(control, args, err));
    TRY(call(control, json_pack("{s:s}", "verb", "status"), STATUS_TIMEOUT_MS, &status, err));
    struct verify_options options = {
        .config = config,
        .http_socket = http,
        .tables = json_object_get(status, "tables"),
        .only = args->positional,
        .nonly = args->npositional,
        .wait = wait_for,
        .ctx = control,
    };
    enum status st = verify_run(&options, report, err);
    json_decref(status);
    return st;
}

static void print_report(const struct verify_report *report, bool as_json)
{
    CLEANUP_BUF struct buf text = {0};
    if (as_json) {
        json_t *json = verify_report_json(report);
        json_dumpf(json, stdout, JSON_INDENT(1));
        putchar('\n');
        json_decref(json);
        return;
    }
    verify_report_render(report, &text);
    fputs(buf_cstr(&text), stdout);
}

int cmd_verify(const struct command *command, const struct args *args)
{
    struct config_args config_args;
    struct verify_report report = {0};
    struct error err;
    (void)command;
    struct config *config = args_config(args, false, &config_args);
    if (config == NULL)
        return EXIT_USAGE;
    int code = EXIT_FAILED;
    if (config->source.conninfo == NULL)
        config = with_daemon_source(config, &config_args);
    if (config == NULL)
        return EXIT_FAILED;
    if (verify(config, args, &report, &err) != OK) {
        complain("verify: %s", err.message);
    } else {
        print_report(&report, args_has(args, "json"));
        code = verify_is_equal(&report) ? EXIT_DONE : EXIT_FAILED;
    }
    verify_report_fini(&report);
    config_free(config);
    return code;
}
