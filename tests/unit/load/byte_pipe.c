#include "base/buf.h"
#include "load/byte_pipe.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define MAX_BYTES 100000u

static atomic_int held; /* pieces not released yet */

static void release(void *memory)
{
    atomic_fetch_sub(&held, 1);
    free(memory);
}

static uint8_t byte_of(Oid archive, size_t i)
{
    return (uint8_t)(archive * 31 + i * 7 + i / 251);
}

/* A piece as it comes: a byte of the protocol, then bytes `from` … of the archive. */
static struct byte_piece piece_of(Oid archive, size_t from, size_t len)
{
    uint8_t *memory = malloc(len + 1);
    assert_non_null(memory);
    memory[0] = 'd';
    for (size_t i = 0; i < len; i++)
        memory[i + 1] = byte_of(archive, from + i);
    atomic_fetch_add(&held, 1);
    return (struct byte_piece){memory, memory + 1, len};
}

struct writer {
    struct byte_pipe *pipe;
    const size_t *sizes; /* of the pieces of each archive */
    size_t npieces;
    Oid narchives;
    enum status outcome;
};

static void *writer_main(void *arg)
{
    struct writer *w = arg;
    struct error err;
    for (Oid archive = 1; archive <= w->narchives && w->outcome == OK; archive++) {
        size_t from = 0;
        w->outcome = byte_pipe_begin(w->pipe, archive, &err);
        for (size_t i = 0; i < w->npieces && w->outcome == OK; i++) {
            w->outcome = byte_pipe_write(w->pipe, piece_of(archive, from, w->sizes[i]), &err);
            from += w->sizes[i];
        }
    }
    byte_pipe_close(w->pipe);
    return NULL;
}

/* Archives of many small and large pieces, more than the pipe holds: each byte in its archive. */
static void test_archives(void **state)
{
    static const size_t sizes[] = {1, 512, 0, 32768, 300000, 7, 32768, 99999, 0, 1, 2, 3};
    size_t total = 0;
    struct error err = {0};
    (void)state;
    for (size_t i = 0; i < LENGTH(sizes); i++)
        total += sizes[i];
    struct byte_pipe *pipe = byte_pipe_new(MAX_BYTES, release);
    struct writer w = {pipe, sizes, LENGTH(sizes), 50, OK};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, writer_main, &w), 0);
    for (Oid archive = 1; archive <= 50; archive++) {
        bool more;
        Oid oid;
        const uint8_t *bytes;
        size_t len, at = 0;
        assert_ok(byte_pipe_next(pipe, &more, &oid, &err));
        assert_true(more);
        assert_int_equal(oid, archive);
        for (;;) {
            assert_ok(byte_pipe_read(pipe, &bytes, &len, &err));
            if (len == 0)
                break;
            for (size_t i = 0; i < len; i++)
                assert_int_equal(bytes[i], byte_of(archive, at + i));
            at += len;
        }
        assert_int_equal(at, total);
    }
    bool more = true;
    Oid oid;
    assert_ok(byte_pipe_next(pipe, &more, &oid, &err));
    assert_false(more);
    pthread_join(thread, NULL);
    assert_int_equal(w.outcome, OK);
    byte_pipe_free(pipe);
    assert_int_equal(held, 0);
}

/* What is cancelled or ends early gives its memory back, and nobody waits for ever. */
static void test_cancel(void **state)
{
    static const size_t sizes[] = {50000, 50000, 60000, 70000, 80000, 90000, 300000, 300000};
    (void)state;
    for (unsigned reads = 0; reads < 3; reads++) {
        struct byte_pipe *pipe = byte_pipe_new(MAX_BYTES, release);
        struct writer w = {pipe, sizes, LENGTH(sizes), 3, OK};
        struct error err = {0};
        pthread_t thread;
        bool more;
        Oid oid;
        const uint8_t *bytes;
        size_t len;
        assert_int_equal(pthread_create(&thread, NULL, writer_main, &w), 0);
        assert_ok(byte_pipe_next(pipe, &more, &oid, &err));
        for (unsigned i = 0; i < reads; i++) {
            assert_ok(byte_pipe_read(pipe, &bytes, &len, &err));
            assert_non_null(byte_pipe_lent(pipe, bytes, len));
        }
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* the writer waits for room */
        byte_pipe_cancel(pipe);
        pthread_join(thread, NULL);
        assert_int_equal(w.outcome, ERR_CANCELLED);
        while (byte_pipe_read(pipe, &bytes, &len, &err) == OK)
            assert_true(len > 0); /* what was taken before */
        assert_int_equal(byte_pipe_next(pipe, &more, &oid, &err), ERR_CANCELLED);
        byte_pipe_free(pipe);
        assert_int_equal(held, 0);
    }
}

/* What was lent out stays as long as it is kept, also beyond the pipe. */
static void test_lent(void **state)
{
    static const size_t sizes[] = {100, 40000, 512, 70000, 32768, 1};
    struct byte_memory *kept[LENGTH(sizes)];
    const uint8_t *bytes, *at[LENGTH(sizes)];
    struct error err = {0};
    pthread_t thread;
    bool more;
    Oid oid;
    size_t len, from = 0, n = 0;
    (void)state;
    struct byte_pipe *pipe = byte_pipe_new(MAX_BYTES, release);
    struct writer w = {pipe, sizes, LENGTH(sizes), 1, OK};
    assert_int_equal(pthread_create(&thread, NULL, writer_main, &w), 0);
    assert_ok(byte_pipe_next(pipe, &more, &oid, &err));
    assert_null(byte_pipe_lent(pipe, (const uint8_t *)&err, 1));
    for (;;) {
        assert_ok(byte_pipe_read(pipe, &bytes, &len, &err));
        if (len == 0)
            break;
        assert_null(byte_pipe_lent(pipe, (const uint8_t *)&err, 1));
        assert_null(byte_pipe_lent(pipe, bytes, len + 1));
        assert_null(byte_pipe_lent(pipe, bytes - 1, 2));
        assert_null(byte_pipe_lent(pipe, bytes + len, 1));
        if (n % 2 == 0) {
            struct byte_memory *m = byte_pipe_lent(pipe, bytes + len / 2, len - len / 2);
            assert_non_null(m);
            assert_ptr_equal(byte_pipe_lent(pipe, bytes, len), m);
            assert_int_equal(byte_memory_len(m), len);
            kept[n] = byte_memory_ref(m);
            at[n] = bytes;
        }
        n++;
    }
    assert_int_equal(n, LENGTH(sizes));
    assert_null(byte_pipe_lent(pipe, (const uint8_t *)&err, 1));
    pthread_join(thread, NULL);
    byte_pipe_free(pipe);
    assert_int_equal(held, 3);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sizes[i] && i % 2 == 0; k++)
            assert_int_equal(at[i][k], byte_of(1, from + k));
        if (i % 2 == 0)
            byte_memory_unref(kept[i]);
        from += sizes[i];
    }
    assert_int_equal(held, 0);
}

/* 64 pieces are a parcel: it is only then that a mistake of the writer shows. */
static void test_bytes_outside_of_an_archive(void **state)
{
    struct byte_pipe *pipe = byte_pipe_new(MAX_BYTES, release);
    struct error err = {0};
    enum status st = OK;
    (void)state;
    for (int i = 0; i < 64 && st == OK; i++)
        st = byte_pipe_write(pipe, piece_of(1, 0, 10), &err);
    assert_int_equal(st, ERR_BUG);
    byte_pipe_free(pipe);
    assert_int_equal(held, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_archives),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_lent),
        cmocka_unit_test(test_bytes_outside_of_an_archive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
