/* What committed transactions do to TOAST tables, as events of the chunk store. */
#include "pipeline/toast_feed.h"
#include "feed.h"
#include "toast/store_internal.h"

#define NEW_FILE 16700u
#define COMMIT 5000u

/* A store that keeps the events, data and all. */
struct recorder {
    struct toast_store base;
    struct toast_event events[300];
    uint8_t data[300][8];
    unsigned n;
};

static enum status record(struct toast_store *store, const struct toast_event *events, size_t n,
                          struct error *err)
{
    struct recorder *r = (struct recorder *)store;
    (void)err;
    for (size_t i = 0; i < n; i++) {
        assert_true(r->n < LENGTH(r->events));
        r->events[r->n] = events[i];
        if (events[i].kind == TOAST_BIRTH) {
            assert_true(events[i].len <= sizeof r->data[0]);
            memcpy(r->data[r->n], events[i].data, events[i].len);
        }
        r->n++;
    }
    return OK;
}

static const struct toast_store_ops recorder_ops = {.put = record};

struct test {
    char dir[64];
    struct history *history;
    struct recorder store;
    struct toast_feed *feed;
    struct buf commit, frame;
};

static void put_history(struct test *t, struct rel_desc *d, XLogRecPtr captured)
{
    struct error err = {0};
    rel_desc_seal(d);
    assert_ok(history_append(t->history, &d, 1, captured, &err));
    rel_desc_unref(d);
}

static void test_open(struct test *t)
{
    struct error err = {0};
    *t = (struct test){.dir = "/tmp/walshadow-toast-feed-XXXXXX", .store.base.ops = &recorder_ops};
    assert_non_null(mkdtemp(t->dir));
    CLEANUP_FREE char *log = xasprintf("%s/catalog.log", t->dir);
    assert_ok(history_open(log, &t->history, &err));
    put_history(t, table_desc(TABLE_W, 0, 2, true), 900);
    t->feed = toast_feed_new(&t->store.base, t->history);
}

static void test_close(struct test *t)
{
    struct error err = {0};
    toast_feed_free(t->feed);
    history_free(t->history);
    buf_free(&t->commit);
    buf_free(&t->frame);
    assert_ok(file_remove_tree(t->dir, true, &err));
}

static void begin(struct test *t, uint8_t flags, bool partial)
{
    static const Oid rels[] = {TABLE_W, TABLE_W};
    struct xact_frame x = {.head = {.flags = flags, .lsn = COMMIT}, .end = COMMIT + 8};
    x.nrels = flags & XACT_BOUNDARY ? 1 : 0;
    buf_reset(&t->commit);
    buf_put(&t->commit, &x, sizeof x);
    buf_put(&t->commit, rels, sizeof rels);
    toast_feed_begin(t->feed, (const struct xact_frame *)t->commit.data, partial);
}

static enum status chunk(struct test *t, Oid file, XLogRecPtr lsn, uint64_t tid, Oid value_id,
                         uint32_t seq, struct error *err)
{
    CLEANUP_BUF struct buf body = {0};
    buf_put_u8(&body, 0);
    buf_put_u32(&body, value_id);
    buf_put_u32(&body, seq);
    buf_put_u8(&body, 4 << 1 | 1);
    buf_put(&body, &(uint8_t[]){(uint8_t)value_id, (uint8_t)seq, 'x'}, 3);
    struct change c = {.kind = CHANGE_INSERT,
                       .lsn = lsn,
                       .locator = file_of(file),
                       .new_tid = tid,
                       .has_new = true,
                       .new_tuple = {.infomask2 = 3,
                                     .infomask = 0x802,
                                     .hoff = 24,
                                     .body_len = (uint32_t)body.len,
                                     .body = body.data}};
    buf_reset(&t->frame); /* the last frame is gone */
    frame_put_change(&t->frame, &c, 10, 0);
    return toast_feed_change(t->feed, TABLE_W, (struct change_frame *)t->frame.data, err);
}

static void death(struct test *t, enum change_kind kind, XLogRecPtr lsn, uint64_t tid)
{
    struct error err = {0};
    struct change c = {
        .kind = (uint8_t)kind, .lsn = lsn, .locator = file_of(TABLE_W + 2), .old_tid = tid};
    buf_reset(&t->frame);
    frame_put_change(&t->frame, &c, 10, 0);
    assert_ok(toast_feed_change(t->feed, TABLE_W, (struct change_frame *)t->frame.data, &err));
}

static void event_is(const struct test *t, unsigned i, enum toast_event_kind kind, XLogRecPtr lsn,
                     uint64_t tid)
{
    assert_true(i < t->store.n);
    assert_int_equal(t->store.events[i].kind, kind);
    assert_int_equal(t->store.events[i].owner, TABLE_W);
    assert_int_equal(t->store.events[i].lsn, lsn);
    assert_int_equal(t->store.events[i].tid, tid);
}

static void test_births_and_deaths(void **state)
{
    struct error err = {0};
    struct test t;
    (void)state;
    test_open(&t);
    begin(&t, 0, false);
    for (unsigned i = 0; i < 200; i++)
        assert_ok(chunk(&t, TABLE_W + 2, 1000 + i, tid_make(i, 1), 7 + i / 2, i % 2, &err));
    death(&t, CHANGE_DELETE, 2000, tid_make(3, 1));
    death(&t, CHANGE_SPEC_DELETE, 2001, tid_make(4, 1));
    assert_ok(toast_feed_end(t.feed, &err));
    assert_int_equal(t.store.n, 202);
    for (unsigned i = 0; i < 200; i++) {
        event_is(&t, i, TOAST_BIRTH, 1000 + i, tid_make(i, 1));
        assert_int_equal(t.store.events[i].value_id, 7 + i / 2);
        assert_int_equal(t.store.events[i].seq, i % 2);
        assert_int_equal(t.store.events[i].len, 3);
        assert_int_equal(t.store.data[i][0], 7 + i / 2);
        assert_int_equal(t.store.data[i][1], i % 2);
    }
    event_is(&t, 200, TOAST_DEATH, 2000, tid_make(3, 1));
    event_is(&t, 201, TOAST_DEATH, 2001, tid_make(4, 1));
    test_close(&t);
}

static void test_truncate(void **state)
{
    struct error err = {0};
    struct test t;
    const struct truncate_frame head = {.head = {.lsn = 1500}, .nrelids = 1};
    const Oid relid = TABLE_W;
    CLEANUP_BUF struct buf frame = {0};
    (void)state;
    test_open(&t);
    buf_put(&frame, &head, sizeof head);
    buf_put_u32(&frame, relid);
    begin(&t, 0, false);
    assert_ok(toast_feed_truncate(t.feed, (const struct truncate_frame *)frame.data, &err));
    assert_ok(toast_feed_end(t.feed, &err));
    assert_int_equal(t.store.n, 1);
    event_is(&t, 0, TOAST_RESET, 1500, 0);
    /* of a table that is not known as it is: what is put again may be older than that */
    assert_ok(history_pass_unseen(t.history, COMMIT + 8, &relid, 1, false, &err));
    begin(&t, 0, false);
    assert_ok(toast_feed_truncate(t.feed, (const struct truncate_frame *)frame.data, &err));
    assert_ok(toast_feed_end(t.feed, &err));
    assert_int_equal(t.store.n, 1);
    test_close(&t);
}

/* The table as it is after the commit: its TOAST table in another file. */
static void put_rewritten(struct test *t, Oid spc, Oid toast_oid)
{
    struct rel_desc *d = table_desc(TABLE_W, COMMIT + 8, 2, true);
    d->toast_locator = (struct rel_file_locator){spc, 5, NEW_FILE};
    d->toast_oid = toast_oid;
    put_history(t, d, COMMIT + 8);
}

/* VACUUM FULL and the like: a reset at the first chunk of the new file, which is the same when the
 * transaction comes again in part; nothing is known of it if that chunk is not there. */
static void test_rewrite(void **state)
{
    struct error err = {0};
    struct test t;
    (void)state;
    for (unsigned partial = 0; partial < 2; partial++)
        for (unsigned first = 0; first < 3; first++) { /* chunk from which on it is read */
            test_open(&t);
            put_rewritten(&t, 1663, TABLE_W + 3);
            begin(&t, XACT_BOUNDARY, partial);
            for (unsigned i = partial ? first : 0; i < 2; i++)
                assert_ok(
                    chunk(&t, NEW_FILE, 3000 + i, tid_make(0, (OffsetNumber)(i + 1)), 7, i, &err));
            assert_ok(toast_feed_end(t.feed, &err));
            if (partial && first > 0) {
                assert_int_equal(t.store.n, 2 - first);
            } else {
                assert_int_equal(t.store.n, 3);
                event_is(&t, 2, TOAST_RESET, 3000, 0);
            }
            test_close(&t);
        }
}

static void test_files_without_chunks(void **state)
{
    struct error err = {0};
    struct test t;
    (void)state;
    test_open(&t);
    put_rewritten(&t, 1663, TABLE_W + 4); /* ALTER TABLE: another TOAST table */
    begin(&t, XACT_BOUNDARY | XACT_ALL_RELS, false);
    assert_ok(toast_feed_end(t.feed, &err));
    assert_int_equal(t.store.n, 1);
    event_is(&t, 0, TOAST_RESET, COMMIT, 0);
    test_close(&t);

    test_open(&t);
    put_rewritten(&t, 1700, TABLE_W + 3); /* SET TABLESPACE: as it was, but for rows put since */
    begin(&t, XACT_BOUNDARY, false);
    assert_ok(chunk(&t, NEW_FILE, 3000, tid_make(4, 2), 7, 0, &err));
    assert_ok(toast_feed_end(t.feed, &err));
    assert_int_equal(t.store.n, 1);
    event_is(&t, 0, TOAST_BIRTH, 3000, tid_make(4, 2));
    test_close(&t);

    for (unsigned partial = 0; partial < 2; partial++) {
        test_open(&t);
        struct rel_desc *gone = table_desc(TABLE_W, COMMIT + 8, 2, true);
        gone->dropped = true;
        put_history(&t, gone, COMMIT + 8);
        begin(&t, XACT_BOUNDARY, partial);
        assert_ok(toast_feed_end(t.feed, &err));
        assert_int_equal(t.store.n, 1);
        event_is(&t, 0, TOAST_RESET, COMMIT, 0);
        test_close(&t);
    }
}

static void test_damage(void **state)
{
    struct error err = {0};
    struct test t;
    (void)state;
    test_open(&t);
    begin(&t, 0, false);
    struct change c = {.kind = CHANGE_INSERT,
                       .lsn = 1234,
                       .has_new = true,
                       .new_tuple = {.infomask2 = 3,
                                     .infomask = 0x801, /* the third attribute is NULL */
                                     .hoff = 24,
                                     .body_len = 9,
                                     .body = (const uint8_t *)"\x03\1\0\0\0\0\0\0\0"}};
    frame_put_change(&t.frame, &c, 10, 0);
    assert_int_equal(toast_feed_change(t.feed, TABLE_W, (struct change_frame *)t.frame.data, &err),
                     ERR_DATA);
    assert_non_null(strstr(err.message, "0/4D2"));
    assert_ok(toast_feed_end(t.feed, &err));
    assert_int_equal(t.store.n, 0);
    test_close(&t);
    toast_feed_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_births_and_deaths),
        cmocka_unit_test(test_truncate),
        cmocka_unit_test(test_rewrite),
        cmocka_unit_test(test_files_without_chunks),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
