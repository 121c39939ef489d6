/* The public TOML test suite: every valid document against the JSON the suite gives for it, every
 * invalid one refused. And what the suite does not ask: positions in errors. */
#include "test.h"

#include "base/file.h"
#include "config/toml.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>

/* jansson cannot hold a key with a NUL; the suite has one, of that single character. */
#define NUL_KEY "<nul>"

static json_t *tagged(const struct toml_value *v);

static json_t *tag(const char *type, const char *text, size_t len)
{
    return json_pack("{s:s, s:o}", "type", type, "value", json_stringn(text, len));
}

static json_t *tagged_time(const struct toml_value *v)
{
    static const char *const types[] = {"datetime", "datetime-local", "date-local", "time-local"};
    const struct toml_time *t = &v->time;
    char date[40] = "", clock[40] = "", offset[16] = "", all[100];
    if (v->kind != TOML_LOCAL_TIME)
        snprintf(date, sizeof date, "%04d-%02d-%02d", t->year, t->month, t->day);
    if (v->kind != TOML_LOCAL_DATE) {
        snprintf(clock, sizeof clock, "%02d:%02d:%02d.%09d", t->hour, t->minute, t->second,
                 t->nanosecond);
        for (size_t n = strlen(clock); clock[n - 1] == '0' || clock[n - 1] == '.'; n--) {
            bool dot = clock[n - 1] == '.';
            clock[n - 1] = '\0';
            if (dot)
                break;
        }
    }
    if (v->kind == TOML_OFFSET_DATETIME) {
        int m = abs(t->offset_minutes);
        snprintf(offset, sizeof offset, m == 0 ? "Z" : "%c%02d:%02d",
                 t->offset_minutes < 0 ? '-' : '+', m / 60, m % 60);
    }
    snprintf(all, sizeof all, "%s%s%s%s", date, date[0] && clock[0] ? "T" : "", clock, offset);
    return tag(types[v->kind - TOML_OFFSET_DATETIME], all, strlen(all));
}

static json_t *tagged(const struct toml_value *v)
{
    char text[400];
    json_t *out;
    switch (v->kind) {
    case TOML_STRING:
        return tag("string", v->string.data, v->string.len);
    case TOML_INTEGER:
        snprintf(text, sizeof text, "%lld", (long long)v->integer);
        return tag("integer", text, strlen(text));
    case TOML_FLOAT:
        snprintf(text, sizeof text, "%.17g", v->number);
        return tag("float", text, strlen(text));
    case TOML_BOOL:
        return tag("bool", v->boolean ? "true" : "false", v->boolean ? 4 : 5);
    case TOML_OFFSET_DATETIME:
    case TOML_LOCAL_DATETIME:
    case TOML_LOCAL_DATE:
    case TOML_LOCAL_TIME:
        return tagged_time(v);
    case TOML_ARRAY:
        out = json_array();
        for (size_t i = 0; i < v->array.len; i++)
            json_array_append_new(out, tagged(v->array.items[i]));
        return out;
    case TOML_TABLE:
        out = json_object();
        for (const struct toml_entry *e = v->table.first; e != NULL; e = e->next)
            json_object_setn_new_nocheck(
                out, e->key.len == 1 && e->key.data[0] == 0 ? NUL_KEY : e->key.data,
                e->key.len == 1 && e->key.data[0] == 0 ? strlen(NUL_KEY) : e->key.len,
                tagged(e->value));
        return out;
    }
    return NULL;
}

/* Times in the suite: fractions may end in zeros, UTC may be written as an offset. */
static void normalise_time(const char *in, char *out, size_t cap)
{
    size_t n = 0;
    for (size_t i = 0; in[i] != '\0' && n + 2 < cap; i++) {
        if (in[i] != '.') {
            out[n++] = in[i] == ' ' || in[i] == 't' ? 'T' : in[i] == 'z' ? 'Z' : in[i];
            continue;
        }
        size_t digits = strspn(in + i + 1, "0123456789"), keep = digits;
        while (keep > 0 && in[i + keep] == '0')
            keep--;
        if (keep > 0) {
            memcpy(out + n, in + i, keep + 1);
            n += keep + 1;
        }
        i += digits;
    }
    out[n] = '\0';
    if (n > 6 && (strcmp(out + n - 6, "+00:00") == 0 || strcmp(out + n - 6, "-00:00") == 0))
        strcpy(out + n - 6, "Z");
}

static bool leaf_equal(const json_t *want, const json_t *got)
{
    const char *type = json_string_value(json_object_get(want, "type"));
    const char *got_type = json_string_value(json_object_get(got, "type"));
    const json_t *a = json_object_get(want, "value"), *b = json_object_get(got, "value");
    if (got_type == NULL || strcmp(type, got_type) != 0 || !json_is_string(b))
        return false;
    if (strcmp(type, "float") == 0) {
        double x = strtod(json_string_value(a), NULL), y = strtod(json_string_value(b), NULL);
        return (isnan(x) && isnan(y)) || x == y;
    }
    if (strcmp(type, "string") == 0 || strcmp(type, "bool") == 0 || strcmp(type, "integer") == 0)
        return json_equal(a, b) != 0;
    char x[100], y[100];
    normalise_time(json_string_value(a), x, sizeof x);
    normalise_time(json_string_value(b), y, sizeof y);
    return strcmp(x, y) == 0;
}

static bool same(const json_t *want, const json_t *got)
{
    if (json_is_object(want) && json_object_size(want) == 2 &&
        json_is_string(json_object_get(want, "type")) &&
        json_is_string(json_object_get(want, "value")))
        return leaf_equal(want, got);
    if (json_typeof(want) != json_typeof(got))
        return false;
    if (json_is_array(want)) {
        bool equal = json_array_size(want) == json_array_size(got);
        for (size_t i = 0; equal && i < json_array_size(want); i++)
            equal = same(json_array_get(want, i), json_array_get(got, i));
        return equal;
    }
    if (!json_is_object(want) || json_object_size(want) != json_object_size(got))
        return false;
    const char *key;
    size_t key_len;
    json_t *value;
    json_object_keylen_foreach((json_t *)(uintptr_t)want, key, key_len, value)
    {
        const json_t *other = json_object_getn(got, key, key_len);
        if (other == NULL || !same(value, other))
            return false;
    }
    return true;
}

static json_t *load_expected(const char *toml_path)
{
    char path[4096];
    struct error err = {0};
    CLEANUP_BUF struct buf text = {0}, out = {0};
    json_error_t json_err;
    snprintf(path, sizeof path, "%.*s.json", (int)(strlen(toml_path) - 5), toml_path);
    assert_ok(file_read_all(path, 1 << 24, &text, &err));
    for (const char *at = buf_cstr(&text), *hit; *at != '\0';) {
        hit = strstr(at, "\"\\u0000\":");
        size_t n = hit == NULL ? strlen(at) : (size_t)(hit - at);
        buf_put(&out, at, n);
        at += n;
        if (hit != NULL) {
            buf_printf(&out, "\"%s\":", NUL_KEY);
            at += strlen("\"\\u0000\":");
        }
    }
    return json_loadb((const char *)out.data, out.len, JSON_ALLOW_NUL, &json_err);
}

static struct counts {
    unsigned valid, invalid, failed;
} counts;

static void check_document(const char *path, bool valid)
{
    struct error err = {0};
    CLEANUP_BUF struct buf text = {0};
    struct toml_doc *doc = NULL;
    assert_ok(file_read_all(path, 1 << 24, &text, &err));
    enum status st = toml_parse("doc", (const char *)text.data, text.len, &doc, &err);
    if (!valid) {
        counts.invalid++;
        if (st != ERR_CONFIG || strncmp(err.message, "doc:", 4) != 0) {
            print_error("%s: accepted\n", path);
            counts.failed++;
        }
        toml_doc_free(doc);
        return;
    }
    counts.valid++;
    if (st != OK) {
        print_error("%s: %s\n", path, err.message);
        counts.failed++;
        return;
    }
    json_t *want = load_expected(path);
    json_t *got = tagged(doc->root);
    if (want == NULL || !same(want, got)) {
        char *dump = json_dumps(got, JSON_COMPACT);
        print_error("%s: gave %s\n", path, dump);
        free(dump);
        counts.failed++;
    }
    json_decref(want);
    json_decref(got);
    toml_doc_free(doc);
}

static void walk(const char *dir, bool valid)
{
    DIR *d = opendir(dir);
    if (d == NULL)
        return;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[4096];
        struct stat st;
        size_t n = strlen(e->d_name);
        /* \e came with TOML 1.1; the suite's own runner leaves it out for 1.0 */
        if (e->d_name[0] == '.' || strcmp(e->d_name, "escape-esc.toml") == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
            walk(path, valid);
        else if (n > 5 && strcmp(e->d_name + n - 5, ".toml") == 0)
            check_document(path, valid);
    }
    closedir(d);
}

/* Newer releases of the suite hold documents of later TOML versions too and list those of 1.0. */
static bool walk_list(const char *dir)
{
    char path[4096], line[1024];
    snprintf(path, sizeof path, "%s/files-toml-1.0.0", dir);
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return false;
    while (fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        size_t n = strlen(line);
        if (n < 5 || strcmp(line + n - 5, ".toml") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, line);
        check_document(path, strncmp(line, "valid/", 6) == 0);
    }
    fclose(f);
    return true;
}

static void test_suite(void **state)
{
    (void)state;
    char dir[2048], path[4096];
    const char *given = getenv("TOML_TEST_DIR"), *root = getenv("SOURCE_ROOT");
    snprintf(dir, sizeof dir, "%s", given != NULL ? given : "");
    if (given == NULL)
        snprintf(dir, sizeof dir, "%s/.deps/toml-test", root != NULL ? root : ".");
    if (!file_exists(dir)) {
        print_message("no TOML test suite in %s (script/setup brings it)\n", dir);
        skip();
    }
    if (!walk_list(dir)) {
        snprintf(path, sizeof path, "%s/valid", dir);
        walk(path, true);
        snprintf(path, sizeof path, "%s/invalid", dir);
        walk(path, false);
    }
    print_message("%u valid, %u invalid documents\n", counts.valid, counts.invalid);
    assert_true(counts.valid >= 80 && counts.invalid >= 150); /* the suite was really there */
    assert_int_equal(counts.failed, 0);
}

static void refuse(const char *text, const char *want)
{
    struct error err = {0};
    struct toml_doc *doc = NULL;
    assert_int_equal(toml_parse("f.toml", text, strlen(text), &doc, &err), ERR_CONFIG);
    if (strstr(err.message, want) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.message, want);
}

static void test_positions(void **state)
{
    (void)state;
    refuse("a = 1\nb = \n", "f.toml:2:5: a value is missing");
    refuse("a = 1\n\n  a = 2\n", "f.toml:3:3: \"a\" is given twice");
    refuse("x = bare\n", "f.toml:1:5: \"bare\" is not a value");
    refuse("x = [1, 2\n", "f.toml:2:1: \",\" or \"]\"");
    refuse("x = \"a\nb\"", "f.toml:1:7: a string is not closed on its line");
    refuse("[a]\n[a]\n", "f.toml:2:2: \"a\" is already defined");
    refuse("a = 1 b = 2\n", "f.toml:1:7: the line should end here");
    refuse("x = \"\xff\"\n", "f.toml:1:6: not valid UTF-8");
}

static void test_depth_is_bounded(void **state)
{
    (void)state;
    size_t n = 200000;
    char *text = malloc(n + 5);
    memcpy(text, "a = ", 4);
    memset(text + 4, '[', n);
    text[n + 4] = '\0';
    refuse(text, "nested more than");
    free(text);
}

static void test_many_keys(void **state)
{
    (void)state;
    struct error err = {0};
    CLEANUP_BUF struct buf text = {0};
    struct toml_doc *doc = NULL;
    for (int i = 0; i < 20000; i++)
        buf_printf(&text, "key%d = %d\n", i, i * 3);
    assert_ok(toml_parse("doc", (const char *)text.data, text.len, &doc, &err));
    assert_int_equal(toml_get(doc->root, "key19999")->integer, 59997);
    assert_int_equal(toml_get(doc->root, "key0")->integer, 0);
    assert_int_equal(toml_get(doc->root, "key777")->line, 778);
    assert_null(toml_get(doc->root, "key20000"));
    toml_doc_free(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_suite),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_many_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
