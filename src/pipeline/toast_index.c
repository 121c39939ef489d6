#include "pipeline/toast_index.h"
#include "pipeline/place_index.h"

#include <stdlib.h>
#include <string.h>

struct toast_index {
    struct place_index *places;
    struct tuple_shape *shape;
};

/* The chunks of a value. */
struct chunks {
    const struct place_entry *entries;
    size_t n;
    uint64_t bytes;
    bool sound; /* from the first on without a gap */
};

struct toast_index *toast_index_new(const char *spill_dir)
{
    static const struct tuple_att atts[] = {{4, 'i', false}, {4, 'i', false}, {-1, 'i', false}};
    struct toast_index *t = xcalloc(1, sizeof *t);
    t->places = place_index_new(spill_dir, PLACE_INDEX_MAX_BYTES);
    t->shape = tuple_shape_new(atts, LENGTH(atts));
    return t;
}

void toast_index_clear(struct toast_index *t)
{
    place_index_clear(t->places);
}

void toast_index_free(struct toast_index *t)
{
    if (t == NULL)
        return;
    place_index_free(t->places);
    tuple_shape_free(t->shape);
    free(t);
}

bool toast_index_is_empty(const struct toast_index *t)
{
    return place_index_is_empty(t->places);
}

enum status toast_index_add(struct toast_index *t, Oid owner, const struct change_frame *f,
                            const struct xact_reader *reader, struct error *err)
{
    struct datum d[3];
    struct raw_tuple tuple = change_frame_new(f);
    struct place_key key = {.owner = owner};
    uint32_t seq;
    TRY(tuple_deform(t->shape, &tuple, d, err));
    if (d[0].state != DATUM_VALUE || d[1].state != DATUM_VALUE || d[2].state != DATUM_VALUE)
        return error_lsn(err, ERR_DATA, f->head.lsn,
                         "a TOAST chunk is not of the form (oid, int4, "
                         "bytea)");
    memcpy(&key.value_id, d[0].data, 4);
    memcpy(&seq, d[1].data, 4);
    return place_index_add(t->places, key, seq, xact_reader_place(reader, d[2].data, d[2].len),
                           err);
}

static enum status find(const struct toast_index *t, Oid owner, Oid value_id, struct chunks *ret,
                        struct error *err)
{
    struct chunks c = {0};
    TRY(place_index_find(t->places, (struct place_key){owner, value_id}, &c.entries, &c.n, err));
    /* an id used again here, after its first owner was deleted: the last value counts */
    for (size_t i = c.n; i > 0; i--)
        if (c.entries[i - 1].seq == 0) {
            c.entries += i - 1;
            c.n -= i - 1;
            break;
        }
    c.sound = c.n > 0;
    for (size_t i = 0; i < c.n; i++) {
        c.sound = c.sound && c.entries[i].seq == i;
        c.bytes += c.entries[i].place.len;
    }
    *ret = c;
    return OK;
}

bool toast_index_has(const struct toast_index *t, Oid owner, const struct toast_pointer *p)
{
    struct chunks c;
    struct error ignored;
    if (find(t, owner, p->value_id, &c, &ignored) != OK)
        return true; /* it may be there: fetching it gives the error */
    return c.sound && c.bytes == p->extsize;
}

enum status toast_index_fetch(const struct toast_index *t, Oid owner, const struct toast_pointer *p,
                              struct xact *x, uint8_t *ret, struct error *err)
{
    struct chunks c;
    TRY(find(t, owner, p->value_id, &c, err));
    if (!c.sound || c.bytes != p->extsize)
        return error_set(err, ERR_BUG, "TOAST value %u is not in the transaction", p->value_id);
    for (size_t i = 0; i < c.n; i++) {
        TRY(xact_read_at(x, c.entries[i].place, ret, err));
        ret += c.entries[i].place.len;
    }
    return OK;
}
