/* What libpq reports, as our errors: SQLSTATE kept, kind chosen, secrets left out. */
#pragma once
#include "base/error.h"

#include <libpq-fe.h>

/* The kind of a SQLSTATE ("" or NULL: the connection broke): ERR_RETRY for what may pass by itself
 * (network, shutdown, resources, a slot in use), ERR_CONFIG for what an operator must change
 * (authentication, privileges, a missing or lost slot, removed WAL), ERR_DATA otherwise. */
enum status source_sqlstate_kind(const char *sqlstate);

/* Fills err from a failed result: "<what>: <message> (<detail>)", with a remedy where one is known.
 * A NULL result takes the connection's message. Does not clear the result. */
enum status source_error_result(struct error *err, const PGconn *conn, const PGresult *result,
                                const char *what);

/* The same for a connection that could not be opened or broke. */
enum status source_error_conn(struct error *err, const PGconn *conn, const char *what);
