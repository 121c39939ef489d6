/* A store against a model that knows of each chunk when it was written and when it went, with
 * transactions whose records interleave, oids and TIDs used again, rewrites, seeds that come late,
 * restarts that put again what followed the floor. The model does not look deaths up by TID: it
 * follows the simulated rows themselves. */
#pragma once
#include "toast_dir.h"

/* What the test of a store defines. A fresh one is empty, else it is as the last one was left. */
static struct toast_store *model_open(bool fresh, size_t pending, unsigned reclaim_rows);
/* After the last reclaim: returns how many rows there are that could still be needed. */
static uint64_t model_rows(struct toast_store *store);

#define OWNERS 3u /* 1 to 3 */
#define IDS 12u   /* value ids of an owner, so that they are used again */
#define TIDS 60u
#define MAX_CHUNKS 4u
#define REQUESTS_MAX 24u
#define NONE UINT64_MAX
#define START ((XLogRecPtr)1000) /* of the backup; seeds are born one before */

struct chunk { /* a row of a TOAST table */
    Oid owner, id;
    uint32_t seq, len, uid;
    uint64_t tid;
    XLogRecPtr born, died; /* as committed */
    bool committed;
};

struct log_event {
    struct toast_event e;
    size_t chunk; /* births and deaths */
};

struct value { /* what a table has now */
    Oid id;
    size_t first; /* of chunks */
    uint32_t n;
};

struct owner {
    struct value values[IDS];
    uint32_t nvalues;
    uint8_t tid_used[TIDS]; /* 1 live, 2 dead and not vacuumed */
    uint8_t id_used[IDS];
    bool in_xact;
    size_t xact_first; /* of its open transaction's events in `open` */
    struct log_event open[512];
    size_t nopen;
    bool deletes;
};

struct sim {
    struct toast_store *store;
    struct chunk *chunks;
    size_t nchunks;
    struct log_event *log; /* in the order of the commits */
    size_t nlog;
    struct log_event seeds[OWNERS * IDS * MAX_CHUNKS];
    size_t nseeds, seeds_put;
    struct owner owners[OWNERS + 1];
    XLogRecPtr lsn, floor; /* floor: synced; restarts begin there */
    XLogRecPtr reclaimed;
    uint32_t uids, rng;
    size_t fetches, found;
};

#define CHUNKS_CAP 200000u

static struct error err;

static uint32_t rnd(struct sim *s, uint32_t n)
{
    s->rng = s->rng * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(s->rng >> 4) * n >> 28);
}

static XLogRecPtr next_lsn(struct sim *s)
{
    return s->lsn += 8 + 8 * rnd(s, 4);
}

static uint32_t free_slot(struct sim *s, const uint8_t *used, uint32_t n)
{
    uint32_t at = rnd(s, n);
    for (uint32_t i = 0; i < n; i++, at = (at + 1) % n)
        if (used[at] == 0)
            return at;
    return n;
}

static void emit(struct owner *o, struct log_event e)
{
    assert_true(o->nopen < LENGTH(o->open));
    o->open[o->nopen++] = e;
}

static void birth_of(struct sim *s, struct owner *o, size_t index, uint8_t *data)
{
    const struct chunk *c = &s->chunks[index];
    struct toast_event e = {.kind = TOAST_BIRTH,
                            .owner = c->owner,
                            .lsn = c->born,
                            .tid = c->tid,
                            .value_id = c->id + 1, /* 0 is no value's */
                            .seq = c->seq,
                            .len = c->len,
                            .data = data};
    emit(o, (struct log_event){e, index});
}

/* Writes a value as chunks; false if there is no room for one. */
static bool add_value(struct sim *s, Oid owner, Oid id, uint32_t uid, uint32_t n, bool seed,
                      struct value *ret)
{
    struct owner *o = &s->owners[owner];
    ret->id = id;
    ret->first = s->nchunks;
    ret->n = n;
    uint32_t room = 0;
    for (uint32_t i = 0; i < TIDS; i++)
        room += o->tid_used[i] == 0;
    if (room < n || s->nchunks + n > CHUNKS_CAP)
        return false;
    for (uint32_t seq = 0; seq < n; seq++) {
        uint32_t tid = free_slot(s, o->tid_used, TIDS);
        o->tid_used[tid] = 1;
        s->chunks[s->nchunks] = (struct chunk){owner,
                                               id,
                                               seq,
                                               seq + 1 < n ? 40 : 1 + uid % 40,
                                               uid,
                                               ((uint64_t)tid << 16) + 1,
                                               seed ? START - 1 : next_lsn(s),
                                               NONE,
                                               false};
        if (seed)
            s->seeds[s->nseeds++] = (struct log_event){{.kind = TOAST_BIRTH,
                                                        .seed = true,
                                                        .owner = owner,
                                                        .lsn = START - 1,
                                                        .tid = ((uint64_t)tid << 16) + 1,
                                                        .value_id = id + 1,
                                                        .seq = seq,
                                                        .len = s->chunks[s->nchunks].len},
                                                       s->nchunks};
        else
            birth_of(s, o, s->nchunks, NULL);
        s->nchunks++;
    }
    o->values[o->nvalues++] = *ret;
    o->id_used[id] = 1;
    return true;
}

static void insert_value(struct sim *s, Oid owner, bool seed)
{
    struct owner *o = &s->owners[owner];
    struct value v;
    uint32_t id = free_slot(s, o->id_used, IDS);
    if (id < IDS)
        add_value(s, owner, id, ++s->uids, 1 + rnd(s, MAX_CHUNKS), seed, &v);
}

static void delete_value(struct sim *s, Oid owner)
{
    struct owner *o = &s->owners[owner];
    if (o->nvalues == 0)
        return;
    uint32_t at = rnd(s, o->nvalues);
    struct value v = o->values[at];
    o->values[at] = o->values[--o->nvalues];
    o->id_used[v.id] = 2;
    o->deletes = true;
    for (size_t i = v.first; i < v.first + v.n; i++) {
        const struct chunk *c = &s->chunks[i];
        struct toast_event e = {
            .kind = TOAST_DEATH, .owner = owner, .lsn = next_lsn(s), .tid = c->tid};
        o->tid_used[c->tid >> 16] = 2;
        emit(o, (struct log_event){e, i});
    }
}

/* TRUNCATE, or a rewrite that keeps the values under their ids or gives them others. */
static void new_file(struct sim *s, Oid owner, uint32_t how)
{
    struct owner *o = &s->owners[owner];
    struct value old[IDS];
    uint32_t nold = o->nvalues;
    memcpy(old, o->values, sizeof old);
    struct toast_event e = {.kind = TOAST_RESET, .owner = owner, .lsn = next_lsn(s)};
    emit(o, (struct log_event){e, NONE});
    o->deletes = true;
    o->nvalues = 0;
    memset(o->tid_used, 0, sizeof o->tid_used);
    memset(o->id_used, 0, sizeof o->id_used);
    s->lsn -= 8; /* the first chunk is the reset's LSN or comes after it */
    for (uint32_t i = 0; how != 0 && i < nold; i++) {
        struct value v;
        const struct chunk *c = &s->chunks[old[i].first];
        add_value(s, owner, how == 1 ? old[i].id : i, c->uid, old[i].n, false, &v);
    }
    s->lsn += 8;
}

static void vacuum(struct owner *o)
{
    for (uint32_t i = 0; i < TIDS; i++)
        o->tid_used[i] = o->tid_used[i] == 2 ? 0 : o->tid_used[i];
    for (uint32_t i = 0; i < IDS; i++)
        o->id_used[i] = o->id_used[i] == 2 ? 0 : o->id_used[i];
}

static void apply_to_model(struct sim *s, const struct log_event *l)
{
    if (l->e.kind == TOAST_BIRTH) {
        s->chunks[l->chunk].committed = true;
    } else if (l->e.kind == TOAST_DEATH) {
        s->chunks[l->chunk].died = MIN(s->chunks[l->chunk].died, l->e.lsn);
    } else {
        for (size_t i = 0; i < s->nchunks; i++)
            if (s->chunks[i].owner == l->e.owner && s->chunks[i].born < l->e.lsn)
                s->chunks[i].died = MIN(s->chunks[i].died, l->e.lsn);
    }
}

/* Some events at a time. */
static void put_events(struct sim *s, const struct log_event *events, size_t n)
{
    struct toast_event batch[8];
    uint8_t data[8][40];
    while (n > 0) {
        size_t most = 1 + rnd(s, 8), k = MIN(n, most);
        for (size_t i = 0; i < k; i++) {
            batch[i] = events[i].e;
            if (batch[i].kind == TOAST_BIRTH) {
                toast_fill(data[i], s->chunks[events[i].chunk].uid, batch[i].seq, batch[i].len);
                batch[i].data = data[i];
            }
        }
        assert_ok(toast_store_put(s->store, batch, k, &err));
        events += k;
        n -= k;
    }
}

static void commit(struct sim *s, struct owner *o)
{
    for (size_t i = 0; i < o->nopen; i++)
        apply_to_model(s, &o->open[i]);
    put_events(s, o->open, o->nopen);
    assert_true(s->nlog + o->nopen <= 2 * CHUNKS_CAP);
    memcpy(s->log + s->nlog, o->open, o->nopen * sizeof *o->open);
    s->nlog += o->nopen;
    o->nopen = 0;
    o->in_xact = false;
    o->deletes = false;
}

/* Only transactions that did not delete: their rows are dead at once. */
static void abort_xact(struct sim *s, struct owner *o)
{
    for (size_t i = 0; i < o->nopen; i++) {
        const struct chunk *c = &s->chunks[o->open[i].chunk];
        o->tid_used[c->tid >> 16] = 2;
        o->id_used[c->id] = 2;
        for (uint32_t v = 0; v < o->nvalues; v++)
            if (o->values[v].first == o->open[i].chunk)
                o->values[v--] = o->values[--o->nvalues];
    }
    o->nopen = 0;
    o->in_xact = false;
}

static void step_owner(struct sim *s, Oid owner)
{
    struct owner *o = &s->owners[owner];
    uint32_t what = rnd(s, 100);
    if (o->in_xact && (what < 30 || o->nopen > 300)) {
        if (what < 6 && !o->deletes && o->nopen <= 300)
            abort_xact(s, o);
        else
            commit(s, o);
    } else if (!o->in_xact && what < 15) {
        vacuum(o);
    } else {
        o->in_xact = true;
        if (what < 65)
            insert_value(s, owner, false);
        else if (what < 96)
            delete_value(s, owner);
        else if (!o->deletes)
            new_file(s, owner, what - 96 > 2 ? 0 : what - 96);
    }
}

/* Where a restart may begin: the first record of the oldest open transaction. */
static XLogRecPtr oldest(const struct sim *s)
{
    XLogRecPtr lsn = s->lsn;
    for (unsigned i = 1; i <= OWNERS; i++)
        if (s->owners[i].nopen > 0)
            lsn = MIN(lsn, s->owners[i].open[0].e.lsn);
    return lsn;
}

static bool is_alive(const struct chunk *c, XLogRecPtr lsn)
{
    return c->committed && c->born <= lsn && lsn < c->died;
}

/* What the model has of a value at lsn; the size a pointer to it would have. */
static enum toast_found model_value(const struct sim *s, Oid owner, Oid id, XLogRecPtr lsn,
                                    uint8_t *ret, uint32_t *ret_len)
{
    const struct chunk *best[MAX_CHUNKS] = {NULL};
    uint32_t len = 0, n = 0;
    for (size_t i = 0; i < s->nchunks; i++) {
        const struct chunk *c = &s->chunks[i];
        if (c->owner == owner && c->id == id && is_alive(c, lsn))
            best[c->seq] = c;
    }
    for (; n < MAX_CHUNKS && best[n] != NULL; n++) {
        toast_fill(ret + len, best[n]->uid, n, best[n]->len);
        len += best[n]->len;
    }
    *ret_len = len;
    return n == 0 ? TOAST_MISSING : TOAST_FOUND;
}

/* A value as the store is asked for it, and what the model has. */
struct question {
    uint8_t want[MAX_CHUNKS * 40], got[MAX_CHUNKS * 40 + 1];
    enum toast_found expected;
};

static void question_make(struct sim *s, struct question *q, struct toast_request *ret)
{
    Oid owner = 1 + rnd(s, OWNERS), id = rnd(s, IDS);
    XLogRecPtr low = MAX(s->reclaimed, START - 1);
    XLogRecPtr lsn = low + rnd(s, (uint32_t)(s->lsn - low) + 1);
    uint32_t len;
    q->expected = model_value(s, owner, id, lsn, q->want, &len);
    bool wrong_size = rnd(s, 20) == 0;
    if (q->expected == TOAST_FOUND && wrong_size)
        q->expected = TOAST_INCOMPLETE;
    *ret = (struct toast_request){
        .owner = owner, .value_id = id + 1, .extsize = len + wrong_size, .lsn = lsn, .ret = q->got};
}

/* n values in one call. */
static void compare(struct sim *s, size_t n)
{
    struct question questions[REQUESTS_MAX];
    struct toast_request r[REQUESTS_MAX];
    for (size_t i = 0; i < n; i++)
        question_make(s, &questions[i], &r[i]);
    assert_ok(toast_store_fetch(s->store, r, n, &err));
    for (size_t i = 0; i < n; i++) {
        const struct question *q = &questions[i];
        if (r[i].found != q->expected ||
            (r[i].found == TOAST_FOUND && memcmp(q->want, q->got, r[i].extsize) != 0))
            fail_msg("value %u of %u at %lu: found %d, expected %d of %u bytes", r[i].value_id,
                     r[i].owner, (unsigned long)r[i].lsn, r[i].found, q->expected, r[i].extsize);
        s->fetches++;
        s->found += r[i].found == TOAST_FOUND;
    }
}

static void restart(struct sim *s)
{
    size_t first = 0;
    toast_store_close(s->store);
    s->store = model_open(false, 2048 + rnd(s, 8192), 1 + rnd(s, 30));
    for (size_t i = first; i < s->nlog; i++)
        if (s->log[i].e.lsn >= s->floor)
            put_events(s, &s->log[i], 1);
}

static void put_some_seeds(struct sim *s)
{
    size_t most = 1 + rnd(s, 3), n = MIN(s->nseeds - s->seeds_put, most);
    for (size_t i = s->seeds_put; i < s->seeds_put + n; i++)
        s->chunks[s->seeds[i].chunk].committed = true;
    put_events(s, s->seeds + s->seeds_put, n);
    s->seeds_put += n;
    if (s->seeds_put == s->nseeds) /* they do not come again */
        assert_ok(toast_store_sync(s->store, UINT64_MAX, &err));
}

static void housekeeping(struct sim *s)
{
    bool seeded = s->seeds_put == s->nseeds;
    uint32_t what = rnd(s, 100);
    if (!seeded && what < 20)
        put_some_seeds(s);
    if (!seeded)
        return;
    if (what < 4) {
        XLogRecPtr floor = s->floor + rnd(s, (uint32_t)(oldest(s) - s->floor) + 1);
        assert_ok(toast_store_sync(s->store, floor, &err));
        s->floor = floor;
    } else if (what < 6 && s->floor >= START) {
        assert_ok(toast_store_reclaim(s->store, s->floor, &err));
        s->reclaimed = s->floor;
    } else if (what < 7 && s->floor >= START) {
        restart(s);
    }
}

static void finish(struct sim *s)
{
    size_t live = 0;
    for (unsigned i = 1; i <= OWNERS; i++)
        commit(s, &s->owners[i]);
    while (s->seeds_put < s->nseeds)
        put_some_seeds(s);
    assert_ok(toast_store_sync(s->store, s->lsn + 1, &err));
    assert_ok(toast_store_reclaim(s->store, s->lsn + 1, &err));
    s->reclaimed = s->lsn;
    for (size_t i = 0; i < s->nchunks; i++)
        live += is_alive(&s->chunks[i], s->lsn);
    for (unsigned i = 0; i < 20; i++)
        compare(s, 10);
    assert_int_equal(model_rows(s->store), live);
}

/* Between two steps `asked` values are asked for, in calls of up to REQUESTS_MAX. */
static void model_run(uint32_t seed, unsigned steps, double asked)
{
    struct sim *s = xcalloc(1, sizeof *s);
    double due = 0;
    s->rng = seed * 7919 + 1;
    s->chunks = xcalloc(CHUNKS_CAP, sizeof *s->chunks);
    s->log = xcalloc(2 * CHUNKS_CAP, sizeof *s->log);
    s->lsn = s->floor = s->reclaimed = START;
    s->store = model_open(true, 4096, 5);
    for (Oid owner = 1; owner <= OWNERS; owner++)
        for (unsigned i = 0; i < 6; i++)
            insert_value(s, owner, true);
    for (unsigned i = 0; i < steps; i++) {
        step_owner(s, 1 + rnd(s, OWNERS));
        housekeeping(s);
        for (due += asked; due > 0;) {
            unsigned n = 1 + rnd(s, REQUESTS_MAX);
            compare(s, n);
            due -= n;
        }
    }
    finish(s);
    assert_true(s->found > s->fetches / 10 && s->found < s->fetches * 9 / 10);
    toast_store_close(s->store);
    free(s->chunks);
    free(s->log);
    free(s);
}

/* Of the seeds first to last, or of those in the environment, "first-last", for longer runs. */
static void model_run_seeds(unsigned first, unsigned last, unsigned steps, double asked)
{
    const char *env = getenv("TOAST_MODEL_SEEDS");
    if (env != NULL)
        assert_int_equal(sscanf(env, "%u-%u", &first, &last), 2);
    for (uint32_t seed = first; seed <= last; seed++) {
        if (env != NULL)
            printf("seed %u\n", seed);
        model_run(seed, steps, asked);
    }
}
