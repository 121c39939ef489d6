/* A lower priority for the shadow's processes where `nice` does not reach. Private to this folder.
 *
 * Linux may give every session an equal share of the processors (kernel.sched_autogroup_enabled):
 * a niceness then counts inside the session only, and every PostgreSQL process opens one of its
 * own. The session has a niceness too, /proc/PID/autogroup (sched(7)), which takes one change in
 * 100 ms from a user without privileges. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

/* Of the shadow's processes, against ours. Replay is wanted at once only while the pump holds, and
 * then the pump's own work rests. At all other times rows go first: where processors are short the
 * shadow catches up from the archive. */
#define SHADOW_NICENESS 10

enum priority_step { PRIORITY_WALRECEIVER, PRIORITY_STARTUP, PRIORITY_DONE };

/* Lowers the session of `walreceiver`, then that of the startup process beside it. To be called now
 * and then until it is done; what the system does not offer is left out. */
void shadow_priority_lower(pid_t walreceiver, enum priority_step *step);
