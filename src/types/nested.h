/* Text form of values that are made of others: arrays, ranges, multiranges, composites, enums, and
 * domains over all of them. */
#pragma once
#include "base/buf.h"
#include "catalog/type_desc.h"

struct text_plan; /* immutable; shared by threads */

/* How a value of type `oid`, as the closure describes it, is printed; keeps a reference to the
 * closure. ERR_CONFIG names a part whose type is not carried. */
enum status text_plan_new(struct type_closure *types, Oid oid, struct text_plan **ret,
                          struct error *err) CHECKED;
void text_plan_free(struct text_plan *plan); /* NULL is fine */

/* True if the type is an enum, or a domain over one. */
bool text_plan_is_enum(const struct text_plan *plan);

/* Appends the text form of a datum (no varlena header). False, nothing appended: damaged. */
bool text_plan_put(const struct text_plan *plan, const uint8_t *data, uint32_t len,
                   struct buf *out);
