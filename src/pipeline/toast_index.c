#include "pipeline/toast_index.h"
#include "pipeline/place_index.h"
#include "toast/chunk.h"

#include <stdlib.h>

struct toast_index {
    struct place_index *places;
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
    struct toast_index *t = xcalloc(1, sizeof *t);
    t->places = place_index_new(spill_dir, PLACE_INDEX_MAX_BYTES);
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
    free(t);
}

bool toast_index_is_empty(const struct toast_index *t)
{
    return place_index_is_empty(t->places);
}

enum status toast_index_add(struct toast_index *t, Oid owner, const struct change_frame *f,
                            const struct xact_reader *reader, struct error *err)
{
    struct raw_tuple tuple = change_frame_new(f);
    struct toast_chunk chunk;
    if (toast_chunk_parse(&tuple, &chunk, err) != OK) {
        err->lsn = f->head.lsn;
        return error_prefix(err, "record at " LSN_FMT, LSN_ARGS(f->head.lsn));
    }
    return place_index_add(t->places, (struct place_key){owner, chunk.value_id}, chunk.seq,
                           xact_reader_place(reader, chunk.data, chunk.len), err);
}

static enum status find(const struct toast_index *t, Oid owner, Oid value_id, struct chunks *ret,
                        struct error *err)
{
    struct chunks c = {0};
    TRY(place_index_find(t->places, (struct place_key){owner, value_id}, &c.entries, &c.n, err));
    /* an id used again here, after its first owner was deleted: the last value
     * counts */
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
