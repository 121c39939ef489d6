/* Faults that the engine makes on demand (`--fault SPEC`), so that tests can use it as a bad
 * server. SPEC is a comma-separated list:
 *
 *   delay-eos=MS          wait before the end of stream of every INSERT (its rows are stored)
 *   fail-insert=N[:CODE]  the Nth INSERT answers an exception (default 241) and stores nothing
 *   fail-every=N[:CODE]   so does every Nth
 *   drop-after=BYTES      once so many bytes came from clients, that connection is cut; once
 *   drop-every=BYTES      the same again and again
 *   kill-insert=N         SIGKILL when the Nth INSERT has its data, before they are committed
 *   kill-eos=N            SIGKILL when the Nth INSERT is committed, before its end of stream
 *   random=SEED[:PERCENT] of all INSERTs so many percent (default 10) fail, as many are late by up
 *                         to half a second before they are committed, as many after it, and of as
 *                         many the connection is cut once they are committed
 *
 * Inserts are counted over all sessions from 1. */
#pragma once
#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct engine_fault {
    uint64_t delay_eos_ms;
    uint64_t fail_insert, fail_every;
    int fail_code;
    uint64_t drop_after;
    bool drop_repeats;
    uint64_t kill_insert, kill_eos;
    uint64_t random_seed, random_percent; /* percent 0 = off */
    atomic_ullong inserts, bytes;
};

/* Adds the faults of a spec (NULL or "" = none). ERR_CONFIG names what is not understood. */
enum status engine_fault_parse(struct engine_fault *fault, const char *spec,
                               struct error *err) CHECKED;
/* Numbers an INSERT; *ret_code is the exception to answer, 0 = none. */
uint64_t engine_fault_insert(struct engine_fault *fault, int *ret_code);
/* Points an INSERT passes; they return, or do not. */
void engine_fault_before_commit(const struct engine_fault *fault, uint64_t insert);
/* True: cut this connection instead of answering. */
bool engine_fault_before_eos(const struct engine_fault *fault, uint64_t insert);
/* Counts bytes from a client; true: cut this connection now. */
bool engine_fault_received(struct engine_fault *fault, uint64_t bytes);
