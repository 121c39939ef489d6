/* Files: atomic writes, bounded reads, trees. */
#include "test.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/walshadow-file-XXXXXX";

static char *path_of(const char *name)
{
    return xasprintf("%s/%s", dir, name);
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) == NULL;
}

static int teardown(void **state)
{
    struct error err = {0};
    (void)state;
    return file_remove_tree(dir, true, &err) != OK;
}

static void assert_content(const char *path, const void *want, size_t len)
{
    struct error err = {0};
    CLEANUP_BUF struct buf b = {0};
    assert_ok(file_read_all(path, 1 << 20, &b, &err));
    assert_int_equal(b.len, len);
    assert_memory_equal(b.data, want, len);
}

static void test_write_atomic(void **state)
{
    struct error err = {0};
    struct stat st;
    CLEANUP_FREE char *path = path_of("a"), *tmp = path_of("a.tmp");
    (void)state;
    assert_ok(file_write_atomic(path, "one\0two", 7, 0600, &err));
    assert_content(path, "one\0two", 7);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_false(file_exists(tmp));
    /* what a killed writer left behind is no obstacle */
    assert_ok(file_write_atomic(tmp, "garbage that is longer", 22, 0600, &err));
    assert_ok(file_write_atomic(path, "3", 1, 0600, &err));
    assert_content(path, "3", 1);
    assert_false(file_exists(tmp));
    assert_ok(file_write_atomic(path, "", 0, 0600, &err));
    assert_content(path, "", 0);
}

static void test_failed_write_leaves_nothing(void **state)
{
    struct error err = {0};
    CLEANUP_FREE char *missing = path_of("no/such/file"), *target = path_of("d"),
                      *inside = path_of("d/x"), *tmp = path_of("d.tmp");
    (void)state;
    assert_int_equal(file_write_atomic(missing, "x", 1, 0600, &err), ERR_RETRY);
    assert_int_equal(err.sys_errno, ENOENT);
    assert_ok(file_mkdir_p(target, 0700, &err));
    assert_ok(file_write_atomic(inside, "kept", 4, 0600, &err));
    assert_int_equal(file_write_atomic(target, "x", 1, 0600, &err), ERR_RETRY); /* a directory */
    assert_false(file_exists(tmp));
    assert_content(inside, "kept", 4);
}

static void test_read_all(void **state)
{
    struct error err = {0};
    CLEANUP_FREE char *path = path_of("r"), *missing = path_of("missing");
    CLEANUP_BUF struct buf b = {0};
    (void)state;
    assert_ok(file_write_atomic(path, "0123456789", 10, 0600, &err));
    buf_put(&b, "before ", 7);
    assert_ok(file_read_all(path, 10, &b, &err)); /* exactly the bound */
    assert_int_equal(b.len, 17);
    assert_memory_equal(b.data, "before 0123456789", 17);
    assert_int_equal(file_read_all(path, 9, &b, &err), ERR_DATA);
    assert_int_equal(b.len, 17);
    assert_int_not_equal(file_read_all(missing, 9, &b, &err), OK);
    assert_int_equal(err.sys_errno, ENOENT);
    assert_non_null(strstr(err.message, missing));
    assert_int_equal(file_read_all(dir, 1 << 20, &b, &err), ERR_DATA);
}

static void test_pread(void **state)
{
    struct error err = {0};
    CLEANUP_FREE char *path = path_of("p");
    char bytes[8];
    (void)state;
    assert_ok(file_write_atomic(path, "0123456789", 10, 0600, &err));
    CLEANUP_FD int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_ok(file_pread_all(fd, bytes, 4, 6, "p", &err));
    assert_memory_equal(bytes, "6789", 4);
    assert_int_equal(file_pread_all(fd, bytes, 8, 6, "p", &err), ERR_DATA);
    assert_string_equal(err.message, "p ends at byte 10, 4 more were expected");
    assert_ok(file_pwrite_all(fd, "xy", 2, 12, "p", &err)); /* a hole before it reads as zeros */
    assert_content(path, "0123456789\0\0xy", 14);
}

static void test_trees(void **state)
{
    struct error err = {0};
    CLEANUP_FREE char *deep = path_of("t/u/v"), *top = path_of("t"), *file = path_of("t/u/f"),
                      *outside = path_of("outside"), *kept = path_of("outside/kept"),
                      *link_path = path_of("t/u/link"), *below_file = path_of("t/u/f/g");
    (void)state;
    assert_ok(file_mkdir_p(deep, 0700, &err));
    assert_ok(file_mkdir_p(deep, 0700, &err));
    assert_ok(file_write_atomic(file, "x", 1, 0600, &err));
    assert_int_equal(file_mkdir_p(below_file, 0700, &err), ERR_CONFIG);
    *strrchr(below_file, '/') = '\0'; /* the regular file itself */
    assert_int_equal(file_mkdir_p(below_file, 0700, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, below_file));
    assert_int_equal(err.sys_errno, EEXIST);
    assert_ok(file_mkdir_p(outside, 0700, &err));
    assert_ok(file_write_atomic(kept, "x", 1, 0600, &err));
    assert_int_equal(symlink(outside, link_path), 0);
    assert_ok(file_sync_tree(top, &err)); /* a link is none of it */
    assert_int_equal(file_sync_tree(below_file, &err), OK);
    assert_int_equal(chmod(file, 0), 0);
    if (geteuid() != 0) {
        assert_int_equal(file_sync_tree(top, &err), ERR_CONFIG);
        assert_non_null(strstr(err.message, top));
    }
    assert_ok(file_remove_tree(top, false, &err));
    assert_true(file_exists(top));
    assert_false(file_exists(deep));
    assert_true(file_exists(kept)); /* links are removed, not followed */
    assert_ok(file_remove_tree(top, true, &err));
    assert_false(file_exists(top));
    assert_ok(file_remove_tree(top, true, &err));
    assert_int_equal(file_sync_tree(top, &err), ERR_CONFIG);
    assert_ok(file_fsync_dir(dir, &err));
    assert_int_equal(file_fsync_dir(top, &err), ERR_RETRY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_atomic), cmocka_unit_test(test_failed_write_leaves_nothing),
        cmocka_unit_test(test_read_all),     cmocka_unit_test(test_pread),
        cmocka_unit_test(test_trees),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
