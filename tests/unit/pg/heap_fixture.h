/* Pages of tests/fixtures/heap (made by a real server, see its capture.sh). */
#pragma once
#include "base/buf.h"
#include "base/file.h"
#include "pg/page.h"
#include "test.h"

static inline void fixture_read(const char *name, struct buf *ret)
{
    struct error err;
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/fixtures/heap/%s", getenv("SOURCE_ROOT"), name);
    assert_ok(file_read_all(path, 1 << 20, ret, &err));
    buf_cstr(ret);
}

/* The tuple at a line of a page that is known to be sound. */
static inline struct page_tuple fixture_tuple(const struct buf *page, unsigned line)
{
    struct error err;
    struct heap_page p;
    struct page_tuple t;
    bool normal;
    assert_int_equal(page->len, PG_BLCKSZ);
    assert_ok(heap_page_open(page->data, &p, &err));
    assert_true(line >= 1 && line <= p.nlines);
    assert_ok(heap_page_tuple(&p, (OffsetNumber)line, &t, &normal, &err));
    assert_true(normal);
    return t;
}

/* create table "all" of capture.sh, and packed */
static const struct tuple_att fixture_all[] = {
    {1, 'c', false},  {1, 'c', false},  {2, 's', false},  {4, 'i', false},  {8, 'd', false},
    {4, 'i', false},  {8, 'd', false},  {16, 'c', false}, {64, 'c', false}, {8, 'd', true},
    {-1, 'i', false}, {-1, 'i', false}, {-1, 'i', false}, {4, 'i', false},  {4, 'i', false},
    {-1, 'i', false}, {-1, 'i', false}, {4, 'i', false},
};
static const struct tuple_att fixture_packed[] = {
    {4, 'i', false}, {-1, 'i', false}, {-1, 'i', false}, {-1, 'i', false}};
