/* Opening a libpq connection that another thread can interrupt. */
#pragma once
#include "base/error.h"

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

struct source_conn_option {
    const char *keyword;
    const char *value;
};

/* Connects to conninfo (keywords or URL) with `options` overriding its keywords. Waits at most
 * SOURCE_CONNECT_MS; a readable wake_fd (-1 = none) ends the wait with ERR_CANCELLED. On success
 * *ret is non-blocking for reads through poll and blocking for writes; close with PQfinish.
 * No message holds a password, not even when conninfo does not parse. */
#define SOURCE_CONNECT_MS 30000
enum status source_conn_open(const char *conninfo, const struct source_conn_option *options,
                             size_t noptions, int wake_fd, PGconn **ret, struct error *err) CHECKED;

/* Waits until the connection's socket is readable (or writable, if asked), wake_fd is readable or
 * the CLOCK_MONOTONIC deadline passes. Returns a set of SOURCE_READY_*; 0 = deadline. */
#define SOURCE_READY_READ 1u
#define SOURCE_READY_WRITE 2u
#define SOURCE_READY_WAKE 4u
unsigned source_conn_poll(const PGconn *conn, bool want_write, int wake_fd, uint64_t deadline_ns);

/* Runs one statement and returns its last result, whatever its status; the wait can be woken
 * through wake_fd (ERR_CANCELLED; the connection is then useless). ERR_RETRY if the connection
 * broke. */
enum status source_conn_query(PGconn *conn, const char *sql, int wake_fd, PGresult **ret,
                              struct error *err) CHECKED;
/* Waits for and takes the next result of the running statement; NULL = no more. */
enum status source_conn_result(PGconn *conn, int wake_fd, PGresult **ret,
                               struct error *err) CHECKED;

/* Server major (15, 16, …) of an open connection. */
unsigned source_conn_major(const PGconn *conn);

/* An eventfd: readable from set until clear. */
int source_wake_new(void);
void source_wake_set(int fd);
void source_wake_clear(int fd);
