/* From frames to acknowledgement: what counts, what pins the floor, barriers, shutdown. */
#include "feed.h"

#include <time.h>

static void pause_ms(long ms)
{
    struct timespec t = {.tv_nsec = ms * 1000000};
    nanosleep(&t, NULL);
}

static void feed_plain(struct feed *f)
{
    feed_open(f, NULL, 0, (struct reorder_options){0});
}

static void test_commits_and_aborts(void **state)
{
    static const TransactionId subs[] = {11};
    struct feed f;
    (void)state;
    feed_plain(&f);
    insert(&f, 10, TABLE_T, 1);
    insert(&f, 20, TABLE_T, 2);
    insert(&f, 10, TABLE_U, 3);
    insert(&f, 11, TABLE_T, 4);
    insert(&f, 12, TABLE_T, 5);
    ends(&f, FRAME_ABORT, 20, (struct ending){0});
    ends(&f, FRAME_COMMIT, 10, (struct ending){.subs = subs, .nsub = 1});
    commit(&f, 30); /* of no rows */
    feed_settle(&f);
    assert_int_equal(rows_of(&f, TABLE_T), 2);
    assert_int_equal(rows_of(&f, TABLE_U), 1);
    const struct reorder *r = pipeline_reorder(f.p);
    assert_int_equal(atomic_load(&r->committed), 2);
    assert_int_equal(atomic_load(&r->aborted), 1);
    ends(&f, FRAME_ABORT, 12, (struct ending){0});
    feed_settle(&f);
    feed_end(&f);
}

/* A row more for the old key of an UPDATE that changed it, and one for a DELETE. */
static void test_tombstones(void **state)
{
    struct feed f;
    (void)state;
    feed_plain(&f);
    change(&f, 10, TABLE_T, CHANGE_UPDATE, 1, true, false, 2); /* the key stayed */
    change(&f, 10, TABLE_T, CHANGE_DELETE, 2, false, true, 2);
    commit(&f, 10);
    feed_settle(&f);
    assert_int_equal(rows_of(&f, TABLE_T), 2);
    assert_int_equal(life_of(&f, TABLE_T), TABLE_LIFE_STREAMING);
    feed_end(&f);
}

static void test_floor(void **state)
{
    struct feed f;
    XLogRecPtr acks[2];
    (void)state;
    feed_plain(&f);
    assert_int_equal(pipeline_floor(f.p, acks), 900);
    assert_int_equal(acks[0], 900);
    XLogRecPtr first = f.lsn;
    insert(&f, 10, TABLE_T, 1); /* stays open */
    insert(&f, 11, TABLE_T, 2);
    commit(&f, 11);
    feed_settle(&f);
    assert_int_equal(pipeline_floor(f.p, acks), first);
    assert_int_equal(acks[0], f.lsn); /* what a restart may skip */
    /* WAL without anything of ours: the ack goes on, the floor does not */
    f.lsn += 100000;
    feed_settle(&f);
    assert_int_equal(pipeline_floor(f.p, acks), first);
    ends(&f, FRAME_PREPARE, 10, (struct ending){0});
    struct running_frame running = {
        .head = {.len = sizeof running, .type = FRAME_RUNNING, .lsn = feed_next(&f)},
        .oldest_running = 12,
        .next_xid = 12};
    buf_put(&f.batch->frames, &running, sizeof running);
    feed_settle(&f);
    assert_int_equal(pipeline_floor(f.p, acks), first); /* prepared: it did not die */
    ends(&f, FRAME_COMMIT, 10, (struct ending){.flags = XACT_TWO_PHASE});
    feed_settle(&f);
    assert_int_equal(pipeline_floor(f.p, acks), f.lsn);
    assert_int_equal(rows_of(&f, TABLE_T), 2);
    feed_end(&f);
}

static void test_skips_what_is_durable(void **state)
{
    struct feed f;
    (void)state;
    feed_open(&f, NULL, 0, (struct reorder_options){.skip_until = 1160});
    insert(&f, 10, TABLE_T, 1);
    commit(&f, 10);
    insert(&f, 11, TABLE_T, 2);
    assert_int_equal(commit(&f, 11), 1160); /* exactly at it */
    insert(&f, 12, TABLE_T, 3);
    commit(&f, 12);
    feed_settle(&f);
    assert_int_equal(rows_of(&f, TABLE_T), 1);
    feed_end(&f);
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

/* TRUNCATE waits until every earlier row is durable; nothing behind it overtakes. */
static void test_truncate_is_a_barrier(void **state)
{
    static const Oid rels[] = {TABLE_T};
    struct feed f;
    struct gate g;
    XLogRecPtr acks[2];
    (void)state;
    feed_open(&f, one_worker, 1, (struct reorder_options){0});
    gate_enter(&g, f.p);
    XLogRecPtr first = f.lsn;
    insert(&f, 10, TABLE_T, 1);
    XLogRecPtr before = commit(&f, 10);
    insert(&f, 11, TABLE_T, 2);
    truncate_of(&f, 11, rels, 1);
    insert(&f, 11, TABLE_T, 3);
    commit(&f, 11);
    feed_send(&f);
    const struct reorder *r = pipeline_reorder(f.p);
    for (int i = 0; i < 2000 && atomic_load(&r->commit_lsn) < before; i++)
        pause_ms(1);
    pause_ms(50);
    assert_int_equal(atomic_load(&r->commit_lsn), before); /* 11 is held */
    assert_int_equal(rows_of(&f, TABLE_T), 0);
    assert_int_equal(pipeline_floor(f.p, acks), 900);
    assert_true(first > 900);
    gate_open(&g);
    feed_settle(&f);
    assert_true(g.done);
    assert_int_equal(rows_of(&f, TABLE_T), 3);
    feed_end(&f);
    pthread_mutex_destroy(&g.lock);
    pthread_cond_destroy(&g.changed);
}

/* A transaction that put no row anywhere, and ended behind rows that are not durable yet, is read
 * whole again after a restart: the floor stays at its beginning. */
static void test_no_rows_hold_the_floor(void **state)
{
    const struct rel_file_locator gone[] = {file_of(TABLE_U + 1)};
    struct feed f;
    struct gate g;
    XLogRecPtr acks[2];
    (void)state;
    feed_open(&f, one_worker, 1, (struct reorder_options){0});
    XLogRecPtr first = f.lsn;
    insert(&f, 10, TABLE_U, 1);
    insert(&f, 11, TABLE_T, 2);
    XLogRecPtr durable = commit(&f, 11);
    feed_settle(&f);
    gate_enter(&g, f.p);
    insert(&f, 12, TABLE_T, 3);
    commit(&f, 12);
    feed_send(&f);
    XLogRecPtr end = ends(&f, FRAME_COMMIT, 10, (struct ending){.dropped = gone, .ndropped = 1});
    feed_send(&f);
    const struct reorder *r = pipeline_reorder(f.p);
    for (int i = 0; i < 2000 && atomic_load(&r->read_lsn) < end; i++)
        pause_ms(1);
    assert_int_equal(pipeline_floor(f.p, acks), first);
    assert_int_equal(acks[0], durable);
    gate_open(&g);
    feed_settle(&f);
    assert_int_equal(rows_of(&f, TABLE_U), 0);
    feed_end(&f);
    pthread_mutex_destroy(&g.lock);
    pthread_cond_destroy(&g.changed);
}

/* Spilled, cut into several slices, and acknowledged only as a whole. */
static void test_large_transaction(void **state)
{
    static const struct config_set sets[] = {{"memory.xact_buffer_max", "64KiB"}};
    struct feed f;
    (void)state;
    feed_open(&f, sets, 1, (struct reorder_options){0});
    XLogRecPtr acks[2];
    for (int32_t i = 0; i < 50000; i++) {
        insert(&f, 10, i % 2 == 0 ? TABLE_T : TABLE_U, i);
        if (i % 5000 == 4999)
            feed_send(&f);
    }
    assert_true(pipeline_floor(f.p, acks) <= 1000);
    commit(&f, 10);
    feed_settle(&f);
    assert_int_equal(rows_of(&f, TABLE_T), 25000);
    assert_int_equal(rows_of(&f, TABLE_U), 25000);
    assert_true(xact_buffer_spills(pipeline_reorder(f.p)->xacts) > 0);
    feed_end(&f);
}

/* Many transactions of a row each, batches of any size. */
static void test_small_transactions(void **state)
{
    struct feed f;
    (void)state;
    feed_plain(&f);
    for (uint32_t i = 0; i < 20000; i++) {
        insert(&f, 100 + i, TABLE_T, (int32_t)i);
        commit(&f, 100 + i);
        if (i % 97 == 0)
            feed_send(&f);
    }
    feed_settle(&f);
    assert_int_equal(rows_of(&f, TABLE_T), 20000);
    feed_end(&f);
}

struct heard {
    TransactionId xids[8];
    bool committed[8];
    unsigned n;
    TransactionId running;
};

static enum status hear_fate(void *ctx, TransactionId xid, bool committed, struct error *err)
{
    struct heard *h = ctx;
    (void)err;
    assert_true(h->n < 8);
    h->xids[h->n] = xid;
    h->committed[h->n++] = committed;
    return OK;
}

static enum status hear_running(void *ctx, TransactionId oldest, struct error *err)
{
    struct heard *h = ctx;
    (void)err;
    h->running = oldest;
    return OK;
}

static void test_hooks(void **state)
{
    static const TransactionId subs[] = {12, 13};
    struct feed f;
    struct heard h = {0};
    (void)state;
    feed_open(
        &f, NULL, 0,
        (struct reorder_options){.hooks = {.ctx = &h, .fate = hear_fate, .running = hear_running}});
    ends(&f, FRAME_ABORT, 10, (struct ending){0});
    ends(&f, FRAME_COMMIT, 11, (struct ending){.subs = subs, .nsub = 2});
    struct running_frame running = {
        .head = {.len = sizeof running, .type = FRAME_RUNNING, .lsn = feed_next(&f)},
        .oldest_running = 77,
        .next_xid = 80};
    buf_put(&f.batch->frames, &running, sizeof running);
    feed_settle(&f);
    feed_end(&f);
    assert_int_equal(h.n, 4);
    assert_int_equal(h.xids[0], 10);
    assert_false(h.committed[0]);
    for (unsigned i = 1; i < 4; i++) {
        assert_int_equal(h.xids[i], 10 + i);
        assert_true(h.committed[i]);
    }
    assert_int_equal(h.running, 77);
}

/* A frame that makes no sense ends everything, with its reason. */
static void test_fatal(void **state)
{
    struct error err = {0};
    struct feed f;
    (void)state;
    feed_plain(&f);
    insert(&f, 10, TABLE_T, 1);
    struct frame_head bad = {.len = sizeof bad, .type = FRAME_AUX, .lsn = feed_next(&f)};
    buf_put(&f.batch->frames, &bad, sizeof bad);
    feed_send(&f);
    assert_int_equal(pipeline_drain(f.p, clock_now_ns() + 60 * SECOND_NS, &err), ERR_CANCELLED);
    assert_true(fatal_is_set(&f.fatal));
    assert_int_equal(f.fatal.first.kind, ERR_BUG);
    struct feed_batch *late = xcalloc(1, sizeof *late);
    assert_int_equal(pipeline_feed(f.p, late, &err), ERR_CANCELLED); /* taken all the same */
    feed_close(&f);
}

static void test_drain_deadline(void **state)
{
    struct error err = {0};
    struct feed f;
    (void)state;
    /* a batch that nothing but the drain would send */
    static const struct config_set sets[] = {{"destination.default.flush_timeout", "60s"}};
    feed_open(&f, sets, 1, (struct reorder_options){0});
    insert(&f, 10, TABLE_T, 1);
    commit(&f, 10);
    feed_send(&f);
    assert_ok(pipeline_drain(f.p, clock_now_ns() + 60 * SECOND_NS, &err));
    assert_int_equal(rows_of(&f, TABLE_T), 1);
    feed_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commits_and_aborts),
        cmocka_unit_test(test_tombstones),
        cmocka_unit_test(test_floor),
        cmocka_unit_test(test_skips_what_is_durable),
        cmocka_unit_test(test_truncate_is_a_barrier),
        cmocka_unit_test(test_no_rows_hold_the_floor),
        cmocka_unit_test(test_large_transaction),
        cmocka_unit_test(test_small_transactions),
        cmocka_unit_test(test_hooks),
        cmocka_unit_test(test_fatal),
        cmocka_unit_test(test_drain_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
