/* The manifest: what was written comes back, damage at any byte is named, newer versions are
 * refused. */
#include "test.h"

#include "base/file.h"
#include "ops/manifest.h"

#include <unistd.h>

static char path[64];

static int setup(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/walshadow-manifest-%d.toml", (int)getpid());
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static void fill(struct manifest *m)
{
    *m = (struct manifest){.floor = 0x6A000000,
                           .system_id = UINT64_C(17334001234567890123), /* above signed 64 bits */
                           .timeline = 3,
                           .database_oid = 16384};
    m->slot = xstrdup("walshadow_app");
    m->lsn.source_received = 0x16B374D848;
    m->lsn.filter_durable = 1;
    m->lsn.shadow_replay = 2;
    m->lsn.drain = 3;
    m->lsn.emitter_ack = 4;
    m->lsn.shadow_flush = UINT64_MAX;
    manifest_ack_set(m, "default", 0x1234);
    manifest_ack_set(m, "other-one", 0x99);
    manifest_ack_set(m, "default", 0x5678);
    m->load.state = MANIFEST_LOAD_STARTED;
    m->load.start_lsn = 0x2000028;
    m->load.next_xid = UINT64_C(5000000000);
    manifest_target_add(m, "default", "app", "odd \"na\\me\n");
    manifest_target_add(m, "default", "app", "foo");
    manifest_target_add(m, "default", "app", "foo");
}

static void assert_same(const struct manifest *a, const struct manifest *b)
{
    assert_int_equal(a->floor, b->floor);
    assert_int_equal(a->system_id, b->system_id);
    assert_int_equal(a->timeline, b->timeline);
    assert_int_equal(a->database_oid, b->database_oid);
    assert_string_equal(a->slot, b->slot);
    assert_memory_equal(&a->lsn, &b->lsn, sizeof a->lsn);
    assert_int_equal(a->nacks, b->nacks);
    for (size_t i = 0; i < a->nacks; i++) {
        assert_string_equal(a->acks[i].destination, b->acks[i].destination);
        assert_int_equal(a->acks[i].lsn, b->acks[i].lsn);
    }
    assert_int_equal(a->load.state, b->load.state);
    assert_int_equal(a->load.start_lsn, b->load.start_lsn);
    assert_int_equal(a->load.end_lsn, b->load.end_lsn);
    assert_int_equal(a->load.next_xid, b->load.next_xid);
    assert_int_equal(a->load.ntargets, b->load.ntargets);
    for (size_t i = 0; i < a->load.ntargets; i++)
        assert_string_equal(a->load.targets[i].table, b->load.targets[i].table);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct error err = {0};
    struct manifest m, back, copy;
    bool found;
    fill(&m);
    assert_int_equal(m.load.ntargets, 2);
    assert_int_equal(manifest_ack_get(&m, "default"), 0x5678);
    assert_int_equal(manifest_ack_get(&m, "none"), 0);
    assert_ok(manifest_save(&m, path, &err));
    assert_ok(manifest_load(path, &back, &found, &err));
    assert_true(found);
    assert_same(&m, &back);
    manifest_copy(&back, &copy);
    manifest_fini(&back);
    assert_same(&m, &copy);
    manifest_fini(&copy);
    manifest_fini(&m);
}

static void test_missing(void **state)
{
    (void)state;
    struct error err = {0};
    struct manifest m;
    bool found = true;
    unlink(path);
    assert_ok(manifest_load(path, &m, &found, &err));
    assert_false(found);
    manifest_fini(&m);
}

static void write_text(const void *data, size_t len)
{
    struct error err = {0};
    assert_ok(file_write_atomic(path, data, len, 0600, &err));
}

/* Cut anywhere but behind the last line's text: never accepted. */
static void test_every_cut_is_noticed(void **state)
{
    (void)state;
    struct error err = {0};
    struct manifest m, back;
    CLEANUP_BUF struct buf text = {0};
    bool found;
    fill(&m);
    assert_ok(manifest_save(&m, path, &err));
    manifest_fini(&m);
    assert_ok(file_read_all(path, 1 << 20, &text, &err));
    for (size_t n = 0; n < text.len - 1; n++) {
        write_text(text.data, n);
        if (manifest_load(path, &back, &found, &err) != ERR_DATA)
            fail_msg("cut at %zu of %zu accepted", n, text.len);
        assert_non_null(strstr(err.message, "is damaged"));
    }
}

static void replace_and_load(const char *from, const char *to, enum status want, const char *says)
{
    struct error err = {0};
    struct manifest m, back;
    CLEANUP_BUF struct buf text = {0}, out = {0};
    bool found;
    fill(&m);
    assert_ok(manifest_save(&m, path, &err));
    manifest_fini(&m);
    assert_ok(file_read_all(path, 1 << 20, &text, &err));
    char *at = strstr(buf_cstr(&text), from);
    assert_non_null(at);
    buf_put(&out, text.data, (size_t)(at - (char *)text.data));
    buf_printf(&out, "%s%s", to, at + strlen(from));
    write_text(out.data, out.len);
    assert_int_equal(manifest_load(path, &back, &found, &err), want);
    if (strstr(err.message, says) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.message, says);
}

static void test_damage(void **state)
{
    (void)state;
    replace_and_load("version = 1", "version = 2", ERR_CONFIG, "has version 2");
    replace_and_load("version = 1", "version = \"1\"", ERR_DATA, "version");
    replace_and_load("floor = \"0/6A000000\"", "floor = \"6A000000\"", ERR_DATA, "floor");
    replace_and_load("timeline = 3", "timeline = -3", ERR_DATA, "timeline");
    replace_and_load("system_id = \"17", "system_id = \"9917", ERR_DATA, "system_id");
    replace_and_load("state = \"started\"", "state = \"begun\"", ERR_DATA, "load.state");
    replace_and_load("default\" = \"0/5678\"", "default\" = 5", ERR_DATA, "ack");
    replace_and_load("drain", "drain_", ERR_DATA, "drain");
    replace_and_load("[lsn]", "[lsm]", ERR_DATA, "lsn");
}

static void test_identity(void **state)
{
    (void)state;
    struct error err = {0};
    struct manifest m = {.system_id = 7, .timeline = 1};
    assert_ok(manifest_identity_check(&m, 7, 1, false, &err));
    assert_int_equal(manifest_identity_check(&m, 8, 1, true, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "another state directory"));
    assert_int_equal(manifest_identity_check(&m, 7, 2, false, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "--ignore-cursor"));
    assert_ok(manifest_identity_check(&m, 7, 2, true, &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_every_cut_is_noticed),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_identity),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
