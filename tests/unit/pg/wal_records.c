/* Transaction, standby, checkpoint and storage records of the golden segments, against what the
 * workload that made them did; pg_control against what initdb and the configuration said. */
#include "pg/control_file.h"
#include "pg/relmap.h"
#include "pg/standby_record.h"
#include "pg/storage_record.h"
#include "pg/wal_parse.h"
#include "pg/xact_record.h"
#include "pg/xlog_record.h"
#include "wal/golden.h"
#include "wal/reader.h"

struct totals {
    const struct golden *g;
    unsigned commits, aborts, subxact_commits, assignments, with_drops, invalidations;
    unsigned prepared[2], commit_prepared, rollback_prepared, running, locks, checkpoints, relmaps;
    unsigned creates, fpw_changes, catcache, relcache, relcache_files;
    TransactionId xid_one, xid_two;
};

static void check_invals(struct totals *t, const struct inval_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        struct inval_message m = inval_list_get(list, i);
        assert_int_not_equal(m.kind, INVAL_OTHER);
        assert_true(m.db_oid == 0 || m.db_oid == t->g->database || m.db_oid == 5);
        t->catcache += m.kind == INVAL_CATCACHE;
        t->relcache += m.kind == INVAL_RELCACHE && m.rel_oid != 0;
        assert_true(m.cache_id < 120);
    }
}

static void check_prepared(struct totals *t, const struct xact_record *x)
{
    bool one = strcmp(x->gid, "gid-one") == 0;
    if (!one)
        assert_string_equal(x->gid, "gid-two");
    assert_int_equal(x->gid_len, 7);
    switch ((enum xact_kind)x->kind) {
    case XACT_PREPARE:
        assert_int_equal(x->db_oid, t->g->database);
        assert_int_equal(x->subxacts.count, one);
        assert_int_equal(x->abort_dropped.count, one); /* the new table's file */
        assert_true(one == (x->invals.count > 0));
        t->prepared[one]++;
        *(one ? &t->xid_one : &t->xid_two) = x->xid;
        break;
    case XACT_COMMIT_PREPARED:
        assert_true(one);
        assert_int_equal(x->xid, t->xid_one);
        assert_int_equal(x->subxacts.count, 1);
        t->commit_prepared++;
        break;
    case XACT_ABORT_PREPARED:
        assert_false(one);
        assert_int_equal(x->xid, t->xid_two);
        t->rollback_prepared++;
        break;
    case XACT_COMMIT:
    case XACT_ABORT:
    case XACT_ASSIGNMENT:
    case XACT_INVALIDATIONS:
        fail();
    }
}

static void check_xact(struct totals *t, const struct wal_record *r)
{
    struct error err = {0};
    struct xact_record x;
    assert_ok(xact_record_parse(r, t->g->major, &x, &err));
    check_invals(t, &x.invals);
    for (uint32_t i = 0; i < x.subxacts.count; i++)
        assert_true(xid_list_get(&x.subxacts, i) > x.xid);
    for (uint32_t i = 0; i < x.dropped.count; i++)
        assert_int_equal(locator_list_get(&x.dropped, i).spc_oid, 1663);
    if (x.kind != XACT_ASSIGNMENT && x.kind != XACT_INVALIDATIONS) /* after 2025-01-01 */
        assert_true(x.time / 1000000 > INT64_C(788918400));
    if (x.gid != NULL) {
        check_prepared(t, &x);
    } else if (x.kind == XACT_COMMIT) {
        t->commits++;
        t->subxact_commits += x.subxacts.count > 0;
        t->with_drops += x.dropped.count >= 3; /* table, TOAST table and its index */
        t->relcache_files += x.relcache_init_file;
    }
    t->aborts += x.kind == XACT_ABORT;
    t->invalidations += x.kind == XACT_INVALIDATIONS;
}

static void check_standby(struct totals *t, const struct wal_record *r)
{
    struct error err = {0};
    if (standby_record_op(r) == XLOG_RUNNING_XACTS) {
        struct running_xacts running;
        assert_ok(running_xacts_parse(r, &running, &err));
        assert_true(running.next_xid > running.latest_completed_xid);
        assert_false(running.subxid_overflow);
        assert_true(running.oldest_running_xid <= running.next_xid);
        t->running++;
    } else if (standby_record_op(r) == XLOG_STANDBY_LOCK) {
        struct standby_lock_list list;
        assert_ok(standby_locks_parse(r, &list, &err));
        for (uint32_t i = 0; i < list.count; i++) {
            struct standby_lock lock = standby_lock_get(&list, i);
            assert_true(lock.db_oid == t->g->database || lock.db_oid == 5 || lock.db_oid == 0);
            assert_int_equal(lock.xid, r->xid);
            t->locks++;
        }
    }
}

static void check_xlog(struct totals *t, const struct wal_record *r)
{
    struct error err = {0};
    struct xlog_record x;
    assert_ok(xlog_record_parse(r, t->g->major, &x, &err));
    if (x.op == XLOG_CHECKPOINT_ONLINE) {
        t->checkpoints++;
        assert_int_equal(x.wal_level, t->g->major >= 17 ? WAL_LEVEL_LOGICAL : -1);
        assert_int_equal(x.timeline, 1);
        assert_true(x.checkpoint.redo <= r->start && x.checkpoint.redo > t->g->start - (8 << 20));
        assert_true(x.checkpoint.next_xid > 700 && x.checkpoint.next_xid < 2000);
        assert_true(x.checkpoint.next_oid > 16384);
        assert_int_equal(x.checkpoint.next_multi, 1);
    }
    t->fpw_changes += x.op == XLOG_FPW_CHANGE;
    if (x.op == XLOG_CHECKPOINT_REDO)
        assert_int_equal(x.wal_level, WAL_LEVEL_LOGICAL);
}

static enum status check_record(void *ctx, const struct wal_record *r, struct error *err)
{
    struct totals *t = ctx;
    struct smgr_record smgr;
    struct relmap map;
    Oid db_oid;
    switch (r->rmid) {
    case RM_XACT_ID:
        check_xact(t, r);
        break;
    case RM_STANDBY_ID:
        check_standby(t, r);
        break;
    case RM_XLOG_ID:
        check_xlog(t, r);
        break;
    case RM_SMGR_ID:
        TRY(smgr_record_parse(r, &smgr, err));
        t->creates +=
            !smgr.is_truncate && smgr.fork == MAIN_FORKNUM && smgr.locator.db_oid == t->g->database;
        break;
    case RM_RELMAP_ID:
        TRY(relmap_record_parse(r, &db_oid, &map, err));
        t->relmaps += db_oid == t->g->database && map.count > 10;
        break;
    default:
        break;
    }
    return OK;
}

static void golden_records(void **state)
{
    (void)state;
    for (unsigned major = 15; major <= 18; major++) {
        struct golden g;
        struct error err = {0};
        golden_load(&g, major);
        struct totals t = {.g = &g};
        struct wal_reader_options o = {.major = major,
                                       .segment_bytes = GOLDEN_SEGMENT,
                                       .keep_max = SIZE_MAX,
                                       .ctx = &t,
                                       .on_record = check_record};
        struct wal_reader *r = wal_reader_new(&o, g.start);
        assert_ok(wal_reader_push(r, g.start, g.wal.data, g.wal.len, &err));
        wal_reader_free(r);
        assert_int_equal(t.prepared[0], 1);
        assert_int_equal(t.prepared[1], 1);
        assert_int_equal(t.commit_prepared, 1);
        assert_int_equal(t.rollback_prepared, 1);
        assert_int_equal(t.aborts, 1);          /* ROLLBACK TO a */
        assert_int_equal(t.subxact_commits, 1); /* SAVEPOINT b */
        assert_true(t.with_drops >= 2);         /* DROP TABLE big, VACUUM FULL t */
        assert_true(t.commits > 25 && t.relmaps >= 1 && t.locks > 5 && t.creates > 15);
        assert_true(t.running >= 2 && t.checkpoints >= 2 && t.invalidations > 10);
        assert_int_equal(t.fpw_changes, 2);
        assert_true(t.catcache > 100 && t.relcache > 20 && t.relcache_files >= 1);
        golden_free(&g);
    }
}

static void golden_control_file(void **state)
{
    (void)state;
    for (unsigned major = 15; major <= 18; major++) {
        struct golden g;
        struct error err = {0};
        struct control_file f;
        golden_load(&g, major);
        assert_ok(control_file_parse(g.control.data, g.control.len, &f, &err));
        assert_int_equal(f.major, major);
        assert_int_equal(f.system_id, g.system_id);
        assert_int_equal(f.state, CONTROL_SHUTDOWNED);
        assert_int_equal(f.wal_segment_bytes, GOLDEN_SEGMENT);
        assert_int_equal(f.wal_level, WAL_LEVEL_LOGICAL);
        assert_int_equal(f.max_prepared_xacts, 4);
        assert_int_equal(f.max_connections, 100);
        assert_int_equal(f.max_wal_senders, 10);
        assert_int_equal(f.max_worker_processes, 8);
        assert_int_equal(f.max_locks_per_xact, 64);
        assert_true(f.track_commit_timestamp);
        assert_int_equal(f.checkpoint.redo, f.checkpoint_lsn);
        assert_int_equal(f.checkpoint.timeline, 1);
        assert_int_equal(f.checkpoint.wal_level, major >= 17 ? WAL_LEVEL_LOGICAL : -1);
        assert_int_equal(f.data_checksum_version, major >= 18);
        assert_int_equal(f.min_recovery_point, 0);
        assert_true(f.checkpoint.time > 1735689600 && f.time >= f.checkpoint.time);
        for (size_t at = 0; at < 288; at++) { /* the used part is under the CRC */
            g.control.data[at] ^= 1;
            enum status status = control_file_parse(g.control.data, g.control.len, &f, &err);
            assert_int_equal(status, at >= 8 && at < 12 ? ERR_CONFIG : ERR_DATA);
            g.control.data[at] ^= 1;
        }
        for (size_t len = 0; len < 292; len++)
            assert_int_equal(control_file_parse(g.control.data, len, &f, &err), ERR_DATA);
        golden_free(&g);
    }
}

/* A heap record of newer minor releases carries the visibility map as a further block (notes F1).
 */
static void visibility_map_block(void **state)
{
    (void)state;
    struct buf CLEANUP_BUF b = {0};
    struct rel_file_locator rel = {1663, 5, 20000};
    struct error err = {0};
    struct wal_record r;
    buf_put_zeros(&b, SizeOfXLogRecord);
    buf_put(&b, "\0\x20\x04\0", 4); /* block 0: data of 4 bytes */
    buf_put(&b, &rel, sizeof rel);
    buf_put_u32(&b, 77);
    buf_put(&b, "\1\x82\0\0", 4); /* block 1: same relation, visibility map */
    buf_put_u32(&b, 2);
    buf_put(&b, "\377\3DATAabc", 9);
    uint32_t total = (uint32_t)b.len;
    memcpy(b.data, &total, 4);
    b.data[17] = RM_HEAP_ID;
    assert_ok(wal_record_parse(b.data, total, &r, &err));
    assert_int_equal(r.nblocks, 2);
    assert_int_equal(wal_record_block(&r, 0)->block, 77);
    assert_memory_equal(wal_record_block(&r, 0)->data, "DATA", 4);
    assert_int_equal(wal_record_block(&r, 1)->fork, VISIBILITYMAP_FORKNUM);
    assert_int_equal(wal_record_block(&r, 1)->block, 2);
    assert_true(rel_file_locator_equal(wal_record_block(&r, 1)->locator, rel));
    assert_memory_equal(r.main_data, "abc", 3);
    assert_null(wal_record_block(&r, 2));
    for (uint32_t cut = SizeOfXLogRecord + 1; cut < total; cut++) { /* no length is trusted */
        if (cut == SizeOfXLogRecord + 20 + 4 || cut == SizeOfXLogRecord + 20 + 8 + 4)
            continue; /* whole records: the blocks so far and the data of the first */
        memcpy(b.data, &cut, 4);
        uint8_t *copy = malloc(cut);
        memcpy(copy, b.data, cut);
        assert_int_equal(wal_record_parse(copy, cut, &r, &err), ERR_DATA);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_records),
        cmocka_unit_test(golden_control_file),
        cmocka_unit_test(visibility_map_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
