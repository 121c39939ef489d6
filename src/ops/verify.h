/* Compares source and destination row by row, value by value (notes E2). */
#pragma once
#include "base/buf.h"
#include "base/error.h"
#include "base/lsn.h"
#include "config/config.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct verify_table {
    char *name;    /* schema.table */
    uint64_t rows; /* at the source */
    uint64_t missing, extra, different, rejected;
    char *error;       /* could not be compared; NULL = fine */
    struct buf sample; /* lines about the first differing rows */
};

struct verify_report {
    struct verify_table *tables;
    size_t len, cap;
};

struct verify_options {
    const struct config *config;
    const char *http_socket; /* of the engine */
    const json_t *tables;    /* the status report's "tables" array */
    const char *const *only; /* names asked for; nonly 0 = all */
    size_t nonly;
    /* Returns once the destinations hold everything up to lsn. */
    enum status (*wait)(void *ctx, XLogRecPtr lsn, struct error *err);
    void *ctx;
};

/* report is zeroed first; an error is one that ends everything (source gone, a name unknown). */
enum status verify_run(const struct verify_options *options, struct verify_report *report,
                       struct error *err) CHECKED;
void verify_report_fini(struct verify_report *report);
bool verify_is_equal(const struct verify_report *report);
json_t *verify_report_json(const struct verify_report *report);
void verify_report_render(const struct verify_report *report, struct buf *out);
