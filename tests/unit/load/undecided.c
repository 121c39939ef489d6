#include "base/file.h"
#include "load/load_internal.h"
#include "load/undecided_file.h"
#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

#define RELS 3

static char dir[] = "/tmp/undecided-test-XXXXXX";

static struct load_rel *rels_make(void)
{
    struct load_rel *rels = xcalloc(RELS, sizeof *rels);
    for (unsigned i = 0; i < RELS; i++) {
        struct rel_desc *d = rel_desc_new(0);
        d->oid = 20000 + i / 2; /* the second is the TOAST table of the first */
        rel_desc_seal(d);
        rels[i].desc = d;
        rels[i].chunks = i == 1;
    }
    return rels;
}

static void rels_drop(struct load_rel *rels)
{
    for (unsigned i = 0; i < RELS; i++)
        rel_desc_unref(rels[i].desc);
    free(rels);
}

static struct load_rel *find(void *ctx, Oid oid, bool chunks)
{
    struct load_rel *rels = ctx;
    for (unsigned i = 0; i < RELS; i++)
        if (rels[i].desc->oid == oid && rels[i].chunks == chunks)
            return &rels[i];
    return NULL;
}

static struct load_rel *find_first(void *ctx, Oid oid, bool chunks)
{
    struct load_rel *rels = ctx;
    return oid == rels->desc->oid && !chunks ? rels : NULL;
}

static void fill(struct undecided *u, struct load_rel *rels, unsigned n)
{
    uint8_t body[400];
    struct error err;
    for (unsigned i = 0; i < n; i++) {
        bool added;
        struct undecided_tuple t = {.tid = i, .deleter = i % 3 == 0 ? 300 + i % 7 : 0};
        t.tuple.xmin = 100 + i % 5;
        t.tuple.xmax = i;
        t.tuple.ctid_block = i / 60;
        t.tuple.ctid_offset = (OffsetNumber)(i % 60);
        t.tuple.raw = (struct raw_tuple){.infomask2 = 3,
                                         .infomask = (uint16_t)i,
                                         .hoff = 24,
                                         .body_len = 1 + i % sizeof body,
                                         .body = body};
        memset(body, (int)i, sizeof body);
        assert_ok(undecided_add(u, &rels[i % RELS], (struct awaited){i % 2, 300 + i % 7}, &t,
                                &added, &err));
        assert_true(added);
    }
}

/* All of it as text, a line a tuple, in the order of TIDs. */
static void dump(struct undecided *u, struct buf *out)
{
    CLEANUP_FREE struct awaited *list = NULL;
    size_t n = undecided_awaited(u, &list);
    char **lines = xcalloc(5000, sizeof *lines);
    struct error err;
    for (size_t i = 0; i < n; i++)
        for (;;) {
            struct load_rel *rel = NULL;
            uint8_t *rows;
            size_t len, pos = 0;
            uint64_t count, seen = 0;
            struct undecided_tuple t;
            bool more = true;
            assert_ok(undecided_take(u, list[i], &rel, &rows, &len, &count, &err));
            if (rows == NULL)
                break;
            for (;; seen++) {
                assert_ok(undecided_next(rows, len, &pos, &more, &t, &err));
                if (!more)
                    break;
                assert_true(t.tid < 5000 && lines[t.tid] == NULL);
                lines[t.tid] = xasprintf(
                    "%llu %u/%d %u:%u %u %u %u %u.%u %x %x %u %u %x\n", (unsigned long long)t.tid,
                    rel->desc->oid, rel->chunks, list[i].kind, list[i].number, t.deleter,
                    t.tuple.xmin, t.tuple.xmax, t.tuple.ctid_block, t.tuple.ctid_offset,
                    t.tuple.raw.infomask, t.tuple.raw.infomask2, t.tuple.raw.hoff,
                    t.tuple.raw.body_len, t.tuple.raw.body[t.tuple.raw.body_len - 1]);
            }
            assert_int_equal(seen, count);
            free(rows);
        }
    for (unsigned i = 0; i < 5000; i++) {
        if (lines[i] != NULL)
            buf_printf(out, "%s", lines[i]);
        free(lines[i]);
    }
    free(lines);
    assert_int_equal(undecided_count(u), 0);
}

/* In memory and spilled: what a file gives back is what was there, and the store keeps it too. */
static void test_file(void **state)
{
    (void)state;
    for (unsigned spills = 0; spills < 2; spills++) {
        CLEANUP_FREE char *path = xasprintf("%s/undecided-%u", dir, spills);
        CLEANUP_BUF struct buf want = {0}, got = {0};
        struct fates *fates = fates_new();
        struct load_rel *rels = rels_make();
        struct undecided *u = undecided_new(fates, dir, spills ? 10000 : 1u << 30),
                         *again = undecided_new(fates, dir, 20000);
        struct error err;
        uint64_t left_out;
        fill(u, rels, 4000);
        uint64_t version = undecided_version(u);
        assert_int_equal(undecided_spilled_bytes(u) > 0, spills);
        assert_ok(undecided_file_write(u, path, &err));
        assert_int_equal(undecided_version(u), version);
        assert_ok(undecided_file_read(again, path, find, rels, &left_out, &err));
        assert_int_equal(left_out, 0);
        assert_int_equal(undecided_count(again), 4000);
        dump(u, &want);
        assert_true(undecided_version(u) != version);
        dump(again, &got);
        assert_string_equal(buf_cstr(&got), buf_cstr(&want));
        assert_ok(undecided_file_read(again, path, find_first, rels, &left_out, &err));
        assert_int_equal(left_out + undecided_count(again), 4000);
        assert_int_equal(undecided_count(again), 1334);
        undecided_free(u);
        undecided_free(again);
        fates_free(fates);
        rels_drop(rels);
    }
}

static enum status read_bytes(const uint8_t *bytes, size_t len, struct error *err)
{
    CLEANUP_FREE char *path = xasprintf("%s/damaged", dir);
    struct fates *fates = fates_new();
    struct load_rel *rels = rels_make();
    struct undecided *u = undecided_new(fates, dir, 1u << 20);
    uint64_t left_out;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
    enum status st = undecided_file_read(u, path, find, rels, &left_out, err);
    undecided_free(u);
    fates_free(fates);
    rels_drop(rels);
    return st;
}

/* No bit of it may change, and no byte be missing, without notice. */
static void test_damage(void **state)
{
    CLEANUP_FREE char *path = xasprintf("%s/small", dir);
    CLEANUP_BUF struct buf bytes = {0};
    struct fates *fates = fates_new();
    struct load_rel *rels = rels_make();
    struct undecided *u = undecided_new(fates, dir, 1u << 20);
    struct error err = {0};
    (void)state;
    fill(u, rels, 3);
    assert_ok(undecided_file_write(u, path, &err));
    assert_ok(file_read_all(path, 1u << 20, &bytes, &err));
    assert_ok(read_bytes(bytes.data, bytes.len, &err));
    for (size_t i = 0; i < bytes.len; i++) {
        assert_int_not_equal(read_bytes(bytes.data, i, &err), OK);
        for (unsigned bit = 1; bit < 256; bit *= 16) {
            bytes.data[i] ^= (uint8_t)bit;
            assert_int_not_equal(read_bytes(bytes.data, bytes.len, &err), OK);
            bytes.data[i] ^= (uint8_t)bit;
        }
    }
    undecided_free(u);
    fates_free(fates);
    rels_drop(rels);
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) == NULL;
}

static int teardown(void **state)
{
    struct error err;
    (void)state;
    return file_remove_tree(dir, true, &err) != OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
