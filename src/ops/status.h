/* What `walshadow status` and GET /status report: a plain struct the daemon fills through a
 * callback, and its JSON and text forms. */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/lsn.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum daemon_state {
    DAEMON_STARTING,
    DAEMON_PREFLIGHT,
    DAEMON_BOOTSTRAPPING,
    DAEMON_STREAMING,
    DAEMON_RECONNECTING,
    DAEMON_PAUSED,
    DAEMON_STOPPING,
};

enum table_state {
    TABLE_LOADING,
    TABLE_STREAMING,
    TABLE_RESYNCING,
    TABLE_STOPPED,
    TABLE_SKIPPED,
    TABLE_DROPPED,
};

struct status_prepared {
    const char *gid;
    int64_t age_s;
    uint64_t bytes;
};

struct status_destination {
    const char *name;
    XLogRecPtr ack_lsn;
    uint64_t lag_bytes;
    double lag_seconds;
    uint64_t rows, inserts, errors;
    const char *last_error; /* NULL = null */
};

struct status_table {
    const char *name;        /* schema.table */
    const char *destination; /* its name */
    const char *target;      /* database.table */
    uint64_t rows;
    enum table_state state;
    const char *reason; /* NULL = null */
};

/* Strings and arrays belong to the arena or outlive the report. Zeroed = empty. */
struct status_report {
    struct arena arena;
    int64_t pid;
    int64_t uptime_s;
    const char *http; /* "127.0.0.1:9484"; NULL = null */
    enum daemon_state state;
    const char *waiting_on; /* NULL = null */
    struct {
        uint64_t system_id;
        uint32_t timeline;
        XLogRecPtr received_lsn, write_lsn;
        const char *slot;
        uint64_t retained_bytes;
    } source;
    struct {
        XLogRecPtr replay_lsn;
        bool connected;
    } shadow;
    struct {
        XLogRecPtr commit_lsn;
        uint64_t open_xacts;
        XLogRecPtr oldest_open_lsn; /* 0 = null */
    } decoder;
    struct status_prepared *prepared;
    size_t nprepared;
    XLogRecPtr floor_lsn, ack_lsn;
    uint64_t archive_bytes;
    struct {
        uint64_t count;
        double p50_ms, max_ms;
    } holds;
    uint64_t resident_bytes;
    struct status_destination *destinations;
    size_t ndestinations;
    struct {
        uint64_t bytes_done, bytes_total, rows;
        double rows_per_s;
        double eta_s; /* < 0 = null */
    } bootstrap;
    struct status_table *tables;
    size_t ntables;
};

/* Fills a zeroed report; must not block on the source or a destination. Called from control and
 * HTTP threads. */
typedef void (*status_fill_fn)(void *ctx, struct status_report *ret);

void status_report_fini(struct status_report *r);
json_t *status_report_json(const struct status_report *r); /* new reference */
const char *daemon_state_name(enum daemon_state state);
const char *table_state_name(enum table_state state);

/* For people, from the JSON that the daemon sent. Missing or odd members are left out. */
void status_json_render_text(const json_t *status, struct buf *out);
void status_json_render_tables(const json_t *status, struct buf *out);
