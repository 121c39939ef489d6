/* The daemon: everything wired together, from preflight to the last line. */
#pragma once
#include "base/lsn.h"
#include "config/config.h"

#include <stdbool.h>
#include <stdint.h>

struct run_options {
    XLogRecPtr start_lsn;  /* --start-lsn, 0 = by the manifest */
    bool ignore_cursor;    /* --ignore-cursor */
    bool skip_preflight;   /* --skip-preflight */
    uint64_t max_segments; /* --max-segments: stop cleanly after so many, 0 = no limit */
    bool dry_run;          /* --dry-run: preflight and plan, nothing created */
    const struct config_args *config_args; /* for a reload; outlives the call */
};

/* Of a clickhouse:// destination; its strings are the configuration's. */
struct ch_endpoint;
void daemon_endpoint(const struct config_destination *cd, struct ch_endpoint *ret);

/* Runs until SIGTERM, SIGINT, max_segments or the first error; logs it. Returns the exit code. */
int daemon_run(const struct config *config, const struct run_options *options);
