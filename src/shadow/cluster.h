/* The shadow: a standby PostgreSQL that replays catalog WAL from our walsender.
 *
 * A supervisor thread of the cluster starts postgres, watches it and starts it again with backoff
 * when it ends unasked. It runs at a lower priority than ours. All other functions may be called
 * from any thread. */
#pragma once
#include "base/error.h"
#include "pg/pg.h"

#include <sys/types.h>

struct shadow_cluster;

struct shadow_cluster_options {
    const char *state_dir;  /* sockets and the log live here */
    const char *data_dir;   /* filled by the load; mode 0700 */
    const char *bin_dir;    /* holds postgres */
    unsigned major;         /* of the source; PG_VERSION in data_dir must agree */
    const char *login_role; /* a role of the source (C4); our os user is mapped to it */
    bool own_tablespace;    /* the database's dattablespace is not 1663: in-place directory (A1) */
    Oid tablespace_oid;
    /* Not NULL: told once, by the supervisor thread, when the shadow has FAILED. Whoever waits for
     * its replay or its catalog would wait for ever. */
    void (*failed)(void *ctx, const struct error *why);
    void *failed_ctx;
};

enum shadow_state {
    SHADOW_STOPPED,
    SHADOW_STARTING,   /* process started, recovery not yet consistent or not yet accepting */
    SHADOW_READY,      /* accepts connections */
    SHADOW_RESTARTING, /* ended unasked, waits before the next start */
    SHADOW_FAILED,     /* ended SHADOW_START_TRIES times without ever accepting: given up */
};
#define SHADOW_START_TRIES 5

/* Writes the configuration (postgresql.conf, pg_hba.conf, pg_ident.conf, an empty
 * postgresql.auto.conf, standby.signal; the max_* settings from pg_control) and removes what must
 * not be there (recovery.signal, tablespace_map, links in pg_tblspc). Leaves backup_label alone. */
enum status shadow_cluster_configure(const struct shadow_cluster_options *options,
                                     struct error *err) CHECKED;

/* Stops an orphan of an earlier run, configures, and starts the supervisor. Does not wait. The
 * walsender should listen already. */
enum status shadow_cluster_start(const struct shadow_cluster_options *options,
                                 struct shadow_cluster **ret, struct error *err) CHECKED;

/* Waits until connections are accepted: event-driven, until the CLOCK_MONOTONIC deadline
 * (UINT64_MAX = none; then ERR_RETRY with what is waited for). ERR_CONFIG if the shadow has FAILED
 * (with the end of its log), ERR_CANCELLED after stop or shadow_cluster_interrupt. An open
 * transaction with more than 64 subtransactions can make this long (C5): callers with something
 * better to do use short deadlines. */
enum status shadow_cluster_wait_ready(struct shadow_cluster *c, uint64_t deadline_ns,
                                      struct error *err) CHECKED;
void shadow_cluster_interrupt(struct shadow_cluster *c);

enum shadow_state shadow_cluster_state(struct shadow_cluster *c);
/* "shadow: recovering, waiting for consistency" …; "" when ready. For waiting_on. */
void shadow_cluster_waiting_on(struct shadow_cluster *c, char *text, size_t cap);
unsigned shadow_cluster_restarts(struct shadow_cluster *c);
pid_t shadow_cluster_pid(struct shadow_cluster *c); /* 0: not running */
const char *shadow_cluster_socket_dir(const struct shadow_cluster *c);

/* Asks for a restart with fresh settings from pg_control: after XLOG_PARAMETER_CHANGE raised one
 * beyond ours the standby pauses replay. */
void shadow_cluster_restart(struct shadow_cluster *c);

/* Fast shutdown (SIGINT), SIGQUIT after grace_ms, SIGKILL after as much again; joins the thread and
 * frees c (NULL is fine). */
void shadow_cluster_stop(struct shadow_cluster *c, unsigned grace_ms);

/* A postgres left behind by an earlier run on this data directory, known by postmaster.pid and its
 * working directory, is stopped (fast, then immediate). No such process: OK. *ret_stopped may be
 * NULL. */
enum status shadow_cluster_stop_orphan(const char *data_dir, bool *ret_stopped,
                                       struct error *err) CHECKED;
