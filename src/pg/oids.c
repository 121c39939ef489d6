#include "pg/oids.h"

#include <stdlib.h>

static int oid_order(const void *a, const void *b)
{
    Oid x = *(const Oid *)a, y = *(const Oid *)b;
    return x < y ? -1 : x > y;
}

size_t oids_unique(struct buf *oids)
{
    Oid *o = (Oid *)oids->data;
    size_t n = oids->len / sizeof *o, kept = 0;
    if (n > 1)
        qsort(o, n, sizeof *o, oid_order);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || o[i] != o[kept - 1])
            o[kept++] = o[i];
    oids->len = kept * sizeof *o;
    return kept;
}
