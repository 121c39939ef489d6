#include "pg/change.h"

#include "base/buf.h"
#include "test.h"

static const struct rel_file_locator user_rel = {1663, 5, 20000};

struct seen {
    struct change changes[8];
    unsigned n;
    enum status answer;
};

static enum status see(void *ctx, const struct change *change, struct error *err)
{
    struct seen *s = ctx;
    assert_true(s->n < LENGTH(s->changes));
    s->changes[s->n++] = *change;
    return s->answer == OK ? OK : error_set(err, s->answer, "refused by the test");
}

/* The tuple lies in the walk's own copy of the page: to be looked at here. */
static enum status see_second(void *ctx, const struct change *change, struct error *err)
{
    assert_true(change->has_new);
    assert_int_equal(change->new_tuple.hoff, 24);
    assert_int_equal(change->new_tuple.body_len, 7);
    assert_memory_equal(change->new_tuple.body + 1, "second", 6);
    return see(ctx, change, err);
}

static struct wal_record record_of(unsigned rmid, unsigned info, const void *main_data, size_t len)
{
    return (struct wal_record){.start = 0x1000028,
                               .rmid = (uint8_t)rmid,
                               .info = (uint8_t)info,
                               .main_data = main_data,
                               .main_len = (uint32_t)len};
}

static void block_add(struct wal_record *r, unsigned id, unsigned fork, BlockNumber block,
                      const void *data, size_t len)
{
    r->blocks[r->nblocks++] = (struct wal_block){.locator = user_rel,
                                                 .id = (uint8_t)id,
                                                 .fork = (uint8_t)fork,
                                                 .block = block,
                                                 .has_data = data != NULL,
                                                 .data = data,
                                                 .data_len = (uint16_t)len};
}

static struct seen changes_of(const struct wal_record *r, bool want_incomplete)
{
    struct error err;
    struct seen s = {0};
    bool incomplete = !want_incomplete;
    assert_ok(heap_record_changes(r, see, &s, &incomplete, &err));
    assert_int_equal(incomplete, want_incomplete);
    return s;
}

static void tuple_is(const struct raw_tuple *t, unsigned natts, unsigned mask, const char *body)
{
    assert_int_equal(t->infomask2, natts);
    assert_int_equal(t->infomask, mask);
    assert_int_equal(t->hoff, 24);
    assert_int_equal(t->body_len, strlen(body));
    assert_memory_equal(t->body, body, strlen(body));
}

/* xl_heap_header: natts 2, infomask 0x0902, hoff 24 */
#define HEADER "\x02\0\x02\x09\x18"

static void test_insert(void **state)
{
    (void)state;
    for (unsigned speculative = 0; speculative < 2; speculative++) {
        const uint8_t main_data[3] = {7, 0, (uint8_t)(8 | speculative << 2)};
        struct wal_record r = record_of(RM_HEAP_ID, 0x80, main_data, 3);
        /* minors of 17.12 and later: the visibility map first or last must not matter (F1) */
        block_add(&r, 1, VISIBILITYMAP_FORKNUM, 0, NULL, 0);
        block_add(&r, 0, MAIN_FORKNUM, 70000, HEADER "row", 8);
        struct seen s = changes_of(&r, false);
        assert_int_equal(s.n, 1);
        const struct change *c = &s.changes[0];
        assert_int_equal(c->kind, CHANGE_INSERT);
        assert_int_equal(c->flags, speculative ? CHANGE_SPECULATIVE : 0);
        assert_int_equal(c->lsn, r.start);
        assert_int_equal(c->new_tid, (uint64_t)70000 << 16 | 7);
        assert_true(rel_file_locator_equal(c->locator, user_rel));
        assert_true(c->has_new && !c->has_old && c->old_tid == 0 && c->ordinal == 0);
        tuple_is(&c->new_tuple, 2, 0x0902, "row");
    }
}

static void test_insert_without_tuple(void **state)
{
    static const uint8_t main_data[3] = {7, 0, 0};
    (void)state;
    struct wal_record r = record_of(RM_HEAP_ID, 0, main_data, 3);
    block_add(&r, 0, MAIN_FORKNUM, 1, NULL, 0);
    assert_int_equal(changes_of(&r, true).n, 0);
    r.body_skipped = true;
    r.main_data = NULL;
    assert_int_equal(changes_of(&r, true).n, 0);
}

static void test_delete(void **state)
{
    static const struct {
        uint8_t flags;
        unsigned kind, change_flags;
        bool old;
    } cases[] = {{1, CHANGE_DELETE, 0, false},
                 {2, CHANGE_DELETE, CHANGE_OLD_FULL, true},
                 {4, CHANGE_DELETE, CHANGE_OLD_KEY, true},
                 {16 | 4, CHANGE_DELETE, CHANGE_OLD_KEY, true}, /* row moves to a partition */
                 {8, CHANGE_SPEC_DELETE, 0, false}};
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        uint8_t main_data[16] = {1, 2, 3, 4, 9, 0, 0, cases[i].flags};
        memcpy(main_data + 8, HEADER "key", 8);
        struct wal_record r = record_of(RM_HEAP_ID, 0x10, main_data, cases[i].old ? 16 : 8);
        block_add(&r, 0, MAIN_FORKNUM, 3, NULL, 0);
        block_add(&r, 1, VISIBILITYMAP_FORKNUM, 0, NULL, 0);
        struct seen s = changes_of(&r, false);
        assert_int_equal(s.n, 1);
        assert_int_equal(s.changes[0].kind, cases[i].kind);
        assert_int_equal(s.changes[0].flags, cases[i].change_flags);
        assert_int_equal(s.changes[0].old_tid, 3 << 16 | 9);
        assert_int_equal(s.changes[0].new_tid, 0);
        assert_int_equal(s.changes[0].has_old, cases[i].old);
        if (cases[i].old)
            tuple_is(&s.changes[0].old_tuple, 2, 0x0902, "key");
    }
}

/* old_xmax, old_offnum 5, infobits, flags, new_xmax, new_offnum 6, old tuple */
static void update_main(uint8_t ret[22], uint8_t flags)
{
    static const uint8_t head[14] = {1, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 6, 0};
    memcpy(ret, head, 14);
    ret[7] = flags;
    memcpy(ret + 14, HEADER "old", 8);
}

static void test_update(void **state)
{
    uint8_t main_data[22];
    (void)state;
    for (unsigned hot = 0; hot < 2; hot++) {
        update_main(main_data, 0x10 | (hot ? 0 : 0x08));
        struct wal_record r = record_of(RM_HEAP_ID, hot ? 0x40 : 0x20, main_data, hot ? 14 : 22);
        block_add(&r, 0, MAIN_FORKNUM, 11, HEADER "new", 8);
        if (!hot)
            block_add(&r, 1, MAIN_FORKNUM, 10, NULL, 0);
        block_add(&r, 2, VISIBILITYMAP_FORKNUM, 0, NULL, 0);
        block_add(&r, 3, VISIBILITYMAP_FORKNUM, 0, NULL, 0);
        struct seen s = changes_of(&r, false);
        assert_int_equal(s.n, 1);
        assert_int_equal(s.changes[0].kind, CHANGE_UPDATE);
        assert_int_equal(s.changes[0].new_tid, 11 << 16 | 6);
        assert_int_equal(s.changes[0].old_tid, (hot ? 11 : 10) << 16 | 5);
        tuple_is(&s.changes[0].new_tuple, 2, 0x0902, "new");
        assert_int_equal(s.changes[0].has_old, !hot);
        assert_int_equal(s.changes[0].flags, hot ? 0 : CHANGE_OLD_KEY);
        if (!hot)
            tuple_is(&s.changes[0].old_tuple, 2, 0x0902, "old");
    }
}

/* With a visibility map under id 1 by mistake of position the old block would be 0. */
static void test_update_old_block_by_fork(void **state)
{
    uint8_t main_data[22];
    (void)state;
    update_main(main_data, 0x10 | 0x04);
    struct wal_record r = record_of(RM_HEAP_ID, 0x20, main_data, 22);
    block_add(&r, 0, MAIN_FORKNUM, 11, HEADER "new", 8);
    block_add(&r, 2, VISIBILITYMAP_FORKNUM, 0, NULL, 0);
    struct seen s = changes_of(&r, false);
    assert_int_equal(s.changes[0].old_tid, 11 << 16 | 5);
    assert_int_equal(s.changes[0].flags, CHANGE_OLD_FULL);
}

/* A TOAST row of VACUUM FULL or CLUSTER on a page that a checkpoint made write an image: its data
 * is only there. */
static void test_insert_only_in_image(void **state)
{
    uint8_t page[PG_BLCKSZ] = {0};
    const uint8_t main_data[3] = {2, 0, 0};
    const uint32_t lines[] = {8160u | 1u << 15 | 27u << 17, 8128u | 1u << 15 | 30u << 17};
    const uint16_t head[] = {32, 8128, 8192, 8192 | 4};
    struct error err = {0};
    struct seen s = {0};
    bool incomplete;
    (void)state;
    memcpy(page + 12, head, sizeof head);
    memcpy(page + 24, lines, sizeof lines);
    for (unsigned i = 0; i < 2; i++) {
        uint8_t *tuple = page + (lines[i] & 0x7fff);
        memcpy(tuple + 18, "\x03\0\x02\x08\x18", 5);
        memcpy(tuple + 24, i == 0 ? "one" : "second", i == 0 ? 3 : 6);
    }
    struct wal_record r = record_of(RM_HEAP_ID, 0, main_data, 3);
    block_add(&r, 0, MAIN_FORKNUM, 9, NULL, 0);
    r.blocks[0].has_image = true;
    r.blocks[0].image = page;
    r.blocks[0].image_len = PG_BLCKSZ;
    assert_ok(heap_record_changes(&r, see_second, &s, &incomplete, &err));
    assert_false(incomplete);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.changes[0].kind, CHANGE_INSERT);
    assert_int_equal(s.changes[0].new_tid, (uint64_t)9 << 16 | 2);
    for (unsigned offset = 0; offset < 5; offset += 3) { /* no such row: 0 and 3 */
        const uint8_t wrong[3] = {(uint8_t)offset, 0, 0};
        r.main_data = wrong;
        assert_int_equal(heap_record_changes(&r, see, &s, &incomplete, &err), ERR_DATA);
    }
}

static void test_update_incomplete(void **state)
{
    static const uint8_t flags[] = {0, 0x20, 0x40, 0x10 | 0x20, 0x10 | 0x40};
    uint8_t main_data[22];
    (void)state;
    for (size_t i = 0; i < LENGTH(flags); i++) {
        update_main(main_data, flags[i]);
        struct wal_record r = record_of(RM_HEAP_ID, 0x20, main_data, 14);
        block_add(&r, 0, MAIN_FORKNUM, 11, HEADER "new", 8);
        assert_int_equal(changes_of(&r, true).n, 0);
    }
}

static void test_multi_insert(void **state)
{
    /* three tuples of 1, 2 and 3 bytes, each at an even offset */
    static const uint8_t data[] = "\x01\0" HEADER "a"
                                  "\x02\0" HEADER "bb\0"
                                  "\x03\0" HEADER "ccc";
    static const uint8_t main_data[] = {8, 0, 3, 0, 4, 0, 9, 0, 2, 0};
    static const OffsetNumber offsets[2][3] = {{4, 9, 2}, {1, 2, 3}};
    static const char *const bodies[] = {"a", "bb", "ccc"};
    (void)state;
    for (unsigned init = 0; init < 2; init++) {
        struct wal_record r =
            record_of(RM_HEAP2_ID, 0x50 | (init ? 0x80 : 0), main_data, init ? 4 : 10);
        block_add(&r, 0, MAIN_FORKNUM, 2, data, sizeof data - 1);
        block_add(&r, 1, VISIBILITYMAP_FORKNUM, 0, NULL, 0);
        struct seen s = changes_of(&r, false);
        assert_int_equal(s.n, 3);
        for (uint16_t i = 0; i < 3; i++) {
            assert_int_equal(s.changes[i].kind, CHANGE_INSERT);
            assert_int_equal(s.changes[i].ordinal, i);
            assert_int_equal(s.changes[i].new_tid, 2 << 16 | offsets[init][i]);
            tuple_is(&s.changes[i].new_tuple, 2, 0x0902, bodies[i]);
        }
    }
}

static void test_confirm_and_others(void **state)
{
    static const uint8_t offset[2] = {3, 0};
    (void)state;
    struct wal_record r = record_of(RM_HEAP_ID, 0x50, offset, 2);
    block_add(&r, 0, MAIN_FORKNUM, 1, NULL, 0);
    struct seen s = changes_of(&r, false);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.changes[0].kind, CHANGE_SPEC_CONFIRM);
    assert_int_equal(s.changes[0].new_tid, 1 << 16 | 3);
    r.info = 0x60; /* LOCK */
    assert_int_equal(changes_of(&r, false).n, 0);
    r.info = 0x70; /* INPLACE */
    assert_int_equal(changes_of(&r, false).n, 0);
    r.rmid = RM_HEAP2_ID;
    for (unsigned op = 0; op < 8; op++) {
        r.info = (uint8_t)(op << 4);
        if (op != 5)
            assert_int_equal(changes_of(&r, false).n, 0);
    }
}

static void test_truncate(void **state)
{
    static const uint8_t data[] = {5, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 1, 64, 0, 0, 2, 64, 0, 0};
    struct error err;
    struct heap_truncate t;
    (void)state;
    struct wal_record r = record_of(RM_HEAP_ID, 0x30, data, sizeof data);
    assert_true(heap_record_is_truncate(&r));
    assert_ok(heap_truncate_parse(&r, &t, &err));
    assert_int_equal(t.db_oid, 5);
    assert_int_equal(t.nrelids, 2);
    assert_int_equal(t.flags, 3);
    assert_ptr_equal(t.relids, data + 12);
    r.main_len--;
    assert_int_equal(heap_truncate_parse(&r, &t, &err), ERR_DATA);
    r.rmid = RM_HEAP2_ID;
    assert_false(heap_record_is_truncate(&r));
}

/* Every record above, cut anywhere: an error that names the LSN, or no change; never a read
 * outside. */
static void test_cut_records(void **state)
{
    static const unsigned infos[] = {0x00, 0x10, 0x20, 0x50};
    uint8_t bytes[22];
    struct error err;
    unsigned refused = 0;
    (void)state;
    update_main(bytes, 0x14);
    for (size_t i = 0; i < LENGTH(infos); i++)
        for (unsigned len = 0; len <= sizeof bytes; len++)
            for (unsigned data_len = 0; data_len < 8; data_len++) {
                uint8_t *main_data = xmalloc(len + 1), *data = xmalloc(data_len + 1);
                memcpy(main_data, bytes, len);
                memcpy(data, HEADER "new", data_len);
                struct seen s = {0};
                bool incomplete;
                struct wal_record r =
                    record_of(i == 3 ? RM_HEAP2_ID : RM_HEAP_ID, infos[i], main_data, len);
                block_add(&r, 0, MAIN_FORKNUM, 1, data, data_len);
                enum status got = heap_record_changes(&r, see, &s, &incomplete, &err);
                assert_true(got == OK || got == ERR_DATA);
                if (got == ERR_DATA) {
                    refused++;
                    assert_int_equal(err.lsn, r.start);
                }
                free(main_data);
                free(data);
            }
    assert_true(refused > 100);
}

static void test_emit_failure_is_returned(void **state)
{
    static const uint8_t main_data[3] = {7, 0, 8};
    struct error err;
    struct seen s = {.answer = ERR_CANCELLED};
    bool incomplete;
    (void)state;
    struct wal_record r = record_of(RM_HEAP_ID, 0, main_data, 3);
    block_add(&r, 0, MAIN_FORKNUM, 1, HEADER "row", 8);
    assert_int_equal(heap_record_changes(&r, see, &s, &incomplete, &err), ERR_CANCELLED);
    r.rmid = RM_XACT_ID;
    assert_int_equal(heap_record_changes(&r, see, &s, &incomplete, &err), ERR_BUG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_insert),
        cmocka_unit_test(test_insert_without_tuple),
        cmocka_unit_test(test_delete),
        cmocka_unit_test(test_update),
        cmocka_unit_test(test_update_old_block_by_fork),
        cmocka_unit_test(test_insert_only_in_image),
        cmocka_unit_test(test_update_incomplete),
        cmocka_unit_test(test_multi_insert),
        cmocka_unit_test(test_confirm_and_others),
        cmocka_unit_test(test_truncate),
        cmocka_unit_test(test_cut_records),
        cmocka_unit_test(test_emit_failure_is_returned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
