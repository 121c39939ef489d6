/* Which tables are compared, and the report. */
#include "ops/verify.h"

#include "ops/verify_internal.h"
#include "source/sql.h"

#include <stdlib.h>
#include <string.h>

enum status verify_source_lsn(PGconn *source, XLogRecPtr *ret, struct error *err)
{
    PGresult *r = PQexec(source, "SELECT pg_catalog.pg_current_wal_insert_lsn()");
    enum status st = OK;
    if (PQresultStatus(r) != PGRES_TUPLES_OK || !lsn_parse(PQgetvalue(r, 0, 0), ret))
        st = error_set(err, ERR_RETRY, "source: %s", PQerrorMessage(source));
    PQclear(r);
    return st;
}

static const char *text_of(const json_t *table, const char *key)
{
    const char *s = json_string_value(json_object_get(table, key));
    return s != NULL ? s : "";
}

/* TABLE is schema.table, or table if that is unique. */
static bool name_matches(const char *asked, const char *name)
{
    const char *dot = strchr(name, '.');
    return strcmp(asked, name) == 0 || (dot != NULL && strcmp(asked, dot + 1) == 0);
}

static bool is_asked_for(const struct verify_options *o, const json_t *table)
{
    const char *state = text_of(table, "state");
    for (size_t i = 0; i < o->nonly; i++) {
        if (name_matches(o->only[i], text_of(table, "name")))
            return true;
    }
    /* without names: what is replicated; what never was, or is no more, has nothing to compare */
    return o->nonly == 0 && strcmp(state, "skipped") != 0 && strcmp(state, "dropped") != 0;
}

static enum status check_names(const struct verify_options *o, struct error *err)
{
    for (size_t i = 0; i < o->nonly; i++) {
        size_t at, hits = 0;
        const json_t *table;
        json_array_foreach(o->tables, at, table)
        {
            if (strcmp(o->only[i], text_of(table, "name")) == 0) {
                hits = 1;
                break;
            }
            hits += name_matches(o->only[i], text_of(table, "name"));
        }
        if (hits == 0)
            return error_set(err, ERR_CONFIG, "there is no replicated table %s", o->only[i]);
        if (hits > 1)
            return error_set(err, ERR_CONFIG, "table %s is not unique: give schema.table",
                             o->only[i]);
    }
    return OK;
}

static void fail_table(struct verify_table *t, const char *what, const char *detail)
{
    free(t->error);
    t->error = xasprintf("%s%s", what, detail);
}

static void compare_table(const struct verify_run *run, const json_t *json, struct verify_table *t)
{
    struct verify_plan plan;
    struct error err;
    const char *state = text_of(json, "state");
    if (strcmp(state, "streaming") != 0) {
        CLEANUP_FREE char *what = xasprintf("is %s: ", state);
        fail_table(t, what, text_of(json, "reason"));
        return;
    }
    enum status st = verify_plan_make(run->source, run->options->http_socket, run->options->config,
                                      t->name, text_of(json, "target"), &plan, &err);
    if (st == OK) {
        st = verify_table_compare(run, &plan, t, &err);
        verify_plan_fini(&plan);
    }
    if (st != OK)
        fail_table(t, "", err.message);
}

static struct verify_table *add_table(struct verify_report *report, const char *name)
{
    if (report->len == report->cap) {
        report->cap = MAX(report->cap * 2, (size_t)16);
        report->tables = xrealloc(report->tables, report->cap * sizeof *report->tables);
    }
    struct verify_table *t = &report->tables[report->len++];
    *t = (struct verify_table){.name = xstrdup(name)};
    return t;
}

enum status verify_run(const struct verify_options *options, struct verify_report *report,
                       struct error *err)
{
    struct source_sql *sql = NULL;
    XLogRecPtr lsn;
    size_t i;
    const json_t *table;
    *report = (struct verify_report){0};
    TRY(check_names(options, err));
    TRY(source_sql_open(options->config->source.conninfo, "walshadow", &sql, err));
    struct verify_run run = {options, source_sql_conn(sql)};
    enum status st = verify_source_lsn(run.source, &lsn, err);
    if (st == OK)
        st = options->wait(options->ctx, lsn, err);
    json_array_foreach(options->tables, i, table)
    {
        if (st != OK || !is_asked_for(options, table))
            continue;
        compare_table(&run, table, add_table(report, text_of(table, "name")));
        if (PQstatus(run.source) != CONNECTION_OK)
            st = error_set(err, ERR_RETRY, "the connection to the source was lost");
    }
    source_sql_close(sql);
    return st;
}

void verify_report_fini(struct verify_report *report)
{
    for (size_t i = 0; i < report->len; i++) {
        free(report->tables[i].name);
        free(report->tables[i].error);
        buf_free(&report->tables[i].sample);
    }
    free(report->tables);
    *report = (struct verify_report){0};
}

static bool table_is_equal(const struct verify_table *t)
{
    return t->error == NULL && t->missing == 0 && t->extra == 0 && t->different == 0;
}

bool verify_is_equal(const struct verify_report *report)
{
    bool equal = true;
    for (size_t i = 0; i < report->len; i++)
        equal &= table_is_equal(&report->tables[i]);
    return equal;
}

json_t *verify_report_json(const struct verify_report *report)
{
    json_t *tables = json_array();
    for (size_t i = 0; i < report->len; i++) {
        const struct verify_table *t = &report->tables[i];
        json_t *out = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "name", t->name, "rows",
                                (json_int_t)t->rows, "missing", (json_int_t)t->missing, "extra",
                                (json_int_t)t->extra, "different", (json_int_t)t->different,
                                "rejected", (json_int_t)t->rejected);
        if (t->error != NULL)
            json_object_set_new(out, "error", json_string(t->error));
        json_array_append_new(tables, out);
    }
    return json_pack("{s:b, s:o}", "equal", verify_is_equal(report), "tables", tables);
}

void verify_report_render(const struct verify_report *report, struct buf *out)
{
    for (size_t i = 0; i < report->len; i++) {
        struct verify_table *t = &report->tables[i];
        if (t->error != NULL)
            buf_printf(out, "%-40s not compared: %s\n", t->name, t->error);
        else
            buf_printf(
                out,
                "%-40s %s: %llu rows, %llu missing, %llu extra, %llu different, %llu rejected\n",
                t->name, table_is_equal(t) ? "equal" : "DIFFERS", (unsigned long long)t->rows,
                (unsigned long long)t->missing, (unsigned long long)t->extra,
                (unsigned long long)t->different, (unsigned long long)t->rejected);
        if (t->sample.len > 0)
            buf_printf(out, "%s", buf_cstr(&t->sample));
    }
}
