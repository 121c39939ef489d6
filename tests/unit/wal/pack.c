/* Packed pages: what unpacks is what was packed, for filtered WAL, for any damage of it, for noise;
 * and filtered WAL shrinks. */
#include "wal/pack.h"

#include "golden.h"
#include "wal/catalog_filenodes.h"
#include "wal/filter.h"

struct sink {
    struct buf out;
};

static enum status on_output(void *ctx, XLogRecPtr lsn, const uint8_t *data, size_t len,
                             struct error *err)
{
    struct sink *s = ctx;
    (void)lsn, (void)err;
    buf_put(&s->out, data, len);
    return OK;
}

static struct buf filtered(const struct golden *g)
{
    struct error err = {0};
    struct sink sink = {0};
    struct catalog_filenodes *set = catalog_filenodes_new();
    struct wal_filter_options o = {.major = g->major,
                                   .segment_bytes = GOLDEN_SEGMENT,
                                   .system_id = g->system_id,
                                   .database = g->database,
                                   .filenodes = set,
                                   .ctx = &sink,
                                   .on_output = on_output};
    struct wal_filter *f = wal_filter_new(&o, g->start);
    assert_ok(wal_filter_feed(f, g->start, g->wal.data, g->wal.len, &err));
    assert_ok(wal_filter_finish(f, &err));
    wal_filter_free(f);
    catalog_filenodes_free(set);
    assert_int_equal(sink.out.len, g->wal.len);
    return sink.out;
}

/* Packs and unpacks [data, len) as the archive does; returns the packed size. */
static size_t round_trip(const uint8_t *data, size_t len, XLogRecPtr start)
{
    struct error err = {0};
    struct wal_packer in = {0}, out = {0};
    size_t total = 0;
    for (size_t at = 0; at < len; at += PG_XLOG_BLCKSZ) {
        uint8_t packed[WAL_PACKED_PAGE_MAX], page[PG_XLOG_BLCKSZ];
        if (at == 0 || (start + at) % GOLDEN_SEGMENT == 0) {
            wal_packer_begin(&in, GOLDEN_SEGMENT);
            wal_packer_begin(&out, GOLDEN_SEGMENT);
        }
        size_t n = wal_pack_page(&in, start + at, data + at, packed);
        assert_true(n <= sizeof packed);
        uint16_t announced;
        memcpy(&announced, packed, 2);
        assert_int_equal(announced + 2, n);
        assert_ok(wal_unpack_page(&out, start + at, packed + 2, n - 2, page, &err));
        assert_memory_equal(page, data + at, sizeof page);
        total += n;
    }
    noop_cache_fini(&in.noops);
    noop_cache_fini(&out.noops);
    return total;
}

static void filtered_wal(void **state)
{
    (void)state;
    for (unsigned major = 15; major <= 18; major++) {
        struct golden g;
        golden_load(&g, major);
        struct buf out = filtered(&g);
        size_t plain = round_trip(g.wal.data, g.wal.len, g.start);
        size_t packed = round_trip(out.data, out.len, g.start);
        assert_true(packed <
                    plain * 5 / 6); /* what is left is catalogs, in the window's small load */
        buf_free(&out);
        golden_free(&g);
    }
}

struct marked_sink {
    struct wal_filter *filter;
    XLogRecPtr start;
    struct buf out, packed;
    struct wal_packer packer;
    size_t pages;
};

/* Whole pages go at once, as the archive takes them. */
static enum status on_marked_output(void *ctx, XLogRecPtr lsn, const uint8_t *data, size_t len,
                                    struct error *err)
{
    struct marked_sink *s = ctx;
    (void)lsn, (void)err;
    buf_put(&s->out, data, len);
    s->packer.marks = wal_filter_marks(s->filter);
    for (; (s->pages + 1) * PG_XLOG_BLCKSZ <= s->out.len; s->pages++) {
        size_t at = s->pages * PG_XLOG_BLCKSZ;
        if ((s->start + at) % GOLDEN_SEGMENT == 0)
            wal_packer_begin(&s->packer, GOLDEN_SEGMENT);
        uint8_t *to = buf_reserve(&s->packed, WAL_PACKED_PAGE_MAX);
        s->packed.len += wal_pack_page(&s->packer, s->start + at, s->out.data + at, to);
    }
    return OK;
}

/* With the filter's word for what is a no-op: the same as looked at, whatever pieces it comes in.
 */
static void marked_wal(void **state)
{
    (void)state;
    for (unsigned major = 15; major <= 18; major++) {
        struct golden g;
        struct error err = {0};
        golden_load(&g, major);
        struct marked_sink s = {.start = g.start};
        struct catalog_filenodes *set = catalog_filenodes_new();
        struct wal_filter_options o = {.major = g.major,
                                       .segment_bytes = GOLDEN_SEGMENT,
                                       .system_id = g.system_id,
                                       .database = g.database,
                                       .filenodes = set,
                                       .ctx = &s,
                                       .on_output = on_marked_output};
        s.filter = wal_filter_new(&o, g.start);
        wal_packer_begin(&s.packer, GOLDEN_SEGMENT);
        srand(major);
        for (size_t at = 0, n; at < g.wal.len; at += n) {
            size_t piece = (size_t)rand() % 30000 + 1;
            n = MIN(g.wal.len - at, piece);
            assert_ok(wal_filter_feed(s.filter, g.start + at, g.wal.data + at, n, &err));
        }
        assert_ok(wal_filter_finish(s.filter, &err));
        assert_true(wal_filter_marks(s.filter)->taken > 100);
        struct wal_packer plain = {0};
        size_t compared = 0;
        wal_packer_begin(&plain, GOLDEN_SEGMENT);
        for (size_t i = 0; i < s.pages; i++) {
            uint8_t packed[WAL_PACKED_PAGE_MAX];
            size_t at = i * PG_XLOG_BLCKSZ;
            if ((g.start + at) % GOLDEN_SEGMENT == 0)
                wal_packer_begin(&plain, GOLDEN_SEGMENT);
            size_t n = wal_pack_page(&plain, g.start + at, s.out.data + at, packed);
            assert_true(compared + n <= s.packed.len);
            assert_memory_equal(s.packed.data + compared, packed, n);
            compared += n;
        }
        assert_int_equal(compared, s.packed.len);
        assert_int_equal(s.pages * PG_XLOG_BLCKSZ, g.wal.len);
        noop_cache_fini(&plain.noops);
        noop_cache_fini(&s.packer.noops);
        wal_filter_free(s.filter);
        catalog_filenodes_free(set);
        buf_free(&s.out);
        buf_free(&s.packed);
        golden_free(&g);
    }
}

/* More of them than there is room for, taken late, or never. */
static void marks(void **state)
{
    (void)state;
    static struct noop_marks m;
    for (uint32_t i = 0; i < NOOP_MARKS + 10; i++)
        noop_mark(&m, 1000 + 32 * i);
    assert_false(noop_take_mark(&m, 990));
    assert_true(noop_take_mark(&m, 1000));
    assert_true(noop_take_mark(&m, 1000 + 32));
    assert_false(noop_take_mark(&m, 1000 + 48));
    assert_true(noop_take_mark(&m, 1000 + 32 * (NOOP_MARKS - 1)));
    assert_false(noop_take_mark(&m, 1000 + 32 * NOOP_MARKS)); /* there was no room */
    noop_mark(&m, 1000 + 32 * (NOOP_MARKS + 11));
    assert_false(noop_take_mark(&m, 1000 + 32 * (NOOP_MARKS + 10)));
    assert_true(noop_take_mark(&m, 1000 + 32 * (NOOP_MARKS + 11)));
}

/* One bit of a page turned: never a record that "follows" from what it does not follow from. */
static void damaged_wal(void **state)
{
    (void)state;
    struct golden g;
    golden_load(&g, 15);
    struct buf out = filtered(&g);
    srand(1);
    for (int round = 0; round < 300; round++) {
        size_t page = (size_t)rand() % (out.len / PG_XLOG_BLCKSZ) * PG_XLOG_BLCKSZ;
        size_t len = MIN(out.len - page, 2 * PG_XLOG_BLCKSZ);
        uint8_t *copy = xmalloc(len);
        memcpy(copy, out.data + page, len);
        for (int i = 0; i <= round % 8; i++)
            copy[(size_t)rand() % len] ^= (uint8_t)(1 << (rand() % 8));
        round_trip(copy, len, g.start + page);
        free(copy);
    }
    buf_free(&out);
    golden_free(&g);
}

static void noise(void **state)
{
    (void)state;
    uint8_t *pages = xmalloc(4 * PG_XLOG_BLCKSZ);
    srand(2);
    for (size_t i = 0; i < 4 * PG_XLOG_BLCKSZ; i++)
        pages[i] = (uint8_t)rand();
    assert_true(round_trip(pages, 4 * PG_XLOG_BLCKSZ, GOLDEN_SEGMENT) < 4 * WAL_PACKED_PAGE_MAX);
    memset(pages, 0, 4 * PG_XLOG_BLCKSZ);
    assert_true(round_trip(pages, 4 * PG_XLOG_BLCKSZ, GOLDEN_SEGMENT) < 300);
    free(pages);
}

static void refuses(void **state)
{
    (void)state;
    static const uint8_t bad[][16] = {
        {0, 0, 16, 0, 0, 0, 0, 0},       /* 16 bytes announced, none there */
        {0, 0, 2, 0, 3, 0, 0, 0, 1, 2},  /* a record before the bytes it begins in */
        {1, 0, 0xff, 0xff, 0, 0, 0, 0},  /* more than a page of zeros */
        {1, 0, 0, 0x1f, 0, 0, 0, 0},     /* less */
        {25, 0, 1, 0, 1, 0, 0, 0},       /* no record has that length */
        {24, 0, 0xff, 0xff, 1, 0, 0, 0}, /* more records than fit */
        {0xff, 0xff, 1, 0, 1, 0, 0, 0},  /* a record longer than a page */
        {24, 0, 0, 0, 1, 0, 0, 0},       /* a run of none */
    };
    for (size_t i = 0; i < LENGTH(bad); i++) {
        struct error err = {0};
        struct wal_packer p = {0};
        uint8_t page[PG_XLOG_BLCKSZ];
        wal_packer_begin(&p, GOLDEN_SEGMENT);
        size_t len = i == 1 ? 10 : 8;
        assert_int_equal(wal_unpack_page(&p, GOLDEN_SEGMENT, bad[i], len, page, &err), ERR_DATA);
        noop_cache_fini(&p.noops);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filtered_wal), cmocka_unit_test(marked_wal), cmocka_unit_test(marks),
        cmocka_unit_test(damaged_wal),  cmocka_unit_test(noise),      cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
