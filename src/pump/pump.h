/* The pump: source → filter → archive, frames out, holds at boundaries. One thread.
 *
 * In window mode (the initial load) records go to a callback instead, and the pump ends by itself
 * at the first record end at or behind pump_stop_at where window_may_end agrees. */
#pragma once
#include "base/fatal.h"
#include "pump/records.h"
#include "shadow/walsender.h"
#include "source/replication.h"
#include "wal/archive.h"
#include "wal/catalog_filenodes.h"

struct pump_options {
    const char *conninfo, *application_name, *slot;
    uint64_t system_id;
    uint32_t timeline;
    unsigned major;
    uint64_t segment_bytes;
    Oid database;
    XLogRecPtr start; /* segment-aligned */
    struct wal_archive *archive;
    struct shadow_walsender *walsender; /* NULL = none: told to let rows go first */
    struct catalog_filenodes *filenodes;
    const char *filenodes_path;     /* where the set is saved when it grew */
    struct records_options records; /* major, database and ctx are filled in; boundary kept */
    uint64_t max_segments;          /* 0 = no limit */
    struct fatal *fatal;
    void *ctx;
    /* Stream mode: takes the batch, also on failure. */
    enum status (*feed)(void *ctx, struct feed_batch *batch, struct error *err);
    void (*segments_done)(void *ctx); /* max_segments reached */
    /* A record ended at lsn: true if look is to be called, else not before *ret_next. */
    bool (*look_due)(void *ctx, XLogRecPtr lsn, XLogRecPtr *ret_next);
    /* Runs with the filter flushed up to lsn. *ret_seen: from where on shapes that had not been
     * seen at their boundaries are known; 0: they are not. */
    enum status (*look)(void *ctx, XLogRecPtr lsn, XLogRecPtr *ret_seen, struct error *err);
    /* Window mode: feed is NULL. */
    enum status (*window_record)(void *ctx, const struct wal_record *record, struct error *err);
    void (*window_position)(void *ctx, XLogRecPtr lsn);
    bool (*window_may_end)(void *ctx); /* asked behind pump_stop_at; NULL = yes */
};

struct pump;
enum status pump_start(const struct pump_options *options, struct pump **ret,
                       struct error *err) CHECKED;
/* Window mode: ends at the first record end ≥ lsn where it may. pump_join returns that position. */
void pump_stop_at(struct pump *p, XLogRecPtr lsn);
void pump_stop(struct pump *p); /* asks; pump_join waits */
XLogRecPtr pump_join(struct pump *p);
void pump_free(struct pump *p);

void pump_pause(struct pump *p, bool paused);
/* It has seen that it is paused, or there is no stream: the received position stays. */
bool pump_is_parked(const struct pump *p);
/* Sends a status reply over the current connection, if there is one. flush: the floor. */
enum status pump_send_status(struct pump *p, XLogRecPtr flush, struct error *err) CHECKED;

XLogRecPtr pump_received_lsn(const struct pump *p);
XLogRecPtr pump_server_lsn(const struct pump *p); /* end of the source's WAL as last told */
bool pump_connected(const struct pump *p);
/* For how long the stream was not listened to, because the pump waits for something else; 0 if
 * there is no stream. */
uint64_t pump_unheard_ns(const struct pump *p);
/* Ends the stream from another thread; it is opened again once the pump listens. */
void pump_disconnect(struct pump *p);
int pump_backend_pid(const struct pump *p); /* of the source's walsender, 0 = not connected */
void pump_waiting(struct pump *p, char *text, size_t cap); /* "" = reading */
