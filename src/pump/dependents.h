/* Relations that a change of a type, or of their TOAST table, concerns although nothing of theirs
 * was changed. */
#pragma once
#include "catalog/history.h"

/* Appends the oids of relations with columns whose types hold rows of one of the relations already
 * in `oids` (ALTER TYPE … ATTRIBUTE and ALTER TABLE name the composite's own relation), and, with
 * enums, of those whose types hold enums (C7: labels change without a message that names one); and
 * the owners of TOAST tables in `oids`, which VACUUM FULL and CLUSTER may rewrite alone. */
void dependents_add(struct history *history, bool enums, struct buf *oids);
