#include "source/copy.h"

#include "source/conn.h"
#include "source/pg_error.h"

#include <stdlib.h>

struct source_copy {
    PGconn *conn;
    int wake_fd;
    char *message; /* of libpq */
};

enum status source_copy_begin(struct source_sql *s, const char *sql, struct source_copy **ret,
                              struct error *err)
{
    PGconn *conn = source_sql_conn(s);
    int wake_fd = source_sql_wake_fd(s);
    PGresult *result = NULL;
    TRY(source_conn_query(conn, sql, wake_fd, &result, err));
    enum status st = PQresultStatus(result) == PGRES_COPY_OUT
                         ? OK
                         : source_error_result(err, conn, result, "cannot copy from the source");
    PQclear(result);
    TRY(st);
    struct source_copy *c = xcalloc(1, sizeof *c);
    c->conn = conn;
    c->wake_fd = wake_fd;
    *ret = c;
    return OK;
}

static void message_free(struct source_copy *c)
{
    if (c->message != NULL)
        PQfreemem(c->message);
    c->message = NULL;
}

/* Behind the last message: how it ended. */
static enum status finish(struct source_copy *c, struct error *err)
{
    enum status st = OK;
    for (;;) {
        PGresult *result = NULL;
        TRY(source_conn_result(c->conn, c->wake_fd, &result, err));
        if (result == NULL)
            return st;
        if (st == OK && PQresultStatus(result) != PGRES_COMMAND_OK)
            st = source_error_result(err, c->conn, result, "the copy from the source failed");
        PQclear(result);
    }
}

enum status source_copy_next(struct source_copy *c, const uint8_t **ret, size_t *ret_len,
                             struct error *err)
{
    message_free(c);
    *ret = NULL;
    for (;;) {
        int n = PQgetCopyData(c->conn, &c->message, 1);
        if (n > 0) {
            *ret = (const uint8_t *)c->message;
            *ret_len = (size_t)n;
            return OK;
        }
        if (n == -1)
            return finish(c, err);
        if (n < -1)
            return source_error_conn(err, c->conn, "the copy from the source broke");
        if (source_conn_poll(c->conn, false, c->wake_fd, UINT64_MAX) & SOURCE_READY_WAKE)
            return error_set(err, ERR_CANCELLED, "stopping");
        if (!PQconsumeInput(c->conn))
            return source_error_conn(err, c->conn, "the connection to the source broke");
    }
}

void source_copy_end(struct source_copy *c)
{
    if (c == NULL)
        return;
    message_free(c);
    free(c);
}
