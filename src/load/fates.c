#include "load/fates.h"

#include <stdatomic.h>
#include <stdlib.h>

#define CHUNK_XIDS 32768u
#define CHUNK_BYTES (CHUNK_XIDS / 4)
#define CHUNKS ((uint32_t)(0x100000000ull / CHUNK_XIDS))

struct fates {
    _Atomic(_Atomic(uint8_t) *) chunks[CHUNKS];
};

struct fates *fates_new(void)
{
    return xcalloc(1, sizeof(struct fates));
}

void fates_free(struct fates *f)
{
    if (f == NULL)
        return;
    for (uint32_t i = 0; i < CHUNKS; i++)
        free((void *)atomic_load_explicit(&f->chunks[i], memory_order_relaxed));
    free(f);
}

static _Atomic(uint8_t) *chunk_make(struct fates *f, uint32_t i)
{
    _Atomic(uint8_t) *chunk = atomic_load_explicit(&f->chunks[i], memory_order_acquire);
    if (chunk != NULL)
        return chunk;
    _Atomic(uint8_t) *made = xcalloc(CHUNK_BYTES, 1);
    if (atomic_compare_exchange_strong(&f->chunks[i], &chunk, made))
        return made;
    free((void *)made); /* another writer was first */
    return chunk;
}

static unsigned xid_shift(TransactionId xid)
{
    return (xid & 3) * 2;
}

void fates_set(struct fates *f, TransactionId xid, enum xid_fate fate)
{
    _Atomic(uint8_t) *at = chunk_make(f, xid / CHUNK_XIDS) + (xid % CHUNK_XIDS) / 4;
    uint8_t seen = atomic_load_explicit(at, memory_order_relaxed);
    unsigned shift = xid_shift(xid);
    do {
        if (seen >> shift & 3)
            return;
    } while (!atomic_compare_exchange_weak(at, &seen, (uint8_t)(seen | (unsigned)fate << shift)));
}

enum xid_fate fates_get(const struct fates *f, TransactionId xid)
{
    _Atomic(uint8_t) *chunk =
        atomic_load_explicit(&f->chunks[xid / CHUNK_XIDS], memory_order_acquire);
    if (chunk == NULL)
        return FATE_UNKNOWN;
    uint8_t seen = atomic_load_explicit(chunk + (xid % CHUNK_XIDS) / 4, memory_order_acquire);
    return (enum xid_fate)(seen >> xid_shift(xid) & 3);
}
