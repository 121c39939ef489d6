#include "test.h"

#include "engine/fault.h"

static void specs(void **state)
{
    struct error err;
    struct engine_fault f = {0};
    (void)state;
    assert_ok(engine_fault_parse(&f, NULL, &err));
    assert_ok(
        engine_fault_parse(&f, "delay-eos=5,fail-insert=2:252,drop-every=100,kill-eos=9", &err));
    assert_int_equal(f.delay_eos_ms, 5);
    assert_int_equal(f.fail_insert, 2);
    assert_int_equal(f.fail_code, 252);
    assert_int_equal(f.drop_after, 100);
    assert_true(f.drop_repeats);
    assert_int_equal(f.kill_eos, 9);
    static const char *const bad[] = {"x=1",
                                      "delay-eos",
                                      "delay-eos=",
                                      "delay-eos=-1",
                                      "fail-insert=1:0",
                                      "fail-insert=1:",
                                      "kill-insert=1x",
                                      "drop-after=99999999999999999999999",
                                      "random=1:26",
                                      "random=1:",
                                      "random=x"};
    for (size_t i = 0; i < LENGTH(bad); i++)
        assert_int_equal(engine_fault_parse(&f, bad[i], &err), ERR_CONFIG);
}

static void counting(void **state)
{
    struct error err;
    struct engine_fault f = {0};
    int code;
    (void)state;
    assert_ok(engine_fault_parse(&f, "fail-insert=2,drop-after=10", &err));
    assert_int_equal(engine_fault_insert(&f, &code), 1);
    assert_int_equal(code, 0);
    assert_int_equal(engine_fault_insert(&f, &code), 2);
    assert_int_equal(code, 241);
    assert_int_equal(engine_fault_insert(&f, &code), 3);
    assert_int_equal(code, 0);
    assert_false(engine_fault_received(&f, 9));
    assert_true(engine_fault_received(&f, 1));
    assert_false(engine_fault_received(&f, 100));
}

/* Each kind of fault befalls about its share, and the same INSERTs with the same seed. */
static void at_random(void **state)
{
    struct error err;
    struct engine_fault f = {0}, again = {0};
    int failed = 0, cut = 0, code, code_again;
    (void)state;
    assert_ok(engine_fault_parse(&f, "random=7", &err));
    assert_ok(engine_fault_parse(&again, "random=7:10", &err));
    for (int i = 0; i < 1000; i++) {
        engine_fault_insert(&f, &code);
        engine_fault_insert(&again, &code_again);
        assert_int_equal(code, code_again);
        failed += code != 0;
    }
    for (uint64_t n = 1; n <= 30; n++)
        cut += engine_fault_before_eos(&f, n);
    assert_in_range(failed, 60, 140);
    assert_in_range(cut, 1, 12);
    f = (struct engine_fault){0};
    for (int i = 0; i < 100; i++) {
        engine_fault_insert(&f, &code);
        assert_int_equal(code, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(specs), cmocka_unit_test(counting),
                                       cmocka_unit_test(at_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
