/* Packets of ClickHouse's native protocol, both directions, without I/O (ClickHouse,
 * src/Core/Protocol.h and ProtocolDefines.h, src/Interpreters/ClientInfo.cpp,
 * src/QueryPipeline/ProfileInfo.cpp, src/IO/Progress.cpp).
 *
 * Every field depends on `revision`: the smaller of the two sides' numbers. Encoders append to a
 * buf. Parsers read one packet at the cursor; unless PARSE_DONE the cursor stays where it was.
 * Strings of a parsed packet point into the buffer that was parsed. Block contents are
 * native/block_wire.h: a parsed packet of a kind that carries one ends before it. */
#pragma once
#include "base/buf.h"
#include "native/parse.h"

#include <stdbool.h>

#define PACKET_REVISION 54459u     /* what we announce, on both sides */
#define PACKET_REVISION_MIN 54406u /* older peers are refused */

enum packet_revision { /* first revision that has the field */
                       REVISION_COLUMN_DEFAULTS = 54410,
                       REVISION_PROGRESS_WRITES = 54420,
                       REVISION_SETTINGS_AS_STRINGS = 54429,
                       REVISION_INTERSERVER_SECRET = 54441,
                       REVISION_TRACE = 54442,
                       REVISION_FORWARDED_FOR = 54443,
                       REVISION_REFERER = 54447,
                       REVISION_DISTRIBUTED_DEPTH = 54448,
                       REVISION_START_TIME = 54449,
                       REVISION_PROFILE_EVENTS = 54451,
                       REVISION_PARALLEL_REPLICAS = 54453,
                       REVISION_CUSTOM_SERIALIZATION = 54454,
                       REVISION_ADDENDUM = 54458,
                       REVISION_PARAMETERS = 54459,
};

enum client_packet_type {
    CLIENT_HELLO = 0,
    CLIENT_QUERY = 1,
    CLIENT_DATA = 2, /* a block follows */
    CLIENT_CANCEL = 3,
    CLIENT_PING = 4,
    CLIENT_TABLES_STATUS = 5,
    CLIENT_SCALAR = 7, /* a block follows */
};

enum server_packet_type {
    SERVER_HELLO = 0,
    SERVER_DATA = 1, /* a block follows */
    SERVER_EXCEPTION = 2,
    SERVER_PROGRESS = 3,
    SERVER_PONG = 4,
    SERVER_END_OF_STREAM = 5,
    SERVER_PROFILE_INFO = 6,
    SERVER_TOTALS = 7,   /* a block follows */
    SERVER_EXTREMES = 8, /* a block follows */
    SERVER_TABLES_STATUS = 9,
    SERVER_LOG = 10, /* a block follows, never compressed */
    SERVER_TABLE_COLUMNS = 11,
    SERVER_PROFILE_EVENTS = 14, /* a block follows, never compressed */
    SERVER_TIMEZONE_UPDATE = 17,
};

struct packet_client_hello {
    struct str name;
    uint64_t major, minor, revision;
    struct str database, user, password;
};

struct packet_server_hello {
    struct str name;
    uint64_t major, minor, revision;
    struct str timezone, display_name;
    uint64_t patch;
};

struct packet_setting {
    struct str name, value;
    uint64_t flags; /* 1 = important, 2 = custom (parameters) */
};

struct packet_settings { /* parsers allocate items: packet_client_fini */
    struct packet_setting *items;
    size_t n;
};

/* How a statement came in. Zeroed but for query_kind and names is fine to send. */
struct packet_client_info {
    uint8_t query_kind; /* 1 = initial, 2 = sent on by a server, 0 = nothing follows */
    uint8_t interface;  /* 1 = TCP, 2 = HTTP, 6 = within a server */
    struct str initial_user, initial_query_id, initial_address, os_user, hostname, name, quota_key;
    uint64_t major, minor, patch, revision;
    int64_t start_time_us;
};

struct packet_query {
    struct str query_id;
    struct packet_client_info info;
    struct packet_settings settings;
    uint64_t stage; /* 2 = complete */
    bool compression;
    struct str sql;
    struct packet_settings parameters; /* values are quoted literals */
};

struct packet_table_name {
    struct str database, table;
};

struct packet_client {
    enum client_packet_type type;
    union {
        struct packet_client_hello hello;
        struct packet_query query;
        struct str table_name; /* DATA, SCALAR: a name, mostly empty */
        struct {
            struct packet_table_name *items; /* allocated */
            size_t n;
        } tables;
    };
};

struct packet_exception {
    int32_t code;
    struct str name, message, stack_trace;
};

struct packet_progress {
    uint64_t rows, bytes, total_rows, written_rows, written_bytes;
};

struct packet_profile_info {
    uint64_t rows, blocks, bytes, rows_before_limit;
    bool applied_limit, calculated;
};

struct packet_server {
    enum server_packet_type type;
    union {
        struct packet_server_hello hello;
        struct packet_exception
            exception; /* the outermost of a chain; nested ones are checked, dropped */
        struct packet_progress progress;
        struct packet_profile_info profile;
        struct str table_name; /* DATA, TOTALS, EXTREMES, LOG, PROFILE_EVENTS */
        struct {
            struct str table, text;
        } columns;
        struct str timezone;
        uint64_t tables; /* TABLES_STATUS: how many (their answers are checked, not kept) */
    };
};

/* Client to server: written by clients, parsed by servers. */
void packet_put_client_hello(struct buf *out, const struct packet_client_hello *hello);
void packet_put_addendum(struct buf *out, uint64_t revision, struct str quota_key);
void packet_put_query(struct buf *out, uint64_t revision, const struct packet_query *query);
void packet_put_client_data(struct buf *out, enum client_packet_type type, struct str table_name);
void packet_put_cancel(struct buf *out);
void packet_put_ping(struct buf *out);
void packet_put_tables_request(struct buf *out, const struct packet_table_name *tables, size_t n);

/* The first packet of a connection is parsed as Hello at any revision. A query's SQL is at most
 * sql_max bytes. After PARSE_DONE release with packet_client_fini. Settings in the binary form of
 * revisions below 54429 are refused by name. */
enum parse_result packet_client_parse(struct cursor *in, uint64_t revision, size_t sql_max,
                                      struct packet_client *ret, struct error *err);
void packet_client_fini(struct packet_client *p);
enum parse_result packet_addendum_parse(struct cursor *in, uint64_t revision,
                                        struct str *ret_quota_key, struct error *err);

/* Server to client. hello->revision is the server's own; `revision` the smaller of both. */
void packet_put_server_hello(struct buf *out, uint64_t revision,
                             const struct packet_server_hello *hello);
void packet_put_exception(struct buf *out, int32_t code, struct str name, struct str message,
                          struct str stack_trace);
void packet_put_progress(struct buf *out, uint64_t revision,
                         const struct packet_progress *progress);
void packet_put_profile_info(struct buf *out, const struct packet_profile_info *info);
void packet_put_server_data(struct buf *out, enum server_packet_type type, struct str table_name);
void packet_put_table_columns(struct buf *out, struct str table, struct str text);
void packet_put_pong(struct buf *out);
void packet_put_end_of_stream(struct buf *out);
/* Answers a TablesStatusRequest: none of the n tables is replicated. */
void packet_put_tables_status(struct buf *out, const struct packet_table_name *tables, size_t n);
void packet_put_timezone_update(struct buf *out, struct str timezone);

/* A Hello is parsed with the revision we announced (its own number decides the fields); every other
 * packet with the smaller of both. */
enum parse_result packet_server_parse(struct cursor *in, uint64_t revision,
                                      struct packet_server *ret, struct error *err);
