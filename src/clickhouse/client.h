/* A connection to a ClickHouse server (or the embedded engine) over its native protocol.
 *
 * One thread uses a client at a time; ch_client_interrupt alone may come from another.
 *
 * Errors: ERR_RETRY for the network and the peer, ERR_DATA for malformed packets and for a table
 * that does not match the block, ERR_CONFIG for an endpoint that cannot work, ERR_CANCELLED. An
 * exception of the server sets err->ch_code and is ERR_DATA, ERR_CONFIG or ERR_RETRY by its class
 * (ch_error_classify). */
#pragma once
#include "base/error.h"
#include "native/block.h"

#include <stdbool.h>
#include <stdint.h>

enum ch_compression {
    CH_COMPRESSION_NONE, /* blocks go as they are: no checksums either; for sockets on this machine
                          */
    CH_COMPRESSION_LZ4,
    CH_COMPRESSION_ZSTD,
};

struct ch_endpoint {
    const char *host; /* host and port, or unix_path */
    uint16_t port;
    const char *unix_path;
    const char *user, *password, *database; /* NULL: default, "", default */
    enum ch_compression compression;
    /* 0 = 10 s, 300 s, 300 s. receive: the longest silence of the server, not a whole statement's
     * time. */
    unsigned connect_ms, send_ms, receive_ms;
};

struct ch_server_info {
    char name[64];
    unsigned major, minor, patch;
    uint64_t revision; /* the smaller of the server's and ours */
    char timezone[64];
    char display_name[128];
};

struct ch_setting {
    const char *name, *value;
};

struct ch_client;

/* Connects and says hello. The endpoint is copied. */
enum status ch_client_open(const struct ch_endpoint *ep, struct ch_client **ret,
                           struct error *err) CHECKED;
void ch_client_close(struct ch_client *c); /* NULL is fine */

/* From another thread, while the client is open: the running call and all later ones fail with
 * ERR_CANCELLED. */
void ch_client_interrupt(struct ch_client *c);

/* The connection cannot be used any more: close it and open another. */
bool ch_client_broken(const struct ch_client *c);
const struct ch_server_info *ch_client_server(const struct ch_client *c);
/* The server is version major.minor or newer. */
bool ch_client_server_is(const struct ch_client *c, unsigned major, unsigned minor);

enum status ch_client_ping(struct ch_client *c, struct error *err) CHECKED;

/* How long nothing has been sent or received: idle servers hang up (ping after some seconds). */
uint64_t ch_client_idle_ms(const struct ch_client *c);

/* Runs a statement to its end of stream; rows it returns are dropped. Settings go out with "unknown
 * is ignored"; servers older than revision 54429 get none. */
enum status ch_client_execute(struct ch_client *c, const char *sql,
                              const struct ch_setting *settings, size_t n,
                              struct error *err) CHECKED;

/* Called for each row: fields as text, NUL-terminated, NULL for NULL; valid during the call. Any
 * status but OK ends the select: the connection is then broken and the status is returned. */
typedef enum status (*ch_row_fn)(void *ctx, const char *const *fields, const size_t *lengths,
                                 unsigned nfields, struct error *err);
/* Types beyond native/column.h's column_text_read need toString() in the statement. */
enum status ch_client_select(struct ch_client *c, const char *sql,
                             const struct ch_setting *settings, size_t n, ch_row_fn fn, void *ctx,
                             struct error *err) CHECKED;

/* One whole INSERT: statement, sample block compared with header by name and type, the blocks, the
 * end, then to the server's end of stream: OK is the acknowledgement of a synchronous INSERT
 * (settings decide; clickhouse-notes B3). sql is `INSERT INTO t (columns) FORMAT Native`. Payloads
 * are sent from the blocks' own memory. A mismatch is ERR_DATA before any data is sent. After a
 * failure once data was sent the connection is broken. Blocks without rows are left out. */
enum status ch_client_insert(struct ch_client *c, const char *sql,
                             const struct block_header *header, struct block *const *blocks,
                             size_t nblocks, const struct ch_setting *settings, size_t n,
                             struct error *err) CHECKED;
