/* Tables that come, go, change or cannot go on, while the stream runs. */
#include "feed.h"

static void feed_plain(struct feed *f)
{
    feed_open(f, NULL, 0, (struct reorder_options){0});
}

/* T is stopped for a reason that says `part`; U goes on. */
static void assert_only_t_stops(struct feed *f, const char *part)
{
    feed_settle(f);
    assert_stopped(f, TABLE_T, part);
    unsigned long before = rows_of(f, TABLE_T), others = rows_of(f, TABLE_U);
    insert(f, 900, TABLE_T, 1); /* of no account any more */
    insert(f, 900, TABLE_U, 2);
    commit(f, 900);
    feed_settle(f);
    assert_int_equal(rows_of(f, TABLE_T), before);
    assert_int_equal(rows_of(f, TABLE_U), others + 1);
    assert_int_equal(life_of(f, TABLE_U), TABLE_LIFE_STREAMING);
    feed_end(f);
}

static void test_delete_without_its_key(void **state)
{
    struct feed f;
    (void)state;
    feed_plain(&f);
    change(&f, 10, TABLE_T, CHANGE_DELETE, 1, false, false, 2);
    insert(&f, 10, TABLE_U, 2);
    commit(&f, 10);
    assert_only_t_stops(&f, "without the old key");
}

static void test_change_without_its_row(void **state)
{
    struct feed f;
    (void)state;
    feed_plain(&f);
    insert(&f, 10, TABLE_T, 1);
    change(&f, 10, TABLE_T, CHANGE_INSERT, 1, false, false, 2);
    commit(&f, 10);
    assert_only_t_stops(&f, "new row");
}

static void test_damaged_tuple(void **state)
{
    struct feed f;
    (void)state;
    feed_plain(&f);
    insert(&f, 10, TABLE_U, 1);
    change(&f, 10, TABLE_T, CHANGE_INSERT, 1, true, false, DAMAGED_NATTS);
    commit(&f, 10);
    assert_only_t_stops(&f, "attributes");
}

/* The stop is durable: a later run knows it, and its reason. */
static void test_stop_survives(void **state)
{
    struct error err = {0};
    struct feed f;
    char reason[200], again[200];
    (void)state;
    feed_plain(&f);
    change(&f, 10, TABLE_T, CHANGE_DELETE, 1, false, false, 2);
    commit(&f, 10);
    feed_settle(&f);
    assert_int_equal(history_state(f.history, TABLE_T, reason, sizeof reason), HISTORY_STOPPED);
    CLEANUP_FREE char *log = xasprintf("%s/catalog.log", f.dir);
    struct history *h = NULL;
    assert_ok(history_open(log, &h, &err));
    assert_int_equal(history_state(h, TABLE_T, again, sizeof again), HISTORY_STOPPED);
    assert_string_equal(again, reason);
    history_free(h);
    feed_end(&f);
}

/* Tuples of W, and chunks of its TOAST table. */
static void wide_insert(struct feed *f, TransactionId xid, int32_t id, const struct buf *text)
{
    CLEANUP_BUF struct buf body = {0};
    buf_put_u8(&body, 0);
    buf_put_i32(&body, id);
    buf_put(&body, text->data, text->len);
    struct change c = {.kind = CHANGE_INSERT,
                       .lsn = feed_next(f),
                       .locator = file_of(TABLE_W + 1),
                       .new_tid = tid_make(1, 1),
                       .has_new = true,
                       /* variable width, and (4) something external */
                       .new_tuple = {.infomask2 = 2,
                                     .infomask = 0x0806,
                                     .hoff = 24,
                                     .body_len = (uint32_t)body.len,
                                     .body = body.data}};
    frame_put_change(&f->batch->frames, &c, xid, 0);
}

/* varatt_external in its varlena (header 0x01, tag 18), unaligned. */
static void external_insert(struct feed *f, TransactionId xid, int32_t id, Oid value_id,
                            uint32_t len)
{
    CLEANUP_BUF struct buf text = {0};
    buf_put_u8(&text, 1);
    buf_put_u8(&text, 18);
    buf_put_u32(&text, len + 4);
    buf_put_u32(&text, len);
    buf_put_u32(&text, value_id);
    buf_put_u32(&text, TABLE_W + 3);
    wide_insert(f, xid, id, &text);
}

static void chunks_insert(struct feed *f, TransactionId xid, Oid value_id, uint32_t len)
{
    for (uint32_t seq = 0; seq * 1996 < len; seq++) {
        uint32_t n = MIN(1996u, len - seq * 1996);
        CLEANUP_BUF struct buf body = {0};
        buf_put_u8(&body, 0);
        buf_put_u32(&body, value_id);
        buf_put_u32(&body, seq);
        buf_put_u32(&body, (n + 4) << 2);
        for (uint32_t i = 0; i < n; i++)
            buf_put_u8(&body, 'a');
        struct change c = {.kind = CHANGE_INSERT,
                           .lsn = feed_next(f),
                           .locator = file_of(TABLE_W + 2),
                           .has_new = true,
                           .new_tuple = {.infomask2 = 3,
                                         .infomask = 0x0802,
                                         .hoff = 24,
                                         .body_len = (uint32_t)body.len,
                                         .body = body.data}};
        frame_put_change(&f->batch->frames, &c, xid, 0);
    }
}

static void test_toast_of_the_same_transaction(void **state)
{
    struct feed f;
    (void)state;
    feed_plain(&f);
    for (uint32_t i = 0; i < 20; i++) {
        chunks_insert(&f, 10, 7000 + i, 3000 + 1000 * i);
        external_insert(&f, 10, (int32_t)i, 7000 + i, 3000 + 1000 * i);
    }
    commit(&f, 10);
    feed_settle(&f);
    assert_int_equal(rows_of(&f, TABLE_W), 20);
    assert_int_equal(life_of(&f, TABLE_W), TABLE_LIFE_STREAMING);
    feed_end(&f);
}

/* A boundary at this commit: the history has what changed by now, as the pump ensures. */
static XLogRecPtr boundary(struct feed *f, TransactionId xid, const Oid *rels, uint32_t n,
                           uint8_t more)
{
    return ends(
        f, FRAME_COMMIT, xid,
        (struct ending){.rels = rels, .nrels = n, .flags = (uint8_t)(XACT_BOUNDARY | more)});
}

/* CREATE TABLE and rows in one transaction. */
static void test_created(void **state)
{
    static const Oid rels[] = {16800};
    struct feed f;
    (void)state;
    feed_plain(&f);
    insert(&f, 10, 16800, 1);
    insert(&f, 10, 16800, 2);
    shape_add(&f, table_desc(16800, f.lsn + 40, 2, false), f.lsn + 40);
    boundary(&f, 10, rels, 1, 0);
    insert(&f, 11, 16800, 3);
    commit(&f, 11);
    feed_settle(&f);
    assert_int_equal(life_of(&f, 16800), TABLE_LIFE_STREAMING);
    assert_int_equal(rows_of(&f, 16800), 3);
    assert_int_equal(atomic_load(&pipeline_reorder(f.p)->unknown_files), 0);
    feed_end(&f);
}

static void test_dropped(void **state)
{
    static const Oid rels[] = {TABLE_T};
    struct feed f;
    struct rel_file_locator file = file_of(TABLE_T + 1);
    (void)state;
    feed_plain(&f);
    insert(&f, 9, TABLE_T, 1);
    commit(&f, 9);              /* its row is still on its way when the table goes */
    insert(&f, 10, TABLE_T, 2); /* rows of a file that its own commit removes are nobody's */
    struct rel_desc *gone = rel_desc_new(0);
    gone->oid = gone->root_oid = TABLE_T;
    gone->relkind = 'r';
    gone->dropped = true;
    gone->valid_from = f.lsn + 40;
    shape_add(&f, gone, f.lsn + 40);
    ends(&f, FRAME_COMMIT, 10,
         (struct ending){
             .dropped = &file, .ndropped = 1, .rels = rels, .nrels = 1, .flags = XACT_BOUNDARY});
    feed_settle(&f);
    assert_int_equal(rows_of(&f, TABLE_T), 1);
    assert_int_equal(life_of(&f, TABLE_T), TABLE_LIFE_DROPPED);
    feed_end(&f);
}

static void shapes_known(struct feed *f)
{
    struct shapes_frame s = {.head = {.len = sizeof s, .type = FRAME_SHAPES, .lsn = feed_next(f)}};
    s.end = f->lsn;
    buf_put(&f->batch->frames, &s, sizeof s);
}

/* A boundary that was passed without a look: what it changed takes no rows, also of a wider shape
 * or of a file nobody knows, others go on; at the look it is compared, and copied again. */
static void test_unseen(void **state)
{
    static const Oid rels[] = {TABLE_T, 16800};
    struct error err = {0};
    char reason[200];
    struct feed f;
    (void)state;
    feed_plain(&f);
    insert(&f, 9, TABLE_T, 1);
    commit(&f, 9);
    feed_settle(&f);
    assert_ok(history_pass_unseen(f.history, f.lsn + 40, rels, 2, false, &err));
    boundary(&f, 10, rels, 2, 0);
    change(&f, 11, TABLE_T, CHANGE_INSERT, 2, true, false, DAMAGED_NATTS);
    insert(&f, 11, 16800, 3);
    insert(&f, 11, TABLE_U, 4);
    commit(&f, 11);
    feed_settle(&f);
    assert_int_equal(rows_of(&f, TABLE_T), 1);
    assert_int_equal(rows_of(&f, TABLE_U), 1);
    assert_int_equal(life_of(&f, TABLE_T), TABLE_LIFE_RESYNCING);
    assert_int_equal(history_state(f.history, TABLE_T, reason, sizeof reason), HISTORY_RESYNC);
    assert_non_null(strstr(reason, "64 subtransactions"));
    assert_int_equal(life_of(&f, 16800), -1);
    struct rel_desc *now[] = {table_desc(TABLE_T, f.lsn + 40, 3, false),
                              table_desc(16800, f.lsn + 40, 2, false)};
    rel_desc_seal(now[0]);
    rel_desc_seal(now[1]);
    assert_ok(history_append_seen(f.history, now, 2, f.lsn + 40, &err));
    shapes_known(&f);
    feed_settle(&f);
    assert_int_equal(life_of(&f, TABLE_T), TABLE_LIFE_RESYNCING);
    assert_int_equal(life_of(&f, 16800), TABLE_LIFE_RESYNCING);
    assert_int_equal(life_of(&f, TABLE_U), TABLE_LIFE_STREAMING);
    assert_int_equal(atomic_load(&pipeline_reorder(f.p)->unknown_files), 0);
    rel_desc_unref(now[0]);
    rel_desc_unref(now[1]);
    feed_end(&f);
}

static void test_not_a_change_of_shape(void **state)
{
    static const Oid rels[] = {TABLE_T, TABLE_U};
    struct feed f;
    (void)state;
    feed_plain(&f);
    insert(&f, 10, TABLE_T, 1);
    boundary(&f, 10, rels, 2, 0); /* GRANT, CREATE INDEX: compared, and equal */
    insert(&f, 11, TABLE_T, 2);
    boundary(&f, 11, NULL, 0, XACT_ALL_RELS);
    feed_settle(&f);
    assert_int_equal(rows_of(&f, TABLE_T), 2);
    assert_int_equal(life_of(&f, TABLE_T), TABLE_LIFE_STREAMING);
    assert_int_equal(life_of(&f, TABLE_U), TABLE_LIFE_STREAMING);
    feed_end(&f);
}

/* VACUUM FULL: all rows are written again into a file that becomes the table's. */
static void test_rewritten_with_a_key(void **state)
{
    static const Oid rels[] = {TABLE_T};
    struct feed f;
    (void)state;
    feed_plain(&f);
    insert(&f, 9, TABLE_T, 1);
    commit(&f, 9);
    struct rel_desc *d = table_desc(TABLE_T, f.lsn + 40, 2, false);
    d->locator = file_of(17000);
    shape_add(&f, d, f.lsn + 40);
    boundary(&f, 10, rels, 1, 0);
    insert(&f, 11, 16999, 2); /* the new file is 17000 */
    commit(&f, 11);
    feed_settle(&f);
    assert_int_equal(life_of(&f, TABLE_T), TABLE_LIFE_STREAMING);
    assert_int_equal(rows_of(&f, TABLE_T), 2);
    feed_end(&f);
}

/* Files unknown in commits up to load_end were gone by then; later ones are counted. */
static void test_unknown_files(void **state)
{
    static const Oid rels[] = {TABLE_T};
    struct feed f;
    (void)state;
    feed_open(&f, NULL, 0, (struct reorder_options){.load_end = 1080});
    insert(&f, 10, 18000, 1);
    commit(&f, 10);
    insert(&f, 11, 2612, 1); /* pg_largeobject */
    commit(&f, 11);
    feed_settle(&f);
    assert_int_equal(atomic_load(&pipeline_reorder(f.p)->unknown_files), 0);
    insert(&f, 12, 18000, 1);
    insert(&f, 12, TABLE_T, 1);
    commit(&f, 12);
    feed_settle(&f);
    assert_int_equal(atomic_load(&pipeline_reorder(f.p)->unknown_files), 1); /* once a change */
    assert_int_equal(rows_of(&f, TABLE_T), 1);
    insert(&f, 13, 18000, 2);
    insert(&f, 13, 18000, 3);
    boundary(&f, 13, rels, 1, 0);
    feed_settle(&f);
    assert_int_equal(atomic_load(&pipeline_reorder(f.p)->unknown_files), 3);
    assert_int_equal(pipeline_reorder(f.p)->nunknown, 1); /* named in the log once */
    feed_end(&f);
}

/* Rows committed before a boundary are decoded with their shape, though the newer one is known. */
static void test_replayed_boundary(void **state)
{
    static const Oid rels[] = {16800};
    struct feed f;
    (void)state;
    feed_plain(&f);
    shape_add(&f, table_desc(16800, 1080, 2, false), 1080);
    struct rel_desc *gone = rel_desc_new(0);
    gone->oid = gone->root_oid = 16800;
    gone->relkind = 'r';
    gone->dropped = true;
    gone->valid_from = 1240;
    shape_add(&f, gone, 1240);
    insert(&f, 10, 16800, 1);
    assert_int_equal(boundary(&f, 10, rels, 1, 0), 1080);
    insert(&f, 11, 16800, 2);
    commit(&f, 11);
    feed_settle(&f);
    assert_int_equal(rows_of(&f, 16800), 2);
    feed_next(&f);
    assert_int_equal(boundary(&f, 12, rels, 1, 0), 1240);
    feed_settle(&f);
    assert_int_equal(life_of(&f, 16800), TABLE_LIFE_DROPPED);
    feed_end(&f);
}

static void test_refused_relations(void **state)
{
    static const struct {
        char kind, persistence;
        Oid am;
    } cases[] = {{'m', 'p', 2}, {'r', 'u', 2}, {'r', 't', 2}, {'r', 'p', 99}};
    struct error err = {0};
    struct feed f;
    (void)state;
    feed_plain(&f);
    for (Oid i = 0; i < LENGTH(cases); i++) {
        struct rel_desc *d = table_desc(20000 + 10 * i, 900, 2, false);
        d->relkind = cases[i].kind;
        d->relpersistence = cases[i].persistence;
        d->relam = cases[i].am;
        rel_desc_seal(d);
        assert_non_null(relation_refused(d));
        assert_ok(tables_add(pipeline_tables(f.p), d, TABLES_KEEP, 900, &err));
        /* temporary tables come and go: none of them is listed */
        assert_int_equal(life_of(&f, 20000 + 10 * i),
                         cases[i].persistence == 't' ? -1 : TABLE_LIFE_SKIPPED);
        shape_add(&f, d, 900);
        insert(&f, 10, 20000 + 10 * i, 1);
    }
    insert(&f, 10, TABLE_T, 1);
    commit(&f, 10);
    feed_settle(&f);
    assert_int_equal(rows_of(&f, TABLE_T), 1);
    for (Oid i = 0; i < LENGTH(cases); i++)
        assert_int_equal(rows_of(&f, 20000 + 10 * i), 0);
    feed_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delete_without_its_key),
        cmocka_unit_test(test_change_without_its_row),
        cmocka_unit_test(test_damaged_tuple),
        cmocka_unit_test(test_stop_survives),
        cmocka_unit_test(test_toast_of_the_same_transaction),
        cmocka_unit_test(test_created),
        cmocka_unit_test(test_dropped),
        cmocka_unit_test(test_unseen),
        cmocka_unit_test(test_not_a_change_of_shape),
        cmocka_unit_test(test_rewritten_with_a_key),
        cmocka_unit_test(test_unknown_files),
        cmocka_unit_test(test_replayed_boundary),
        cmocka_unit_test(test_refused_relations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
