#include "pg/tuple.h"

#include "base/buf.h"
#include "base/cursor.h"
#include "pg/compress.h"

#include <stdlib.h>
#include <string.h>

/* access/attnum.h, varatt.h (postgres.h in 15) */
#define VARTAG_ONDISK 18
#define VARATT_EXTERNAL_SIZE 16

struct shape_att {
    int16_t len;
    uint8_t align_mask; /* alignment - 1 */
};

/* The fixed-width attributes before the first variable one sit at the same offset in every tuple
 * that has no NULL among them: offsets and ends are computed once (as PostgreSQL's attcacheoff). */
struct tuple_shape {
    unsigned natts;
    unsigned nfixed; /* attributes of that prefix */
    unsigned ndropped;
    struct shape_att *atts;
    uint32_t *offsets; /* nfixed */
    uint32_t *ends;    /* nfixed: offset + length */
    uint16_t *dropped; /* ndropped indexes */
};

static uint8_t align_mask(char attalign)
{
    switch (attalign) {
    case 'c':
        return 0;
    case 's':
        return 1;
    case 'i':
        return 3;
    default:
        CHECK(attalign == 'd');
        return 7;
    }
}

struct tuple_shape *tuple_shape_new(const struct tuple_att *atts, unsigned natts)
{
    struct tuple_shape *s = xcalloc(1, sizeof *s);
    uint32_t at = 0;
    bool fixed = true;
    CHECK(natts <= HEAP_NATTS_MASK);
    s->natts = natts;
    s->atts = xcalloc(natts + 1, sizeof *s->atts);
    s->offsets = xcalloc(natts + 1, sizeof *s->offsets);
    s->ends = xcalloc(natts + 1, sizeof *s->ends);
    s->dropped = xcalloc(natts + 1, sizeof *s->dropped);
    for (unsigned i = 0; i < natts; i++) {
        uint32_t mask = align_mask(atts[i].attalign);
        CHECK(atts[i].attlen > 0 || atts[i].attlen == -1 || atts[i].attlen == -2);
        s->atts[i].len = atts[i].attlen;
        s->atts[i].align_mask = (uint8_t)mask;
        if (atts[i].dropped)
            s->dropped[s->ndropped++] = (uint16_t)i;
        fixed = fixed && atts[i].attlen > 0;
        if (fixed) {
            at = (at + mask) & ~mask;
            s->offsets[i] = at;
            at += (uint32_t)atts[i].attlen;
            s->ends[i] = at;
            s->nfixed = i + 1;
        }
    }
    return s;
}

void tuple_shape_free(struct tuple_shape *s)
{
    if (s == NULL)
        return;
    free(s->atts);
    free(s->offsets);
    free(s->ends);
    free(s->dropped);
    free(s);
}

bool tuple_shape_place(const struct tuple_shape *s, unsigned att, unsigned len,
                       uint32_t *ret_offset)
{
    if (att >= s->nfixed || (unsigned)s->atts[att].len != len)
        return false;
    *ret_offset = s->offsets[att];
    return true;
}

static enum status att_error(struct error *err, unsigned att, const char *what, uint32_t off,
                             uint32_t len) __attribute__((cold, noinline));
static enum status att_error(struct error *err, unsigned att, const char *what, uint32_t off,
                             uint32_t len)
{
    return error_set(err, ERR_DATA, "damaged tuple: attribute %u: %s (offset %u of %u data bytes)",
                     att + 1, what, off, len);
}

/* One varlena at *off. A byte that is not zero cannot be padding (att_align_pointer): there the
 * header begins, 1 byte long or an aligned word; a zero byte is padding or the low byte of an
 * aligned word. */
static inline __attribute__((always_inline)) enum status
varlena_take(const uint8_t *data, uint32_t len, uint32_t mask, unsigned att, uint32_t *off,
             struct datum *ret, struct error *err)
{
    uint32_t at = *off;
    if (at >= len)
        return att_error(err, att, "beyond the end", at, len);
    if (data[at] & 1) {
        uint32_t total = data[at] >> 1;
        if (total == 0) {
            if (len - at < 2 + VARATT_EXTERNAL_SIZE)
                return att_error(err, att, "TOAST pointer beyond the end", at, len);
            if (data[at + 1] != VARTAG_ONDISK)
                return att_error(err, att, "TOAST pointer of an unknown kind", at, len);
            *ret = (struct datum){data + at + 2, VARATT_EXTERNAL_SIZE, DATUM_EXTERNAL};
            *off = at + 2 + VARATT_EXTERNAL_SIZE;
            return OK;
        }
        if (total > len - at)
            return att_error(err, att, "short value beyond the end", at, len);
        *ret = (struct datum){data + at + 1, total - 1, DATUM_VALUE};
        *off = at + total;
        return OK;
    }
    if (data[at] == 0)
        at = (at + mask) & ~mask;
    else if (at & mask)
        return att_error(err, att, "length word at an unaligned place", at, len);
    if (at > len || len - at < 4)
        return att_error(err, att, "length word beyond the end", at, len);
    uint32_t word;
    memcpy(&word, data + at, 4);
    uint32_t total = word >> 2;
    bool compressed = (word & 3) == 2;
    if ((word & 3) != 0 && !compressed)
        return att_error(err, att, "length word is not one", at, len);
    if (total < (compressed ? 8u : 4u) || total > len - at)
        return att_error(err, att, "value beyond the end", at, len);
    *ret = (struct datum){data + at + 4, total - 4, compressed ? DATUM_COMPRESSED : DATUM_VALUE};
    *off = at + total;
    return OK;
}

/* A fixed-length attribute or C string at *off. */
static inline __attribute__((always_inline)) enum status
plain_take(const uint8_t *data, uint32_t len, struct shape_att a, unsigned att, uint32_t *off,
           struct datum *ret, struct error *err)
{
    uint32_t at = (*off + a.align_mask) & ~(uint32_t)a.align_mask;
    if (a.len > 0) {
        if (at > len || len - at < (uint32_t)a.len)
            return att_error(err, att, "beyond the end", at, len);
        *ret = (struct datum){data + at, (uint32_t)a.len, DATUM_VALUE};
        *off = at + (uint32_t)a.len;
        return OK;
    }
    const uint8_t *nul = at < len ? memchr(data + at, 0, len - at) : NULL;
    if (nul == NULL)
        return att_error(err, att, "string without end", at, len);
    *ret = (struct datum){data + at, (uint32_t)(nul - (data + at)), DATUM_VALUE};
    *off = at + ret->len + 1;
    return OK;
}

static inline bool att_is_null(const uint8_t *bits, unsigned i)
{
    return bits != NULL && !(bits[i >> 3] & (1u << (i & 7)));
}

/* Index of the first NULL among n attributes, n if there is none. */
static inline unsigned first_null(const uint8_t *bits, unsigned n)
{
    unsigned i = 0;
    while (i + 8 <= n && bits[i >> 3] == 0xff)
        i += 8;
    while (i < n && !att_is_null(bits, i))
        i++;
    return i;
}

/* What is checked before the first attribute: header length, attribute count, bitmap. */
static inline __attribute__((always_inline)) enum status
header_check(const struct tuple_shape *s, const struct raw_tuple *t, const uint8_t **ret_bits,
             uint32_t *ret_head, struct error *err)
{
    unsigned natts = t->infomask2 & HEAP_NATTS_MASK;
    uint32_t head = (uint32_t)t->hoff - SizeofHeapTupleHeader;
    if (__builtin_expect(t->hoff <= SizeofHeapTupleHeader || (t->hoff & 7) || head > t->body_len,
                         0))
        return error_set(err, ERR_DATA, "damaged tuple: header length %u in a tuple of %u bytes",
                         t->hoff, t->body_len + SizeofHeapTupleHeader);
    if (__builtin_expect(natts > s->natts, 0))
        return error_set(err, ERR_DATA, "tuple has %u attributes, its relation %u", natts,
                         s->natts);
    *ret_bits = NULL;
    *ret_head = head;
    if (t->infomask & HEAP_HASNULL) {
        if ((natts + 7) / 8 > head)
            return error_set(
                err, ERR_DATA,
                "damaged tuple: header length %u has no room for the null bitmap of %u "
                "attributes",
                t->hoff, natts);
        *ret_bits = t->body;
    }
    return OK;
}

/* ret NULL: only the checks. Inlined twice, so that each caller pays for what it needs. */
static inline __attribute__((always_inline)) enum status
deform(const struct tuple_shape *s, const struct raw_tuple *t, struct datum *ret, struct error *err)
{
    const uint8_t *bits = NULL;
    uint32_t head = 0;
    TRY(header_check(s, t, &bits, &head, err));
    const uint8_t *data = t->body + head;
    uint32_t len = t->body_len - head, off = 0;
    unsigned natts = t->infomask2 & HEAP_NATTS_MASK;
    unsigned prefix = MIN(bits == NULL ? natts : first_null(bits, natts), s->nfixed);
    unsigned i = 0;

    if (prefix > 0) {
        off = s->ends[prefix - 1];
        if (__builtin_expect(off > len, 0))
            return att_error(err, prefix - 1, "beyond the end", s->offsets[prefix - 1], len);
        for (; ret != NULL && i < prefix; i++)
            ret[i] = (struct datum){data + s->offsets[i], (uint32_t)s->atts[i].len, DATUM_VALUE};
    }
    for (i = prefix; i < natts; i++) {
        struct datum value = {NULL, 0, DATUM_NULL};
        if (!att_is_null(bits, i)) {
            if (s->atts[i].len == -1)
                TRY(varlena_take(data, len, s->atts[i].align_mask, i, &off, &value, err));
            else
                TRY(plain_take(data, len, s->atts[i], i, &off, &value, err));
        }
        if (ret != NULL)
            ret[i] = value;
    }
    if (ret == NULL)
        return OK;
    for (; i < s->natts; i++)
        ret[i] = (struct datum){NULL, 0, DATUM_MISSING};
    for (unsigned d = 0; d < s->ndropped; d++)
        ret[s->dropped[d]] = (struct datum){NULL, 0, DATUM_NULL};
    return OK;
}

enum status tuple_deform(const struct tuple_shape *shape, const struct raw_tuple *tuple,
                         struct datum *ret, struct error *err)
{
    return deform(shape, tuple, ret, err);
}

enum status tuple_check(const struct tuple_shape *shape, const struct raw_tuple *tuple,
                        struct error *err)
{
    return deform(shape, tuple, NULL, err);
}

/* varatt_external: rawsize, extinfo (30 bits stored size, 2 bits method), value oid, relation oid.
 */
enum status toast_pointer_parse(const struct datum *external, struct toast_pointer *ret,
                                struct error *err)
{
    if (external->state != DATUM_EXTERNAL || external->len != VARATT_EXTERNAL_SIZE)
        return error_set(err, ERR_BUG, "not a TOAST pointer (state %u, %u bytes)", external->state,
                         external->len);
    struct cursor c = cursor_of(external->data, external->len);
    struct toast_pointer p = {.rawsize = cursor_u32(&c)};
    uint32_t extinfo = cursor_u32(&c);
    p.extsize = extinfo & 0x3fffffff;
    p.method = (uint8_t)(extinfo >> 30);
    p.value_id = cursor_u32(&c);
    p.toast_relid = cursor_u32(&c);
    if (p.rawsize < 4 || p.rawsize > 0x3fffffff || p.extsize > p.rawsize - 4)
        return error_set(err, ERR_DATA, "damaged TOAST pointer: %u stored bytes for %u", p.extsize,
                         p.rawsize);
    p.compressed = p.extsize < p.rawsize - 4;
    if (p.compressed && p.method > 1)
        return error_set(err, ERR_DATA, "TOAST pointer with unknown compression method %u",
                         p.method);
    *ret = p;
    return OK;
}

enum status datum_decompress(const struct datum *compressed, size_t max_bytes, struct buf *ret,
                             struct error *err)
{
    if (compressed->state != DATUM_COMPRESSED)
        return error_set(err, ERR_BUG, "not a compressed datum (state %u)", compressed->state);
    return varlena_decompress(compressed->data, compressed->len, max_bytes, ret, err);
}
