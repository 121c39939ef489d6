/* Descriptors: equality, the serialised form, damage. */
#include "test.h"

#include "catalog/descriptor.h"
#include "catalog/query.h"

static struct rel_desc *sample(void)
{
    struct rel_desc *d = rel_desc_new(3);
    d->valid_from = 0x1234567890;
    d->oid = 16400;
    d->namespace_oid = 2200;
    d->locator = (struct rel_file_locator){1663, 5, 16401};
    d->toast_oid = 16403;
    d->toast_locator = (struct rel_file_locator){1663, 5, 16404};
    d->root_oid = 16390;
    d->relkind = 'r';
    d->relpersistence = 'p';
    d->relreplident = 'd';
    d->relam = 2;
    strcpy(d->schema, "public");
    memset(d->name, 'n', NAMEDATALEN - 1); /* the longest name */
    d->identity = IDENTITY_KEY;
    d->nkeys = 2;
    d->key_attnums[0] = 3;
    d->key_attnums[1] = 1;
    for (int i = 0; i < 3; i++) {
        struct att_desc *a = &d->atts[i];
        a->attnum = (int16_t)(i + 1);
        a->attlen = i == 1 ? -1 : 4;
        a->attalign = 'i';
        a->attstorage = i == 1 ? 'x' : 'p';
        a->typtype = 'b';
        a->typcategory = 'N';
        a->typid = 23;
        a->typmod = -1;
        a->base_typid = 23;
        a->not_null = i == 0;
        snprintf(a->name, sizeof a->name, "c%d", i);
        a->type_name = xstrdup("integer");
    }
    d->atts[1].generated = 's';
    d->atts[1].has_missing = true;
    d->atts[1].missing = xmalloc(5);
    d->atts[1].missing_len = 5;
    memcpy(d->atts[1].missing, "a\0b\0c", 5);
    d->atts[2].has_missing = true; /* the empty text: known, and of no bytes */
    d->atts[2].missing = xmalloc(0);
    rel_desc_seal(d);
    return d;
}

static struct rel_desc *round_trip(const struct rel_desc *d)
{
    struct error err = {0};
    struct rel_desc *back = NULL;
    CLEANUP_BUF struct buf b = {0};
    rel_desc_write(d, &b);
    struct cursor c = cursor_of(b.data, b.len);
    assert_ok(rel_desc_read(&c, &back, &err));
    assert_int_equal(cursor_left(&c), 0);
    return back;
}

static void test_round_trip(void **state)
{
    struct rel_desc *d = sample(), *back = round_trip(d);
    (void)state;
    assert_true(rel_desc_equal(d, back, true));
    assert_int_equal(back->valid_from, d->valid_from);
    assert_string_equal(back->name, d->name);
    assert_int_equal(back->key_attnums[0], 3);
    assert_memory_equal(back->atts[1].missing, "a\0b\0c", 5);
    assert_non_null(back->atts[2].missing);
    assert_int_equal(back->atts[2].missing_len, 0);
    assert_non_null(back->shape);
    assert_ptr_equal(rel_desc_ref(back), back);
    rel_desc_unref(back);
    rel_desc_unref(back);
    rel_desc_unref(d);
    rel_desc_unref(NULL);
}

/* Two samples that differ in one thing only. */
#define DIFFERS(statement, storage_only)                                                           \
    do {                                                                                           \
        struct rel_desc *a = sample(), *d = sample();                                              \
        statement;                                                                                 \
        assert_false(rel_desc_equal(a, d, true));                                                  \
        assert_int_equal(rel_desc_equal(a, d, false), storage_only);                               \
        struct rel_desc *back = round_trip(d);                                                     \
        assert_true(rel_desc_equal(d, back, true));                                                \
        rel_desc_unref(back);                                                                      \
        rel_desc_unref(a);                                                                         \
        rel_desc_unref(d);                                                                         \
    } while (0)

static void test_equal_for_decoding(void **state)
{
    struct rel_desc *a = sample(), *d = sample();
    (void)state;
    d->valid_from = 1;
    assert_true(rel_desc_equal(a, d, true));
    d->relreplident = 'f';
    d->atts[1].attstorage = 'm';
    assert_true(rel_desc_equal(a, d, true));
    struct rel_desc *back = round_trip(d);
    assert_int_equal(back->relreplident, 'f');
    assert_int_equal(back->atts[1].attstorage, 'm');
    rel_desc_unref(back);
    rel_desc_unref(a);
    rel_desc_unref(d);
}

static void test_differences(void **state)
{
    (void)state;
    DIFFERS(d->locator.rel_number++, true);
    DIFFERS(d->locator.spc_oid++, true);
    DIFFERS(d->toast_locator.rel_number++, true);
    DIFFERS(d->oid++, false);
    DIFFERS(d->namespace_oid++, false);
    DIFFERS(d->toast_oid = 0, false);
    DIFFERS(d->root_oid++, false);
    DIFFERS(d->relkind = 'p', false);
    DIFFERS(d->relpersistence = 'u', false);
    DIFFERS(d->relam++, false);
    DIFFERS(d->dropped = true, false);
    DIFFERS(d->schema[0] = 'q', false);
    DIFFERS(d->name[0] = 'q', false);
    DIFFERS(d->identity = IDENTITY_TID, false);
    DIFFERS(d->nkeys = 1, false);
    DIFFERS(d->key_attnums[1] = 2, false);
    DIFFERS(d->atts[0].attlen = 8, false);
    DIFFERS(d->atts[0].attalign = 'd', false);
    DIFFERS(d->atts[1].generated = 0, false);
    DIFFERS(d->atts[1].dropped = true, false);
    DIFFERS(d->atts[0].not_null = false, false);
    DIFFERS(d->atts[0].typtype = 'e', false);
    DIFFERS(d->atts[0].typcategory = 'S', false);
    DIFFERS(d->atts[0].typid++, false);
    DIFFERS(d->atts[0].typmod++, false);
    DIFFERS(d->atts[0].elem_typid++, false);
    DIFFERS(d->atts[0].base_typid++, false);
    DIFFERS(d->atts[0].name[0] = 'q', false);
    DIFFERS(d->atts[1].missing[2] = 'q', false);
    DIFFERS(d->atts[1].missing_len = 4, false);
    DIFFERS((free(d->atts[2].missing), d->atts[2].missing = NULL), false);
    DIFFERS(d->atts[0].has_missing = true, false);
}

/* An enum with two labels, and a composite of it and a dropped attribute. */
static struct type_closure *sample_types(void)
{
    struct type_closure *c = type_closure_new(2);
    c->types[0] = (struct type_desc){.oid = 20001,
                                     .kind = TYPE_DESC_COMPOSITE,
                                     .typlen = -1,
                                     .typalign = 'd',
                                     .typdelim = ',',
                                     .relid = 20000,
                                     .name = "pair",
                                     .natts = 2};
    c->types[0].atts = xcalloc(2, sizeof(struct composite_att));
    c->types[0].atts[0] = (struct composite_att){23, 4, 'i', false};
    c->types[0].atts[1] = (struct composite_att){0, 8, 'd', true};
    c->types[1] = (struct type_desc){.oid = 23,
                                     .kind = TYPE_DESC_ENUM,
                                     .typlen = 4,
                                     .typalign = 'i',
                                     .typdelim = ',',
                                     .name = "mood",
                                     .nlabels = 2};
    c->types[1].labels = xcalloc(2, sizeof(struct enum_label));
    c->types[1].labels[0] = (struct enum_label){30002, "sad"};
    c->types[1].labels[1] = (struct enum_label){30001, "ok"};
    type_closure_seal(c);
    return c;
}

static struct rel_desc *sample_with_types(void)
{
    struct rel_desc *d = sample();
    d->types = sample_types();
    rel_desc_seal(d);
    return d;
}

#define TYPES_DIFFER(statement, reason)                                                            \
    do {                                                                                           \
        struct rel_desc *a = sample_with_types(), *d = sample_with_types();                        \
        struct type_desc *number = &d->types->types[0], *pair = &d->types->types[1];               \
        (void)number;                                                                              \
        (void)pair;                                                                                \
        statement;                                                                                 \
        assert_false(rel_desc_equal(a, d, false));                                                 \
        assert_true(rel_desc_equal_but_types(a, d));                                               \
        const char *why = type_closure_text_change(a->types, d->types);                            \
        assert_true(strstr(why == NULL ? "none" : why, reason) != NULL);                           \
        rel_desc_unref(a);                                                                         \
        rel_desc_unref(d);                                                                         \
    } while (0)

static void test_types(void **state)
{
    struct rel_desc *d = sample_with_types(), *back = round_trip(d);
    (void)state;
    assert_true(rel_desc_equal(d, back, true));
    assert_string_equal(type_desc_label(type_closure_find(back->types, 23), 30001), "ok");
    assert_string_equal(type_desc_label(type_closure_find(back->types, 23), 30002), "sad");
    assert_null(type_desc_label(type_closure_find(back->types, 23), 30000));
    assert_null(type_closure_find(back->types, 24));
    assert_ptr_equal(back->atts[0].types, back->types);
    assert_true(type_closure_has_rows_of(back->types, 20000));
    assert_false(type_closure_has_rows_of(back->types, 20001));
    assert_true(type_closure_has_enums(back->types));
    rel_desc_unref(back);
    back = sample_with_types();
    back->types->types[0].name[0] = 'q'; /* ALTER TYPE … RENAME */
    assert_true(rel_desc_equal(d, back, true));
    rel_desc_unref(back);
    rel_desc_unref(d);
}

static void test_type_changes(void **state)
{
    (void)state;
    TYPES_DIFFER(number->labels[0].text[0] = 'q', "renamed");
    TYPES_DIFFER(number->labels[1].oid = 40000, "renamed");
    TYPES_DIFFER(pair->atts[0].dropped = true, "attribute");
    TYPES_DIFFER(pair->natts = 1, "attribute");
    TYPES_DIFFER((number->labels = xrealloc(number->labels, 3 * sizeof *number->labels),
                  number->labels[2] = (struct enum_label){30003, "new"}, number->nlabels = 3),
                 "none");
}

/* Format 1 ended before the types. */
static void test_older_format(void **state)
{
    struct rel_desc *d = sample(), *back = NULL;
    CLEANUP_BUF struct buf b = {0};
    struct error err = {0};
    (void)state;
    rel_desc_write(d, &b);
    b.data[0] = 1;
    struct cursor c = cursor_of(b.data, b.len - 1);
    assert_ok(rel_desc_read(&c, &back, &err));
    assert_int_equal(cursor_left(&c), 0);
    assert_true(rel_desc_equal(d, back, true));
    rel_desc_unref(back);
    rel_desc_unref(d);
}

static void test_damage(void **state)
{
    struct rel_desc *d = sample_with_types(), *back = NULL;
    CLEANUP_BUF struct buf b = {0};
    struct error err = {0};
    (void)state;
    rel_desc_write(d, &b);
    for (size_t n = 0; n < b.len; n++) { /* every truncation */
        uint8_t *exact = xmalloc(n);     /* of its own, so that a read past the end is seen */
        memcpy(exact, b.data, n);
        struct cursor c = cursor_of(exact, n);
        assert_int_equal(rel_desc_read(&c, &back, &err), ERR_DATA);
        free(exact);
    }
    for (size_t i = 0; i < b.len;
         i++) /* every byte set to odd values: an error or a sound result */
        for (unsigned v = 0; v < 256; v += 17) {
            uint8_t kept = b.data[i];
            b.data[i] = (uint8_t)v;
            struct cursor c = cursor_of(b.data, b.len);
            if (rel_desc_read(&c, &back, &err) == OK)
                rel_desc_unref(back);
            b.data[i] = kept;
        }
    b.data[0] = 3;
    struct cursor c = cursor_of(b.data, b.len);
    assert_int_equal(rel_desc_read(&c, &back, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "format 3"));
    rel_desc_unref(d);
}

static void test_missing_damage(void **state)
{
    static const uint8_t good[] = {0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 23, 0, 0,
                                   0, 1, 0, 0, 0, 1, 0, 0, 0, 4, 1, 2,  3, 4};
    CLEANUP_BUF struct buf out = {0};
    struct error err = {0};
    bool known = false;
    (void)state;
    assert_ok(catalog_missing_datum(23, good, sizeof good, &out, &known, &err));
    assert_true(known);
    assert_memory_equal(out.data, "\4\3\2\1", 4);
    for (size_t n = 0; n < sizeof good; n++)
        assert_int_equal(catalog_missing_datum(23, good, n, &out, &known, &err), ERR_DATA);
    assert_int_equal(catalog_missing_datum(20, good, sizeof good, &out, &known, &err), ERR_DATA);
    assert_int_equal(catalog_missing_datum(1700, good, sizeof good, &out, &known, &err), ERR_DATA);
    assert_int_equal(catalog_missing_datum(2950, good, sizeof good, &out, &known, &err), ERR_DATA);
    assert_int_equal(out.len, 4);
    assert_ok(catalog_missing_datum(3802, good, sizeof good, &out, &known, &err));
    assert_false(known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_equal_for_decoding),
        cmocka_unit_test(test_differences),  cmocka_unit_test(test_types),
        cmocka_unit_test(test_type_changes), cmocka_unit_test(test_older_format),
        cmocka_unit_test(test_damage),       cmocka_unit_test(test_missing_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
