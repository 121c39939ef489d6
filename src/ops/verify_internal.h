/* One table's comparison. Not for other folders. */
#pragma once
#include "ops/verify.h"
#include "ops/verify_plan.h"

struct verify_run {
    const struct verify_options *options;
    PGconn *source;
};

/* Fills counts and sample of table. A failure is this table's. */
enum status verify_table_compare(const struct verify_run *run, const struct verify_plan *plan,
                                 struct verify_table *table, struct error *err) CHECKED;
/* Position of the source's last record. */
enum status verify_source_lsn(PGconn *source, XLogRecPtr *ret, struct error *err) CHECKED;
