/* Rows added as a run make the same columns, byte by byte, as rows added one by one. */
#include "feed.h"

#define TABLE_R 17000u /* columns of every width, some Nullable; file 17001 */
#define ROWS 300
#define NATTS 7

static const struct {
    Oid typid;
    int16_t len;
    char align;
    bool not_null;
} columns[NATTS] = {{20, 8, 'd', true},  {23, 4, 'i', false}, {21, 2, 's', false},
                    {26, 4, 'i', false}, {700, 4, 'i', true}, {701, 8, 'd', false},
                    {20, 8, 'd', false}};

static struct rel_desc *wide_desc(bool key)
{
    struct rel_desc *d = table_desc(TABLE_R, 0, NATTS, false);
    for (unsigned i = 0; i < NATTS; i++) {
        struct att_desc *a = &d->atts[i];
        a->typid = a->base_typid = columns[i].typid;
        a->attlen = columns[i].len;
        a->attalign = columns[i].align;
        a->not_null = columns[i].not_null;
    }
    if (!key) {
        d->identity = IDENTITY_TID;
        d->relreplident = 'n';
        d->nkeys = 0;
    }
    return d;
}

static uint64_t seed;
static uint32_t any(uint32_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

/* A tuple of random bytes; null_at < NATTS: that attribute is NULL. */
static void put_tuple(struct buf *out, unsigned null_at)
{
    size_t start = out->len;
    buf_put_u8(out, (uint8_t)(null_at < NATTS ? 0x7f & ~(1u << null_at) : 0));
    size_t data = out->len;
    for (unsigned i = 0; i < NATTS; i++) {
        if (i == null_at)
            continue;
        size_t width = (size_t)columns[i].len;
        buf_put_zeros(out, (width - (out->len - data) % width) % width);
        for (size_t n = 0; n < width; n++)
            buf_put_u8(out, (uint8_t)any(256));
    }
    assert_true(out->len > start);
}

/* Mostly plain rows; between them updates, deletes, NULLs and tuples cut short. */
static void put_frame(struct buf *frames, unsigned i, unsigned odd)
{
    CLEANUP_BUF struct buf body = {0};
    unsigned sort = any(odd);
    unsigned null_at = sort == 1 ? 1 + any(3) : NATTS;
    put_tuple(&body, null_at);
    struct raw_tuple tuple = {.infomask2 = NATTS,
                              .infomask = (uint16_t)(0x0800 | (null_at < NATTS)),
                              .hoff = 24,
                              .body_len = (uint32_t)body.len,
                              .body = body.data};
    struct change c = {.kind = sort == 2 || sort == 3 ? CHANGE_UPDATE
                               : sort == 4            ? CHANGE_DELETE
                                                      : CHANGE_INSERT,
                       .lsn = 1000 + 40 * i,
                       .ordinal = (uint16_t)any(3),
                       .locator = file_of(TABLE_R + 1),
                       .new_tid = tid_make(1 + i, 2),
                       .old_tid = tid_make(1 + i, 1),
                       .has_new = sort != 4,
                       .has_old = sort == 3 || sort == 4,
                       .new_tuple = tuple,
                       .old_tuple = tuple};
    size_t at = frames->len;
    frame_put_change(frames, &c, 77 + i / 10, 0);
    ((struct change_frame *)(frames->data + at))->commit_ts = (int64_t)i * 1000;
}

static void assert_same_bytes(const struct buf *a, const struct buf *b)
{
    assert_int_equal(a->len, b->len);
    if (a->len > 0)
        assert_memory_equal(a->data, b->data, a->len);
}

static void assert_same_blocks(const struct worker *a, const struct worker *b)
{
    assert_int_equal(a->nbuilders, b->nbuilders);
    for (size_t i = 0; i < a->nbuilders; i++) {
        const struct block *x = a->builders[i].block, *y = b->builders[i].block;
        assert_int_equal(x->rows, y->rows);
        assert_int_equal(x->ncols, y->ncols);
        for (unsigned c = 0; c < x->ncols; c++) {
            assert_same_bytes(&x->cols[c].nulls, &y->cols[c].nulls);
            assert_same_bytes(&x->cols[c].data, &y->cols[c].data);
        }
    }
}

static void worker_fini(struct worker *w)
{
    worker_discard(w);
    for (size_t i = 0; i < w->datums_cap; i++) {
        buf_free(&w->plain[i]);
        buf_free(&w->old_plain[i]);
    }
    free(w->plain);
    free(w->old_plain);
    free(w->datums);
    free(w->old_datums);
    free(w->builders);
    buf_free(&w->key_old.data);
    buf_free(&w->key_old.nulls);
    buf_free(&w->key_new.data);
    buf_free(&w->key_new.nulls);
}

static void add_one(struct worker *w, struct route *const *routes, const struct change_frame *f)
{
    struct error err = {0};
    assert_ok(worker_add_change(w, routes[f->route], f, NULL, &err));
}

/* odd: one row in so many is of another sort than the plain insert. */
static void compare(bool key, unsigned odd)
{
    struct feed f;
    struct error err = {0};
    feed_open(&f, NULL, 0, (struct reorder_options){0});
    shape_add(&f, wide_desc(key), 900);
    assert_ok(pipeline_add_tables(f.p, 900, TABLES_KEEP, &err));
    struct routes *cache = routes_new(pipeline_tables(f.p), f.history);
    struct route *route = routes_get(cache, file_of(TABLE_R + 1), 950);
    assert_non_null(route);
    assert_non_null(route->table);

    CLEANUP_BUF struct buf frames = {0};
    for (unsigned i = 0; i < ROWS; i++)
        put_frame(&frames, i, odd);
    struct block_pool blocks;
    block_pool_init(&blocks);
    struct worker_shared shared = {
        .tables = pipeline_tables(f.p), .blocks = &blocks, .inline_value_max = 1 << 20};
    struct worker runs = {.shared = &shared, .rows_hint = 10}, single = runs;
    size_t in_runs = 0;
    for (size_t at = 0; at < frames.len;) {
        const struct change_frame *frame = (const struct change_frame *)(frames.data + at);
        uint32_t rows;
        size_t bytes = row_run_add(&runs, &route, frames.data + at, frames.len - at, &rows);
        in_runs += rows;
        if (rows == 0) {
            add_one(&runs, &route, frame);
            bytes = frame->head.len;
        }
        for (size_t done = 0; done < bytes; done += frame->head.len) {
            frame = (const struct change_frame *)(frames.data + at + done);
            add_one(&single, &route, frame);
        }
        at += bytes;
    }
    assert_true(in_runs > ROWS / 4);
    assert_same_blocks(&runs, &single);
    worker_fini(&runs);
    worker_fini(&single);
    block_pool_fini(&blocks);
    routes_free(cache);
    feed_end(&f);
}

static void plain_rows(void **state)
{
    (void)state;
    seed = 1;
    compare(true, 1);
}

static void rows_between_others(void **state)
{
    (void)state;
    for (seed = 2; seed < 8;)
        compare(true, 40 - 2 * (unsigned)(seed % 3));
}

static void rows_of_a_table_without_key(void **state)
{
    (void)state;
    seed = 9;
    compare(false, 40);
}

/* A tuple that ends before its attributes do is left to the way that tells so. */
static void damaged_tuple(void **state)
{
    (void)state;
    struct feed f;
    struct error err = {0};
    feed_open(&f, NULL, 0, (struct reorder_options){0});
    shape_add(&f, wide_desc(true), 900);
    assert_ok(pipeline_add_tables(f.p, 900, TABLES_KEEP, &err));
    struct routes *cache = routes_new(pipeline_tables(f.p), f.history);
    struct route *route = routes_get(cache, file_of(TABLE_R + 1), 950);
    CLEANUP_BUF struct buf frames = {0};
    seed = 3;
    for (unsigned i = 0; i < 10; i++)
        put_frame(&frames, i, 1);
    size_t len = ((struct change_frame *)frames.data)->head.len, at = 6 * len;
    ((struct change_frame *)(frames.data + at))->new_len -= 9;
    struct block_pool blocks;
    block_pool_init(&blocks);
    struct worker_shared shared = {
        .tables = pipeline_tables(f.p), .blocks = &blocks, .inline_value_max = 1 << 20};
    struct worker w = {.shared = &shared, .rows_hint = 10};
    uint32_t rows;
    assert_int_equal(row_run_add(&w, &route, frames.data, frames.len, &rows), at);
    assert_int_equal(rows, 6);
    assert_int_equal(row_run_add(&w, &route, frames.data + at, frames.len - at, &rows), 0);
    assert_int_equal(rows, 0);
    assert_int_equal(
        worker_add_change(&w, route, (struct change_frame *)(frames.data + at), NULL, &err),
        ERR_DATA);
    worker_fini(&w);
    block_pool_fini(&blocks);
    routes_free(cache);
    feed_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_rows),
        cmocka_unit_test(rows_between_others),
        cmocka_unit_test(rows_of_a_table_without_key),
        cmocka_unit_test(damaged_tuple),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
