/* A boundary: the stream holds at the end of a commit that changed shapes until the shadow has
 * replayed exactly through it; the catalog is read and appended to the history; then the stream
 * goes on. */
#pragma once
#include "base/fatal.h"
#include "catalog/history.h"
#include "shadow/reader.h"
#include "shadow/walsender.h"

#include <stdatomic.h>

#define BOUNDARY_SAMPLES 256

struct boundary {
    struct history *history;
    struct shadow_walsender *walsender;
    struct shadow_reader *reader;
    const atomic_bool *stopping;
    pthread_mutex_t lock; /* guards the samples and waiting */
    uint64_t count;
    double samples_ms[BOUNDARY_SAMPLES]; /* of the last holds, a ring */
    double max_ms;
    char waiting[160]; /* "" = not holding */
};

void boundary_init(struct boundary *b);
void boundary_fini(struct boundary *b);
/* Everything through commit_end must be in the archive and nothing beyond. */
enum status boundary_hold(struct boundary *b, XLogRecPtr commit_end, const Oid *oids, size_t n,
                          bool all, struct error *err) CHECKED;
/* The whole catalog as the shadow has it at lsn, as the beginning of the history: it holds from 0
 * on, in place of what was there, and everything through lsn counts as captured. */
enum status boundary_capture_start(struct boundary *b, XLogRecPtr lsn, struct error *err) CHECKED;
void boundary_stats(struct boundary *b, uint64_t *ret_count, double *ret_p50_ms,
                    double *ret_max_ms);
void boundary_waiting(struct boundary *b, char *text, size_t cap);
