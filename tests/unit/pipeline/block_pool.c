/* Blocks for another use: empty, with their room, bounded. */
#include "test.h"

#include "pipeline/block_pool.h"

#include <stdlib.h>

static struct block_header *header_of(unsigned ncols)
{
    struct block_header *h = calloc(1, sizeof *h + ncols * sizeof h->cols[0]);
    h->ncols = ncols;
    return h;
}

static void fill(struct block *b, size_t bytes)
{
    b->rows = 7;
    buf_put_zeros(&b->cols[0].nulls, 7);
    buf_put_zeros(&b->cols[b->ncols - 1].data, bytes);
}

static void test_reuse(void **state)
{
    struct block_pool p;
    struct block_header *two = header_of(2), *other = header_of(2), *three = header_of(3);
    (void)state;
    block_pool_init(&p);
    struct block *b = block_pool_take(&p, two);
    fill(b, 5000);
    block_pool_give(&p, b);
    block_pool_give(&p, NULL);
    struct block *wider = block_pool_take(&p, three);
    assert_ptr_not_equal(wider, b);
    assert_int_equal(wider->ncols, 3);
    struct block *again = block_pool_take(&p, other);
    assert_ptr_equal(again, b);
    assert_ptr_equal(again->header, other);
    assert_int_equal(again->rows, 0);
    assert_int_equal(block_bytes(again), 0);
    assert_true(again->cols[1].data.cap >= 5000);
    struct block *fresh = block_pool_take(&p, two);
    assert_ptr_not_equal(fresh, b);
    assert_int_equal(p.n, 0);
    assert_int_equal(p.total, 0);
    block_pool_give(&p, wider);
    block_pool_give(&p, again);
    block_pool_give(&p, fresh);
    block_pool_fini(&p);
    free(two);
    free(other);
    free(three);
}

/* The oldest make room; a huge one is not kept at all. */
static void test_bounds(void **state)
{
    struct block_pool p;
    struct block_header *h = header_of(1);
    struct block *blocks[BLOCK_POOL_BLOCKS + 5];
    (void)state;
    block_pool_init(&p);
    for (size_t i = 0; i < LENGTH(blocks); i++)
        fill(blocks[i] = block_pool_take(&p, h), 100);
    for (size_t i = 0; i < LENGTH(blocks); i++)
        block_pool_give(&p, blocks[i]);
    assert_int_equal(p.n, BLOCK_POOL_BLOCKS);
    assert_ptr_equal(p.spare[0], blocks[5]);
    struct block *b = block_pool_take(&p, h);
    assert_ptr_equal(b, blocks[LENGTH(blocks) - 1]);
    fill(b, BLOCK_POOL_BYTES / 2);
    block_pool_give(&p, b);
    assert_int_equal(p.n, BLOCK_POOL_BLOCKS - 1);
    for (int i = 0; i < 6; i++)
        fill(blocks[i] = block_new(h), BLOCK_POOL_BYTES / 5);
    for (int i = 0; i < 6; i++)
        block_pool_give(&p, blocks[i]);
    assert_true(p.total <= BLOCK_POOL_BYTES);
    assert_true(p.n > 0 && p.n < 6);
    assert_ptr_equal(p.spare[p.n - 1], blocks[5]);
    block_pool_fini(&p);
    free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reuse),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
