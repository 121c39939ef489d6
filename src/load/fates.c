#include "load/fates.h"

#include <stdatomic.h>
#include <stdlib.h>

#define CHUNK 32768u /* xids, multixacts */
#define CHUNKS ((uint32_t)(0x100000000ull / CHUNK))

/* Two bits: the first two as enum xid_fate has them. */
#define BITS_ENDED 3u /* committed, and its end was seen */

/* In place of an updater's xid: values that no transaction has. */
#define NO_UPDATER 1u
#define LOST 2u

struct fates {
    _Atomic(_Atomic(uint8_t) *) chunks[CHUNKS];
    _Atomic(_Atomic(uint32_t) *) updaters[CHUNKS];
};

struct fates *fates_new(void)
{
    return xcalloc(1, sizeof(struct fates));
}

void fates_free(struct fates *f)
{
    if (f == NULL)
        return;
    for (uint32_t i = 0; i < CHUNKS; i++) {
        free((void *)atomic_load_explicit(&f->chunks[i], memory_order_relaxed));
        free((void *)atomic_load_explicit(&f->updaters[i], memory_order_relaxed));
    }
    free(f);
}

static _Atomic(uint8_t) *chunk_make(struct fates *f, uint32_t i)
{
    _Atomic(uint8_t) *chunk = atomic_load_explicit(&f->chunks[i], memory_order_acquire);
    if (chunk != NULL)
        return chunk;
    _Atomic(uint8_t) *made = xcalloc(CHUNK / 4, 1);
    if (atomic_compare_exchange_strong(&f->chunks[i], &chunk, made))
        return made;
    free((void *)made); /* another writer was first */
    return chunk;
}

static unsigned xid_shift(TransactionId xid)
{
    return (xid & 3) * 2;
}

/* `from`: the values (bit n for value n) that may be replaced. */
static void bits_set(struct fates *f, TransactionId xid, unsigned bits, unsigned from)
{
    _Atomic(uint8_t) *at = chunk_make(f, xid / CHUNK) + (xid % CHUNK) / 4;
    uint8_t seen = atomic_load_explicit(at, memory_order_relaxed), now;
    unsigned shift = xid_shift(xid);
    do {
        if (!(from >> (seen >> shift & 3) & 1))
            return;
        now = (uint8_t)((seen & ~(3u << shift)) | bits << shift);
    } while (!atomic_compare_exchange_weak(at, &seen, now));
}

static unsigned bits_get(const struct fates *f, TransactionId xid)
{
    _Atomic(uint8_t) *chunk = atomic_load_explicit(&f->chunks[xid / CHUNK], memory_order_acquire);
    if (chunk == NULL)
        return FATE_UNKNOWN;
    uint8_t seen = atomic_load_explicit(chunk + (xid % CHUNK) / 4, memory_order_acquire);
    return seen >> xid_shift(xid) & 3;
}

void fates_set(struct fates *f, TransactionId xid, enum xid_fate fate)
{
    bits_set(f, xid, fate, 1u << FATE_UNKNOWN);
}

enum xid_fate fates_get(const struct fates *f, TransactionId xid)
{
    unsigned bits = bits_get(f, xid);
    return bits == BITS_ENDED ? FATE_COMMITTED : (enum xid_fate)bits;
}

void fates_end_set(struct fates *f, TransactionId xid, bool committed)
{
    bits_set(f, xid, committed ? BITS_ENDED : FATE_ABORTED,
             1u << FATE_UNKNOWN | (committed ? 1u << FATE_COMMITTED : 0));
}

/* Of an aborted one nothing counts, whatever its last records said. */
bool fates_has_ended(const struct fates *f, TransactionId xid)
{
    unsigned bits = bits_get(f, xid);
    return bits == BITS_ENDED || bits == FATE_ABORTED;
}

static _Atomic(uint32_t) *updaters_make(struct fates *f, uint32_t i)
{
    _Atomic(uint32_t) *chunk = atomic_load_explicit(&f->updaters[i], memory_order_acquire);
    if (chunk != NULL)
        return chunk;
    _Atomic(uint32_t) *made = xcalloc(CHUNK, sizeof(uint32_t));
    if (atomic_compare_exchange_strong(&f->updaters[i], &chunk, made))
        return made;
    free((void *)made);
    return chunk;
}

void fates_updater_set(struct fates *f, MultiXactId multi, enum updater_fact fact,
                       TransactionId xid)
{
    _Atomic(uint32_t) *at = updaters_make(f, multi / CHUNK) + multi % CHUNK;
    uint32_t none = 0, value = xid;
    if (fact != UPDATER_XID)
        value = fact == UPDATER_NONE ? NO_UPDATER : LOST;
    CHECK(fact != UPDATER_UNKNOWN && (fact != UPDATER_XID || xid >= FirstNormalTransactionId));
    atomic_compare_exchange_strong(at, &none, value);
}

enum updater_fact fates_updater_get(const struct fates *f, MultiXactId multi,
                                    TransactionId *ret_xid)
{
    _Atomic(uint32_t) *chunk =
        atomic_load_explicit(&f->updaters[multi / CHUNK], memory_order_acquire);
    uint32_t value =
        chunk == NULL ? 0 : atomic_load_explicit(chunk + multi % CHUNK, memory_order_acquire);
    if (value < FirstNormalTransactionId)
        return value == 0 ? UPDATER_UNKNOWN : value == NO_UPDATER ? UPDATER_NONE : UPDATER_LOST;
    *ret_xid = value;
    return UPDATER_XID;
}

bool fates_settled(const struct fates *f, struct awaited awaited)
{
    TransactionId xid;
    switch ((enum await_kind)awaited.kind) {
    case AWAIT_FATE:
        return fates_get(f, awaited.number) != FATE_UNKNOWN;
    case AWAIT_END:
        return fates_has_ended(f, awaited.number);
    case AWAIT_MEMBERS:
        return fates_updater_get(f, awaited.number, &xid) != UPDATER_UNKNOWN;
    }
    return false;
}
