/* The segment archive: what is read is what was written, also across sealing, rewinding, reopening.
 */
#include "wal/archive.h"

#include "base/file.h"
#include "base/queue.h"
#include "builder.h"
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEGMENT ((uint64_t)1 << 20)
#define START ((XLogRecPtr)3 << 20)

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/walarchive.XXXXXX");
    return mkdtemp(dir) == NULL;
}
static int remove_dir(void **state)
{
    struct error err;
    (void)state;
    return file_remove_tree(dir, true, &err) == OK ? 0 : -1;
}

/* The byte that belongs at a position, for a version of the content. */
static uint8_t content(XLogRecPtr lsn, unsigned version)
{
    return (uint8_t)((lsn * 2654435761u) >> 20 ^ version);
}

static void write_range(struct wal_archive *a, XLogRecPtr from, XLogRecPtr to, unsigned version)
{
    static uint8_t chunk[77777];
    struct error err = {0};
    while (from < to) {
        size_t n = MIN(sizeof chunk, to - from);
        for (size_t i = 0; i < n; i++)
            chunk[i] = content(from + i, version);
        assert_ok(wal_archive_write(a, from, chunk, n, NULL, &err));
        from += n;
    }
    assert_ok(wal_archive_settle(a, &err));
}

static void check_range(struct wal_archive *a, struct wal_archive_cursor *c, XLogRecPtr from,
                        XLogRecPtr to, unsigned version)
{
    static uint8_t chunk[50001];
    struct error err = {0};
    (void)a;
    while (from < to) {
        size_t got;
        assert_ok(wal_archive_read(c, from, chunk, MIN(sizeof chunk, to - from), &got, &err));
        assert_true(got > 0);
        for (size_t i = 0; i < got; i++)
            if (chunk[i] != content(from + i, version))
                fail_msg("byte at %llx", (unsigned long long)(from + i));
        from += got;
    }
}

static struct wal_archive *open_archive(void)
{
    struct error err = {0};
    struct wal_archive *a = NULL;
    assert_ok(wal_archive_open(dir, SEGMENT, 1, &a, &err));
    return a;
}

static size_t count_files_of(const char *suffix, uint64_t *ret_bytes)
{
    size_t n = 0;
    DIR *d = opendir(dir);
    *ret_bytes = 0;
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        size_t len = strlen(e->d_name), want = strlen(suffix);
        struct stat st;
        if (len <= want || strcmp(e->d_name + len - want, suffix) != 0)
            continue;
        assert_int_equal(fstatat(dirfd(d), e->d_name, &st, 0), 0);
        *ret_bytes += (uint64_t)st.st_size;
        n++;
    }
    closedir(d);
    return n;
}

static size_t count_files(const char *suffix)
{
    uint64_t bytes;
    return count_files_of(suffix, &bytes);
}

static uint64_t count_bytes(const char *suffix)
{
    uint64_t bytes;
    count_files_of(suffix, &bytes);
    return bytes;
}

static void write_seal_reopen(void **state)
{
    (void)state;
    struct error err = {0};
    struct wal_archive *a = open_archive();
    assert_int_equal(wal_archive_written_lsn(a), 0);
    assert_int_equal(wal_archive_write(a, START + 1, "x", 1, NULL, &err), ERR_BUG);
    write_range(a, START, START + 3 * SEGMENT + 12345, 0);
    assert_int_equal(wal_archive_written_lsn(a), START + 3 * SEGMENT + 12345);
    assert_int_equal(wal_archive_sealed_lsn(a), START + 3 * SEGMENT);
    assert_int_equal(wal_archive_oldest_lsn(a), START);
    assert_int_equal(wal_archive_write(a, START + 9 * SEGMENT, "x", 1, NULL, &err), ERR_BUG);
    struct wal_archive_cursor *c = wal_archive_cursor_new(a);
    check_range(a, c, START, START + 3 * SEGMENT + 12345, 0);
    check_range(a, c, START + 70000, START + 90000, 0); /* backwards, into a sealed one */
    size_t got = 1;
    uint8_t byte;
    assert_ok(wal_archive_read(c, START + 3 * SEGMENT + 12345, &byte, 1, &got, &err));
    assert_int_equal(got, 0);
    assert_int_equal(wal_archive_read(c, START - 1, &byte, 1, &got, &err), ERR_DATA);
    wal_archive_set_limit(a, START + 100);
    assert_ok(wal_archive_read(c, START + 90, &byte, 1, &got, &err));
    assert_int_equal(got, 1);
    assert_ok(wal_archive_read(c, START + 100, &byte, 1, &got, &err));
    assert_int_equal(got, 0);
    wal_archive_cursor_free(c);
    uint64_t bytes = wal_archive_bytes(a);
    assert_true(bytes > count_bytes(".packed") && bytes < count_bytes(".packed") + 12345);
    wal_archive_close(a);

    a = open_archive(); /* the unfinished segment is not trusted */
    assert_int_equal(wal_archive_written_lsn(a), START + 3 * SEGMENT);
    assert_int_equal(wal_archive_oldest_lsn(a), START);
    assert_int_equal(wal_archive_bytes(a), count_bytes(".packed"));
    assert_int_equal(count_files(".partial"), 0);
    c = wal_archive_cursor_new(a);
    write_range(a, START + 3 * SEGMENT, START + 4 * SEGMENT + 5, 0);
    check_range(a, c, START, START + 4 * SEGMENT + 5, 0);
    wal_archive_cursor_free(c);
    wal_archive_close(a);
}

static void rewinds(void **state)
{
    (void)state;
    static const uint64_t back[] = {3 * SEGMENT + 100, 3 * SEGMENT, 2 * SEGMENT + 5000, SEGMENT, 0};
    struct wal_archive *a = open_archive();
    write_range(a, START, START + 3 * SEGMENT + 50000, 0);
    for (unsigned i = 0; i < LENGTH(back); i++) {
        struct wal_archive_cursor *c = wal_archive_cursor_new(a);
        check_range(a, c, START + 10, START + 20, i == 5 ? 1 : 0);
        write_range(a, START + back[i], START + 3 * SEGMENT + 50000, 1);
        check_range(a, c, START, START + back[i], 0);
        check_range(a, c, START + back[i], START + 3 * SEGMENT + 50000, 1);
        assert_int_equal(wal_archive_sealed_lsn(a), START + 3 * SEGMENT);
        assert_int_equal(count_files(".packed"), 3);
        wal_archive_cursor_free(c);
        write_range(a, START, START + 3 * SEGMENT + 50000, 0);
    }
    write_range(a, START - 2 * SEGMENT, START, 1); /* below the oldest: begins anew */
    assert_int_equal(wal_archive_oldest_lsn(a), START - 2 * SEGMENT);
    assert_int_equal(wal_archive_written_lsn(a), START);
    assert_int_equal(count_files(".packed"), 2);
    wal_archive_close(a);
}

static void trims(void **state)
{
    (void)state;
    struct error err = {0};
    struct wal_archive *a = open_archive();
    write_range(a, START, START + 5 * SEGMENT + 10, 0);
    uint64_t before = wal_archive_bytes(a);
    assert_ok(wal_archive_trim(a, START + SEGMENT, &err));
    assert_int_equal(wal_archive_oldest_lsn(a), START); /* the one before stays */
    assert_ok(wal_archive_trim(a, START + 3 * SEGMENT + 7, &err));
    assert_int_equal(wal_archive_oldest_lsn(a), START + 2 * SEGMENT);
    assert_int_equal(count_files(".packed"), 3);
    assert_true(wal_archive_bytes(a) < before);
    assert_ok(wal_archive_trim(a, UINT64_MAX, &err));
    assert_int_equal(wal_archive_oldest_lsn(a), START + 4 * SEGMENT);
    wal_archive_close(a);
    a = open_archive();
    assert_int_equal(wal_archive_oldest_lsn(a), START + 4 * SEGMENT);
    wal_archive_close(a);
}

static void leftovers_and_damage(void **state)
{
    (void)state;
    struct error err = {0};
    struct wal_archive *a = open_archive();
    write_range(a, START, START + 4 * SEGMENT, 0);
    wal_archive_close(a);
    char path[200];
    snprintf(path, sizeof path, "%s/000000010000000000000004.packed", dir); /* a gap */
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/000000010000000000000007.packed.tmp", dir);
    assert_ok(file_write_atomic(path, "half", 4, 0600, &err));
    a = open_archive();
    assert_int_equal(wal_archive_oldest_lsn(a), START + 2 * SEGMENT);
    assert_int_equal(wal_archive_sealed_lsn(a), START + 4 * SEGMENT);
    assert_int_equal(count_files(".packed"), 2);
    assert_int_equal(count_files(".tmp"), 0);
    snprintf(path, sizeof path, "%s/000000010000000000000006.packed", dir);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "damage", 6, 30), 6);
    assert_int_equal(ftruncate(fd, 60), 0);
    close(fd);
    struct wal_archive_cursor *c = wal_archive_cursor_new(a);
    enum status status = OK;
    uint8_t chunk[8192];
    size_t got = 1;
    for (XLogRecPtr at = START + 3 * SEGMENT; status == OK && got > 0; at += got)
        status = wal_archive_read(c, at, chunk, sizeof chunk, &got, &err);
    assert_int_equal(status, ERR_DATA);
    assert_non_null(strstr(err.message, "000000010000000000000006"));
    wal_archive_cursor_free(c);
    wal_archive_close(a);
}

struct follower {
    struct wal_archive *a;
    XLogRecPtr until;
    size_t bad;
    enum status status;
};

static void *follow(void *arg)
{
    struct follower *f = arg;
    struct error err;
    struct wal_archive_cursor *c = wal_archive_cursor_new(f->a);
    uint8_t chunk[30000];
    for (XLogRecPtr at = START; at < f->until && f->status == OK;) {
        size_t got = 0;
        wal_archive_wait(f->a, at, UINT64_MAX);
        f->status = wal_archive_read(c, at, chunk, sizeof chunk, &got, &err);
        for (size_t i = 0; i < got; i++)
            f->bad += chunk[i] != content(at + i, 0);
        at += got;
    }
    wal_archive_cursor_free(c);
    return NULL;
}

/* A reader follows the writer through sealed and unfinished segments without missing a byte. */
static void reader_follows(void **state)
{
    (void)state;
    struct wal_archive *a = open_archive();
    struct follower f = {.a = a, .until = START + 6 * SEGMENT + 4321};
    write_range(a, START, START + 1, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, follow, &f);
    write_range(a, START + 1, f.until, 0);
    pthread_join(thread, NULL);
    assert_int_equal(f.status, OK);
    assert_int_equal(f.bad, 0);
    uint64_t begun = clock_now_ns();
    assert_int_equal(wal_archive_wait(a, f.until, begun + 20000000), f.until); /* deadline */
    assert_true(clock_now_ns() - begun >= 20000000);
    wal_archive_close(a);
}

/* A reader that has the unfinished form open is not disturbed when it is sealed and removed, and
 * reads an unfinished segment from any place in it, also what is not a whole page yet. */
static void reader_across_sealing(void **state)
{
    (void)state;
    struct wal_archive *a = open_archive();
    write_range(a, START, START + 20000, 0);
    struct wal_archive_cursor *c = wal_archive_cursor_new(a);
    check_range(a, c, START + 100, START + 500, 0);
    for (XLogRecPtr at = START + 19999; at > START + 700; at -= 997)
        check_range(a, c, at, MIN(at + 9000, START + 20000), 0);
    write_range(a, START + 20000, START + SEGMENT, 0);
    assert_int_equal(count_files(".partial"), 0);
    check_range(a, c, START + 500, START + SEGMENT, 0);
    write_range(a, START + SEGMENT, START + 2 * SEGMENT - 7, 0);
    check_range(a, c, START + 500, START + 2 * SEGMENT - 7, 0);
    wal_archive_cursor_free(c);
    wal_archive_close(a);
}

/* Bytes are taken back within the unfinished segment: at a page's start, within a whole page,
 * within the page that is not whole. */
static void rewinds_within(void **state)
{
    (void)state;
    static const uint64_t back[] = {20000, 16384, 16383, 9000, 8192, 8191, 1, 0};
    struct wal_archive *a = open_archive();
    struct wal_archive_cursor *c = wal_archive_cursor_new(a);
    write_range(a, START, START + 20001, 0);
    for (unsigned i = 0; i < LENGTH(back); i++) {
        write_range(a, START + back[i], START + back[i] + 1, 1);
        check_range(a, c, START, START + back[i], 0);
        check_range(a, c, START + back[i], START + back[i] + 1, 1);
        assert_int_equal(wal_archive_written_lsn(a), START + back[i] + 1);
        write_range(a, START + back[i], START + 20001, 0);
        check_range(a, c, START, START + 20001, 0);
    }
    wal_archive_cursor_free(c);
    wal_archive_close(a);
}

/* The record that crosses a segment boundary is found, also if it began segments earlier. */
static void straddles(void **state)
{
    (void)state;
    struct error err = {0};
    static uint8_t body[2500000];
    struct rel_file_locator none = {0};
    struct wal_archive *a = open_archive();
    struct builder b = {.major = 17, .segment_bytes = SEGMENT, .start = START};
    XLogRecPtr starts[3];
    while (b.wal.len < SEGMENT - 9000)
        builder_record(&b, RM_XLOG_ID, 0x30, 0, none, body, 4000);
    builder_fill_page(&b, 400);
    starts[0] = b.start + b.wal.len;
    builder_record(&b, RM_XLOG_ID, 0x20, 0, none, body, 60000);
    builder_fill_page(&b, 4000);
    while (b.wal.len < 2 * SEGMENT - 9000)
        builder_record(&b, RM_XLOG_ID, 0x30, 0, none, body, 4000);
    while (b.wal.len / PG_XLOG_BLCKSZ % 128 != 127 || b.wal.len % PG_XLOG_BLCKSZ == 0)
        builder_record(&b, RM_XLOG_ID, 0x30, 0, none, body, 3);
    builder_fill_page(&b, 16);
    starts[1] = b.start + b.wal.len;
    builder_record(&b, RM_HEAP_ID, 0x00, 0, none, body, 500);
    builder_fill_page(&b, 4000);
    starts[2] = b.start + b.wal.len;
    builder_record(&b, RM_HEAP_ID, 0x00, 0, none, body, sizeof body);
    while (b.wal.len < 6 * SEGMENT)
        builder_record(&b, RM_XLOG_ID, 0x30, 0, none, body, 4000);
    assert_ok(wal_archive_write(a, START, b.wal.data, b.wal.len, NULL, &err));
    assert_ok(wal_archive_settle(a, &err));
    static const struct {
        unsigned at, start;
        enum wal_straddle straddle;
        uint64_t passed;
    } want[] = {{1, 0, WAL_STRADDLE_NOOP, 0},
                {2, 1, WAL_STRADDLE_UNKNOWN, 16},
                {3, 2, WAL_STRADDLE_FORWARD, 0},
                {4, 2, WAL_STRADDLE_FORWARD, 0}};
    for (size_t i = 0; i < LENGTH(want); i++) {
        enum wal_straddle straddle;
        struct wal_straddle_head head;
        XLogRecPtr lsn = START + want[i].at * SEGMENT;
        assert_ok(wal_archive_straddle_head(a, lsn, &straddle, &head, &err));
        assert_int_equal(straddle, want[i].straddle);
        assert_int_equal(head.start, starts[want[i].start]);
        if (want[i].passed != 0)
            assert_int_equal(head.passed, want[i].passed);
        assert_memory_equal(head.head, b.wal.data + (head.start - START), MIN(16, head.head_len));
        enum wal_straddle again;
        assert_ok(wal_archive_straddle(a, lsn, &again, &err));
        assert_int_equal(again, straddle);
    }
    wal_archive_close(a);
    buf_free(&b.wal);
}

static void full_disk_is_clear(void **state)
{
    (void)state;
    struct error err = {0};
    struct wal_archive *a = NULL;
    /* /dev/full makes any write fail as a full disk does */
    assert_ok(wal_archive_open(dir, SEGMENT, 1, &a, &err));
    char path[200];
    snprintf(path, sizeof path, "%s/000000010000000000000003.partial", dir);
    assert_int_equal(symlink("/dev/full", path), 0);
    static const uint8_t pages[9000];
    assert_int_equal(wal_archive_write(a, START, pages, sizeof pages, NULL, &err), ERR_CONFIG);
    assert_int_equal(err.sys_errno, ENOSPC);
    assert_non_null(strstr(err.message, "full"));
    assert_non_null(strstr(err.message, dir));
    wal_archive_close(a);
}

int main(void)
{
#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        IN_DIR(write_seal_reopen),     IN_DIR(rewinds),        IN_DIR(trims),
        IN_DIR(leftovers_and_damage),  IN_DIR(reader_follows), IN_DIR(straddles),
        IN_DIR(reader_across_sealing), IN_DIR(rewinds_within), IN_DIR(full_disk_is_clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
