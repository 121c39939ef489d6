/* The configuration read again: SIGHUP and `walshadow reload`. */
#pragma once
#include "ops/control.h"

struct daemon;
struct reload;

enum status daemon_reload_start(struct daemon *d, struct error *err) CHECKED;
/* SIGHUP: done by a thread of its own, the outcome is in the log. */
void daemon_reload_ask(struct daemon *d);
/* The stream runs: tables that are not where the configuration says are brought there. */
void daemon_reload_settle(struct daemon *d);
void daemon_reload_join(struct daemon *d); /* d->stopping is set */
void daemon_reload_free(struct daemon *d); /* after the pipeline: with it go the old snapshots */

/* The control verb. */
enum status daemon_reload_verb(void *ctx, const struct control_request *request,
                               json_t **ret_result, struct error *err);
