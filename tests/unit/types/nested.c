/* Values inside values: the samples of the fuzz corpus and their text by PostgreSQL's rules; damage
 * of every byte is refused or printed, never followed. */
#include "test.h"

#include "../../fuzz/fuzz_types.h"
#include "base/file.h"
#include "types/encoder.h"
#include "types/nested.h"

static const struct {
    const char *file, *text;
} samples[] = {
    {"ints", "{1,-2,3}"},
    {"texts", "[-1:-1][5:6]={{\"a\\\"b\",\"\"}}"},
    {"nulls", "{9,NULL}"},
    {"range", "[1,5)"},
    {"multirange", "{[a,c),[d,e)}"},
    {"enum", "a label"},
    {"row", "(4,ab,\"a label\",)"},
};

static void read_sample(const char *name, struct buf *ret)
{
    struct error err;
    CLEANUP_FREE char *path =
        xasprintf("%s/tests/fuzz/corpus/nested/%s", getenv("SOURCE_ROOT"), name);
    assert_ok(file_read_all(path, 1 << 20, ret, &err));
    assert_true(ret->len > 1);
}

static void test_samples(void **state)
{
    struct type_closure *types = fuzz_types_new();
    (void)state;
    for (size_t i = 0; i < LENGTH(samples); i++) {
        CLEANUP_BUF struct buf data = {0};
        CLEANUP_BUF struct buf out = {0};
        struct text_plan *plan = NULL;
        struct error err;
        read_sample(samples[i].file, &data);
        assert_ok(text_plan_new(types, FUZZ_TYPE_FIRST + data.data[0], &plan, &err));
        if (!text_plan_put(plan, data.data + 1, (uint32_t)data.len - 1, &out))
            fail_msg("%s is refused", samples[i].file);
        assert_string_equal(buf_cstr(&out), samples[i].text);
        text_plan_free(plan);
    }
    type_closure_unref(types);
}

static void test_damage(void **state)
{
    static const uint8_t values[] = {0, 1, 2, 3, 4, 0x7f, 0x80, 0xff};
    struct type_closure *types = fuzz_types_new();
    (void)state;
    for (size_t i = 0; i < LENGTH(samples); i++) {
        CLEANUP_BUF struct buf data = {0};
        CLEANUP_BUF struct buf out = {0};
        struct text_plan *plan = NULL;
        struct error err;
        read_sample(samples[i].file, &data);
        assert_ok(text_plan_new(types, FUZZ_TYPE_FIRST + data.data[0], &plan, &err));
        for (uint32_t n = 0; n + 1 < data.len; n++) { /* of its own: a read past the end is seen */
            uint8_t *exact = xmalloc(n);
            memcpy(exact, data.data + 1, n);
            buf_reset(&out);
            if (!text_plan_put(plan, exact, n, &out))
                assert_int_equal(out.len, 0);
            free(exact);
        }
        for (size_t at = 1; at < data.len; at++) {
            for (size_t v = 0; v < LENGTH(values); v++) {
                uint8_t kept = data.data[at];
                data.data[at] = values[v];
                buf_reset(&out);
                if (!text_plan_put(plan, data.data + 1, (uint32_t)data.len - 1, &out))
                    assert_int_equal(out.len, 0);
                data.data[at] = kept;
            }
        }
        text_plan_free(plan);
    }
    type_closure_unref(types);
}

/* A part that nobody carries is named; the default of an enum is LowCardinality. */
static void test_plans(void **state)
{
    struct type_closure *types = fuzz_types_new();
    const struct ch_caps caps = {.wide_dates = true, .time64 = true};
    struct att_desc att = {
        .attnum = 1, .name = "c", .typid = FUZZ_ENUM, .typmod = -1, .types = types};
    struct encoder e;
    struct error err;
    (void)state;
    assert_ok(encoder_plan(&att, false, NULL, &caps, &e, &err));
    assert_string_equal(e.ch_type, "Nullable(String)");
    assert_string_equal(e.column_type, "LowCardinality(Nullable(String))");
    assert_true(encoder_is_text(&e));
    encoder_fini(&e);
    assert_ok(encoder_plan(&att, true, NULL, &caps, &e, &err));
    assert_string_equal(e.column_type, "LowCardinality(String)");
    encoder_fini(&e);
    att.typid = FUZZ_ROW;
    assert_ok(encoder_plan(&att, false, NULL, &caps, &e, &err));
    assert_string_equal(e.ch_type, "Nullable(String)");
    assert_null(e.column_type);
    encoder_fini(&e);
    assert_int_equal(encoder_plan(&att, false, "Nullable(Int32)", &caps, &e, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "cannot be held exactly by Int32"));
    types->types[1].oid = 16000; /* text no longer: an extension's type */
    snprintf(types->types[1].name, sizeof types->types[1].name, "ltree");
    for (unsigned i = 0; i < types->n; i++)
        if (types->types[i].oid == FUZZ_TEXT_ARRAY)
            types->types[i].part_oid = 16000;
    att.typid = FUZZ_TEXT_ARRAY;
    assert_int_equal(encoder_plan(&att, false, NULL, &caps, &e, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "type ltree is not supported yet"));
    type_closure_unref(types);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_samples),
                                       cmocka_unit_test(test_damage), cmocka_unit_test(test_plans)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
