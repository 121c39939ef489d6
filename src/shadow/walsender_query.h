/* The commands of a replication connection, parsed. Bytes come from outside.
 * Source: PostgreSQL's replication grammar (src/backend/replication/repl_gram.y), 15 to 18: the
 * part a standby or pg_receivewal sends. */
#pragma once
#include "base/error.h"
#include "pg/pg.h"

#include <stddef.h>

enum walsender_command {
    WALSENDER_IDENTIFY_SYSTEM,
    WALSENDER_SHOW,
    WALSENDER_TIMELINE_HISTORY,
    WALSENDER_READ_SLOT,
    WALSENDER_START_PHYSICAL,
};

struct walsender_query {
    enum walsender_command command;
    char name[64]; /* SHOW: parameter; slot name, "" = none */
    XLogRecPtr lsn;
    uint32_t timeline; /* 0 = not given */
};

/* text need not be NUL-terminated. ERR_DATA names the word that is not understood. */
enum status walsender_query_parse(const char *text, size_t len, struct walsender_query *ret,
                                  struct error *err) CHECKED;
