/* Which shape a relation has at an LSN, and which one a file's rows have. */
#include "base/file.h"
#include "catalog/catalog_log.h"
#include "catalog/history.h"
#include "relations.h"

#include <pthread.h>
#include <unistd.h>

static char dir[] = "/tmp/walshadow-history-XXXXXX";
static char path[64];

static int setup(void **state)
{
    (void)state;
    if (mkdtemp(dir) == NULL)
        return 1;
    snprintf(path, sizeof path, "%s/catalog.log", dir);
    return 0;
}

static int teardown(void **state)
{
    struct error err = {0};
    (void)state;
    return file_remove_tree(dir, true, &err) != OK;
}

static struct history *open_history(void)
{
    struct error err = {0};
    struct history *h = NULL;
    assert_ok(history_open(path, &h, &err));
    return h;
}

static struct history *fresh(void)
{
    unlink(path);
    return open_history();
}

/* Appends one descriptor and drops it here. */
static void add(struct history *h, struct rel_desc *d, XLogRecPtr captured)
{
    struct error err = {0};
    assert_ok(history_append(h, &d, 1, captured, &err));
    rel_desc_unref(d);
}

/* natts of the shape found, -1 if there is none; *oid of it. */
static int shape_at(struct history *h, Oid oid, XLogRecPtr lsn)
{
    struct rel_desc *d = history_by_oid(h, oid, lsn);
    int natts = d == NULL ? -1 : d->natts;
    if (d != NULL)
        assert_int_equal(d->oid, oid);
    rel_desc_unref(d);
    return natts;
}

static int shape_of_file(struct history *h, Oid number, XLogRecPtr lsn, Oid *ret_oid,
                         bool *ret_toast)
{
    *ret_toast = false;
    struct rel_desc *d = history_by_locator(h, file_of(number), lsn, ret_toast);
    int natts = d == NULL ? -1 : d->natts;
    *ret_oid = d == NULL ? 0 : d->oid;
    rel_desc_unref(d);
    return natts;
}

static void assert_file(struct history *h, Oid number, XLogRecPtr lsn, int natts, Oid oid,
                        bool toast)
{
    Oid found;
    bool is_toast;
    assert_int_equal(shape_of_file(h, number, lsn, &found, &is_toast), natts);
    assert_int_equal(found, oid);
    if (natts >= 0)
        assert_int_equal(is_toast, toast);
}

/* Every test's assertions hold for the running history and for one read from the file. */
typedef void (*facts_fn)(struct history *h);
static void both(struct history *h, facts_fn facts)
{
    facts(h);
    XLogRecPtr captured = history_captured_lsn(h);
    history_free(h);
    h = open_history();
    facts(h);
    assert_true(history_captured_lsn(h) == captured);
    history_free(h);
}

static void versions_facts(struct history *h)
{
    assert_int_equal(shape_at(h, 16400, 0), 3);
    assert_int_equal(shape_at(h, 16400, 99), 3);
    assert_int_equal(shape_at(h, 16400, 100), 4); /* from the commit's end on */
    assert_int_equal(shape_at(h, 16400, 299), 4);
    assert_int_equal(shape_at(h, 16400, 300), 5);
    assert_int_equal(shape_at(h, 16400, UINT64_MAX), 5);
    assert_int_equal(shape_at(h, 16500, 199), -1); /* not yet created */
    assert_int_equal(shape_at(h, 16500, 200), 1);
    assert_int_equal(shape_at(h, 16600, 500), -1);
    assert_true(history_captured_lsn(h) == 300);
}

static void test_versions(void **state)
{
    struct history *h = fresh();
    (void)state;
    assert_int_equal(history_captured_lsn(h), 0);
    add(h, relation(16400, 0, 16401, 3), 50);
    add(h, relation(16400, 100, 16401, 4), 100);
    add(h, relation(16500, 200, 16501, 1), 200);
    add(h, relation(16400, 300, 16401, 5), 300);
    both(h, versions_facts);
}

/* A file's rows: the newest shape at or below the commit, else the oldest of that file. */
static void file_facts(struct history *h)
{
    assert_file(h, 16401, 100, 3, 16400, false);
    assert_file(h, 16401, 250, 4, 16400, false);
    /* the file was left at 300, but what commits later in it (replayed) has its last shape */
    assert_file(h, 16401, 400, 4, 16400, false);
    assert_file(h, 16411, 300, 5, 16400, false);
    /* rows written into the new file before its commit: the oldest shape that has this file */
    assert_file(h, 16411, 10, 5, 16400, false);
    /* TOAST files: the owner's shape */
    assert_file(h, 16402, 100, 3, 16400, true);
    assert_file(h, 16402, 250, 4, 16400, true);
    assert_file(h, 16412, 300, 5, 16400, true);
    assert_file(h, 16999, 300, -1, 0, false);
    bool toast;
    struct rel_file_locator elsewhere = {1700, 5, 16401};
    assert_null(history_by_locator(h, elsewhere, 100, &toast)); /* another tablespace */
    elsewhere = (struct rel_file_locator){1663, 6, 16401};
    assert_null(history_by_locator(h, elsewhere, 100, &toast));  /* another database */
    assert_null(history_by_locator(h, file_of(0), 100, &toast)); /* without storage */
}

static void test_files(void **state)
{
    struct history *h = fresh();
    (void)state;
    add(h, relation(16400, 0, 16401, 3), 50);
    add(h, relation(16400, 200, 16401, 4), 200);
    add(h, relation(16400, 300, 16411, 5), 300);      /* rewritten */
    struct rel_desc *root = relation(16700, 0, 0, 1); /* partitioned: no storage */
    add(h, root, 300);
    both(h, file_facts);
}

static void dropped_facts(struct history *h)
{
    assert_int_equal(shape_at(h, 16400, 199), 3);
    assert_int_equal(shape_at(h, 16400, 200), -1);
    assert_int_equal(shape_at(h, 16400, UINT64_MAX), -1);
    /* its rows that committed before are still decoded after a restart */
    assert_file(h, 16401, 150, 3, 16400, false);
    assert_file(h, 16401, 250, 3, 16400, false);
    assert_file(h, 16402, 150, 3, 16400, true);
}

static void test_dropped(void **state)
{
    struct history *h = fresh();
    (void)state;
    add(h, relation(16400, 0, 16401, 3), 50);
    add(h, dropped(16400, 200), 200);
    both(h, dropped_facts);
}

/* A file number used again belongs to its new owner from then on. */
static void reused_facts(struct history *h)
{
    assert_file(h, 16401, 300, 1, 16800, false);
    assert_file(h, 16401, 999, 1, 16800, false);
    assert_file(h, 16402, 400, 2, 16900, false); /* was a TOAST file, is a table's */
    assert_int_equal(shape_at(h, 16400, 100), 3);
    assert_int_equal(shape_at(h, 16400, 300), -1);
}

static void test_reused_file_number(void **state)
{
    struct history *h = fresh();
    (void)state;
    add(h, relation(16400, 0, 16401, 3), 50);
    add(h, dropped(16400, 200), 200);
    add(h, relation(16800, 300, 16401, 1), 300);
    add(h, relation(16900, 400, 16402, 2), 400);
    both(h, reused_facts);
}

static void oid_again_facts(struct history *h)
{
    assert_int_equal(shape_at(h, 16400, 100), 3);
    assert_int_equal(shape_at(h, 16400, 250), -1);
    assert_int_equal(shape_at(h, 16400, 300), 2);
}

static void test_oid_used_again(void **state)
{
    struct history *h = fresh();
    (void)state;
    add(h, relation(16400, 0, 16401, 3), 50);
    add(h, dropped(16400, 200), 200);
    add(h, relation(16400, 300, 16500, 2), 300);
    both(h, oid_again_facts);
}

static void same_facts(struct history *h)
{
    assert_int_equal(shape_at(h, 16400, 99), 1);
    assert_int_equal(shape_at(h, 16400, 100), 4);
    assert_int_equal(shape_at(h, 16400, 200), 3);
    struct rel_desc **all;
    size_t n;
    history_all(h, 500, &all, &n);
    assert_int_equal(n, 1);
    rel_desc_unref(all[0]);
    free(all);
}

/* A boundary captured twice (killed before the floor moved): the later capture replaces. */
static void test_same_valid_from(void **state)
{
    struct history *h = fresh();
    (void)state;
    add(h, relation(16400, 0, 16401, 1), 50);
    add(h, relation(16400, 100, 16401, 2), 100);
    add(h, relation(16400, 200, 16401, 3), 200);
    add(h, relation(16400, 100, 16401, 4), 100);
    assert_true(history_captured_lsn(h) == 200); /* never goes back */
    both(h, same_facts);
}

static void unordered_facts(struct history *h)
{
    assert_int_equal(shape_at(h, 16400, 100), 1);
    assert_int_equal(shape_at(h, 16400, 200), 2);
    assert_int_equal(shape_at(h, 16400, 300), 3);
}

static void test_out_of_order(void **state)
{
    struct history *h = fresh();
    (void)state;
    add(h, relation(16400, 300, 16401, 3), 300);
    add(h, relation(16400, 100, 16401, 1), 300);
    add(h, relation(16400, 200, 16401, 2), 300);
    both(h, unordered_facts);
}

static void all_facts(struct history *h)
{
    static const struct {
        XLogRecPtr lsn;
        unsigned oids; /* bits: 16400, 16500, 16600 */
    } cases[] = {{0, 1}, {99, 1}, {100, 3}, {200, 2}, {300, 6}, {400, 7}};
    for (size_t c = 0; c < LENGTH(cases); c++) {
        struct rel_desc **all;
        size_t n;
        unsigned found = 0;
        history_all(h, cases[c].lsn, &all, &n);
        for (size_t i = 0; i < n; i++) {
            unsigned bit = 1u << (all[i]->oid - 16400) / 100;
            assert_int_equal(found & bit, 0);
            assert_true(all[i]->valid_from <= cases[c].lsn);
            found |= bit;
            rel_desc_unref(all[i]);
        }
        assert_int_equal(found, cases[c].oids);
        free(all);
    }
}

static void test_all(void **state)
{
    struct history *h = fresh();
    (void)state;
    add(h, relation(16400, 0, 16401, 1), 0);
    add(h, relation(16500, 100, 16501, 1), 100);
    add(h, dropped(16400, 200), 200);
    add(h, relation(16600, 300, 16601, 1), 300);
    add(h, relation(16400, 400, 16411, 1), 400);
    /* TOAST tables are not relations of their own */
    struct rel_desc *toast = relation(17000, 0, 17001, 3);
    toast->relkind = 't';
    add(h, toast, 400);
    both(h, all_facts);
}

static void stopped_facts(struct history *h)
{
    char reason[64], small[8];
    assert_int_equal(history_state(h, 16400, reason, sizeof reason), HISTORY_STOPPED);
    assert_string_equal(reason, "the first reason");
    assert_int_equal(history_state(h, 16400, small, sizeof small), HISTORY_STOPPED);
    assert_string_equal(small, "the fir");
    assert_int_equal(history_state(h, 16400, NULL, 0), HISTORY_STOPPED);
    assert_int_equal(history_state(h, 99999, reason, sizeof reason),
                     HISTORY_STOPPED); /* before its descriptor came */
    assert_int_equal(history_state(h, 16500, reason, sizeof reason), HISTORY_FOLLOWED);
    assert_int_equal(history_state(h, 12345, reason, sizeof reason), HISTORY_FOLLOWED);
    assert_int_equal(shape_at(h, 16400, 100), 1); /* still known */
    assert_int_equal(shape_at(h, 99999, 100), -1);
}

static void test_stop_reasons(void **state)
{
    struct error err = {0};
    struct history *h = fresh();
    (void)state;
    add(h, relation(16400, 0, 16401, 1), 0);
    add(h, relation(16500, 0, 16501, 1), 0);
    assert_ok(history_stop(h, 16400, 100, "the first reason", &err));
    assert_ok(history_stop(h, 16400, 200, "a second reason", &err));
    assert_ok(history_stop(h, 99999, 200, "unknown", &err));
    both(h, stopped_facts);
}

static void resync_facts(struct history *h)
{
    char reason[64];
    assert_int_equal(history_state(h, 16400, reason, sizeof reason), HISTORY_RESYNC);
    assert_string_equal(reason, "the second reason");
    assert_int_equal(history_resynced_lsn(h, 16400), 0);
    assert_int_equal(history_state(h, 16500, reason, sizeof reason), HISTORY_FOLLOWED);
    assert_string_equal(reason, "");
    assert_int_equal(history_resynced_lsn(h, 16500), 500);
    assert_int_equal(history_state(h, 16600, reason, sizeof reason), HISTORY_STOPPED);
    assert_string_equal(reason, "for good");
    assert_int_equal(history_resynced_lsn(h, 12345), 0);
}

static void test_resync(void **state)
{
    struct error err = {0};
    struct history *h = fresh();
    (void)state;
    add(h, relation(16400, 0, 16401, 1), 0);
    assert_ok(history_stop(h, 16400, 100, "stopped first", &err));
    assert_ok(history_resync(h, 16400, 200, "the first reason", &err));
    assert_ok(history_resync(h, 16400, 300, "the second reason", &err));
    assert_ok(history_resync(h, 16500, 300, "once", &err));
    assert_ok(history_resynced(h, 16500, 500, &err));
    assert_ok(history_resync(h, 16500, 510, "twice", &err));
    assert_ok(history_resynced(h, 16500, 490, &err)); /* never goes back */
    assert_ok(history_resync(h, 16600, 300, "tried", &err));
    assert_ok(history_stop(h, 16600, 310, "for good", &err));
    both(h, resync_facts);
}

static void test_generation(void **state)
{
    struct error err = {0};
    struct history *h = fresh();
    (void)state;
    uint64_t before = history_generation(h);
    add(h, relation(16400, 0, 16401, 1), 0);
    uint64_t added = history_generation(h);
    assert_true(added != before);
    assert_int_equal(shape_at(h, 16400, 1), 1);
    assert_true(history_generation(h) == added); /* a lookup changes nothing */
    assert_ok(history_stop(h, 16400, 1, "r", &err));
    assert_true(history_generation(h) != added);
    history_free(h);
    history_free(NULL);
}

/* A capture that found no difference still moves captured_lsn, durably. */
static void test_nothing_changed(void **state)
{
    struct error err = {0};
    struct history *h = fresh();
    (void)state;
    assert_ok(history_append(h, NULL, 0, 700, &err));
    assert_true(history_captured_lsn(h) == 700);
    history_free(h);
    h = open_history();
    assert_true(history_captured_lsn(h) == 700);
    history_free(h);
}

static const Oid first_change[] = {16400, 16777}, second_change[] = {16500, 16400};

static size_t oids_at(struct history *h, bool end, XLogRecPtr lsn, Oid *first, bool *all)
{
    CLEANUP_BUF struct buf oids = {0};
    bool any =
        end ? history_unseen_until(h, lsn, &oids, all) : history_unseen_from(h, lsn, &oids, all);
    if (any && oids.len > 0)
        memcpy(first, oids.data, sizeof *first);
    return any ? oids.len / sizeof(Oid) : 99;
}

static void passed_facts(struct history *h)
{
    Oid first = 0;
    bool all = false;
    assert_true(history_captured_lsn(h) == 150);
    assert_false(history_is_unseen(h, 16400, 99));
    assert_true(history_is_unseen(h, 16400, 100));
    assert_true(history_is_unseen(h, 16777, 5000)); /* not known at all */
    assert_false(history_is_unseen(h, 16500, 149));
    assert_true(history_is_unseen(h, 16500, 150));
    assert_false(history_is_unseen(h, 16600, 200));
    assert_false(history_any_unseen(h, 99));
    assert_true(history_any_unseen(h, 100));
    assert_int_equal(oids_at(h, false, 100, &first, &all), 2);
    assert_int_equal(first, 16400);
    assert_false(all);
    assert_int_equal(oids_at(h, false, 150, &first, &all), 2);
    assert_int_equal(first, 16500);
    assert_true(all);
    assert_int_equal(oids_at(h, false, 149, &first, &all), 99);
    assert_int_equal(oids_at(h, true, UINT64_MAX, &first, &all), 4);
    assert_true(history_next_seen(h, 0, 0) == UINT64_MAX);
    assert_int_equal(shape_at(h, 16400, 200), 3); /* as far as it is known */
    assert_true(history_unseen_file_lsn(h, 16400) == 0);
}

static void seen_facts(struct history *h)
{
    Oid first = 0;
    bool all = false;
    assert_true(history_captured_lsn(h) == 300);
    assert_true(history_is_unseen(h, 16400, 299));
    assert_false(history_is_unseen(h, 16400, 300));
    assert_true(history_any_unseen(h, 299));
    assert_false(history_any_unseen(h, 300));
    assert_int_equal(oids_at(h, true, 300, &first, &all), 4);
    assert_true(all);
    assert_int_equal(oids_at(h, true, UINT64_MAX, &first, &all), 99);
    assert_true(history_next_seen(h, 299, 0) == 300);
    assert_true(history_next_seen(h, 300, 0) == UINT64_MAX);
    assert_int_equal(shape_at(h, 16400, 299), 3);
    assert_int_equal(shape_at(h, 16400, 300), 4);
    assert_int_equal(shape_at(h, 16777, 300), 5);
    /* from its first change on; one that has no file from before has nothing to be kept apart */
    assert_true(history_unseen_file_lsn(h, 16400) == 100);
    assert_true(history_unseen_file_lsn(h, 16777) == 0);
    assert_true(history_unseen_file_lsn(h, 16500) == 0);
}

static void done_facts(struct history *h)
{
    assert_true(history_next_seen(h, 0, UINT64_MAX) == UINT64_MAX);
    assert_true(history_next_seen(h, 0, 300) == UINT64_MAX);
    assert_true(history_next_seen(h, 0, 299) == 300); /* told again to who starts before it */
}

/* Boundaries passed without a look, and the look. */
static void test_unseen(void **state)
{
    struct error err = {0};
    struct history *h = fresh();
    struct rel_desc *now[] = {relation(16400, 300, 16411, 4), relation(16777, 300, 16778, 5)};
    (void)state;
    add(h, relation(16400, 0, 16401, 3), 50);
    add(h, relation(16500, 0, 16501, 3), 50);
    assert_ok(history_pass_unseen(h, 100, first_change, 2, false, &err));
    assert_ok(history_pass_unseen(h, 150, second_change, 2, true, &err));
    both(h, passed_facts);
    h = open_history();
    assert_ok(history_append_seen(h, now, 2, 300, &err));
    both(h, seen_facts);
    h = open_history();
    assert_true(history_next_seen(h, 0, UINT64_MAX) == 300); /* not done */
    assert_ok(history_seen_done(h, 300, &err));
    assert_ok(history_seen_done(h, 300, &err));
    both(h, done_facts);
    rel_desc_unref(now[0]);
    rel_desc_unref(now[1]);
}

static enum status ignore(void *ctx, const struct catalog_log_entry *e, struct error *err)
{
    (void)ctx;
    (void)e;
    (void)err;
    return OK;
}

/* A descriptor without the entry that ends its capture. */
static void put_alone(XLogRecPtr valid_from)
{
    struct error err = {0};
    struct catalog_log *log = NULL;
    struct rel_desc *d = relation(16600, valid_from, 16601, 1);
    assert_ok(catalog_log_open(path, ignore, NULL, &log, &err));
    assert_ok(catalog_log_put_desc(log, d, &err));
    catalog_log_close(log);
    rel_desc_unref(d);
}

/* Killed before what was read of the catalog was all written: it does not count, then or later. */
static void test_capture_cut_short(void **state)
{
    struct error err = {0};
    struct history *h = fresh();
    (void)state;
    add(h, relation(16400, 0, 16401, 3), 50);
    history_free(h);
    put_alone(100);
    h = open_history();
    assert_int_equal(shape_at(h, 16600, 500), -1);
    assert_ok(history_pass_unseen(h, 100, first_change, 2, false, &err));
    history_free(h);
    put_alone(150); /* a look */
    h = open_history();
    assert_int_equal(shape_at(h, 16600, 500), -1);
    assert_ok(history_append_seen(h, NULL, 0, 200, &err));
    history_free(h);
    h = open_history();
    assert_int_equal(shape_at(h, 16600, 500), -1);
    assert_int_equal(shape_at(h, 16400, 500), 3);
    assert_false(history_any_unseen(h, 200));
    history_free(h);
}

#define APPENDS 300u

static void *appender_main(void *arg)
{
    struct history *h = arg;
    struct error err = {0};
    enum status st = OK;
    for (unsigned i = 1; i <= APPENDS && st == OK; i++) {
        struct rel_desc *d = relation(16400, i * 10, 16401, 1 + i % 5);
        st = history_append(h, &d, 1, i * 10, &err);
        rel_desc_unref(d);
        if (st == OK && i % 50 == 0)
            st = history_stop(h, 20000 + i, i, "stopped meanwhile", &err);
    }
    return st == OK ? h : NULL;
}

/* Lookups go on while the log grows: each finds the shape of its LSN, whole. */
static void test_readers_beside_a_writer(void **state)
{
    struct history *h = fresh();
    pthread_t writer;
    void *ok = NULL;
    (void)state;
    add(h, relation(16400, 0, 16401, 1), 0);
    assert_int_equal(pthread_create(&writer, NULL, appender_main, h), 0);
    for (;;) {
        XLogRecPtr captured = history_captured_lsn(h);
        Oid oid;
        bool toast;
        assert_int_equal(shape_at(h, 16400, captured), captured == 0 ? 1 : 1 + captured / 10 % 5);
        assert_true(shape_of_file(h, 16401, captured, &oid, &toast) > 0);
        char reason[40];
        if (history_state(h, 20050, reason, sizeof reason) == HISTORY_STOPPED)
            assert_string_equal(reason, "stopped meanwhile");
        if (captured == APPENDS * 10)
            break;
    }
    pthread_join(writer, &ok);
    assert_non_null(ok);
    history_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_dropped),
        cmocka_unit_test(test_reused_file_number),
        cmocka_unit_test(test_oid_used_again),
        cmocka_unit_test(test_same_valid_from),
        cmocka_unit_test(test_out_of_order),
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_stop_reasons),
        cmocka_unit_test(test_resync),
        cmocka_unit_test(test_generation),
        cmocka_unit_test(test_nothing_changed),
        cmocka_unit_test(test_unseen),
        cmocka_unit_test(test_capture_cut_short),
        cmocka_unit_test(test_readers_beside_a_writer),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
