#include "catalog/descriptor.h"

#include <stdlib.h>
#include <string.h>

/* Grows with every change of the serialised form; older ones stay readable. 1: without types. */
#define FORMAT_VERSION 2
#define MAX_ATTS 1600u /* MaxHeapAttributeNumber of access/htup_details.h; dropped ones count */
#define MAX_TYPE_NAME 4096u
#define MAX_KEYS 32u /* INDEX_MAX_KEYS of pg_config_manual.h */

#define FLAG_DROPPED 1u
#define FLAG_NOT_NULL 2u
#define FLAG_HAS_MISSING 4u
#define FLAG_MISSING_KNOWN 8u
#define FLAG_TYPE_NAME 16u
#define FLAG_MISSING_TEXT 32u

struct rel_desc *rel_desc_new(unsigned natts)
{
    CHECK(natts <= MAX_ATTS);
    struct rel_desc *d = xcalloc(1, sizeof *d);
    atomic_init(&d->refs, 1);
    d->natts = (uint16_t)natts;
    d->atts = xcalloc(natts, sizeof *d->atts);
    return d;
}

void rel_desc_seal(struct rel_desc *d)
{
    struct tuple_att *atts = xcalloc(d->natts, sizeof *atts);
    for (unsigned i = 0; i < d->natts; i++)
        atts[i] = (struct tuple_att){d->atts[i].attlen, d->atts[i].attalign, d->atts[i].dropped};
    tuple_shape_free(d->shape);
    d->shape = tuple_shape_new(atts, d->natts);
    free(atts);
    for (unsigned i = 0; i < d->natts; i++) {
        const struct type_desc *t = type_closure_find(d->types, d->atts[i].base_typid);
        d->atts[i].types = t != NULL && t->kind != TYPE_DESC_BASE ? d->types : NULL;
    }
}

struct rel_desc *rel_desc_ref(struct rel_desc *d)
{
    atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
    return d;
}

void rel_desc_unref(struct rel_desc *d)
{
    if (d == NULL || atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (unsigned i = 0; i < d->natts; i++) {
        free(d->atts[i].type_name);
        free(d->atts[i].missing);
    }
    tuple_shape_free(d->shape);
    type_closure_unref(d->types);
    free(d->atts);
    free(d);
}

static bool missing_equal(const struct att_desc *a, const struct att_desc *b)
{
    return a->has_missing == b->has_missing && a->missing_is_text == b->missing_is_text &&
           a->missing_len == b->missing_len && (a->missing == NULL) == (b->missing == NULL) &&
           (a->missing_len == 0 || memcmp(a->missing, b->missing, a->missing_len) == 0);
}

static bool att_equal_but_missing(const struct att_desc *a, const struct att_desc *b)
{
    return a->attnum == b->attnum && a->attlen == b->attlen && a->attalign == b->attalign &&
           a->generated == b->generated && a->dropped == b->dropped && a->not_null == b->not_null &&
           a->typtype == b->typtype && a->typcategory == b->typcategory && a->typid == b->typid &&
           a->typmod == b->typmod && a->elem_typid == b->elem_typid &&
           a->base_typid == b->base_typid && strcmp(a->name, b->name) == 0;
}

static bool storage_equal(const struct rel_desc *a, const struct rel_desc *b)
{
    return rel_file_locator_equal(a->locator, b->locator) &&
           rel_file_locator_equal(a->toast_locator, b->toast_locator);
}

static bool relation_equal(const struct rel_desc *a, const struct rel_desc *b)
{
    return a->oid == b->oid && a->namespace_oid == b->namespace_oid &&
           a->toast_oid == b->toast_oid && a->root_oid == b->root_oid && a->relkind == b->relkind &&
           a->relpersistence == b->relpersistence && a->relam == b->relam &&
           a->dropped == b->dropped && a->identity == b->identity && a->nkeys == b->nkeys &&
           a->natts == b->natts && strcmp(a->schema, b->schema) == 0 &&
           strcmp(a->name, b->name) == 0 &&
           memcmp(a->key_attnums, b->key_attnums, a->nkeys * sizeof a->key_attnums[0]) == 0;
}

bool rel_desc_equal_but_types(const struct rel_desc *a, const struct rel_desc *b)
{
    if (!relation_equal(a, b))
        return false;
    for (unsigned i = 0; i < a->natts; i++)
        if (!att_equal_but_missing(&a->atts[i], &b->atts[i]) ||
            !missing_equal(&a->atts[i], &b->atts[i]))
            return false;
    return true;
}

bool rel_desc_equal_rewritten(const struct rel_desc *before, const struct rel_desc *now)
{
    if (!relation_equal(before, now) || rel_file_locator_equal(before->locator, now->locator))
        return false;
    for (unsigned i = 0; i < now->natts; i++)
        if (!att_equal_but_missing(&before->atts[i], &now->atts[i]) ||
            (now->atts[i].has_missing && !missing_equal(&before->atts[i], &now->atts[i])))
            return false;
    return true;
}

bool rel_desc_equal(const struct rel_desc *a, const struct rel_desc *b, bool with_storage)
{
    return rel_desc_equal_but_types(a, b) && type_closure_equal(a->types, b->types) &&
           (!with_storage || storage_equal(a, b));
}

/* Lengths are varints; no text holds a NUL. */
static void put_name(struct buf *out, const char *name)
{
    buf_put_str(out, name);
}

static void put_locator(struct buf *out, struct rel_file_locator l)
{
    buf_put_u32(out, l.spc_oid);
    buf_put_u32(out, l.db_oid);
    buf_put_u32(out, l.rel_number);
}

static void write_att(const struct att_desc *a, struct buf *out)
{
    unsigned flags =
        (a->dropped ? FLAG_DROPPED : 0) | (a->not_null ? FLAG_NOT_NULL : 0) |
        (a->has_missing ? FLAG_HAS_MISSING : 0) | (a->missing != NULL ? FLAG_MISSING_KNOWN : 0) |
        (a->type_name != NULL ? FLAG_TYPE_NAME : 0) | (a->missing_is_text ? FLAG_MISSING_TEXT : 0);
    buf_put_u8(out, (uint8_t)flags);
    buf_put_u16(out, (uint16_t)a->attnum);
    buf_put_u16(out, (uint16_t)a->attlen);
    buf_put_u8(out, (uint8_t)a->attalign);
    buf_put_u8(out, (uint8_t)a->attstorage);
    buf_put_u8(out, (uint8_t)a->generated);
    buf_put_u8(out, (uint8_t)a->typtype);
    buf_put_u8(out, (uint8_t)a->typcategory);
    buf_put_u32(out, a->typid);
    buf_put_i32(out, a->typmod);
    buf_put_u32(out, a->elem_typid);
    buf_put_u32(out, a->base_typid);
    put_name(out, a->name);
    if (a->type_name != NULL)
        buf_put_str(out, a->type_name);
    if (a->missing != NULL) {
        buf_put_varint(out, a->missing_len);
        buf_put(out, a->missing, a->missing_len);
    }
}

void rel_desc_write(const struct rel_desc *d, struct buf *out)
{
    buf_put_u8(out, FORMAT_VERSION);
    buf_put_u64(out, d->valid_from);
    buf_put_u32(out, d->oid);
    buf_put_u32(out, d->namespace_oid);
    put_locator(out, d->locator);
    buf_put_u32(out, d->toast_oid);
    put_locator(out, d->toast_locator);
    buf_put_u32(out, d->root_oid);
    buf_put_u8(out, (uint8_t)d->relkind);
    buf_put_u8(out, (uint8_t)d->relpersistence);
    buf_put_u8(out, (uint8_t)d->relreplident);
    buf_put_u32(out, d->relam);
    buf_put_u8(out, d->dropped);
    put_name(out, d->schema);
    put_name(out, d->name);
    buf_put_u8(out, d->identity);
    buf_put_u16(out, d->nkeys);
    for (unsigned i = 0; i < d->nkeys; i++)
        buf_put_u16(out, (uint16_t)d->key_attnums[i]);
    buf_put_u16(out, d->natts);
    for (unsigned i = 0; i < d->natts; i++)
        write_att(&d->atts[i], out);
    type_closure_write(d->types, out);
}

/* A counted text without NUL bytes into ret[cap], or NULL with the cursor failed. */
static void take_name(struct cursor *c, char *ret, size_t cap)
{
    uint64_t n = cursor_varint(c);
    const uint8_t *at = n < cap ? cursor_take(c, (size_t)n) : NULL;
    if (at == NULL || memchr(at, 0, (size_t)n) != NULL) {
        c->failed = true;
        return;
    }
    memcpy(ret, at, (size_t)n);
    ret[n] = '\0';
}

static struct rel_file_locator take_locator(struct cursor *c)
{
    struct rel_file_locator l;
    l.spc_oid = cursor_u32(c);
    l.db_oid = cursor_u32(c);
    l.rel_number = cursor_u32(c);
    return l;
}

static void take_missing(struct cursor *c, struct att_desc *a)
{
    uint64_t n = cursor_varint(c);
    const uint8_t *at = n <= cursor_left(c) ? cursor_take(c, (size_t)n) : NULL;
    if (at == NULL) {
        c->failed = true;
        return;
    }
    a->missing = xmalloc((size_t)n);
    a->missing_len = (uint32_t)n;
    memcpy(a->missing, at, (size_t)n);
}

static void read_att(struct cursor *c, struct att_desc *a)
{
    char type_name[MAX_TYPE_NAME];
    unsigned flags = cursor_u8(c);
    a->dropped = flags & FLAG_DROPPED;
    a->not_null = flags & FLAG_NOT_NULL;
    a->has_missing = flags & FLAG_HAS_MISSING;
    a->missing_is_text = flags & FLAG_MISSING_TEXT;
    a->attnum = (int16_t)cursor_u16(c);
    a->attlen = (int16_t)cursor_u16(c);
    a->attalign = (char)cursor_u8(c);
    a->attstorage = (char)cursor_u8(c);
    a->generated = (char)cursor_u8(c);
    a->typtype = (char)cursor_u8(c);
    a->typcategory = (char)cursor_u8(c);
    a->typid = cursor_u32(c);
    a->typmod = cursor_i32(c);
    a->elem_typid = cursor_u32(c);
    a->base_typid = cursor_u32(c);
    take_name(c, a->name, sizeof a->name);
    if (flags & FLAG_TYPE_NAME) {
        take_name(c, type_name, sizeof type_name);
        if (cursor_ok(c))
            a->type_name = xstrdup(type_name);
    }
    if (flags & FLAG_MISSING_KNOWN)
        take_missing(c, a);
}

/* What tuple_shape_new and the readers of a descriptor take for granted. */
static bool att_valid(const struct att_desc *a, unsigned attnum)
{
    return a->attnum == (int)attnum && (a->attlen > 0 || a->attlen == -1 || a->attlen == -2) &&
           a->attalign != '\0' && strchr("csid", a->attalign) != NULL;
}

static bool rel_valid(const struct rel_desc *d)
{
    for (unsigned i = 0; i < d->natts; i++)
        if (!att_valid(&d->atts[i], i + 1))
            return false;
    for (unsigned i = 0; i < d->nkeys; i++)
        if (d->key_attnums[i] < 1 || d->key_attnums[i] > d->natts)
            return false;
    return d->identity == IDENTITY_KEY || d->identity == IDENTITY_TID;
}

static void read_head(struct cursor *c, struct rel_desc *d)
{
    d->valid_from = cursor_u64(c);
    d->oid = cursor_u32(c);
    d->namespace_oid = cursor_u32(c);
    d->locator = take_locator(c);
    d->toast_oid = cursor_u32(c);
    d->toast_locator = take_locator(c);
    d->root_oid = cursor_u32(c);
    d->relkind = (char)cursor_u8(c);
    d->relpersistence = (char)cursor_u8(c);
    d->relreplident = (char)cursor_u8(c);
    d->relam = cursor_u32(c);
    d->dropped = cursor_u8(c) != 0;
    take_name(c, d->schema, sizeof d->schema);
    take_name(c, d->name, sizeof d->name);
    d->identity = cursor_u8(c);
    d->nkeys = cursor_u16(c);
    if (d->nkeys > MAX_KEYS) {
        c->failed = true;
        d->nkeys = 0;
    }
    for (unsigned i = 0; i < d->nkeys; i++)
        d->key_attnums[i] = (int16_t)cursor_u16(c);
}

enum status rel_desc_read(struct cursor *c, struct rel_desc **ret, struct error *err)
{
    size_t at = c->pos;
    struct rel_desc head = {0};
    uint8_t version = cursor_u8(c);
    if (cursor_ok(c) && (version < 1 || version > FORMAT_VERSION))
        return error_set(err, ERR_CONFIG,
                         "a relation descriptor at offset %zu has format %u, this version reads 1 "
                         "to %d",
                         at, version, FORMAT_VERSION);
    read_head(c, &head);
    unsigned natts = cursor_u16(c);
    /* an attribute takes 27 bytes and more: a count that cannot be there is refused before
     * allocating */
    if (!cursor_ok(c) || natts > MAX_ATTS || natts > cursor_left(c) / 27)
        return error_set(err, ERR_DATA, "a relation descriptor at offset %zu is damaged", at);
    struct rel_desc *d = rel_desc_new(natts);
    struct att_desc *atts = d->atts;
    *d = head;
    atomic_init(&d->refs, 1);
    d->natts = (uint16_t)natts;
    d->atts = atts;
    for (unsigned i = 0; i < natts && cursor_ok(c); i++)
        read_att(c, &d->atts[i]);
    bool types_sound = version < 2 || !cursor_ok(c) || type_closure_read(c, &d->types);
    if (!cursor_ok(c) || !types_sound || !rel_valid(d)) {
        rel_desc_unref(d);
        return error_set(err, ERR_DATA, "a relation descriptor at offset %zu is damaged", at);
    }
    rel_desc_seal(d);
    *ret = d;
    return OK;
}
