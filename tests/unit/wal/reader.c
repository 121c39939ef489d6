/* The reader against golden segments (oracle: pg_walinspect) and against made-up streams. */
#include "wal/reader.h"

#include "builder.h"
#include "golden.h"
#include "pg/rmgr.h"

struct seen {
    const struct golden *g;
    size_t at, count, skipped;
    uint32_t digest;
    XLogRecPtr abandoned_start, abandoned_end, last_end;
};

static enum status digest_record(void *ctx, const struct wal_record *r, struct error *err)
{
    struct seen *s = ctx;
    (void)err;
    uint64_t facts[] = {r->start, r->end, r->prev, r->xid, r->total_len, r->nblocks, r->main_len};
    s->digest = crc32c_update(s->digest, facts, sizeof facts);
    if (r->main_data != NULL)
        s->digest = crc32c_update(s->digest, r->main_data, r->main_len);
    for (unsigned i = 0; i < r->nblocks; i++) {
        if (r->blocks[i].image != NULL)
            s->digest = crc32c_update(s->digest, r->blocks[i].image, r->blocks[i].image_len);
        if (r->blocks[i].data != NULL)
            s->digest = crc32c_update(s->digest, r->blocks[i].data, r->blocks[i].data_len);
    }
    s->count++;
    s->skipped += r->body_skipped;
    s->last_end = r->end;
    return OK;
}

static enum status check_record(void *ctx, const struct wal_record *r, struct error *err)
{
    struct seen *s = ctx;
    uint32_t images = 0;
    (void)err;
    if (r->start < s->g->records[0].start || s->at == s->g->count)
        return OK;
    const struct golden_record *want = &s->g->records[s->at++];
    assert_int_equal(r->start, want->start);
    bool is_switch = r->rmid == RM_XLOG_ID && r->info == 0x40;
    if (!is_switch) /* PostgreSQL lets a switch end with its segment */
        assert_int_equal(r->end, want->end);
    assert_int_equal(r->prev, want->prev);
    assert_int_equal(r->xid, want->xid);
    assert_int_equal(r->total_len, want->len);
    assert_string_equal(rmgr_name(r->rmid), want->rmgr);
    assert_non_null(rmgr_op_name(r->rmid, r->info, s->g->major));
    assert_string_equal(rmgr_op_name(r->rmid, r->info, s->g->major), want->op);
    for (unsigned i = 0; i < r->nblocks; i++)
        images += r->blocks[i].has_image ? r->blocks[i].image_len : 0;
    assert_int_equal(images, want->fpi_len);
    return OK;
}

static struct wal_reader_options options(const struct golden *g, struct seen *s)
{
    return (struct wal_reader_options){.major = g->major,
                                       .segment_bytes = GOLDEN_SEGMENT,
                                       .system_id = g->system_id,
                                       .keep_max = SIZE_MAX,
                                       .ctx = s,
                                       .on_record = digest_record};
}

static enum status push_pieces(struct wal_reader *r, XLogRecPtr lsn, const struct buf *wal,
                               size_t from, size_t piece, struct error *err)
{
    for (size_t at = from; at < wal->len; at += piece) {
        /* a copy of exact size, so that a sanitizer sees every read past the piece */
        size_t n = MIN(piece, wal->len - at);
        uint8_t *copy = xmalloc(n);
        memcpy(copy, wal->data + at, n);
        enum status status = wal_reader_push(r, lsn + at, copy, n, err);
        free(copy);
        if (status != OK)
            return status;
    }
    return OK;
}

static struct seen walk(const struct golden *g, size_t from, size_t piece)
{
    struct error err = {0};
    struct seen s = {.digest = 0};
    struct wal_reader_options o = options(g, &s);
    struct wal_reader *r = wal_reader_new(&o, g->start + from);
    assert_ok(push_pieces(r, g->start, &g->wal, from, piece, &err));
    assert_int_equal(wal_reader_next_lsn(r), g->start + g->wal.len);
    assert_false(wal_reader_in_record(r));
    wal_reader_free(r);
    return s;
}

static void golden_matches(void **state)
{
    (void)state;
    for (unsigned major = 15; major <= 18; major++) {
        struct golden g;
        struct error err = {0};
        golden_load(&g, major);
        struct seen s = {.g = &g};
        struct wal_reader_options o = options(&g, &s);
        o.on_record = check_record;
        struct wal_reader *r = wal_reader_new(&o, g.start);
        assert_ok(wal_reader_push(r, g.start, g.wal.data, g.wal.len, &err));
        assert_int_equal(s.at, g.count);
        wal_reader_free(r);
        golden_free(&g);
    }
}

static void any_split_is_the_same(void **state)
{
    static const size_t pieces[] = {1,  2,  3,  5,   8,    13,   23,   24,
                                    25, 39, 41, 100, 4095, 8191, 8193, 70001};
    (void)state;
    for (unsigned major = 15; major <= 18; major += 3) {
        struct golden g;
        golden_load(&g, major);
        struct seen whole = walk(&g, 0, SIZE_MAX);
        for (size_t i = 0; i < LENGTH(pieces); i++) {
            struct seen s = walk(&g, 0, pieces[i]);
            assert_int_equal(s.count, whole.count);
            assert_int_equal(s.digest, whole.digest);
        }
        golden_free(&g);
    }
}

/* From any page on, the records that begin there or later are found. */
static void starts_inside_a_record(void **state)
{
    struct golden g;
    (void)state;
    golden_load(&g, 18);
    size_t inside = 0;
    for (size_t from = 8192; from < g.wal.len; from += 8192) {
        if (g.wal.data[from] == 0)
            continue; /* behind the switch */
        struct seen s = walk(&g, from, 100000);
        size_t want = 0;
        for (size_t i = 0; i < g.count; i++)
            want += g.records[i].start >= g.start + from;
        inside += g.wal.data[from + 2] & 1;
        if (g.records[0].start < g.start + from)
            assert_int_equal(s.count, want);
        if (from > GOLDEN_SEGMENT + 500000)
            break;
    }
    assert_true(inside > 0);
    golden_free(&g);
}

/* No byte of a record can change unnoticed; the error names a place at or before the record's end.
 */
static void damage_is_noticed(void **state)
{
    struct golden g;
    (void)state;
    golden_load(&g, 17);
    XLogRecPtr used = g.records[400].end;
    size_t first = g.records[0].start - g.start;
    for (size_t at = first; at < used - g.start; at += 37) {
        struct error err = {0};
        struct seen s = {.digest = 0};
        struct wal_reader_options o = options(&g, &s);
        size_t from = at & ~(size_t)8191;
        if (from / GOLDEN_SEGMENT != (g.wal.len - 1) / GOLDEN_SEGMENT)
            continue;
        struct wal_reader *r = wal_reader_new(&o, g.start + from);
        size_t len = MIN((size_t)40000, g.wal.len - from);
        uint8_t *copy = xmalloc(len);
        memcpy(copy, g.wal.data + from, len);
        bool padding = true; /* bytes that no check covers: alignment, header padding */
        for (size_t i = 0; i < g.count && padding; i++)
            padding = !(g.records[i].start <= g.start + at && g.start + at < g.records[i].end);
        copy[at - from] ^= 0x40;
        enum status status = wal_reader_push(r, g.start + from, copy, len, &err);
        if (status == OK) {
            /* only what lies in no record: a skipped continuation, padding, unused header bytes */
            copy[at - from] ^= 0x40;
            struct seen clean = {.digest = 0};
            struct wal_reader_options oc = options(&g, &clean);
            struct wal_reader *rc = wal_reader_new(&oc, g.start + from);
            assert_ok(wal_reader_push(rc, g.start + from, copy, len, &err));
            assert_int_equal(clean.digest, s.digest);
            wal_reader_free(rc);
        } else {
            assert_int_equal(status, ERR_DATA);
            assert_true(err.lsn != 0 && err.lsn <= g.start + at + 8192);
            assert_true(err.message[0] != '\0');
        }
        free(copy);
        wal_reader_free(r);
    }
    golden_free(&g);
}

static enum status abandoned(void *ctx, XLogRecPtr start, XLogRecPtr end, struct error *err)
{
    struct seen *s = ctx;
    (void)err;
    s->abandoned_start = start;
    s->abandoned_end = end;
    return OK;
}

static enum status keep_nothing(void *ctx, const struct wal_record *head, bool *ret_keep,
                                struct error *err)
{
    (void)ctx, (void)err;
    assert_true(head->body_skipped && head->main_data == NULL && head->nblocks == 0);
    *ret_keep = false;
    return OK;
}

static struct wal_reader_options made_options(const struct builder *b, struct seen *s)
{
    return (struct wal_reader_options){.major = b->major,
                                       .segment_bytes = b->segment_bytes,
                                       .keep_max = 4096,
                                       .ctx = s,
                                       .on_record = digest_record,
                                       .on_head = keep_nothing,
                                       .on_abandoned = abandoned};
}

static void long_record_is_not_kept(void **state)
{
    (void)state;
    struct builder b = {.major = 16, .segment_bytes = 1 << 20, .start = 5 << 20};
    uint32_t len = 3500000; /* over three segments */
    uint8_t *body = xcalloc(len, 1);
    memset(body, 'x', len);
    builder_fill_page(&b, 400);
    builder_record(&b, RM_LOGICALMSG_ID, 0, 9, (struct rel_file_locator){0}, body, len);
    builder_fill_page(&b, 400);
    for (int damaged = 0; damaged < 2; damaged++) {
        struct error err = {0};
        struct seen s = {.digest = 0};
        struct wal_reader_options o = made_options(&b, &s);
        struct wal_reader *r = wal_reader_new(&o, b.start);
        enum status status = push_pieces(r, b.start, &b.wal, 0, 9999, &err);
        if (damaged) {
            assert_int_equal(status, ERR_DATA);
            assert_non_null(strstr(err.message, "CRC"));
        } else {
            assert_ok(status);
            assert_int_equal(s.count, 3);
            assert_int_equal(s.skipped, 1);
        }
        wal_reader_free(r);
        b.wal.data[1500000] ^= 1;
    }
    free(body);
    buf_free(&b.wal);
}

/* A crash cut a record at a page's end; the next page says so and goes on (notes B11). */
static void abandoned_record(void **state)
{
    (void)state;
    struct builder b = {.major = 15, .segment_bytes = 1 << 20, .start = 5 << 20};
    uint8_t body[20000] = {1};
    struct error err = {0};
    struct seen s = {.digest = 0};
    builder_fill_page(&b, 80);
    XLogRecPtr before = b.prev;
    XLogRecPtr lost =
        builder_record(&b, RM_LOGICALMSG_ID, 0, 9, (struct rel_file_locator){0}, body, sizeof body);
    b.wal.len = 2 * PG_XLOG_BLCKSZ;
    b.prev = before;
    builder_page(&b, XLP_FIRST_IS_OVERWRITE_CONTRECORD, 0);
    uint8_t main[16] = {0};
    memcpy(main, &lost, 8);
    builder_record(&b, RM_XLOG_ID, 0xD0, 0, (struct rel_file_locator){0}, main, 16);
    struct wal_reader_options o = made_options(&b, &s);
    struct wal_reader *r = wal_reader_new(&o, b.start);
    assert_ok(push_pieces(r, b.start, &b.wal, 0, 777, &err));
    assert_int_equal(s.count, 2);
    assert_int_equal(s.abandoned_start, lost);
    assert_int_equal(s.abandoned_end, b.start + 2 * PG_XLOG_BLCKSZ);
    wal_reader_free(r);
    buf_free(&b.wal);
}

static void zeros_end_offline_only(void **state)
{
    struct golden g;
    (void)state;
    golden_load(&g, 16);
    size_t cut = g.records[500].end - g.start;
    memset(g.wal.data + cut, 0, g.wal.len - cut);
    for (int offline = 0; offline < 2; offline++) {
        struct error err = {0};
        struct seen s = {.digest = 0};
        struct wal_reader_options o = options(&g, &s);
        o.zeros_end = offline;
        struct wal_reader *r = wal_reader_new(&o, g.start);
        enum status status = push_pieces(r, g.start, &g.wal, 0, 1001, &err);
        assert_int_equal(s.last_end, g.records[500].end);
        assert_int_equal(status, offline ? OK : ERR_DATA);
        if (!offline)
            assert_int_equal(err.lsn, g.start + cut);
        assert_int_equal(wal_reader_ended(r), offline);
        wal_reader_free(r);
    }
    golden_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_matches),          cmocka_unit_test(any_split_is_the_same),
        cmocka_unit_test(starts_inside_a_record),  cmocka_unit_test(damage_is_noticed),
        cmocka_unit_test(long_record_is_not_kept), cmocka_unit_test(abandoned_record),
        cmocka_unit_test(zeros_end_offline_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
