/* A decode worker: walks raw tuples and appends straight to destination columns. */
#pragma once
#include "pipeline/block_pool.h"
#include "pipeline/slice.h"
#include "toast/store.h"

struct worker_shared {
    struct queue *jobs;
    struct destination **destinations;
    size_t ndestinations;
    struct tables *tables;
    struct budget *budget;
    struct block_pool *blocks;
    struct fatal *fatal;
    struct target **rejects; /* per destination: target of walshadow_rejects */
    struct toast_store *toast;
    size_t inline_value_max;
};

/* A block being built for one target at one destination. */
struct builder {
    struct target *target; /* borrowed from the route; the key */
    struct table_entry *table;
    struct block *block;
    size_t destination;
    bool spoiled; /* the table was stopped in the middle of a row: the block is not sent */
};

/* Values of the chunk store that the rows of a job refer to, in their order. */
struct stored {
    struct toast_request *requests;
    size_t n, cap;
    size_t next;      /* the first that no row has taken */
    struct buf bytes; /* of all of them */
    struct buf alone; /* of a compressed one that was not asked for with the others */
};

struct worker {
    struct worker_shared *shared;
    struct datum *datums, *old_datums; /* scratch, grows to the widest table */
    size_t datums_cap;
    struct buf *plain, *old_plain; /* per attribute: decompressed values of the two */
    struct stored stored;
    struct column_buf key_old, key_new; /* scratch of the key comparison */
    struct builder *builders;
    size_t nbuilders, builders_cap;
    uint32_t rows_hint; /* how many rows the job at hand has, about: blocks are made that large */
};

/* What a row carries besides its values. */
struct row_meta {
    XLogRecPtr lsn; /* value of _lsn */
    TransactionId xid;
    int64_t commit_us; /* µs since 1970 */
    uint64_t tid;
    bool deleted;
};

void *worker_main(void *arg); /* arg: struct worker_shared */

/* For jobs: begins, adds rows, ends. Rows of one job go into blocks of their own. */
enum status worker_add_new(struct worker *w, const struct route *route,
                           const struct raw_tuple *tuple, const struct aux_frame *aux,
                           unsigned naux, const struct row_meta *meta, struct error *err) CHECKED;
/* The same for values that are no heap tuple: the caller fills one datum an attribute, with a
 * buffer each for bytes it makes; both are the worker's. */
struct datum *worker_datums(struct worker *w, size_t natts, struct buf **ret_room);
enum status worker_add_datums(struct worker *w, const struct route *route,
                              const struct row_meta *meta, struct error *err) CHECKED;
enum status worker_add_change(struct worker *w, const struct route *route,
                              const struct change_frame *f, const struct aux_frame *aux,
                              struct error *err) CHECKED;
/* Sends the blocks under the numbers given (per destination, of the acks given); their bytes are
 * taken over from the permit, of which `keep` stay, and beyond it from the budget. More rows may
 * follow. */
enum status worker_send(struct worker *w, struct ack *const *acks, const uint64_t *seqs,
                        struct budget_permit *permit, size_t keep, struct error *err) CHECKED;
/* Sends the rest, reports the placement and returns what is left of the permit; on failure that
 * stays the caller's. */
enum status worker_finish(struct worker *w, struct ack *const *acks, const uint64_t *seqs,
                          struct budget_permit *permit, struct error *err) CHECKED;
size_t worker_built_bytes(const struct worker *w);
/* Drops what was built. */
void worker_discard(struct worker *w);

/* A state beyond enum datum_state, made by row_resolve: larger than inline_value_max. */
#define DATUM_TOO_LARGE 100
/* Another: the text form of a value whose target is String, as the source's output function gave it
 * (a copy). */
#define DATUM_TEXT 101
/* External values that cannot be had. */
#define DATUM_LOST 102 /* not in the chunk store */
#define DATUM_TORN 103 /* its chunks do not add up */

/* row.c: appends one row to the block of the route's target at destination d. */
struct builder *worker_builder(struct worker *w, const struct route *route, size_t d);
enum status row_append(struct worker *w, const struct route *route, size_t d,
                       const struct datum *datums, const struct row_meta *meta,
                       struct error *err) CHECKED;
/* Missing, compressed and external values become plain ones (in plain[], one buffer an attribute),
 * or one of the states above. An external one without its aux frame comes from the chunk store, as
 * of lsn: the start of the row's record, or the LSN of its load or copy. */
enum status row_resolve(struct worker *w, const struct route *route, XLogRecPtr lsn,
                        struct datum *datums, const struct aux_frame *aux, unsigned naux,
                        struct buf *plain, struct error *err) CHECKED;
/* stored.c: values are fetched for many rows at once. A job that has such rows notes what each
 * needs (tuples without out-of-line values cost nothing), asks, and adds its rows in the same
 * order. Values that were not asked for, or not answered because of an error, are fetched row by
 * row. */
void stored_note(struct worker *w, const struct route *route, const struct raw_tuple *tuple,
                 const struct aux_frame *aux, unsigned naux, XLogRecPtr lsn);
void stored_note_slice(struct worker *w, const struct slice *s);
enum status stored_ask(struct worker *w, struct error *err) CHECKED;
/* The value; its bytes are valid until the job's end, or, if it is asked for only now, in room
 * until that is used again (a compressed one: until the next value). */
enum status stored_take(struct worker *w, const struct route *route, const struct toast_pointer *p,
                        XLogRecPtr lsn, struct buf *room, struct toast_request *ret,
                        struct error *err) CHECKED;
void stored_clear(struct stored *s); /* the job has ended; gives large memory back */
void stored_fini(struct stored *s);
const struct aux_frame *aux_find(const struct aux_frame *aux, unsigned naux, int16_t attnum);

/* row_run.c: adds the plain rows at the front of a slice's frames at once; returns their bytes, or
 * 0 where it is not worth it: the first row goes the way of all others. */
size_t row_run_add(struct worker *w, struct route *const *routes, const uint8_t *frames, size_t len,
                   uint32_t *ret_rows);
/* True if the key columns of the two rows differ in the destination's bytes. */
enum status row_key_differs(struct worker *w, const struct route *route, size_t d,
                            const struct datum *old_datums, const struct datum *new_datums,
                            bool *ret, struct error *err) CHECKED;

/* reject.c */
struct reject {
    const struct route *route;
    const struct datum *datums; /* of the row, for its key */
    const struct row_meta *meta;
    const struct att_desc *att;
    const struct datum *value; /* may be NULL state */
    const char *reason, *action;
};
void reject_append(struct worker *w, size_t d, const struct reject *r);
enum status reject_target_new(const char *database, struct target **ret, struct error *err) CHECKED;
void reject_create_sql(const struct target *t, struct buf *out);
