/* A server for physical standbys on a unix socket: PostgreSQL's protocol 3.0 with IDENTIFY_SYSTEM,
 * SHOW, TIMELINE_HISTORY, READ_REPLICATION_SLOT and START_REPLICATION PHYSICAL, fed from the
 * segment archive (sealed segments and the unfinished one, up to the archive's limit). Source of
 * the protocol: PostgreSQL documentation, "Message Formats", "Streaming Replication Protocol".
 *
 * One thread accepts; each connection has a sender and a receiver thread. Only processes of our own
 * user are let in (SO_PEERCRED). Damaged input ends that connection, nothing else. */
#pragma once
#include "base/error.h"
#include "pg/pg.h"

struct shadow_walsender;
struct wal_archive;

struct shadow_walsender_options {
    const char *socket_dir; /* listens on <socket_dir>/.s.PGSQL.<port>, mode 0600 */
    unsigned port;
    uint64_t system_id;
    uint32_t timeline;
    unsigned major; /* 15 … 18, told as server_version */
    uint64_t segment_bytes;
    struct wal_archive *archive; /* must outlive the walsender */
    unsigned keepalive_ms;       /* 0 = 10000 */
    unsigned max_connections;    /* 0 = 8 */
};

enum status shadow_walsender_start(const struct shadow_walsender_options *options,
                                   struct shadow_walsender **ret, struct error *err) CHECKED;
/* Ends every connection, joins the threads, removes the socket, frees ws (NULL is fine). */
void shadow_walsender_stop(struct shadow_walsender *ws);

/* As last reported by a standby; 0 = never. They go back when a standby starts again further back.
 */
XLogRecPtr shadow_walsender_applied(struct shadow_walsender *ws);
XLogRecPtr shadow_walsender_flushed(struct shadow_walsender *ws);
/* Furthest position sent over the connections that stream now. */
XLogRecPtr shadow_walsender_sent(struct shadow_walsender *ws);
unsigned shadow_walsender_connections(struct shadow_walsender *ws); /* streaming now */

/* Waits until a standby has replayed through lsn (C6). Event-driven: a standby reports by itself
 * when it has replayed all it received; a keepalive asks once as soon as lsn was sent. ERR_RETRY at
 * the deadline (CLOCK_MONOTONIC, UINT64_MAX = none), naming how far it got; ERR_CANCELLED after
 * wake or stop. */
enum status shadow_walsender_wait_applied(struct shadow_walsender *ws, XLogRecPtr lsn,
                                          uint64_t deadline_ns, struct error *err) CHECKED;
/* Rows first: until that moment (CLOCK_MONOTONIC) the standby is sent nothing, unless someone waits
 * for a position or more than 1 GB would be kept back. Any thread; said again and again by who
 * catches up with the source. */
void shadow_walsender_rows_first(struct shadow_walsender *ws, uint64_t until_ns);
/* Makes every wait_applied that runs return ERR_CANCELLED, now and from then on. */
void shadow_walsender_wake(struct shadow_walsender *ws);
