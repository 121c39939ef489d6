/* Files of real servers (tests/fixtures/multixact), against what those servers say of them. */
#include "pg/multixact.h"

#include "base/buf.h"
#include "base/file.h"
#include "test.h"

#include <stdio.h>

#define SEGMENT_BYTES (32u * PG_BLCKSZ)

static const char *const names[] = {"keysh", "sh", "fornokeyupd", "forupd", "nokeyupd", "upd"};

/* A whole segment: the fixture leaves out the zeros at its end. */
static uint8_t *segment_read(unsigned major, const char *what)
{
    struct error err;
    struct buf b = {0};
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/fixtures/multixact/%u.%s", getenv("SOURCE_ROOT"), major,
             what);
    assert_ok(file_read_all(path, SEGMENT_BYTES, &b, &err));
    uint8_t *segment = xcalloc(SEGMENT_BYTES, 1);
    memcpy(segment, b.data, b.len);
    buf_free(&b);
    return segment;
}

static MultiXactOffset first_of(const uint8_t *offsets, MultiXactId multi)
{
    struct slru_place at = multixact_offset_place(multi);
    assert_int_equal(at.segment, 0);
    return multixact_offset_get(offsets + (size_t)at.page * PG_BLCKSZ, at);
}

/* The lines of the server's reading, in order, are the members from the first on. */
static void check_major(unsigned major)
{
    struct error err;
    struct buf text = {0};
    char path[1024];
    uint8_t *offsets = segment_read(major, "offsets"), *members = segment_read(major, "members");
    MultiXactOffset at = 1;
    MultiXactId multi = 0;
    unsigned lines = 0, updaters = 0;
    snprintf(path, sizeof path, "%s/tests/fixtures/multixact/%u.tsv", getenv("SOURCE_ROOT"), major);
    assert_ok(file_read_all(path, 1 << 20, &text, &err));
    for (char *line = strtok((char *)(uintptr_t)buf_cstr(&text), "\n"); line != NULL;
         line = strtok(NULL, "\n"), lines++) {
        unsigned want_multi, want_xid;
        char want_status[32];
        struct multixact_member m;
        assert_int_equal(sscanf(line, "%u\t%u\t%31s", &want_multi, &want_xid, want_status), 3);
        if (want_multi != multi) {
            multi = multi == 0 ? 1 : multixact_next(multi);
            assert_int_equal(want_multi, multi);
            assert_int_equal(first_of(offsets, multi), at);
        }
        struct slru_place place = multixact_member_place(at++);
        assert_int_equal(place.segment, 0);
        assert_ok(multixact_member_get(members + (size_t)place.page * PG_BLCKSZ, place, &m, &err));
        assert_int_equal(m.xid, want_xid);
        assert_string_equal(names[m.status], want_status);
        updaters += multixact_member_updates(m);
    }
    assert_true(lines > 1636); /* more than a page holds */
    assert_int_equal(updaters, 2);
    buf_free(&text);
    free(offsets);
    free(members);
}

static void test_files(void **state)
{
    (void)state;
    for (unsigned major = PG_MAJOR_MIN; major <= PG_MAJOR_MAX; major++)
        check_major(major);
}

static void test_places(void **state)
{
    char name[SLRU_SEGMENT_NAME_MAX];
    (void)state;
    struct slru_place p = multixact_offset_place(2047);
    assert_true(p.segment == 0 && p.page == 0 && p.entry == 2047);
    p = multixact_offset_place(65536 + 2048 + 5);
    assert_true(p.segment == 1 && p.page == 1 && p.entry == 5);
    p = multixact_offset_place(UINT32_MAX);
    assert_true(p.segment == 0xffff && p.page == 31 && p.entry == 2047);
    p = multixact_member_place(1635);
    assert_true(p.segment == 0 && p.page == 0 && p.entry == 1635);
    p = multixact_member_place(1636 * 32 + 1637);
    assert_true(p.segment == 1 && p.page == 1 && p.entry == 1);
    p = multixact_member_place(UINT32_MAX); /* the last segment has five digits */
    slru_segment_name(p.segment, name);
    assert_string_equal(name, "14078");
    slru_segment_name(0x2a, name);
    assert_string_equal(name, "002A");
    assert_int_equal(multixact_next(UINT32_MAX), 1);
    assert_int_equal(multixact_next(41), 42);
}

static void test_member_status(void **state)
{
    struct error err;
    struct multixact_member m;
    uint8_t page[PG_BLCKSZ] = {4, 0, 6, 5, 0x10, 0, 0, 0, 0, 0, 0, 0};
    (void)state;
    assert_ok(multixact_member_get(page, multixact_member_place(0), &m, &err));
    assert_true(m.xid == 16 && m.status == MULTIXACT_NO_KEY_UPDATE && multixact_member_updates(m));
    assert_int_equal(multixact_member_get(page, multixact_member_place(2), &m, &err), ERR_DATA);
    assert_ok(multixact_member_get(page, multixact_member_place(3), &m, &err));
    assert_false(multixact_member_updates(m)); /* xid 0 is nobody */
}

static void put_u32(uint8_t *at, uint32_t v)
{
    memcpy(at, &v, sizeof v);
}

static void test_record(void **state)
{
    struct error err;
    struct multixact_create c;
    uint8_t data[12 + 24];
    const uint32_t words[] = {77, 900, 3, 1000, 0, 1001, 5, 1002, 1};
    struct wal_record r = {.rmid = RM_MULTIXACT_ID, .info = 0x20, .main_data = data};
    (void)state;
    for (unsigned i = 0; i < LENGTH(words); i++)
        put_u32(data + 4 * i, words[i]);
    r.main_len = sizeof data;
    assert_true(wal_record_is_multixact_create(&r));
    assert_ok(multixact_create_parse(&r, &c, &err));
    assert_true(c.multi == 77 && c.first == 900 && c.nmembers == 3);
    assert_int_equal(multixact_create_member(&c, 1).xid, 1001);
    assert_int_equal(multixact_create_member(&c, 1).status, MULTIXACT_UPDATE);
    assert_int_equal(multixact_create_member(&c, 2).status, MULTIXACT_FOR_SHARE);
    for (uint32_t len = 0; len < sizeof data; len++) {
        r.main_len = len;
        assert_int_equal(multixact_create_parse(&r, &c, &err), ERR_DATA);
    }
    r.main_len = sizeof data;
    put_u32(data + 12 + 4, 6);
    assert_int_equal(multixact_create_parse(&r, &c, &err), ERR_DATA);
    put_u32(data + 8, UINT32_MAX); /* a count that would wrap */
    assert_int_equal(multixact_create_parse(&r, &c, &err), ERR_DATA);
    r.info = 0x30;
    assert_false(wal_record_is_multixact_create(&r));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_member_status),
        cmocka_unit_test(test_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
