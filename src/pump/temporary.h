/* Which relations are temporary, from the rows of pg_class in the WAL: a transaction that changed
 * only such is no boundary (notes C7). What is not known to be temporary is not. Owned by the pump.
 */
#pragma once
#include "pg/pg.h"

struct temporary;

struct temporary *temporary_new(void);
void temporary_free(struct temporary *t);
void temporary_set(struct temporary *t, Oid oid, bool is_temporary);
/* A row could not be read: nothing is known to be temporary any more. */
void temporary_forget(struct temporary *t);
bool temporary_contains(const struct temporary *t, Oid oid);
