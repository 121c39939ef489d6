#include "toast/overlay.h"

#include <uthash.h>

struct overlay_key {
    uint64_t a; /* births: value_id << 32 | seq; deaths: TID; resets: 0 */
    uint64_t owner;
};

struct overlay_slot {
    struct overlay_key key;
    struct overlay_event *events;
    UT_hash_handle hh;
};

static struct overlay_key birth_key(Oid owner, Oid value_id, uint32_t seq)
{
    return (struct overlay_key){(uint64_t)value_id << 32 | seq, owner};
}

static struct overlay_key death_key(Oid owner, uint64_t tid)
{
    return (struct overlay_key){tid, owner};
}

static struct overlay_key reset_key(Oid owner)
{
    return (struct overlay_key){0, owner};
}

static struct overlay_event *slot_events(struct overlay_slot *table, struct overlay_key key)
{
    struct overlay_slot *slot;
    HASH_FIND(hh, table, &key, sizeof key, slot);
    return slot == NULL ? NULL : slot->events;
}

static void slot_add(struct overlay *o, struct overlay_slot **table, struct overlay_key key,
                     struct overlay_event *e)
{
    struct overlay_slot *slot;
    HASH_FIND(hh, *table, &key, sizeof key, slot);
    if (slot == NULL) {
        slot = arena_alloc(&o->arena, sizeof *slot);
        slot->key = key;
        slot->events = NULL;
        HASH_ADD(hh, *table, key, sizeof slot->key, slot);
        o->nslots++;
    }
    e->same = slot->events;
    slot->events = e;
}

void overlay_add(struct overlay *o, const struct toast_event *event)
{
    struct overlay_event *e = arena_alloc(&o->arena, sizeof *e);
    e->event = *event;
    e->next = NULL;
    if (o->first == NULL || event->lsn < o->min_lsn)
        o->min_lsn = event->lsn;
    if (o->first == NULL)
        o->first = e;
    else
        o->last->next = e;
    o->last = e;
    if (event->kind == TOAST_BIRTH) {
        e->event.data = arena_copy(&o->arena, event->data, event->len);
        slot_add(o, &o->births, birth_key(event->owner, event->value_id, event->seq), e);
    } else if (event->kind == TOAST_DEATH) {
        slot_add(o, &o->deaths, death_key(event->owner, event->tid), e);
    } else {
        slot_add(o, &o->resets, reset_key(event->owner), e);
    }
}

void overlay_clear(struct overlay *o)
{
    HASH_CLEAR(hh, o->births);
    HASH_CLEAR(hh, o->deaths);
    HASH_CLEAR(hh, o->resets);
    o->first = o->last = NULL;
    o->nslots = 0;
    arena_reset(&o->arena);
}

void overlay_free(struct overlay *o)
{
    overlay_clear(o);
    arena_free(&o->arena);
}

size_t overlay_bytes(const struct overlay *o)
{
    return o->arena.bytes + o->nslots * 16; /* and the hash tables' buckets, about */
}

const struct overlay_event *overlay_births(const struct overlay *o, Oid owner, Oid value_id,
                                           uint32_t seq)
{
    return slot_events(o->births, birth_key(owner, value_id, seq));
}

bool overlay_has_death(const struct overlay *o, Oid owner, uint64_t tid, XLogRecPtr after,
                       XLogRecPtr through)
{
    const struct overlay_event *e = slot_events(o->deaths, death_key(owner, tid));
    for (; e != NULL; e = e->same)
        if (e->event.lsn > after && e->event.lsn <= through)
            return true;
    return false;
}

XLogRecPtr overlay_reset_before(const struct overlay *o, Oid owner, XLogRecPtr lsn)
{
    XLogRecPtr newest = 0;
    const struct overlay_event *e = slot_events(o->resets, reset_key(owner));
    for (; e != NULL; e = e->same)
        if (e->event.lsn <= lsn && e->event.lsn > newest)
            newest = e->event.lsn;
    return newest;
}
