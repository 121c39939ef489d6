/* Sources: utils/array.h and array_out of arrayfuncs.c; utils/rangetypes.h and range_deparse of
 * rangetypes.c; utils/multirangetypes.h and write_multirange_data of multirangetypes.c;
 * HeapTupleHeaderData of access/htup_details.h and record_out of rowtypes.c; the same in 15 to 18.
 */
#include "types/nested.h"

#include "base/bytes.h"
#include "pg/compress.h"
#include "types/family.h"

#include <stdlib.h>

#define MAX_DEPTH 32u     /* of types in types */
#define MAX_PARTS 100000u /* of one column's type */
#define STRIPPED 4u       /* datums come without their varlena header, which alignment counts */
#define MAX_VALUE 0x3fffffffu

struct text_plan {
    struct type_closure *types; /* of the outermost only: counted */
    uint8_t kind;               /* enum type_desc_kind, never a domain */
    bool plain;                 /* its text never needs quotes */
    int16_t typlen;
    char typalign, typdelim;
    const struct type_family *family; /* BASE */
    const struct type_desc *desc;     /* ENUM, COMPOSITE, ARRAY */
    unsigned nparts;
    struct text_plan **parts; /* element, subtype, range; attributes (NULL: dropped) */
};

void text_plan_free(struct text_plan *plan)
{
    if (plan == NULL)
        return;
    for (unsigned i = 0; i < plan->nparts; i++)
        text_plan_free(plan->parts[i]);
    type_closure_unref(plan->types);
    free(plan->parts);
    free(plan);
}

/* Digits, letters, points, signs and colons only: neither arrays nor composites quote them. */
static bool is_plain(Oid typid)
{
    const struct type_family *const plain[] = {
        &family_bool,   &family_int2,   &family_int4,    &family_int8, &family_oid,
        &family_float4, &family_float8, &family_numeric, &family_uuid, &family_time};
    for (unsigned i = 0; i < LENGTH(plain); i++)
        if (plain[i]->typid == typid)
            return true;
    return false;
}

struct planner {
    const struct type_closure *types;
    unsigned nplans;
    struct error *err;
};

static enum status plan_type(struct planner *p, Oid oid, unsigned depth, struct text_plan **ret);

/* n parts, whose oids part_oid gives; 0 leaves a gap. */
static enum status plan_parts(struct planner *p, struct text_plan *plan, unsigned depth)
{
    const struct type_desc *t = plan->desc;
    unsigned n = t->kind == TYPE_DESC_COMPOSITE ? t->natts : t->kind == TYPE_DESC_ENUM ? 0 : 1;
    plan->parts = xcalloc(n, sizeof(struct text_plan *));
    for (; plan->nparts < n; plan->nparts++) {
        unsigned i = plan->nparts;
        Oid part = t->kind == TYPE_DESC_COMPOSITE ? t->atts[i].typid : t->part_oid;
        if (t->kind == TYPE_DESC_COMPOSITE && t->atts[i].dropped)
            continue;
        TRY(plan_type(p, part, depth + 1, &plan->parts[i]));
    }
    return OK;
}

static enum status plan_type(struct planner *p, Oid oid, unsigned depth, struct text_plan **ret)
{
    uint8_t index;
    const struct type_desc *t = type_closure_find(p->types, oid);
    while (t != NULL && t->kind == TYPE_DESC_DOMAIN && depth++ < MAX_DEPTH)
        t = type_closure_find(p->types, t->part_oid);
    if (t == NULL)
        return error_set(p->err, ERR_CONFIG, "type with oid %u is not described", oid);
    if (depth > MAX_DEPTH || ++p->nplans > MAX_PARTS)
        return error_set(p->err, ERR_CONFIG, "type %s is nested too deeply", t->name);
    const struct type_family *family = type_family_find(t->oid, &index);
    if (t->kind == TYPE_DESC_BASE && family == NULL)
        return error_set(p->err, ERR_CONFIG, "type %s is not supported yet by this version",
                         t->name);
    struct text_plan *plan = xcalloc(1, sizeof *plan);
    plan->kind = t->kind;
    plan->plain = is_plain(t->oid);
    plan->typlen = t->typlen;
    plan->typalign = t->typalign;
    plan->typdelim = t->typdelim;
    plan->family = family;
    plan->desc = t;
    enum status st = t->kind == TYPE_DESC_BASE ? OK : plan_parts(p, plan, depth);
    if (st != OK) {
        text_plan_free(plan);
        return st;
    }
    *ret = plan;
    return OK;
}

enum status text_plan_new(struct type_closure *types, Oid oid, struct text_plan **ret,
                          struct error *err)
{
    struct planner p = {.types = types, .err = err};
    TRY(plan_type(&p, oid, 0, ret));
    (*ret)->types = type_closure_ref(types);
    return OK;
}

bool text_plan_is_enum(const struct text_plan *plan)
{
    return plan->kind == TYPE_DESC_ENUM;
}

/* ---- quotes ---- */

enum {
    QUOTE_ARRAY = 1,
    QUOTE_RECORD = 2,
    QUOTE_RANGE = 4,
    ESCAPE = 8, /* quotes and backslashes, wherever there are quotes */
};

static const uint8_t quote_classes[256] = {
    ['"'] = QUOTE_ARRAY | QUOTE_RECORD | QUOTE_RANGE | ESCAPE,
    ['\\'] = QUOTE_ARRAY | QUOTE_RECORD | QUOTE_RANGE | ESCAPE,
    ['{'] = QUOTE_ARRAY,
    ['}'] = QUOTE_ARRAY,
    ['('] = QUOTE_RECORD | QUOTE_RANGE,
    [')'] = QUOTE_RECORD | QUOTE_RANGE,
    ['['] = QUOTE_RANGE,
    [']'] = QUOTE_RANGE,
    [','] = QUOTE_RECORD | QUOTE_RANGE,
    [' '] = QUOTE_ARRAY | QUOTE_RECORD | QUOTE_RANGE,
    ['\t'] = QUOTE_ARRAY | QUOTE_RECORD | QUOTE_RANGE,
    ['\n'] = QUOTE_ARRAY | QUOTE_RECORD | QUOTE_RANGE,
    ['\v'] = QUOTE_ARRAY | QUOTE_RECORD | QUOTE_RANGE,
    ['\f'] = QUOTE_ARRAY | QUOTE_RECORD | QUOTE_RANGE,
    ['\r'] = QUOTE_ARRAY | QUOTE_RECORD | QUOTE_RANGE,
};

/* The text from `start` on is quoted where it stands, if it must be. Arrays escape with a
 * backslash, the others by doubling. */
static void quote_from(struct buf *out, size_t start, unsigned where, char delimiter)
{
    size_t len = out->len - start, escapes = 0;
    const uint8_t *text = out->data + start;
    bool quote = len == 0 || (where == QUOTE_ARRAY && len == 4 &&
                              strncasecmp((const char *)text, "NULL", 4) == 0);
    for (size_t i = 0; i < len; i++) {
        uint8_t class = quote_classes[text[i]];
        quote = quote || (class & where) != 0 ||
                (where == QUOTE_ARRAY && text[i] == (uint8_t)delimiter);
        escapes += (class & ESCAPE) != 0;
    }
    if (!quote)
        return;
    uint8_t *data = buf_reserve(out, escapes + 2) - len, *from = data + len;
    uint8_t *to = from + escapes + 2;
    out->len += escapes + 2;
    *--to = '"';
    while (from > data) {
        uint8_t c = *--from;
        *--to = c;
        if (quote_classes[c] & ESCAPE)
            *--to = where == QUOTE_ARRAY ? '\\' : c;
    }
    *--to = '"';
}

static bool put_quoted(const struct text_plan *plan, const uint8_t *data, uint32_t len,
                       unsigned where, char delimiter, struct buf *out)
{
    size_t start = out->len;
    if (!text_plan_put(plan, data, len, out))
        return false;
    if (!plan->plain)
        quote_from(out, start, where, delimiter);
    return true;
}

/* ---- values inside a datum ---- */

struct inside {
    const uint8_t *data;
    uint32_t len;
    uint32_t at;
};

static uint32_t align_up(uint32_t at, char align)
{
    uint32_t mask = align == 'c' ? 0 : align == 's' ? 1 : align == 'i' ? 3 : 7;
    return ((at + STRIPPED + mask) & ~mask) - STRIPPED;
}

/* The next value of the plan's type, as att_align_pointer and att_addlength_pointer step. */
static bool inside_take(struct inside *in, const struct text_plan *plan, const uint8_t **ret,
                        uint32_t *ret_len)
{
    uint32_t at = in->at, word;
    bool packed = plan->typlen == -1 && at < in->len && in->data[at] != 0;
    if (!packed)
        at = align_up(at, plan->typalign);
    if (at > in->len)
        return false;
    uint32_t left = in->len - at;
    if (plan->typlen > 0) {
        *ret_len = (uint32_t)plan->typlen;
        *ret = in->data + at;
        in->at = at + *ret_len;
        return *ret_len <= left;
    }
    if (plan->typlen == -2) {
        const uint8_t *nul = left > 0 ? memchr(in->data + at, 0, left) : NULL;
        *ret = in->data + at;
        *ret_len = nul == NULL ? 0 : (uint32_t)(nul - *ret);
        in->at = at + *ret_len + 1;
        return nul != NULL;
    }
    if (left > 0 && in->data[at] & 1) {
        uint32_t total = in->data[at] >> 1;
        if (total == 0 || total > left)
            return false;
        *ret = in->data + at + 1;
        *ret_len = total - 1;
        in->at = at + total;
        return true;
    }
    if (left < 4)
        return false;
    memcpy(&word, in->data + at, sizeof word);
    if ((word & 3) != 0 || word >> 2 < 4 || word >> 2 > left)
        return false;
    *ret = in->data + at + 4;
    *ret_len = (word >> 2) - 4;
    in->at = at + (word >> 2);
    return true;
}

/* ---- arrays ---- */

#define MAXDIM 6
#define ARRAY_HEAD 12u /* ndim, dataoffset, elemtype */

struct array {
    int ndim;
    int32_t dims[MAXDIM], lower[MAXDIM];
    uint32_t nitems;
    const uint8_t *nulls; /* bitmap, or NULL */
    struct inside values;
};

static bool array_read(const struct text_plan *plan, const uint8_t *data, uint32_t len,
                       struct array *ret)
{
    struct array a = {0};
    uint64_t nitems = 1;
    if (len < ARRAY_HEAD)
        return false;
    uint32_t ndim = u32_at(data), offset = u32_at(data + 4);
    if (ndim > MAXDIM || len - ARRAY_HEAD < ndim * 8 || u32_at(data + 8) != plan->desc->part_oid)
        return false;
    a.ndim = (int)ndim;
    memcpy(a.dims, data + ARRAY_HEAD, ndim * 4);
    memcpy(a.lower, data + ARRAY_HEAD + ndim * 4, ndim * 4);
    for (int i = 0; i < a.ndim; i++) {
        int32_t upper;
        if (a.dims[i] < 0 || __builtin_add_overflow(a.lower[i], a.dims[i], &upper))
            return false;
        nitems *= (uint64_t)a.dims[i];
        if (nitems > MAX_VALUE)
            return false;
    }
    a.nitems = ndim == 0 ? 0 : (uint32_t)nitems;
    uint32_t head = ARRAY_HEAD + ndim * 8;
    if (offset != 0) {
        a.nulls = data + head;
        if (offset < head + STRIPPED || offset - STRIPPED > len ||
            offset - STRIPPED - head < (a.nitems + 7) / 8)
            return false;
        head = offset - STRIPPED;
    } else {
        head = align_up(head, 'd');
        if (head > len && a.nitems > 0)
            return false;
    }
    a.values = (struct inside){data, len, head};
    *ret = a;
    return true;
}

static void put_many(struct buf *out, char c, int n)
{
    for (int i = 0; i < n; i++)
        buf_put_u8(out, (uint8_t)c);
}

static void put_bounds(const struct array *a, struct buf *out)
{
    bool shown = false;
    for (int i = 0; i < a->ndim; i++)
        shown = shown || a->lower[i] != 1;
    if (!shown)
        return;
    for (int i = 0; i < a->ndim; i++)
        buf_printf(out, "[%d:%d]", a->lower[i], a->lower[i] + a->dims[i] - 1);
    buf_put_u8(out, '=');
}

static bool array_put(const struct text_plan *plan, const uint8_t *data, uint32_t len,
                      struct buf *out)
{
    struct array a;
    const struct text_plan *element = plan->parts[0];
    int32_t at[MAXDIM] = {0};
    if (!array_read(plan, data, len, &a))
        return false;
    if (a.nitems == 0) {
        put_text(out, "{}");
        return true;
    }
    put_bounds(&a, out);
    put_many(out, '{', a.ndim);
    for (uint32_t i = 0; i < a.nitems; i++) {
        const uint8_t *value;
        uint32_t value_len;
        if (a.nulls != NULL && !(a.nulls[i >> 3] & 1u << (i & 7)))
            put_text(out, "NULL");
        else if (!inside_take(&a.values, element, &value, &value_len) ||
                 !put_quoted(element, value, value_len, QUOTE_ARRAY, element->typdelim, out))
            return false;
        int closed = 0;
        while (closed < a.ndim && ++at[a.ndim - 1 - closed] == a.dims[a.ndim - 1 - closed])
            at[a.ndim - 1 - closed++] = 0;
        put_many(out, '}', closed);
        if (closed < a.ndim) {
            buf_put_u8(out, (uint8_t)element->typdelim);
            put_many(out, '{', closed);
        }
    }
    return true;
}

/* ---- ranges ---- */

#define RANGE_EMPTY 0x01u
#define RANGE_LB_INC 0x02u
#define RANGE_UB_INC 0x04u
#define RANGE_LB_INF 0x08u
#define RANGE_UB_INF 0x10u
#define RANGE_LB_NULL 0x20u
#define RANGE_UB_NULL 0x40u

static bool bound_put(const struct text_plan *subtype, struct inside *in, struct buf *out)
{
    const uint8_t *value;
    uint32_t len;
    return inside_take(in, subtype, &value, &len) &&
           put_quoted(subtype, value, len, QUOTE_RANGE, 0, out);
}

static bool range_put_bounds(const struct text_plan *subtype, unsigned flags, struct inside *in,
                             struct buf *out)
{
    if (flags & RANGE_EMPTY) {
        put_text(out, "empty");
        return true;
    }
    buf_put_u8(out, flags & RANGE_LB_INC ? '[' : '(');
    if (!(flags & (RANGE_LB_INF | RANGE_LB_NULL)) && !bound_put(subtype, in, out))
        return false;
    buf_put_u8(out, ',');
    if (!(flags & (RANGE_UB_INF | RANGE_UB_NULL)) && !bound_put(subtype, in, out))
        return false;
    buf_put_u8(out, flags & RANGE_UB_INC ? ']' : ')');
    return true;
}

/* oid of the range type, bounds, flags */
static bool range_put(const struct text_plan *plan, const uint8_t *data, uint32_t len,
                      struct buf *out)
{
    if (len < 5 || u32_at(data) != plan->desc->oid)
        return false;
    struct inside in = {data, len - 1, 4};
    return range_put_bounds(plan->parts[0], data[len - 1], &in, out);
}

/* oid, count, count - 1 words of places, count flags, bounds of each range in turn */
static bool multirange_put(const struct text_plan *plan, const uint8_t *data, uint32_t len,
                           struct buf *out)
{
    const struct text_plan *subtype = plan->parts[0]->parts[0];
    if (len < 8 || u32_at(data) != plan->desc->oid)
        return false;
    uint32_t n = u32_at(data + 4);
    if (n > 0 && (len - 8) / 5 + 1 < n)
        return false;
    uint64_t flags_at = n == 0 ? 8 : 8 + ((uint64_t)n - 1) * 4;
    if (flags_at + n > len)
        return false;
    struct inside in = {data, len, (uint32_t)flags_at + n};
    buf_put_u8(out, '{');
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0)
            buf_put_u8(out, ',');
        in.at = align_up(in.at, subtype->typalign);
        if (!range_put_bounds(subtype, data[flags_at + i], &in, out))
            return false;
    }
    buf_put_u8(out, '}');
    return true;
}

/* ---- composites ---- */

#define SHALLOW_ATTS 32u
#define ROW_HEAD 19u /* typmod, type, ctid, infomask2, infomask, hoff; a tuple's 23 less 4 */

static bool att_put(const struct text_plan *plan, const struct datum *d, struct buf *out)
{
    CLEANUP_BUF struct buf value = {0};
    if (d->state == DATUM_VALUE)
        return put_quoted(plan, d->data, d->len, QUOTE_RECORD, 0, out);
    /* rows are flattened when they are stored, but not what was compressed in place */
    return d->state == DATUM_COMPRESSED &&
           varlena_decompress(d->data, d->len, MAX_VALUE, &value, NULL) == OK &&
           put_quoted(plan, value.data, (uint32_t)value.len, QUOTE_RECORD, 0, out);
}

static bool atts_put(const struct text_plan *plan, const struct raw_tuple *tuple,
                     struct datum *datums, struct buf *out)
{
    bool first = true;
    if (tuple_deform(plan->desc->shape, tuple, datums, NULL) != OK)
        return false;
    buf_put_u8(out, '(');
    for (unsigned i = 0; i < plan->nparts; i++) {
        if (plan->parts[i] == NULL)
            continue;
        if (!first)
            buf_put_u8(out, ',');
        first = false;
        /* an attribute added later is NULL: no default can be had for one */
        if (datums[i].state != DATUM_NULL && datums[i].state != DATUM_MISSING &&
            !att_put(plan->parts[i], &datums[i], out))
            return false;
    }
    buf_put_u8(out, ')');
    return true;
}

static bool composite_put(const struct text_plan *plan, const uint8_t *data, uint32_t len,
                          struct buf *out)
{
    struct datum shallow[SHALLOW_ATTS], *datums = shallow;
    struct raw_tuple tuple = {.body_len = len - ROW_HEAD, .body = data + ROW_HEAD};
    if (len < ROW_HEAD || u32_at(data + 4) != plan->desc->oid)
        return false;
    memcpy(&tuple.infomask2, data + 14, sizeof tuple.infomask2);
    memcpy(&tuple.infomask, data + 16, sizeof tuple.infomask);
    tuple.hoff = data[18];
    if (plan->nparts > SHALLOW_ATTS)
        datums = xcalloc(plan->nparts, sizeof *datums);
    bool ok = atts_put(plan, &tuple, datums, out);
    if (datums != shallow)
        free(datums);
    return ok;
}

/* ---- all ---- */

static bool enum_put(const struct text_plan *plan, const uint8_t *data, uint32_t len,
                     struct buf *out)
{
    const char *label = len == 4 ? type_desc_label(plan->desc, u32_at(data)) : NULL;
    if (label != NULL)
        put_text(out, label);
    return label != NULL;
}

bool text_plan_put(const struct text_plan *plan, const uint8_t *data, uint32_t len, struct buf *out)
{
    size_t before = out->len;
    bool ok = false;
    switch ((enum type_desc_kind)plan->kind) {
    case TYPE_DESC_BASE:
        ok = plan->family->text(data, len, out);
        break;
    case TYPE_DESC_ARRAY:
        ok = array_put(plan, data, len, out);
        break;
    case TYPE_DESC_RANGE:
        ok = range_put(plan, data, len, out);
        break;
    case TYPE_DESC_MULTIRANGE:
        ok = multirange_put(plan, data, len, out);
        break;
    case TYPE_DESC_ENUM:
        ok = enum_put(plan, data, len, out);
        break;
    case TYPE_DESC_COMPOSITE:
        ok = composite_put(plan, data, len, out);
        break;
    case TYPE_DESC_DOMAIN:
        break;
    }
    if (!ok)
        out->len = before;
    return ok;
}
