#include "engine/guard.h"

#include "engine/sql.h"

#include <stdlib.h>

#define GUARD_ARGS_MAX 64
#define GUARD_CODE_READONLY 164

enum status engine_database_use(struct chdb_session *session, struct str name, struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    if (name.len == 0)
        return OK;
    buf_printf(&sql, "USE ");
    sql_name_put(name.data, name.len, &sql);
    return chdb_session_do(session, buf_cstr(&sql), err);
}

/* A list of "name=value" for a connection. */
struct guard_args {
    char *items[GUARD_ARGS_MAX + 1];
    size_t n;
};

static void args_add(struct guard_args *a, char *item)
{
    if (a->n < GUARD_ARGS_MAX)
        a->items[a->n++] = item;
    else
        free(item);
}

static void args_add_str(struct guard_args *a, const char *prefix, struct str name,
                         struct str value)
{
    /* an argument ends at a NUL: one that has it inside would be another setting than was checked
     */
    if (name.len + value.len > 65536 || (name.len > 0 && memchr(name.data, 0, name.len) != NULL) ||
        (value.len > 0 && memchr(value.data, 0, value.len) != NULL))
        return;
    args_add(a, xasprintf("%s%.*s=%.*s", prefix, (int)name.len, name.len > 0 ? name.data : "",
                          (int)value.len, value.len > 0 ? value.data : ""));
}

static void args_fill(struct guard_args *a, const struct chdb *chdb,
                      const struct engine_reader_request *r)
{
    args_add(a, xstrdup("final=1"));
    args_add(a, xasprintf("max_execution_time=%u", ENGINE_READER_SECONDS_MAX));
    for (size_t i = 0; r->settings != NULL && i < r->settings->n && a->n < GUARD_ARGS_MAX - 8; i++)
        if (engine_settings_is_reader_safe(r->settings->items[i].name))
            args_add_str(a, "", r->settings->items[i].name, r->settings->items[i].value);
    /* ours come after the client's and so win over them; readonly is the last */
    args_add(a, xstrdup("output_format_native_write_json_as_string=1"));
    args_add(a,
             xasprintf("max_memory_usage=%llu", (unsigned long long)(chdb_memory_max(chdb) / 2)));
    if (!r->streamed) {
        args_add(a, xasprintf("max_result_bytes=%zu", ENGINE_READER_RESULT_MAX));
        args_add(a, xstrdup("result_overflow_mode=throw"));
    }
    args_add(a, xstrdup("readonly=1"));
}

static enum status guard_refuse(struct error *err, const char *why)
{
    error_set(err, ERR_DATA, "This connection only reads: %s", why);
    if (err != NULL)
        err->ch_code = GUARD_CODE_READONLY;
    return ERR_DATA;
}

/* Says where a statement does not parse; formatQuery() only parses its argument. */
static enum status guard_explain(struct chdb_session *session, struct str sql, struct error *err)
{
    CLEANUP_BUF struct buf ask = {0};
    buf_printf(&ask, "SELECT formatQuery(");
    sql_literal_put(sql.data, sql.len, &ask);
    buf_printf(&ask, ")");
    TRY(chdb_session_do(session, buf_cstr(&ask), err));
    return guard_refuse(err, "the statement is not of a known kind");
}

static enum status guard_check(struct chdb_session *session, struct str sql, struct error *err)
{
    enum chdb_class class;
    unsigned statements;
    TRY(chdb_session_classify(session, sql.data, sql.len, &class, &statements, err));
    if (class == CHDB_CLASS_UNKNOWN)
        return guard_explain(session, sql, err);
    if (statements != 1)
        return guard_refuse(err, "one statement at a time");
    if (class != CHDB_CLASS_READ)
        return guard_refuse(err, "the statement would change something");
    return OK;
}

enum status engine_guard_open(struct chdb *chdb, const struct engine_reader_request *r,
                              struct chdb_session **ret_session, struct error *err)
{
    struct guard_args args = {.n = 0};
    struct chdb_session *session = NULL;
    args_fill(&args, chdb, r);
    for (size_t i = 0; r->parameters != NULL && i < r->parameters->n; i++)
        args_add_str(&args, "param_", r->parameters->items[i].name, r->parameters->items[i].value);
    enum status status = chdb_session_open(chdb, (const char *const *)args.items, &session, err);
    for (size_t i = 0; i < args.n; i++)
        free(args.items[i]);
    TRY(status);
    status = engine_database_use(session, r->database, err);
    if (status == OK)
        status = guard_check(session, r->sql, err);
    if (status != OK) {
        chdb_session_close(session);
        return status;
    }
    *ret_session = session;
    return OK;
}
