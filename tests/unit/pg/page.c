#include "pg/page.h"

#include "heap_fixture.h"

/* pageinspect's heap_page_items is the referee. */
static void test_lines_as_pageinspect_sees_them(void **state)
{
    struct error err;
    struct buf page = {0}, items = {0};
    struct heap_page p;
    char *save = NULL, got[200];
    unsigned line = 0;
    (void)state;
    fixture_read("all.page", &page);
    fixture_read("all.items", &items);
    assert_ok(heap_page_open(page.data, &p, &err));
    for (char *want = strtok_r((char *)items.data, "\n", &save); want != NULL;
         want = strtok_r(NULL, "\n", &save)) {
        struct page_tuple t = fixture_tuple(&page, ++line);
        snprintf(got, sizeof got, "%u|%d|1|%u|%u|%u|(%u,%u)|%u|%u|%u", line,
                 (int)(t.raw.body - page.data) - 23, t.raw.body_len + 23, t.xmin, t.xmax,
                 t.ctid_block, t.ctid_offset, t.raw.infomask2, t.raw.infomask, t.raw.hoff);
        assert_string_equal(got, want);
    }
    assert_int_equal(line, 7);
    assert_int_equal(p.nlines, 7);
    buf_free(&page);
    buf_free(&items);
}

static void put_u16(uint8_t *at, uint16_t v)
{
    memcpy(at, &v, 2);
}

static void refused(const struct buf *good, unsigned at, uint16_t value, const char *message)
{
    struct error err;
    struct heap_page p;
    uint8_t page[PG_BLCKSZ];
    memcpy(page, good->data, PG_BLCKSZ);
    put_u16(page + at, value);
    assert_int_equal(heap_page_open(page, &p, &err), ERR_DATA);
    assert_string_equal(err.message, message);
}

static void test_headers(void **state)
{
    struct error err;
    struct buf good = {0};
    struct heap_page p;
    uint8_t zero[PG_BLCKSZ] = {0};
    (void)state;
    assert_ok(heap_page_open(zero, &p, &err));
    assert_int_equal(p.nlines, 0);
    zero[8000] = 1;
    assert_int_equal(heap_page_open(zero, &p, &err), ERR_DATA);
    assert_string_equal(err.message, "damaged page: not initialised, but not zero either");
    fixture_read("all.page", &good);
    refused(&good, 10, 0x0100, "damaged page: unknown flags 0x0100");
    refused(&good, 12, 23, "damaged page: lower 23, upper 6880, special 8192");
    refused(&good, 12, 54, "damaged page: lower 54, upper 6880, special 8192");
    refused(&good, 12, 6884, "damaged page: lower 6884, upper 6880, special 8192");
    refused(&good, 14, 8200, "damaged page: lower 52, upper 8200, special 8192");
    refused(&good, 16, 8176, "not a heap page: special space at 8176");
    refused(&good, 18, 0x2003, "damaged page: size and layout version 0x2003");
    buf_free(&good);
}

static void line_put(uint8_t *page, unsigned line, uint32_t at, uint32_t state, uint32_t len)
{
    uint32_t v = at | state << 15 | len << 17;
    memcpy(page + 24 + (line - 1) * 4, &v, 4);
}

static enum status line_get(uint8_t *page, bool *ret_normal, struct error *ret_err)
{
    struct error err;
    struct heap_page p;
    struct page_tuple t;
    assert_ok(heap_page_open(page, &p, &err));
    return heap_page_tuple(&p, 1, &t, ret_normal, ret_err);
}

static void test_lines(void **state)
{
    struct error err;
    struct buf good = {0};
    bool normal = true;
    (void)state;
    fixture_read("all.page", &good);
    for (uint32_t kind = 0; kind < 4; kind++) { /* unused, normal, redirect, dead */
        line_put(good.data, 1, kind == 2 ? 5 : kind ? 8016 : 0, kind, kind == 1 ? 169 : 0);
        assert_ok(line_get(good.data, &normal, &err));
        assert_int_equal(normal, kind == 1);
    }
    line_put(good.data, 1, 6872, 1, 30); /* below upper */
    assert_int_equal(line_get(good.data, &normal, &err), ERR_DATA);
    assert_string_equal(err.message, "damaged page: line 1 points to 30 bytes at 6872");
    line_put(good.data, 1, 8016, 1, 177); /* one byte beyond the page */
    assert_int_equal(line_get(good.data, &normal, &err), ERR_DATA);
    line_put(good.data, 1, 8012, 1, 100); /* unaligned */
    assert_int_equal(line_get(good.data, &normal, &err), ERR_DATA);
    line_put(good.data, 1, 8016, 1, 23);
    assert_int_equal(line_get(good.data, &normal, &err), ERR_DATA);
    assert_string_equal(err.message, "damaged page: line 1 has a tuple of 23 bytes");
    heap_page_line_clear(good.data, 1);
    assert_ok(line_get(good.data, &normal, &err));
    assert_false(normal);
    buf_free(&good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_as_pageinspect_sees_them),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
