/* A boundary: the stream holds at the end of a commit that changed shapes until the shadow has
 * replayed exactly through it; the catalog is read and appended to the history; then the stream
 * goes on.
 *
 * A shadow that started while a transaction with more than 64 subtransactions was open accepts no
 * connections for as long as that is so, and is told of its end only by WAL behind the boundary
 * (notes C5). Such a boundary is passed unseen: the history remembers what it changed, and the
 * catalog is read at the first end of a record at which the shadow accepts connections. */
#pragma once
#include "base/fatal.h"
#include "catalog/history.h"
#include "shadow/cluster.h"
#include "shadow/reader.h"
#include "shadow/walsender.h"

#include <stdatomic.h>

#define BOUNDARY_SAMPLES 256

struct boundary {
    struct history *history;
    struct shadow_walsender *walsender;
    struct shadow_cluster *cluster;
    struct shadow_reader *reader;
    const atomic_bool *stopping;
    XLogRecPtr start;     /* of the stream: what was seen before, and done, is not told again */
    XLogRecPtr told;      /* of the pump: the last that boundary_look gave */
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
/* A record ended at lsn. True if boundary_look is to be called: something was passed unseen and can
 * be seen now, or was seen at or before lsn. *ret_next: needs not be asked again before that. */
bool boundary_look_due(struct boundary *b, XLogRecPtr lsn, XLogRecPtr *ret_next);
/* Everything through lsn must be in the archive and nothing beyond. *ret_seen: what was unseen is
 * known from there on; 0: it cannot be seen yet. */
enum status boundary_look(struct boundary *b, XLogRecPtr lsn, XLogRecPtr *ret_seen,
                          struct error *err) CHECKED;
/* The whole catalog as the shadow has it at lsn, as the beginning of the history: it holds from 0
 * on, in place of what was there, and everything through lsn counts as captured. */
enum status boundary_capture_start(struct boundary *b, XLogRecPtr lsn, struct error *err) CHECKED;
void boundary_stats(struct boundary *b, uint64_t *ret_count, double *ret_p50_ms,
                    double *ret_max_ms);
void boundary_waiting(struct boundary *b, char *text, size_t cap);
