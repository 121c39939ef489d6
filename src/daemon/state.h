/* The daemon's parts, wired. Only files of this folder include it. */
#pragma once
#include "base/fatal.h"
#include "catalog/query.h"
#include "clickhouse/supervisor.h"
#include "daemon/daemon.h"
#include "load/job.h"
#include "ops/control.h"
#include "ops/http.h"
#include "ops/manifest.h"
#include "ops/status.h"
#include "pipeline/pipeline.h"
#include "pump/boundary.h"
#include "pump/pump.h"
#include "shadow/cluster.h"
#include "source/sql.h"

#define APPLICATION_NAME "walshadow"

struct source_facts {
    unsigned major;
    uint64_t system_id;
    uint32_t timeline;
    uint64_t segment_bytes;
    int64_t sender_timeout_ms; /* wal_sender_timeout, 0 = none */
    struct catalog_database database;
    struct source_login login;
    char bin_dir[512]; /* of the shadow's programs */
};

struct paths {
    char *shadow, *wal, *spill, *toast, *manifest, *catalog_log, *filenodes, *undecided,
        *control_sock, *engine_sock, *http_sock, *lock, *socket_dir;
};

struct daemon {
    _Atomic(const struct config *) config; /* a reload puts another; old ones stay (reload.c) */
    struct run_options options;
    struct paths paths;
    int lock_fd;
    uint64_t started_ns;
    struct fatal fatal;
    atomic_bool stopping;
    atomic_int state;     /* enum daemon_state */
    int wake_fd;          /* eventfd: the main thread looks at fatal, finished and stopping */
    atomic_bool finished; /* max_segments reached, dry run done */

    pthread_mutex_t
        lock; /* guards the pointers below against report and status threads, and waiting */
    char waiting[300];
    struct source_facts source;
    struct source_sql *sql; /* of the sequence thread; interrupted from others under lock */
    struct catalog_filenode *catalog_files; /* seed: which filenode is which catalog */
    size_t ncatalog_files;
    struct buf temporary; /* seed: oids of temporary relations */
    struct manifest manifest;
    struct history *history;
    struct wal_archive *archive;
    struct catalog_filenodes *filenodes;
    struct shadow_walsender *walsender;
    struct shadow_cluster *cluster;
    struct shadow_reader *reader;
    struct catalog_split split;
    struct boundary boundary;
    struct pump *pump;
    struct toast_store *toast;
    struct pipeline *pipeline;
    struct ch_supervisor **supervisors; /* per destination, NULL where none */
    struct pipeline_endpoint *endpoints;
    struct load *load; /* while rows of the initial load may still come */
    struct load_jobs *load_jobs;
    struct bootstrap *bootstrap; /* what the load's callbacks need */
    struct ack **load_acks;
    struct resync_threads *resync;   /* resync.c */
    struct reload *reload;           /* reload.c; there from before the control socket */
    struct source_repl *backup_repl; /* interrupted at a stop */
    XLogRecPtr floor;
    uint64_t load_started_ns;
    struct source_sql *watch_sql; /* of the watch thread; interrupted from others under lock */
    char stalled[300];            /* what is known of a stall that nothing names; "" = none */
    XLogRecPtr load_time_end; /* status thread: transactions of the load's time ended before it */

    struct control_server *control;
    struct http_server *http;
    pthread_t sequence_thread, status_thread, watch_thread;
    bool sequence_started, status_started, watch_started;
    pthread_mutex_t status_lock; /* with status_wake: the status thread's sleep */
    pthread_cond_t status_wake;
    pthread_cond_t status_saved;      /* with status_lock: a save that was asked for is done */
    uint64_t saves_asked, saves_done; /* under status_lock */
    bool status_left;  /* under status_lock: the status thread has ended, or never began */
    bool load_decided; /* under status_lock: no row of the load waits for a transaction any more */
    bool told_decided; /* of the reorder thread */
};

/* prepare.c: before any thread */
enum status daemon_prepare(struct daemon *d, struct error *err) CHECKED; /* user, directory, lock */
void daemon_paths_free(struct daemon *d);

/* source.c */
enum status daemon_source_open(struct daemon *d, struct error *err) CHECKED; /* SQL, facts */
enum status daemon_preflight(struct daemon *d, bool needs_load, struct error *err) CHECKED;
/* split.c: NULL if no table is split. */
const struct catalog_split *daemon_split(struct daemon *d);
void daemon_split_save(struct daemon *d); /* into the manifest */
/* A restart: what the tables known are must be what they were. */
enum status daemon_split_check(struct daemon *d, struct error *err) CHECKED;
enum status daemon_slot_ensure(struct daemon *d, bool expected, struct error *err) CHECKED;

/* engine.c */
enum status daemon_engines_start(struct daemon *d, struct error *err) CHECKED;
void daemon_engines_stop(struct daemon *d);

/* shadow.c */
enum status daemon_shadow_start(struct daemon *d, struct error *err) CHECKED;
void daemon_shadow_stop(struct daemon *d);

/* bootstrap.c */
enum status daemon_bootstrap(struct daemon *d, struct error *err) CHECKED;
/* Status thread. *ret_keep: rows that waited are on their way, floor and acks are not to move now.
 */
enum status daemon_load_step(struct daemon *d, bool *ret_keep, struct error *err) CHECKED;
/* After a restart: what waits for transactions older than the load goes on to wait. */
enum status daemon_load_resume(struct daemon *d, struct error *err) CHECKED;
void daemon_load_free(struct daemon *d);
void daemon_load_interrupt(struct daemon *d); /* under the daemon's lock */
Oid daemon_catalog_oid(void *ctx, struct rel_file_locator locator);

/* stream.c */
enum status daemon_storage_open(struct daemon *d, struct error *err) CHECKED;
enum status daemon_pipeline_open(struct daemon *d, XLogRecPtr lsn, struct error *err) CHECKED;
/* What every destination is known to have, where this run goes on; below it with --start-lsn. */
XLogRecPtr daemon_resume_ack(const struct daemon *d);
/* ERR_CONFIG for a --start-lsn that cannot be followed, before anything is started. */
enum status daemon_start_lsn_check(const struct daemon *d, bool needs_load,
                                   struct error *err) CHECKED;
enum status daemon_stream_start(struct daemon *d, struct error *err) CHECKED;

/* floor.c */
void *daemon_status_main(void *arg);
void daemon_status_left(struct daemon *d); /* nobody waits for the status thread any more */
enum status daemon_floor_save(struct daemon *d, struct error *err) CHECKED;
/* For another thread than the status thread: has it done there, and waits. */
enum status daemon_floor_save_now(struct daemon *d, struct error *err) CHECKED;
/* The end of the load's part that runs before the stream: complete or not, in the manifest. */
enum status daemon_load_save(struct daemon *d, struct error *err) CHECKED;

/* report.c, serve.c */
void daemon_report_fill(void *ctx, struct status_report *ret);
enum status daemon_serve_start(struct daemon *d, struct error *err) CHECKED;
void daemon_serve_stop(struct daemon *d);

/* watch.c */
void *daemon_watch_main(void *arg);
/* What holds progress, "" = nothing. Under the daemon's lock. */
void daemon_waiting_text(struct daemon *d, char *text, size_t cap);

void daemon_set_state(struct daemon *d, enum daemon_state state);
void daemon_set_waiting(struct daemon *d, const char *fmt, ...) PRINTF(2, 3);
/* Sleeps, ends early on a stop: then ERR_CANCELLED. */
enum status daemon_pause(struct daemon *d, unsigned ms, struct error *err) CHECKED;
static inline enum status daemon_check(struct daemon *d, struct error *err)
{
    return atomic_load(&d->stopping) || fatal_is_set(&d->fatal)
               ? error_set(err, ERR_CANCELLED, "stopping")
               : OK;
}
