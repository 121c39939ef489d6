/* One destination: a batcher that collects finished blocks per table, inserters that send batches,
 * a connection for statements, and what has been acknowledged. */
#pragma once
#include "base/budget.h"
#include "base/fatal.h"
#include "base/queue.h"
#include "clickhouse/client.h"
#include "pipeline/ack.h"
#include "pipeline/block_pool.h"
#include "table/target.h"

#include <pthread.h>
#include <stdatomic.h>

/* A finished block on its way. Owned by whoever holds it; block_item_free returns its bytes to the
 * budget, its memory to the pool, and acknowledges nothing. */
struct block_item {
    struct block *block;
    struct target *target; /* a reference */
    struct ack *ack;
    uint64_t seq;
    size_t bytes;
    struct budget_permit permit; /* for them */
    atomic_ulong *rows_counter;  /* of the table, counted when acknowledged; may be NULL */
    struct block_item *next;
};

struct destination_options {
    const char *name;
    bool null;                   /* null: discards and acknowledges */
    struct ch_endpoint endpoint; /* strings outlive the destination */
    unsigned inserters;
    size_t row_budget, byte_budget;
    uint64_t flush_ns;
    struct budget *budget;
    struct block_pool *blocks; /* where sent ones go */
    struct fatal *fatal;
    /* The table behind a target is not what it was (dropped or altered by hand): its rows are of no
     * use any more. Called by inserters. */
    enum status (*target_unfit)(void *ctx, const struct target *t, const char *why,
                                struct error *err);
    void *ctx;
};

struct batch {
    struct target *target;
    struct block_item *items, **tail;
    uint32_t nblocks;
    uint64_t rows;
    size_t bytes;
    uint64_t deadline_ns; /* 0 while empty */
};

/* A statement or an INSERT that was sent and is not answered yet. */
struct flight {
    uint64_t since_ns; /* 0 = none */
    uint64_t rows;     /* of an INSERT */
    char what[100];    /* its table, or the statement's beginning */
};

struct destination {
    struct destination_options options;
    struct ch_caps caps;
    struct ack *ack;
    struct target_survey *survey; /* while a start finds its tables again: what was there before */
    struct queue blocks;          /* of struct block_item, to the batcher */
    struct queue batches;         /* of struct batch, to the inserters */
    pthread_t batcher;
    pthread_t *inserters;
    unsigned ninserters; /* started */
    bool batcher_started;
    pthread_mutex_t ddl_lock; /* one statement at a time */
    struct ch_client *ddl;
    pthread_mutex_t clients_lock; /* guards clients and ddl, the pointers: for interrupting them */
    struct ch_client **clients;
    atomic_int flush_now; /* > 0: a barrier waits, the batcher keeps nothing back */
    atomic_bool stopping;
    atomic_ulong rows, inserts, errors;
    atomic_ulong insert_ns;    /* moving mean of an INSERT */
    pthread_mutex_t text_lock; /* guards the two texts and the wait for a stop */
    pthread_cond_t stopped;
    char last_error[300];
    char waiting_on[300];   /* "" = not waiting */
    struct flight *flights; /* under text_lock: of each inserter, the last of the statements */
};

/* Connects (retrying while the server cannot be reached), creates the database, starts the threads.
 */
enum status destination_open(const struct destination_options *options, XLogRecPtr ack_start,
                             struct destination **ret, struct error *err) CHECKED;
/* Hands a block to the batcher; it is consumed also on failure (ERR_CANCELLED). */
enum status destination_push(struct destination *d, struct block_item *item,
                             struct error *err) CHECKED;
/* Everything that `ack` has given a number has been acknowledged: what a barrier waits for. */
enum status destination_barrier(struct destination *d, struct ack *ack, struct error *err) CHECKED;
/* Runs one statement, again and again while the server cannot be reached. */
enum status destination_execute(struct destination *d, const char *sql, struct error *err) CHECKED;
/* The same without a second attempt: for what must not be sent twice. */
enum status destination_execute_once(struct destination *d, const char *sql,
                                     struct error *err) CHECKED;
enum status destination_select(struct destination *d, const char *sql, ch_row_fn fn, void *ctx,
                               struct error *err) CHECKED;
/* No more blocks will come: what is there is sent. */
void destination_close_input(struct destination *d);
/* Makes running statements and waits return ERR_CANCELLED. */
void destination_cancel(struct destination *d);
/* Joins the threads (after close_input or cancel) and frees. NULL is fine. */
void destination_free(struct destination *d);

void block_item_free(struct block_pool *blocks, struct budget *budget, struct block_item *item);
void batch_free(struct block_pool *blocks, struct budget *budget, struct batch *b);
void destination_note_error(struct destination *d, const struct error *err);
/* What it waits for: a retry, or an answer that does not come. "" = nothing. */
void destination_waiting(struct destination *d, char *text, size_t cap);
void destination_flight_begin(struct destination *d, unsigned index, const char *what,
                              uint64_t rows);
void destination_flight_end(struct destination *d, unsigned index);
void destination_note_waiting(struct destination *d, const char *text); /* NULL = no longer */

/* Between the files of a destination. */
void *destination_batcher_main(void *arg);
void destination_batcher_wake(struct destination *d);                  /* a barrier began to wait */
void *destination_inserter_new(struct destination *d, unsigned index); /* argument of its thread */
void *destination_inserter_main(void *arg);

/* Sleeps at most ms, ends early on stop. */
void destination_sleep(struct destination *d, unsigned ms);
/* True if the same call may be tried again on a new connection. */
bool destination_retryable(const struct error *err);
