/* Values as of their LSNs. Those of one table are taken together, up to GROUP_BYTES: what is not
 * written yet is looked at first, then one answer has what the table knows of all that were not
 * whole there; of each chunk the newest version of both that is alive counts. */
#include "toast/clickhouse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define GROUP_BYTES ((size_t)1 << 20)
#define GROUP_VALUES 1000u
/* Versions of the values of a group: more than that are not theirs. */
#define CHUNKS_MAX ((size_t)1 << 22)

struct stored_chunk {
    Oid value_id;
    uint32_t seq, len;
    uint64_t tid, born;
    size_t data_at;
};

struct stored_death {
    uint64_t tid, lsn;
};

/* What the table has of a group's values, sorted. */
struct answer {
    Oid owner;
    struct buf chunks, deaths; /* struct stored_chunk, struct stored_death */
    struct buf resets, data;   /* XLogRecPtr; bytes of the chunks */
};

static void answer_clear(struct answer *a)
{
    buf_reset(&a->chunks);
    buf_reset(&a->deaths);
    buf_reset(&a->resets);
    buf_reset(&a->data);
}

static void answer_free(struct answer *a)
{
    buf_free(&a->chunks);
    buf_free(&a->deaths);
    buf_free(&a->resets);
    buf_free(&a->data);
}

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
    struct answer *a = ctx;
    uint64_t value, seq, tid, born;
    if (nfields != 5 || !number(fields[0], UINT32_MAX, &value) ||
        !number(fields[1], UINT32_MAX, &seq) || !number(fields[2], UINT64_MAX, &tid) ||
        !number(fields[3], UINT64_MAX, &born) || fields[4] == NULL ||
        lengths[4] > TOAST_CHUNK_BYTES_MAX ||
        a->chunks.len / sizeof(struct stored_chunk) > CHUNKS_MAX)
        return error_set(err, ERR_DATA, "table %u: a row of the chunk store makes no sense",
                         a->owner);
    if (value == 0 && seq == SEQ_RESET) {
        buf_put(&a->resets, &born, sizeof born);
    } else if (value == 0) {
        struct stored_death d = {tid, born};
        buf_put(&a->deaths, &d, sizeof d);
    } else {
        struct stored_chunk c = {(Oid)value, (uint32_t)seq, (uint32_t)lengths[4],
                                 tid,        born,          a->data.len};
        buf_put(&a->chunks, &c, sizeof c);
        buf_put(&a->data, fields[4], lengths[4]);
    }
    return OK;
}

struct ask {
    struct answer *answer;
    const char *sql;
};

/* A connection that breaks half way begins the answer again. */
static enum status run_ask(struct clickhouse_store *s, struct ch_client *c, void *ctx,
                           struct error *err)
{
    /* a value of many chunks makes a long list of places */
    static const struct ch_setting settings[] = {{"max_query_size", "1073741824"}};
    struct ask *ask = ctx;
    (void)s;
    answer_clear(ask->answer);
    return ch_client_select(c, ask->sql, settings, LENGTH(settings), take_row, ask->answer, err);
}

static int number_order(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int chunk_order(const void *a, const void *b)
{
    const struct stored_chunk *x = a, *y = b;
    int order = number_order(x->value_id, y->value_id);
    order = order != 0 ? order : number_order(x->seq, y->seq);
    return order != 0 ? order : number_order(x->born, y->born);
}

static int death_order(const void *a, const void *b)
{
    const struct stored_death *x = a, *y = b;
    int order = number_order(x->tid, y->tid);
    return order != 0 ? order : number_order(x->lsn, y->lsn);
}

static int reset_order(const void *a, const void *b)
{
    return number_order(*(const XLogRecPtr *)a, *(const XLogRecPtr *)b);
}

static void sort(struct buf *b, size_t size, int (*order)(const void *a, const void *b))
{
    if (b->len > size)
        qsort(b->data, b->len / size, size, order);
}

/* The first element that is not before key; the number of all if there is none. */
static size_t first_from(const struct buf *b, size_t size, const void *key,
                         int (*order)(const void *a, const void *b))
{
    size_t low = 0, high = b->len / size;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (order(b->data + middle * size, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Sorted by value: the different ones, in parentheses. */
static void put_values(struct toast_request *const *group, size_t n, struct buf *sql)
{
    for (size_t i = 0; i < n; i++)
        if (i == 0 || group[i]->value_id != group[i - 1]->value_id)
            buf_printf(sql, "%c%u", i == 0 ? '(' : ',', group[i]->value_id);
    buf_put_u8(sql, ')');
}

static int value_order(const void *key, const void *element)
{
    const struct toast_request *q = *(struct toast_request *const *)element;
    return number_order(*(const Oid *)key, q->value_id);
}

/* Places of the group's chunks that are known from the overlay only, although their deaths may be
 * written already: seeds. */
static void put_seeds(const struct overlay *o, struct toast_request *const *group, size_t n,
                      struct buf *sql)
{
    for (const struct overlay_event *e = o->first; e != NULL; e = e->next)
        if (e->event.seed && e->event.owner == group[0]->owner &&
            bsearch(&e->event.value_id, group, n, sizeof(struct toast_request *), value_order))
            buf_printf(sql, "%c%" PRIu64, sql->len == 0 ? '(' : ',', e->event.tid);
}

/* One query: the values' chunks, with the deaths of their places, and resets. */
static enum status ask(struct clickhouse_store *s, struct toast_request *const *group, size_t n,
                       struct answer *answer, struct error *err)
{
    CLEANUP_BUF struct buf sql = {0}, table = {0}, values = {0}, seeds = {0};
    XLogRecPtr low = UINT64_MAX, high = 0;
    for (size_t i = 0; i < n; i++) {
        low = MIN(low, group[i]->lsn);
        high = MAX(high, group[i]->lsn);
    }
    clickhouse_put_table(s, answer->owner, &table);
    put_values(group, n, &values);
    put_seeds(s->events.writing, group, n, &seeds);
    put_seeds(s->events.pending, group, n, &seeds);
    /* a rewrite keeps value ids: what none of the group can see any more is not asked for */
    buf_printf(&sql,
               "SELECT value_id, seq, tid, born, data FROM %s WHERE born <= %" PRIu64
               " AND ((value_id IN %s AND born >= (SELECT max(born) FROM %s WHERE value_id = 0 AND "
               "seq = %u AND born <= %" PRIu64 ")) OR (value_id = 0 AND seq = %u) OR ",
               buf_cstr(&table), high, buf_cstr(&values), buf_cstr(&table), SEQ_RESET, low,
               SEQ_RESET);
    buf_printf(
        &sql,
        "(value_id = 0 AND seq = %u AND (tid IN (SELECT tid FROM %s WHERE value_id IN %s AND "
        "born <= %" PRIu64 ")%s%s%s)))",
        SEQ_DEATH, buf_cstr(&table), buf_cstr(&values), high, seeds.len > 0 ? " OR tid IN " : "",
        buf_cstr(&seeds), seeds.len > 0 ? ")" : "");
    struct ask a = {answer, buf_cstr(&sql)};
    enum status st = clickhouse_run(s, run_ask, &a, err);
    if (st != OK && !clickhouse_table_missing(err))
        return st;
    sort(&answer->chunks, sizeof(struct stored_chunk), chunk_order);
    sort(&answer->deaths, sizeof(struct stored_death), death_order);
    sort(&answer->resets, sizeof(XLogRecPtr), reset_order);
    return OK;
}

/* One value being looked for. */
struct fetch {
    struct clickhouse_store *s;
    const struct answer *answer;
    const struct toast_request *q;
    XLogRecPtr reset; /* births before it are gone */
    bool streamed;    /* seeds do not count */
    unsigned fetched;
};

/* The newest reset of the owner at or before q->lsn. */
static XLogRecPtr reset_before(const struct fetch *f)
{
    const XLogRecPtr *stored = (const XLogRecPtr *)f->answer->resets.data;
    const XLogRecPtr after = MIN(f->q->lsn, UINT64_MAX - 1) + 1;
    XLogRecPtr reset = MAX(overlay_reset_before(f->s->events.pending, f->q->owner, f->q->lsn),
                           overlay_reset_before(f->s->events.writing, f->q->owner, f->q->lsn));
    size_t n = first_from(&f->answer->resets, sizeof after, &after, reset_order);
    return n == 0 ? reset : MAX(reset, stored[n - 1]);
}

/* A stored death of the TID lies in (born, q->lsn]: the first one after born is looked for. */
static bool has_stored_death(const struct fetch *f, uint64_t tid, XLogRecPtr born)
{
    const struct buf *deaths = &f->answer->deaths;
    const struct stored_death *d = (const struct stored_death *)deaths->data;
    const struct stored_death after = {tid, born + 1};
    size_t at = first_from(deaths, sizeof after, &after, death_order);
    return at < deaths->len / sizeof *d && d[at].tid == tid && d[at].lsn <= f->q->lsn;
}

static bool is_alive(const struct fetch *f, uint64_t tid, XLogRecPtr born)
{
    return born <= f->q->lsn && born >= f->reset && !has_stored_death(f, tid, born) &&
           !overlay_has_death(f->s->events.pending, f->q->owner, tid, born, f->q->lsn) &&
           !overlay_has_death(f->s->events.writing, f->q->owner, tid, born, f->q->lsn);
}

struct version {
    XLogRecPtr born;
    const uint8_t *data; /* NULL: none */
    size_t len;
};

static void look_at_overlay(const struct fetch *f, const struct overlay *o, uint32_t seq,
                            struct version *best)
{
    const struct overlay_event *e = overlay_births(o, f->q->owner, f->q->value_id, seq);
    for (; e != NULL; e = e->same)
        if (!(f->streamed && e->event.seed) && (best->data == NULL || e->event.lsn > best->born) &&
            is_alive(f, e->event.tid, e->event.lsn))
            *best = (struct version){e->event.lsn, e->event.data, e->event.len};
}

/* *at: the stored chunk from which on this seq may be. */
static struct version chunk_version(const struct fetch *f, uint32_t seq, size_t *at)
{
    const struct stored_chunk *c = (const struct stored_chunk *)f->answer->chunks.data;
    size_t n = f->answer->chunks.len / sizeof *c;
    struct version best = {0};
    for (; *at < n && c[*at].value_id == f->q->value_id && c[*at].seq <= seq; (*at)++)
        if (c[*at].seq == seq && is_alive(f, c[*at].tid, c[*at].born))
            best = (struct version){c[*at].born, f->answer->data.data + c[*at].data_at, c[*at].len};
    look_at_overlay(f, f->s->events.writing, seq, &best);
    look_at_overlay(f, f->s->events.pending, seq, &best);
    return best;
}

static enum toast_found assemble(struct fetch *f)
{
    const struct stored_chunk first = {.value_id = f->q->value_id};
    size_t at = first_from(&f->answer->chunks, sizeof first, &first, chunk_order);
    uint64_t have = 0;
    for (uint32_t seq = 0;; seq++) {
        struct version v = chunk_version(f, seq, &at);
        if (v.data == NULL)
            return seq == 0                ? TOAST_MISSING
                   : have == f->q->extsize ? TOAST_FOUND
                                           : TOAST_INCOMPLETE;
        if (v.len > f->q->extsize - have)
            return TOAST_INCOMPLETE;
        if (f->q->ret != NULL)
            memcpy(f->q->ret + have, v.data, v.len);
        have += v.len;
        f->fetched += f->q->ret != NULL;
    }
}

static void look(struct clickhouse_store *s, const struct answer *answer, struct toast_request *q,
                 bool streamed)
{
    struct fetch f = {.s = s, .answer = answer, .q = q, .streamed = streamed};
    f.reset = reset_before(&f);
    q->found = assemble(&f);
    if (q->found == TOAST_FOUND)
        atomic_fetch_add_explicit(&s->fetched_chunks, f.fetched, memory_order_relaxed);
}

/* Requests of one owner, sorted by value; the order of those that are left is kept. */
static enum status fetch_group(struct clickhouse_store *s, struct toast_request **group, size_t n,
                               struct error *err)
{
    struct answer answer = {.owner = group[0]->owner};
    size_t left = 0;
    /* What the stream put since the last write it put in order, after a restart too: a whole value
     * there is the newest, and what ended it would be there. A seed's end may be in the table. */
    for (size_t i = 0; i < n; i++) {
        look(s, &answer, group[i], true);
        if (group[i]->found != TOAST_FOUND) {
            group[i]->found = TOAST_UNANSWERED;
            group[left++] = group[i];
        }
    }
    enum status st = left == 0 ? OK : ask(s, group, left, &answer, err);
    for (size_t i = 0; i < left && st == OK; i++)
        look(s, &answer, group[i], false);
    answer_free(&answer);
    return st;
}

static int request_order(const void *a, const void *b)
{
    const struct toast_request *x = *(struct toast_request *const *)a;
    const struct toast_request *y = *(struct toast_request *const *)b;
    int order = number_order(x->owner, y->owner);
    return order != 0 ? order : number_order(x->value_id, y->value_id);
}

static size_t group_size(struct toast_request *const *requests, size_t n)
{
    size_t bytes = requests[0]->extsize, i = 1;
    for (; i < n && i < GROUP_VALUES && requests[i]->owner == requests[0]->owner; i++) {
        bytes += requests[i]->value_id == requests[i - 1]->value_id ? 0 : requests[i]->extsize;
        if (bytes > GROUP_BYTES)
            break;
    }
    return i;
}

enum status clickhouse_fetch(struct toast_store *store, struct toast_request *requests, size_t n,
                             struct error *err)
{
    struct clickhouse_store *s = (struct clickhouse_store *)store;
    struct toast_request **sorted = xmalloc(n * sizeof *sorted);
    enum status st = OK;
    for (size_t i = 0; i < n; i++)
        sorted[i] = &requests[i];
    qsort(sorted, n, sizeof *sorted, request_order);
    for (size_t at = 0, k; at < n && st == OK; at += k) {
        k = group_size(sorted + at, n - at);
        pthread_rwlock_rdlock(&s->events.lock);
        st = fetch_group(s, sorted + at, k, err);
        pthread_rwlock_unlock(&s->events.lock);
    }
    free(sorted);
    return st;
}
