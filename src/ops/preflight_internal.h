/* Shared by the preflight files. Not for other folders. */
#pragma once
#include "ops/preflight.h"

struct preflight_run {
    const struct preflight_options *options;
    struct preflight_report *report;
};

/* Rows, or NULL with a finding of that code. param: $1, or NULL. The caller clears the result. */
PGresult *preflight_query(struct preflight_run *run, const char *code, const char *sql,
                          const char *param);
void preflight_check_shadow(struct preflight_run *run);
void preflight_check_tables(struct preflight_run *run);
