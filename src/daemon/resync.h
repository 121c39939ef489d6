/* Tables that are to be copied again: threads that do it beside the stream (docs/resync.md). */
#pragma once
#include "base/lsn.h"
#include "ops/control.h"

struct daemon;
struct resync_threads;

/* Once the stream runs. Drops what copies of an earlier run left. */
enum status daemon_resync_start(struct daemon *d, struct error *err) CHECKED;
/* What died after it must stay in the chunk store: seeds of copies are on their way. */
XLogRecPtr daemon_resync_seeds(struct daemon *d);
void daemon_resync_interrupt(struct daemon *d); /* under the daemon's lock, d->stopping is set */
void daemon_resync_join(struct daemon *d);
void daemon_resync_free(struct daemon *d); /* after the pipeline */

/* The control verb. */
enum status daemon_resync_verb(void *ctx, const struct control_request *request,
                               json_t **ret_result, struct error *err);
