/* The local store's file: reclaim, durability, damage, a full disk, threads. */
#include "toast_events.h"

#include <fcntl.h>
#include <lmdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static uint64_t file_blocks(void)
{
    char path[100];
    struct stat file;
    snprintf(path, sizeof path, "%s/data.mdb", toast_dir);
    assert_int_equal(stat(path, &file), 0);
    return (uint64_t)file.st_blocks * 512;
}

/* Grows by itself; deaths and resets past the floor give the room back; what lives stays. */
static void test_reclaim(void **state)
{
    enum { N = 8000 };
    struct toast_stats full, after;
    (void)state;
    toast_dir_make();
    struct toast_store *s = toast_open(0, 0);
    put_many(s, 1, N, 1000);
    put_many(s, 2, N, 100000);
    assert_ok(toast_store_sync(s, 200000, &err));
    assert_ok(toast_store_stats(s, &full, &err));
    assert_int_equal(full.chunks, 2 * N);
    assert_true(file_blocks() >= 2ull * N * 2000);
    for (uint32_t i = 0; i < N; i++)
        if (i % 100 != 0)
            put(s, death(1, i + 1, 200000 + i));
    put(s, reset(2, 300000));
    assert_ok(toast_store_sync(s, 200000, &err));
    assert_ok(toast_store_reclaim(s, 200000, &err)); /* nothing died before it */
    assert_ok(toast_store_stats(s, &after, &err));
    assert_int_equal(after.chunks, 2 * N);
    for (uint32_t i = 0; i < N; i += 10)
        assert_int_equal(look_many(s, 1, i, 199999), TOAST_FOUND);
    assert_ok(toast_store_sync(s, 400000, &err));
    assert_ok(toast_store_reclaim(s, 400000, &err));
    assert_ok(toast_store_stats(s, &after, &err));
    assert_int_equal(after.chunks, N / 100);
    assert_int_equal(after.deaths, 0);
    assert_int_equal(after.reclaimed_chunks, 2 * N - N / 100);
    assert_true(after.used_bytes < full.used_bytes / 10);
    /* the pages that the last transaction freed are still there */
    assert_true(file_blocks() < full.disk_bytes / 4);
    assert_true(after.disk_bytes < full.disk_bytes / 4);
    for (unsigned round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < N; i += 50)
            assert_int_equal(look_many(s, 1, i, 400000),
                             i % 100 == 0 ? TOAST_FOUND : TOAST_MISSING);
        assert_int_equal(look_many(s, 2, 5, 400000), TOAST_MISSING);
        toast_store_close(s);
        s = toast_open(0, 0);
    }
    /* the room is used again */
    put_many(s, 3, N, 500000);
    assert_ok(toast_store_sync(s, UINT64_MAX, &err));
    for (uint32_t i = 0; i < N; i += 10)
        assert_int_equal(look_many(s, 3, i, 600000), TOAST_FOUND);
    assert_true(file_blocks() < full.disk_bytes);
    toast_store_close(s);
    toast_dir_remove();
}

/* What no sync promised may be gone after a close, what one promised not. */
static void test_sync_promises(void **state)
{
    struct toast_stats stats;
    bool created;
    struct toast_local_options o = {.dir = toast_dir};
    struct toast_store *s;
    (void)state;
    toast_dir_make();
    assert_ok(toast_store_open_local(&o, &s, &created, &err));
    assert_true(created);
    put(s, birth(1, 7, 0, 1, 100, "kept"));
    assert_ok(toast_store_sync(s, 100, &err)); /* not before it */
    assert_ok(toast_store_stats(s, &stats, &err));
    assert_int_equal(stats.chunks, 0);
    assert_true(stats.pending_bytes > 0);
    assert_ok(toast_store_sync(s, 101, &err));
    assert_ok(toast_store_stats(s, &stats, &err));
    assert_int_equal(stats.chunks, 1);
    assert_int_equal(stats.pending_bytes, 0);
    put(s, birth(1, 8, 0, 2, 200, "not kept"));
    toast_store_close(s);
    assert_ok(toast_store_open_local(&o, &s, &created, &err));
    assert_false(created);
    assert_value(s, 1, 7, 300, "kept");
    assert_not(s, 1, 8, 300, 8, TOAST_MISSING);
    toast_store_close(s);
    toast_dir_remove();
}

static void expect_open(enum status want, const char *text)
{
    struct toast_local_options o = {.dir = toast_dir};
    struct toast_store *s;
    err = (struct error){0};
    enum status st = toast_store_open_local(&o, &s, NULL, &err);
    assert_int_equal(st, want);
    if (strstr(err.message, text) == NULL || strstr(err.message, toast_dir) == NULL)
        fail_msg("'%s' does not name the store and say '%s'", err.message, text);
}

static void with_file(void (*change)(int fd, off_t size))
{
    char path[100];
    snprintf(path, sizeof path, "%s/data.mdb", toast_dir);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    change(fd, lseek(fd, 0, SEEK_END));
    close(fd);
}

static void empty_file(int fd, off_t size)
{
    (void)size;
    assert_int_equal(ftruncate(fd, 0), 0);
}

static void cut_file(int fd, off_t size)
{
    assert_int_equal(ftruncate(fd, size / 2), 0);
}

static void break_meta(int fd, off_t size)
{
    char zeros[8192] = {0};
    (void)size;
    assert_int_equal(pwrite(fd, zeros, sizeof zeros, 0), sizeof zeros);
}

/* One bit in the data of each value, found by its content. */
static void flip_data(int fd, off_t size)
{
    uint8_t *all = malloc((size_t)size), want[64];
    assert_int_equal(pread(fd, all, (size_t)size, 0), size);
    for (uint32_t i = 0; i < 1000; i++) {
        toast_fill(want, 1 * 100003u + i, 0, sizeof want);
        uint8_t *at = memmem(all, (size_t)size, want, sizeof want);
        assert_non_null(at);
        at[33] ^= 4;
    }
    assert_int_equal(pwrite(fd, all, (size_t)size, 0), size);
    free(all);
}

static void make_some(void)
{
    toast_dir_make();
    struct toast_store *s = toast_open(0, 0);
    put_many(s, 1, 1000, 1000);
    assert_ok(toast_store_sync(s, UINT64_MAX, &err));
    toast_store_close(s);
}

static void test_damage_is_named(void **state)
{
    (void)state;
    make_some();
    with_file(flip_data);
    struct toast_store *s = toast_open(0, 0);
    uint8_t got[1996];
    enum toast_found found;
    assert_int_equal(toast_fetch(s, 1, 77, sizeof got, 5000, got, &found, &err), ERR_DATA);
    assert_int_equal(found, TOAST_UNANSWERED);
    assert_non_null(strstr(err.message, toast_dir));
    assert_non_null(strstr(err.message, "value 77"));
    toast_store_close(s);
    with_file(cut_file);
    expect_open(ERR_DATA, "damaged");
    with_file(break_meta);
    expect_open(ERR_DATA, "damaged");
    with_file(empty_file);
    expect_open(ERR_DATA, "damaged");
    char path[100];
    snprintf(path, sizeof path, "%s/data.mdb", toast_dir);
    assert_int_equal(unlink(path), 0);
    expect_open(ERR_DATA, "No such file");
    toast_dir_remove();
}

/* Through LMDB's own interface, as a newer walshadow would leave it. */
static void test_newer_format(void **state)
{
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    uint32_t version = 2;
    MDB_val key = {6, (char[]){"format"}}, value = {4, &version};
    (void)state;
    make_some();
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_set_maxdbs(env, 8), 0);
    assert_int_equal(mdb_env_open(env, toast_dir, 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, "meta", 0, &dbi), 0);
    assert_int_equal(mdb_put(txn, dbi, &key, &value, 0), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
    expect_open(ERR_CONFIG, "format 2");
    toast_dir_remove();
}

static void test_unusable_place(void **state)
{
    char dir[sizeof toast_dir];
    (void)state;
    toast_dir_make();
    strcpy(dir, toast_dir);
    assert_ok(file_write_atomic(dir, "x", 1, 0600, &err));
    strcat(toast_dir, "/x"); /* below a file */
    expect_open(ERR_CONFIG, "");
    toast_dir_remove();
}

/* A limit on the file's size stands for a full disk: an error, and what was there stays readable.
 */
static void fill_until_it_fails(void)
{
    struct rlimit limit = {4 << 20, 4 << 20};
    signal(SIGXFSZ, SIG_IGN);
    struct toast_store *s = toast_open(64 << 10, 0);
    struct toast_event e = birth(1, 7, 0, 1, 10, "before");
    uint8_t data[1996] = {1};
    char got[7] = "";
    enum toast_found found;
    enum status st = toast_store_put(s, &e, 1, &err);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        _exit(1);
    for (uint32_t i = 0; st == OK && i < 4000; i++) {
        e = birth(2, i, 0, i + 1, 100 + i, "");
        e.data = data;
        e.len = sizeof data;
        st = toast_store_put(s, &e, 1, &err);
    }
    if (st != ERR_CONFIG || strstr(err.message, toast_dir) == NULL ||
        strstr(err.message, "too large") == NULL)
        _exit(2);
    if (toast_store_sync(s, UINT64_MAX, &err) != ERR_CONFIG)
        _exit(3);
    if (toast_fetch(s, 1, 7, 6, 200, got, &found, &err) != OK || found != TOAST_FOUND ||
        memcmp(got, "before", 6) != 0)
        _exit(4);
    _exit(0);
}

static void test_full_disk(void **state)
{
    int status;
    (void)state;
    toast_dir_make();
    pid_t pid = fork();
    if (pid == 0)
        fill_until_it_fails();
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    struct toast_store *s = toast_open(0, 0);
    assert_value(s, 1, 7, 200, "before");
    toast_store_close(s);
    toast_dir_remove();
}

struct reader {
    struct toast_store *store;
    atomic_bool stop;
    atomic_uint bad, reads;
};

static void *read_all_the_time(void *arg)
{
    struct reader *r = arg;
    uint8_t got[1996], want[1996];
    struct error e = {0};
    for (uint32_t i = 0; !atomic_load(&r->stop); i = (i + 1) % 64) {
        enum toast_found found;
        toast_fill(want, 1 * 100003u + i, 0, sizeof want);
        if (toast_fetch(r->store, 1, i, sizeof got, 5000, got, &found, &e) != OK ||
            found != TOAST_FOUND || memcmp(got, want, sizeof want) != 0)
            atomic_fetch_add(&r->bad, 1);
        atomic_fetch_add(&r->reads, 1);
    }
    return NULL;
}

/* Readers beside a writer that writes, grows the map, reclaims and frees room. */
static void test_readers_beside_writer(void **state)
{
    pthread_t threads[3];
    (void)state;
    toast_dir_make();
    struct reader r = {.store = toast_open(256 << 10, 0)};
    put_many(r.store, 1, 64, 1000);
    for (unsigned i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, read_all_the_time, &r);
    for (XLogRecPtr lsn = 10000; lsn < 60000; lsn += 10000) {
        put_many(r.store, 2, 1500, lsn);
        put(r.store, reset(2, lsn + 5000));
        assert_ok(toast_store_sync(r.store, lsn + 6000, &err));
        assert_ok(toast_store_reclaim(r.store, lsn + 6000, &err));
    }
    while (atomic_load(&r.reads) < 1000)
        usleep(1000);
    atomic_store(&r.stop, true);
    for (unsigned i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&r.bad), 0);
    toast_store_close(r.store);
    toast_dir_remove();
}

/* Nothing of the owner is older than the reset, and it has more rows than one transaction looks at.
 */
static void test_reset_without_effect(void **state)
{
    struct toast_stats stats;
    (void)state;
    toast_dir_make();
    struct toast_store *s = toast_open(0, 1);
    put_many(s, 5, 500, 1000);
    put_many(s, 6, 10, 100);
    put(s, reset(5, 1000));
    put(s, reset(6, 1000));
    assert_ok(toast_store_sync(s, UINT64_MAX, &err));
    assert_ok(toast_store_reclaim(s, 5000, &err));
    assert_ok(toast_store_stats(s, &stats, &err));
    assert_int_equal(stats.chunks, 500);
    toast_store_close(s);
    toast_dir_remove();
}

static void *sync_all_the_time(void *arg)
{
    struct reader *r = arg;
    struct error e = {0};
    while (!atomic_load(&r->stop)) {
        if (toast_store_sync(r->store, UINT64_MAX, &e) != OK)
            atomic_fetch_add(&r->bad, 1);
        atomic_fetch_add(&r->reads, 1);
    }
    return NULL;
}

/* What is put is seen at once, at every stage of its way into the file. */
static void test_seen_while_written(void **state)
{
    enum { N = 1000, LIVES = 60 };
    pthread_t thread;
    uint8_t data[1996];
    (void)state;
    toast_dir_make();
    struct reader r = {.store = toast_open(0, 0)};
    pthread_create(&thread, NULL, sync_all_the_time, &r);
    for (uint32_t i = 0; i < N; i++) {
        struct toast_event e = birth(1, i, 0, i + 1, 1000 + 10 * i, "");
        toast_fill(data, 1 * 100003u + i, 0, sizeof data);
        e.data = data;
        e.len = sizeof data;
        put(r.store, e);
        if (i >= LIVES)
            put(r.store, death(1, i - LIVES + 1, 1005 + 10 * i));
        for (uint32_t back = 0; back < 2 * LIVES && back <= i; back += 7)
            assert_int_equal(look_many(r.store, 1, i - back, 1009 + 10 * i),
                             back < LIVES ? TOAST_FOUND : TOAST_MISSING);
    }
    atomic_store(&r.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&r.bad), 0);
    toast_store_close(r.store);
    toast_dir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reclaim),
        cmocka_unit_test(test_sync_promises),
        cmocka_unit_test(test_damage_is_named),
        cmocka_unit_test(test_newer_format),
        cmocka_unit_test(test_unusable_place),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_readers_beside_writer),
        cmocka_unit_test(test_reset_without_effect),
        cmocka_unit_test(test_seen_while_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
