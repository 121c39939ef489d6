#include "engine/guard.h"

#include "engine/sql.h"
#include "engine/sql_reader.h"

#include <stdio.h>
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

static void args_add_str(struct guard_args *a, struct str name, struct str value)
{
    /* an argument ends at a NUL: one that has it inside would be another setting than was checked
     */
    if (name.len + value.len > 65536 || (name.len > 0 && memchr(name.data, 0, name.len) != NULL) ||
        (value.len > 0 && memchr(value.data, 0, value.len) != NULL))
        return;
    args_add(a, xasprintf("%.*s=%.*s", (int)name.len, name.len > 0 ? name.data : "", (int)value.len,
                          value.len > 0 ? value.data : ""));
}

static void args_fill(struct guard_args *a, const struct chdb *chdb,
                      const struct engine_reader_request *r)
{
    args_add(a, xstrdup("final=1"));
    args_add(a, xasprintf("max_execution_time=%u", ENGINE_READER_SECONDS_MAX));
    for (size_t i = 0; r->settings != NULL && i < r->settings->n && a->n < GUARD_ARGS_MAX - 8; i++)
        if (engine_settings_is_reader_safe(r->settings->items[i].name))
            args_add_str(a, r->settings->items[i].name, r->settings->items[i].value);
    /* ours come after the client's and so win over them; readonly is the last */
    args_add(a, xstrdup("output_format_native_write_json_as_string=1"));
    args_add(a,
             xasprintf("max_memory_usage=%llu", (unsigned long long)(chdb_memory_max(chdb) / 2)));
    if (!r->streamed) {
        args_add(a, xasprintf("max_result_bytes=%zu", ENGINE_READER_RESULT_MAX));
        args_add(a, xstrdup("result_overflow_mode=throw"));
    }
    args_add(a, xstrdup("allow_introspection_functions=0"));
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
    enum status status = chdb_session_do(session, buf_cstr(&ask), err);
    if (status == OK)
        return guard_refuse(err, "the statement is not of a known kind");
    char *ours = err != NULL ? strstr(err->message, ": In scope SELECT formatQuery(") : NULL;
    if (ours != NULL)
        snprintf(ours, 20, ". (SYNTAX_ERROR)");
    return status;
}

/* The function file() reads any file of the host. A statement with that name in it must be a SELECT
 * in whose resolved form no such function occurs: a column may well be called so. */
static enum status guard_check_file(struct chdb_session *session, struct str sql, bool selects,
                                    struct error *err)
{
    static const char refusal[] = "the function file() is not for readers";
    static const char needle[] = "function_name: file";
    CLEANUP_BUF struct buf ask = {0};
    struct sql_shape shape;
    struct chdb_answer a = {0};
    if (!selects)
        return guard_refuse(err, refusal);
    buf_printf(&ask, "EXPLAIN QUERY TREE ");
    sql_shape_read(sql.data, sql.len, &shape);
    sql_strip_put(sql.data, sql.len, &shape, &ask);
    /* its error text could tell what the file holds */
    if (chdb_session_run(session, buf_cstr(&ask), ask.len, "TSVRaw", &a, NULL) != OK)
        return guard_refuse(err,
                            "the name file stands for a function here, or the statement is wrong");
    bool harmless = a.len >= 5 && memcmp(a.data, "QUERY", 5) == 0;
    harmless |= a.len >= 5 && memcmp(a.data, "UNION", 5) == 0;
    for (const uint8_t *at = a.data; at != NULL && harmless;) {
        at = memmem(at, a.len - (size_t)(at - a.data), needle, sizeof needle - 1);
        if (at == NULL)
            break;
        at += sizeof needle - 1;
        harmless = at < a.data + a.len && *at != ',' && *at != '\n'; /* filesystemCapacity … */
    }
    chdb_answer_free(&a);
    return harmless ? OK : guard_refuse(err, refusal);
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
    struct sql_reader_facts facts;
    sql_reader_facts_read(sql.data, sql.len, &facts);
    if (facts.fetches)
        return guard_refuse(err, "table functions are not described to readers");
    if (facts.may_call_file && !facts.names_things)
        return guard_check_file(session, sql, facts.selects, err);
    return OK;
}

enum status engine_guard_open(struct chdb *chdb, const struct engine_reader_request *r,
                              struct chdb_session **ret_session, struct error *err)
{
    struct guard_args args = {.n = 0};
    struct chdb_session *session = NULL;
    args_fill(&args, chdb, r);
    enum status status = chdb_session_open(chdb, (const char *const *)args.items, &session, err);
    for (size_t i = 0; i < args.n; i++)
        free(args.items[i]);
    TRY(status);
    status = engine_database_use(session, r->database, err);
    if (status == OK && r->parameters != NULL)
        status = engine_parameters_apply(session, r->parameters, r->parameters_quoted, err);
    if (status == OK)
        status = guard_check(session, r->sql, err);
    if (status != OK) {
        chdb_session_close(session);
        return status;
    }
    *ret_session = session;
    return OK;
}
