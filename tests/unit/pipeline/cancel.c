/* Cancelled with rows at every stage. */
#include "feed.h"

#include <time.h>

static void pause_ms(long ms)
{
    struct timespec t = {.tv_nsec = ms * 1000000};
    nanosleep(&t, NULL);
}

/* Occupies the only worker until told to go on. */
struct gate {
    struct job job;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool reached, open, done;
};

static void gate_run(struct worker *w, struct job *job)
{
    struct gate *g = (struct gate *)job;
    (void)w;
    pthread_mutex_lock(&g->lock);
    g->reached = true;
    pthread_cond_broadcast(&g->changed);
    while (!g->open)
        pthread_cond_wait(&g->changed, &g->lock);
    g->done = true;
    pthread_mutex_unlock(&g->lock);
}

static void gate_discard(struct job *job, struct budget *budget)
{
    struct gate *g = (struct gate *)job;
    (void)budget;
    g->done = true;
}

static void gate_enter(struct gate *g, struct pipeline *p)
{
    struct error err = {0};
    *g = (struct gate){.job = {.run = gate_run, .discard = gate_discard, .bytes = 1}};
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    assert_ok(pipeline_submit(p, &g->job, &err));
    pthread_mutex_lock(&g->lock);
    while (!g->reached)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void gate_open(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static const struct config_set one_worker[] = {{"pipeline.decoder_pool_size", "1"}};

/* Cancelled with rows at every stage: the threads leave, nothing leaks, nothing is waited for. */
static void test_cancel(void **state)
{
    static const Oid rels[] = {TABLE_T};
    struct feed f;
    struct gate g;
    (void)state;
    feed_open(&f, one_worker, 1, (struct reorder_options){0});
    gate_enter(&g, f.p);
    for (uint32_t i = 0; i < 3000; i++) {
        insert(&f, 100 + i, TABLE_T, (int32_t)i);
        commit(&f, 100 + i);
        if (i % 100 == 0)
            feed_send(&f);
    }
    insert(&f, 10, TABLE_T, 1);
    truncate_of(&f, 10, rels, 1); /* waits at its barrier */
    commit(&f, 10);
    feed_send(&f);
    pause_ms(50);
    pipeline_cancel(f.p);
    gate_open(&g);
    feed_close(&f);
    assert_true(g.done);
    pthread_mutex_destroy(&g.lock);
    pthread_cond_destroy(&g.changed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
