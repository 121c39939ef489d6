/* Acknowledgement: contiguous watermark, what pins the floor, waits across threads. */
#include "test.h"

#include "base/queue.h"
#include "pipeline/ack.h"

#include <pthread.h>
#include <time.h>

#define MS UINT64_C(1000000)

static void pause_ms(long ms)
{
    struct timespec t = {.tv_nsec = ms * 1000000};
    nanosleep(&t, NULL);
}

static uint64_t placed(struct ack *a, XLogRecPtr first_lsn, XLogRecPtr lsn, uint32_t blocks)
{
    uint64_t seq = ack_register(a, first_lsn);
    ack_set_lsn(a, seq, lsn, 0);
    if (blocks > 0)
        ack_add(a, seq, blocks);
    ack_done(a, seq, 1); /* its placement */
    return seq;
}

static void test_contiguous(void **state)
{
    struct ack *a = ack_new(100);
    (void)state;
    assert_int_equal(ack_lsn(a), 100);
    uint64_t one = placed(a, 110, 200, 2), two = placed(a, 210, 300, 1),
             three = placed(a, 310, 400, 1);
    assert_int_equal(ack_pending_count(a), 3);
    ack_done(a, three, 1);
    ack_done(a, two, 1);
    assert_int_equal(ack_lsn(a), 100); /* the first is still on its way */
    ack_done(a, one, 1);
    assert_int_equal(ack_lsn(a), 100);
    ack_done(a, one, 1);
    assert_int_equal(ack_lsn(a), 400); /* all at once */
    assert_int_equal(ack_pending_count(a), 0);
    ack_free(a);
    ack_free(NULL);
}

/* Blocks may be acknowledged before the slice is wholly placed. */
static void test_placement_counts(void **state)
{
    struct ack *a = ack_new(0);
    (void)state;
    uint64_t seq = ack_register(a, 50);
    ack_add(a, seq, 1);
    ack_done(a, seq, 1); /* its first block, while it makes the second */
    assert_int_equal(ack_pending_count(a), 1);
    ack_add(a, seq, 1);
    ack_set_lsn(a, seq, 60, 0);
    ack_done(a, seq, 1);
    assert_int_equal(ack_lsn(a), 0);
    ack_done(a, seq, 1);
    assert_int_equal(ack_lsn(a), 60);
    ack_free(a);
}

/* A slice in the middle of a large transaction has no commit of its own. */
static void test_no_lsn(void **state)
{
    struct ack *a = ack_new(100);
    (void)state;
    uint64_t part = ack_register(a, 110);
    uint64_t last = ack_register(a, 110);
    ack_set_lsn(a, last, 500, 0);
    ack_done(a, part, 1);
    assert_int_equal(ack_lsn(a), 100);
    ack_done(a, last, 1);
    assert_int_equal(ack_lsn(a), 500);
    ack_free(a);
}

static void test_pending_first(void **state)
{
    struct ack *a = ack_new(0);
    (void)state;
    assert_true(ack_pending_first(a) == UINT64_MAX);
    uint64_t one = placed(a, 300, 400, 1);
    uint64_t two = placed(a, 100, 500, 1); /* a long transaction that committed later */
    uint64_t three = placed(a, 450, 600, 1);
    assert_int_equal(ack_pending_first(a), 100);
    ack_lower_first(a, one, 50);
    assert_int_equal(ack_pending_first(a), 50);
    ack_lower_first(a, one, 70); /* only lower */
    assert_int_equal(ack_pending_first(a), 50);
    ack_done(a, one, 1);
    assert_int_equal(ack_pending_first(a), 100);
    ack_done(a, two, 1);
    assert_int_equal(ack_pending_first(a), 450);
    ack_done(a, three, 1);
    assert_true(ack_pending_first(a) == UINT64_MAX);
    ack_free(a);
}

/* What was read without a row of ours counts, but never past rows on their way. */
static void test_dispatched(void **state)
{
    struct ack *a = ack_new(100);
    (void)state;
    ack_dispatched(a, 150);
    assert_int_equal(ack_lsn(a), 150);
    uint64_t seq = placed(a, 160, 200, 1);
    ack_dispatched(a, 900);
    assert_int_equal(ack_lsn(a), 150);
    ack_done(a, seq, 1);
    assert_int_equal(ack_lsn(a), 900);
    ack_dispatched(a, 300); /* never backwards */
    assert_int_equal(ack_lsn(a), 900);
    ack_free(a);
}

static void test_pending_time(void **state)
{
    struct ack *a = ack_new(0);
    (void)state;
    assert_int_equal(ack_pending_time(a), 0);
    uint64_t one = ack_register(a, 1);
    ack_set_lsn(a, one, 10, 0);
    uint64_t two = ack_register(a, 2);
    ack_set_lsn(a, two, 20, 7000);
    ack_set_lsn(a, two, 30, 9000); /* the slice got one more transaction: the oldest is kept */
    uint64_t three = ack_register(a, 3);
    ack_set_lsn(a, three, 40, 8000);
    assert_int_equal(ack_pending_time(a), 7000);
    ack_done(a, one, 1);
    ack_done(a, two, 1);
    assert_int_equal(ack_lsn(a), 30);
    assert_int_equal(ack_pending_time(a), 8000);
    ack_done(a, three, 1);
    assert_int_equal(ack_pending_time(a), 0);
    ack_free(a);
}

/* The ring grows while numbers are pending, and is used again behind its end. */
static void test_many(void **state)
{
    struct ack *a = ack_new(0);
    uint64_t *seqs = xcalloc(5000, sizeof *seqs);
    (void)state;
    for (unsigned round = 0; round < 3; round++) {
        XLogRecPtr base = 1000000u * (round + 1);
        for (unsigned i = 0; i < 5000; i++)
            seqs[i] = placed(a, base + i, base + 10 * i, 1);
        assert_int_equal(ack_pending_count(a), 5000);
        assert_int_equal(ack_pending_first(a), base);
        for (unsigned i = 0; i < 5000; i++) {
            unsigned k = i * 1237 % 4999 + 1; /* every one but the first, in no order */
            if (i < 4999)
                ack_done(a, seqs[k], 1);
        }
        assert_true(ack_lsn(a) < base);
        assert_int_equal(ack_pending_count(a), 5000);
        ack_done(a, seqs[0], 1);
        assert_int_equal(ack_lsn(a), base + 49990);
        assert_int_equal(ack_pending_count(a), 0);
    }
    free(seqs);
    ack_free(a);
}

struct waiter {
    struct ack *a;
    XLogRecPtr lsn; /* 0: all */
    atomic_bool cancel, done;
    enum status st;
    pthread_t thread;
};

static void *waiter_main(void *arg)
{
    struct waiter *w = arg;
    w->st = w->lsn == 0 ? ack_wait_all(w->a, NULL)
                        : ack_wait_lsn(w->a, w->lsn, UINT64_MAX, &w->cancel, NULL);
    atomic_store(&w->done, true);
    return NULL;
}

static void waiter_start(struct waiter *w, struct ack *a, XLogRecPtr lsn)
{
    *w = (struct waiter){.a = a, .lsn = lsn};
    assert_int_equal(pthread_create(&w->thread, NULL, waiter_main, w), 0);
}

static void test_wait_all(void **state)
{
    struct error err = {0};
    struct ack *a = ack_new(0);
    struct waiter w;
    (void)state;
    assert_ok(ack_wait_all(a, &err)); /* nothing is pending */
    uint64_t one = placed(a, 10, 20, 1), two = placed(a, 20, 30, 1);
    waiter_start(&w, a, 0);
    pause_ms(30);
    uint64_t later = placed(a, 30, 40, 1); /* given out after the wait began: not waited for */
    ack_done(a, two, 1);
    pause_ms(30);
    assert_false(atomic_load(&w.done));
    ack_done(a, one, 1);
    pthread_join(w.thread, NULL);
    assert_int_equal(w.st, OK);
    uint64_t before = clock_now_ns();
    assert_int_equal(ack_wait_all_until(a, before + 30 * MS, &err), ERR_RETRY);
    assert_true(clock_now_ns() - before >= 30 * MS);
    ack_done(a, later, 1);
    assert_ok(ack_wait_all_until(a, 1, &err)); /* past, but there is nothing to wait for */
    ack_free(a);
}

static void test_wait_lsn(void **state)
{
    struct error err = {0};
    struct ack *a = ack_new(100);
    atomic_bool never = false;
    struct waiter w[2];
    (void)state;
    assert_ok(ack_wait_lsn(a, 100, UINT64_MAX, &never, &err));
    assert_int_equal(ack_wait_lsn(a, 101, clock_now_ns() + 30 * MS, &never, &err), ERR_RETRY);
    waiter_start(&w[0], a, 150);
    waiter_start(&w[1], a, 200);
    ack_dispatched(a, 160);
    pthread_join(w[0].thread, NULL);
    assert_int_equal(w[0].st, OK);
    pause_ms(30);
    assert_false(atomic_load(&w[1].done));
    uint64_t seq = placed(a, 170, 200, 1);
    ack_done(a, seq, 1);
    pthread_join(w[1].thread, NULL);
    assert_int_equal(w[1].st, OK);
    /* one waiter's own cancel */
    waiter_start(&w[0], a, 1000);
    waiter_start(&w[1], a, 1000);
    pause_ms(30);
    atomic_store(&w[0].cancel, true);
    ack_wake(a);
    pthread_join(w[0].thread, NULL);
    assert_int_equal(w[0].st, ERR_CANCELLED);
    assert_false(atomic_load(&w[1].done));
    ack_cancel(a);
    pthread_join(w[1].thread, NULL);
    assert_int_equal(w[1].st, ERR_CANCELLED);
    ack_free(a);
}

static void test_cancel(void **state)
{
    struct error err = {0};
    struct ack *a = ack_new(100);
    struct waiter w;
    (void)state;
    uint64_t seq = placed(a, 110, 120, 1);
    waiter_start(&w, a, 0);
    pause_ms(30);
    ack_cancel(a);
    pthread_join(w.thread, NULL);
    assert_int_equal(w.st, ERR_CANCELLED);
    assert_int_equal(ack_wait_all(a, &err), ERR_CANCELLED);
    ack_done(a, seq, 1); /* acknowledgements that still come are counted */
    assert_int_equal(ack_lsn(a), 120);
    ack_free(a);
}

#define SLICES 3000u
#define INSERTERS 3u

struct inserter {
    struct ack *a;
    struct queue *q;
};

static void *inserter_main(void *arg)
{
    struct inserter *in = arg;
    uint64_t *seq;
    while ((seq = queue_pop(in->q)) != NULL)
        ack_done(in->a, *seq, 1);
    return NULL;
}

/* As in the daemon: one thread registers and places, others acknowledge, one looks on. */
static void test_threads(void **state)
{
    struct error err = {0};
    struct ack *a = ack_new(0);
    struct queue q;
    struct inserter in = {a, &q};
    pthread_t threads[INSERTERS];
    uint64_t *seqs = xcalloc(SLICES, sizeof *seqs);
    XLogRecPtr last = 0;
    (void)state;
    queue_init(&q, 64);
    for (unsigned i = 0; i < INSERTERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, inserter_main, &in), 0);
    for (unsigned i = 0; i < SLICES; i++) {
        seqs[i] = ack_register(a, 10 * i + 1);
        ack_set_lsn(a, seqs[i], 10 * i + 9, 1);
        ack_add(a, seqs[i], 3);
        for (unsigned b = 0; b < 3; b++)
            assert_ok(queue_push(&q, &seqs[i], 1, &err));
        ack_done(a, seqs[i], 1);
        XLogRecPtr lsn = ack_lsn(a), first = ack_pending_first(a);
        assert_true(lsn >= last && lsn <= 10 * i + 9);
        assert_true(first > lsn); /* what is pending began behind what is durable */
        last = lsn;
    }
    assert_ok(ack_wait_all(a, &err));
    assert_int_equal(ack_lsn(a), 10 * (SLICES - 1) + 9);
    queue_close(&q);
    for (unsigned i = 0; i < INSERTERS; i++)
        pthread_join(threads[i], NULL);
    queue_fini(&q);
    free(seqs);
    ack_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contiguous), cmocka_unit_test(test_placement_counts),
        cmocka_unit_test(test_no_lsn),     cmocka_unit_test(test_pending_first),
        cmocka_unit_test(test_dispatched), cmocka_unit_test(test_pending_time),
        cmocka_unit_test(test_many),       cmocka_unit_test(test_wait_all),
        cmocka_unit_test(test_wait_lsn),   cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
