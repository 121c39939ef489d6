/* What a copy asks of the source before it reads a row (docs/resync.md, steps 2 and 4). */
#pragma once
#include "pipeline/resync.h"
#include "source/sql.h"

struct daemon;

/* Of one attempt; owns nothing. */
struct resync_session {
    struct daemon *d;
    struct source_sql *sql;
};

/* Takes the table's shape into s. ERR_RETRY: the stream has not come to it yet, or a transaction
 * that wrote the table before the stream began still runs. */
enum status resync_session_look(const struct resync_session *c, struct resync *s,
                                struct error *err) CHECKED;
/* Begins a transaction whose snapshot has all of P, with the table locked in the shape it had at P.
 * *ret_lsn: everything it sees was written before. ERR_RETRY: the copy is void. */
enum status resync_session_snapshot(const struct resync_session *c, const struct resync *s,
                                    XLogRecPtr *ret_lsn, struct error *err) CHECKED;
/* ERR_CANCELLED: the daemon stops; ERR_RETRY: the copy is void. */
enum status resync_check(struct daemon *d, const struct resync *s, struct error *err) CHECKED;
