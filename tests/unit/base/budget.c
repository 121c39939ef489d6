/* The byte budget: admission, overshoot, close. */
#include "test.h"

#include "base/budget.h"

#include <time.h>

static void pause_ms(long ms)
{
    struct timespec t = {.tv_nsec = ms * 1000000};
    nanosleep(&t, NULL);
}

struct acquirer {
    struct budget *b;
    size_t bytes;
    pthread_t thread;
    atomic_bool done;
    enum status st;
};

static void *acquirer_main(void *arg)
{
    struct acquirer *a = arg;
    a->st = budget_acquire(a->b, a->bytes, NULL);
    atomic_store(&a->done, true);
    return NULL;
}

static void acquirer_start(struct acquirer *a, struct budget *b, size_t bytes)
{
    *a = (struct acquirer){.b = b, .bytes = bytes};
    assert_int_equal(pthread_create(&a->thread, NULL, acquirer_main, a), 0);
}

static void test_waits_for_room(void **state)
{
    struct error err = {0};
    struct budget b;
    struct acquirer a;
    (void)state;
    budget_init(&b, 100);
    assert_ok(budget_acquire(&b, 60, &err));
    assert_ok(budget_acquire(&b, 40, &err));
    assert_int_equal(atomic_load(&b.waits), 0);
    acquirer_start(&a, &b, 50);
    pause_ms(30);
    assert_false(atomic_load(&a.done));
    budget_release(&b, 40); /* 60 + 50 still does not fit */
    pause_ms(30);
    assert_false(atomic_load(&a.done));
    budget_release(&b, 10);
    pthread_join(a.thread, NULL);
    assert_int_equal(a.st, OK);
    assert_int_equal(atomic_load(&b.used), 100);
    assert_int_equal(atomic_load(&b.peak), 100);
    assert_int_equal(atomic_load(&b.waits), 1);
    assert_int_equal(atomic_load(&b.overshoots), 0);
    budget_release(&b, 100);
    budget_fini(&b);
}

static void test_oversized_object_goes_alone(void **state)
{
    struct error err = {0};
    struct budget b;
    struct acquirer a;
    (void)state;
    budget_init(&b, 100);
    assert_ok(budget_acquire(&b, 1, &err));
    acquirer_start(&a, &b, 500);
    pause_ms(30);
    assert_false(atomic_load(&a.done));
    budget_release(&b, 1);
    pthread_join(a.thread, NULL);
    assert_int_equal(a.st, OK);
    assert_int_equal(atomic_load(&b.used), 500);
    assert_int_equal(atomic_load(&b.overshoots), 1);
    budget_release(&b, 500);
    assert_int_equal(atomic_load(&b.used), 0);
    budget_fini(&b);
}

/* What is inside already may grow past the bound; newcomers wait until it is below again. */
static void test_growth_overshoots(void **state)
{
    struct error err = {0};
    struct budget b;
    struct acquirer a;
    (void)state;
    budget_init(&b, 100);
    assert_ok(budget_acquire(&b, 90, &err));
    budget_add(&b, 10);
    assert_int_equal(atomic_load(&b.overshoots), 0);
    budget_add(&b, 1);
    assert_int_equal(atomic_load(&b.overshoots), 1);
    assert_int_equal(atomic_load(&b.peak), 101);
    acquirer_start(&a, &b, 1);
    pause_ms(30);
    assert_false(atomic_load(&a.done));
    budget_release(&b, 2);
    pthread_join(a.thread, NULL);
    assert_int_equal(a.st, OK);
    budget_release(&b, 100);
    assert_int_equal(atomic_load(&b.used), 0);
    budget_fini(&b);
}

static void test_close(void **state)
{
    struct error err = {0};
    struct budget b;
    struct acquirer a[2];
    (void)state;
    budget_init(&b, 10);
    assert_ok(budget_acquire(&b, 10, &err));
    acquirer_start(&a[0], &b, 5);
    acquirer_start(&a[1], &b, 500);
    pause_ms(30);
    budget_close(&b);
    for (size_t i = 0; i < LENGTH(a); i++) {
        pthread_join(a[i].thread, NULL);
        assert_int_equal(a[i].st, ERR_CANCELLED);
    }
    assert_int_equal(atomic_load(&b.used), 10); /* refused bytes are not charged */
    budget_release(&b, 10);
    assert_int_equal(budget_acquire(&b, 1, &err), ERR_CANCELLED);
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
        size_t bytes = 1 + (size_t)rand_r(&c->seed) % 60;
        if (budget_acquire(c->b, bytes, NULL) != OK || atomic_load(&c->b->used) > 100)
            c->failed = true;
        budget_release(c->b, bytes);
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
    budget_init(&b, 100);
    for (unsigned i = 0; i < THREADS; i++) {
        c[i] = (struct contender){&b, i + 1, false};
        assert_int_equal(pthread_create(&threads[i], NULL, contender_main, &c[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(c[i].failed);
    }
    assert_int_equal(atomic_load(&b.used), 0);
    assert_true(atomic_load(&b.peak) <= 100);
    assert_int_equal(atomic_load(&b.overshoots), 0);
    budget_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waits_for_room),
        cmocka_unit_test(test_oversized_object_goes_alone),
        cmocka_unit_test(test_growth_overshoots),
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_contention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
