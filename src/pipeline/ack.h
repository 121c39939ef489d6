/* What one destination has made durable. Slices take a sequence number in WAL order; a number is
 * done when its slice was placed (all its blocks handed on) and every block acknowledged; the
 * watermark is the LSN of the last number before which all are done. Thread-safe. */
#pragma once
#include "base/error.h"
#include "base/lsn.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct ack;

struct ack *ack_new(XLogRecPtr start);
void ack_free(struct ack *a);

/* The next number. first_lsn: of the oldest transaction in the slice, pins the floor until done. It
 * begins with one pending count, for its placement. */
uint64_t ack_register(struct ack *a, XLogRecPtr first_lsn);
/* The slice got one more transaction before it left. */
void ack_lower_first(struct ack *a, uint64_t seq, XLogRecPtr first_lsn);
/* Once this and all earlier numbers are done, everything below lsn is durable. commit_time: µs
 * since 1970 of the oldest commit in it, 0 = none. */
void ack_set_lsn(struct ack *a, uint64_t seq, XLogRecPtr lsn, int64_t commit_time);
void ack_add(struct ack *a, uint64_t seq, uint32_t n);
void ack_done(struct ack *a, uint64_t seq, uint32_t n);
/* All that ends at or below lsn has a number by now. */
void ack_dispatched(struct ack *a, XLogRecPtr lsn);

XLogRecPtr ack_lsn(struct ack *a);
/* Lowest first_lsn of the numbers that are not done; UINT64_MAX if all are. */
XLogRecPtr ack_pending_first(struct ack *a);
/* Commit time of the oldest number that is not done, 0 if none. */
int64_t ack_pending_time(struct ack *a);
uint64_t ack_pending_count(struct ack *a);

/* Waits until every number given out so far is done. ERR_CANCELLED after ack_cancel. */
enum status ack_wait_all(struct ack *a, struct error *err) CHECKED;
/* The same until a CLOCK_MONOTONIC deadline (UINT64_MAX = none), then ERR_RETRY. */
enum status ack_wait_all_until(struct ack *a, uint64_t deadline_ns, struct error *err) CHECKED;
/* Waits until ack_lsn reaches lsn. OK; ERR_RETRY at the deadline; ERR_CANCELLED once *cancel is set
 * and ack_wake was called, or after ack_cancel. */
enum status ack_wait_lsn(struct ack *a, XLogRecPtr lsn, uint64_t deadline_ns,
                         const atomic_bool *cancel, struct error *err) CHECKED;
void ack_wake(struct ack *a);
void ack_cancel(struct ack *a);
