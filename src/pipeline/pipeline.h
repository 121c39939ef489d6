/* From feed to acknowledgement: reorder, workers, destinations. Knows neither source, shadow nor
 * pump. */
#pragma once
#include "pipeline/reorder.h"

struct pipeline;

struct pipeline_endpoint {
    struct ch_endpoint ch; /* strings outlive the pipeline */
    XLogRecPtr ack;        /* commits ending at or below it are durable there */
};

struct pipeline_options {
    const struct config *config;
    struct history *history;
    struct fatal *fatal;
    const char *spill_dir;
    uint64_t system_id;
    Oid database_oid;
    const struct pipeline_endpoint *endpoints; /* one per configured destination */
    struct toast_store *toast; /* outlives the pipeline; NULL: values of earlier transactions are
                                  lost */
    struct reorder_options reorder; /* spill_dir and the memory limits are filled in from config */
};

/* Connects the destinations and starts the workers; the reorder thread starts with pipeline_start,
 * so that tables can be added before. On failure *ret is set too and must be closed. */
enum status pipeline_open(const struct pipeline_options *options, struct pipeline **ret,
                          struct error *err) CHECKED;
/* Tables as they are at lsn. */
enum status pipeline_add_tables(struct pipeline *p, XLogRecPtr lsn, enum tables_mode mode,
                                struct error *err) CHECKED;
/* skip_until, load_end, load_xid and hooks as in reorder_options. */
enum status pipeline_start(struct pipeline *p, const struct reorder_options *options,
                           struct error *err) CHECKED;

/* Takes the batch, also on failure. */
enum status pipeline_feed(struct pipeline *p, struct feed_batch *batch, struct error *err) CHECKED;
/* Runs fn on the reorder thread, behind everything that was fed before, and returns what it does;
 * ERR_CANCELLED if the thread leaves first. */
enum status pipeline_call(struct pipeline *p, reorder_fn fn, void *ctx, struct error *err) CHECKED;
/* A job for the workers; discarded on failure. */
enum status pipeline_submit(struct pipeline *p, struct job *job, struct error *err) CHECKED;

/* No more feed: everything that was read is made durable, until the CLOCK_MONOTONIC deadline. */
enum status pipeline_drain(struct pipeline *p, uint64_t deadline_ns, struct error *err) CHECKED;
/* Wakes every wait: the threads leave. */
void pipeline_cancel(struct pipeline *p);
void pipeline_close(struct pipeline *p); /* NULL is fine */

/* Everything before it is durable or can be read again from it; not aligned. Order of sampling:
 * notes B1. ret_acks: one per destination. */
XLogRecPtr pipeline_floor(struct pipeline *p, XLogRecPtr *ret_acks);

struct tables *pipeline_tables(struct pipeline *p);
struct reorder *pipeline_reorder(struct pipeline *p);
struct budget *pipeline_budget(struct pipeline *p);
struct toast_store *pipeline_toast(struct pipeline *p);
size_t pipeline_destinations(struct pipeline *p, struct destination ***ret);
