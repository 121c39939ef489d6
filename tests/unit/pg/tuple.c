#include "pg/tuple.h"

#include "heap_fixture.h"

#include <inttypes.h>
#include <openssl/evp.h>

/* One value as psql printed it; kinds follow fixture_all (gone and nn are not in the query). */
static void value_text(char kind, const struct datum *d, struct buf *out)
{
    static const char hex[] = "0123456789abcdef";
    union {
        int16_t i2;
        int32_t i4;
        uint32_t o;
        int64_t i8;
        float f4;
        double f8;
    } v = {0};
    if (d->state == DATUM_NULL || d->state == DATUM_MISSING) {
        buf_put(out, "\\N", 2);
        return;
    }
    assert_int_equal(d->state, DATUM_VALUE);
    memcpy(&v, d->data, MIN(d->len, sizeof v));
    switch (kind) {
    case 'b':
        buf_printf(out, "%c", d->data[0] ? 't' : 'f');
        break;
    case 'c':
        buf_put_u8(out, d->data[0]);
        break;
    case '2':
        buf_printf(out, "%d", v.i2);
        break;
    case '4':
        buf_printf(out, "%d", v.i4);
        break;
    case 'o':
        buf_printf(out, "%u", v.o);
        break;
    case '8':
        buf_printf(out, "%" PRId64, v.i8);
        break;
    case 'f':
        buf_printf(out, "%g", (double)v.f4);
        break;
    case 'g':
        buf_printf(out, "%g", v.f8);
        break;
    case 'n':
        buf_put(out, d->data, strnlen((const char *)d->data, d->len));
        break;
    case 't':
        buf_put(out, d->data, d->len);
        break;
    case 'y':
        buf_printf(out, "\\x");
        for (uint32_t i = 0; i < d->len; i++)
            buf_printf(out, "%02x", d->data[i]);
        break;
    case 'u':
        for (uint32_t i = 0; i < d->len; i++) {
            if (i == 4 || i == 6 || i == 8 || i == 10)
                buf_put_u8(out, '-');
            buf_put_u8(out, (uint8_t)hex[d->data[i] >> 4]);
            buf_put_u8(out, (uint8_t)hex[d->data[i] & 15]);
        }
        break;
    default:
        fail_msg("kind %c", kind);
    }
}

static void test_every_alignment(void **state)
{
    static const char kinds[] = "bc248fgun-tvyo4-t4";
    struct error err;
    struct buf page = {0}, text = {0}, got = {0};
    struct tuple_shape *shape = tuple_shape_new(fixture_all, LENGTH(fixture_all));
    struct datum d[LENGTH(fixture_all)];
    char *save = NULL;
    unsigned lines = 0;
    (void)state;
    fixture_read("all.page", &page);
    fixture_read("all.tsv", &text);
    for (char *want = strtok_r((char *)text.data, "\n", &save); want != NULL;
         want = strtok_r(NULL, "\n", &save)) {
        unsigned line = (unsigned)atoi(want);
        struct page_tuple t = fixture_tuple(&page, line);
        assert_ok(tuple_check(shape, &t.raw, &err));
        assert_ok(tuple_deform(shape, &t.raw, d, &err));
        assert_int_equal(d[9].state, DATUM_NULL); /* dropped, though old tuples have a value */
        assert_int_equal(d[17].state, line == 7 ? DATUM_VALUE : DATUM_MISSING);
        buf_reset(&got);
        buf_printf(&got, "%u", line);
        for (unsigned i = 0; i < LENGTH(fixture_all); i++) {
            if (kinds[i] == '-')
                continue;
            buf_put_u8(&got, '|');
            value_text(kinds[i] == 'v' ? 't' : kinds[i], &d[i], &got);
        }
        assert_string_equal(buf_cstr(&got), want);
        lines++;
    }
    assert_int_equal(lines, 6);
    tuple_shape_free(shape);
    buf_free(&page);
    buf_free(&text);
    buf_free(&got);
}

static void md5_text(const uint8_t *data, size_t len, char *ret)
{
    unsigned char sum[16];
    assert_int_equal(EVP_Digest(data, len, sum, NULL, EVP_md5(), NULL), 1);
    for (int i = 0; i < 16; i++)
        snprintf(ret + 2 * i, 3, "%02x", sum[i]);
}

/* length and md5 of a value that may be compressed */
static void packed_text(const struct datum *d, struct buf *out)
{
    struct error err;
    struct buf plain = {0};
    char md5[33];
    assert_int_equal(d->state, DATUM_COMPRESSED);
    assert_ok(datum_decompress(d, 1 << 20, &plain, &err));
    md5_text(plain.data, plain.len, md5);
    buf_printf(out, "|%zu|%s", plain.len, md5);
    size_t len = plain.len;
    buf_reset(&plain);
    assert_int_equal(datum_decompress(d, len - 1, &plain, &err), ERR_DATA);
    assert_int_equal(plain.len, 0);
    buf_free(&plain);
}

static void test_compressed_values(void **state)
{
    struct error err;
    struct buf page = {0}, text = {0}, got = {0};
    struct tuple_shape *shape = tuple_shape_new(fixture_packed, LENGTH(fixture_packed));
    char *save = NULL;
    unsigned line = 0;
    (void)state;
    fixture_read("packed.page", &page);
    fixture_read("packed.tsv", &text);
    for (char *want = strtok_r((char *)text.data, "\n", &save); want != NULL;
         want = strtok_r(NULL, "\n", &save)) {
        struct datum d[4];
        struct page_tuple t = fixture_tuple(&page, ++line);
        assert_ok(tuple_deform(shape, &t.raw, d, &err));
        buf_reset(&got);
        buf_printf(&got, "%u", line);
        packed_text(&d[1], &got);
        packed_text(&d[2], &got);
        assert_memory_equal(buf_cstr(&got), want, got.len);
        assert_int_equal(want[got.len], '|');
        /* pg_column_size counts the 4-byte length word */
        char sizes[64];
        snprintf(sizes, sizeof sizes, "|%u|%u", d[1].len + 4, d[2].len + 4);
        assert_non_null(strstr(want + got.len, sizes));
        if (line == 3) { /* 3200 bytes, STORAGE EXTERNAL */
            struct toast_pointer p;
            assert_int_equal(d[3].state, DATUM_EXTERNAL);
            assert_ok(toast_pointer_parse(&d[3], &p, &err));
            assert_int_equal(p.rawsize, 3204);
            assert_int_equal(p.extsize, 3200);
            assert_false(p.compressed);
            assert_true(p.value_id >= FirstNormalObjectId && p.toast_relid >= FirstNormalObjectId);
        }
    }
    assert_int_equal(line, 3);
    tuple_shape_free(shape);
    buf_free(&page);
    buf_free(&text);
    buf_free(&got);
}

/* Any cut or flipped tuple is either taken whole or refused, the same by check and deform, and no
 * value reaches outside the tuple. */
static void test_damaged_tuples(void **state)
{
    struct error err;
    struct buf page = {0};
    struct tuple_shape *shape = tuple_shape_new(fixture_all, LENGTH(fixture_all));
    struct datum d[LENGTH(fixture_all)];
    unsigned refused = 0;
    (void)state;
    fixture_read("all.page", &page);
    srand(7);
    for (unsigned round = 0; round < 40000; round++) {
        struct page_tuple t = fixture_tuple(&page, 1 + round % 7);
        uint32_t len = t.raw.body_len - (round & 1 ? (uint32_t)rand() % t.raw.body_len : 0);
        uint8_t *body = xmalloc(len); /* exact size: the sanitizer sees a read behind it */
        memcpy(body, t.raw.body, len);
        t.raw.body = body;
        t.raw.body_len = len;
        if (round & 2)
            body[(unsigned)rand() % len] ^= (uint8_t)(1u << (rand() & 7));
        if (round & 4)
            t.raw.hoff = (uint8_t)rand();
        if (round % 11 == 0)
            t.raw.infomask2 = (uint16_t)rand();
        enum status checked = tuple_check(shape, &t.raw, &err);
        enum status got = tuple_deform(shape, &t.raw, d, &err);
        assert_int_equal(checked, got);
        refused += got != OK;
        for (unsigned i = 0; got == OK && i < LENGTH(fixture_all); i++)
            if (d[i].data != NULL)
                assert_true(d[i].data >= body && d[i].data + d[i].len <= body + len);
        free(body);
    }
    assert_true(refused > 5000 && refused < 35000);
    tuple_shape_free(shape);
    buf_free(&page);
}

static enum status deform_one(const uint8_t *data, uint32_t len, struct datum *ret)
{
    static const struct tuple_att att = {-1, 'i', false};
    struct error err;
    uint8_t body[64] = {0};
    assert_true(len < 60);
    memcpy(body + 1, data, len);
    struct raw_tuple t = {1, 0, 24, len + 1, body};
    struct tuple_shape *shape = tuple_shape_new(&att, 1);
    enum status status = tuple_deform(shape, &t, ret, &err);
    tuple_shape_free(shape);
    return status;
}

static void test_varlena_headers(void **state)
{
    struct datum d;
    (void)state;
    assert_int_equal(deform_one((const uint8_t *)"\x03", 1, &d), OK); /* short, empty */
    assert_int_equal(d.len, 0);
    assert_int_equal(deform_one((const uint8_t *)"\x10\0\0", 3, &d), ERR_DATA); /* word cut */
    assert_int_equal(deform_one((const uint8_t *)"\x10\0\0\0", 4, &d), OK);
    assert_int_equal(d.len, 0);
    assert_int_equal(deform_one((const uint8_t *)"\x0c\0\0\0", 4, &d), ERR_DATA); /* 3 < 4 */
    assert_int_equal(deform_one((const uint8_t *)"\x14\0\0\0", 4, &d), ERR_DATA); /* 5 > 4 */
    assert_int_equal(deform_one((const uint8_t *)"\x12\0\0\0", 4, &d), ERR_DATA); /* 4 < 8 */
    assert_int_equal(deform_one((const uint8_t *)"\x07x", 2, &d), ERR_DATA);      /* 3 > 2 */
    assert_int_equal(deform_one((const uint8_t *)"", 0, &d), ERR_DATA);
    /* pointers: on disk (18) only; 1 indirect, 2 and 3 expanded are of memory */
    uint8_t pointer[18] = {1, 18};
    assert_int_equal(deform_one(pointer, 18, &d), OK);
    assert_int_equal(d.state, DATUM_EXTERNAL);
    assert_int_equal(deform_one(pointer, 17, &d), ERR_DATA);
    pointer[1] = 1;
    assert_int_equal(deform_one(pointer, 18, &d), ERR_DATA);
}

static void test_more_attributes_than_the_shape(void **state)
{
    struct error err;
    struct buf page = {0};
    struct datum d[3];
    struct tuple_shape *shape = tuple_shape_new(fixture_packed, 3);
    (void)state;
    fixture_read("packed.page", &page);
    struct page_tuple t = fixture_tuple(&page, 1);
    assert_int_equal(tuple_deform(shape, &t.raw, d, &err), ERR_DATA);
    assert_string_equal(err.message, "tuple has 4 attributes, its relation 3");
    tuple_shape_free(shape);
    buf_free(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_alignment),
        cmocka_unit_test(test_compressed_values),
        cmocka_unit_test(test_damaged_tuples),
        cmocka_unit_test(test_varlena_headers),
        cmocka_unit_test(test_more_attributes_than_the_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
