/* Where the rows of one file go: the descriptor they decode with, and per destination the target
 * with the attribute behind each of its columns. Made by the reorder thread, shared with workers.
 */
#pragma once
#include "pipeline/tables.h"

struct route_target {
    struct target *target; /* NULL: this destination does not take the table */
    uint16_t *att;         /* per mapped column: index into the leaf's attributes */
};

struct route {
    atomic_int refs;
    struct rel_desc *desc;
    struct table_entry *table; /* NULL: rows are discarded */
    bool toast;                /* rows are chunks of desc's TOAST table */
    bool key_differs;          /* a leaf logs other old keys than its root's target goes by */
    struct route *fresh;       /* the same rows go there too: the targets of a copy; NULL if none */
    size_t ndestinations;
    struct route_target targets[];
};

struct routes; /* a cache, owned by the reorder thread */
struct routes *routes_new(struct tables *tables, struct history *history);
void routes_free(struct routes *r);
/* The route of rows of this file that commit at lsn; borrowed until the next routes_forget. NULL:
 * the file is not known. Never fails for want of a mapping: such a route has no table. */
struct route *routes_get(struct routes *r, struct rel_file_locator locator, XLogRecPtr lsn);
/* Shapes or tables changed: look everything up again. */
void routes_forget(struct routes *r);

/* A route outside the cache, for a known descriptor (the initial load). */
struct route *route_new(struct tables *tables, struct rel_desc *desc, bool toast);
/* To the targets of a copy alone; NULL if they do not take rows of desc, a leaf of root. */
struct route *route_new_fresh(struct tables *tables, struct table_entry *e, struct rel_desc *desc,
                              struct rel_desc *root, struct target *const *fresh);
struct route *route_ref(struct route *r);
void route_unref(struct route *r);
static inline bool route_is_live(const struct route *r)
{
    return r->table != NULL && table_is_live(r->table);
}
