/* The source: SQL session, what it is, preflight, slot. */
#include "base/log.h"
#include "daemon/state.h"
#include "ops/preflight.h"
#include "types/encoder.h"

#include <stdlib.h>
#include <string.h>

#define ENCODING_SQL_ASCII 0 /* mb/pg_wchar.h */
#define ENCODING_UTF8 6

static enum status facts_read(struct daemon *d, struct source_facts *f, struct error *err)
{
    struct source_repl *repl;
    struct source_identity id;
    f->major = source_sql_major(d->sql);
    if (f->major < PG_MAJOR_MIN || f->major > PG_MAJOR_MAX)
        return error_set(err, ERR_CONFIG, "the source is PostgreSQL %u; 15 to 18 are supported",
                         f->major);
    TRY(catalog_query_database(source_sql_conn(d->sql), &f->database, err));
    TRY(source_sql_login_role(d->sql, &f->login, err));
    TRY(source_repl_open(d->config->source.conninfo, APPLICATION_NAME, &repl, err));
    enum status st = source_repl_identify(repl, &id, err);
    if (st == OK)
        st = source_repl_segment_bytes(repl, &f->segment_bytes, err);
    if (st == OK)
        st = source_repl_sender_timeout(repl, &f->sender_timeout_ms, err);
    source_repl_close(repl);
    TRY(st);
    f->system_id = id.system_id;
    f->timeline = id.timeline;
    if (f->database.encoding != ENCODING_UTF8 && f->database.encoding != ENCODING_SQL_ASCII)
        return error_set(err, ERR_CONFIG,
                         "database %s has encoding %s; UTF8 and SQL_ASCII are supported by this "
                         "version",
                         f->database.name, f->database.encoding_name);
    if (f->database.encoding == ENCODING_SQL_ASCII)
        log_warn("msg=\"database encoding is SQL_ASCII: bytes pass unchanged, ClickHouse may see "
                 "text that is not UTF-8\" database=%s",
                 LOG_Q(f->database.name));
    return OK;
}

static enum status open_once(struct daemon *d, struct error *err)
{
    struct source_sql *sql = NULL;
    TRY(source_sql_open(d->config->source.conninfo, APPLICATION_NAME, &sql, err));
    pthread_mutex_lock(&d->lock);
    struct source_sql *old = d->sql;
    d->sql = sql;
    pthread_mutex_unlock(&d->lock);
    source_sql_close(old);
    struct source_facts facts = d->source;
    enum status st = facts_read(d, &facts, err);
    pthread_mutex_lock(&d->lock); /* who asks for the status reads them */
    d->source = facts;
    pthread_mutex_unlock(&d->lock);
    return st;
}

/* A first start fails at once when the source cannot be reached; a restart waits for it. */
enum status daemon_source_open(struct daemon *d, struct error *err)
{
    unsigned backoff = 200;
    for (;;) {
        TRY(daemon_check(d, err));
        enum status st = open_once(d, err);
        if (st == OK || st != ERR_RETRY || d->manifest.load.state == MANIFEST_LOAD_NONE)
            return st;
        daemon_set_waiting(d, "source: %s", err->message);
        log_warn("msg=\"cannot reach the source\" retry_ms=%u error=%s", backoff,
                 LOG_Q(err->message));
        TRY(daemon_pause(d, backoff, err));
        backoff = MIN(2 * backoff, 10000u);
    }
}

static bool type_supported(void *ctx, unsigned type_oid, const char *type_name)
{
    struct att_desc att = {.typid = type_oid,
                           .base_typid = type_oid,
                           .typmod = -1,
                           .typtype = 'b',
                           .type_name = xstrdup(type_name)};
    const struct ch_caps caps = {.wide_dates = true, .time64 = true};
    struct encoder e;
    struct error err;
    (void)ctx;
    bool ok = encoder_plan(&att, false, NULL, &caps, &e, &err) == OK;
    if (ok)
        encoder_fini(&e);
    free(att.type_name);
    return ok;
}

enum status daemon_preflight(struct daemon *d, bool needs_load, struct error *err)
{
    struct preflight_report report;
    const struct preflight_options options = {
        .config = d->config,
        .source = source_sql_conn(d->sql),
        .needs_load = needs_load,
        .slot_expected = !needs_load,
        .application_name = APPLICATION_NAME,
        .type_supported = type_supported,
    };
    daemon_set_state(d, DAEMON_PREFLIGHT);
    TRY(preflight_run(&options, &report, err));
    size_t errors = preflight_count(&report, PREFLIGHT_ERROR);
    for (size_t i = 0; i < report.len; i++) {
        const struct preflight_finding *f = &report.findings[i];
        enum log_level level = f->severity == PREFLIGHT_ERROR     ? LOG_ERROR
                               : f->severity == PREFLIGHT_WARNING ? LOG_WARN
                                                                  : LOG_INFO;
        log_write(level, "msg=preflight code=%s text=%s", f->code, LOG_Q(f->text));
    }
    snprintf(d->source.bin_dir, sizeof d->source.bin_dir, "%s", report.bin_dir);
    enum status st = OK;
    if (errors > 0 && !d->options.skip_preflight) {
        const char *first = "";
        for (size_t i = report.len; i > 0; i--)
            if (report.findings[i - 1].severity == PREFLIGHT_ERROR)
                first = report.findings[i - 1].text;
        st = error_set(err, ERR_CONFIG, "preflight found %zu error%s, the first: %.400s", errors,
                       errors == 1 ? "" : "s", first);
    } else if (report.bin_dir[0] == '\0') {
        st = error_set(err, ERR_CONFIG,
                       "no PostgreSQL %u programs found for the shadow: set shadow.bin_dir",
                       d->source.major);
    }
    preflight_report_fini(&report);
    return st;
}

static enum status slot_recreate(struct daemon *d, bool exists, struct error *err)
{
    const char *slot = d->config->source.slot;
    struct source_repl *repl;
    TRY(source_repl_open(d->config->source.conninfo, APPLICATION_NAME, &repl, err));
    enum status st = exists ? source_repl_slot_drop(repl, slot, err) : OK;
    if (st == OK)
        st = source_repl_slot_create(repl, slot, err);
    source_repl_close(repl);
    if (st == OK)
        log_info("msg=\"replication slot created\" slot=%s", LOG_Q(slot));
    return st;
}

enum status daemon_slot_ensure(struct daemon *d, bool expected, struct error *err)
{
    const char *slot = d->config->source.slot;
    struct source_slot_info info;
    int64_t first_reply_us = -1;
    for (unsigned waited_ms = 0;; waited_ms += 500) {
        TRY(source_sql_slot_info(d->sql, slot, &info, err));
        if (!info.exists || info.active_pid == 0)
            break;
        if (first_reply_us < 0)
            first_reply_us = info.holder_reply_us;
        /* one that replies is alive, so it is not what a killed one of ours left behind */
        if (strcmp(info.holder, APPLICATION_NAME) == 0 && info.holder_reply_us > first_reply_us)
            return error_set(err, ERR_CONFIG,
                             "slot %s is in use by another walshadow (pid %d at the source): stop "
                             "it, or set source.slot",
                             slot, info.active_pid);
        /* left over from a cut connection it goes away by itself (A4) */
        if (waited_ms >= 60000)
            return error_set(err, ERR_CONFIG,
                             "slot %s is in use by another client (pid %d at the source): stop it, "
                             "or set source.slot",
                             slot, info.active_pid);
        daemon_set_waiting(d, "source: slot %s is active for pid %d", slot, info.active_pid);
        TRY(daemon_pause(d, 500, err));
    }
    daemon_set_waiting(d, "%s", "");
    if (info.exists && !info.physical)
        return error_set(err, ERR_CONFIG,
                         "slot %s is a logical one: set source.slot to another name", slot);
    if (!expected) {
        /* one that reserves nothing would let the WAL of the load go */
        if (info.exists && info.restart_lsn != 0 && strcmp(info.wal_status, "lost") != 0)
            return OK;
        return slot_recreate(d, info.exists, err);
    }
    if (!info.exists)
        return error_set(err, ERR_CONFIG,
                         "slot %s is gone: the WAL since the last position may be removed. Remove "
                         "the state directory and load again",
                         slot);
    if (strcmp(info.wal_status, "lost") == 0 || info.invalidation[0] != '\0')
        return error_set(err, ERR_CONFIG,
                         "slot %s was invalidated by the source (%s): its WAL is removed. Drop it, "
                         "remove the state directory and load again; raise max_slot_wal_keep_size",
                         slot, info.invalidation[0] != '\0' ? info.invalidation : "lost");
    return OK;
}
