/* TOAST values of one transaction: chunks found again wherever they rest. */
#include "test.h"

#include "pipeline/toast_index.h"

#include <unistd.h>

#define CHUNK 1996u /* TOAST_MAX_CHUNK_SIZE at 8 KiB pages */
#define OWNER 16400u

static char dir[] = "/tmp/walshadow-toast-XXXXXX";

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) == NULL;
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(dir);
}

static uint8_t value_byte(Oid value_id, uint32_t at)
{
    return (uint8_t)(value_id * 37 + at * 11 + at / 251);
}

/* An insert into a TOAST table: chunk_id, chunk_seq, chunk_data (a varlena of either header). */
static void chunk_add(struct xact_buffer *b, TransactionId xid, XLogRecPtr lsn, Oid value_id,
                      uint32_t seq, uint32_t from, uint32_t len)
{
    struct error err = {0};
    CLEANUP_BUF struct buf body = {0}, frame = {0};
    buf_put_u8(&body, 0); /* padding up to hoff */
    buf_put_u32(&body, value_id);
    buf_put_u32(&body, seq);
    if (len + 1 <= 127)
        buf_put_u8(&body, (uint8_t)((len + 1) << 1 | 1));
    else
        buf_put_u32(&body, (len + 4) << 2);
    for (uint32_t i = 0; i < len; i++)
        buf_put_u8(&body, value_byte(value_id, from + i));
    struct change c = {
        .kind = CHANGE_INSERT,
        .lsn = lsn,
        .locator = {1663, 5, 16402},
        .has_new = true,
        .new_tuple = {.infomask2 = 3,
                      .infomask = 0x802,
                      .hoff = 24,
                      .body_len = (uint32_t)body.len,
                      .body = body.data},
    };
    frame_put_change(&frame, &c, xid, 0);
    assert_ok(xact_buffer_add(b, (struct frame_head *)frame.data, &err));
}

/* A whole value of len bytes; returns the LSN behind it. */
static XLogRecPtr value_add(struct xact_buffer *b, TransactionId xid, XLogRecPtr lsn, Oid value_id,
                            uint32_t len)
{
    for (uint32_t seq = 0; seq * CHUNK < len; seq++, lsn += 8)
        chunk_add(b, xid, lsn, value_id, seq, seq * CHUNK, MIN(CHUNK, len - seq * CHUNK));
    return lsn;
}

/* Reads the transaction and indexes its frames, as planning does; the first failure. */
static enum status index_all(struct toast_index *t, struct xact *x, struct error *err)
{
    struct xact_reader *r = xact_reader_open(x);
    struct frame_head *head;
    enum status st;
    do {
        st = xact_reader_next(r, &head, err);
        if (st == OK && head != NULL)
            st = toast_index_add(t, OWNER, (struct change_frame *)head, r, err);
    } while (st == OK && head != NULL);
    xact_reader_close(r);
    return st;
}

static struct toast_pointer pointer(Oid value_id, uint32_t extsize)
{
    return (struct toast_pointer){
        .rawsize = extsize + 4, .extsize = extsize, .value_id = value_id, .toast_relid = 16402};
}

static void assert_value(struct toast_index *t, struct xact *x, Oid value_id, uint32_t len)
{
    struct error err = {0};
    struct toast_pointer p = pointer(value_id, len);
    CLEANUP_FREE uint8_t *bytes = xmalloc(len);
    assert_true(toast_index_has(t, OWNER, &p));
    assert_ok(toast_index_fetch(t, OWNER, &p, x, bytes, &err));
    for (uint32_t i = 0; i < len; i++)
        assert_int_equal(bytes[i], value_byte(value_id, i));
}

/* In memory, partly and wholly spilled, with the value's writer buffered alone. */
static void test_values(void **state)
{
    static const size_t limits[] = {SIZE_MAX, 30000, 1024};
    static const uint32_t lengths[] = {1, 50, CHUNK, CHUNK + 1, 10 * CHUNK, 99999};
    static const TransactionId subs[] = {11};
    (void)state;
    for (size_t l = 0; l < LENGTH(limits); l++) {
        struct error err = {0};
        struct xact_buffer *b = xact_buffer_new(dir, limits[l], NULL);
        struct toast_index *t = toast_index_new(dir);
        XLogRecPtr lsn = 1000;
        for (uint32_t i = 0; i < LENGTH(lengths); i++)
            lsn = value_add(b, 10 + i % 2, lsn, 500 + i, lengths[i]);
        struct xact *x = xact_buffer_take(b, 10, subs, 1);
        assert_int_equal(xact_buffer_spills(b) > 0, limits[l] != SIZE_MAX);
        assert_true(toast_index_is_empty(t));
        assert_ok(index_all(t, x, &err));
        assert_false(toast_index_is_empty(t));
        for (uint32_t i = 0; i < LENGTH(lengths); i++)
            assert_value(t, x, 500 + i, lengths[i]);
        toast_index_clear(t);
        assert_true(toast_index_is_empty(t));
        struct toast_pointer p = pointer(500, 1);
        assert_false(toast_index_has(t, OWNER, &p));
        xact_buffer_release(b, x);
        toast_index_free(t);
        xact_buffer_free(b);
    }
    toast_index_free(NULL);
}

/* Values of several rows, their chunks mixed. */
static void test_interleaved(void **state)
{
    struct error err = {0};
    struct xact_buffer *b = xact_buffer_new(dir, SIZE_MAX, NULL);
    struct toast_index *t = toast_index_new(dir);
    (void)state;
    for (uint32_t seq = 0; seq < 5; seq++)
        for (Oid id = 1; id <= 3; id++)
            chunk_add(b, 10, 100 + 8 * (seq * 3 + id), id, seq, seq * CHUNK, CHUNK);
    struct xact *x = xact_buffer_take(b, 10, NULL, 0);
    assert_ok(index_all(t, x, &err));
    for (Oid id = 1; id <= 3; id++)
        assert_value(t, x, id, 5 * CHUNK);
    xact_buffer_release(b, x);
    toast_index_free(t);
    xact_buffer_free(b);
}

static void test_what_is_not_there(void **state)
{
    struct error err = {0};
    struct xact_buffer *b = xact_buffer_new(dir, SIZE_MAX, NULL);
    struct toast_index *t = toast_index_new(dir);
    uint8_t bytes[3 * CHUNK];
    (void)state;
    chunk_add(b, 10, 100, 7, 0, 0, CHUNK); /* the second chunk is missing */
    struct xact *x = xact_buffer_take(b, 10, NULL, 0);
    assert_ok(index_all(t, x, &err));
    struct toast_pointer part = pointer(7, CHUNK + 10), other = pointer(8, CHUNK),
                         sound = pointer(7, CHUNK);
    assert_false(toast_index_has(t, OWNER, &part));
    assert_false(toast_index_has(t, OWNER, &other));
    assert_false(toast_index_has(t, OWNER + 1, &sound)); /* value ids are per table */
    assert_true(toast_index_has(t, OWNER, &sound));
    assert_int_equal(toast_index_fetch(t, OWNER, &part, x, bytes, &err), ERR_BUG);
    assert_int_equal(toast_index_fetch(t, OWNER, &other, x, bytes, &err), ERR_BUG);
    xact_buffer_release(b, x);
    toast_index_free(t);
    xact_buffer_free(b);
}

/* A value id used again in the transaction, once its first row was deleted. */
static void test_id_used_again(void **state)
{
    struct error err = {0};
    struct xact_buffer *b = xact_buffer_new(dir, SIZE_MAX, NULL);
    struct toast_index *t = toast_index_new(dir);
    (void)state;
    XLogRecPtr lsn = value_add(b, 10, 100, 7, 3 * CHUNK);
    value_add(b, 10, lsn, 7, CHUNK + 5);
    struct xact *x = xact_buffer_take(b, 10, NULL, 0);
    assert_ok(index_all(t, x, &err));
    assert_value(t, x, 7, CHUNK + 5);
    struct toast_pointer was = pointer(7, 3 * CHUNK);
    assert_false(toast_index_has(t, OWNER, &was));
    xact_buffer_release(b, x);
    toast_index_free(t);
    xact_buffer_free(b);
}

static void assert_refused(struct xact_buffer *b, XLogRecPtr lsn)
{
    struct error err = {0};
    struct toast_index *t = toast_index_new(dir);
    struct xact *x = xact_buffer_take(b, 10, NULL, 0);
    assert_int_equal(index_all(t, x, &err), ERR_DATA);
    assert_true(err.lsn == lsn);
    xact_buffer_release(b, x);
    toast_index_free(t);
    xact_buffer_free(b);
}

/* The first chunks were written before our start, or some are missing: not to be had from here. */
static void test_chunks_left_out(void **state)
{
    struct error err = {0};
    struct xact_buffer *b = xact_buffer_new(dir, SIZE_MAX, NULL);
    struct toast_index *t = toast_index_new(dir);
    (void)state;
    chunk_add(b, 10, 100, 7, 0, 0, CHUNK);
    chunk_add(b, 10, 200, 7, 2, 2 * CHUNK, CHUNK);
    chunk_add(b, 10, 300, 8, 1, CHUNK, CHUNK);
    value_add(b, 10, 400, 9, 2 * CHUNK);
    struct xact *x = xact_buffer_take(b, 10, NULL, 0);
    assert_ok(index_all(t, x, &err));
    for (uint32_t len = CHUNK; len <= 3 * CHUNK; len += CHUNK) {
        struct toast_pointer gap = pointer(7, len), tail = pointer(8, len);
        assert_false(toast_index_has(t, OWNER, &gap));
        assert_false(toast_index_has(t, OWNER, &tail));
    }
    assert_value(t, x, 9, 2 * CHUNK);
    xact_buffer_release(b, x);
    toast_index_free(t);
    xact_buffer_free(b);
}

static void test_damage(void **state)
{
    struct error err = {0};
    struct xact_buffer *b = xact_buffer_new(dir, SIZE_MAX, NULL);
    (void)state;
    struct change c = {.kind = CHANGE_INSERT,
                       .lsn = 400,
                       .has_new = true,
                       /* bitmap: the third attribute is NULL */
                       .new_tuple = {.infomask2 = 3,
                                     .infomask = 0x801,
                                     .hoff = 24,
                                     .body_len = 9,
                                     .body = (const uint8_t *)"\x03\1\0\0\0\0\0\0\0"}};
    CLEANUP_BUF struct buf frame = {0};
    frame_put_change(&frame, &c, 10, 0);
    assert_ok(xact_buffer_add(b, (struct frame_head *)frame.data, &err));
    assert_refused(b, 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_what_is_not_there),
        cmocka_unit_test(test_id_used_again),
        cmocka_unit_test(test_chunks_left_out),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
