/* C1 and the transaction families behind it; the set of catalog filenodes and its file. */
#include "wal/classify.h"

#include "base/buf.h"
#include "base/file.h"
#include "test.h"

#include <errno.h>
#include <unistd.h>

#define OUR_DB 5u

static enum wal_route route(struct wal_classifier *c, struct wal_record *r, const struct buf *main)
{
    struct error err = {0};
    enum wal_route ret = WAL_FORWARD;
    r->main_data = main->data;
    r->main_len = (uint32_t)main->len;
    assert_ok(wal_classify(c, r, &ret, &err));
    return ret;
}

static enum wal_route lock(struct wal_classifier *c, TransactionId xid, Oid db_oid, Oid rel_oid)
{
    struct buf CLEANUP_BUF b = {0};
    struct wal_record r = {.rmid = RM_STANDBY_ID, .info = 0x00, .xid = xid};
    buf_put_u32(&b, 1);
    buf_put_u32(&b, xid);
    buf_put_u32(&b, db_oid);
    buf_put_u32(&b, rel_oid);
    return route(c, &r, &b);
}

static enum wal_route create(struct wal_classifier *c, TransactionId xid, TransactionId top,
                             Oid filenode)
{
    struct buf CLEANUP_BUF b = {0};
    struct wal_record r = {.rmid = RM_SMGR_ID, .info = 0x10, .xid = xid, .toplevel_xid = top};
    buf_put_u32(&b, 1663);
    buf_put_u32(&b, OUR_DB);
    buf_put_u32(&b, filenode);
    buf_put_u32(&b, 0);
    return route(c, &r, &b);
}

static enum wal_route insert(struct wal_classifier *c, Oid filenode)
{
    struct buf none = {0};
    struct wal_record r = {.rmid = RM_HEAP_ID, .nblocks = 1};
    r.blocks[0].locator = (struct rel_file_locator){1663, OUR_DB, filenode};
    return route(c, &r, &none);
}

static void outcome(struct wal_classifier *c, uint8_t info, TransactionId xid)
{
    struct buf CLEANUP_BUF b = {0};
    struct wal_record r = {.rmid = RM_XACT_ID, .info = info, .xid = xid};
    buf_put_u64(&b, 1);
    assert_int_equal(route(c, &r, &b), WAL_FORWARD);
}

static void catalog_rewrite(void **state)
{
    (void)state;
    struct catalog_filenodes *set = catalog_filenodes_new();
    struct wal_classifier *c = wal_classifier_new(15, OUR_DB, set);
    assert_int_equal(create(c, 100, 0, 20001), WAL_NOOP_USER); /* no lock: a user's table */
    assert_int_equal(lock(c, 100, OUR_DB, 1259), WAL_NOOP_CONFLICT);
    assert_int_equal(create(c, 100, 0, 20002), WAL_FORWARD);
    assert_int_equal(insert(c, 20002), WAL_FORWARD);
    assert_int_equal(insert(c, 20001), WAL_NOOP_USER);
    outcome(c, 0x00, 100);
    assert_int_equal(wal_classifier_open(c), 0);
    assert_int_equal(create(c, 100, 0, 20003), WAL_NOOP_USER); /* over with the commit */
    assert_int_equal(insert(c, 20002), WAL_FORWARD);           /* the file stays a catalog's */
    lock(c, 101, 6, 1259);                                     /* another database */
    assert_int_equal(create(c, 101, 0, 20004), WAL_NOOP_USER);
    lock(c, 101, OUR_DB, 20000); /* a user's table */
    assert_int_equal(create(c, 101, 0, 20004), WAL_NOOP_USER);
    lock(c, 101, OUR_DB, LARGEOBJECT_OID); /* data, not catalog */
    assert_int_equal(create(c, 101, 0, 20004), WAL_NOOP_USER);
    lock(c, 101, 0, 1260); /* shared */
    assert_int_equal(create(c, 101, 0, 20004), WAL_FORWARD);
    wal_classifier_free(c);
    catalog_filenodes_free(set);
}

static void families(void **state)
{
    (void)state;
    struct catalog_filenodes *set = catalog_filenodes_new();
    struct wal_classifier *c = wal_classifier_new(18, OUR_DB, set);
    struct buf CLEANUP_BUF b = {0};
    struct wal_record r = {.rmid = RM_XACT_ID, .info = 0x50};
    /* the top-level one locks, its child creates */
    lock(c, 200, OUR_DB, 1259);
    assert_int_equal(create(c, 201, 200, 20001), WAL_FORWARD);
    outcome(c, 0x20, 201);
    assert_int_equal(create(c, 200, 0, 20002), WAL_FORWARD);
    /* a child locks, another creates; parentage by ASSIGNMENT, after the lock */
    lock(c, 301, OUR_DB, 1247);
    buf_put_u32(&b, 300);
    buf_put_u32(&b, 2);
    buf_put_u32(&b, 301);
    buf_put_u32(&b, 302);
    route(c, &r, &b);
    assert_int_equal(create(c, 302, 0, 20003), WAL_FORWARD);
    /* 300 died with the server: RUNNING_XACTS lets it go */
    struct buf CLEANUP_BUF running = {0};
    struct wal_record rr = {.rmid = RM_STANDBY_ID, .info = 0x10};
    buf_put_u64(&running, 0);
    buf_put_u32(&running, 0);
    buf_put_u32(&running, 400);
    buf_put_u32(&running, 400);
    buf_put_u32(&running, 399);
    route(c, &rr, &running);
    assert_int_equal(wal_classifier_open(c), 0);
    assert_int_equal(create(c, 302, 0, 20004), WAL_NOOP_USER);
    wal_classifier_free(c);
    catalog_filenodes_free(set);
}

static void unknown_is_an_error(void **state)
{
    (void)state;
    struct catalog_filenodes *set = catalog_filenodes_new();
    struct wal_classifier *c = wal_classifier_new(18, OUR_DB, set);
    struct error err = {0};
    enum wal_route ret;
    struct wal_record r = {.rmid = 60, .start = 0x1234};
    assert_int_equal(wal_classify(c, &r, &ret, &err), ERR_DATA);
    assert_int_equal(err.lsn, 0x1234);
    r.rmid = RM_SMGR_ID; /* no content */
    r.info = 0x10;
    assert_int_equal(wal_classify(c, &r, &ret, &err), ERR_DATA);
    wal_classifier_free(c);
    catalog_filenodes_free(set);
}

static void set_and_file(void **state)
{
    (void)state;
    char dir[] = "/tmp/walset.XXXXXX", path[100];
    struct error err = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/%s", dir, CATALOG_FILENODES_FILE);
    struct catalog_filenodes *set = catalog_filenodes_new();
    for (Oid i = 0; i < 5000; i++)
        assert_true(catalog_filenodes_add(set, 5 + i % 3, 20000 + i * 7));
    assert_false(catalog_filenodes_add(set, 5, 20000));
    for (Oid i = 0; i < 5000; i += 2)
        catalog_filenodes_remove(set, 5 + i % 3, 20000 + i * 7);
    assert_ok(catalog_filenodes_save(set, path, &err));
    struct catalog_filenodes *loaded = catalog_filenodes_new();
    assert_ok(catalog_filenodes_load(loaded, path, &err));
    assert_int_equal(catalog_filenodes_count(loaded), 2500);
    for (Oid i = 0; i < 5000; i++)
        assert_int_equal(catalog_filenodes_contains(loaded, 5 + i % 3, 20000 + i * 7), i % 2);
    assert_true(catalog_filenodes_contains(loaded, 99, 1259));
    assert_false(catalog_filenodes_contains(loaded, 99, LARGEOBJECT_OID));
    assert_true(catalog_filenodes_contains(loaded, 0, 99999));
    struct buf CLEANUP_BUF file = {0};
    assert_ok(file_read_all(path, 1 << 20, &file, &err));
    for (size_t at = 0; at < file.len; at += 101) { /* any damage is noticed */
        file.data[at] ^= 4;
        assert_ok(file_write_atomic(path, file.data, file.len, 0600, &err));
        assert_int_not_equal(catalog_filenodes_load(loaded, path, &err), OK);
        file.data[at] ^= 4;
    }
    assert_ok(file_write_atomic(path, file.data, file.len - 1, 0600, &err));
    assert_int_equal(catalog_filenodes_load(loaded, path, &err), ERR_DATA);
    unlink(path);
    assert_int_not_equal(catalog_filenodes_load(loaded, path, &err), OK);
    assert_int_equal(err.sys_errno, ENOENT);
    catalog_filenodes_free(set);
    catalog_filenodes_free(loaded);
    assert_ok(file_remove_tree(dir, true, &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(catalog_rewrite),
        cmocka_unit_test(families),
        cmocka_unit_test(unknown_is_an_error),
        cmocka_unit_test(set_and_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
