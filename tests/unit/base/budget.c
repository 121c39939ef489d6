/* The byte budget: compartments, the lane, growth, close. */
#include "test.h"

#include "base/budget.h"

#include <time.h>

static const struct budget_limits limits = {.buffered = 50, .admitted = 100, .grown = 40};

static void pause_ms(long ms)
{
    struct timespec t = {.tv_nsec = ms * 1000000};
    nanosleep(&t, NULL);
}

struct taker {
    struct budget *b;
    size_t bytes;
    bool grows;
    struct budget_permit permit;
    pthread_t thread;
    atomic_bool done;
    enum status st;
};

static void *taker_main(void *arg)
{
    struct taker *t = arg;
    t->st = t->grows ? budget_grow(t->b, t->bytes, &t->permit, NULL)
                     : budget_admit(t->b, t->bytes, &t->permit, NULL);
    atomic_store(&t->done, true);
    return NULL;
}

static void taker_start(struct taker *t, struct budget *b, size_t bytes, bool grows)
{
    *t = (struct taker){.b = b, .bytes = bytes, .grows = grows};
    assert_int_equal(pthread_create(&t->thread, NULL, taker_main, t), 0);
}

static void assert_waits(const struct taker *t)
{
    pause_ms(30);
    assert_false(atomic_load(&t->done));
}

static void assert_takes(struct taker *t)
{
    pthread_join(t->thread, NULL);
    assert_int_equal(t->st, OK);
}

static void test_division(void **state)
{
    (void)state;
    struct budget_limits l = budget_limits_of(1000, 200, 100);
    assert_int_equal(l.buffered, 200);
    assert_int_equal(l.grown, 100);
    assert_int_equal(l.admitted, 700);
    l = budget_limits_of(1000, 900, 900); /* nothing may starve the entry */
    assert_int_equal(l.buffered, 500);
    assert_int_equal(l.grown, 250);
    assert_int_equal(l.admitted, 250);
}

static void test_waits_for_room(void **state)
{
    struct error err = {0};
    struct budget b;
    struct budget_permit first = {0}, second = {0};
    struct taker t;
    (void)state;
    budget_init(&b, &limits);
    assert_ok(budget_admit(&b, 50, &first, &err));
    assert_ok(budget_admit(&b, 50, &second, &err));
    assert_int_equal(atomic_load(&b.waits), 0);
    taker_start(&t, &b, 50, false);
    assert_waits(&t);
    assert_true(budget_is_waited_for(&b));
    struct budget_permit part = {0};
    assert_int_equal(budget_permit_move(&second, &part, 40), 40);
    budget_release(&b, &part); /* 40 are not room for 50 */
    assert_waits(&t);
    budget_release(&b, &second);
    assert_takes(&t);
    assert_int_equal(budget_used(&b), 100);
    assert_int_equal(atomic_load(&b.peak), 100);
    assert_int_equal(atomic_load(&b.waits), 1);
    assert_int_equal(atomic_load(&b.overshoots), 0);
    budget_release(&b, &first);
    budget_release(&b, &t.permit);
    budget_release(&b, &t.permit); /* nothing is returned twice */
    assert_int_equal(budget_used(&b), 0);
    budget_fini(&b);
}

/* A large object does not wait for the pool to run dry, and the pool not for it; a second one waits
 * for the first. */
static void test_lane(void **state)
{
    struct error err = {0};
    struct budget b;
    struct budget_permit small = {0}, large = {0}, more = {0};
    struct taker t;
    (void)state;
    budget_init(&b, &limits);
    assert_ok(budget_admit(&b, 50, &small, &err));
    assert_ok(budget_admit(&b, 5000, &large, &err));
    assert_ok(budget_admit(&b, 50, &more, &err));
    assert_int_equal(budget_used(&b), 5100);
    assert_int_equal(atomic_load(&b.overshoots), 1);
    taker_start(&t, &b, 51, false);
    assert_waits(&t);
    struct budget_permit part = {0};
    budget_permit_move(&large, &part, 4999);
    budget_release(&b, &part);
    assert_waits(&t); /* a byte of the large one is still under way */
    budget_release(&b, &large);
    assert_takes(&t);
    assert_int_equal(t.permit.lane, 51);
    budget_release(&b, &t.permit);
    budget_release(&b, &small);
    budget_release(&b, &more);
    assert_int_equal(budget_used(&b), 0);
    budget_fini(&b);
}

/* Growth neither waits for what waits at the entry nor for a lane that is taken. */
static void test_growth(void **state)
{
    struct error err = {0};
    struct budget b;
    struct budget_permit full[3] = {0}, grown = {0};
    struct taker t, u;
    (void)state;
    budget_init(&b, &limits);
    assert_ok(budget_admit(&b, 50, &full[0], &err));
    assert_ok(budget_admit(&b, 50, &full[1], &err));
    assert_ok(budget_admit(&b, 5000, &full[2], &err));
    assert_ok(budget_grow(&b, 30, &grown, &err));
    taker_start(&t, &b, 11, true);
    assert_waits(&t);
    budget_release(&b, &grown);
    assert_takes(&t);
    taker_start(&u, &b, 500, true); /* larger than the compartment: alone */
    assert_waits(&u);
    budget_release(&b, &t.permit);
    assert_takes(&u);
    budget_release(&b, &u.permit);
    for (size_t i = 0; i < LENGTH(full); i++)
        budget_release(&b, &full[i]);
    assert_int_equal(budget_used(&b), 0);
    budget_fini(&b);
}

static void test_buffered(void **state)
{
    struct error err = {0};
    struct budget b;
    struct budget_permit p = {0};
    (void)state;
    budget_init(&b, &limits);
    budget_buffered_add(&b, 200); /* never waits, takes nothing from the others */
    assert_ok(budget_admit(&b, 50, &p, &err));
    assert_int_equal(budget_used(&b), 250);
    budget_buffered_sub(&b, 200);
    assert_int_equal(atomic_load(&b.peak), 250);
    budget_release(&b, &p);
    assert_int_equal(budget_used(&b), 0);
    budget_fini(&b);
}

static void test_close(void **state)
{
    struct error err = {0};
    struct budget b;
    struct budget_permit p = {0}, lane = {0}, grown = {0}, late = {0};
    struct taker t[3];
    (void)state;
    budget_init(&b, &(struct budget_limits){.admitted = 10, .grown = 4});
    assert_ok(budget_admit(&b, 5, &p, &err));
    assert_ok(budget_admit(&b, 5, &p, &err));
    assert_ok(budget_admit(&b, 6, &lane, &err));
    assert_ok(budget_grow(&b, 4, &grown, &err));
    taker_start(&t[0], &b, 5, false);
    taker_start(&t[1], &b, 500, false);
    taker_start(&t[2], &b, 1, true);
    pause_ms(30);
    budget_close(&b);
    for (size_t i = 0; i < LENGTH(t); i++) {
        pthread_join(t[i].thread, NULL);
        assert_int_equal(t[i].st, ERR_CANCELLED);
        assert_int_equal(budget_permit_bytes(&t[i].permit), 0); /* refused bytes are not charged */
    }
    assert_int_equal(budget_used(&b), 20);
    budget_release(&b, &p);
    budget_release(&b, &lane);
    budget_release(&b, &grown);
    assert_int_equal(budget_admit(&b, 1, &late, &err), ERR_CANCELLED);
    assert_int_equal(err.kind, ERR_CANCELLED);
    budget_fini(&b);
}

#define THREADS 4
#define ROUNDS 4000u

struct contender {
    struct budget *b;
    unsigned seed;
    bool failed;
};

static void *contender_main(void *arg)
{
    struct contender *c = arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct budget_permit p = {0};
        if (budget_admit(c->b, 1 + (size_t)rand_r(&c->seed) % 50, &p, NULL) != OK ||
            budget_grow(c->b, 1 + (size_t)rand_r(&c->seed) % 40, &p, NULL) != OK ||
            budget_used(c->b) > 140)
            c->failed = true;
        budget_release(c->b, &p);
    }
    return NULL;
}

/* No wake-up is lost (the test would hang) and the bound holds throughout. */
static void test_contention(void **state)
{
    struct budget b;
    struct contender c[THREADS];
    pthread_t threads[THREADS];
    (void)state;
    budget_init(&b, &limits);
    for (unsigned i = 0; i < THREADS; i++) {
        c[i] = (struct contender){&b, i + 1, false};
        assert_int_equal(pthread_create(&threads[i], NULL, contender_main, &c[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(c[i].failed);
    }
    assert_int_equal(budget_used(&b), 0);
    assert_true(atomic_load(&b.peak) <= 140);
    assert_int_equal(atomic_load(&b.overshoots), 0);
    budget_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_division),   cmocka_unit_test(test_waits_for_room),
        cmocka_unit_test(test_lane),       cmocka_unit_test(test_growth),
        cmocka_unit_test(test_buffered),   cmocka_unit_test(test_close),
        cmocka_unit_test(test_contention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
