/* Inside of a client: packets in and out. Only the files of this folder include it. */
#pragma once
#include "base/stream.h"
#include "clickhouse/client.h"
#include "native/block_wire.h"
#include "native/frame.h"

#define CONNECTION_BLOCK_MAX ((size_t)256 << 20) /* of a block we read */

struct ch_client {
    struct stream stream;
    bool broken;
    enum ch_compression compression;
    unsigned send_ms, receive_ms;
    struct ch_server_info server;
    uint64_t used_ns; /* last time something was sent or received */

    struct buf in; /* received; consumed up to in_pos */
    size_t in_pos;
    struct packet_server packet; /* the one whose block is being read */
    bool in_block;
    struct buf plain; /* decompressed bytes of that block */
    struct block_reader block;
    const uint8_t *block_data; /* its first byte, once it is complete and until the next read */

    struct buf out; /* packets and headers to send */
};

/* Fails for good: the connection is not used again. Returns status. */
enum status connection_break(struct ch_client *c, enum status status);

/* Waits for the next packet that matters: DATA, TOTALS, EXTREMES (with c->block and c->block_data),
 * END_OF_STREAM, PONG, HELLO. Others are read and dropped; an exception is an error with its code.
 */
enum status connection_next(struct ch_client *c, enum server_packet_type *ret_type,
                            struct error *err) CHECKED;

/* As connection_next with the packets that have arrived; *ret_got false: none is complete yet. */
enum status connection_try_next(struct ch_client *c, bool *ret_got,
                                enum server_packet_type *ret_type, struct error *err) CHECKED;

/* Sends all of iov (which it uses up), reading while it writes: an exception ends it. */
enum status connection_send(struct ch_client *c, struct iovec *iov, int n,
                            struct error *err) CHECKED;

/* Sends c->out and empties it. */
enum status connection_send_out(struct ch_client *c, struct error *err) CHECKED;

/* Sends a statement and the empty block behind it. */
enum status connection_send_query(struct ch_client *c, const char *sql,
                                  const struct ch_setting *settings, size_t n,
                                  struct error *err) CHECKED;

/* Appends an empty Data packet to c->out: the end of external tables, or of an INSERT's data. */
void connection_put_empty_block(struct ch_client *c);

enum frame_method connection_frame_method(const struct ch_client *c);
