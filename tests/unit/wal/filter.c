/* The filtered stream: no user byte in it, catalog bytes unchanged, valid WAL for PostgreSQL's own
 * reader, the same however it is fed. */
#include "wal/filter.h"

#include "base/file.h"
#include "builder.h"
#include "golden.h"
#include "pg/wal_parse.h"
#include "wal/reader.h"

#include <unistd.h>

#define OUR_DB 5u

struct run {
    struct wal_filter *f;
    struct buf out;
    XLogRecPtr start;
    size_t records, forwarded;
    bool flush, flush_from_flagged;
    uint32_t digest;
};

static enum status on_output(void *ctx, XLogRecPtr lsn, const uint8_t *data, size_t len,
                             struct error *err)
{
    struct run *r = ctx;
    (void)err;
    assert_int_equal(lsn, r->start + r->out.len);
    buf_put(&r->out, data, len);
    return OK;
}

static enum status on_record(void *ctx, const struct wal_record *record, bool forwarded,
                             struct error *err)
{
    struct run *r = ctx;
    assert_true(r->start + r->out.len <= record->end);
    r->records++;
    r->forwarded += forwarded;
    if (r->flush) {
        TRY(wal_filter_flush(r->f, err));
        assert_int_equal(r->start + r->out.len, record->end);
        assert_int_equal(wal_filter_output_lsn(r->f), record->end);
    }
    if (record->main_data != NULL) /* still there after the flush */
        r->digest = crc32c_update(r->digest, record->main_data, record->main_len);
    return OK;
}

static struct wal_filter_options options(struct run *r, struct catalog_filenodes *set)
{
    return (struct wal_filter_options){.segment_bytes = GOLDEN_SEGMENT,
                                       .filenodes = set,
                                       .ctx = r,
                                       .on_record = on_record,
                                       .on_output = on_output};
}

static void feed_all(struct run *r, const struct buf *wal, size_t from, size_t to, size_t piece)
{
    struct error err = {0};
    for (size_t at = from; at < to; at += piece) {
        size_t n = MIN(piece, to - at);
        uint8_t *copy = xmalloc(n);
        memcpy(copy, wal->data + at, n);
        assert_ok(wal_filter_feed(r->f, r->start + (at - from), copy, n, &err));
        free(copy);
    }
}

static struct run run_golden(const struct golden *g, struct catalog_filenodes *set, size_t piece,
                             bool flush)
{
    struct run r = {.start = g->start, .flush = flush};
    struct wal_filter_options o = options(&r, set);
    o.major = g->major;
    o.system_id = g->system_id;
    o.database = g->database;
    r.f = wal_filter_new(&o, g->start);
    feed_all(&r, &g->wal, 0, g->wal.len, piece);
    assert_int_equal(r.out.len, g->wal.len);
    wal_filter_free(r.f);
    r.f = NULL;
    return r;
}

static bool found(const struct buf *b, const char *text)
{
    return memmem(b->data, b->len, text, strlen(text)) != NULL;
}

static void no_user_bytes(void **state)
{
    (void)state;
    for (unsigned major = 15; major <= 18; major++) {
        struct golden g;
        golden_load(&g, major);
        assert_true(found(&g.wal, "SECRET"));
        struct catalog_filenodes *set = catalog_filenodes_new();
        struct run r = run_golden(&g, set, 100000, false);
        assert_false(found(&r.out, "SECRET"));
        assert_true(found(&r.out, "CATALOGcomment"));
        assert_true(found(&r.out, "CATALOGhappy"));
        /* this was the column of a table made after catalogs had been rewritten */
        assert_true(found(&r.out, "catalogcolumn"));
        /* C1: every catalog file made in the window was recognised by itself */
        for (size_t i = 0; i < g.filenode_count; i++)
            assert_true(
                catalog_filenodes_contains(set, g.filenodes[i].db_oid, g.filenodes[i].filenode));
        assert_true(r.forwarded > 500 && r.forwarded < r.records - 200);
        buf_free(&r.out);
        catalog_filenodes_free(set);
        golden_free(&g);
    }
}

struct pair { /* walks source and output side by side */
    const struct golden *g;
    const struct buf *out;
    size_t noops, same;
};

static enum status compare_record(void *ctx, const struct wal_record *r, struct error *err)
{
    struct pair *p = ctx;
    (void)err;
    const uint8_t *source = p->g->wal.data + (r->start - p->g->start);
    const uint8_t *out = p->out->data + (r->start - p->g->start);
    assert_memory_equal(source, out, 8); /* length and xid stay in any case */
    size_t first_page = PG_XLOG_BLCKSZ - r->start % PG_XLOG_BLCKSZ;
    if (r->rmid == RM_XLOG_ID && r->info == 0x20) {
        assert_int_equal(r->nblocks, 0);
        for (uint32_t i = 0; i < r->main_len; i++)
            assert_int_equal(r->main_data[i], 0);
        p->noops++;
    } else {
        assert_memory_equal(source, out, MIN((size_t)r->total_len, first_page));
        p->same++;
    }
    return OK;
}

static void output_is_wal(void **state)
{
    (void)state;
    for (unsigned major = 15; major <= 18; major++) {
        struct golden g;
        struct error err = {0};
        golden_load(&g, major);
        struct catalog_filenodes *set = catalog_filenodes_new();
        struct run r = run_golden(&g, set, 9000, true);
        struct pair p = {.g = &g, .out = &r.out};
        struct wal_reader_options o = {.major = major,
                                       .segment_bytes = GOLDEN_SEGMENT,
                                       .system_id = g.system_id,
                                       .keep_max = SIZE_MAX,
                                       .ctx = &p,
                                       .on_record = compare_record};
        struct wal_reader *reader = wal_reader_new(&o, g.start);
        assert_ok(wal_reader_push(reader, g.start, r.out.data, r.out.len, &err));
        assert_int_equal(p.noops + p.same, r.records);
        assert_int_equal(p.same, r.forwarded);
        wal_reader_free(reader);
        buf_free(&r.out);
        catalog_filenodes_free(set);
        golden_free(&g);
    }
}

/* PostgreSQL's own reader takes it, checking every CRC (15 is the major whose pg_waldump is here).
 */
static void pg_waldump_accepts(void **state)
{
    static const char pg_waldump[] = "/usr/lib/postgresql/15/bin/pg_waldump";
    (void)state;
    if (access(pg_waldump, X_OK) != 0)
        skip();
    struct golden g;
    struct error err = {0};
    char dir[] = "/tmp/walfilter.XXXXXX", name[2][WAL_SEGMENT_NAME_MAX];
    assert_non_null(mkdtemp(dir));
    golden_load(&g, 15);
    struct catalog_filenodes *set = catalog_filenodes_new();
    struct run r = run_golden(&g, set, 50000, false);
    for (size_t at = 0; at < r.out.len; at += GOLDEN_SEGMENT) {
        char path[100], *last = name[at > 0];
        wal_segment_name(last, 1, g.start + at, GOLDEN_SEGMENT);
        snprintf(path, sizeof path, "%s/%s", dir, last);
        assert_ok(file_write_atomic(path, r.out.data + at, GOLDEN_SEGMENT, 0600, &err));
    }
    char command[400], line[2000];
    snprintf(command, sizeof command, "%s -p %s %s %s 2>&1", pg_waldump, dir, name[0], name[1]);
    FILE *pipe = popen(command, "r");
    size_t lines = 0, noops = 0;
    while (fgets(line, sizeof line, pipe) != NULL) {
        lines += strncmp(line, "rmgr: ", 6) == 0;
        noops += strstr(line, "desc: NOOP") != NULL;
        assert_null(strstr(line, "error"));
    }
    assert_int_equal(pclose(pipe), 0);
    assert_int_equal(lines, r.records);
    assert_int_equal(noops, r.records - r.forwarded);
    assert_ok(file_remove_tree(dir, true, &err));
    buf_free(&r.out);
    catalog_filenodes_free(set);
    golden_free(&g);
}

static void any_feeding_is_the_same(void **state)
{
    static const size_t pieces[] = {1, 3, 8, 24, 25, 4097, 8191, 8192, 65536};
    struct golden g;
    (void)state;
    golden_load(&g, 17);
    struct catalog_filenodes *set = catalog_filenodes_new();
    struct run whole = run_golden(&g, set, SIZE_MAX, false);
    catalog_filenodes_free(set);
    for (size_t i = 0; i < 2 * LENGTH(pieces); i++) {
        set = catalog_filenodes_new();
        struct run r = run_golden(&g, set, pieces[i / 2], i % 2 == 1);
        assert_int_equal(r.records, whole.records);
        assert_int_equal(r.digest, whole.digest);
        assert_memory_equal(r.out.data, whole.out.data, whole.out.len);
        buf_free(&r.out);
        catalog_filenodes_free(set);
    }
    buf_free(&whole.out);
    golden_free(&g);
}

/* A stream with a record of `rel` that begins `left` bytes before the end of segment one. */
static void straddling(struct builder *b, struct rel_file_locator rel, uint32_t left, uint32_t len)
{
    uint8_t *body = xmalloc(MAX(len, 3000u));
    memset(body, 'S', MAX(len, 3000u));
    while (b->wal.len < GOLDEN_SEGMENT - 20000)
        builder_record(b, RM_HEAP_ID, 0, 3, rel, body, 3000);
    while (builder_lsn(b) / PG_XLOG_BLCKSZ % 128 != 127 || builder_lsn(b) % PG_XLOG_BLCKSZ == 0)
        builder_record(b, RM_XLOG_ID, 0x30, 0, (struct rel_file_locator){0}, "oid!", 4);
    builder_fill_page(b, left);
    assert_int_equal(b->wal.len, GOLDEN_SEGMENT - left);
    builder_record(b, RM_HEAP_ID, 0, 3, rel, body, len);
    builder_record(b, RM_XLOG_ID, 0x30, 0, (struct rel_file_locator){0}, "oid!", 4);
    builder_record(b, RM_HEAP_ID, 0, 3, rel, body, 3000);
    free(body);
}

static struct run run_made(const struct builder *b, size_t from, enum wal_straddle straddle,
                           const struct wal_straddle_head *head, size_t piece)
{
    struct catalog_filenodes *set = catalog_filenodes_new();
    struct run r = {.start = b->start + from};
    struct wal_filter_options o = options(&r, set);
    o.major = b->major;
    o.database = OUR_DB;
    o.straddle = straddle;
    o.keep_max = 2048;
    if (head != NULL)
        o.straddle_head = *head;
    r.f = wal_filter_new(&o, r.start);
    feed_all(&r, &b->wal, from, b->wal.len, piece);
    assert_int_equal(r.out.len, b->wal.len - from);
    wal_filter_free(r.f);
    catalog_filenodes_free(set);
    return r;
}

/* A restart at a segment start continues the record that crosses it as the run before wrote it. */
static void straddle_continues(void **state)
{
    static const uint32_t lengths[] = {3, 300, 8100, 9000, 30000};
    (void)state;
    for (unsigned n = 0; n < 2 * 6 * LENGTH(lengths); n++) {
        bool catalog = n % 2 == 1;
        uint32_t left = 8 + 8 * (n / 2 % 6); /* 8 to 48 bytes of it lie before the boundary */
        struct builder b = {.major = 18, .segment_bytes = GOLDEN_SEGMENT, .start = 7 << 20};
        struct rel_file_locator rel = {1663, OUR_DB, catalog ? 1259 : 20000};
        straddling(&b, rel, left, MAX(lengths[n / 12], left - 8));
        struct run whole = run_made(&b, 0, WAL_STRADDLE_UNKNOWN, NULL, 5000);
        struct wal_straddle_head head = {
            .start = b.start + GOLDEN_SEGMENT - left, .passed = left, .head_len = MIN(left, 32u)};
        memcpy(head.head, whole.out.data + GOLDEN_SEGMENT - left, head.head_len);
        enum wal_straddle straddle = left < 24 ? WAL_STRADDLE_UNKNOWN
                                     : catalog ? WAL_STRADDLE_FORWARD
                                               : WAL_STRADDLE_NOOP;
        struct run rest = run_made(&b, GOLDEN_SEGMENT, straddle, &head, 1000 + n);
        assert_memory_equal(rest.out.data, whole.out.data + GOLDEN_SEGMENT, rest.out.len);
        assert_int_equal(rest.records, 2); /* the straddling one is not shown again */
        struct run blind = run_made(&b, GOLDEN_SEGMENT, WAL_STRADDLE_UNKNOWN, NULL, 4000);
        if (!catalog)
            assert_false(found(&blind.out, "SSSS"));
        buf_free(&whole.out);
        buf_free(&rest.out);
        buf_free(&blind.out);
        buf_free(&b.wal);
    }
}

/* A record longer than keep_max goes out as it comes and is not buffered. */
static void long_record_streams(void **state)
{
    struct catalog_filenodes *set = catalog_filenodes_new();
    struct builder b = {.major = 16, .segment_bytes = GOLDEN_SEGMENT, .start = 7 << 20};
    struct run r = {.start = b.start};
    struct error err = {0};
    uint32_t len = 2500000;
    uint8_t *body = xmalloc(len);
    (void)state;
    memset(body, 'S', len);
    builder_fill_page(&b, 200);
    builder_record(&b, RM_LOGICALMSG_ID, 0, 3, (struct rel_file_locator){0}, body, len);
    struct wal_filter_options o = options(&r, set);
    o.major = 16;
    o.database = OUR_DB;
    o.keep_max = 4096;
    r.f = wal_filter_new(&o, b.start);
    for (size_t at = 0; at < b.wal.len; at += 10000) {
        size_t n = MIN((size_t)10000, b.wal.len - at);
        assert_ok(wal_filter_feed(r.f, b.start + at, b.wal.data + at, n, &err));
        if (at > 20000)
            assert_int_equal(wal_filter_output_lsn(r.f), b.start + at + n);
        assert_true(wal_filter_held_bytes(r.f) < 100000);
    }
    assert_int_equal(r.records, 2);
    assert_false(found(&r.out, "SSSS"));
    wal_filter_free(r.f);
    catalog_filenodes_free(set);
    free(body);
    buf_free(&r.out);
    buf_free(&b.wal);
}

/* Other databases, shared relations, large objects, extensions' records. */
static void routes(void **state)
{
    static const struct {
        uint8_t rmid, info;
        struct rel_file_locator rel;
        bool forwarded;
    } cases[] = {
        {RM_HEAP_ID, 0x00, {1663, OUR_DB, 1259}, true},
        {RM_HEAP_ID, 0x00, {1663, OUR_DB, 20000}, false},
        {RM_HEAP_ID, 0x00, {1663, OUR_DB, LARGEOBJECT_OID}, false},
        {RM_BTREE_ID, 0x00, {1663, OUR_DB, LARGEOBJECT_INDEX_OID}, false},
        {RM_HEAP_ID, 0x00, {1664, 0, 1260}, true},
        {RM_HEAP_ID, 0x00, {1664, 0, 77777}, true},
        {RM_HEAP_ID, 0x00, {1663, 6, 1259}, false},
        {RM_XLOG_ID, 0xB0, {1663, OUR_DB, 20000}, false},
        {RM_XLOG_ID, 0xA0, {1663, OUR_DB, 1259}, true},
        {RM_GENERIC_ID, 0x00, {1663, OUR_DB, 20000}, false},
        {RM_BTREE_ID, 0xD0, {0}, false},
        {RM_GIST_ID, 0x20, {0}, false},
        {RM_TBLSPC_ID, 0x00, {0}, false},
        {RM_LOGICALMSG_ID, 0x00, {0}, false},
        {130, 0x00, {1663, OUR_DB, 1259}, false},
        {RM_CLOG_ID, 0x00, {0}, true},
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct builder b = {.major = 15, .segment_bytes = GOLDEN_SEGMENT, .start = 7 << 20};
        builder_record(&b, cases[i].rmid, cases[i].info, 3, cases[i].rel, "0123456789abcdef", 16);
        struct run r = run_made(&b, 0, WAL_STRADDLE_UNKNOWN, NULL, 1000);
        assert_int_equal(r.records, 1);
        if (r.forwarded != cases[i].forwarded)
            fail_msg("case %zu", i);
        assert_int_equal(found(&r.out, "0123456789"), cases[i].forwarded);
        buf_free(&r.out);
        buf_free(&b.wal);
    }
}

/* What a crash of the source cut off becomes part of a no-op; the stream goes on behind it. */
static void abandoned_fragment(void **state)
{
    struct builder b = {.major = 15, .segment_bytes = GOLDEN_SEGMENT, .start = 7 << 20};
    uint8_t body[20000];
    (void)state;
    memset(body, 'S', sizeof body);
    builder_fill_page(&b, 80);
    XLogRecPtr before = b.prev;
    XLogRecPtr lost = builder_record(&b, RM_HEAP_ID, 0, 9,
                                     (struct rel_file_locator){1663, OUR_DB, 20000}, body, 15000);
    b.wal.len = 2 * PG_XLOG_BLCKSZ;
    b.prev = before;
    builder_page(&b, XLP_FIRST_IS_OVERWRITE_CONTRECORD, 0);
    uint8_t main[16] = {0};
    memcpy(main, &lost, 8);
    builder_record(&b, RM_XLOG_ID, 0xD0, 0, (struct rel_file_locator){0}, main, 16);
    for (size_t piece = 700; piece < 40000; piece *= 5) {
        struct run r = run_made(&b, 0, WAL_STRADDLE_UNKNOWN, NULL, piece);
        assert_false(found(&r.out, "SSSS"));
        assert_int_equal(wal_header_rmid(r.out.data + (lost - b.start)), RM_XLOG_ID);
        assert_int_equal(wal_header_info(r.out.data + (lost - b.start)), 0x20);
        assert_memory_equal(r.out.data + (lost - b.start), b.wal.data + (lost - b.start), 16);
        assert_int_equal(r.records, 2);
        buf_free(&r.out);
    }
    buf_free(&b.wal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_user_bytes),
        cmocka_unit_test(output_is_wal),
        cmocka_unit_test(pg_waldump_accepts),
        cmocka_unit_test(any_feeding_is_the_same),
        cmocka_unit_test(straddle_continues),
        cmocka_unit_test(long_record_streams),
        cmocka_unit_test(routes),
        cmocka_unit_test(abandoned_fragment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
