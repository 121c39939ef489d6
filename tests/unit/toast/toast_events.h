/* Events and fetches in few words, for tests that go case by case. */
#pragma once
#include "toast_dir.h"

static struct error err;

static inline struct toast_event birth(Oid owner, Oid id, uint32_t seq, uint64_t tid,
                                       XLogRecPtr lsn, const char *text)
{
    return (struct toast_event){.kind = TOAST_BIRTH,
                                .owner = owner,
                                .lsn = lsn,
                                .tid = tid,
                                .value_id = id,
                                .seq = seq,
                                .len = (uint32_t)strlen(text),
                                .data = (const uint8_t *)text};
}

static inline struct toast_event death(Oid owner, uint64_t tid, XLogRecPtr lsn)
{
    return (struct toast_event){.kind = TOAST_DEATH, .owner = owner, .lsn = lsn, .tid = tid};
}

static inline struct toast_event reset(Oid owner, XLogRecPtr lsn)
{
    return (struct toast_event){.kind = TOAST_RESET, .owner = owner, .lsn = lsn};
}

static inline void put(struct toast_store *s, struct toast_event e)
{
    assert_ok(toast_store_put(s, &e, 1, &err));
}

static inline enum toast_found get(struct toast_store *s, Oid owner, Oid id, XLogRecPtr lsn,
                                   uint32_t extsize, char *ret)
{
    enum toast_found found, looked;
    assert_ok(toast_fetch(s, owner, id, extsize, lsn, ret, &found, &err));
    assert_ok(toast_fetch(s, owner, id, extsize, lsn, NULL, &looked, &err));
    assert_int_equal(found, looked);
    ret[found == TOAST_FOUND ? extsize : 0] = '\0';
    return found;
}

static inline void assert_value(struct toast_store *s, Oid owner, Oid id, XLogRecPtr lsn,
                                const char *want)
{
    char got[200];
    assert_int_equal(get(s, owner, id, lsn, (uint32_t)strlen(want), got), TOAST_FOUND);
    assert_string_equal(got, want);
}

static inline void assert_not(struct toast_store *s, Oid owner, Oid id, XLogRecPtr lsn,
                              uint32_t extsize, enum toast_found want)
{
    char got[200];
    assert_int_equal(get(s, owner, id, lsn, extsize, got), want);
}

/* n values of one full chunk each, at TID i and LSN from + i. */
static inline void put_many(struct toast_store *s, Oid owner, uint32_t n, XLogRecPtr from)
{
    uint8_t data[1996];
    for (uint32_t i = 0; i < n; i++) {
        struct toast_event e = birth(owner, i, 0, i + 1, from + i, "");
        toast_fill(data, owner * 100003u + i, 0, sizeof data);
        e.data = data;
        e.len = sizeof data;
        put(s, e);
    }
}

static inline enum toast_found look_many(struct toast_store *s, Oid owner, uint32_t i,
                                         XLogRecPtr lsn)
{
    uint8_t got[1996], want[1996];
    enum toast_found found;
    assert_ok(toast_fetch(s, owner, i, sizeof got, lsn, got, &found, &err));
    toast_fill(want, owner * 100003u + i, 0, sizeof want);
    if (found == TOAST_FOUND)
        assert_memory_equal(got, want, sizeof want);
    return found;
}
