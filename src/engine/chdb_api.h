/* The functions of libchdb that are used, with the library's own types (chdb-core,
 * programs/local/chdb.h, 26.7). Private to chdb*.c. */
#pragma once
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct chdb_connection_ *chdb_api_conn;
typedef struct chdb_result_ *chdb_api_result;
typedef struct chdb_insert_stream_ *chdb_api_insert;

struct chdb_api_analysis {
    uint32_t struct_size;
    uint32_t statement_count;
    uint32_t flags;
    uint32_t query_class;
};

/* X(name, return type, parameters) */
#define CHDB_API_FUNCTIONS(X)                                                                      \
    X(chdb_version, const char *, (void))                                                          \
    X(chdb_set_signal_handlers_enabled, void, (int enabled))                                       \
    X(chdb_connect, chdb_api_conn *, (int argc, char **argv))                                      \
    X(chdb_close_conn, void, (chdb_api_conn *))                                                    \
    X(chdb_classify_query_n, int,                                                                  \
      (chdb_api_conn, const char *, size_t, const char *, size_t, struct chdb_api_analysis *))     \
    X(chdb_query_n, chdb_api_result, (chdb_api_conn, const char *, size_t, const char *, size_t))  \
    X(chdb_stream_query_n, chdb_api_result,                                                        \
      (chdb_api_conn, const char *, size_t, const char *, size_t))                                 \
    X(chdb_stream_fetch_result, chdb_api_result, (chdb_api_conn, chdb_api_result))                 \
    X(chdb_stream_cancel_query, void, (chdb_api_conn, chdb_api_result))                            \
    X(chdb_destroy_query_result, void, (chdb_api_result))                                          \
    X(chdb_result_buffer, char *, (chdb_api_result))                                               \
    X(chdb_result_length, size_t, (chdb_api_result))                                               \
    X(chdb_result_error, const char *, (chdb_api_result))                                          \
    X(chdb_result_rows_read, uint64_t, (chdb_api_result))                                          \
    X(chdb_result_bytes_read, uint64_t, (chdb_api_result))                                         \
    X(chdb_result_rows_written, uint64_t, (chdb_api_result))                                       \
    X(chdb_result_bytes_written, uint64_t, (chdb_api_result))                                      \
    X(chdb_stream_insert_n, chdb_api_insert,                                                       \
      (chdb_api_conn, const char *, size_t, const char *, size_t))                                 \
    X(chdb_stream_append, int, (chdb_api_insert, const void *, size_t))                            \
    X(chdb_stream_done, chdb_api_result, (chdb_api_insert))                                        \
    X(chdb_stream_cancel_insert, void, (chdb_api_insert))                                          \
    X(chdb_stream_insert_error, const char *, (chdb_api_insert))                                   \
    X(chdb_destroy_insert_stream, void, (chdb_api_insert))

struct chdb_api {
#define CHDB_API_FIELD(name, ret, args) ret(*name) args;
    CHDB_API_FUNCTIONS(CHDB_API_FIELD)
#undef CHDB_API_FIELD
};

/* Fills *ret_api from the library given or found. ERR_CONFIG names every place that was tried, or
 * the function that an older library lacks. The library is never unloaded. */
enum status chdb_api_load(const char *library, struct chdb_api *ret_api, struct error *err) CHECKED;
