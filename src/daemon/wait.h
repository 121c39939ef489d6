/* Waits until the destinations hold what the source had written at one position. */
#pragma once
#include "base/lsn.h"
#include "ops/control.h"

struct daemon;

/* Every destination has acknowledged everything up to lsn. ERR_RETRY: not by the deadline
 * (CLOCK_MONOTONIC, UINT64_MAX: none), or the request was cancelled. */
enum status daemon_wait_acks(struct daemon *d, const struct control_request *request,
                             XLogRecPtr lsn, uint64_t deadline, struct error *err) CHECKED;

/* The control verb. lsn: text, else the source's insert position. timeout_ms: none if absent.
 * copies: true if tables that are being copied again at that position hold the answer too; tables:
 * names, if only those among them. Answers reached, lsn, stopped (name and reason of each table)
 * and copying (names of those that were not done in time). */
enum status daemon_wait_verb(void *ctx, const struct control_request *request, json_t **ret_result,
                             struct error *err);
