/* Rows of pg_class that a record of the WAL inserts: what is known of a relation before the
 * transaction that makes it has committed (notes C2: rows that are updated cannot be read). */
#pragma once
#include "pg/wal_record.h"

#define PG_CLASS_OID 1259u

struct class_row {
    Oid oid;
    const char *name; /* ends with a NUL; in the record */
    Oid filenode;
    char persistence;
};
typedef void (*class_row_fn)(void *ctx, const struct class_row *row);

/* record: one that writes pg_class. Calls fn for each row it inserts. False: a row could not be
 * read. */
bool class_rows_each(const struct wal_record *record, unsigned major, class_row_fn fn, void *ctx);
