/* A value as of an LSN: from what is not written yet if it is whole there, else what the table has
 * of it in one answer and, chunk by chunk, the newest version of both that is alive. */
#include "toast/clickhouse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Versions of one value: more than that is not the value's. */
#define CHUNKS_MAX ((size_t)1 << 22)

struct stored_chunk {
    uint32_t seq, len;
    uint64_t tid, born;
    size_t data_at;
};

struct stored_death {
    uint64_t tid, lsn;
};

struct fetch {
    struct clickhouse_store *s;
    Oid owner, value_id;
    XLogRecPtr lsn, reset;
    struct buf chunks, deaths, data; /* struct stored_chunk, struct stored_death, their bytes */
    unsigned fetched;
};

static bool number(const char *text, uint64_t max, uint64_t *ret)
{
    char *end;
    *ret = text == NULL ? 0 : strtoull(text, &end, 10);
    return text != NULL && *end == '\0' && *ret <= max;
}

/* value_id, seq, tid, born, data */
static enum status take_row(void *ctx, const char *const *fields, const size_t *lengths,
                            unsigned nfields, struct error *err)
{
    struct fetch *f = ctx;
    uint64_t value, seq, tid, born;
    if (nfields != 5 || !number(fields[0], UINT32_MAX, &value) ||
        !number(fields[1], UINT32_MAX, &seq) || !number(fields[2], UINT64_MAX, &tid) ||
        !number(fields[3], UINT64_MAX, &born) || fields[4] == NULL ||
        lengths[4] > TOAST_CHUNK_BYTES_MAX ||
        f->chunks.len / sizeof(struct stored_chunk) > CHUNKS_MAX)
        return error_set(err, ERR_DATA, "table %u: a row of the chunk store makes no sense",
                         f->owner);
    if (value == 0 && seq == SEQ_RESET) {
        f->reset = MAX(f->reset, born);
    } else if (value == 0) {
        struct stored_death d = {tid, born};
        buf_put(&f->deaths, &d, sizeof d);
    } else {
        struct stored_chunk c = {(uint32_t)seq, (uint32_t)lengths[4], tid, born, f->data.len};
        buf_put(&f->chunks, &c, sizeof c);
        buf_put(&f->data, fields[4], lengths[4]);
    }
    return OK;
}

struct ask {
    struct fetch *fetch;
    const char *sql;
};

/* A connection that breaks half way begins the answer again. */
static enum status run_ask(struct clickhouse_store *s, struct ch_client *c, void *ctx,
                           struct error *err)
{
    struct ask *a = ctx;
    (void)s;
    buf_reset(&a->fetch->chunks);
    buf_reset(&a->fetch->deaths);
    buf_reset(&a->fetch->data);
    return ch_client_select(c, a->sql, NULL, 0, take_row, a->fetch, err);
}

/* One answer: deaths of the value's places, and resets, with its chunks. */
static enum status ask(struct fetch *f, struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    buf_printf(&sql, "SELECT value_id, seq, tid, born, data FROM ");
    clickhouse_put_table(f->s, f->owner, &sql);
    buf_printf(&sql,
               " WHERE born <= %" PRIu64 " AND (value_id = %u OR (value_id = 0 AND seq = %u) OR "
               "(value_id = 0 AND seq = %u AND tid IN (SELECT tid FROM ",
               f->lsn, f->value_id, SEQ_RESET, SEQ_DEATH);
    clickhouse_put_table(f->s, f->owner, &sql);
    buf_printf(&sql, " WHERE value_id = %u AND born <= %" PRIu64 ")))", f->value_id, f->lsn);
    struct ask a = {f, buf_cstr(&sql)};
    enum status st = clickhouse_run(f->s, run_ask, &a, err);
    return st != OK && clickhouse_table_missing(err) ? OK : st;
}

static int chunk_order(const void *a, const void *b)
{
    const struct stored_chunk *x = a, *y = b;
    if (x->seq != y->seq)
        return x->seq < y->seq ? -1 : 1;
    return x->born < y->born ? -1 : x->born > y->born;
}

static int death_order(const void *a, const void *b)
{
    const struct stored_death *x = a, *y = b;
    if (x->tid != y->tid)
        return x->tid < y->tid ? -1 : 1;
    return x->lsn < y->lsn ? -1 : x->lsn > y->lsn;
}

/* A stored death of the TID lies in (born, f->lsn]: the first one after born is looked for. */
static bool has_stored_death(const struct fetch *f, uint64_t tid, XLogRecPtr born)
{
    const struct stored_death *d = (const struct stored_death *)f->deaths.data;
    size_t low = 0, high = f->deaths.len / sizeof *d, n = high;
    const struct stored_death after = {tid, born + 1};
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (death_order(&d[middle], &after) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && d[low].tid == tid && d[low].lsn <= f->lsn;
}

static bool is_alive(const struct fetch *f, uint64_t tid, XLogRecPtr born)
{
    return born <= f->lsn && born >= f->reset && !has_stored_death(f, tid, born) &&
           !overlay_has_death(f->s->events.pending, f->owner, tid, born, f->lsn) &&
           !overlay_has_death(f->s->events.writing, f->owner, tid, born, f->lsn);
}

struct version {
    XLogRecPtr born;
    const uint8_t *data; /* NULL: none */
    size_t len;
};

/* streamed: seeds do not count. */
static void look_at_overlay(const struct fetch *f, const struct overlay *o, uint32_t seq,
                            bool streamed, struct version *best)
{
    const struct overlay_event *e = overlay_births(o, f->owner, f->value_id, seq);
    for (; e != NULL; e = e->same)
        if (!(streamed && e->event.seed) && (best->data == NULL || e->event.lsn > best->born) &&
            is_alive(f, e->event.tid, e->event.lsn))
            *best = (struct version){e->event.lsn, e->event.data, e->event.len};
}

/* *at: the stored chunk from which on this seq may be. */
static struct version chunk_version(const struct fetch *f, uint32_t seq, bool streamed, size_t *at)
{
    const struct stored_chunk *c = (const struct stored_chunk *)f->chunks.data;
    struct version best = {0};
    for (; *at < f->chunks.len / sizeof *c && c[*at].seq <= seq; (*at)++)
        if (c[*at].seq == seq && is_alive(f, c[*at].tid, c[*at].born))
            best = (struct version){c[*at].born, f->data.data + c[*at].data_at, c[*at].len};
    look_at_overlay(f, f->s->events.writing, seq, streamed, &best);
    look_at_overlay(f, f->s->events.pending, seq, streamed, &best);
    return best;
}

static void assemble(struct fetch *f, uint32_t extsize, bool streamed, uint8_t *ret,
                     enum toast_found *ret_found)
{
    uint64_t have = 0;
    size_t at = 0;
    for (uint32_t seq = 0;; seq++) {
        struct version v = chunk_version(f, seq, streamed, &at);
        if (v.data == NULL) {
            *ret_found = seq == 0          ? TOAST_MISSING
                         : have == extsize ? TOAST_FOUND
                                           : TOAST_INCOMPLETE;
            return;
        }
        if (v.len > extsize - have) {
            *ret_found = TOAST_INCOMPLETE;
            return;
        }
        if (ret != NULL)
            memcpy(ret + have, v.data, v.len);
        have += v.len;
        f->fetched += ret != NULL;
    }
}

static enum status fetch_locked(struct fetch *f, uint32_t extsize, uint8_t *ret,
                                enum toast_found *ret_found, struct error *err)
{
    f->reset = MAX(overlay_reset_before(f->s->events.pending, f->owner, f->lsn),
                   overlay_reset_before(f->s->events.writing, f->owner, f->lsn));
    /* What the stream put since the last write it put in order, after a restart too: a whole value
     * there is the newest, and what ended it would be there. A seed's end may be in the table. */
    assemble(f, extsize, true, ret, ret_found);
    if (*ret_found == TOAST_FOUND)
        return OK;
    f->fetched = 0;
    TRY(ask(f, err));
    if (f->chunks.len > 0)
        qsort(f->chunks.data, f->chunks.len / sizeof(struct stored_chunk),
              sizeof(struct stored_chunk), chunk_order);
    if (f->deaths.len > 0)
        qsort(f->deaths.data, f->deaths.len / sizeof(struct stored_death),
              sizeof(struct stored_death), death_order);
    assemble(f, extsize, false, ret, ret_found);
    return OK;
}

enum status clickhouse_fetch(struct toast_store *store, Oid owner, const struct toast_pointer *p,
                             XLogRecPtr lsn, uint8_t *ret, enum toast_found *ret_found,
                             struct error *err)
{
    struct clickhouse_store *s = (struct clickhouse_store *)store;
    struct fetch f = {.s = s, .owner = owner, .value_id = p->value_id, .lsn = lsn};
    pthread_rwlock_rdlock(&s->events.lock);
    enum status st = fetch_locked(&f, p->extsize, ret, ret_found, err);
    pthread_rwlock_unlock(&s->events.lock);
    buf_free(&f.chunks);
    buf_free(&f.deaths);
    buf_free(&f.data);
    atomic_fetch_add_explicit(&s->fetched_chunks, f.fetched, memory_order_relaxed);
    return st;
}
