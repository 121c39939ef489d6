/* Query packets: what a statement is, and its way through the engine. */
#pragma once
#include "engine/session.h"

#define ENGINE_HELLO_TIMEOUT_S 10u

/* Runs the query of a packet of `bytes` bytes that stands at the peer's cursor (consumed here: the
 * packet's strings are used first). Failures of the statement are answered and give OK. ERR_DATA:
 * the client broke the protocol; ERR_RETRY: it is gone. */
enum status engine_query_run(struct engine_session *s, const struct packet_query *query,
                             size_t bytes, struct error *err) CHECKED;

/* Shared by session.c and query.c. */

/* Appends an exception packet; the whole text is taken from db (may be NULL) if the error is its
 * last. */
void engine_session_exception(struct engine_session *s, const struct chdb_session *db,
                              const struct error *err);
/* Waits for a whole packet up to its block, if it has one. Its strings point into the peer's
 * buffer: consume *ret_bytes and packet_client_fini when done with them. */
enum status engine_session_packet(struct engine_session *s, unsigned timeout_s,
                                  struct packet_client *ret, size_t *ret_bytes,
                                  struct error *err) CHECKED;
/* Waits for a whole block; s->reader says where its parts are in *ret_data. Release it with
 * engine_session_block_release before the next packet. compressed: as the query asked. */
enum status engine_session_block(struct engine_session *s, bool compressed,
                                 const uint8_t **ret_data, struct error *err) CHECKED;
void engine_session_block_release(struct engine_session *s);
/* The same, dropped. Whether it is compressed is as the last query asked. */
enum status engine_session_block_skip(struct engine_session *s, struct error *err) CHECKED;
