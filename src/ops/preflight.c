/* The report, and the checks of the server and of our role. Tables are in preflight_tables.c, the
 * shadow's programs in preflight_shadow.c. */
#include "ops/preflight.h"

#include "ops/preflight_internal.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const severity_names[] = {"info", "warning", "error"};

void preflight_add(struct preflight_report *report, enum preflight_severity severity,
                   const char *code, const char *fmt, ...)
{
    char text[2000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (report->len == report->cap) {
        report->cap = MAX(report->cap * 2, (size_t)16);
        report->findings = xrealloc(report->findings, report->cap * sizeof *report->findings);
    }
    struct preflight_finding *f = &report->findings[report->len++];
    f->severity = severity;
    snprintf(f->code, sizeof f->code, "%s", code);
    f->text = xstrdup(text);
}

void preflight_report_fini(struct preflight_report *report)
{
    for (size_t i = 0; i < report->len; i++)
        free(report->findings[i].text);
    free(report->findings);
    memset(report, 0, sizeof *report);
}

size_t preflight_count(const struct preflight_report *report, enum preflight_severity severity)
{
    size_t n = 0;
    for (size_t i = 0; i < report->len; i++)
        n += report->findings[i].severity == severity;
    return n;
}

void preflight_render_text(const struct preflight_report *report, struct buf *out)
{
    for (int severity = PREFLIGHT_ERROR; severity >= PREFLIGHT_INFO; severity--) {
        for (size_t i = 0; i < report->len; i++) {
            const struct preflight_finding *f = &report->findings[i];
            if (f->severity == (enum preflight_severity)severity)
                buf_printf(out, "%-8s %s: %s\n", severity_names[severity], f->code, f->text);
        }
    }
    buf_printf(out, "%zu errors, %zu warnings\n", preflight_count(report, PREFLIGHT_ERROR),
               preflight_count(report, PREFLIGHT_WARNING));
}

json_t *preflight_json(const struct preflight_report *report)
{
    json_t *findings = json_array();
    for (size_t i = 0; i < report->len; i++) {
        const struct preflight_finding *f = &report->findings[i];
        json_t *text = json_string(f->text);
        json_array_append_new(findings, json_pack("{s:s, s:s, s:o}", "severity",
                                                  severity_names[f->severity], "code", f->code,
                                                  "text", text != NULL ? text : json_string("?")));
    }
    return json_pack("{s:b, s:o}", "ok", preflight_count(report, PREFLIGHT_ERROR) == 0, "findings",
                     findings);
}

/* ---- queries ---- */

PGresult *preflight_query(struct preflight_run *run, const char *code, const char *sql,
                          const char *param)
{
    const char *params[] = {param};
    PGresult *r =
        PQexecParams(run->options->source, sql, param != NULL ? 1 : 0, NULL, params, NULL, NULL, 0);
    if (PQresultStatus(r) == PGRES_TUPLES_OK)
        return r;
    const char *message = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
    preflight_add(run->report, PREFLIGHT_ERROR, code, "cannot be checked: %s",
                  message != NULL ? message : PQerrorMessage(run->options->source));
    PQclear(r);
    return NULL;
}

/* One text; the caller frees it. NULL if the query failed (a finding then) or gave no row or NULL.
 */
static char *query_text(struct preflight_run *run, const char *code, const char *sql,
                        const char *param)
{
    PGresult *r = preflight_query(run, code, sql, param);
    char *text = NULL;
    if (r != NULL && PQntuples(r) > 0 && !PQgetisnull(r, 0, 0))
        text = xstrdup(PQgetvalue(r, 0, 0));
    PQclear(r);
    return text;
}

static long query_number(struct preflight_run *run, const char *code, const char *sql,
                         const char *param, long otherwise)
{
    char *text = query_text(run, code, sql, param);
    long v = text != NULL ? strtol(text, NULL, 10) : otherwise;
    free(text);
    return v;
}

static char *setting(struct preflight_run *run, const char *name)
{
    return query_text(run, name, "SELECT pg_catalog.current_setting($1, true)", name);
}

static bool query_bool(struct preflight_run *run, const char *code, const char *sql,
                       const char *param)
{
    char *text = query_text(run, code, sql, param);
    bool yes = text != NULL && text[0] == 't';
    free(text);
    return yes;
}

/* ---- the server ---- */

static void check_version(struct preflight_run *run)
{
    int v = PQserverVersion(run->options->source);
    run->report->server_version = v;
    if (v < 150000)
        preflight_add(run->report, PREFLIGHT_ERROR, "server_version",
                      "the source is PostgreSQL %d; 15 to 18 are supported: upgrade it", v / 10000);
    else if (v >= 190000)
        preflight_add(
            run->report, PREFLIGHT_ERROR, "server_version",
            "the source is PostgreSQL %d, newer than this walshadow knows (15 to 18): use a "
            "newer walshadow",
            v / 10000);
}

static void check_recovery(struct preflight_run *run)
{
    if (query_bool(run, "in_recovery", "SELECT pg_catalog.pg_is_in_recovery()", NULL))
        preflight_add(
            run->report, PREFLIGHT_ERROR, "in_recovery",
            "the source is a standby (in recovery): point source.conninfo at the primary");
}

static void check_wal_level(struct preflight_run *run)
{
    char *level = setting(run, "wal_level");
    if (level != NULL && strcmp(level, "logical") != 0)
        preflight_add(
            run->report, PREFLIGHT_ERROR, "wal_level",
            "wal_level is %s, so the WAL lacks the old rows of UPDATE and DELETE: ALTER SYSTEM "
            "SET wal_level = logical, then restart the source",
            level);
    free(level);
    char *full = setting(run, "full_page_writes");
    if (full != NULL && strcmp(full, "on") != 0)
        preflight_add(
            run->report, PREFLIGHT_ERROR, "full_page_writes",
            "full_page_writes is off: a base backup and torn pages need it; ALTER SYSTEM SET "
            "full_page_writes = on, then SELECT pg_reload_conf()");
    free(full);
}

/* A2: commits of the source would wait for us for ever. */
static void check_synchronous(struct preflight_run *run)
{
    char *names = setting(run, "synchronous_standby_names");
    const char *application =
        run->options->application_name != NULL ? run->options->application_name : "walshadow";
    if (names != NULL && synchronous_names_match(names, application))
        preflight_add(
            run->report, PREFLIGHT_ERROR, "synchronous_standby_names",
            "synchronous_standby_names = '%s' matches our application_name \"%s\": commits at the "
            "source would wait for walshadow; name the real standbys instead of *",
            names, application);
    free(names);
}

static void check_privileges(struct preflight_run *run)
{
    if (!query_bool(run, "role_replication",
                    "SELECT rolreplication OR rolsuper FROM pg_catalog.pg_roles WHERE rolname = "
                    "current_user",
                    NULL))
        preflight_add(run->report, PREFLIGHT_ERROR, "role_replication",
                      "the role %s has no REPLICATION: ALTER ROLE %s REPLICATION",
                      PQuser(run->options->source), PQuser(run->options->source));
    if (!query_bool(run, "role_connect",
                    "SELECT pg_catalog.has_database_privilege(current_database(), 'CONNECT')",
                    NULL))
        preflight_add(run->report, PREFLIGHT_ERROR, "role_connect",
                      "the role has no CONNECT on the database: GRANT CONNECT ON DATABASE … TO %s",
                      PQuser(run->options->source));
    static const struct role {
        const char *name, *why;
    } roles[] = {
        {"pg_read_all_data", "verify and copies of single tables cannot read what is not granted"},
        {"pg_monitor", "status cannot say what the source's own queries wait for"},
    };
    for (size_t i = 0; i < LENGTH(roles); i++) {
        if (!query_bool(run, "role_membership", "SELECT pg_catalog.pg_has_role($1, 'USAGE')",
                        roles[i].name))
            preflight_add(run->report, PREFLIGHT_WARNING, roles[i].name,
                          "the role is not a member of %s: %s; GRANT %s TO %s", roles[i].name,
                          roles[i].why, roles[i].name, PQuser(run->options->source));
    }
}

/* The slot we have, or room for one. */
static void check_slot(struct preflight_run *run)
{
    const char *slot = run->options->config->source.slot;
    PGresult *r = preflight_query(
        run, "slot",
        "SELECT slot_type, active_pid, coalesce(wal_status, ''), restart_lsn::text FROM "
        "pg_catalog.pg_replication_slots WHERE slot_name = $1",
        slot);
    bool exists = r != NULL && PQntuples(r) > 0;
    if (exists && strcmp(PQgetvalue(r, 0, 0), "physical") != 0)
        preflight_add(run->report, PREFLIGHT_ERROR, "slot",
                      "slot %s is a %s slot: choose another source.slot", slot,
                      PQgetvalue(r, 0, 0));
    else if (exists && strcmp(PQgetvalue(r, 0, 2), "lost") == 0)
        preflight_add(
            run->report, run->options->slot_expected ? PREFLIGHT_ERROR : PREFLIGHT_WARNING, "slot",
            "slot %s has lost its WAL: the copy cannot go on from it; drop it (walshadow remove) "
            "and load again, and raise max_slot_wal_keep_size",
            slot);
    else if (exists && !PQgetisnull(r, 0, 1))
        preflight_add(
            run->report, PREFLIGHT_WARNING, "slot",
            "slot %s is in use by process %s at the source: another walshadow, or a connection "
            "that has not ended yet",
            slot, PQgetvalue(r, 0, 1));
    if (r != NULL && !exists && run->options->slot_expected)
        preflight_add(
            run->report, PREFLIGHT_ERROR, "slot",
            "slot %s is gone, and with it the WAL since the last run: remove the state directory "
            "(walshadow remove) and load again",
            slot);
    PQclear(r);
    if (exists || run->options->slot_expected)
        return;
    long used = query_number(run, "max_replication_slots",
                             "SELECT count(*) FROM pg_catalog.pg_replication_slots", NULL, 0);
    char *max = setting(run, "max_replication_slots");
    if (max != NULL && used >= strtol(max, NULL, 10))
        preflight_add(run->report, PREFLIGHT_ERROR, "max_replication_slots",
                      "all %s replication slots are taken: drop one or raise max_replication_slots",
                      max);
    free(max);
}

static void check_walsenders(struct preflight_run *run)
{
    long need = run->options->needs_load ? 2 : 1;
    /* every walsender shows a row here, also to a role that may not see what it does */
    long used = query_number(run, "max_wal_senders",
                             "SELECT count(*) FROM pg_catalog.pg_stat_replication", NULL, 0);
    char *max = setting(run, "max_wal_senders");
    if (max != NULL && strtol(max, NULL, 10) - used < need)
        preflight_add(
            run->report, PREFLIGHT_ERROR, "max_wal_senders",
            "%ld of %s walsenders are in use and %ld more are needed: raise max_wal_senders", used,
            max, need);
    free(max);
}

static void check_retention(struct preflight_run *run)
{
    char *keep = setting(run, "max_slot_wal_keep_size");
    if (keep != NULL && strcmp(keep, "-1") != 0)
        preflight_add(
            run->report, PREFLIGHT_INFO, "max_slot_wal_keep_size",
            "max_slot_wal_keep_size is %s: further behind than that, walshadow must load again",
            keep);
    free(keep);
    char *idle = run->report->server_version >= 180000
                     ? setting(run, "idle_replication_slot_timeout")
                     : NULL;
    if (idle != NULL && strtol(idle, NULL, 10) > 0)
        preflight_add(
            run->report, PREFLIGHT_WARNING, "idle_replication_slot_timeout",
            "idle_replication_slot_timeout is %s: a walshadow stopped for longer loses its slot "
            "and must load again",
            idle);
    free(idle);
}

static void check_database(struct preflight_run *run)
{
    PGresult *r = preflight_query(
        run, "encoding",
        "SELECT pg_catalog.pg_encoding_to_char(d.encoding), t.spcname, t.oid, d.datname FROM "
        "pg_catalog.pg_database d JOIN pg_catalog.pg_tablespace t ON t.oid = d.dattablespace WHERE "
        "d.datname = current_database()",
        NULL);
    if (r == NULL || PQntuples(r) == 0) {
        PQclear(r);
        return;
    }
    const char *encoding = PQgetvalue(r, 0, 0);
    if (strcmp(encoding, "SQL_ASCII") == 0)
        preflight_add(
            run->report, PREFLIGHT_WARNING, "encoding",
            "the database is SQL_ASCII: its bytes are copied unchanged, whatever they mean");
    else if (strcmp(encoding, "UTF8") != 0)
        preflight_add(
            run->report, PREFLIGHT_ERROR, "encoding",
            "the database's encoding %s is not supported by this version: UTF8 and SQL_ASCII are",
            encoding);
    if (strcmp(PQgetvalue(r, 0, 2), "1663") != 0)
        preflight_add(run->report, PREFLIGHT_INFO, "tablespace",
                      "the database lives in tablespace %s: the shadow keeps its catalogs in place",
                      PQgetvalue(r, 0, 1));
    PQclear(r);
}

/* The names of synchronous_standby_names: [FIRST|ANY n (] name, "quoted name", * [)]. */
bool synchronous_names_match(const char *names, const char *application_name)
{
    while (*names != '\0') {
        char name[256];
        size_t n = 0;
        if (*names == '"') {
            for (names++; *names != '\0' && (*names != '"' || names[1] == '"'); names++) {
                names += *names == '"'; /* doubled */
                if (n + 1 < sizeof name)
                    name[n++] = *names;
            }
            names += *names == '"';
        } else if (strchr(" \t\n,()", *names) != NULL) {
            names++;
            continue;
        } else {
            for (; *names != '\0' && strchr(" \t\n,()", *names) == NULL; names++) {
                if (n + 1 < sizeof name)
                    name[n++] = *names;
            }
        }
        name[n] = '\0';
        const char *next = names + strspn(names, " \t\n");
        bool keyword = *next == '(' || (isdigit((unsigned char)*next) && n <= 5);
        /* compared as PostgreSQL does: without regard to case */
        if (!keyword && (strcmp(name, "*") == 0 || strcasecmp(name, application_name) == 0))
            return true;
    }
    return false;
}

enum status preflight_run(const struct preflight_options *options, struct preflight_report *report,
                          struct error *err)
{
    static void (*const checks[])(struct preflight_run *) = {
        check_version,          check_recovery,         check_wal_level,
        check_synchronous,      check_privileges,       check_slot,
        check_walsenders,       check_retention,        check_database,
        preflight_check_shadow, preflight_check_tables,
    };
    memset(report, 0, sizeof *report);
    struct preflight_run run = {options, report};
    for (size_t i = 0; i < LENGTH(checks); i++) {
        checks[i](&run);
        if (PQstatus(options->source) != CONNECTION_OK)
            return error_set(err, ERR_RETRY, "the connection to the source was lost: %s",
                             PQerrorMessage(options->source));
    }
    return OK;
}
