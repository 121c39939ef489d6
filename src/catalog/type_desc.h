/* What decoding needs to know of types that are made of others or have labels: arrays, ranges,
 * multiranges, enums, composites, domains, with every type they are made of. Captured with the
 * relation that uses them, as one closure: immutable and counted, shared by threads without locks.
 * Source: pg_type, pg_enum, pg_range, pg_attribute; the same in 15 to 18. */
#pragma once
#include "base/buf.h"
#include "base/cursor.h"
#include "pg/tuple.h"

#include <stdatomic.h>

#define NAMEDATALEN 64

enum type_desc_kind {
    TYPE_DESC_BASE, /* no part of it is another type */
    TYPE_DESC_ARRAY,
    TYPE_DESC_RANGE,
    TYPE_DESC_MULTIRANGE,
    TYPE_DESC_ENUM,
    TYPE_DESC_COMPOSITE,
    TYPE_DESC_DOMAIN,
};

struct enum_label {
    Oid oid;
    char text[NAMEDATALEN];
};

struct composite_att {
    Oid typid; /* 0: dropped */
    int16_t attlen;
    char attalign;
    bool dropped;
};

struct type_desc {
    Oid oid;
    uint8_t kind;           /* enum type_desc_kind */
    int16_t typlen;         /* > 0, -1 varlena, -2 cstring */
    char typalign;          /* c s i d */
    char typdelim;          /* between the elements of an array of it */
    Oid part_oid;           /* array: element; domain: base; range: subtype; multirange: range */
    Oid relid;              /* composite: its pg_class */
    char name[NAMEDATALEN]; /* pg_type.typname, for messages */
    unsigned nlabels;
    struct enum_label *labels; /* by oid */
    unsigned natts;
    struct composite_att *atts;
    struct tuple_shape *shape; /* of a composite; made by type_closure_seal */
};

struct type_closure {
    atomic_int refs;
    unsigned n;
    struct type_desc *types; /* by oid, each once */
};

struct type_closure *type_closure_new(unsigned n); /* zeroed, refs 1 */
/* Sorts types and labels, builds shapes; afterwards immutable. */
void type_closure_seal(struct type_closure *c);
struct type_closure *type_closure_ref(struct type_closure *c);
void type_closure_unref(struct type_closure *c); /* NULL is fine */

/* NULL: not in the closure (or no closure). */
const struct type_desc *type_closure_find(const struct type_closure *c, Oid oid);
/* The label of an enum value, NULL if there is none. */
const char *type_desc_label(const struct type_desc *t, Oid oid);
/* True if values of `t` hold rows of the relation's row type somewhere (ALTER TYPE … ATTRIBUTE
 * names that relation). */
bool type_closure_has_rows_of(const struct type_closure *c, Oid relid);
bool type_closure_has_enums(const struct type_closure *c);

/* NULL and NULL are equal. */
bool type_closure_equal(const struct type_closure *a, const struct type_closure *b);
/* Why values written before have another text form now; NULL if none has (labels were added). */
const char *type_closure_text_change(const struct type_closure *before,
                                     const struct type_closure *now);

/* Serialised form, a part of the relation's; c may be NULL. */
void type_closure_write(const struct type_closure *c, struct buf *out);
/* *ret is NULL for none. False: damaged. */
bool type_closure_read(struct cursor *c, struct type_closure **ret);
