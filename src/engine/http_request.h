/* One HTTP request: what it asks for, and its answer. Private to http*.c. */
#pragma once
#include "engine/guard.h"
#include "engine/session.h"

#include <microhttpd.h>

struct http_request {
    struct engine_shared *shared;
    struct MHD_Connection *connection;
    struct buf sql; /* query= and the body */
    size_t body_at; /* where the body begins in sql */
    bool too_large;
    /* of the URL and headers */
    struct str database, format, user, password;
    struct packet_settings settings, parameters;
    int refused_code; /* a URL parameter that cannot be served: code and text */
    char refused[200];
    /* of the answer */
    struct chdb_session *session;
    struct chdb_reader *reader;
    struct chdb_answer chunk; /* what is being sent */
    size_t chunk_at;
    struct buf tail; /* error text after a broken stream */
    bool failed;
};

struct http_request *http_request_new(struct engine_shared *shared,
                                      struct MHD_Connection *connection);
void http_request_free(struct http_request *r);
/* Reads URL and headers; called before the body is there. */
void http_request_read(struct http_request *r);
/* Runs the statement and queues the answer. */
enum MHD_Result http_request_answer(struct http_request *r);
/* Queues a short text. code 0 = no exception. */
enum MHD_Result http_text_answer(struct MHD_Connection *connection, unsigned status, int code,
                                 const char *text);
/* HTTP status for a ClickHouse exception code. */
unsigned http_status_of(int code);
/* Formats whose chunks can be sent one after the other (clickhouse-notes 15: others begin anew). */
bool http_format_is_streamed(struct str format);
