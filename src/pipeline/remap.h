/* Another configuration while the stream runs (docs/operations.md says what becomes of a
 * table): selection, names, columns and policies of tables. */
#pragma once
#include "pipeline/reorder.h"

struct reorder_remap {
    const struct config *config; /* the same destinations as before; lives as long as the tables */
    bool applied;                /* result: it is in force */
    size_t ntables;              /* result: for which it changed something */
};
/* A reorder_fn. ctx: struct reorder_remap. ERR_CONFIG: refused, nothing has changed; ERR_RETRY: not
 * yet. Any error once `applied` is set is fatal. */
enum status reorder_remap(struct reorder *r, void *ctx, struct error *err) CHECKED;
