/* The walk of batches, the window's images and the waiting tuples, without a server. */
#include "load/byte_pipe.h"
#include "load/load.h"

#include "base/file.h"
#include "load/load_internal.h"
#include "test.h"

#include <unistd.h>

#define N 1000u

static const struct rel_file_locator locator = {1663, 5, 20001};

struct walk_test {
    struct load *load;
    struct rel_desc *rel;
    struct page_batch *batches[64]; /* submitted */
    unsigned nbatches, asked, stopped;
    unsigned emitted, deleting, deleted; /* of each kind */
    uint64_t last_tid;
    TransactionId last_xid;
    uint8_t fate_of_300; /* what the source says of xid 300 */
    char reason[200];
};

static enum status ask(void *ctx, const TransactionId *xids, size_t n, uint8_t *ret,
                       struct error *err)
{
    struct walk_test *t = ctx;
    (void)err;
    t->asked += (unsigned)n;
    for (size_t i = 0; i < n; i++)
        ret[i] = xids[i] == 300 ? t->fate_of_300 : xids[i] < 200 ? FATE_COMMITTED : FATE_ABORTED;
    return OK;
}
static enum status submit(void *ctx, struct page_batch *batch, struct error *err)
{
    struct walk_test *t = ctx;
    (void)err;
    assert_true(t->nbatches < LENGTH(t->batches));
    t->batches[t->nbatches++] = batch;
    return OK;
}
static void stopped(void *ctx, const struct rel_desc *desc, const char *reason)
{
    struct walk_test *t = ctx;
    (void)desc;
    t->stopped++;
    snprintf(t->reason, sizeof t->reason, "%s", reason);
}
static enum status emit(void *ctx, enum load_row_kind kind, const struct raw_tuple *tuple,
                        uint64_t tid, TransactionId xid, struct error *err)
{
    struct walk_test *t = ctx;
    (void)tuple, (void)err;
    t->emitted += kind == LOAD_ROW_LIVE;
    t->deleting += kind == LOAD_ROW_DELETING;
    t->deleted += kind == LOAD_ROW_DELETED;
    t->last_tid = tid;
    t->last_xid = xid;
    return OK;
}

static void setup(struct walk_test *t, size_t undecided_max)
{
    *t = (struct walk_test){.rel = rel_desc_new(0)};
    strcpy(t->rel->schema, "public");
    strcpy(t->rel->name, "foo");
    t->rel->locator = locator;
    rel_desc_seal(t->rel);
    const struct load_options options = {.rels = &t->rel,
                                         .nrels = 1,
                                         .db_oid = 5,
                                         .db_tablespace = 1663,
                                         .major = 15,
                                         .shadow_dir = "/nonexistent",
                                         .spill_dir = "/tmp",
                                         .undecided_max_bytes = undecided_max,
                                         .ctx = t,
                                         .ask_fates = ask,
                                         .submit = submit,
                                         .table_stopped = stopped};
    t->load = load_new(&options);
    t->load->next_xid = N;
}

static void teardown(struct walk_test *t)
{
    for (unsigned i = 0; i < t->nbatches; i++)
        page_batch_free(t->batches[i]);
    load_free(t->load);
    rel_desc_unref(t->rel);
}

static void put_u16(uint8_t *at, unsigned v)
{
    uint16_t w = (uint16_t)v;
    memcpy(at, &w, 2);
}

/* A page whose tuples all have these transactions; hint bits as given. */
static void page_make(uint8_t *page, unsigned ntuples, uint32_t xmin, uint32_t xmax, unsigned mask)
{
    memset(page, 0, PG_BLCKSZ);
    for (unsigned i = 0; i < ntuples; i++) {
        uint32_t at = PG_BLCKSZ - (i + 1) * 32, line = at | 1u << 15 | 28u << 17;
        uint8_t *tuple = page + at;
        memcpy(page + 24 + 4 * i, &line, 4);
        memcpy(tuple, &xmin, 4);
        memcpy(tuple + 4, &xmax, 4);
        put_u16(tuple + 16, i + 1);
        put_u16(tuple + 18, 1);
        put_u16(tuple + 20, mask);
        tuple[22] = 24;
    }
    put_u16(page + 12, 24 + 4 * ntuples);
    put_u16(page + 14, PG_BLCKSZ - 32 * ntuples);
    put_u16(page + 16, PG_BLCKSZ);
    put_u16(page + 18, PG_BLCKSZ | 4);
}

static struct page_batch *batch_of(struct walk_test *t, BlockNumber block, const uint8_t *page)
{
    struct page_batch *b = page_batch_new(&t->load->rels[0]);
    memcpy(page_batch_add(b, block), page, PG_BLCKSZ);
    return b;
}

static enum status walk_page(struct walk_test *t, BlockNumber block, const uint8_t *page,
                             struct error *err)
{
    struct page_batch *b = batch_of(t, block, page);
    enum status status = page_batch_walk(b, t->load, emit, t, err);
    page_batch_free(b);
    return status;
}

static void walk_submitted(struct walk_test *t)
{
    struct error err;
    for (unsigned i = 0; i < t->nbatches; i++) {
        assert_ok(page_batch_walk(t->batches[i], t->load, emit, t, &err));
        page_batch_free(t->batches[i]);
    }
    t->nbatches = 0;
}

static void test_damaged_page_is_named(void **state)
{
    struct walk_test t;
    struct error err;
    uint8_t page[PG_BLCKSZ];
    (void)state;
    setup(&t, 0);
    page_make(page, 3, 100, 0, 0x900);
    put_u16(page + 12, 8000);
    put_u16(page + 14, 7000);
    assert_int_equal(walk_page(&t, 123456, page, &err), ERR_DATA);
    assert_string_equal(err.message,
                        "initial load of public.foo: block 123456: damaged page: lower "
                        "8000, upper 7000, special 8192");
    memset(page, 0, sizeof page);
    assert_ok(walk_page(&t, 7, page, &err));
    assert_int_equal(t.emitted, 0);
    teardown(&t);
}

static void test_fates_are_asked_once_a_batch(void **state)
{
    struct walk_test t;
    struct error err;
    uint8_t page[PG_BLCKSZ];
    (void)state;
    setup(&t, 0);
    page_make(page, 50, 150, 250, 0); /* inserted: committed; deleted: aborted */
    assert_ok(walk_page(&t, 1, page, &err));
    assert_int_equal(t.emitted, 50);
    assert_int_equal(t.asked, 2);
    assert_int_equal(t.last_tid, 1 << 16 | 50);
    assert_ok(walk_page(&t, 2, page, &err));
    assert_int_equal(t.emitted, 100);
    assert_int_equal(t.asked, 2); /* remembered */
    teardown(&t);
}

/* xid 300 runs while its pages are walked, in memory or spilled; then it ends one way or the other.
 */
static void test_running_transaction(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 8; round++) {
        struct walk_test t;
        struct error err;
        uint8_t page[PG_BLCKSZ];
        bool inserts = round & 1, commits = round & 2;
        setup(&t, round & 4 ? 2000 : 0);
        page_make(page, 60, inserts ? 300 : 100, inserts ? 0 : 300, inserts ? 0x800 : 0x100);
        for (BlockNumber b = 0; b < 20; b++)
            assert_ok(walk_page(&t, b, page, &err));
        assert_int_equal(t.emitted, 0);
        assert_int_equal(t.deleting, inserts ? 0 : 1200); /* there until it commits */
        assert_int_equal(load_undecided_count(t.load), 1200);
        assert_int_equal(undecided_spilled_bytes(t.load->undecided) > 0, (round & 4) != 0);
        assert_ok(load_finish(t.load, &err));
        assert_int_equal(load_undecided_count(t.load), 1200); /* it still runs */
        assert_ok(load_running_xacts(t.load, 300, &err));     /* and is not older than 300 */
        assert_int_equal(load_undecided_count(t.load), 1200);
        if (commits) {
            assert_ok(load_fate(t.load, 299, false, &err));
            assert_int_equal(t.nbatches, 0);
            assert_ok(load_fate(t.load, 300, true, &err));
        } else { /* died with the server: no abort record */
            t.fate_of_300 = FATE_ABORTED;
            assert_ok(load_running_xacts(t.load, 301, &err));
        }
        assert_int_equal(load_undecided_count(t.load), 0);
        walk_submitted(&t);
        assert_int_equal(t.emitted, inserts && commits ? 1200 : 0);
        assert_int_equal(t.deleting, inserts ? 0 : 1200); /* once */
        assert_int_equal(t.deleted, !inserts && commits ? 1200 : 0);
        assert_int_equal(t.last_xid, commits ? 300 : inserts ? 0 : 100);
        assert_int_equal(load_undecided_count(t.load), 0);
        teardown(&t);
    }
}

static void window_take(struct walk_test *t, uint8_t rmid, uint8_t info, TransactionId xid,
                        const void *main_data, uint32_t len)
{
    struct error err;
    struct wal_record r = {.start = 0x1000, .end = 0x2000, .rmid = rmid, .info = info, .xid = xid};
    r.main_data = main_data;
    r.main_len = len;
    if (rmid == RM_HEAP_ID) {
        r.nblocks = 1;
        r.blocks[0] = (struct wal_block){.locator = locator, .block = 3};
    }
    assert_ok(load_window_record(load_window(t->load), &r, &err));
}

static void commit_in_window(struct walk_test *t, TransactionId xid)
{
    static const uint8_t time[8];
    window_take(t, RM_XACT_ID, 0x00, xid, time, sizeof time);
}

/* Its members are in a record of the window: who deletes is known at once. */
static void test_multixact_of_the_window(void **state)
{
    static const uint32_t create[] = {77, 900, 2, 150, 0, 300, 5};
    struct walk_test t;
    struct error err;
    uint8_t page[PG_BLCKSZ];
    (void)state;
    setup(&t, 0);
    window_take(&t, RM_MULTIXACT_ID, 0x20, 0, create, sizeof create);
    page_make(page, 5, 100, 77, 0x1150);
    assert_ok(walk_page(&t, 9, page, &err));
    assert_int_equal(load_undecided_count(t.load), 5); /* 300 runs */
    assert_int_equal(t.deleting, 5);
    assert_ok(load_fate(t.load, 300, false, &err));
    walk_submitted(&t);
    assert_int_equal(t.emitted + t.deleted, 0); /* they stay */
    assert_ok(walk_page(&t, 9, page, &err));
    assert_int_equal(t.emitted, 5);
    assert_int_equal(t.stopped, 0);
    teardown(&t);
}

static void segment_write(const char *dir, const char *part, const void *bytes, size_t len)
{
    struct error err;
    static uint8_t segment[2 * PG_BLCKSZ];
    CLEANUP_FREE char *folder = xasprintf("%s/pg_multixact/%s", dir, part);
    CLEANUP_FREE char *path = xasprintf("%s/0000", folder);
    memset(segment, 0, sizeof segment);
    memcpy(segment, bytes, len);
    assert_ok(file_mkdir_p(folder, 0700, &err));
    assert_ok(file_write_atomic(path, segment, sizeof segment, 0600, &err));
}

/* Multixacts 5 (150 locks, 160 updates) and 6 (two lockers, 260 deletes) are in the landed files, 7
 * is the next; of 4 nothing is there. */
static void test_multixacts_of_the_backup(void **state)
{
    static const uint32_t offsets[] = {0, 0, 0, 0, 0, 1, 3};
    /* groups: four statuses, four xids; member 0 is never used */
    static const uint32_t members[] = {0x00040000u, 0, 150, 160, 151, 0x00000500u, 152, 260};
    char dir[] = "/tmp/walk-test-XXXXXX";
    struct error err;
    uint8_t page[PG_BLCKSZ];
    (void)state;
    assert_non_null(mkdtemp(dir));
    segment_write(dir, "offsets", offsets, sizeof offsets);
    segment_write(dir, "members", members, sizeof members);
    for (MultiXactId multi = 4; multi <= 7; multi++)
        for (unsigned running = 0; running < 2; running++) {
            struct walk_test t;
            setup(&t, 0);
            free(t.load->shadow_dir);
            t.load->shadow_dir = xstrdup(dir);
            t.load->window.next_multi = 7;
            t.load->window.next_multi_offset = 6;
            page_make(page, 5, running ? 300 : 100, multi, running ? 0x1050 : 0x1150);
            assert_ok(walk_page(&t, 9, page, &err));
            assert_ok(walk_page(&t, 10, page, &err));
            assert_int_equal(load_undecided_count(t.load), 10);
            assert_int_equal(t.stopped, 0);
            assert_ok(load_finish(t.load, &err));
            walk_submitted(&t);
            assert_int_equal(load_undecided_count(t.load), running ? 10 : 0);
            if (running) { /* the members are known by now: the shadow may change the files */
                assert_ok(file_remove_tree(dir, false, &err));
                assert_ok(load_fate(t.load, 300, true, &err));
                walk_submitted(&t);
                segment_write(dir, "offsets", offsets, sizeof offsets);
                segment_write(dir, "members", members, sizeof members);
            }
            /* 160 has committed, 260 aborted */
            assert_int_equal(t.emitted, multi == 6 ? 10 : 0);
            assert_int_equal(t.stopped, multi == 5 || multi == 6 ? 0 : 1);
            if (t.stopped)
                assert_non_null(strstr(t.reason, "the members of its multixact are gone"));
            teardown(&t);
        }
    assert_ok(file_remove_tree(dir, true, &err));
}

static struct wal_record image_record(BlockNumber block, const uint8_t *page)
{
    struct wal_record r = {
        .start = 0x1000, .end = 0x2000, .rmid = RM_XLOG_ID, .info = 0xB0, .nblocks = 1};
    r.blocks[0] = (struct wal_block){.locator = locator,
                                     .block = block,
                                     .has_image = page != NULL,
                                     .will_init = page == NULL,
                                     .image = page,
                                     .image_len = PG_BLCKSZ};
    return r;
}

/* Blocks 0 to 9 come from the tar; 2 has an image, 3 is initialised, 4 has an image after it was
 * accepted. */
static void test_images_take_the_place_of_tar_pages(void **state)
{
    struct walk_test t;
    struct error err;
    uint8_t image[PG_BLCKSZ];
    (void)state;
    setup(&t, 0);
    struct load_window *w = load_window(t.load);
    page_make(image, 1, 100, 0, 0x900);
    struct wal_record r = image_record(2, image);
    assert_ok(load_window_record(w, &r, &err));
    assert_int_equal(load_window_passed(w), 0x2000);
    assert_ok(load_window_record(w, &r, &err)); /* the first image is enough */
    r = image_record(3, NULL);
    assert_ok(load_window_record(w, &r, &err));
    struct page_batch *b = page_batch_new(&t.load->rels[0]);
    struct byte_pipe *pipe = byte_pipe_new(1 << 20, free);
    uint8_t *piece = malloc(3 * PG_BLCKSZ + 1); /* blocks 1 to 3 stay in it, at odd addresses */
    assert_non_null(piece);
    assert_ok(byte_pipe_begin(pipe, 1, &err));
    assert_ok(byte_pipe_write(pipe, (struct byte_piece){piece, piece + 1, 3 * PG_BLCKSZ}, &err));
    byte_pipe_close(pipe);
    bool more;
    Oid oid;
    const uint8_t *bytes;
    size_t len;
    assert_ok(byte_pipe_next(pipe, &more, &oid, &err));
    assert_ok(byte_pipe_read(pipe, &bytes, &len, &err));
    for (BlockNumber i = 0; i < 10; i++) {
        bool is_lent = i >= 1 && i <= 3;
        uint8_t *page = is_lent ? piece + 1 + (i - 1) * PG_BLCKSZ : page_batch_add(b, i);
        if (is_lent)
            page_batch_lend(b, i, page, byte_pipe_lent(pipe, page, PG_BLCKSZ));
        memset(page, (int)i, PG_BLCKSZ);
    }
    byte_pipe_free(pipe);
    assert_int_equal(b->nlent, 1);
    assert_true(page_batch_bytes(b) >= 10 * PG_BLCKSZ);
    window_accept(w, b);
    assert_int_equal(b->npages, 8);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(b->blocks[i], i < 2 ? i : i + 2);
        assert_int_equal(b->pages[i][100], b->blocks[i]);
    }
    page_batch_free(b);
    r = image_record(4, image);
    assert_ok(load_window_record(w, &r, &err));
    r = image_record(10, image);
    assert_ok(load_window_record(w, &r, &err));
    assert_ok(window_images_finish(w, &err));
    assert_int_equal(t.nbatches, 1);
    assert_int_equal(t.batches[0]->npages, 2); /* blocks 2 and 10 */
    assert_int_equal(t.batches[0]->blocks[0], 2);
    assert_int_equal(t.batches[0]->blocks[1], 10);
    walk_submitted(&t);
    assert_int_equal(t.emitted, 2);
    r = image_record(11, image); /* the tar is through */
    assert_ok(load_window_record(w, &r, &err));
    assert_ok(window_images_finish(w, &err));
    assert_int_equal(t.nbatches, 0);
    teardown(&t);
}

/* The row of a speculative insert that made the image is in the stream. */
static void test_speculative_row_of_an_image(void **state)
{
    static const uint8_t main_data[3] = {2, 0, 0x04};
    struct walk_test t;
    struct error err;
    uint8_t image[PG_BLCKSZ];
    (void)state;
    setup(&t, 0);
    page_make(image, 2, 100, 0, 0x900);
    put_u16(image + PG_BLCKSZ - 64 + 16, 0xfffe);
    struct wal_record r = image_record(2, image);
    r.rmid = RM_HEAP_ID;
    r.main_data = main_data;
    r.main_len = 3;
    assert_ok(load_window_record(load_window(t.load), &r, &err));
    assert_ok(window_images_finish(load_window(t.load), &err));
    walk_submitted(&t);
    assert_int_equal(t.emitted, 1);
    teardown(&t);
}

/* A speculative row waits until the WAL has been read up to its transaction's end, also if the
 * source says that it has committed; then it counts unless it was taken back. */
static void test_speculative_row_of_a_page(void **state)
{
    /* xl_heap_delete: xmax, offset 2, infobits, flags with the super-delete */
    static const uint8_t super[8] = {150, 0, 0, 0, 2, 0, 0, 0x08}, plain[8] = {150, 0, 0, 0, 2};
    (void)state;
    for (unsigned round = 0; round < 8; round++) {
        struct walk_test t;
        struct error err;
        uint8_t page[PG_BLCKSZ];
        bool taken_back = round & 1, in_window = round & 2, ends_early = round & 4;
        setup(&t, 0);
        page_make(page, 2, 150, 0, 0x800);
        put_u16(page + PG_BLCKSZ - 64 + 16, 0xfffe);
        window_take(&t, RM_HEAP_ID, 0x10, taken_back ? 151 : 150, taken_back ? super : plain, 8);
        if (taken_back && in_window)
            window_take(&t, RM_HEAP_ID, 0x10, 150, super, 8);
        if (in_window && ends_early)
            commit_in_window(&t, 150);
        assert_ok(walk_page(&t, 3, page, &err));
        assert_int_equal(t.emitted, in_window && ends_early && !taken_back ? 2 : 1);
        if (in_window && !ends_early)
            commit_in_window(&t, 150);
        assert_ok(load_finish(t.load, &err));
        walk_submitted(&t);
        assert_int_equal(load_undecided_count(t.load), in_window ? 0 : 1);
        if (taken_back && !in_window)
            load_super_delete(t.load, locator, tid_make(3, 2), 150);
        if (!in_window && ends_early)
            assert_ok(load_running_xacts(t.load, 151, &err));
        else
            assert_ok(load_fate(t.load, 150, true, &err));
        walk_submitted(&t);
        assert_int_equal(t.emitted, taken_back ? 1 : 2);
        assert_int_equal(load_undecided_count(t.load), 0);
        assert_int_equal(t.stopped, 0);
        teardown(&t);
    }
}

static void test_cancel(void **state)
{
    struct walk_test t;
    struct error err;
    uint8_t page[PG_BLCKSZ];
    (void)state;
    setup(&t, 0);
    page_make(page, 2, 100, 0, 0x900);
    load_cancel(t.load);
    assert_int_equal(walk_page(&t, 3, page, &err), ERR_CANCELLED);
    assert_int_equal(window_wait(load_window(t.load), 5000, &err), ERR_CANCELLED);
    struct wal_record r = image_record(2, page);
    assert_int_equal(load_window_record(load_window(t.load), &r, &err), ERR_CANCELLED);
    teardown(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damaged_page_is_named),
        cmocka_unit_test(test_fates_are_asked_once_a_batch),
        cmocka_unit_test(test_running_transaction),
        cmocka_unit_test(test_multixact_of_the_window),
        cmocka_unit_test(test_multixacts_of_the_backup),
        cmocka_unit_test(test_images_take_the_place_of_tar_pages),
        cmocka_unit_test(test_speculative_row_of_an_image),
        cmocka_unit_test(test_speculative_row_of_a_page),
        cmocka_unit_test(test_cancel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
