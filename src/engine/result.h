/* Results on their way to a client of the native protocol: libchdb's Native blocks (revision 0)
 * become Data packets of the client's revision. */
#pragma once
#include "engine/chdb.h"
#include "engine/peer.h"
#include "native/frame.h"
#include "native/packet.h"

struct engine_result_options {
    uint64_t revision;
    bool compressed;
    enum frame_method method;
};

/* Runs one statement that is not an INSERT with data, and sends header, blocks, profile info and
 * the empty block, not the end of stream. `reading`: a statement that answers no bytes still has
 * columns to send. Returns with nothing pending on the session. After an error between packets an
 * exception packet may follow; ERR_RETRY: the client is gone.
 *
 * stop (may be NULL) is asked between chunks; when it says yes the query ends and OK is returned.
 */
enum status engine_result_send(struct chdb_session *session, struct str sql, bool reading,
                               const struct engine_result_options *options,
                               struct engine_peer *peer, bool (*stop)(void *ctx), void *stop_ctx,
                               struct error *err) CHECKED;

/* Appends one Data packet with a block of n columns and no rows (n = 0: the empty block). */
void engine_result_put_header(struct buf *out, const struct engine_result_options *options,
                              const struct str *names, const struct str *types, size_t n);
