/* Events that are not in the file yet: in the order they came, and to be found by chunk, TID and
 * owner. Not thread-safe: the store's lock guards it. */
#pragma once
#include "base/arena.h"
#include "toast/store.h"

struct overlay_event {
    struct toast_event event;   /* data in the arena */
    struct overlay_event *next; /* that came after it */
    struct overlay_event *same; /* another of the same chunk (births), TID (deaths) or owner */
};

struct overlay_slot;
struct overlay {
    struct arena arena;
    struct overlay_event *first, *last;
    struct overlay_slot *births, *deaths, *resets; /* hash tables */
    size_t nslots;
    XLogRecPtr min_lsn; /* of the events, if there are any */
};

void overlay_add(struct overlay *o, const struct toast_event *e);
void overlay_clear(struct overlay *o); /* keeps some memory */
void overlay_free(struct overlay *o);
size_t overlay_bytes(const struct overlay *o);

/* First of the births of this chunk, through `same`, in any order; NULL: none. */
const struct overlay_event *overlay_births(const struct overlay *o, Oid owner, Oid value_id,
                                           uint32_t seq);
/* A death of the TID lies in (after, through]. */
bool overlay_has_death(const struct overlay *o, Oid owner, uint64_t tid, XLogRecPtr after,
                       XLogRecPtr through);
/* The newest reset of the owner at or before lsn, 0 if none. */
XLogRecPtr overlay_reset_before(const struct overlay *o, Oid owner, XLogRecPtr lsn);
