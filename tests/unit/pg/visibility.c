#include "pg/visibility.h"

#include "test.h"

#define N 1000u

/* xids: 1xx committed, 2xx aborted, 3xx still running; the callback must not be asked for others */
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
};

struct visibility_case {
    const char *what;
    TransactionId xmin, xmax;
    unsigned mask, ctid_offset;
    enum tuple_verdict want;
    TransactionId want_xid;
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
    {"xmax running", 500, 302, XMIN_COMMITTED, 1, TUPLE_UNDECIDED, 302, 1},
    {"both unknown to hints", 101, 302, 0, 1, TUPLE_UNDECIDED, 302, 2},
    {"xmax at N", 500, N, XMIN_COMMITTED, 1, TUPLE_LIVE, 0, 0},
    {"xmax after N, committed", 500, N + 9, XMIN_COMMITTED | XMAX_COMMITTED, 1, TUPLE_LIVE, 0, 0},
    {"frozen, deleted", 5, 102, FROZEN, 1, TUPLE_DEAD, 0, 1},
    {"aborted insert, committed delete", 201, 102, XMAX_COMMITTED, 1, TUPLE_DEAD, 0, 1},
    /* lockers */
    {"locked only", 500, 302, XMIN_COMMITTED | LOCK_ONLY | EXCL, 1, TUPLE_LIVE, 0, 0},
    {"share-locked", 500, 302, XMIN_COMMITTED | LOCK_ONLY | EXCL | KEYSHR, 1, TUPLE_LIVE, 0, 0},
    {"for update before 9.3", 500, 302, XMIN_COMMITTED | EXCL, 1, TUPLE_LIVE, 0, 0},
    {"multixact of lockers", 500, 7, XMIN_COMMITTED | MULTI | LOCK_ONLY, 1, TUPLE_LIVE, 0, 0},
    {"multixact with updater", 500, 7, XMIN_COMMITTED | MULTI, 1, TUPLE_UNSUPPORTED, 0, 0},
    {"multixact number above N", 500, N + 7, XMIN_COMMITTED | MULTI, 1, TUPLE_UNSUPPORTED, 0, 0},
    {"multixact, known over", 500, 7, XMIN_COMMITTED | MULTI | XMAX_INVALID, 1, TUPLE_LIVE, 0, 0},
    {"multixact on an aborted row", 201, 7, MULTI, 1, TUPLE_DEAD, 0, 1},
    {"multixact on a skipped row", N, 7, MULTI, 1, TUPLE_SKIP, 0, 0},
    /* rare */
    {"moved off", 500, 0, XMIN_COMMITTED | MOVED_OFF, 1, TUPLE_UNSUPPORTED, 0, 0},
    {"moved in", 500, 0, XMIN_COMMITTED | MOVED_IN, 1, TUPLE_UNSUPPORTED, 0, 0},
    {"speculative", 101, 0, XMAX_INVALID, 0xfffe, TUPLE_UNSUPPORTED, 0, 1},
    {"speculative, running", 301, 0, XMAX_INVALID, 0xfffe, TUPLE_UNDECIDED, 301, 1},
    {"speculative, aborted", 201, 0, XMAX_INVALID, 0xfffe, TUPLE_DEAD, 0, 1},
    {"speculative, after N", N, 0, XMAX_INVALID, 0xfffe, TUPLE_SKIP, 0, 0},
    {"to another partition", 500, 102, XMIN_COMMITTED, 0xfffd, TUPLE_DEAD, 0, 1},
};

static void test_rule(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        const struct visibility_case *c = &cases[i];
        unsigned asked = 0;
        TransactionId xid = 0;
        const char *reason = NULL;
        struct page_tuple t = {.raw.infomask = (uint16_t)c->mask,
                               .xmin = c->xmin,
                               .xmax = c->xmax,
                               .ctid_offset = (OffsetNumber)c->ctid_offset};
        enum tuple_verdict got = tuple_visibility(&t, N, fate, &asked, &xid, &reason);
        if (got != c->want || xid != c->want_xid || asked != c->asked ||
            (reason != NULL) != (got == TUPLE_UNSUPPORTED))
            fail_msg("%s: verdict %d xid %u asked %u", c->what, got, xid, asked);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rule)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
