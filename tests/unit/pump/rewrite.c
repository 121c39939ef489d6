/* Pages of a rewrite: whose they are, and which of their rows count. */
#include "harness.h"

#include "catalog/relations.h"
#include "pump/rewrite.h"

#include <unistd.h>

#define KEYLESS 20001u
#define KEYED 20002u
#define LEAF 20003u
#define NEW_FILE 30000u
#define REWRITER 800u
#define XLOG_FPI_INFO 0xB0

#define XMIN_COMMITTED 0x0100
#define XMIN_FROZEN 0x0300
#define XMAX_LOCK_ONLY 0x0080
#define XMAX_COMMITTED 0x0400
#define XMAX_INVALID 0x0800
#define XMAX_IS_MULTI 0x1000
#define XMAX_EXCL_LOCK 0x0040 /* the strongest of its members' locks */

/* The rows of one page, by their infomask; one attribute each, its value the line number. */
struct row {
    uint16_t infomask;
    TransactionId xmin, xmax;
};

static void put(uint8_t *at, const void *value, size_t n)
{
    memcpy(at, value, n);
}

static void page_make(uint8_t page[PG_BLCKSZ], const struct row *rows, size_t n)
{
    uint16_t lower = (uint16_t)(24 + 4 * n), upper = (uint16_t)(PG_BLCKSZ - 32 * n),
             special = PG_BLCKSZ, version = PG_BLCKSZ | 4;
    memset(page, 0, PG_BLCKSZ);
    put(page + 12, &lower, 2);
    put(page + 14, &upper, 2);
    put(page + 16, &special, 2);
    put(page + 18, &version, 2);
    for (size_t i = 0; i < n; i++) {
        uint32_t at = (uint32_t)(PG_BLCKSZ - 32 * (i + 1)), line = at | 1u << 15 | 28u << 17;
        uint16_t natts = 1, value = (uint16_t)(i + 1);
        put(page + 24 + 4 * i, &line, 4);
        put(page + at, &rows[i].xmin, 4);
        put(page + at + 4, &rows[i].xmax, 4);
        put(page + at + 18, &natts, 2);
        put(page + at + 20, &rows[i].infomask, 2);
        page[at + 22] = 24;
        put(page + at + 24, &value, 2);
    }
}

struct fixture {
    struct harness h;
    struct history *history;
    char path[40];
    struct rel_desc *all[3];
};

static void fixture_init(struct fixture *f, unsigned major)
{
    struct error err = {0};
    *f = (struct fixture){.path = "/tmp/rewrite-XXXXXX"};
    f->all[0] = relation(KEYLESS, 0, KEYLESS, 1);
    f->all[1] = relation(KEYED, 0, KEYED, 1);
    f->all[1]->identity = IDENTITY_KEY;
    f->all[2] = relation(LEAF, 0, LEAF, 1);
    f->all[2]->root_oid = KEYED;
    close(mkstemp(f->path));
    assert_ok(history_open(f->path, &f->history, &err));
    assert_ok(history_append(f->history, f->all, LENGTH(f->all), 100, &err));
    f->h.r = records_new(&(struct records_options){.major = major,
                                                   .database = OUR_DB,
                                                   .history = f->history,
                                                   .catalog_oid = catalog_oid,
                                                   .boundary = boundary,
                                                   .ctx = &f->h});
}

static void fixture_fini(struct fixture *f)
{
    harness_fini(&f->h);
    history_free(f->history);
    for (size_t i = 0; i < LENGTH(f->all); i++)
        rel_desc_unref(f->all[i]);
    unlink(f->path);
}

static void rewrite_begins(struct fixture *f, unsigned major, const char *name)
{
    class_insert(&f->h, major, REWRITER, 1000, 1259,
                 (struct class_put){
                     .oid = NEW_FILE, .filenode = NEW_FILE, .name = name, .persistence = 'p'});
}

static void block_add(struct wal_record *r, BlockNumber number, const uint8_t *page)
{
    struct wal_block *b = &r->blocks[r->nblocks];
    record_block(r, table_file(OUR_DB, NEW_FILE), NULL);
    b->id = (uint8_t)(r->nblocks - 1);
    b->block = number;
    b->has_image = b->apply_image = page != NULL;
    b->image = page;
    b->image_len = page == NULL ? 0 : PG_BLCKSZ;
    b->image_flags = 2;
}

static void expect_row(const struct fixture *f, size_t *at, BlockNumber block, uint16_t line)
{
    const struct change_frame *c =
        (const struct change_frame *)expect(&f->h, at, FRAME_CHANGE, REWRITER, 2000);
    assert_int_equal(c->kind, CHANGE_INSERT);
    assert_int_equal(c->new_tid, tid_make(block, line));
    assert_int_equal(c->head.ordinal, 0);
    assert_int_equal(c->locator.rel_number, NEW_FILE);
    assert_memory_equal((const uint8_t *)(c + 1) + 1, &line, 2);
}

static const struct row rows[] = {
    {XMIN_FROZEN | XMAX_INVALID, 2, 0},
    {XMIN_COMMITTED | XMAX_COMMITTED, 700, 701}, /* deleted, old snapshots may see it */
    {XMIN_COMMITTED | XMAX_LOCK_ONLY, 702, 703},
    {XMIN_COMMITTED | XMAX_LOCK_ONLY | XMAX_IS_MULTI, 702, 9},
    {XMIN_COMMITTED | XMAX_INVALID, 704, 705},   /* the deleter has aborted */
    {XMIN_COMMITTED | XMAX_COMMITTED, 704, 910}, /* younger than the rewrite, which waited for it */
    {XMIN_COMMITTED | XMAX_INVALID, 905, 0},
};

/* Two pages in one record, as 17 writes them. */
static void test_rows(void **state)
{
    uint8_t page[PG_BLCKSZ];
    (void)state;
    for (unsigned major = 15; major <= 18; major++) {
        struct fixture f;
        size_t at = 0;
        fixture_init(&f, major);
        rewrite_begins(&f, major, "pg_temp_20001");
        page_make(page, rows, LENGTH(rows));
        struct wal_record r = record_of(RM_XLOG_ID, XLOG_FPI_INFO, REWRITER, 2000, NULL);
        block_add(&r, 4, page);
        block_add(&r, 5, page);
        take(&f.h, &r, false);
        expect(&f.h, &at, FRAME_SEEN, REWRITER, 1000);
        for (uint16_t i = 0; i < 2; i++) {
            expect_row(&f, &at, 4u + i, 1);
            expect_row(&f, &at, 4u + i, 3);
            expect_row(&f, &at, 4u + i, 4);
            expect_row(&f, &at, 4u + i, 5);
            expect_row(&f, &at, 4u + i, 7);
        }
        expect_end(&f.h, at);
        fixture_fini(&f);
    }
}

/* The file is said to have pages that were not read, once. */
static void unread(const char *name, const uint8_t *page, unsigned before)
{
    struct fixture f;
    size_t at = 0;
    const struct frame_head *frame;
    fixture_init(&f, 15);
    rewrite_begins(&f, 15, name);
    for (unsigned i = 0; i < 2; i++) {
        struct wal_record r = record_of(RM_XLOG_ID, XLOG_FPI_INFO, REWRITER, 2000, NULL);
        block_add(&r, i, page);
        take(&f.h, &r, false);
    }
    expect(&f.h, &at, FRAME_SEEN, REWRITER, 1000);
    for (unsigned i = 0; i < before; i++)
        expect(&f.h, &at, FRAME_CHANGE, REWRITER, 2000);
    frame = expect(&f.h, &at, FRAME_PAGES, REWRITER, 2000);
    assert_int_equal(((const struct pages_frame *)frame)->locator.rel_number, NEW_FILE);
    for (unsigned i = 0; i < before; i++)
        expect(&f.h, &at, FRAME_CHANGE, REWRITER, 2000);
    expect_end(&f.h, at);
    fixture_fini(&f);
}

static void test_unread(void **state)
{
    uint8_t page[PG_BLCKSZ];
    (void)state;
    page_make(page, rows, LENGTH(rows));
    unread("pg_temp_20002", page, 0); /* it has a key */
    unread("pg_temp_20003", page, 0); /* a partition */
    unread("pg_temp_20009", page, 0); /* not known */
    unread("pg_temp_20001x", page, 0);
    unread("pg_temp_", page, 0);
    unread("moved", page, 0); /* SET TABLESPACE, an index */
    unread("pg_temp_20001", NULL, 0);
    page[12] = 23;
    unread("pg_temp_20001", page, 0);
}

/* Transactions whose outcome the bits do not say. */
static void test_doubt(void **state)
{
    static const struct row doubtful[] = {
        {XMAX_INVALID, 700, 0},                                    /* the inserter's */
        {XMIN_COMMITTED, 700, 701},                                /* the deleter's */
        {XMIN_COMMITTED | XMAX_IS_MULTI | XMAX_EXCL_LOCK, 700, 9}, /* one of several */
        {XMIN_COMMITTED | XMAX_IS_MULTI | XMAX_EXCL_LOCK | XMAX_COMMITTED, 700, 9},
        {XMAX_INVALID, REWRITER, 0}, /* its own row */
    };
    uint8_t page[PG_BLCKSZ];
    (void)state;
    for (size_t i = 0; i < LENGTH(doubtful); i++) {
        const struct row two[] = {rows[0], doubtful[i]};
        page_make(page, two, 2);
        unread("pg_temp_20001", page, 1);
    }
}

/* Nothing of it is ours to read. */
static void test_ignored(void **state)
{
    uint8_t page[PG_BLCKSZ];
    struct fixture f;
    size_t at = 0;
    (void)state;
    fixture_init(&f, 15);
    rewrite_begins(&f, 15, "pg_temp_20001");
    page_make(page, rows, LENGTH(rows));
    struct wal_record r = record_of(RM_XLOG_ID, XLOG_FPI_INFO, REWRITER, 2000, NULL);
    block_add(&r, 0, page);
    r.blocks[0].fork = VISIBILITYMAP_FORKNUM;
    take(&f.h, &r, false);
    r.blocks[0].fork = MAIN_FORKNUM;
    r.blocks[0].locator.db_oid = OTHER_DB;
    take(&f.h, &r, false);
    r.blocks[0].locator.db_oid = OUR_DB;
    r.info = 0xA0; /* FPI_FOR_HINT */
    take(&f.h, &r, false);
    expect(&f.h, &at, FRAME_SEEN, REWRITER, 1000);
    expect_end(&f.h, at);
    fixture_fini(&f);
}

/* A transaction with a lock on a catalog makes files: whose they are. */
static void test_whose(void **state)
{
    static const struct {
        Oid oid;
        const char *name;
        bool user;
    } made[] = {
        {20001, "t", true},
        {20001, "pg_temp_20000", true},
        {20001, "pg_toast_20000", true},
        {30001, "pg_temp_1249", false}, /* the new file of pg_attribute, and its TOAST table */
        {30002, "pg_toast_30001", false},
        {30003, "pg_toast_30001_index", false},
        {30004, "pg_toast_30002", true},
        {30005, "pg_toast_300012", true},
        {30006, "pg_toast_30001_idx", true},
        {1249, "pg_attribute", false},
        {30007, "pg_temp_99999999999", true},
    };
    struct rewrites *r = rewrites_new(NULL);
    (void)state;
    for (size_t i = 0; i < LENGTH(made); i++) {
        const struct class_row row = {made[i].oid, made[i].name, made[i].oid, 'p'};
        assert_int_equal(rewrites_row(r, &row), made[i].user);
    }
    rewrites_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),    cmocka_unit_test(test_unread), cmocka_unit_test(test_doubt),
        cmocka_unit_test(test_ignored), cmocka_unit_test(test_whose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
