/* The read-only rule. readonly=1 alone still lets INTO OUTFILE, SYSTEM, KILL and a second statement
 * through, so each statement of a reader must be one reading statement by ClickHouse's own parser,
 * and runs on a fresh connection with readonly=1, final=1 and limits. */
#pragma once
#include "engine/chdb.h"
#include "engine/settings.h"

#define ENGINE_READER_RESULT_MAX ((size_t)64 << 20) /* of a result that is not streamed */
#define ENGINE_READER_SECONDS_MAX 600u

struct engine_reader_request {
    struct str database; /* len 0: default */
    struct str sql;
    const struct packet_settings *settings;   /* those not allowed are left out; may be NULL */
    const struct packet_settings *parameters; /* may be NULL */
    bool parameters_quoted;                   /* their values are literals */
    bool streamed;                            /* false: the result's size is limited */
};

/* Opens a connection on which the statement may run; close it after the statement. ERR_DATA with
 * code 164 when it is not one reading statement, 81 when the database does not exist. Messages are
 * in err (whole), the session is gone on failure. */
enum status engine_guard_open(struct chdb *chdb, const struct engine_reader_request *request,
                              struct chdb_session **ret_session, struct error *err) CHECKED;

/* Makes a database current. */
enum status engine_database_use(struct chdb_session *session, struct str name,
                                struct error *err) CHECKED;
