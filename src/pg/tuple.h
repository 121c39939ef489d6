/* Raw heap tuples and how they come apart into attributes.
 * Source: access/htup_details.h, access/tupmacs.h, varatt.h (postgres.h in 15); same in 15 to 18.
 */
#pragma once
#include "base/error.h"
#include "pg/pg.h"

#include <stddef.h>

#define HEAP_NATTS_MASK 0x07ff
#define HEAP_HASNULL 0x0001
#define HEAP_HASEXTERNAL 0x0004
#define SizeofHeapTupleHeader 23 /* offset of t_bits: where `body` begins */

/* A tuple without its transaction header: what WAL carries, and what a page's tuple has from
 * offset 23 on. Bytes belong to the record, page or buffer they point into; no alignment. */
struct raw_tuple {
    uint16_t infomask2;
    uint16_t infomask;
    uint8_t hoff;
    uint32_t body_len;
    const uint8_t *body; /* null bitmap and padding (hoff - 23 bytes), then data */
};

enum datum_state {
    DATUM_NULL,
    DATUM_VALUE,      /* data/len: the value; for varlena types without its header */
    DATUM_MISSING,    /* attribute added after the tuple was written: attmissingval or NULL */
    DATUM_COMPRESSED, /* data/len: inline pglz or lz4, from the length word on
                         (VARATT_IS_COMPRESSED) */
    DATUM_EXTERNAL,   /* data/len: the 16 bytes of varatt_external */
};

struct datum {
    const uint8_t *data;
    uint32_t len;
    uint8_t state; /* enum datum_state */
};

/* varatt_external, decoded */
struct toast_pointer {
    uint32_t rawsize; /* with the 4-byte header */
    uint32_t extsize; /* stored bytes */
    uint8_t method;   /* 0 pglz, 1 lz4; meaningful if compressed */
    bool compressed;
    Oid value_id;
    Oid toast_relid;
};

/* What decoding needs to know of one attribute. */
struct tuple_att {
    int16_t attlen; /* > 0 fixed, -1 varlena, -2 cstring */
    char attalign;  /* c s i d */
    bool dropped;
};

struct tuple_shape; /* natts, attributes, cached offsets; immutable, shared by threads */
struct tuple_shape *tuple_shape_new(const struct tuple_att *atts, unsigned natts);
void tuple_shape_free(struct tuple_shape *shape);
/* True if attribute `att` has `len` bytes and lies, in every tuple that holds it and has no NULL,
 * at *ret_offset behind the header. */
bool tuple_shape_place(const struct tuple_shape *shape, unsigned att, unsigned len,
                       uint32_t *ret_offset);

/* Splits a tuple into ret[0 .. natts-1]. Everything is checked: hoff, bitmap, attribute lengths; a
 * tuple with more attributes than the shape is ERR_DATA. Values point into tuple->body. */
enum status tuple_deform(const struct tuple_shape *shape, const struct raw_tuple *tuple,
                         struct datum *ret, struct error *err) CHECKED;

/* The same checks without results: what planning does before the first effect. */
enum status tuple_check(const struct tuple_shape *shape, const struct raw_tuple *tuple,
                        struct error *err) CHECKED;

enum status toast_pointer_parse(const struct datum *external, struct toast_pointer *ret,
                                struct error *err) CHECKED;

/* Plain bytes of an inline compressed datum (pglz or lz4) appended to *ret (struct buf). ERR_DATA
 * if damaged or if the plain size exceeds max_bytes (checked before allocating). */
struct buf;
enum status datum_decompress(const struct datum *compressed, size_t max_bytes, struct buf *ret,
                             struct error *err) CHECKED;
