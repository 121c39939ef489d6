#include "cmd/cmd.h"
#include "ops/manifest.h"
#include "ops/preflight.h"
#include "source/sql.h"
#include "types/encoder.h"

#include <stdio.h>
#include <stdlib.h>

/* The same question the daemon asks when it makes targets. */
static bool type_supported(void *ctx, unsigned type_oid, const char *type_name)
{
    CLEANUP_FREE char *name = xstrdup(type_name);
    struct att_desc att = {
        .typid = type_oid, .base_typid = type_oid, .typmod = -1, .typtype = 'b', .type_name = name};
    const struct ch_caps caps = {.wide_dates = true, .time64 = true};
    struct encoder encoder;
    struct error err;
    (void)ctx;
    if (encoder_plan(&att, false, NULL, &caps, &encoder, &err) != OK)
        return false;
    encoder_fini(&encoder);
    return true;
}

static bool load_is_complete(const struct config *config)
{
    CLEANUP_FREE char *path = xasprintf("%s/manifest.toml", config->state_dir);
    struct manifest manifest;
    struct error err;
    bool found;
    if (manifest_load(path, &manifest, &found, &err) != OK || !found)
        return false;
    bool complete = manifest.load.state >= MANIFEST_LOAD_WAITING;
    manifest_fini(&manifest);
    return complete;
}

static void print_report(const struct preflight_report *report, bool json)
{
    CLEANUP_BUF struct buf text = {0};
    if (json) {
        json_t *j = preflight_json(report);
        json_dumpf(j, stdout, JSON_INDENT(1));
        putchar('\n');
        json_decref(j);
        return;
    }
    preflight_render_text(report, &text);
    fputs(buf_cstr(&text), stdout);
}

int cmd_check(const struct command *command, const struct args *args)
{
    struct config_args config_args;
    struct preflight_report report = {0};
    struct source_sql *sql = NULL;
    struct error err;
    (void)command;
    struct config *config = args_config(args, true, &config_args);
    if (config == NULL)
        return EXIT_USAGE;
    enum status st = source_sql_open(config->source.conninfo, "walshadow", &sql, &err);
    if (st == OK) {
        bool complete = load_is_complete(config);
        struct preflight_options options = {
            .config = config,
            .source = source_sql_conn(sql),
            .needs_load = !complete,
            .slot_expected = complete,
            .application_name = "walshadow",
            .type_supported = type_supported,
        };
        st = preflight_run(&options, &report, &err);
    }
    if (st != OK) /* not reaching the source is a finding as well: --json stays JSON */
        preflight_add(&report, PREFLIGHT_ERROR, "source_connection", "%s", err.message);
    print_report(&report, args_has(args, "json"));
    int code = preflight_count(&report, PREFLIGHT_ERROR) > 0 ? EXIT_FAILED : EXIT_DONE;
    preflight_report_fini(&report);
    source_sql_close(sql);
    config_free(config);
    return code;
}
