/* Spilling: the same frames as in memory, places in blocks and memory, damage. */
#include "xact/xact.h"
#include "frames.h"

#include "base/file.h"

#include <unistd.h>

static char dir[] = "/tmp/walshadow-spill-XXXXXX";

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) == NULL;
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(dir); /* fails if a spill file left a name behind */
}

static void test_same_as_in_memory(void **state)
{
    static const TransactionId subs[] = {11, 12};
    struct xact_buffer *tiny = xact_buffer_new(dir, 1024, NULL),
                       *roomy = xact_buffer_new(dir, SIZE_MAX, NULL);
    CLEANUP_SEEN struct seen_list a = {0}, b = {0};
    (void)state;
    for (uint32_t i = 0; i < 500; i++) {
        TransactionId xid = 10 + i % 4;
        TransactionId top = xid == 13 ? 0 : 10;
        struct seen s = {.lsn = 1000 + 8 * i, .xid = xid, .payload = i * 77, .len = i * 13 % 700};
        if (xid == 12)
            top = 0; /* buffered alone */
        change_add(tiny, s, top);
        change_add(roomy, s, top);
        if (i == 333) {
            xact_buffer_abort(tiny, 11, NULL, 0);
            xact_buffer_abort(roomy, 11, NULL, 0);
        }
        assert_true(xact_buffer_bytes(tiny) <= 1024);
    }
    assert_true(xact_buffer_spills(tiny) > 50);
    assert_int_equal(xact_buffer_spills(roomy), 0);
    for (TransactionId xid = 10; xid <= 13; xid += 3) {
        struct xact *x = xact_buffer_take(tiny, xid, subs, xid == 10 ? 2 : 0);
        struct xact *y = xact_buffer_take(roomy, xid, subs, xid == 10 ? 2 : 0);
        a.n = b.n = 0;
        xact_list(x, &a);
        xact_list(y, &b);
        assert_true(b.n > 100);
        assert_seen_equal(&a, &b);
        xact_buffer_release(tiny, x);
        xact_buffer_release(roomy, y);
    }
    assert_int_equal(xact_buffer_bytes(tiny), 0);
    assert_true(xact_buffer_oldest_lsn(tiny) == UINT64_MAX);
    xact_buffer_free(tiny);
    xact_buffer_free(roomy);
}

/* More than a block (1 MiB), and one frame that is larger than a block. */
static void test_blocks(void **state)
{
    struct xact_buffer *b = xact_buffer_new(dir, 5 << 20, NULL);
    CLEANUP_SEEN struct seen_list want = {0}, got = {0};
    (void)state;
    for (uint32_t i = 0; i < 120; i++) {
        struct seen s = {.lsn = 100 + i,
                         .xid = 10,
                         .payload = i ^ 0x5a5a5a5a,
                         .len = i == 60 ? 3000001 : 60000 + i};
        change_add(b, s, 0);
        seen_add(&want, s);
    }
    assert_true(xact_buffer_spills(b) >= 1);
    struct xact *x = xact_buffer_take(b, 10, NULL, 0);
    xact_list(x, &got);
    assert_seen_equal(&got, &want);
    xact_buffer_release(b, x);
    xact_buffer_free(b);
}

/* The largest goes first: small transactions stay in memory. */
static void test_largest_is_spilled(void **state)
{
    struct xact_buffer *b = xact_buffer_new(dir, 20000, NULL);
    (void)state;
    for (uint32_t i = 0; i < 50; i++) {
        insert_add(b, 10 + i, 0, 1000 + i);
        if (i == 25)
            for (uint32_t n = 0; n < 200; n++)
                insert_add(b, 500, 0, 2000 + n);
    }
    assert_true(xact_buffer_spills(b) > 0);
    for (uint32_t i = 0; i < 50; i++) {
        struct xact *x = xact_buffer_take(b, 10 + i, NULL, 0);
        assert_int_equal(x->spill.fd, -1);
        xact_buffer_release(b, x);
    }
    xact_buffer_free(b);
}

/* A waiting speculative insert is beside the stream, wherever the stream is. */
static void test_speculative_over_a_spill(void **state)
{
    struct xact_buffer *b = xact_buffer_new(dir, 1024, NULL);
    struct seen spec = {
        .lsn = 500, .xid = 11, .payload = 9, .len = 24, .flags = CHANGE_SPECULATIVE};
    static const TransactionId subs[] = {11};
    (void)state;
    for (uint32_t i = 0; i < 30; i++)
        insert_add(b, 10, 0, 100 + i);
    change_add(b, spec, 10);
    change_add(b, (struct seen){.kind = CHANGE_SPEC_CONFIRM, .lsn = 510, .xid = 11}, 0);
    for (uint32_t i = 0; i < 30; i++)
        insert_add(b, 10, 0, 600 + i);
    struct xact *x = xact_buffer_take(b, 10, subs, 1);
    CLEANUP_SEEN struct seen_list got = {0};
    xact_list(x, &got);
    assert_int_equal(got.n, 61);
    assert_int_equal(got.items[30].lsn, 500);
    xact_buffer_release(b, x);
    xact_buffer_free(b);
}

/* Tuples of frames in any stream, spilled or in memory, are found again by their place. */
static void test_read_at(void **state)
{
    static const TransactionId subs[] = {11};
    static const size_t limits[] = {1024, 9000, SIZE_MAX};
    struct xact_place places[200];
    (void)state;
    for (size_t l = 0; l < LENGTH(limits); l++) {
        struct error err = {0};
        struct xact_buffer *b = xact_buffer_new(dir, limits[l], NULL);
        struct frame_head *head;
        size_t n = 0;
        for (uint32_t i = 0; i < LENGTH(places); i++) /* 11 is buffered alone */
            change_add(
                b, (struct seen){.lsn = 100 + i, .xid = 10 + i % 2, .payload = i * 3, .len = 1 + i},
                0);
        struct xact *x = xact_buffer_take(b, 10, subs, 1);
        struct xact_reader *r = xact_reader_open(x);
        for (;;) {
            assert_ok(xact_reader_next(r, &head, &err));
            if (head == NULL)
                break;
            struct raw_tuple t = change_frame_new((struct change_frame *)head);
            places[n++] = xact_reader_place(r, t.body, t.body_len);
        }
        xact_reader_close(r);
        assert_int_equal(n, LENGTH(places));
        for (size_t k = 0; k < n; k++) {
            size_t i = k * 67 % n; /* in no order */
            uint8_t bytes[LENGTH(places)];
            assert_int_equal(places[i].len, 1 + i);
            assert_ok(xact_read_at(x, places[i], bytes, &err));
            for (size_t at = 0; at <= i; at++)
                assert_int_equal(bytes[at], (uint8_t)(i * 3 >> (at % 4 * 8)));
        }
        xact_buffer_release(b, x);
        xact_buffer_free(b);
    }
}

static struct xact *spilled(struct xact_buffer *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        insert_add(b, 10, 0, 100 + i);
    struct xact *x = xact_buffer_take(b, 10, NULL, 0);
    assert_true(x->spill.fd >= 0);
    assert_true(x->spill.bytes > 100);
    return x;
}

/* Every byte of the first two blocks, damaged: an error that names the place, never a frame. */
static void test_damage_is_found(void **state)
{
    struct error err = {0};
    struct xact_buffer *b = xact_buffer_new(dir, 1024, NULL);
    struct xact *x = spilled(b, 30);
    uint32_t first_len, second_len;
    (void)state;
    assert_int_equal(pread(x->spill.fd, &first_len, 4, 0), 4);
    assert_int_equal(pread(x->spill.fd, &second_len, 4, first_len + SPILL_BLOCK_HEAD), 4);
    uint64_t second = first_len + SPILL_BLOCK_HEAD;
    uint64_t through = second + SPILL_BLOCK_HEAD + second_len;
    assert_true(through <= x->spill.bytes);
    for (uint64_t at = 0; at < through; at++) {
        struct xact_reader *r = xact_reader_open(x);
        struct frame_head *head = NULL;
        enum status st;
        uint8_t kept, bad;
        char where[40];
        assert_int_equal(pread(x->spill.fd, &kept, 1, (off_t)at), 1);
        bad = kept ^ 0x10;
        assert_int_equal(pwrite(x->spill.fd, &bad, 1, (off_t)at), 1);
        do {
            st = xact_reader_next(r, &head, &err);
        } while (st == OK && head != NULL);
        if (st != ERR_DATA)
            fail_msg("damage at byte %llu is not noticed", (unsigned long long)at);
        snprintf(where, sizeof where, " at byte %llu",
                 (unsigned long long)(at < second ? 0 : second));
        assert_non_null(strstr(err.message, where));
        assert_non_null(strstr(err.message, "transaction 10"));
        assert_int_equal(pwrite(x->spill.fd, &kept, 1, (off_t)at), 1);
        xact_reader_close(r);
    }
    CLEANUP_SEEN struct seen_list got = {0};
    xact_list(x, &got); /* whole again */
    assert_int_equal(got.n, 30);
    xact_buffer_release(b, x);
    xact_buffer_free(b);
}

static void test_cut_file_is_found(void **state)
{
    struct error err = {0};
    struct xact_buffer *b = xact_buffer_new(dir, 1024, NULL);
    struct xact *x = spilled(b, 30);
    struct xact_reader *r = xact_reader_open(x);
    struct frame_head *head = NULL;
    enum status st;
    (void)state;
    assert_int_equal(ftruncate(x->spill.fd, (off_t)x->spill.bytes - 1), 0);
    do {
        st = xact_reader_next(r, &head, &err);
    } while (st == OK && head != NULL);
    assert_int_equal(st, ERR_DATA);
    xact_reader_close(r);
    xact_buffer_release(b, x);
    xact_buffer_free(b);
}

static void test_no_directory(void **state)
{
    struct error err = {0};
    struct xact_buffer *b = xact_buffer_new("/nonexistent/spill", 100, NULL);
    CLEANUP_BUF struct buf frame = {0};
    (void)state;
    change_put(&frame, (struct seen){.lsn = 1, .xid = 10, .len = 200}, 0);
    assert_int_equal(xact_buffer_add(b, (struct frame_head *)frame.data, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "/nonexistent/spill"));
    xact_buffer_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_in_memory),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_largest_is_spilled),
        cmocka_unit_test(test_speculative_over_a_spill),
        cmocka_unit_test(test_read_at),
        cmocka_unit_test(test_damage_is_found),
        cmocka_unit_test(test_cut_file_is_found),
        cmocka_unit_test(test_no_directory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
