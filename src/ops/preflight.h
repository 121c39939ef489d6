/* Everything that can be wrong with the environment, in one report before anything is started. */
#pragma once
#include "base/buf.h"
#include "base/error.h"
#include "config/config.h"

#include <jansson.h>
#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>

enum preflight_severity { PREFLIGHT_INFO, PREFLIGHT_WARNING, PREFLIGHT_ERROR };

struct preflight_finding {
    enum preflight_severity severity;
    char code[40]; /* stable, e.g. "wal_level" */
    char *text;    /* what is wrong and what to do */
};

struct preflight_report {
    struct preflight_finding *findings;
    size_t len, cap;
    int server_version; /* 150018 … */
    char bin_dir[512];  /* the shadow's programs that were found, "" = none */
};

struct preflight_options {
    const struct config *config;
    PGconn *source;               /* an open SQL session in the replicated database */
    bool needs_load;              /* a base backup will be taken: one walsender more */
    bool slot_expected;           /* a restart: the slot must be there */
    const char *application_name; /* of the replication connection; default "walshadow" */
    /* Whether a column of this base type can be carried; NULL = not asked. */
    bool (*type_supported)(void *ctx, unsigned type_oid, const char *type_name);
    void *ctx;
};

/* Runs every check; a failing query is a finding of its own, never the end of the report. The
 * return is an error only when the session is lost. report is zeroed first. */
enum status preflight_run(const struct preflight_options *options, struct preflight_report *report,
                          struct error *err) CHECKED;
void preflight_report_fini(struct preflight_report *report);
void preflight_add(struct preflight_report *report, enum preflight_severity severity,
                   const char *code, const char *fmt, ...) PRINTF(4, 5);
size_t preflight_count(const struct preflight_report *report, enum preflight_severity severity);
void preflight_render_text(const struct preflight_report *report, struct buf *out);
json_t *preflight_json(const struct preflight_report *report); /* {"ok":bool,"findings":[…]} */

/* The shadow's bin directory for a major: shadow.bin_dir if set, else /usr/lib/postgresql/N/bin,
 * PATH, .deps beside the program or below the working directory. Checks that postgres is there and
 * of that major. *ret_version is its number (150018). ERR_CONFIG names what was tried. */
enum status preflight_find_bin_dir(const char *configured, int major, char *ret_dir, size_t cap,
                                   int *ret_version, struct error *err) CHECKED;

/* Whether application_name is named by a synchronous_standby_names text (notes A2). */
bool synchronous_names_match(const char *names, const char *application_name);
