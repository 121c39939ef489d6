/* How one table is compared: columns, key, and both sides' SELECTs. Not for other folders. */
#pragma once
#include "base/buf.h"
#include "config/config.h"
#include "ops/verify_stream.h"
#include "pg/pg.h"

#include <libpq-fe.h>

struct verify_column {
    char *name;                /* at the source, for messages and rejects */
    char *pg, *ch;             /* expressions whose texts must be equal */
    char *pg_order, *ch_order; /* of key columns */
    char *pg_key, *ch_key; /* of key columns: what a key's text is compared with to find a row */
    bool is_number;        /* key order is numeric, else by bytes */
};

struct verify_plan {
    char *name;                    /* schema.table */
    struct verify_column *columns; /* key columns first, in key order */
    size_t ncolumns, nkeys;
    char *pg_from, *ch_from;
};

/* target is "database.table". ERR_CONFIG names what cannot be compared. */
enum status verify_plan_make(PGconn *source, const char *http_socket, const struct config *config,
                             const char *name, const char *target, struct verify_plan *ret,
                             struct error *err) CHECKED;
void verify_plan_fini(struct verify_plan *plan);

/* The statements, appended. where: a condition, or NULL = all rows. The destination's has one field
 * more than the plan has columns: the row's _lsn. */
void verify_plan_source_sql(const struct verify_plan *plan, const char *where, struct buf *out);
void verify_plan_engine_sql(const struct verify_plan *plan, const char *where, struct buf *out);
/* Conditions that find the rows with the keys of `rows`. */
void verify_plan_source_where(const struct verify_plan *plan, PGconn *source,
                              const struct verify_row *const *rows, size_t nrows, struct buf *out);
void verify_plan_engine_where(const struct verify_plan *plan, const struct verify_row *const *rows,
                              size_t nrows, struct buf *out);
/* < 0, 0, > 0: order of two rows' keys. */
int verify_plan_compare(const struct verify_plan *plan, const struct verify_row *a,
                        const struct verify_row *b);
