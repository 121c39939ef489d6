#include "catalog/type_desc.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ATTS 1600u
#define TYPE_MIN_BYTES 21u /* of a serialised type, its names and lists empty */
#define LABEL_MIN_BYTES 5u
#define ATT_BYTES 8u

struct type_closure *type_closure_new(unsigned n)
{
    struct type_closure *c = xcalloc(1, sizeof *c);
    atomic_init(&c->refs, 1);
    c->n = n;
    c->types = xcalloc(n, sizeof *c->types);
    return c;
}

static int by_type_oid(const void *a, const void *b)
{
    Oid x = ((const struct type_desc *)a)->oid, y = ((const struct type_desc *)b)->oid;
    return x < y ? -1 : x > y;
}

static int by_label_oid(const void *a, const void *b)
{
    Oid x = ((const struct enum_label *)a)->oid, y = ((const struct enum_label *)b)->oid;
    return x < y ? -1 : x > y;
}

static void build_shape(struct type_desc *t)
{
    struct tuple_att *atts = xcalloc(t->natts, sizeof *atts);
    for (unsigned i = 0; i < t->natts; i++)
        atts[i] = (struct tuple_att){t->atts[i].attlen, t->atts[i].attalign, t->atts[i].dropped};
    tuple_shape_free(t->shape);
    t->shape = tuple_shape_new(atts, t->natts);
    free(atts);
}

void type_closure_seal(struct type_closure *c)
{
    if (c->n > 1)
        qsort(c->types, c->n, sizeof *c->types, by_type_oid);
    for (unsigned i = 0; i < c->n; i++) {
        struct type_desc *t = &c->types[i];
        if (t->nlabels > 1)
            qsort(t->labels, t->nlabels, sizeof *t->labels, by_label_oid);
        if (t->kind == TYPE_DESC_COMPOSITE)
            build_shape(t);
    }
}

struct type_closure *type_closure_ref(struct type_closure *c)
{
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    return c;
}

void type_closure_unref(struct type_closure *c)
{
    if (c == NULL || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (unsigned i = 0; i < c->n; i++) {
        free(c->types[i].labels);
        free(c->types[i].atts);
        tuple_shape_free(c->types[i].shape);
    }
    free(c->types);
    free(c);
}

const struct type_desc *type_closure_find(const struct type_closure *c, Oid oid)
{
    const struct type_desc key = {.oid = oid};
    if (c == NULL || c->n == 0)
        return NULL;
    return bsearch(&key, c->types, c->n, sizeof *c->types, by_type_oid);
}

const char *type_desc_label(const struct type_desc *t, Oid oid)
{
    unsigned low = 0, high = t->nlabels;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (t->labels[middle].oid == oid)
            return t->labels[middle].text;
        if (t->labels[middle].oid < oid)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

bool type_closure_has_rows_of(const struct type_closure *c, Oid relid)
{
    for (unsigned i = 0; c != NULL && i < c->n; i++)
        if (c->types[i].kind == TYPE_DESC_COMPOSITE && c->types[i].relid == relid)
            return true;
    return false;
}

bool type_closure_has_enums(const struct type_closure *c)
{
    for (unsigned i = 0; c != NULL && i < c->n; i++)
        if (c->types[i].kind == TYPE_DESC_ENUM)
            return true;
    return false;
}

/* The name is for messages only: ALTER TYPE … RENAME changes no value. */
static bool shape_equal(const struct type_desc *a, const struct type_desc *b)
{
    if (a->oid != b->oid || a->kind != b->kind || a->typlen != b->typlen ||
        a->typalign != b->typalign || a->typdelim != b->typdelim || a->part_oid != b->part_oid ||
        a->relid != b->relid || a->natts != b->natts)
        return false;
    for (unsigned i = 0; i < a->natts; i++) {
        const struct composite_att *x = &a->atts[i], *y = &b->atts[i];
        if (x->typid != y->typid || x->attlen != y->attlen || x->attalign != y->attalign ||
            x->dropped != y->dropped)
            return false;
    }
    return true;
}

static bool labels_equal(const struct type_desc *a, const struct type_desc *b)
{
    if (a->nlabels != b->nlabels)
        return false;
    for (unsigned i = 0; i < a->nlabels; i++)
        if (a->labels[i].oid != b->labels[i].oid ||
            strcmp(a->labels[i].text, b->labels[i].text) != 0)
            return false;
    return true;
}

bool type_closure_equal(const struct type_closure *a, const struct type_closure *b)
{
    unsigned na = a == NULL ? 0 : a->n, nb = b == NULL ? 0 : b->n;
    if (na != nb)
        return false;
    for (unsigned i = 0; i < na; i++)
        if (!shape_equal(&a->types[i], &b->types[i]) || !labels_equal(&a->types[i], &b->types[i]))
            return false;
    return true;
}

const char *type_closure_text_change(const struct type_closure *before,
                                     const struct type_closure *now)
{
    for (unsigned i = 0; before != NULL && i < before->n; i++) {
        const struct type_desc *was = &before->types[i];
        const struct type_desc *is = type_closure_find(now, was->oid);
        if (is == NULL)
            continue; /* its column changed as well */
        if (!shape_equal(was, is))
            return "a composite type of one of its columns got or lost an attribute";
        for (unsigned l = 0; l < was->nlabels; l++) {
            const char *label = type_desc_label(is, was->labels[l].oid);
            if (label == NULL || strcmp(label, was->labels[l].text) != 0)
                return "an enum value of one of its columns was renamed";
        }
    }
    return NULL;
}

/* ---- serialised form ---- */

static void write_type(const struct type_desc *t, struct buf *out)
{
    buf_put_u32(out, t->oid);
    buf_put_u8(out, t->kind);
    buf_put_u16(out, (uint16_t)t->typlen);
    buf_put_u8(out, (uint8_t)t->typalign);
    buf_put_u8(out, (uint8_t)t->typdelim);
    buf_put_u32(out, t->part_oid);
    buf_put_u32(out, t->relid);
    buf_put_str(out, t->name);
    buf_put_varint(out, t->nlabels);
    for (unsigned i = 0; i < t->nlabels; i++) {
        buf_put_u32(out, t->labels[i].oid);
        buf_put_str(out, t->labels[i].text);
    }
    buf_put_u16(out, (uint16_t)t->natts);
    for (unsigned i = 0; i < t->natts; i++) {
        buf_put_u32(out, t->atts[i].typid);
        buf_put_u16(out, (uint16_t)t->atts[i].attlen);
        buf_put_u8(out, (uint8_t)t->atts[i].attalign);
        buf_put_u8(out, t->atts[i].dropped);
    }
}

void type_closure_write(const struct type_closure *c, struct buf *out)
{
    buf_put_varint(out, c == NULL ? 0 : c->n);
    for (unsigned i = 0; c != NULL && i < c->n; i++)
        write_type(&c->types[i], out);
}

static bool take_text(struct cursor *c, char ret[NAMEDATALEN])
{
    uint64_t n = cursor_varint(c);
    const uint8_t *at = n < NAMEDATALEN ? cursor_take(c, (size_t)n) : NULL;
    if (at == NULL || memchr(at, 0, (size_t)n) != NULL)
        return false;
    memcpy(ret, at, (size_t)n);
    ret[n] = '\0';
    return true;
}

static bool layout_valid(int16_t len, char align)
{
    return (len > 0 || len == -1 || len == -2) && align != '\0' && strchr("csid", align) != NULL;
}

static bool read_labels(struct cursor *c, struct type_desc *t)
{
    uint64_t n = cursor_varint(c);
    if (n > cursor_left(c) / LABEL_MIN_BYTES || (n > 0 && t->kind != TYPE_DESC_ENUM))
        return false;
    t->labels = xcalloc((size_t)n, sizeof *t->labels);
    for (; t->nlabels < n; t->nlabels++) {
        t->labels[t->nlabels].oid = cursor_u32(c);
        if (!take_text(c, t->labels[t->nlabels].text))
            return false;
    }
    return cursor_ok(c);
}

static bool read_atts(struct cursor *c, struct type_desc *t)
{
    unsigned n = cursor_u16(c);
    if (n > MAX_ATTS || n > cursor_left(c) / ATT_BYTES || (n > 0 && t->kind != TYPE_DESC_COMPOSITE))
        return false;
    t->atts = xcalloc(n, sizeof *t->atts);
    for (; t->natts < n; t->natts++) {
        struct composite_att *a = &t->atts[t->natts];
        a->typid = cursor_u32(c);
        a->attlen = (int16_t)cursor_u16(c);
        a->attalign = (char)cursor_u8(c);
        a->dropped = cursor_u8(c) != 0;
        if (!layout_valid(a->attlen, a->attalign))
            return false;
    }
    return cursor_ok(c);
}

static bool read_type(struct cursor *c, struct type_desc *t)
{
    t->oid = cursor_u32(c);
    t->kind = cursor_u8(c);
    t->typlen = (int16_t)cursor_u16(c);
    t->typalign = (char)cursor_u8(c);
    t->typdelim = (char)cursor_u8(c);
    t->part_oid = cursor_u32(c);
    t->relid = cursor_u32(c);
    return t->kind <= TYPE_DESC_DOMAIN && layout_valid(t->typlen, t->typalign) &&
           take_text(c, t->name) && read_labels(c, t) && read_atts(c, t);
}

bool type_closure_read(struct cursor *c, struct type_closure **ret)
{
    uint64_t n = cursor_varint(c);
    *ret = NULL;
    if (!cursor_ok(c) || n > cursor_left(c) / TYPE_MIN_BYTES)
        return false;
    if (n == 0)
        return true;
    struct type_closure *closure = type_closure_new((unsigned)n);
    for (unsigned i = 0; i < n; i++) {
        if (!read_type(c, &closure->types[i])) {
            type_closure_unref(closure);
            return false;
        }
    }
    type_closure_seal(closure);
    *ret = closure;
    return true;
}
