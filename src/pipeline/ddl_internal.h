/* Between the files that compare the relations of a boundary (ddl.c, ddl_rewrite.c). */
#pragma once
#include "pipeline/reorder.h"

struct boundary {
    struct reorder *r;
    const struct xact_frame *commit;
    const struct ddl_facts *facts;
    bool *fenced; /* nothing has been sent since */
};

static inline Oid root_of(const struct rel_desc *d)
{
    return d->root_oid == 0 ? d->oid : d->root_oid;
}

/* What was sent is durable and comes no more, once for all tables of the commit; ctx: the boundary.
 */
enum status ddl_fence(void *ctx, struct error *err) CHECKED;
bool ddl_is_truncated(const struct boundary *b, Oid oid);
/* The file got rows that are among the transaction's changes; of a removed file: any change. */
bool ddl_has_inserts(const struct boundary *b, struct rel_file_locator locator);
/* It got rows that are not. */
bool ddl_has_pages(const struct boundary *b, struct rel_file_locator locator);
/* True if a copy already has what this commit did to the table. */
bool ddl_is_covered(struct tables *t, Oid root, XLogRecPtr lsn);
bool ddl_began_before_load(const struct boundary *b);
bool ddl_left_a_file(const struct boundary *b);
/* The rows of the table to which `now` belongs go to a new generation of it, from this boundary or
 * since it was met by another of its partitions; *ret_done false: not all of them are in the WAL.
 * may_be_empty: also if there are none. */
enum status ddl_rewritten(const struct boundary *b, const struct rel_desc *now, bool may_be_empty,
                          bool *ret_done, struct error *err) CHECKED;
