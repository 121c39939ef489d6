/* Errors, the fatal slot, LSN texts, CRC-32C, logfmt values. */
#include "test.h"

#include "base/crc32c.h"
#include "base/fatal.h"
#include "base/log.h"
#include "base/lsn.h"

#include <errno.h>

static enum status forwards(enum status st, bool *ret_reached)
{
    TRY(st);
    *ret_reached = true;
    return OK;
}

static void test_set_and_prefix(void **state)
{
    struct error err;
    bool reached = false;
    (void)state;
    memset(&err, 0x55, sizeof err);
    assert_int_equal(error_set(&err, ERR_DATA, "byte %d of %s", 7, "x"), ERR_DATA);
    assert_int_equal(err.kind, ERR_DATA);
    assert_int_equal(err.sys_errno, 0);
    assert_int_equal(err.ch_code, 0);
    assert_int_equal(err.lsn, 0);
    assert_string_equal(err.sqlstate, "");
    assert_string_equal(err.message, "byte 7 of x");
    assert_int_equal(error_set(NULL, ERR_RETRY, "unheard"), ERR_RETRY);

    err.ch_code = 241;
    strcpy(err.sqlstate, "57P01");
    assert_int_equal(error_prefix(&err, "table %s", "t"), ERR_DATA);
    assert_int_equal(error_prefix(&err, "outer"), ERR_DATA);
    assert_int_not_equal(error_prefix(NULL, "outer %d", 1), OK);
    assert_string_equal(err.message, "outer: table t: byte 7 of x");
    assert_int_equal(err.ch_code, 241); /* codes stay */
    assert_string_equal(err.sqlstate, "57P01");

    assert_int_equal(forwards(ERR_CONFIG, &reached), ERR_CONFIG);
    assert_false(reached);
    assert_int_equal(forwards(OK, &reached), OK);
    assert_true(reached);
}

/* Callers pass the message itself as an argument. */
static void test_message_as_its_own_argument(void **state)
{
    struct error err;
    (void)state;
    (void)error_set(&err, ERR_RETRY, "inner");
    (void)error_set(&err, ERR_DATA, "<%s>", err.message);
    assert_string_equal(err.message, "<inner>");
    (void)error_prefix(&err, "[%s]", err.message);
    assert_string_equal(err.message, "[<inner>]: <inner>");
}

static void test_long_messages_are_cut(void **state)
{
    struct error err;
    char text[2 * sizeof err.message];
    (void)state;
    memset(text, 'm', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)error_set(&err, ERR_DATA, "%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    (void)error_prefix(&err, "p");
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    assert_memory_equal(err.message, "p: mmm", 6);
    (void)error_prefix(&err, "%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    errno = ENOENT;
    (void)error_sys(&err, ERR_DATA, "%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    (void)error_lsn(&err, ERR_DATA, 1, "%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
}

static void test_sys_and_lsn(void **state)
{
    struct error err;
    (void)state;
    errno = ENOSPC;
    assert_int_equal(error_sys(&err, ERR_RETRY, "cannot write %s", "f"), ERR_RETRY);
    assert_int_equal(err.sys_errno, ENOSPC);
    assert_string_equal(err.message, "cannot write f: No space left on device");
    assert_int_equal(error_lsn(&err, ERR_DATA, UINT64_C(0x16B374D848), "bad"), ERR_DATA);
    assert_true(err.lsn == UINT64_C(0x16B374D848));
    assert_string_equal(err.message, "bad (at LSN 16/B374D848)");
    assert_int_equal(err.sys_errno, 0);
}

static void test_lsn_parse(void **state)
{
    static const char *const bad[] = {"",     "/",    "1",     "1/",   "/1",          " 1/2",
                                      "1/ 2", "1/2 ", "+1/2",  "-1/2", "1/-2",        "0x1/2",
                                      "1/0x", "1//2", "1/2/",  "g/1",  "123456789/1", "1/123456789",
                                      "1-2",  "1/2g", "\t1/2", "1/+2"};
    XLogRecPtr lsn = 99;
    (void)state;
    for (size_t i = 0; i < LENGTH(bad); i++) {
        if (lsn_parse(bad[i], &lsn))
            fail_msg("\"%s\" passes for an LSN", bad[i]);
        assert_int_equal(lsn, 99); /* untouched */
    }
    assert_true(lsn_parse("16/B374D848", &lsn));
    assert_true(lsn == UINT64_C(0x16B374D848));
    assert_true(lsn_parse("0/0", &lsn));
    assert_int_equal(lsn, 0);
    assert_true(lsn_parse("ffffffff/FFFFFFFF", &lsn));
    assert_true(lsn == UINT64_MAX);
}

static atomic_int woken;

static void wake(void *ctx)
{
    (void)ctx;
    atomic_fetch_add(&woken, 1);
}

static void *raiser_main(void *arg)
{
    struct error err;
    (void)error_set(&err, ERR_RETRY, "later");
    fatal_raise(arg, &err);
    return NULL;
}

static void test_fatal_slot(void **state)
{
    struct fatal f;
    struct error err;
    pthread_t threads[4];
    (void)state;
    fatal_init(&f, wake, NULL);
    (void)error_set(&err, ERR_CANCELLED, "an echo");
    fatal_raise(&f, &err);
    assert_false(fatal_is_set(&f));
    (void)error_set(&err, ERR_DATA, "the first");
    fatal_raise(&f, &err);
    for (size_t i = 0; i < LENGTH(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, raiser_main, &f), 0);
    for (size_t i = 0; i < LENGTH(threads); i++)
        pthread_join(threads[i], NULL);
    assert_true(fatal_is_set(&f));
    assert_string_equal(f.first.message, "the first");
    assert_int_equal(f.first.kind, ERR_DATA);
    assert_int_equal(atomic_load(&woken), 1);
    fatal_fini(&f);
}

/* RFC 3720, B.4, and the check value of the CRC catalogues. */
static void test_crc32c(void **state)
{
    uint8_t bytes[32];
    (void)state;
    assert_true(crc32c("123456789", 9) == 0xE3069283u);
    assert_true(crc32c("", 0) == 0);
    memset(bytes, 0, sizeof bytes);
    assert_true(crc32c(bytes, 32) == 0x8A9136AAu);
    memset(bytes, 0xff, sizeof bytes);
    assert_true(crc32c(bytes, 32) == 0x62A8AB43u);
    for (unsigned i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    assert_true(crc32c(bytes, 32) == 0x46DD794Eu);
    for (size_t cut = 0; cut <= 32; cut++) {
        uint32_t crc = crc32c_update(0xffffffffu, bytes, cut);
        crc = crc32c_update(crc, bytes + cut, 32 - cut);
        assert_true((crc ^ 0xffffffffu) == 0x46DD794Eu);
    }
    static const uint8_t zeros[70000];
    static const size_t lengths[] = {0, 1, 7, 8, 9, 4096, 69999};
    for (size_t i = 0; i < LENGTH(lengths); i++)
        assert_true(crc32c_zeros(0x12345678u, lengths[i]) ==
                    crc32c_update(0x12345678u, zeros, lengths[i]));
}

static void test_log_values(void **state)
{
    char out[16];
    enum log_level level = LOG_INFO;
    (void)state;
    assert_string_equal(LOG_Q("a \"b\" \\ \n\tc"), "\"a \\\"b\\\" \\\\ \\n c\"");
    log_quote(out, sizeof out, "\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\""); /* each takes two */
    assert_true(strlen(out) < sizeof out);
    assert_int_equal(out[0], '"');
    assert_int_equal(out[strlen(out) - 1], '"');
    assert_true(log_level_parse("debug", &level));
    assert_int_equal(level, LOG_DEBUG);
    assert_false(log_level_parse("Debug", &level));
    log_set_level(LOG_WARN);
    assert_true(log_enabled(LOG_WARN));
    assert_false(log_enabled(LOG_INFO));
    log_set_level(LOG_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_and_prefix),
        cmocka_unit_test(test_message_as_its_own_argument),
        cmocka_unit_test(test_long_messages_are_cut),
        cmocka_unit_test(test_sys_and_lsn),
        cmocka_unit_test(test_lsn_parse),
        cmocka_unit_test(test_fatal_slot),
        cmocka_unit_test(test_crc32c),
        cmocka_unit_test(test_log_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
