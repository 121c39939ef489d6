/* What a relation looks like: the shape decoding and targets need, nothing else, so that two equal
 * descriptors mean "nothing changed" (GRANT, CREATE INDEX, storage parameters …). */
#pragma once
#include "catalog/type_desc.h"

struct att_desc {
    int16_t attnum; /* 1 … natts; dropped ones keep their place */
    int16_t attlen;
    char attalign;   /* c s i d */
    char attstorage; /* p e m x */
    char generated;  /* 0, 's' stored, 'v' virtual (18) */
    bool dropped;
    bool not_null;    /* no NULL can be there (F7: false while an unvalidated constraint exists) */
    bool has_missing; /* attmissingval: `missing` holds the datum, without varlena header */
    bool missing_is_text; /* … or its text form, of a type that no typed target takes */
    char typtype;         /* b c d e m p r */
    char typcategory;     /* pg_type.typcategory */
    Oid typid;
    int32_t typmod;
    Oid elem_typid; /* typelem of true arrays, else 0 */
    Oid base_typid; /* domains: the base type at the end of the chain, else typid */
    char name[NAMEDATALEN];
    char *type_name;            /* format_type(typid, typmod), for messages */
    struct type_closure *types; /* the relation's, if base_typid is described there, else NULL */
    uint8_t *missing;
    uint32_t missing_len;
};

enum rel_identity {
    IDENTITY_KEY, /* key_attnums: columns of the identity index (notes B4) */
    IDENTITY_TID, /* no usable key: _ctid (and _part below a partitioned root) */
};

struct rel_desc {
    atomic_int refs;
    XLogRecPtr
        valid_from; /* commit-record end LSN from which this shape holds; 0 = from the seed */
    Oid oid;
    Oid namespace_oid;
    struct rel_file_locator locator; /* rel_number 0: no storage (partitioned root) */
    Oid toast_oid;                   /* 0: none */
    struct rel_file_locator toast_locator;
    Oid root_oid;        /* topmost partitioned ancestor, or own oid */
    char relkind;        /* r ordinary, p partitioned, m matview, t toast … */
    char relpersistence; /* p u t */
    char relreplident;   /* d i f n */
    Oid relam;           /* 2 = heap */
    bool dropped;        /* log entry that ends the relation's life */
    char schema[NAMEDATALEN];
    char name[NAMEDATALEN];
    uint8_t identity; /* enum rel_identity */
    uint16_t nkeys;
    int16_t key_attnums[32]; /* in index order */
    uint16_t natts;
    struct att_desc *atts;
    struct type_closure *types; /* what its columns' types are made of; NULL: only plain ones */
    struct tuple_shape *shape;  /* made from atts by rel_desc_seal */
};

struct rel_desc *rel_desc_new(unsigned natts); /* zeroed, refs 1 */
void rel_desc_seal(struct rel_desc *d);        /* builds shape, links types; afterwards immutable */
struct rel_desc *rel_desc_ref(struct rel_desc *d);
void rel_desc_unref(struct rel_desc *d); /* NULL is fine */

/* Equal in everything that a row's decoding or its target depends on. Not compared: refs,
 * valid_from, attstorage (says how the next value is stored; each datum tells its own form),
 * relreplident (what it means here is in identity and key_attnums), names of types and, unless
 * asked, storage (locator, toast_locator). */
bool rel_desc_equal(const struct rel_desc *a, const struct rel_desc *b, bool with_storage);
/* The same, whatever became of the types its columns' types are made of (enum labels, attributes of
 * composites): what type_closure_text_change is asked about. */
bool rel_desc_equal_but_types(const struct rel_desc *a, const struct rel_desc *b);
/* The same, where `now` is in another file and has forgotten the values of old rows: VACUUM FULL
 * and CLUSTER write them into every row (RelationClearMissing in catalog/heap.c). */
bool rel_desc_equal_rewritten(const struct rel_desc *before, const struct rel_desc *now);

/* Serialised form for the catalog log. */
void rel_desc_write(const struct rel_desc *d, struct buf *out);
enum status rel_desc_read(struct cursor *c, struct rel_desc **ret, struct error *err) CHECKED;

/* Reads descriptors from a catalog: the shadow's, or the source's for the seed. oids NULL = every
 * relation of kind r, p, m, t that is not a system one. A relation that is gone yields no row; the
 * caller sees it by its absence. ret is a malloc'd array of n references owned by the caller. */
typedef enum status (*catalog_read_fn)(void *ctx, const Oid *oids, size_t noids,
                                       struct rel_desc ***ret, size_t *ret_n, struct error *err);
