#include "ops/status.h"

#include <math.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

static const char *const daemon_states[] = {
    "starting", "preflight", "bootstrapping", "streaming", "reconnecting", "paused", "stopping"};
static const char *const table_states[] = {"loading", "streaming", "resyncing",
                                           "stopped", "skipped",   "dropped"};

const char *daemon_state_name(enum daemon_state state)
{
    return daemon_states[state];
}

const char *table_state_name(enum table_state state)
{
    return table_states[state];
}

void status_report_fini(struct status_report *r)
{
    arena_free(&r->arena);
    memset(r, 0, sizeof *r);
}

static json_t *json_lsn(XLogRecPtr lsn)
{
    char text[LSN_TEXT_MAX];
    snprintf(text, sizeof text, LSN_FMT, LSN_ARGS(lsn));
    return json_string(text);
}

/* Names and server texts are UTF-8 nearly always; what is not must not lose the whole report. */
static json_t *json_text(const char *text)
{
    if (text == NULL)
        return json_null();
    json_t *s = json_string(text);
    if (s != NULL)
        return s;
    char *ascii = xstrdup(text);
    for (char *c = ascii; *c != '\0'; c++)
        *c = (unsigned char)*c < 0x80 ? *c : '?';
    s = json_string(ascii);
    free(ascii);
    return s;
}

static json_t *json_u64(uint64_t v)
{
    return json_integer((json_int_t)MIN(v, (uint64_t)INT64_MAX));
}

/* JSON has no infinity */
static json_t *json_finite(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *destinations_json(const struct status_report *r)
{
    json_t *out = json_array();
    for (size_t i = 0; i < r->ndestinations; i++) {
        const struct status_destination *d = &r->destinations[i];
        json_array_append_new(
            out, json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", json_text(d->name),
                           "ack_lsn", json_lsn(d->ack_lsn), "lag_bytes", json_u64(d->lag_bytes),
                           "lag_seconds", json_finite(d->lag_seconds), "rows", json_u64(d->rows),
                           "inserts", json_u64(d->inserts), "errors", json_u64(d->errors),
                           "last_error", json_text(d->last_error)));
    }
    return out;
}

static json_t *tables_json(const struct status_report *r)
{
    json_t *out = json_array();
    for (size_t i = 0; i < r->ntables; i++) {
        const struct status_table *t = &r->tables[i];
        json_array_append_new(
            out, json_pack("{s:o, s:o, s:o, s:o, s:s, s:o}", "name", json_text(t->name),
                           "destination", json_text(t->destination), "target", json_text(t->target),
                           "rows", json_u64(t->rows), "state", table_state_name(t->state), "reason",
                           json_text(t->reason)));
    }
    return out;
}

static json_t *prepared_json(const struct status_report *r)
{
    json_t *out = json_array();
    for (size_t i = 0; i < r->nprepared; i++)
        json_array_append_new(out,
                              json_pack("{s:o, s:I, s:o}", "gid", json_text(r->prepared[i].gid),
                                        "age_s", (json_int_t)r->prepared[i].age_s, "bytes",
                                        json_u64(r->prepared[i].bytes)));
    return out;
}

static json_t *source_json(const struct status_report *r)
{
    char system_id[24];
    snprintf(system_id, sizeof system_id, "%llu", (unsigned long long)r->source.system_id);
    return json_pack("{s:s, s:I, s:o, s:o, s:o, s:o}", "system_id", system_id, "timeline",
                     (json_int_t)r->source.timeline, "received_lsn",
                     json_lsn(r->source.received_lsn), "write_lsn", json_lsn(r->source.write_lsn),
                     "slot", json_text(r->source.slot), "retained_bytes",
                     json_u64(r->source.retained_bytes));
}

json_t *status_report_json(const struct status_report *r)
{
    json_t *out = json_pack("{s:s, s:I, s:I, s:o, s:s, s:o, s:o}", "version", WALSHADOW_VERSION,
                            "pid", (json_int_t)r->pid, "uptime_s", (json_int_t)r->uptime_s, "http",
                            json_text(r->http), "state", daemon_state_name(r->state), "waiting_on",
                            json_text(r->waiting_on), "source", source_json(r));
    json_object_set_new(out, "shadow",
                        json_pack("{s:o, s:b}", "replay_lsn", json_lsn(r->shadow.replay_lsn),
                                  "connected", r->shadow.connected));
    json_object_set_new(out, "decoder",
                        json_pack("{s:o, s:o, s:o}", "commit_lsn", json_lsn(r->decoder.commit_lsn),
                                  "open_xacts", json_u64(r->decoder.open_xacts), "oldest_open_lsn",
                                  r->decoder.oldest_open_lsn == 0
                                      ? json_null()
                                      : json_lsn(r->decoder.oldest_open_lsn)));
    json_object_set_new(out, "prepared", prepared_json(r));
    json_object_set_new(out, "floor_lsn", json_lsn(r->floor_lsn));
    json_object_set_new(out, "ack_lsn", json_lsn(r->ack_lsn));
    json_object_set_new(out, "archive_bytes", json_u64(r->archive_bytes));
    json_object_set_new(out, "holds",
                        json_pack("{s:o, s:o, s:o}", "count", json_u64(r->holds.count), "p50_ms",
                                  json_finite(r->holds.p50_ms), "max_ms",
                                  json_finite(r->holds.max_ms)));
    json_object_set_new(out, "memory",
                        json_pack("{s:o}", "resident_bytes", json_u64(r->resident_bytes)));
    json_object_set_new(out, "destinations", destinations_json(r));
    json_object_set_new(
        out, "bootstrap",
        json_pack("{s:o, s:o, s:o, s:o, s:o}", "bytes_done", json_u64(r->bootstrap.bytes_done),
                  "bytes_total", json_u64(r->bootstrap.bytes_total), "rows",
                  json_u64(r->bootstrap.rows), "rows_per_s", json_finite(r->bootstrap.rows_per_s),
                  "eta_s", r->bootstrap.eta_s < 0 ? json_null() : json_finite(r->bootstrap.eta_s)));
    json_object_set_new(out, "tables", tables_json(r));
    return out;
}

/* ---- text, from JSON ---- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s != NULL ? s : "-";
}

static long long int_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static double real_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static void put_bytes(struct buf *out, long long bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    unsigned unit = 0;
    while (v >= 1024 && unit < 4) {
        v /= 1024;
        unit++;
    }
    buf_printf(out, unit == 0 ? "%.0f %s" : "%.1f %s", v, units[unit]);
}

static void put_bootstrap(const json_t *status, struct buf *out)
{
    const json_t *b = json_object_get(status, "bootstrap");
    if (int_of(b, "bytes_total") == 0 || strcmp(text_of(status, "state"), "bootstrapping") != 0)
        return;
    buf_printf(out, "load         ");
    put_bytes(out, int_of(b, "bytes_done"));
    buf_printf(out, " of ");
    put_bytes(out, int_of(b, "bytes_total"));
    buf_printf(out, ", %lld rows, %.0f rows/s", int_of(b, "rows"), real_of(b, "rows_per_s"));
    if (json_is_number(json_object_get(b, "eta_s")))
        buf_printf(out, ", %.0f s left", real_of(b, "eta_s"));
    buf_printf(out, "\n");
}

static void put_destinations(const json_t *status, struct buf *out)
{
    size_t i;
    const json_t *d;
    json_array_foreach(json_object_get(status, "destinations"), i, d)
    {
        buf_printf(out, "destination  %s ack %s, behind ", text_of(d, "name"),
                   text_of(d, "ack_lsn"));
        put_bytes(out, int_of(d, "lag_bytes"));
        buf_printf(out, " / %.1f s, %lld rows, %lld inserts, %lld errors\n",
                   real_of(d, "lag_seconds"), int_of(d, "rows"), int_of(d, "inserts"),
                   int_of(d, "errors"));
        if (json_is_string(json_object_get(d, "last_error")))
            buf_printf(out, "             last error: %s\n", text_of(d, "last_error"));
    }
}

void status_json_render_text(const json_t *status, struct buf *out)
{
    const json_t *source = json_object_get(status, "source");
    const json_t *shadow = json_object_get(status, "shadow");
    const json_t *decoder = json_object_get(status, "decoder"), *p;
    size_t i;
    buf_printf(out, "state        %s", text_of(status, "state"));
    if (json_is_string(json_object_get(status, "waiting_on")))
        buf_printf(out, " (waiting on %s)", text_of(status, "waiting_on"));
    buf_printf(out, "\nprocess      %lld, up %lld s, http %s\n", int_of(status, "pid"),
               int_of(status, "uptime_s"), text_of(status, "http"));
    put_bootstrap(status, out);
    buf_printf(out, "source       received %s, slot %s retains ", text_of(source, "received_lsn"),
               text_of(source, "slot"));
    put_bytes(out, int_of(source, "retained_bytes"));
    buf_printf(out, "\nshadow       replayed %s%s\n", text_of(shadow, "replay_lsn"),
               json_is_true(json_object_get(shadow, "connected")) ? "" : ", not connected");
    buf_printf(out, "decoder      commit %s, %lld open transactions\n",
               text_of(decoder, "commit_lsn"), int_of(decoder, "open_xacts"));
    json_array_foreach(json_object_get(status, "prepared"), i, p)
    {
        buf_printf(out, "prepared     %s for %lld s, ", text_of(p, "gid"), int_of(p, "age_s"));
        put_bytes(out, int_of(p, "bytes"));
        buf_printf(out, "\n");
    }
    buf_printf(out, "floor        %s, ack %s, archive ", text_of(status, "floor_lsn"),
               text_of(status, "ack_lsn"));
    put_bytes(out, int_of(status, "archive_bytes"));
    buf_printf(out, "\n");
    put_destinations(status, out);
    buf_printf(out, "tables       %zu\n", json_array_size(json_object_get(status, "tables")));
}

void status_json_render_tables(const json_t *status, struct buf *out)
{
    size_t i;
    const json_t *t;
    buf_printf(out, "%-40s %-10s %14s  %s\n", "table", "state", "rows", "target");
    json_array_foreach(json_object_get(status, "tables"), i, t)
    {
        buf_printf(out, "%-40s %-10s %14lld  %s", text_of(t, "name"), text_of(t, "state"),
                   int_of(t, "rows"), text_of(t, "target"));
        if (json_is_string(json_object_get(t, "reason")))
            buf_printf(out, "  (%s)", text_of(t, "reason"));
        buf_printf(out, "\n");
    }
}
