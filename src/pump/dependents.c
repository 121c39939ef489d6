#include "pump/dependents.h"

#include <stdlib.h>

static Oid oid_at(const struct buf *oids, size_t i)
{
    Oid oid;
    memcpy(&oid, oids->data + i * sizeof oid, sizeof oid);
    return oid;
}

static bool depends(const struct rel_desc *d, bool enums, const struct buf *oids, size_t n)
{
    for (size_t i = 0; i < n && d->toast_oid != InvalidOid; i++)
        if (oid_at(oids, i) == d->toast_oid)
            return true;
    if (d->types == NULL)
        return false;
    if (enums && type_closure_has_enums(d->types))
        return true;
    for (size_t i = 0; i < n; i++)
        if (type_closure_has_rows_of(d->types, oid_at(oids, i)))
            return true;
    return false;
}

void dependents_add(struct history *history, bool enums, struct buf *oids)
{
    struct rel_desc **all;
    size_t n, changed = oids->len / sizeof(Oid);
    if (changed == 0 && !enums)
        return;
    history_all(history, UINT64_MAX, &all, &n);
    for (size_t i = 0; i < n; i++) {
        if (depends(all[i], enums, oids, changed))
            buf_put_u32(oids, all[i]->oid);
        rel_desc_unref(all[i]);
    }
    free(all);
}
