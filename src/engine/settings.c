#include "engine/settings.h"

#include "engine/sql.h"

#include <stdlib.h>
#include <string.h>

static int name_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

enum status engine_settings_known_read(struct chdb_session *session,
                                       struct engine_settings_known *ret, struct error *err)
{
    static const char sql[] = "SELECT name FROM system.settings";
    struct chdb_answer a = {0};
    TRY(chdb_session_run(session, sql, sizeof sql - 1, "TSVRaw", &a, err));
    struct engine_settings_known k = {.text = xmalloc(a.len + 1)};
    memcpy(k.text, a.data, a.len);
    k.text[a.len] = 0;
    chdb_answer_free(&a);
    size_t lines = 1;
    for (const char *c = k.text; *c != 0; c++)
        lines += *c == '\n';
    k.names = xcalloc(lines, sizeof *k.names);
    char *save = NULL;
    for (char *name = strtok_r(k.text, "\n", &save); name != NULL;
         name = strtok_r(NULL, "\n", &save))
        k.names[k.n++] = name;
    qsort(k.names, k.n, sizeof *k.names, name_compare);
    *ret = k;
    return OK;
}

void engine_settings_known_free(struct engine_settings_known *known)
{
    free(known->names);
    free(known->text);
    *known = (struct engine_settings_known){0};
}

/* A wire string as a C string of at most cap - 1 bytes; false if it does not fit or holds a NUL. */
static bool str_copy(struct str s, char *buf, size_t cap)
{
    if (s.len >= cap || (s.len > 0 && memchr(s.data, 0, s.len) != NULL))
        return false;
    if (s.len > 0)
        memcpy(buf, s.data, s.len);
    buf[s.len] = 0;
    return true;
}

bool engine_settings_is_known(const struct engine_settings_known *known, struct str name)
{
    char text[128];
    const char *key = text;
    if (!str_copy(name, text, sizeof text))
        return false;
    return bsearch(&key, known->names, known->n, sizeof *known->names, name_compare) != NULL;
}

const struct packet_setting *engine_settings_find(const struct packet_settings *settings,
                                                  const char *name)
{
    for (size_t i = settings->n; i > 0; i--) /* the last one wins */
        if (str_is(settings->items[i - 1].name, name))
            return &settings->items[i - 1];
    return NULL;
}

static bool str_begins(struct str s, const char *prefix)
{
    size_t n = strlen(prefix);
    return s.len >= n && memcmp(s.data, prefix, n) == 0;
}

/* The engine's own: they decide how blocks pass between it and libchdb. */
static bool setting_is_ours(struct str name)
{
    return str_begins(name, "output_format_native_") || str_is(name, "readonly") ||
           str_is(name, "input_format_native_allow_types_conversion") ||
           str_is(name, "input_format_native_decode_types_in_binary_format");
}

bool engine_settings_is_reader_safe(struct str name)
{
    static const char *const names[] = {
        "final",
        "join_use_nulls",
        "max_threads",
        "max_block_size",
        "max_execution_time",
        "max_result_rows",
        "max_rows_to_read",
        "max_bytes_to_read",
        "limit",
        "offset",
        "session_timezone",
        "date_time_output_format",
        "aggregate_functions_null_for_empty",
        "transform_null_in",
        "use_uncompressed_cache",
        "count_distinct_implementation",
        "prefer_column_name_to_alias",
    };
    for (size_t i = 0; i < LENGTH(names); i++)
        if (str_is(name, names[i]))
            return true;
    if (setting_is_ours(name))
        return false;
    return str_begins(name, "output_format_") || str_begins(name, "format_csv_") ||
           str_begins(name, "format_tsv_");
}

static void setting_free(struct engine_setting *item)
{
    free(item->name);
    free(item->value);
    free(item->before);
}

void engine_settings_fini(struct engine_settings *s)
{
    for (size_t i = 0; i < s->n; i++)
        setting_free(&s->items[i]);
    free(s->items);
    *s = (struct engine_settings){0};
}

static struct engine_setting *settings_lookup(struct engine_settings *s, struct str name)
{
    for (size_t i = 0; i < s->n; i++)
        if (str_is(name, s->items[i].name))
            return &s->items[i];
    return NULL;
}

/* Reads what a setting has now, so that it can be put back. */
static enum status setting_read(struct chdb_session *session, struct str name, char **ret_value,
                                struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    struct chdb_answer a = {0};
    buf_printf(&sql, "SELECT value FROM system.settings WHERE name = ");
    sql_literal_put(name.data, name.len, &sql);
    TRY(chdb_session_run(session, (char *)sql.data, sql.len, "RowBinary", &a, err));
    struct cursor c = cursor_of(a.data, a.len);
    size_t len = cursor_varint(&c);
    const uint8_t *at = cursor_take(&c, len);
    char *value = xmalloc(len + 1);
    if (at != NULL)
        memcpy(value, at, len);
    value[at != NULL ? len : 0] = 0;
    chdb_answer_free(&a);
    *ret_value = value;
    return OK;
}

static void assignment_put(struct buf *sql, const char *name, const char *value, size_t len)
{
    buf_printf(sql, "%s%s = ", sql->len > 0 ? ", " : "SET ", name);
    sql_literal_put(value, len, sql);
}

static enum status wanted_check(const struct engine_settings_known *known,
                                const struct packet_setting *w, bool *ret_take, struct error *err)
{
    *ret_take = engine_settings_is_known(known, w->name) && !setting_is_ours(w->name);
    if (*ret_take || !(w->flags & 1) || setting_is_ours(w->name))
        return OK;
    error_set(err, ERR_DATA, "Unknown setting '%.*s'", (int)MIN(w->name.len, 200), w->name.data);
    if (err != NULL)
        err->ch_code = 115;
    return ERR_DATA;
}

/* Puts a wanted setting into the list, marked as not in force yet, and its assignment into sql. */
static enum status setting_want(struct engine_settings *s, struct chdb_session *session,
                                const struct packet_setting *w, struct buf *sql, struct error *err)
{
    struct engine_setting *have = settings_lookup(s, w->name);
    if (have != NULL && have->value != NULL && str_is(w->value, have->value))
        return OK;
    if (have == NULL) {
        char *before;
        TRY(setting_read(session, w->name, &before, err));
        s->items = xrealloc(s->items, (s->n + 1) * sizeof *s->items);
        have = &s->items[s->n++];
        *have = (struct engine_setting){strndup(w->name.data, w->name.len), NULL, before};
    }
    free(have->value);
    have->value = NULL;
    assignment_put(sql, have->name, w->value.data, w->value.len);
    return OK;
}

/* Puts back what the packet does not have any more. */
static void settings_restore(const struct engine_settings *s, const struct packet_settings *wanted,
                             struct buf *sql)
{
    for (size_t i = 0; i < s->n; i++)
        if (engine_settings_find(wanted, s->items[i].name) == NULL)
            assignment_put(sql, s->items[i].name, s->items[i].before, strlen(s->items[i].before));
}

/* After SET went through: the list says what is in force. */
static void settings_settle(struct engine_settings *s, const struct packet_settings *wanted)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++) {
        struct engine_setting item = s->items[i];
        const struct packet_setting *w = engine_settings_find(wanted, item.name);
        if (w == NULL) {
            setting_free(&item);
            continue;
        }
        if (item.value == NULL)
            item.value = strndup(w->value.data, w->value.len);
        s->items[kept++] = item;
    }
    s->n = kept;
}

enum status engine_settings_apply(struct engine_settings *s, struct chdb_session *session,
                                  const struct engine_settings_known *known,
                                  const struct packet_settings *wanted, struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    settings_restore(s, wanted, &sql);
    for (size_t i = 0; i < wanted->n; i++) {
        bool take;
        const struct packet_setting *w = &wanted->items[i];
        TRY(wanted_check(known, w, &take, err));
        char name[128];
        if (!take || !str_copy(w->name, name, sizeof name) ||
            engine_settings_find(wanted, name) != w)
            continue;
        TRY(setting_want(s, session, w, &sql, err));
    }
    if (sql.len == 0)
        return OK;
    enum status status = chdb_session_do(session, buf_cstr(&sql), err);
    if (status == OK) {
        settings_settle(s, wanted);
        return OK;
    }
    for (size_t i = 0; i < s->n; i++) { /* which of them took hold is not known */
        free(s->items[i].value);
        s->items[i].value = NULL;
    }
    return status;
}

enum status engine_parameters_apply(struct chdb_session *session,
                                    const struct packet_settings *parameters, bool quoted,
                                    struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    for (size_t i = 0; i < parameters->n; i++) {
        const struct packet_setting *p = &parameters->items[i];
        CLEANUP_BUF struct buf name = {0};
        buf_printf(&name, "param_");
        buf_put(&name, p->name.data, p->name.len);
        for (size_t k = 6; k < name.len; k++) {
            uint8_t c = name.data[k];
            if (!((c | 0x20) >= 'a' && (c | 0x20) <= 'z') && !(c >= '0' && c <= '9') && c != '_')
                return error_set(err, ERR_DATA, "a query parameter's name is not an identifier");
        }
        /* never as it comes: it could hold more than a value */
        CLEANUP_BUF struct buf value = {0};
        if (quoted)
            sql_value_put(p->value.data, p->value.len, &value);
        else
            buf_put(&value, p->value.data, p->value.len);
        assignment_put(&sql, buf_cstr(&name), buf_cstr(&value), value.len);
    }
    return sql.len == 0 ? OK : chdb_session_do(session, buf_cstr(&sql), err);
}
