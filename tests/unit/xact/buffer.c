/* The transaction buffer: subtransactions, aborts, speculative inserts, the pin of the floor. */
#include "frames.h"

static struct xact_buffer *in_memory(void)
{
    return xact_buffer_new("/nonexistent", SIZE_MAX, NULL); /* a spill would be an error */
}

static void end(struct xact_buffer *b)
{
    assert_int_equal(xact_buffer_count(b), 0);
    assert_int_equal(xact_buffer_bytes(b), 0);
    assert_true(xact_buffer_oldest_lsn(b) == UINT64_MAX);
    xact_buffer_free(b);
}

static void prepared_add(void *ctx, const struct xact_prepared *p)
{
    buf_printf(ctx, "%u %s %llu %lld;", p->xid, p->gid, (unsigned long long)p->first_lsn,
               (long long)p->prepared_at);
}

static const char *prepared_list(struct xact_buffer *b)
{
    static char text[200];
    CLEANUP_BUF struct buf out = {0};
    xact_buffer_prepared_each(b, prepared_add, &out);
    buf_put_u8(&out, 0);
    assert_true(out.len <= sizeof text);
    memcpy(text, out.data, out.len);
    return text;
}

static void test_interleaved(void **state)
{
    struct xact_buffer *b = in_memory();
    (void)state;
    insert_add(b, 10, 0, 100);
    insert_add(b, 11, 0, 200);
    insert_add(b, 10, 0, 300);
    insert_add(b, 11, 0, 400);
    insert_add(b, 10, 0, 500);
    assert_int_equal(xact_buffer_count(b), 2);
    assert_true(xact_buffer_oldest_lsn(b) == 100);
    COMMITS(b, 10, NULL, 0, 100, 300, 500);
    assert_true(xact_buffer_oldest_lsn(b) == 200);
    xact_buffer_abort(b, 11, NULL, 0);
    assert_null(xact_buffer_take(b, 11, NULL, 0)); /* as if it had never been */
    assert_null(xact_buffer_take(b, 12, NULL, 0)); /* never heard of */
    xact_buffer_abort(b, 12, NULL, 0);
    xact_buffer_release(b, NULL);
    end(b);
}

/* What was put in comes out bit for bit: old and new tuples, flags, TIDs, truncates. */
static void test_frames_are_copies(void **state)
{
    struct error err = {0};
    struct xact_buffer *b = in_memory();
    CLEANUP_BUF struct buf frames = {0};
    struct change c = {
        .kind = CHANGE_UPDATE,
        .flags = CHANGE_OLD_KEY,
        .lsn = 100,
        .locator = {1663, 5, 20000},
        .new_tid = tid_make(7, 3),
        .old_tid = tid_make(6, 2),
        .has_new = true,
        .has_old = true,
        .new_tuple = {.infomask2 = 4,
                      .infomask = 0x802,
                      .hoff = 24,
                      .body_len = 5,
                      .body = (const uint8_t *)"\0new."},
        .old_tuple = {.infomask2 = 1,
                      .infomask = 1,
                      .hoff = 32,
                      .body_len = 3,
                      .body = (const uint8_t *)"old"},
    };
    (void)state;
    frame_put_change(&frames, &c, 10, 0);
    size_t change_len = frames.len;
    assert_int_equal(change_len % 8, 0);
    struct truncate_frame t = {
        .head = {.len = sizeof t + 8, .type = FRAME_TRUNCATE, .xid = 10, .lsn = 200},
        .nrelids = 2,
        .options = 1};
    buf_put(&frames, &t, sizeof t);
    buf_put_u32(&frames, 16400);
    buf_put_u32(&frames, 16410);
    assert_ok(xact_buffer_add(b, (struct frame_head *)frames.data, &err));
    assert_ok(xact_buffer_add(b, (struct frame_head *)(frames.data + change_len), &err));
    struct xact *x = xact_buffer_take(b, 10, NULL, 0);
    assert_int_equal(xact_bytes(x), frames.len);
    struct xact_reader *r = xact_reader_open(x);
    struct frame_head *head;
    assert_ok(xact_reader_next(r, &head, &err));
    assert_memory_equal(head, frames.data, change_len);
    struct raw_tuple now = change_frame_new((struct change_frame *)head);
    struct raw_tuple was = change_frame_old((struct change_frame *)head);
    assert_int_equal(now.body_len, 5);
    assert_memory_equal(now.body, "\0new.", 5);
    assert_int_equal(now.infomask, 0x802);
    assert_int_equal(was.body_len, 3);
    assert_memory_equal(was.body, "old", 3);
    assert_int_equal(was.hoff, 32);
    assert_ok(xact_reader_next(r, &head, &err));
    assert_memory_equal(head, frames.data + change_len, sizeof t + 8);
    xact_reader_close(r);
    xact_buffer_release(b, x);
    end(b);
}

/* Only the first record of a subtransaction names its top-level transaction. */
static void test_subtransactions_by_top(void **state)
{
    static const TransactionId subs[] = {11, 13};
    struct xact_buffer *b = in_memory();
    (void)state;
    insert_add(b, 11, 10, 100); /* the top-level transaction has not written itself yet */
    insert_add(b, 20, 0, 150);
    insert_add(b, 13, 10, 200);
    insert_add(b, 11, 0, 300);
    insert_add(b, 10, 0, 400);
    insert_add(b, 13, 0, 500);
    assert_int_equal(xact_buffer_count(b), 2);
    COMMITS(b, 10, subs, 2, 100, 200, 300, 400, 500);
    COMMITS(b, 20, NULL, 0, 150);
    /* 11 is not remembered as a child of what is over */
    insert_add(b, 11, 0, 600);
    COMMITS(b, 11, NULL, 0, 600);
    end(b);
}

static void test_sub_abort_with_children(void **state)
{
    static const TransactionId children[] = {12, 13};
    static const TransactionId subs[] = {14};
    struct xact_buffer *b = in_memory();
    (void)state;
    insert_add(b, 10, 0, 100);
    insert_add(b, 11, 10, 200);
    insert_add(b, 12, 10, 300);
    insert_add(b, 13, 10, 400);
    insert_add(b, 14, 10, 500);
    insert_add(b, 10, 0, 600);
    xact_buffer_abort(b, 11, children, 2);
    insert_add(b, 14, 0, 700);
    COMMITS(b, 10, subs, 1, 100, 500, 600, 700);
    end(b);
}

/* Its first record came before our start: the relation is known from the commit's list only. */
static void test_subs_buffered_alone(void **state)
{
    static const TransactionId subs[] = {11, 12, 13};
    struct xact_buffer *b = in_memory();
    (void)state;
    insert_add(b, 12, 0, 100);
    insert_add(b, 10, 0, 200);
    insert_add(b, 11, 0, 300);
    insert_add(b, 13, 10, 350); /* began after our start */
    insert_add(b, 12, 0, 400);
    insert_add(b, 10, 0, 500);
    insert_add(b, 11, 0, 600);
    assert_int_equal(xact_buffer_count(b), 3);
    struct xact *x = xact_buffer_take(b, 10, subs, 3);
    assert_int_equal(xact_xid(x), 10);
    assert_true(xact_first_lsn(x) == 100);
    static const XLogRecPtr lsns[] = {100, 200, 300, 350, 400, 500, 600};
    CLEANUP_SEEN struct seen_list got = {0};
    xact_list(x, &got);
    assert_int_equal(got.n, LENGTH(lsns));
    for (size_t i = 0; i < LENGTH(lsns); i++)
        assert_int_equal(got.items[i].lsn, lsns[i]);
    assert_true(xact_buffer_oldest_lsn(b) == 100); /* the child pins too, until released */
    xact_buffer_release(b, x);
    end(b);
}

/* The top-level transaction itself wrote nothing that we read. */
static void test_only_subs_alone(void **state)
{
    static const TransactionId subs[] = {11, 12};
    struct xact_buffer *b = in_memory();
    (void)state;
    insert_add(b, 12, 0, 100);
    insert_add(b, 11, 0, 200);
    COMMITS(b, 10, subs, 2, 100, 200);
    end(b);
}

static void test_abort_of_subs_alone(void **state)
{
    static const TransactionId children[] = {12};
    static const TransactionId all[] = {11, 13};
    struct xact_buffer *b = in_memory();
    (void)state;
    insert_add(b, 10, 0, 50);
    insert_add(b, 11, 0, 100);
    insert_add(b, 12, 0, 200);
    insert_add(b, 13, 0, 300);
    xact_buffer_abort(b, 11, children, 1); /* rolled back to a savepoint */
    assert_int_equal(xact_buffer_count(b), 2);
    COMMITS(b, 10, &all[1], 1, 50, 300);
    /* a top-level abort names them all */
    insert_add(b, 11, 0, 400);
    insert_add(b, 13, 0, 500);
    xact_buffer_abort(b, 10, all, 2);
    end(b);
}

static struct seen speculative(TransactionId xid, XLogRecPtr lsn)
{
    return (struct seen){
        .lsn = lsn, .xid = xid, .payload = (uint32_t)lsn, .len = 24, .flags = CHANGE_SPECULATIVE};
}

static void test_speculative_inserts(void **state)
{
    struct xact_buffer *b = in_memory();
    (void)state;
    change_add(b, speculative(10, 100), 0);
    change_add(b, (struct seen){.kind = CHANGE_SPEC_CONFIRM, .lsn = 110, .xid = 10}, 0);
    change_add(b, speculative(10, 200), 0); /* lost the race: super-deleted, then done again */
    change_add(b, (struct seen){.kind = CHANGE_SPEC_DELETE, .lsn = 210, .xid = 10}, 0);
    change_add(b, speculative(10, 300), 0);
    change_add(b, (struct seen){.kind = CHANGE_SPEC_CONFIRM, .lsn = 310, .xid = 10}, 0);
    insert_add(b, 10, 0, 400);
    change_add(b, speculative(10, 500), 0); /* never confirmed */
    struct xact *x = xact_buffer_take(b, 10, NULL, 0);
    CLEANUP_SEEN struct seen_list got = {0};
    xact_list(x, &got);
    assert_int_equal(got.n, 3);
    assert_int_equal(got.items[0].lsn, 100); /* the row's own record, not its confirmation's */
    assert_int_equal(got.items[0].kind, CHANGE_INSERT);
    assert_int_equal(got.items[0].flags, 0); /* a plain insert from here on */
    assert_int_equal(got.items[1].lsn, 300);
    assert_int_equal(got.items[2].lsn, 400);
    xact_buffer_release(b, x);
    end(b);
}

static void test_speculative_in_aborted_subtransaction(void **state)
{
    static const TransactionId subs[] = {12};
    struct xact_buffer *b = in_memory();
    (void)state;
    insert_add(b, 10, 0, 50);
    /* confirmed, then rolled back */
    change_add(b, speculative(11, 100), 10);
    change_add(b, (struct seen){.kind = CHANGE_SPEC_CONFIRM, .lsn = 110, .xid = 11}, 0);
    xact_buffer_abort(b, 11, NULL, 0);
    /* waiting when its subtransaction was rolled back; the next one's confirmation is its own */
    change_add(b, speculative(13, 200), 10);
    xact_buffer_abort(b, 13, NULL, 0);
    change_add(b, (struct seen){.kind = CHANGE_SPEC_CONFIRM, .lsn = 210, .xid = 12}, 10);
    change_add(b, speculative(12, 300), 10);
    change_add(b, (struct seen){.kind = CHANGE_SPEC_CONFIRM, .lsn = 310, .xid = 12}, 0);
    COMMITS(b, 10, subs, 1, 50, 300);
    end(b);
}

/* The abort of another subtransaction leaves a waiting insert alone. */
static void test_speculative_survives_others_abort(void **state)
{
    struct xact_buffer *b = in_memory();
    (void)state;
    insert_add(b, 11, 10, 100);
    change_add(b, speculative(10, 200), 0);
    xact_buffer_abort(b, 11, NULL, 0);
    change_add(b, (struct seen){.kind = CHANGE_SPEC_CONFIRM, .lsn = 210, .xid = 10}, 0);
    COMMITS(b, 10, NULL, 0, 200);
    end(b);
}

static void test_pin(void **state)
{
    struct xact_buffer *b = in_memory();
    (void)state;
    assert_true(xact_buffer_oldest_lsn(b) == UINT64_MAX);
    xact_buffer_seen(b, 10, 0, 100); /* a catalog change: nothing to buffer, yet it pins */
    insert_add(b, 11, 0, 200);
    xact_buffer_seen(b, 13, 12, 300);
    insert_add(b, 10, 0, 400);
    assert_true(xact_buffer_oldest_lsn(b) == 100);
    struct xact *x = xact_buffer_take(b, 10, NULL, 0);
    assert_true(xact_first_lsn(x) == 100);
    assert_true(xact_buffer_oldest_lsn(b) == 100); /* committed, but not yet registered */
    assert_int_equal(xact_buffer_count(b), 3);
    struct xact *y = xact_buffer_take(b, 11, NULL, 0);
    xact_buffer_release(b, y);
    assert_true(xact_buffer_oldest_lsn(b) == 100);
    xact_buffer_release(b, x);
    assert_true(xact_buffer_oldest_lsn(b) == 300);
    xact_buffer_abort(b, 12, NULL, 0); /* the parent that only its child told of */
    end(b);
}

static void test_running_xacts(void **state)
{
    static const TransactionId subs[] = {21};
    struct xact_buffer *b = in_memory();
    (void)state;
    insert_add(b, 10, 0, 100); /* dies with the server */
    insert_add(b, 11, 0, 200); /* prepared */
    prepare(b, 11, "eleven");
    prepare(b, 12, "not ours");
    insert_add(b, 20, 0, 300); /* running */
    insert_add(b, 21, 20, 400);
    insert_add(b, 9, 0, 500); /* old, but just now taken for its commit */
    struct xact *x = xact_buffer_take(b, 9, NULL, 0);
    assert_true(xact_buffer_oldest_lsn(b) == 100);
    xact_buffer_running(b, 10); /* 10 itself is the oldest running */
    assert_int_equal(xact_buffer_count(b), 4);
    xact_buffer_running(b, 20);
    assert_int_equal(xact_buffer_count(b), 3);
    assert_true(xact_buffer_oldest_lsn(b) == 200);
    assert_null(xact_buffer_take(b, 10, NULL, 0));
    CLEANUP_SEEN struct seen_list got = {0};
    xact_list(x, &got);
    assert_int_equal(got.n, 1);
    xact_buffer_release(b, x);
    assert_string_equal(prepared_list(b), "11 eleven 200 77;");
    COMMITS(b, 11, NULL, 0, 200); /* COMMIT PREPARED */
    assert_string_equal(prepared_list(b), "");
    COMMITS(b, 20, subs, 1, 300, 400);
    end(b);
}

/* Xids wrap around: "older" is modulo 2^32. */
static void test_running_xacts_wraparound(void **state)
{
    struct xact_buffer *b = in_memory();
    (void)state;
    insert_add(b, 4294967290u, 0, 100);
    insert_add(b, 5, 0, 200);
    xact_buffer_running(b, 4);
    assert_int_equal(xact_buffer_count(b), 1);
    COMMITS(b, 5, NULL, 0, 200);
    insert_add(b, 5, 0, 300);
    xact_buffer_running(b, 4294967290u);
    COMMITS(b, 5, NULL, 0, 300);
    end(b);
}

#define MANY_SUBS 5000u

static void test_many_subtransactions(void **state)
{
    struct xact_buffer *b = in_memory();
    TransactionId *live = xcalloc(MANY_SUBS, sizeof *live);
    CLEANUP_SEEN struct seen_list want = {0}, got = {0};
    uint32_t nlive = 0;
    (void)state;
    for (uint32_t i = 0; i < MANY_SUBS; i++) {
        TransactionId xid = 101 + i;
        bool aborts = i % 3 == 1;
        struct seen s = {.lsn = 1000 + 10 * i, .xid = xid, .payload = i, .len = 40};
        change_add(b, s, 100);
        if (aborts) {
            xact_buffer_abort(b, xid, NULL, 0);
        } else {
            live[nlive++] = xid;
            seen_add(&want, s);
        }
    }
    assert_int_equal(xact_buffer_count(b), 1);
    assert_true(xact_buffer_has_many_subs(b));
    struct xact *x = xact_buffer_take(b, 100, live, nlive);
    xact_list(x, &got);
    assert_seen_equal(&got, &want);
    xact_buffer_release(b, x);
    assert_false(xact_buffer_has_many_subs(b));
    /* and the same number buffered alone */
    got.n = 0;
    for (size_t i = 0; i < want.n; i++)
        change_add(b, want.items[i], 0);
    assert_int_equal(xact_buffer_count(b), nlive);
    x = xact_buffer_take(b, 100, live, nlive);
    xact_list(x, &got);
    assert_seen_equal(&got, &want);
    xact_buffer_release(b, x);
    free(live);
    end(b);
}

/* Whatever is inside when the program ends is freed (checked by the address sanitizer). */
static void test_free_with_contents(void **state)
{
    static const TransactionId subs[] = {22};
    struct xact_buffer *b = in_memory();
    (void)state;
    insert_add(b, 10, 0, 100);
    insert_add(b, 11, 10, 200);
    change_add(b, speculative(12, 300), 0);
    insert_add(b, 21, 0, 400);
    insert_add(b, 22, 0, 500);
    assert_non_null(xact_buffer_take(b, 21, subs, 1)); /* taken and never released */
    xact_buffer_free(b);
    xact_buffer_free(NULL);
    xact_reader_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_frames_are_copies),
        cmocka_unit_test(test_subtransactions_by_top),
        cmocka_unit_test(test_sub_abort_with_children),
        cmocka_unit_test(test_subs_buffered_alone),
        cmocka_unit_test(test_only_subs_alone),
        cmocka_unit_test(test_abort_of_subs_alone),
        cmocka_unit_test(test_speculative_inserts),
        cmocka_unit_test(test_speculative_in_aborted_subtransaction),
        cmocka_unit_test(test_speculative_survives_others_abort),
        cmocka_unit_test(test_pin),
        cmocka_unit_test(test_running_xacts),
        cmocka_unit_test(test_running_xacts_wraparound),
        cmocka_unit_test(test_many_subtransactions),
        cmocka_unit_test(test_free_with_contents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
