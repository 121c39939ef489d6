/* A client's socket with its buffers: bytes that arrived and are not parsed yet, bytes to send. */
#pragma once
#include "base/buf.h"
#include "base/cursor.h"
#include "base/stream.h"
#include "engine/fault.h"

#define ENGINE_READ_BYTES ((size_t)256 << 10)  /* room offered to each read */
#define ENGINE_FLUSH_BYTES ((size_t)256 << 10) /* output is sent once it has so much */
#define ENGINE_KEEP_BYTES ((size_t)16 << 20)   /* a larger empty buffer is given back */
#define ENGINE_IDLE_TIMEOUT_S 3600u            /* between queries */
#define ENGINE_TRANSFER_TIMEOUT_S 300u         /* within one */

struct engine_peer {
    struct stream stream;
    struct buf in;
    size_t at; /* consumed bytes of in */
    struct buf out;
    struct engine_fault *fault;
};

/* Takes over the stream (struct moved; the source must not be used again). */
void engine_peer_init(struct engine_peer *p, struct stream *stream, struct engine_fault *fault);
void engine_peer_fini(struct engine_peer *p);

/* What is there to parse; consume what was. Pointers into it last until the next fill. */
struct cursor engine_peer_cursor(const struct engine_peer *p);
void engine_peer_consume(struct engine_peer *p, size_t n);
/* Waits for more bytes. ERR_RETRY: the client is gone or silent for timeout_s. */
enum status engine_peer_fill(struct engine_peer *p, unsigned timeout_s, struct error *err) CHECKED;
/* Sends `out`. */
enum status engine_peer_flush(struct engine_peer *p, struct error *err) CHECKED;
/* Sends `out` once it is large. */
enum status engine_peer_flush_some(struct engine_peer *p, struct error *err) CHECKED;
