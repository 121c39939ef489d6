/* The commands a standby and pg_receivewal send, and what is refused. */
#include "test.h"

#include "shadow/walsender_query.h"

static struct walsender_query parse(const char *text)
{
    struct walsender_query q;
    struct error err = {0};
    assert_ok(walsender_query_parse(text, strlen(text), &q, &err));
    return q;
}

static void test_good(void **state)
{
    (void)state;
    assert_int_equal(parse("IDENTIFY_SYSTEM").command, WALSENDER_IDENTIFY_SYSTEM);
    assert_int_equal(parse(" identify_system ; ").command, WALSENDER_IDENTIFY_SYSTEM);
    struct walsender_query q = parse("SHOW wal_segment_size");
    assert_int_equal(q.command, WALSENDER_SHOW);
    assert_string_equal(q.name, "wal_segment_size");
    q = parse("TIMELINE_HISTORY 4294967295");
    assert_int_equal(q.command, WALSENDER_TIMELINE_HISTORY);
    assert_int_equal(q.timeline, UINT32_MAX);
    q = parse("READ_REPLICATION_SLOT \"a\"\"b\"");
    assert_int_equal(q.command, WALSENDER_READ_SLOT);
    assert_string_equal(q.name, "a\"b");
    q = parse("START_REPLICATION 0/3000000 TIMELINE 1"); /* libpqwalreceiver */
    assert_int_equal(q.command, WALSENDER_START_PHYSICAL);
    assert_int_equal(q.lsn, 0x3000000);
    assert_int_equal(q.timeline, 1);
    q = parse("START_REPLICATION SLOT \"s\" PHYSICAL A/0");
    assert_int_equal(q.lsn, 0xA00000000);
    assert_int_equal(q.timeline, 0);
    assert_string_equal(q.name, "s");
}

static void test_refused(void **state)
{
    static const char *const bad[] = {
        "",
        ";",
        "SELECT 1",
        "IDENTIFY_SYSTEM now",
        "SHOW",
        "SHOW a b",
        "TIMELINE_HISTORY",
        "TIMELINE_HISTORY x",
        "TIMELINE_HISTORY 4294967296",
        "TIMELINE_HISTORY -1",
        "START_REPLICATION",
        "START_REPLICATION PHYSICAL",
        "START_REPLICATION 0/1 TIMELINE 0",
        "START_REPLICATION 0/1 TIMELINE",
        "START_REPLICATION 0/1 2",
        "START_REPLICATION 0x1",
        "START_REPLICATION SLOT s LOGICAL 0/0",
        "START_REPLICATION SLOT \"s PHYSICAL 0/0",
        "BASE_BACKUP",
        "CREATE_REPLICATION_SLOT s PHYSICAL",
        "SHOW aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(bad); i++) {
        struct walsender_query q;
        struct error err = {0};
        if (walsender_query_parse(bad[i], strlen(bad[i]), &q, &err) != ERR_DATA)
            fail_msg("accepted: %s", bad[i]);
        assert_int_not_equal(err.message[0], '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
