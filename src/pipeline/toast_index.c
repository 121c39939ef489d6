#include "pipeline/toast_index.h"

#include <stdlib.h>
#include <uthash.h>

struct value_key {
    Oid owner;
    Oid value_id;
};

struct value {
    struct value_key key;
    struct xact_place *chunks; /* by chunk_seq */
    uint32_t n, cap;
    uint64_t bytes;
    UT_hash_handle hh;
};

struct toast_index {
    struct value *values;
    struct tuple_shape *shape;
};

struct toast_index *toast_index_new(void)
{
    static const struct tuple_att atts[] = {{4, 'i', false}, {4, 'i', false}, {-1, 'i', false}};
    struct toast_index *t = xcalloc(1, sizeof *t);
    t->shape = tuple_shape_new(atts, LENGTH(atts));
    return t;
}

void toast_index_clear(struct toast_index *t)
{
    struct value *v, *next;
    HASH_ITER (hh, t->values, v, next) {
        HASH_DEL(t->values, v);
        free(v->chunks);
        free(v);
    }
}

void toast_index_free(struct toast_index *t)
{
    if (t == NULL)
        return;
    toast_index_clear(t);
    tuple_shape_free(t->shape);
    free(t);
}

bool toast_index_is_empty(const struct toast_index *t)
{
    return t->values == NULL;
}

static struct value *value_get(struct toast_index *t, Oid owner, Oid value_id)
{
    struct value_key key = {owner, value_id};
    struct value *v;
    HASH_FIND(hh, t->values, &key, sizeof key, v);
    if (v == NULL) {
        v = xcalloc(1, sizeof *v);
        v->key = key;
        HASH_ADD(hh, t->values, key, sizeof v->key, v);
    }
    return v;
}

enum status toast_index_add(struct toast_index *t, Oid owner, const struct change_frame *f,
                            const struct xact_reader *reader, struct error *err)
{
    struct datum d[3];
    struct raw_tuple tuple = change_frame_new(f);
    uint32_t value_id, seq;
    TRY(tuple_deform(t->shape, &tuple, d, err));
    if (d[0].state != DATUM_VALUE || d[1].state != DATUM_VALUE || d[2].state != DATUM_VALUE)
        return error_lsn(err, ERR_DATA, f->head.lsn,
                         "a TOAST chunk is not of the form (oid, int4, "
                         "bytea)");
    memcpy(&value_id, d[0].data, 4);
    memcpy(&seq, d[1].data, 4);
    struct value *v = value_get(t, owner, value_id);
    if (seq == 0) { /* an id used again in this transaction, after its first owner was deleted */
        v->n = 0;
        v->bytes = 0;
    }
    if (seq != v->n)
        return error_lsn(err, ERR_DATA, f->head.lsn,
                         "TOAST value %u: chunk %u where %u was expected", value_id, seq, v->n);
    if (v->n == v->cap) {
        v->cap = v->cap == 0 ? 4 : 2 * v->cap;
        v->chunks = xrealloc(v->chunks, v->cap * sizeof *v->chunks);
    }
    v->chunks[v->n++] = xact_reader_place(reader, d[2].data, d[2].len);
    v->bytes += d[2].len;
    return OK;
}

static const struct value *value_find(const struct toast_index *t, Oid owner, Oid value_id)
{
    struct value_key key = {owner, value_id};
    struct value *v;
    HASH_FIND(hh, t->values, &key, sizeof key, v);
    return v;
}

bool toast_index_has(const struct toast_index *t, Oid owner, const struct toast_pointer *p)
{
    const struct value *v = value_find(t, owner, p->value_id);
    return v != NULL && v->bytes == p->extsize;
}

enum status toast_index_fetch(const struct toast_index *t, Oid owner, const struct toast_pointer *p,
                              struct xact *x, uint8_t *ret, struct error *err)
{
    const struct value *v = value_find(t, owner, p->value_id);
    if (v == NULL || v->bytes != p->extsize)
        return error_set(err, ERR_BUG, "TOAST value %u is not in the transaction", p->value_id);
    for (uint32_t i = 0; i < v->n; i++) {
        TRY(xact_read_at(x, v->chunks[i], ret, err));
        ret += v->chunks[i].len;
    }
    return OK;
}
