/* One physical replication connection to the source.
 * Source of the protocol: PostgreSQL documentation, "Streaming Replication Protocol".
 *
 * Every libpq call runs under one mutex, so a status thread can send replies while the pump is
 * blocked elsewhere (notes A4), and a thread of its own reads ahead while it streams. open,
 * identify, show, slot_create, start and receive belong to one thread; status and wake may be
 * called from any. Errors carry the server's SQLSTATE. Kinds: ERR_RETRY      network, server
 * shutting down, slot active for another process (55006, with its pid) ERR_CONFIG     removed WAL
 * (58P01), missing, lost or wrong slot, authentication, privileges ERR_CANCELLED  source_repl_wake
 */
#pragma once
#include "base/error.h"
#include "pg/pg.h"

#include <libpq-fe.h>

struct source_repl;

struct source_identity {
    uint64_t system_id;
    uint32_t timeline;
    XLogRecPtr xlogpos; /* flush position of the source */
    unsigned major;     /* 15 … 18 */
    int server_version; /* as PQserverVersion: 150018 */
};

enum source_chunk_kind {
    SOURCE_CHUNK_NONE, /* the deadline passed */
    SOURCE_CHUNK_DATA,
    SOURCE_CHUNK_KEEPALIVE,
    SOURCE_CHUNK_ENDED, /* the server ended the stream (shutdown, or the timeline ended) */
};

struct source_chunk {
    enum source_chunk_kind kind;
    XLogRecPtr lsn;      /* DATA: position of data[0] */
    const uint8_t *data; /* DATA: valid until the next call of source_repl_receive */
    size_t len;
    XLogRecPtr server_end;  /* DATA, KEEPALIVE: end of WAL at the server when it sent this */
    int64_t server_time;    /* DATA, KEEPALIVE: its clock, microseconds since 2000-01-01 UTC */
    bool reply_requested;   /* KEEPALIVE: answer with source_repl_status at once */
    uint32_t next_timeline; /* ENDED: 0 unless the timeline ended */
    XLogRecPtr next_timeline_lsn;
};

/* conninfo: libpq keywords or URL; application_name overrides what it says. */
enum status source_repl_open(const char *conninfo, const char *application_name,
                             struct source_repl **ret, struct error *err) CHECKED;
void source_repl_close(
    struct source_repl *r); /* NULL is fine; no other thread may use r any more */

enum status source_repl_identify(struct source_repl *r, struct source_identity *ret,
                                 struct error *err) CHECKED;
/* SHOW name; *ret is malloc'd. */
enum status source_repl_show(struct source_repl *r, const char *name, char **ret,
                             struct error *err) CHECKED;
/* In bytes, from SHOW wal_segment_size. */
/* wal_sender_timeout, 0 = none. */
enum status source_repl_sender_timeout(struct source_repl *r, int64_t *ret_ms,
                                       struct error *err) CHECKED;
enum status source_repl_segment_bytes(struct source_repl *r, uint64_t *ret,
                                      struct error *err) CHECKED;
/* CREATE_REPLICATION_SLOT name PHYSICAL RESERVE_WAL. A slot of that name that exists already is
 * ERR_CONFIG with SQLSTATE 42710. */
enum status source_repl_slot_create(struct source_repl *r, const char *name,
                                    struct error *err) CHECKED;
enum status source_repl_slot_drop(struct source_repl *r, const char *name,
                                  struct error *err) CHECKED;

/* START_REPLICATION; slot NULL = none. WAL that the source has removed may show only at the first
 * source_repl_receive. Until the first source_repl_status replies say `lsn` for
 * write and nothing for flush and apply. */
enum status source_repl_start(struct source_repl *r, const char *slot, XLogRecPtr lsn,
                              uint32_t timeline, struct error *err) CHECKED;

/* The next message. CLOCK_MONOTONIC deadline, UINT64_MAX = none. A server that is silent for
 * SOURCE_SILENCE_MS although asked for an answer is ERR_RETRY. */
#define SOURCE_SILENCE_MS 60000
enum status source_repl_receive(struct source_repl *r, uint64_t deadline_ns,
                                struct source_chunk *ret, struct error *err) CHECKED;

/* Standby status update: positions are the last byte + 1 written, flushed, applied. Never a flush
 * lower than one sent before: a physical slot would follow it down (A5); such a call is ERR_BUG. A
 * flush of 0 says nothing about flush and leaves the slot where it is. Before source_repl_start:
 * OK, nothing is sent. */
enum status source_repl_status(struct source_repl *r, XLogRecPtr write_lsn, XLogRecPtr flush_lsn,
                               XLogRecPtr apply_lsn, bool request_reply, struct error *err) CHECKED;

/* From another thread: the running call and all later ones return ERR_CANCELLED. */
void source_repl_wake(struct source_repl *r);

/* Pid of the walsender that serves this connection; what pg_stat_replication.pid shows. */
/* Ends the connection from another thread: the server sees it closed at once, calls on it fail with
 * ERR_RETRY. */
void source_repl_cut(struct source_repl *r);
int source_repl_backend_pid(const struct source_repl *r);

/* For base_backup.c: the connection and its eventfd; the caller is the thread that owns r. */
PGconn *source_repl_conn(struct source_repl *r);
int source_repl_wake_fd(const struct source_repl *r);
