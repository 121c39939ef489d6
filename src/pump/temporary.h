/* Which relations are temporary, from the rows of pg_class in the WAL: a transaction that changed
 * only such is no boundary (notes C7). What is not known to be temporary is not. Owned by the pump.
 */
#pragma once
#include "pg/wal_record.h"

#define PG_CLASS_OID 1259u

struct temporary;

struct temporary *temporary_new(unsigned major);
void temporary_free(struct temporary *t);
/* These are, as far as is known from elsewhere. */
void temporary_add(struct temporary *t, const Oid *oids, size_t n);
/* A record that writes pg_class. An INSERT tells of its relation; a row that cannot be read makes
 * every relation unknown again. */
void temporary_record(struct temporary *t, const struct wal_record *record);
bool temporary_contains(const struct temporary *t, Oid oid);
