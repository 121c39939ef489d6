/* The file behind the history: what was put in comes out; torn tails are cut; damage is named. */
#include "base/crc32c.h"
#include "base/file.h"
#include "catalog/catalog_log.h"
#include "relations.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER 12u
#define FRAMES_MAX 16u

static char dir[] = "/tmp/walshadow-log-XXXXXX";
static char path[64];

static int setup(void **state)
{
    (void)state;
    if (mkdtemp(dir) == NULL)
        return 1;
    snprintf(path, sizeof path, "%s/catalog.log", dir);
    return 0;
}

static int teardown(void **state)
{
    struct error err = {0};
    (void)state;
    return file_remove_tree(dir, true, &err) != OK;
}

/* What a reader heard. */
struct heard {
    size_t n;
    enum catalog_log_kind kinds[FRAMES_MAX];
    struct rel_desc *descs[FRAMES_MAX];
    XLogRecPtr lsns[FRAMES_MAX];
    Oid oids[FRAMES_MAX];
    char *reasons[FRAMES_MAX];
};

static enum status hear(void *ctx, const struct catalog_log_entry *e, struct error *err)
{
    struct heard *h = ctx;
    (void)err;
    if (h->n == FRAMES_MAX)
        return error_set(err, ERR_BUG, "more than was written");
    h->kinds[h->n] = e->kind;
    h->descs[h->n] = e->kind == CATALOG_LOG_DESC ? rel_desc_ref(e->desc) : NULL;
    h->lsns[h->n] = e->lsn;
    h->oids[h->n] = e->oid;
    h->reasons[h->n] = e->kind == CATALOG_LOG_STOP ? xstrdup(e->reason) : NULL;
    h->n++;
    return OK;
}

static void heard_free(struct heard *h)
{
    for (size_t i = 0; i < h->n; i++) {
        rel_desc_unref(h->descs[i]);
        free(h->reasons[i]);
    }
    *h = (struct heard){0};
}
#define CLEANUP_HEARD __attribute__((cleanup(heard_free)))

static struct catalog_log *open_log(struct heard *h)
{
    struct error err = {0};
    struct catalog_log *log = NULL;
    assert_ok(catalog_log_open(path, hear, h, &log, &err));
    return log;
}

static size_t file_size(void)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (size_t)st.st_size;
}

/* A log of: descriptor, captured, descriptor, stop, captured. *ret_ends: where frames end. */
static void write_sample(size_t *ret_ends)
{
    struct error err = {0};
    struct heard none = {0};
    struct rel_desc *a = relation(16400, 0, 16401, 3), *b = relation(16500, 900, 16501, 1);
    unlink(path);
    struct catalog_log *log = open_log(&none);
    assert_int_equal(none.n, 0);
    assert_int_equal(file_size(), HEADER);
    assert_ok(catalog_log_put_desc(log, a, &err));
    ret_ends[0] = file_size();
    assert_ok(catalog_log_put_captured(log, 800, &err));
    ret_ends[1] = file_size();
    assert_ok(catalog_log_put_desc(log, b, &err));
    ret_ends[2] = file_size();
    assert_ok(catalog_log_put_state(log, CATALOG_LOG_STOP, 16400, 950, "its key went away", &err));
    ret_ends[3] = file_size();
    assert_ok(catalog_log_put_captured(log, UINT64_C(0x123456789A), &err));
    ret_ends[4] = file_size();
    assert_ok(catalog_log_sync(log, &err));
    catalog_log_close(log);
    rel_desc_unref(a);
    rel_desc_unref(b);
}

static void test_round_trip(void **state)
{
    size_t ends[5];
    CLEANUP_HEARD struct heard h = {0};
    struct rel_desc *a = relation(16400, 0, 16401, 3), *b = relation(16500, 900, 16501, 1);
    (void)state;
    write_sample(ends);
    catalog_log_close(open_log(&h));
    assert_int_equal(h.n, 5);
    assert_int_equal(h.kinds[0], CATALOG_LOG_DESC);
    assert_true(rel_desc_equal(h.descs[0], a, true));
    assert_int_equal(h.kinds[1], CATALOG_LOG_CAPTURED);
    assert_int_equal(h.lsns[1], 800);
    assert_true(rel_desc_equal(h.descs[2], b, true));
    assert_int_equal(h.descs[2]->valid_from, 900);
    assert_int_equal(h.kinds[3], CATALOG_LOG_STOP);
    assert_int_equal(h.oids[3], 16400);
    assert_int_equal(h.lsns[3], 950);
    assert_string_equal(h.reasons[3], "its key went away");
    assert_true(h.lsns[4] == UINT64_C(0x123456789A));
    rel_desc_unref(a);
    rel_desc_unref(b);
    catalog_log_close(NULL);
}

/* What is appended after a reopen follows what was there. */
static void test_append_after_reopen(void **state)
{
    struct error err = {0};
    size_t ends[5];
    CLEANUP_HEARD struct heard h = {0}, again = {0};
    (void)state;
    write_sample(ends);
    struct catalog_log *log = open_log(&h);
    assert_ok(catalog_log_put_state(log, CATALOG_LOG_STOP, 7, 8, "", &err));
    catalog_log_close(log);
    catalog_log_close(open_log(&again));
    assert_int_equal(again.n, 6);
    assert_int_equal(again.oids[5], 7);
    assert_string_equal(again.reasons[5], "");
}

/* A reason of any length comes back, cut, and terminated. */
static void test_long_reason(void **state)
{
    struct error err = {0};
    CLEANUP_HEARD struct heard none = {0}, h = {0};
    char reason[5000];
    (void)state;
    memset(reason, 'r', sizeof reason - 1);
    reason[sizeof reason - 1] = '\0';
    unlink(path);
    struct catalog_log *log = open_log(&none);
    assert_ok(catalog_log_put_state(log, CATALOG_LOG_STOP, 1, 2, reason, &err));
    catalog_log_close(log);
    catalog_log_close(open_log(&h));
    assert_int_equal(h.n, 1);
    assert_true(strlen(h.reasons[0]) >= 1000);
    assert_memory_equal(h.reasons[0], reason, strlen(h.reasons[0]));
}

/* Killed in the middle of the last frame, at each of its bytes; and the log goes on from there. */
static void test_torn_tail(void **state)
{
    struct error err = {0};
    CLEANUP_BUF struct buf whole = {0};
    size_t ends[5];
    (void)state;
    write_sample(ends);
    assert_ok(file_read_all(path, 1 << 20, &whole, &err));
    static const unsigned lasts[] = {4, 2}; /* a short frame and a descriptor at the end */
    for (size_t l = 0; l < LENGTH(lasts); l++)
        for (size_t cut = ends[lasts[l] - 1]; cut < ends[lasts[l]]; cut++) {
            CLEANUP_HEARD struct heard h = {0}, again = {0};
            assert_ok(file_write_atomic(path, whole.data, cut, 0600, &err));
            struct catalog_log *log = open_log(&h);
            assert_int_equal(h.n, lasts[l]);
            assert_int_equal(file_size(), ends[lasts[l] - 1]);
            assert_ok(catalog_log_put_captured(log, 4711, &err));
            catalog_log_close(log);
            catalog_log_close(open_log(&again));
            assert_int_equal(again.n, lasts[l] + 1);
            assert_int_equal(again.lsns[lasts[l]], 4711);
        }
}

/* Its length was written, its bytes only in part: the last frame's checksum fails. */
static void test_last_frame_with_wrong_bytes(void **state)
{
    struct error err = {0};
    CLEANUP_BUF struct buf whole = {0};
    size_t ends[5];
    (void)state;
    write_sample(ends);
    assert_ok(file_read_all(path, 1 << 20, &whole, &err));
    for (size_t at = ends[3] + 4; at < ends[4]; at++) {
        CLEANUP_HEARD struct heard h = {0};
        whole.data[at] ^= 0x40;
        assert_ok(file_write_atomic(path, whole.data, whole.len, 0600, &err));
        whole.data[at] ^= 0x40;
        catalog_log_close(open_log(&h));
        assert_int_equal(h.n, 4);
        assert_int_equal(file_size(), ends[3]);
    }
}

/* Power loss: the file has grown, from some byte on nothing but zeros was written. */
static void test_zeros_at_the_end(void **state)
{
    struct error err = {0};
    CLEANUP_BUF struct buf whole = {0};
    size_t ends[5];
    (void)state;
    write_sample(ends);
    assert_ok(file_read_all(path, 1 << 20, &whole, &err));
    for (size_t from = ends[1]; from <= ends[4]; from++) {
        CLEANUP_HEARD struct heard h = {0}, again = {0};
        CLEANUP_BUF struct buf file = {0};
        size_t whole_frames = 2;
        while (whole_frames < 5 && ends[whole_frames] <= from)
            whole_frames++;
        buf_put(&file, whole.data, from);
        buf_put_zeros(&file, 4096);
        assert_ok(file_write_atomic(path, file.data, file.len, 0600, &err));
        struct catalog_log *log = open_log(&h);
        if (h.n == whole_frames + 1)
            whole_frames++; /* what is missing of the next one was zeros too */
        assert_int_equal(h.n, whole_frames);
        assert_int_equal(file_size(), ends[whole_frames - 1]);
        assert_ok(catalog_log_put_captured(log, 4711, &err));
        catalog_log_close(log);
        catalog_log_close(open_log(&again));
        assert_int_equal(again.n, whole_frames + 1);
        assert_int_equal(again.lsns[whole_frames], 4711);
    }
}

/* The disk is full in the middle of an entry, then has room again. */
static void test_failed_write(void **state)
{
    struct error err = {0};
    CLEANUP_HEARD struct heard h = {0}, again = {0};
    size_t ends[5];
    struct rlimit was, small;
    (void)state;
    write_sample(ends);
    struct catalog_log *log = open_log(&h);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    signal(SIGXFSZ, SIG_IGN);
    small = was;
    small.rlim_cur = ends[4] + 11; /* the frame's head and some of its body */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_not_equal(
        catalog_log_put_state(log, CATALOG_LOG_STOP, 16400, 960, "does not fit", &err), OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(file_size(), ends[4]);
    assert_ok(catalog_log_put_captured(log, 4711, &err));
    assert_ok(catalog_log_put_captured(log, 4712, &err));
    catalog_log_close(log);
    catalog_log_close(open_log(&again));
    assert_int_equal(again.n, 7);
    assert_int_equal(again.lsns[6], 4712);
}

/* Any byte of any frame but the last: an error that says where, and the file is left as it is. */
static void test_damage_in_the_middle(void **state)
{
    static const uint8_t flips[] = {0x01, 0x80};
    struct error err = {0};
    CLEANUP_BUF struct buf whole = {0};
    size_t ends[5];
    (void)state;
    write_sample(ends);
    assert_ok(file_read_all(path, 1 << 20, &whole, &err));
    for (size_t frame = 0; frame < 4; frame++) {
        size_t start = frame == 0 ? HEADER : ends[frame - 1];
        for (size_t at = start; at < ends[frame]; at++)
            for (size_t f = 0; f < LENGTH(flips); f++) {
                CLEANUP_HEARD struct heard h = {0};
                struct catalog_log *log = NULL;
                char where[40];
                whole.data[at] ^= flips[f];
                assert_ok(file_write_atomic(path, whole.data, whole.len, 0600, &err));
                whole.data[at] ^= flips[f];
                enum status st = catalog_log_open(path, hear, &h, &log, &err);
                if (st != ERR_DATA)
                    fail_msg("byte %zu (%zu of frame %zu) ^ 0x%02x is not noticed", at, at - start,
                             frame, flips[f]);
                assert_null(log);
                snprintf(where, sizeof where, "byte %zu", start);
                assert_non_null(strstr(err.message, where));
                assert_non_null(strstr(err.message, path));
                assert_int_equal(file_size(), whole.len);
            }
    }
}

static void append_frame(struct buf *file, const void *body, uint32_t len)
{
    buf_put_u32(file, len);
    buf_put_u32(file, crc32c(body, len));
    buf_put(file, body, len);
}

/* Frames whose checksum holds but which say nothing known. */
static void test_unknown_entries(void **state)
{
    static const struct {
        const char *body;
        uint32_t len;
    } bodies[] = {{"\x09", 1}, {"\x02\x01\x02", 3}, {"\x03\x01", 2}, {"\x01\x01", 2}};
    (void)state;
    for (size_t i = 0; i < LENGTH(bodies); i++) {
        struct error err = {0};
        CLEANUP_HEARD struct heard h = {0};
        CLEANUP_BUF struct buf file = {0};
        struct catalog_log *log = NULL;
        size_t ends[5];
        write_sample(ends);
        assert_ok(file_read_all(path, 1 << 20, &file, &err));
        append_frame(&file, bodies[i].body, bodies[i].len);
        assert_ok(file_write_atomic(path, file.data, file.len, 0600, &err));
        assert_int_equal(catalog_log_open(path, hear, &h, &log, &err), ERR_DATA);
        char where[40];
        snprintf(where, sizeof where, "byte %zu", ends[4]);
        assert_non_null(strstr(err.message, where));
    }
}

static void test_headers(void **state)
{
    struct error err = {0};
    CLEANUP_BUF struct buf whole = {0};
    struct catalog_log *log = NULL;
    CLEANUP_HEARD struct heard h = {0};
    size_t ends[5];
    (void)state;
    write_sample(ends);
    assert_ok(file_read_all(path, 1 << 20, &whole, &err));
    whole.data[8] = 2;
    assert_ok(file_write_atomic(path, whole.data, whole.len, 0600, &err));
    assert_int_equal(catalog_log_open(path, hear, &h, &log, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "version 2"));
    assert_non_null(strstr(err.message, path));
    assert_int_equal(file_size(), whole.len); /* the newer program's file is left alone */
    whole.data[8] = 1;
    whole.data[0] ^= 1;
    assert_ok(file_write_atomic(path, whole.data, whole.len, 0600, &err));
    assert_int_equal(catalog_log_open(path, hear, &h, &log, &err), ERR_DATA);
    assert_int_equal(h.n, 0);
    whole.data[0] ^= 1;
    /* killed while the file was made */
    for (size_t cut = 0; cut < HEADER; cut++) {
        assert_ok(file_write_atomic(path, whole.data, cut, 0600, &err));
        catalog_log_close(open_log(&h));
        assert_int_equal(h.n, 0);
        assert_int_equal(file_size(), HEADER);
    }
    assert_int_equal(catalog_log_open("/nonexistent/catalog.log", hear, &h, &log, &err),
                     ERR_CONFIG);
    assert_int_equal(err.sys_errno, 2);
}

static enum status refuse(void *ctx, const struct catalog_log_entry *e, struct error *err)
{
    (void)ctx;
    (void)e;
    return error_set(err, ERR_BUG, "not wanted");
}

static void test_reader_fails(void **state)
{
    struct error err = {0};
    struct catalog_log *log = NULL;
    size_t ends[5];
    (void)state;
    write_sample(ends);
    assert_int_equal(catalog_log_open(path, refuse, NULL, &log, &err), ERR_BUG);
    assert_null(log);
    assert_non_null(strstr(err.message, "not wanted"));
    assert_int_equal(file_size(), ends[4]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_append_after_reopen),
        cmocka_unit_test(test_long_reason),
        cmocka_unit_test(test_torn_tail),
        cmocka_unit_test(test_last_frame_with_wrong_bytes),
        cmocka_unit_test(test_zeros_at_the_end),
        cmocka_unit_test(test_failed_write),
        cmocka_unit_test(test_damage_in_the_middle),
        cmocka_unit_test(test_unknown_entries),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_reader_fails),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
