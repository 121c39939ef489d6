/* Places of chunks: the same answers from memory and from the file; damage is named. */
#include "test.h"

#include "pipeline/place_index.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

static char dir[] = "/tmp/walshadow-places-XXXXXX";

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) == NULL;
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(dir); /* the file has no name: nothing is left in it */
}

#define KEYS 40u
#define CHUNKS 3000u

/* Chunk i belongs to a key drawn by i; the model is a walk over all of them. */
static struct place_key key_of(uint32_t i)
{
    uint32_t drawn = i * 2654435761u >> 16;
    return (struct place_key){.owner = 100 + drawn % 3, .value_id = 7000 + i / 500 + drawn % KEYS};
}

static struct xact_place place_of(uint32_t i)
{
    return (struct xact_place){.stream = i % 2, .len = i, .offset = (uint64_t)i << 33};
}

static void assert_all_found(struct place_index *p, uint32_t n)
{
    struct error err = {0};
    for (uint32_t k = 0; k < n; k += 7) {
        const struct place_entry *found;
        size_t nfound, at = 0;
        struct place_key key = key_of(k);
        assert_ok(place_index_find(p, key, &found, &nfound, &err));
        for (uint32_t i = 0; i < n; i++) {
            struct place_key its = key_of(i);
            if (its.owner != key.owner || its.value_id != key.value_id)
                continue;
            assert_true(at < nfound);
            assert_int_equal(found[at].seq, i);
            assert_int_equal(found[at].place.len, place_of(i).len);
            assert_int_equal(found[at].place.stream, place_of(i).stream);
            assert_true(found[at].place.offset == place_of(i).offset);
            at++;
        }
        assert_int_equal(at, nfound);
    }
}

static void test_memory_and_file(void **state)
{
    static const size_t limits[] = {1, 64, 1000, 20000, PLACE_INDEX_MAX_BYTES};
    (void)state;
    for (size_t l = 0; l < LENGTH(limits); l++) {
        struct error err = {0};
        struct place_index *p = place_index_new(dir, limits[l]);
        for (int round = 0; round < 2; round++) { /* again after it was cleared */
            uint32_t n = l == 0 ? 200 : CHUNKS;
            assert_true(place_index_is_empty(p));
            for (uint32_t i = 0; i < n; i++)
                assert_ok(place_index_add(p, key_of(i), i, place_of(i), &err));
            assert_false(place_index_is_empty(p));
            assert_all_found(p, n);
            const struct place_entry *found;
            size_t nfound;
            struct place_key none = {.owner = 1, .value_id = 7000};
            assert_ok(place_index_find(p, none, &found, &nfound, &err));
            assert_int_equal(nfound, 0);
            place_index_clear(p);
        }
        place_index_free(p);
    }
    place_index_free(NULL);
}

/* The descriptor of the nameless file, found as the system shows it. */
static int file_of_index(void)
{
    DIR *fds = opendir("/proc/self/fd");
    int fd = -1;
    for (struct dirent *e; fds != NULL && (e = readdir(fds)) != NULL;) {
        char link[64], to[200];
        snprintf(link, sizeof link, "/proc/self/fd/%.20s", e->d_name);
        ssize_t n = readlink(link, to, sizeof to - 1);
        if (n > 0 && (to[n] = '\0', strncmp(to, dir, strlen(dir)) == 0))
            fd = atoi(e->d_name);
    }
    closedir(fds);
    return fd;
}

static void test_damage(void **state)
{
    static const off_t bytes[] = {0, 4, 8 + 17};
    (void)state;
    for (size_t b = 0; b < LENGTH(bytes); b++) {
        struct error err = {0};
        struct place_index *p = place_index_new(dir, 1000);
        const struct place_entry *found;
        size_t n;
        for (uint32_t i = 0; i < 200; i++)
            assert_ok(place_index_add(p, (struct place_key){1, 5}, i, place_of(i), &err));
        int fd = file_of_index();
        assert_true(fd >= 0);
        uint8_t byte;
        assert_int_equal(pread(fd, &byte, 1, bytes[b]), 1);
        byte ^= 0x40;
        assert_int_equal(pwrite(fd, &byte, 1, bytes[b]), 1);
        assert_int_equal(place_index_find(p, (struct place_key){1, 5}, &found, &n, &err), ERR_DATA);
        place_index_free(p);
    }
}

static void test_no_directory(void **state)
{
    struct error err = {0};
    struct place_index *p = place_index_new("/nonexistent/spill", 1);
    (void)state;
    assert_ok(place_index_add(p, (struct place_key){1, 1}, 0, place_of(0), &err));
    assert_int_equal(place_index_add(p, (struct place_key){1, 1}, 1, place_of(1), &err),
                     ERR_CONFIG);
    place_index_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_and_file),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_no_directory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
