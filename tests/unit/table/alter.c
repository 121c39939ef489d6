/* The way from the columns found to those wanted: every statement, from every place where a kill
 * may have left it. A small model of a table runs the statements. */
#include "test.h"

#include "table/alter.h"

#include <stdio.h>

static const struct ch_caps caps = {.wide_dates = true, .time64 = true};

struct relation {
    struct rel_desc desc;
    struct att_desc atts[8];
};

/* Columns "name type" of int4, or text with '*'; NULL ends; "" is a dropped one. The first is the
 * key. */
static void relation_init(struct relation *r, const char *const *names)
{
    memset(r, 0, sizeof *r);
    r->desc = (struct rel_desc){.oid = 16400,
                                .relkind = 'r',
                                .relam = 2,
                                .identity = IDENTITY_KEY,
                                .nkeys = 1,
                                .key_attnums = {1},
                                .atts = r->atts};
    for (unsigned i = 0; names[i] != NULL; i++) {
        bool text = names[i][0] == '*';
        r->atts[i] = (struct att_desc){.attnum = (int16_t)(i + 1),
                                       .dropped = names[i][0] == '\0',
                                       .typid = text ? 25 : 23,
                                       .base_typid = text ? 25 : 23,
                                       .typmod = -1,
                                       .attlen = text ? -1 : 4,
                                       .attalign = 'i'};
        snprintf(r->atts[i].name, NAMEDATALEN, "%s", names[i] + text);
        r->desc.natts++;
    }
}

static struct target *target_of(struct relation *r, const char *const *stored, size_t nstored)
{
    const struct target_options options = {
        .database = "d", .table = "t", .stored_types = stored, .nstored = nstored};
    struct target *t;
    struct error err;
    assert_ok(target_new(&r->desc, &options, &caps, &t, &err));
    return t;
}

static void found_add(struct found_columns *f, const char *name, const char *type,
                      const char *comment)
{
    found_columns_add(f, xstrdup(name), xstrdup(type), xstrdup(comment));
}

static void found_of(const struct target *t, struct found_columns *f)
{
    for (unsigned c = 0; c < t->header->ncols; c++)
        found_add(f, t->header->cols[c].name, target_column_type(t, c), "");
}

static size_t find(const struct found_columns *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->items[i].name, name) == 0)
            return i;
    return f->n;
}

static char *take_word(const char **at, const char *stop)
{
    const char *end = strstr(*at, stop);
    assert_non_null(end);
    char *word = xasprintf("%.*s", (int)(end - *at), *at);
    *at = end + strlen(stop);
    return word;
}

static void set(char **field, char *value)
{
    free(*field);
    *field = value;
}

/* Runs the statement's actions; names in them are plain. */
static void model_run(struct found_columns *f, const char *sql)
{
    const char *at = sql + strlen("ALTER TABLE `d`.`t` ");
    assert_memory_equal(sql, "ALTER TABLE `d`.`t` ", strlen("ALTER TABLE `d`.`t` "));
    while (at != NULL) {
        CLEANUP_FREE char *verb = take_word(&at, " `");
        CLEANUP_FREE char *name = take_word(&at, "`");
        size_t i = find(f, name);
        if (strcmp(verb, "COMMENT COLUMN") == 0) {
            at += strlen(" '");
            set(&f->items[i].comment, take_word(&at, "'"));
        } else if (strcmp(verb, "RENAME COLUMN") == 0) {
            at += strlen(" TO `");
            char *to = take_word(&at, "`");
            assert_int_equal(find(f, to), f->n);
            set(&f->items[i].name, to);
        } else if (strcmp(verb, "MODIFY COLUMN") == 0) {
            const char *end = strstr(at, ", MODIFY");
            set(&f->items[i].type,
                xasprintf("%.*s", end == NULL ? 1000 : (int)(end - at) - 1, at + 1));
            at = end == NULL ? at + strlen(at) : end;
        } else if (strcmp(verb, "DROP COLUMN IF EXISTS") == 0) {
            struct found_column gone = f->items[i];
            assert_true(i < f->n);
            memmove(f->items + i, f->items + i + 1, (f->n - i - 1) * sizeof gone);
            f->n--;
            free(gone.name);
            free(gone.type);
            free(gone.comment);
        } else {
            assert_string_equal(verb, "ADD COLUMN IF NOT EXISTS");
            at++;
            CLEANUP_FREE char *type = take_word(&at, " COMMENT '");
            CLEANUP_FREE char *comment = take_word(&at, "'");
            assert_int_equal(i, f->n);
            found_add(f, name, type, comment);
            at += strcspn(at, ",");
        }
        at = *at == '\0' ? NULL : at + 2;
    }
}

/* From `from` to `to`, the plan made anew before each statement as after a kill. Returns the number
 * of statements. */
static unsigned follow(const char *const *from_names, const char *const *to_names)
{
    static const struct att_desc *const none[8];
    struct relation a, b;
    relation_init(&a, from_names);
    relation_init(&b, to_names);
    struct target *from = target_of(&a, NULL, 0), *to = target_of(&b, NULL, 0);
    const struct target_alter alter = {from, to, none};
    struct found_columns f = {0};
    struct error err;
    unsigned n = 0;
    found_of(from, &f);
    for (;; n++) {
        CLEANUP_BUF struct buf sql = {0};
        assert_ok(target_alter_next(&alter, &f, &sql, &err));
        if (sql.len == 0)
            break;
        assert_true(n < 10);
        model_run(&f, buf_cstr(&sql));
    }
    assert_int_equal(f.n, to->header->ncols);
    for (unsigned c = 0; c < to->header->ncols; c++) {
        size_t i = find(&f, to->header->cols[c].name);
        assert_true(i < f.n);
        assert_string_equal(f.items[i].type, to->header->cols[c].type);
    }
    found_columns_fini(&f);
    target_unref(from);
    target_unref(to);
    return n;
}

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_ways(void **state)
{
    (void)state;
    assert_int_equal(follow(NAMES("id", "*v"), NAMES("id", "*v")), 0);
    assert_int_equal(follow(NAMES("id", "*v"), NAMES("id", "*v", "n", "*w")), 1);
    assert_int_equal(follow(NAMES("id", "*v", "n"), NAMES("id", "", "n")), 1);
    assert_int_equal(follow(NAMES("id", "*v"), NAMES("id", "*w")), 1);
    /* the types differ, so that a column taken for another one would show */
    assert_int_equal(follow(NAMES("id", "*v", "n"), NAMES("id", "", "v")), 3);
    assert_int_equal(follow(NAMES("id", "*v"), NAMES("id", "", "v")), 3);
    assert_int_equal(follow(NAMES("id", "*v", "n"), NAMES("id", "*n", "v")), 3);
    assert_int_equal(follow(NAMES("id", "*a", "b", "*c"), NAMES("id", "*b", "c", "*a", "d")), 4);
}

static enum status next(struct relation *a, struct relation *b, const struct found_columns *found,
                        char *ret, size_t cap, struct error *err)
{
    const struct att_desc *added[8] = {0};
    const char *types[8];
    struct found_columns own = {0};
    struct target *from = target_of(a, NULL, 0);
    if (found == NULL)
        found_of(from, &own);
    target_stored_types(from, found == NULL ? &own : found, types, b->desc.natts);
    struct target *to = target_of(b, types, b->desc.natts);
    for (unsigned c = 0; c < to->ncols; c++)
        added[c] = &b->atts[to->cols[c].attnum - 1];
    const struct target_alter alter = {from, to, added};
    CLEANUP_BUF struct buf sql = {0};
    enum status st = target_alter_next(&alter, found == NULL ? &own : found, &sql, err);
    snprintf(ret, cap, "%s", buf_cstr(&sql));
    found_columns_fini(&own);
    target_unref(from);
    target_unref(to);
    return st;
}

static void test_values_of_old_rows(void **state)
{
    struct relation a, b;
    struct error err;
    char sql[600];
    static uint8_t seven[] = {7, 0, 0, 0}, text[] = {'a', '\'', '\\', 0, 'b'};
    (void)state;
    relation_init(&a, NAMES("id"));
    relation_init(&b, NAMES("id", "n", "*v"));
    b.atts[1].has_missing = b.atts[2].has_missing = true;
    b.atts[1].missing = seven;
    b.atts[1].missing_len = sizeof seven;
    b.atts[2].missing = text;
    b.atts[2].missing_len = sizeof text;
    assert_ok(next(&a, &b, NULL, sql, sizeof sql, &err));
    assert_string_equal(
        sql, "ALTER TABLE `d`.`t` ADD COLUMN IF NOT EXISTS `n` Nullable(Int32) DEFAULT "
             "reinterpret(unhex('07000000'), 'Int32') COMMENT 'walshadow 2' AFTER `id`, "
             "ADD COLUMN IF NOT EXISTS `v` Nullable(String) DEFAULT 'a\\'\\\\\\0b' COMMENT "
             "'walshadow 3' AFTER `n`");
    b.atts[1].missing = NULL; /* not known */
    assert_int_equal(next(&a, &b, NULL, sql, sizeof sql, &err), ERR_CONFIG);
}

static void test_types(void **state)
{
    struct relation a, b;
    struct error err;
    char sql[300];
    (void)state;
    relation_init(&a, NAMES("id", "n"));
    relation_init(&b, NAMES("id", "n"));
    b.atts[1].not_null = true; /* it stays Nullable */
    assert_ok(next(&a, &b, NULL, sql, sizeof sql, &err));
    assert_string_equal(sql, "");
    assert_ok(next(&b, &a, NULL, sql, sizeof sql, &err));
    assert_string_equal(sql, "ALTER TABLE `d`.`t` MODIFY COLUMN `n` Nullable(Int32)");
    b.atts[1].typid = b.atts[1].base_typid = 20;
    b.atts[1].attlen = 8;
    assert_int_equal(next(&a, &b, NULL, sql, sizeof sql, &err), ERR_CONFIG);
}

/* What is not ours, or not there, is never guessed at. */
static void test_refusals(void **state)
{
    struct relation a, b;
    struct error err;
    char sql[300];
    struct found_columns f = {0};
    (void)state;
    relation_init(&a, NAMES("id", "*v"));
    relation_init(&b, NAMES("*id2", "*v"));
    b.atts[0].typid = b.atts[0].base_typid = 23;
    b.atts[0].attlen = 4;
    assert_int_equal(next(&a, &b, NULL, sql, sizeof sql, &err), ERR_CONFIG);
    relation_init(&b, NAMES("id", "*v", "w"));
    found_add(&f, "id", "Int32", "");
    found_add(&f, "w", "Int32", ""); /* made by hand; and v is gone */
    assert_int_equal(next(&a, &b, &f, sql, sizeof sql, &err), ERR_CONFIG);
    found_add(&f, "v", "Nullable(String)", "");
    assert_ok(next(&a, &a, &f, sql, sizeof sql, &err));
    assert_string_equal(sql, ""); /* a column that nobody knows stays */
    relation_init(&b, NAMES("id", "*w"));
    assert_int_equal(next(&a, &b, &f, sql, sizeof sql, &err), ERR_CONFIG);
    found_columns_fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ways),
        cmocka_unit_test(test_values_of_old_rows),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
