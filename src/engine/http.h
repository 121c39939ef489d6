/* The read-only HTTP interface, as far as ClickHouse's own clients and dashboards need it: GET and
 * POST on / with query, database, default_format, param_… and settings in the URL, /ping.
 * Statements run under the read-only rule (guard.h). */
#pragma once
#include "engine/session.h"

#define ENGINE_HTTP_CONNECTIONS_MAX 64u
#define ENGINE_HTTP_TIMEOUT_S 300u

struct engine_http;

/* address: unix:PATH or HOST:PORT. Starts threads of its own. */
enum status engine_http_start(struct engine_shared *shared, const char *address,
                              struct engine_http **ret_http, struct error *err) CHECKED;
/* "unix:PATH" or "HOST:PORT" with the port in use. */
const char *engine_http_address(const struct engine_http *http);
/* Stops accepting, waits up to 5 s for requests under way. False: some still run, and the interface
 * is left as it is (the process is about to leave). */
bool engine_http_stop(struct engine_http *http);
