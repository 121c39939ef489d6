/* Values of every carried type: on-disk bytes, text and payload as captured from PostgreSQL 15 and
 * computed without our code (tests/fixtures/types/capture.py). */
#include "test.h"

#include "types/encoder.h"

#include <dirent.h>
#include <stdbool.h>

struct fixture {
    FILE *file;
    char path[512];
    char *line; /* the line without its newline */
    size_t cap;
    unsigned number;
};

static void fixture_open(struct fixture *f, const char *name)
{
    snprintf(f->path, sizeof f->path, "%s/tests/fixtures/types/%s", getenv("SOURCE_ROOT"), name);
    f->file = fopen(f->path, "r");
    if (f->file == NULL)
        fail_msg("cannot open %s", f->path);
}

static bool fixture_line(struct fixture *f)
{
    ssize_t n = getline(&f->line, &f->cap, f->file);
    if (n <= 0)
        return false;
    assert_int_equal(f->line[n - 1], '\n');
    f->line[n - 1] = 0;
    f->number++;
    return true;
}

static void fixture_close(struct fixture *f)
{
    fclose(f->file);
    free(f->line);
}

static int nibble(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

/* Bytes of a hex text, in an allocation of exactly that size, so that the sanitizer sees overreads.
 */
static uint8_t *from_hex(const char *hex, uint32_t *ret_len)
{
    size_t n = strlen(hex) / 2;
    uint8_t *bytes = xmalloc(n > 0 ? n : 1);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(nibble(hex[2 * i]) << 4 | nibble(hex[2 * i + 1]));
    *ret_len = (uint32_t)n;
    return bytes;
}

static void assert_bytes(const struct fixture *f, const char *what, const struct buf *got,
                         const void *want, size_t want_len)
{
    if (got->len != want_len || (want_len > 0 && memcmp(got->data, want, want_len) != 0)) {
        fprintf(stderr, "got ");
        for (size_t i = 0; i < got->len; i++)
            fprintf(stderr, "%02x", got->data[i]);
        fail_msg("\n%s:%u: %s differs: %s", f->path, f->number, what, f->line);
    }
}

static void check_payload(const struct fixture *f, const struct encoder *e, const uint8_t *datum,
                          uint32_t len, const char *expected)
{
    struct column_buf out = {0};
    const char *reason = NULL;
    enum encode_result result = e->append(e, datum, len, &out, &reason);
    if (strcmp(expected, "BAD") == 0) {
        if (result != ENCODE_BAD || reason == NULL || out.data.len != 0 || out.nulls.len != 0)
            fail_msg("%s:%u: not refused", f->path, f->number);
    } else {
        uint32_t want_len;
        uint8_t *want = from_hex(expected, &want_len);
        if (result != ENCODE_OK)
            fail_msg("%s:%u: refused: %s", f->path, f->number, reason);
        assert_bytes(f, "payload", &out.data, want, want_len);
        assert_int_equal(out.nulls.len, e->nullable ? 1 : 0);
        free(want);
    }
    buf_free(&out.data);
    buf_free(&out.nulls);
}

/* Text form, in a message and as a String column. */
static void check_text(const struct fixture *f, const struct att_desc *att, const struct encoder *e,
                       const uint8_t *datum, uint32_t len, const char *expected)
{
    struct buf text = {0}, column = {0};
    struct column_buf out = {0};
    const char *reason;
    datum_text(att, datum, len, SIZE_MAX, &text);
    assert_bytes(f, "text", &text, expected, strlen(expected));
    if (att->typid != 17) { /* a bytea column holds the bytes, not their text */
        buf_put_str(&column, expected);
        assert_int_equal(e->append(e, datum, len, &out, &reason), ENCODE_OK);
        assert_bytes(f, "String column", &out.data, column.data, column.len);
    }
    buf_free(&text);
    buf_free(&column);
    buf_free(&out.data);
    buf_free(&out.nulls);
}

static unsigned check_file(const char *name)
{
    static const struct ch_caps caps = {.wide_dates = true, .time64 = true};
    struct fixture f = {0};
    struct error err;
    struct att_desc att = {.attnum = 1, .name = "v"};
    struct encoder e, text;
    int attlen, target;
    fixture_open(&f, name);
    assert_true(fixture_line(&f));
    assert_int_equal(sscanf(f.line, "# %u %d %d %n", &att.typid, &attlen, &att.typmod, &target), 3);
    att.attlen = (int16_t)attlen;
    char *nullable = xasprintf("Nullable(%s)", f.line + target);
    assert_ok(encoder_plan(&att, false, NULL, &caps, &e, &err));
    assert_string_equal(e.ch_type, nullable);
    assert_ok(encoder_plan(&att, false, "Nullable(String)", &caps, &text, &err));
    while (fixture_line(&f)) {
        uint32_t len;
        char *line = xstrdup(f.line), *text_at = strchr(line, '\t'), *payload = strrchr(line, '\t');
        *text_at++ = 0;
        *payload++ = 0;
        uint8_t *datum = from_hex(line, &len);
        check_payload(&f, &e, datum, len, payload);
        check_text(&f, &att, &text, datum, len, text_at);
        free(datum);
        free(line);
    }
    free(nullable);
    encoder_fini(&e);
    encoder_fini(&text);
    fixture_close(&f);
    return f.number - 1;
}

static void test_fixtures(void **state)
{
    char path[512];
    unsigned files = 0, values = 0;
    (void)state;
    snprintf(path, sizeof path, "%s/tests/fixtures/types", getenv("SOURCE_ROOT"));
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strstr(entry->d_name, ".tsv") == NULL)
            continue;
        values += check_file(entry->d_name);
        files++;
    }
    closedir(dir);
    assert_true(files >= 69); /* a server without libxml has no xml */
    assert_true(values >= 3000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fixtures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
