/* A random history of transactions, told to the buffer and to a naive model: what each commit
 * delivers, and what pins the floor, must be the same. In memory and with tiny limits. */
#include "frames.h"

#include <unistd.h>

#define XIDS 40000u
#define OPEN_MAX 24u
#define STEPS 4000

/* One xid, subtransactions included. */
struct model_xid {
    TransactionId parent;     /* 0: top-level */
    bool open, aborted, told; /* told: the buffer knows whose child it is */
    bool entry;               /* the buffer has an entry of its own */
    bool prepared;
    XLogRecPtr first_lsn; /* of the entry */
    int64_t spec;         /* events index of a waiting speculative insert, -1: none */
};

struct model {
    struct model_xid xids[XIDS];
    TransactionId next_xid;
    TransactionId tops[OPEN_MAX]; /* open top-level transactions */
    uint32_t ntops;
    struct seen_list events; /* all that counts so far, by lsn; xid 0: taken back */
    XLogRecPtr lsn;
    unsigned seed;
    struct xact_buffer *buffer;
    size_t delivered;
};

static uint32_t roll(struct model *m, uint32_t n)
{
    return (uint32_t)rand_r(&m->seed) % n;
}

static TransactionId top_of(const struct model *m, TransactionId xid)
{
    while (m->xids[xid].parent != 0)
        xid = m->xids[xid].parent;
    return xid;
}

static bool is_below(const struct model *m, TransactionId xid, TransactionId ancestor)
{
    for (; xid != 0; xid = m->xids[xid].parent)
        if (xid == ancestor)
            return true;
    return false;
}

static bool counts(const struct model *m, TransactionId xid)
{
    for (; xid != 0; xid = m->xids[xid].parent)
        if (m->xids[xid].aborted)
            return false;
    return true;
}

static TransactionId begin(struct model *m, TransactionId parent)
{
    TransactionId xid = m->next_xid++;
    assert_true(xid < XIDS);
    m->xids[xid] = (struct model_xid){.parent = parent, .open = true, .spec = -1};
    return xid;
}

/* The open descendants of xid, itself left out. */
static uint32_t children(const struct model *m, TransactionId xid, TransactionId *ret)
{
    uint32_t n = 0;
    for (TransactionId x = xid + 1; x < m->next_xid; x++)
        if (m->xids[x].open && counts(m, x) && is_below(m, x, xid))
            ret[n++] = x;
    return n;
}

static void entry_open(struct model *m, TransactionId xid)
{
    struct model_xid *x = &m->xids[xid];
    if (x->entry)
        return;
    x->entry = true;
    x->first_lsn = m->lsn;
}

/* The first record of xid tells its top-level transaction, unless that was before our start. */
static TransactionId introduce(struct model *m, TransactionId xid)
{
    struct model_xid *x = &m->xids[xid];
    TransactionId top = top_of(m, xid);
    if (xid == top || x->entry) {
        entry_open(m, xid);
        return 0;
    }
    if (x->told)
        return 0;
    if (roll(m, 4) == 0) { /* buffered alone */
        entry_open(m, xid);
        return 0;
    }
    x->told = true;
    entry_open(m, top);
    return top;
}

/* Whose waiting speculative insert a record of xid is about: one an entry. */
static struct model_xid *spec_holder(struct model *m, TransactionId xid)
{
    return m->xids[xid].told ? &m->xids[top_of(m, xid)] : &m->xids[xid];
}

static void write_row(struct model *m, TransactionId xid)
{
    TransactionId top = introduce(m, xid);
    struct seen s = {.lsn = m->lsn,
                     .xid = xid,
                     .kind = roll(m, 3),
                     .payload = (uint32_t)m->lsn * 31u,
                     .len = 1 + roll(m, 300)};
    if (s.kind == CHANGE_INSERT && roll(m, 5) == 0) {
        s.flags = CHANGE_SPECULATIVE;
        change_add(m->buffer, s, top);
        m->lsn += 8;
        uint32_t outcome = roll(m, 5);
        struct model_xid *holder = spec_holder(m, xid);
        holder->spec = -1; /* a newer one takes the place of one that was left behind */
        if (outcome < 3) {
            change_add(m->buffer,
                       (struct seen){.kind = CHANGE_SPEC_CONFIRM, .lsn = m->lsn, .xid = xid}, 0);
            s.flags = 0;
            seen_add(&m->events, s);
        } else if (outcome == 3) {
            change_add(m->buffer,
                       (struct seen){.kind = CHANGE_SPEC_DELETE, .lsn = m->lsn, .xid = xid}, 0);
        }
        return;
    }
    change_add(m->buffer, s, top);
    seen_add(&m->events, s);
}

static void close_xid(struct model *m, TransactionId xid)
{
    m->xids[xid].open = false;
    m->xids[xid].entry = false;
}

static void abort_sub(struct model *m, TransactionId xid)
{
    TransactionId subs[400];
    uint32_t n = children(m, xid, subs);
    xact_buffer_abort(m->buffer, xid, subs, n);
    m->xids[xid].aborted = true;
    m->xids[xid].entry = false;
    for (uint32_t i = 0; i < n; i++)
        m->xids[subs[i]].entry = false; /* of those buffered alone */
}

static void forget_top(struct model *m, uint32_t slot, TransactionId top)
{
    for (TransactionId x = top; x < m->next_xid; x++)
        if (is_below(m, x, top))
            close_xid(m, x);
    m->tops[slot] = m->tops[--m->ntops];
}

static void end_top(struct model *m, uint32_t slot, bool commit)
{
    TransactionId top = m->tops[slot], subs[400];
    CLEANUP_SEEN struct seen_list want = {0}, got = {0};
    uint32_t n = children(m, top, subs);
    if (!commit) {
        xact_buffer_abort(m->buffer, top, subs, n);
        forget_top(m, slot, top);
        return;
    }
    for (size_t i = 0; i < m->events.n; i++)
        if (top_of(m, m->events.items[i].xid) == top && counts(m, m->events.items[i].xid))
            seen_add(&want, m->events.items[i]);
    struct xact *x = xact_buffer_take(m->buffer, top, subs, n);
    if (x == NULL) {
        assert_int_equal(want.n, 0);
    } else {
        xact_list(x, &got);
        assert_seen_equal(&got, &want);
        m->delivered += got.n;
    }
    xact_buffer_release(m->buffer, x);
    forget_top(m, slot, top);
    /* their events are not looked at again */
    size_t kept = 0;
    for (size_t i = 0; i < m->events.n; i++)
        if (m->xids[top_of(m, m->events.items[i].xid)].open)
            m->events.items[kept++] = m->events.items[i];
    m->events.n = kept;
}

/* The server dies: all but the prepared are gone. The next RUNNING_XACTS says so. */
static void crash(struct model *m)
{
    TransactionId oldest = m->next_xid;
    for (uint32_t i = 0; i < m->ntops;) {
        TransactionId top = m->tops[i];
        if (m->xids[top].prepared) {
            oldest = MIN(oldest, top);
            i++;
            continue;
        }
        m->tops[i] = m->tops[--m->ntops];
        for (TransactionId x = top; x < m->next_xid; x++)
            if (is_below(m, x, top))
                m->xids[x].open = false; /* its entry may have to wait */
    }
    xact_buffer_running(m->buffer, oldest);
    for (TransactionId x = 3; x < m->next_xid; x++)
        if (m->xids[x].entry && x < oldest && !m->xids[x].prepared)
            m->xids[x].entry = false;
}

static void check_gauges(const struct model *m)
{
    XLogRecPtr oldest = UINT64_MAX;
    size_t count = 0;
    for (TransactionId x = 3; x < m->next_xid; x++) {
        if (!m->xids[x].entry)
            continue;
        count++;
        oldest = MIN(oldest, m->xids[x].first_lsn);
    }
    assert_int_equal(xact_buffer_count(m->buffer), count);
    assert_true(xact_buffer_oldest_lsn(m->buffer) == oldest);
}

static TransactionId any_member(struct model *m, TransactionId top)
{
    TransactionId subs[400];
    uint32_t n = children(m, top, subs), i = roll(m, n + 1);
    return i == n ? top : subs[i];
}

static void step(struct model *m)
{
    uint32_t what = roll(m, 100);
    m->lsn += 8 + 8 * roll(m, 10);
    if (m->ntops == 0 || (what < 10 && m->ntops < OPEN_MAX)) {
        m->tops[m->ntops++] = begin(m, 0);
        return;
    }
    uint32_t slot = roll(m, m->ntops);
    TransactionId top = m->tops[slot], member = any_member(m, top);
    bool prepared = m->xids[top].prepared;
    if (what >= 95 || (prepared && what >= 80)) {
        end_top(m, slot, roll(m, 3) != 0);
    } else if (prepared) {
        return; /* it writes no more */
    } else if (what < 30) {
        TransactionId subs[400];
        if (children(m, top, subs) < 40)
            begin(m, member);
    } else if (what < 36) {
        if (member != top)
            abort_sub(m, member);
    } else if (what < 40) {
        TransactionId told = introduce(m, member);
        xact_buffer_seen(m->buffer, member, told, m->lsn);
    } else if (what == 40) {
        prepare(m->buffer, top, "model");
        m->xids[top].prepared = m->xids[top].entry;
    } else if (what == 41 && roll(m, 4) == 0) {
        crash(m);
    } else {
        write_row(m, member);
    }
}

static void run(unsigned seed, size_t max_bytes, uint64_t *ret_spills, size_t *ret_delivered)
{
    static struct model m;
    char dir[] = "/tmp/walshadow-model-XXXXXX";
    assert_non_null(mkdtemp(dir));
    memset(&m, 0, sizeof m);
    m.seed = seed;
    m.next_xid = 3;
    m.lsn = 1000;
    m.buffer = xact_buffer_new(dir, max_bytes, NULL);
    for (int i = 0; i < STEPS; i++) {
        step(&m);
        check_gauges(&m);
    }
    while (m.ntops > 0)
        end_top(&m, 0, true);
    *ret_spills = xact_buffer_spills(m.buffer);
    *ret_delivered = m.delivered;
    xact_buffer_free(m.buffer);
    seen_free(&m.events);
    assert_int_equal(rmdir(dir), 0);
}

static void test_model(void **state)
{
    static const size_t limits[] = {SIZE_MAX, 1024};
    (void)state;
    for (unsigned seed = 1; seed <= 12; seed++)
        for (size_t l = 0; l < LENGTH(limits); l++) {
            uint64_t spills;
            size_t delivered;
            print_message("seed %u, limit %zu\n", seed, limits[l]);
            run(seed, limits[l], &spills, &delivered);
            assert_true(delivered > 300);
            assert_int_equal(spills > 0, limits[l] == 1024);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
