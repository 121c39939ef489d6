/* One pool of payload bytes over all stages (memory.resident_payload_max), in compartments:
 *
 *   buffered  what waits before its commit: bounded by limits of its own, never waits here
 *   admitted  objects at the pipeline's entry (slices, pages of a load): wait for room. An object
 *             larger than half the compartment takes the lane, which holds one at a time beside it
 *   grown     what decoding makes of an admitted object beyond its charge: waits only for grown
 *             bytes of others, which are on their way to a destination and need no budget there;
 *             one that is larger than the compartment goes alone
 *
 * So no wait is for something that waits here itself. The bytes ride on the object, change hands
 * with it, and are returned when it is freed, after the insert was acknowledged. */
#pragma once
#include "base/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct budget_limits {
    size_t buffered; /* kept out of the other two */
    size_t admitted, grown;
};

/* What an object holds; all zero = nothing. */
struct budget_permit {
    size_t admitted, lane, grown;
};

struct budget {
    struct budget_limits limits;
    pthread_mutex_t lock; /* guards closed and the waits; the counters are atomic */
    pthread_cond_t freed;
    atomic_size_t buffered, admitted, lane, grown;
    atomic_size_t peak; /* of their sum */
    atomic_ulong waits, overshoots;
    atomic_int waiters;
    bool closed;
};

/* Divides max_bytes: at most half of it buffered, at most half of the rest grown. */
struct budget_limits budget_limits_of(size_t max_bytes, size_t buffered, size_t grown);
void budget_init(struct budget *b, const struct budget_limits *limits);
void budget_fini(struct budget *b);

/* Waits for room and adds to the permit. ERR_CANCELLED after budget_close. */
enum status budget_admit(struct budget *b, size_t bytes, struct budget_permit *permit,
                         struct error *err) CHECKED;
enum status budget_grow(struct budget *b, size_t bytes, struct budget_permit *permit,
                        struct error *err) CHECKED;
/* Moves as much of bytes as `from` holds to `to`; returns how much that was. */
size_t budget_permit_move(struct budget_permit *from, struct budget_permit *to, size_t bytes);
static inline size_t budget_permit_bytes(const struct budget_permit *p)
{
    return p->admitted + p->lane + p->grown;
}
/* Returns what it holds, if anything. */
void budget_release(struct budget *b, struct budget_permit *permit);
/* The buffered compartment grew, or shrank. */
void budget_buffered_add(struct budget *b, size_t bytes);
void budget_buffered_sub(struct budget *b, size_t bytes);
size_t budget_used(const struct budget *b);
/* True if somebody waits for room at the moment. */
bool budget_is_waited_for(const struct budget *b);
void budget_close(struct budget *b);
