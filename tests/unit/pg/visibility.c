#include "pg/visibility.h"

#include "test.h"

#define N 1000u

/* xids: 1xx committed, 2xx aborted, 3xx still running; the callback must not be asked for others.
 * Of these, those that end in 9 have ended in the WAL. */
static enum xid_fate fate(void *ctx, TransactionId xid)
{
    (*(unsigned *)ctx)++;
    switch (xid / 100) {
    case 1:
        return FATE_COMMITTED;
    case 2:
        return FATE_ABORTED;
    case 3:
        return FATE_UNKNOWN;
    default:
        fail_msg("asked for %u", xid);
        return FATE_UNKNOWN;
    }
}

static bool has_ended(void *ctx, TransactionId xid)
{
    (void)ctx;
    return xid % 10 == 9;
}

/* multixacts: 5000 + x has updater x; 6000 locks, 7000 is not known yet, 8000 is gone */
static enum updater_fact updater(void *ctx, MultiXactId multi, TransactionId *ret_xid)
{
    (void)ctx;
    if (multi >= 5000 && multi < 6000 + N) {
        *ret_xid = multi - 5000;
        return multi == 6000 ? UPDATER_NONE : UPDATER_XID;
    }
    assert_true(multi == 7000 || multi == 8000);
    return multi == 7000 ? UPDATER_UNKNOWN : UPDATER_LOST;
}

enum {
    XMIN_COMMITTED = 0x100,
    XMIN_INVALID = 0x200,
    FROZEN = 0x300,
    XMAX_COMMITTED = 0x400,
    XMAX_INVALID = 0x800,
    MULTI = 0x1000,
    LOCK_ONLY = 0x80,
    EXCL = 0x40,
    KEYSHR = 0x10,
    MOVED_OFF = 0x4000,
    MOVED_IN = 0x8000,
    UPD_MULTI = MULTI | EXCL,
};

#define END(xid) ((uint64_t)AWAIT_END << 32 | (xid))
#define MEMBERS(multi) ((uint64_t)AWAIT_MEMBERS << 32 | (multi))

struct visibility_case {
    const char *what;
    TransactionId xmin, xmax;
    unsigned mask, ctid_offset;
    enum tuple_verdict want;
    uint64_t waits_for; /* the number of a transaction, END or MEMBERS */
    unsigned asked;
};

static const struct visibility_case cases[] = {
    /* inserter */
    {"frozen", 5, 0, FROZEN | XMAX_INVALID, 1, TUPLE_LIVE, 0, 0},
    {"frozen, xid of after N (wrapped)", 5000, 0, FROZEN | XMAX_INVALID, 1, TUPLE_LIVE, 0, 0},
    {"frozen the old way", 2, 0, XMAX_INVALID, 1, TUPLE_LIVE, 0, 0},
    {"bootstrap", 1, 0, XMAX_INVALID, 1, TUPLE_LIVE, 0, 0},
    {"super-deleted", 0, 0, XMAX_INVALID, 1, TUPLE_DEAD, 0, 0},
    {"hinted committed", 500, 0, XMIN_COMMITTED | XMAX_INVALID, 1, TUPLE_LIVE, 0, 0},
    {"hinted aborted", 500, 0, XMIN_INVALID | XMAX_INVALID, 1, TUPLE_DEAD, 0, 0},
    {"committed", 101, 0, XMAX_INVALID, 1, TUPLE_LIVE, 0, 1},
    {"aborted", 201, 0, XMAX_INVALID, 1, TUPLE_DEAD, 0, 1},
    {"running", 301, 0, XMAX_INVALID, 1, TUPLE_UNDECIDED, 301, 1},
    {"running, deleted by itself", 301, 301, 0, 1, TUPLE_UNDECIDED, 301, 1},
    {"at N", N, 0, XMAX_INVALID, 1, TUPLE_SKIP, 0, 0},
    {"after N, hinted committed", N + 1, 0, XMIN_COMMITTED | XMAX_INVALID, 1, TUPLE_SKIP, 0, 0},
    {"after N, hinted aborted", N + 1, 0, XMIN_INVALID, 1, TUPLE_SKIP, 0, 0},
    {"just before N", N - 1, 0, XMIN_COMMITTED | XMAX_INVALID, 1, TUPLE_LIVE, 0, 0},
    {"before N across the wrap", 4294967000u, 0, XMIN_COMMITTED, 1, TUPLE_LIVE, 0, 0},
    /* deleter */
    {"no xmax, no bits", 500, 0, XMIN_COMMITTED, 1, TUPLE_LIVE, 0, 0},
    {"xmax hinted invalid", 500, 102, XMIN_COMMITTED | XMAX_INVALID, 1, TUPLE_LIVE, 0, 0},
    {"xmax hinted committed", 500, 501, XMIN_COMMITTED | XMAX_COMMITTED, 1, TUPLE_DEAD, 0, 0},
    {"xmax committed", 500, 102, XMIN_COMMITTED, 1, TUPLE_DEAD, 0, 1},
    {"xmax aborted", 500, 202, XMIN_COMMITTED, 1, TUPLE_LIVE, 0, 1},
    {"xmax running", 500, 302, XMIN_COMMITTED, 1, TUPLE_DELETING, 302, 1},
    {"both unknown to hints", 101, 302, 0, 1, TUPLE_DELETING, 302, 2},
    {"xmax at N", 500, N, XMIN_COMMITTED, 1, TUPLE_LIVE, 0, 0},
    {"xmax after N, committed", 500, N + 9, XMIN_COMMITTED | XMAX_COMMITTED, 1, TUPLE_LIVE, 0, 0},
    {"frozen, deleted", 5, 102, FROZEN, 1, TUPLE_DEAD, 0, 1},
    {"aborted insert, committed delete", 201, 102, XMAX_COMMITTED, 1, TUPLE_DEAD, 0, 1},
    /* lockers */
    {"locked only", 500, 302, XMIN_COMMITTED | LOCK_ONLY | EXCL, 1, TUPLE_LIVE, 0, 0},
    {"share-locked", 500, 302, XMIN_COMMITTED | LOCK_ONLY | EXCL | KEYSHR, 1, TUPLE_LIVE, 0, 0},
    {"for update before 9.3", 500, 302, XMIN_COMMITTED | EXCL, 1, TUPLE_LIVE, 0, 0},
    {"multixact of lockers", 500, 7, XMIN_COMMITTED | MULTI | LOCK_ONLY, 1, TUPLE_LIVE, 0, 0},
    {"multixact before 9.3", 500, 7, XMIN_COMMITTED | MULTI, 1, TUPLE_LIVE, 0, 0},
    {"multixact, known over", 500, 7, XMIN_COMMITTED | UPD_MULTI | XMAX_INVALID, 1, TUPLE_LIVE, 0,
     0},
    /* updaters in multixacts */
    {"updater committed", 500, 5101, XMIN_COMMITTED | UPD_MULTI, 1, TUPLE_DEAD, 0, 1},
    {"updater committed, key share", 500, 5101, XMIN_COMMITTED | MULTI | KEYSHR, 1, TUPLE_DEAD, 0,
     1},
    {"updater aborted", 500, 5201, XMIN_COMMITTED | UPD_MULTI, 1, TUPLE_LIVE, 0, 1},
    {"updater running", 500, 5301, XMIN_COMMITTED | UPD_MULTI, 1, TUPLE_DELETING, 301, 1},
    {"no hint counts for it", 500, 5201, XMIN_COMMITTED | UPD_MULTI | XMAX_COMMITTED, 1, TUPLE_LIVE,
     0, 1},
    {"updater at N", 500, 5000 + N + 1, XMIN_COMMITTED | UPD_MULTI, 1, TUPLE_LIVE, 0, 0},
    {"only lockers after all", 500, 6000, XMIN_COMMITTED | UPD_MULTI, 1, TUPLE_LIVE, 0, 0},
    {"members unknown", 500, 7000, XMIN_COMMITTED | UPD_MULTI, 1, TUPLE_UNDECIDED, MEMBERS(7000),
     0},
    {"members come before a fate", 301, 7000, UPD_MULTI, 1, TUPLE_UNDECIDED, MEMBERS(7000), 1},
    {"then the inserter", 301, 5101, UPD_MULTI, 1, TUPLE_UNDECIDED, 301, 1},
    {"members unknown, aborted row", 201, 7000, UPD_MULTI, 1, TUPLE_DEAD, 0, 1},
    {"members unknown, skipped row", N, 7000, UPD_MULTI, 1, TUPLE_SKIP, 0, 0},
    {"members lost", 500, 8000, XMIN_COMMITTED | UPD_MULTI, 1, TUPLE_UNSUPPORTED, 0, 0},
    {"members lost, inserter runs", 301, 8000, UPD_MULTI, 1, TUPLE_UNDECIDED, 301, 1},
    /* rare */
    {"speculative", 101, 0, XMAX_INVALID, 0xfffe, TUPLE_UNDECIDED, END(101), 1},
    {"speculative, ended", 109, 0, XMAX_INVALID, 0xfffe, TUPLE_LIVE, 0, 1},
    {"speculative, running", 301, 0, XMAX_INVALID, 0xfffe, TUPLE_UNDECIDED, 301, 1},
    {"speculative, aborted", 201, 0, XMAX_INVALID, 0xfffe, TUPLE_DEAD, 0, 1},
    {"speculative, after N", N, 0, XMAX_INVALID, 0xfffe, TUPLE_SKIP, 0, 0},
    {"to another partition", 500, 102, XMIN_COMMITTED, 0xfffd, TUPLE_DEAD, 0, 1},
};

static enum updater_fact no_updater(void *ctx, MultiXactId multi, TransactionId *ret_xid)
{
    (void)ctx, (void)multi, (void)ret_xid;
    return UPDATER_UNKNOWN;
}

static void check(const struct visibility_case *c, TransactionId xvac)
{
    unsigned asked = 0;
    const struct visibility_facts facts = {&asked, fate, has_ended, updater};
    struct awaited awaited = {0};
    const char *reason = NULL;
    struct page_tuple t = {.raw.infomask = (uint16_t)c->mask,
                           .xmin = c->xmin,
                           .xmax = c->xmax,
                           .xvac = xvac,
                           .ctid_offset = (OffsetNumber)c->ctid_offset};
    enum tuple_verdict got = tuple_visibility(&t, N, &facts, &awaited, &reason);
    /* the same with the updater in place of its multixact */
    struct page_tuple settled = t;
    tuple_updater_settle(&settled, &facts);
    if (tuple_visibility(&settled, N, &facts, &awaited, &reason) != got)
        fail_msg("%s: another verdict once the updater is settled", c->what);
    if (c->want != TUPLE_UNSUPPORTED && awaited.kind != AWAIT_MEMBERS) {
        const struct visibility_facts none = {&asked, fate, has_ended, no_updater};
        if (tuple_visibility(&settled, N, &none, &awaited, &reason) != got)
            fail_msg("%s: still asks for members", c->what);
    }
    asked = 0;
    reason = NULL;
    awaited = (struct awaited){0};
    (void)tuple_visibility(&t, N, &facts, &awaited, &reason);
    if (got != c->want || ((uint64_t)awaited.kind << 32 | awaited.number) != c->waits_for ||
        asked != c->asked || (reason != NULL) != (got == TUPLE_UNSUPPORTED))
        fail_msg("%s: verdict %d waits for %u %u, asked %u", c->what, got, awaited.kind,
                 awaited.number, asked);
}

static void test_rule(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++)
        check(&cases[i], 0);
}

/* By VACUUM FULL of servers before 9.0: the last number is the moving transaction. */
static void test_moved(void **state)
{
    static const struct {
        struct visibility_case rule;
        TransactionId xvac;
    } moved[] = {
        {{"moved off, hinted", 500, 0, XMIN_COMMITTED | MOVED_OFF, 1, TUPLE_LIVE, 0, 0}, 101},
        {{"moved in, hinted", 500, 0, XMIN_COMMITTED | MOVED_IN, 1, TUPLE_LIVE, 0, 0}, 201},
        {{"moved off, gone", 500, 0, XMIN_INVALID | MOVED_OFF, 1, TUPLE_DEAD, 0, 0}, 201},
        {{"moved off, committed", 500, 0, MOVED_OFF, 1, TUPLE_DEAD, 0, 1}, 101},
        {{"moved off, aborted", 500, 0, MOVED_OFF, 1, TUPLE_LIVE, 0, 1}, 201},
        {{"moved off, not asked yet", 500, 0, MOVED_OFF, 1, TUPLE_UNDECIDED, 301, 1}, 301},
        {{"moved in, committed", 500, 0, MOVED_IN, 1, TUPLE_LIVE, 0, 1}, 101},
        {{"moved in, aborted", 500, 0, MOVED_IN, 1, TUPLE_DEAD, 0, 1}, 201},
        {{"moved in, frozen vacuum", 500, 0, MOVED_IN, 1, TUPLE_LIVE, 0, 0}, 2},
        {{"moved in, later deleted", 500, 102, MOVED_IN, 1, TUPLE_DEAD, 0, 2}, 101},
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(moved); i++)
        check(&moved[i].rule, moved[i].xvac);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rule), cmocka_unit_test(test_moved)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
