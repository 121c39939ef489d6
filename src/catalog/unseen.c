#include "catalog/unseen.h"

#include <stdlib.h>
#include <string.h>

void unseen_add(struct unseen *u, XLogRecPtr from, const Oid *oids, size_t n, bool all)
{
    u->spans = xrealloc(u->spans, (u->n + 1) * sizeof *u->spans);
    struct unseen_span *s = &u->spans[u->n++];
    *s = (struct unseen_span){.from = from, .until = UINT64_MAX, .all = all, .n = n};
    s->oids = xcalloc(n + 1, sizeof *s->oids);
    if (n > 0)
        memcpy(s->oids, oids, n * sizeof *oids);
}

void unseen_end(struct unseen *u, XLogRecPtr lsn)
{
    for (size_t i = 0; i < u->n; i++)
        if (u->spans[i].until == UINT64_MAX)
            u->spans[i].until = lsn;
}

void unseen_free(struct unseen *u)
{
    for (size_t i = 0; i < u->n; i++)
        free(u->spans[i].oids);
    free(u->spans);
    *u = (struct unseen){0};
}

static bool span_has(const struct unseen_span *s, Oid oid)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->oids[i] == oid)
            return true;
    return false;
}

static bool span_covers(const struct unseen_span *s, XLogRecPtr lsn)
{
    return s->from <= lsn && lsn < s->until;
}

bool unseen_has(const struct unseen *u, Oid oid, XLogRecPtr lsn)
{
    for (size_t i = 0; i < u->n; i++)
        if (span_covers(&u->spans[i], lsn) && span_has(&u->spans[i], oid))
            return true;
    return false;
}

bool unseen_any(const struct unseen *u, XLogRecPtr lsn)
{
    for (size_t i = 0; i < u->n; i++)
        if (span_covers(&u->spans[i], lsn))
            return true;
    return false;
}

bool unseen_at(const struct unseen *u, bool end, XLogRecPtr lsn, struct buf *oids, bool *ret_all)
{
    bool any = false;
    for (size_t i = 0; i < u->n; i++) {
        const struct unseen_span *s = &u->spans[i];
        if ((end ? s->until : s->from) != lsn)
            continue;
        any = true;
        if (oids != NULL)
            buf_put(oids, s->oids, s->n * sizeof *s->oids);
        if (ret_all != NULL && s->all)
            *ret_all = true;
    }
    return any;
}

bool unseen_done(struct unseen *u, XLogRecPtr lsn)
{
    bool any = false;
    for (size_t i = 0; i < u->n; i++)
        if (u->spans[i].until == lsn && !u->spans[i].done)
            any = u->spans[i].done = true;
    return any;
}

XLogRecPtr unseen_next_end(const struct unseen *u, XLogRecPtr lsn, XLogRecPtr from)
{
    XLogRecPtr next = UINT64_MAX;
    for (size_t i = 0; i < u->n; i++) {
        const struct unseen_span *s = &u->spans[i];
        if (s->until > lsn && (s->until > from || !s->done))
            next = MIN(next, s->until);
    }
    return next;
}

XLogRecPtr unseen_last_from(const struct unseen *u, Oid oid, XLogRecPtr *ret_until)
{
    XLogRecPtr from = 0, until = 0;
    for (size_t i = 0; i < u->n; i++) {
        const struct unseen_span *s = &u->spans[i];
        if (s->until == UINT64_MAX || !span_has(s, oid) || s->until == until)
            continue; /* of one end, the first span counts */
        from = s->from;
        until = s->until;
    }
    *ret_until = until;
    return from;
}
