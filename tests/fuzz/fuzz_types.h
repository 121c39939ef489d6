/* A closure with one type of each kind, for tests of values inside values. */
#pragma once
#include "catalog/type_desc.h"

enum {
    FUZZ_TYPE_FIRST = 100000,
    FUZZ_INT_ARRAY = FUZZ_TYPE_FIRST,
    FUZZ_TEXT_ARRAY,
    FUZZ_RANGE, /* of int4 */
    FUZZ_TEXT_RANGE,
    FUZZ_MULTIRANGE, /* of text ranges */
    FUZZ_ENUM,
    FUZZ_ROW, /* int4, text, dropped, enum, array of text */
    FUZZ_ROW_ARRAY,
    FUZZ_DOMAIN, /* over the array of rows */
    FUZZ_TYPE_END,
    FUZZ_TYPES = FUZZ_TYPE_END - FUZZ_TYPE_FIRST,
};

static inline struct type_closure *fuzz_types_new(void)
{
    static const struct type_desc types[] = {
        {.oid = 23, .kind = TYPE_DESC_BASE, .typlen = 4, .typalign = 'i', .typdelim = ','},
        {.oid = 25, .kind = TYPE_DESC_BASE, .typlen = -1, .typalign = 'i', .typdelim = ','},
        {.oid = FUZZ_INT_ARRAY, .kind = TYPE_DESC_ARRAY, .part_oid = 23},
        {.oid = FUZZ_TEXT_ARRAY, .kind = TYPE_DESC_ARRAY, .part_oid = 25},
        {.oid = FUZZ_RANGE, .kind = TYPE_DESC_RANGE, .part_oid = 23},
        {.oid = FUZZ_TEXT_RANGE, .kind = TYPE_DESC_RANGE, .part_oid = 25},
        {.oid = FUZZ_MULTIRANGE, .kind = TYPE_DESC_MULTIRANGE, .part_oid = FUZZ_TEXT_RANGE},
        {.oid = FUZZ_ENUM, .kind = TYPE_DESC_ENUM, .typlen = 4, .typalign = 'i', .typdelim = ','},
        {.oid = FUZZ_ROW, .kind = TYPE_DESC_COMPOSITE, .relid = 99999},
        {.oid = FUZZ_ROW_ARRAY, .kind = TYPE_DESC_ARRAY, .part_oid = FUZZ_ROW},
        {.oid = FUZZ_DOMAIN, .kind = TYPE_DESC_DOMAIN, .part_oid = FUZZ_ROW_ARRAY},
    };
    static const struct composite_att atts[] = {{23, 4, 'i', false},
                                                {25, -1, 'i', false},
                                                {0, 8, 'd', true},
                                                {FUZZ_ENUM, 4, 'i', false},
                                                {FUZZ_TEXT_ARRAY, -1, 'i', false}};
    struct type_closure *c = type_closure_new(LENGTH(types));
    for (unsigned i = 0; i < LENGTH(types); i++) {
        struct type_desc *t = &c->types[i];
        *t = types[i];
        if (t->typlen == 0) {
            t->typlen = -1;
            t->typalign = t->kind == TYPE_DESC_COMPOSITE ? 'd' : 'i';
            t->typdelim = ',';
        }
        if (t->kind == TYPE_DESC_COMPOSITE) {
            t->natts = LENGTH(atts);
            t->atts = xcalloc(t->natts, sizeof *t->atts);
            memcpy(t->atts, atts, sizeof atts);
        } else if (t->kind == TYPE_DESC_ENUM) {
            t->nlabels = 1;
            t->labels = xcalloc(1, sizeof *t->labels);
            *t->labels = (struct enum_label){7, "a label"};
        }
    }
    type_closure_seal(c);
    return c;
}
