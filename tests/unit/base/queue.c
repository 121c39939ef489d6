/* Queues: bounds, close, order across threads. */
#include "test.h"

#include "base/queue.h"

#include <stdatomic.h>
#include <time.h>

#define SECOND_NS UINT64_C(1000000000)

static int items[8];

static void pause_ms(long ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

struct pusher {
    struct queue *q;
    void *item;
    size_t bytes;
    pthread_t thread;
    atomic_bool done;
    enum status st;
};

static void *pusher_main(void *arg)
{
    struct pusher *p = arg;
    p->st = queue_push(p->q, p->item, p->bytes, NULL);
    atomic_store(&p->done, true);
    return NULL;
}

static void pusher_start(struct pusher *p, struct queue *q, void *item, size_t bytes)
{
    *p = (struct pusher){.q = q, .item = item, .bytes = bytes};
    assert_int_equal(pthread_create(&p->thread, NULL, pusher_main, p), 0);
}

static void test_full_queue_blocks(void **state)
{
    struct error err = {0};
    struct queue q;
    struct pusher p;
    (void)state;
    queue_init(&q, 100);
    assert_true(queue_is_empty(&q));
    assert_ok(queue_push(&q, &items[0], 60, &err));
    assert_ok(queue_push(&q, &items[1], 40, &err)); /* exactly full */
    assert_int_equal(queue_bytes(&q), 100);
    pusher_start(&p, &q, &items[2], 1);
    pause_ms(30);
    assert_false(atomic_load(&p.done));
    assert_ptr_equal(queue_pop(&q), &items[0]);
    pthread_join(p.thread, NULL);
    assert_int_equal(p.st, OK);
    assert_int_equal(queue_bytes(&q), 41);
    assert_ptr_equal(queue_pop(&q), &items[1]);
    assert_ptr_equal(queue_pop(&q), &items[2]);
    assert_int_equal(queue_bytes(&q), 0);
    assert_true(queue_is_empty(&q));
    queue_fini(&q);
}

/* One item always gets in, but not beside another. */
static void test_oversized_item(void **state)
{
    struct error err = {0};
    struct queue q;
    struct pusher p;
    (void)state;
    queue_init(&q, 10);
    assert_ok(queue_push(&q, &items[0], 1000, &err));
    pusher_start(&p, &q, &items[1], 1000);
    pause_ms(30);
    assert_false(atomic_load(&p.done));
    assert_ptr_equal(queue_pop(&q), &items[0]);
    pthread_join(p.thread, NULL);
    assert_int_equal(p.st, OK);
    assert_ptr_equal(queue_pop(&q), &items[1]);
    queue_fini(&q);
}

static void test_urgent_ignores_the_bound(void **state)
{
    struct error err = {0};
    struct queue q;
    (void)state;
    queue_init(&q, 10);
    assert_ok(queue_push(&q, &items[0], 10, &err));
    assert_ok(queue_push_urgent(&q, &items[1], &err));
    assert_int_equal(queue_bytes(&q), 10);
    assert_ptr_equal(queue_pop(&q), &items[0]); /* in its turn, not before the others */
    assert_ptr_equal(queue_pop(&q), &items[1]);
    queue_fini(&q);
}

static void test_close(void **state)
{
    struct error err = {0};
    struct queue q;
    struct pusher p;
    bool closed = true;
    (void)state;
    queue_init(&q, 10);
    assert_ok(queue_push(&q, &items[0], 10, &err));
    pusher_start(&p, &q, &items[1], 10);
    pause_ms(30);
    queue_close(&q);
    pthread_join(p.thread, NULL);
    assert_int_equal(p.st, ERR_CANCELLED);
    assert_int_equal(queue_push(&q, &items[2], 1, &err), ERR_CANCELLED);
    assert_int_equal(err.kind, ERR_CANCELLED);
    assert_int_equal(queue_push_urgent(&q, &items[2], &err), ERR_CANCELLED);
    /* what is there is drained */
    assert_ptr_equal(queue_pop_until(&q, UINT64_MAX, &closed), &items[0]);
    assert_false(closed);
    assert_null(queue_pop_until(&q, UINT64_MAX, &closed));
    assert_true(closed);
    assert_null(queue_pop(&q));
    queue_fini(&q);
}

static void test_pop_until(void **state)
{
    struct error err = {0};
    struct queue q;
    bool closed = true;
    (void)state;
    queue_init(&q, 10);
    uint64_t before = clock_now_ns();
    assert_null(queue_pop_until(&q, before + SECOND_NS / 20, &closed));
    assert_false(closed);
    assert_true(clock_now_ns() - before >= SECOND_NS / 20);
    assert_null(queue_pop_until(&q, 1, &closed)); /* long past */
    assert_false(closed);
    assert_ok(queue_push(&q, &items[0], 1, &err));
    assert_ptr_equal(queue_pop_until(&q, 1, NULL), &items[0]);
    queue_fini(&q);
}

static void *popper_main(void *arg)
{
    return queue_pop(arg);
}

static void test_close_wakes_consumers(void **state)
{
    struct queue q;
    pthread_t threads[3];
    (void)state;
    queue_init(&q, 10);
    for (size_t i = 0; i < LENGTH(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, popper_main, &q), 0);
    pause_ms(20);
    queue_close(&q);
    for (size_t i = 0; i < LENGTH(threads); i++) {
        void *got = &q;
        pthread_join(threads[i], &got);
        assert_null(got);
    }
    queue_fini(&q);
}

/* The ring grows while it is wrapped around. */
static void test_ring_grows(void **state)
{
    static int many[1000];
    struct error err = {0};
    struct queue q;
    size_t pushed = 0, popped = 0;
    (void)state;
    queue_init(&q, SIZE_MAX);
    while (pushed < 40)
        assert_ok(queue_push(&q, &many[pushed++], 1, &err));
    while (popped < 30)
        assert_ptr_equal(queue_pop(&q), &many[popped++]);
    while (pushed < LENGTH(many))
        assert_ok(queue_push(&q, &many[pushed++], 1, &err));
    assert_int_equal(queue_bytes(&q), LENGTH(many) - 30);
    while (popped < LENGTH(many))
        assert_ptr_equal(queue_pop(&q), &many[popped++]);
    queue_fini(&q);
}

#define PRODUCERS 3u
#define PER_PRODUCER 20000u

struct numbered {
    unsigned producer, n;
};

struct producer {
    struct queue *q;
    unsigned number;
    struct numbered *items;
    enum status st;
};

static void *producer_main(void *arg)
{
    struct producer *p = arg;
    for (unsigned i = 0; i < PER_PRODUCER && p->st == OK; i++) {
        p->items[i] = (struct numbered){p->number, i};
        p->st = queue_push(p->q, &p->items[i], 1 + i % 7, NULL);
    }
    return NULL;
}

static void test_order_across_threads(void **state)
{
    struct queue q;
    struct producer producers[PRODUCERS];
    pthread_t threads[PRODUCERS];
    unsigned next[PRODUCERS] = {0};
    (void)state;
    queue_init(&q, 64);
    for (unsigned i = 0; i < PRODUCERS; i++) {
        producers[i] = (struct producer){&q, i, xcalloc(PER_PRODUCER, sizeof(struct numbered)), OK};
        assert_int_equal(pthread_create(&threads[i], NULL, producer_main, &producers[i]), 0);
    }
    for (unsigned i = 0; i < PRODUCERS * PER_PRODUCER; i++) {
        struct numbered *got = queue_pop(&q);
        assert_non_null(got);
        assert_int_equal(got->n, next[got->producer]);
        next[got->producer]++;
        assert_true(queue_bytes(&q) <= 64);
    }
    for (unsigned i = 0; i < PRODUCERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(producers[i].st, OK);
        free(producers[i].items);
    }
    assert_true(queue_is_empty(&q));
    queue_fini(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_queue_blocks),
        cmocka_unit_test(test_oversized_item),
        cmocka_unit_test(test_urgent_ignores_the_bound),
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_pop_until),
        cmocka_unit_test(test_close_wakes_consumers),
        cmocka_unit_test(test_ring_grows),
        cmocka_unit_test(test_order_across_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
