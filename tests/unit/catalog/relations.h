/* Descriptors for the tests of the catalog log and the history. */
#pragma once
#include "catalog/descriptor.h"
#include "test.h"

static inline struct rel_file_locator file_of(Oid number)
{
    return (struct rel_file_locator){1663, 5, number};
}

/* Table t<oid> with natts int columns; TOAST file number + 1 if natts > 2. */
static inline struct rel_desc *relation(Oid oid, XLogRecPtr valid_from, Oid number, unsigned natts)
{
    struct rel_desc *d = rel_desc_new(natts);
    d->valid_from = valid_from;
    d->oid = d->root_oid = oid;
    d->namespace_oid = 2200;
    d->locator = file_of(number);
    if (natts > 2) {
        d->toast_oid = oid + 1;
        d->toast_locator = file_of(number + 1);
    }
    d->relkind = 'r';
    d->relpersistence = 'p';
    d->relreplident = 'd';
    d->relam = 2;
    d->identity = IDENTITY_TID;
    strcpy(d->schema, "public");
    snprintf(d->name, sizeof d->name, "t%u", oid);
    for (unsigned i = 0; i < natts; i++) {
        struct att_desc *a = &d->atts[i];
        a->attnum = (int16_t)(i + 1);
        a->attlen = 4;
        a->attalign = 'i';
        a->attstorage = 'p';
        a->typtype = 'b';
        a->typcategory = 'N';
        a->typid = a->base_typid = 23;
        a->typmod = -1;
        snprintf(a->name, sizeof a->name, "c%u", i);
        a->type_name = xstrdup("integer");
    }
    rel_desc_seal(d);
    return d;
}

static inline struct rel_desc *dropped(Oid oid, XLogRecPtr valid_from)
{
    struct rel_desc *d = rel_desc_new(0);
    d->oid = d->root_oid = oid;
    d->relkind = 'r';
    d->dropped = true;
    d->valid_from = valid_from;
    rel_desc_seal(d);
    return d;
}
