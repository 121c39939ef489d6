#include "engine/peer.h"

#include "base/queue.h"

#define SECOND_NS 1000000000ull

void engine_peer_init(struct engine_peer *p, struct stream *stream, struct engine_fault *fault)
{
    *p = (struct engine_peer){.fault = fault};
    p->stream = *stream;
    *stream = (struct stream){.fd = -1};
}

void engine_peer_fini(struct engine_peer *p)
{
    stream_close(&p->stream);
    buf_free(&p->in);
    buf_free(&p->out);
}

struct cursor engine_peer_cursor(const struct engine_peer *p)
{
    return cursor_of(p->in.data + p->at, p->in.len - p->at);
}

void engine_peer_consume(struct engine_peer *p, size_t n)
{
    p->at += n;
    if (p->at < p->in.len)
        return;
    p->at = 0;
    buf_reset(&p->in);
    if (p->in.cap > ENGINE_KEEP_BYTES)
        buf_free(&p->in);
}

enum status engine_peer_fill(struct engine_peer *p, unsigned timeout_s, struct error *err)
{
    size_t n = 0;
    if (p->at > 0 && p->in.cap - p->in.len < ENGINE_READ_BYTES) {
        memmove(p->in.data, p->in.data + p->at, p->in.len - p->at);
        p->in.len -= p->at;
        p->at = 0;
    }
    uint8_t *room = buf_reserve(&p->in, ENGINE_READ_BYTES);
    uint64_t deadline = clock_now_ns() + timeout_s * SECOND_NS;
    TRY(stream_read(&p->stream, room, p->in.cap - p->in.len, deadline, &n, err));
    if (n == 0)
        return error_set(err, ERR_RETRY, "%s: closed by the client", p->stream.name);
    p->in.len += n;
    if (engine_fault_received(p->fault, n))
        return error_set(err, ERR_RETRY, "%s: cut by a fault on demand", p->stream.name);
    return OK;
}

enum status engine_peer_flush(struct engine_peer *p, struct error *err)
{
    uint64_t deadline = clock_now_ns() + ENGINE_TRANSFER_TIMEOUT_S * SECOND_NS;
    enum status status = stream_write(&p->stream, p->out.data, p->out.len, deadline, err);
    buf_reset(&p->out);
    if (p->out.cap > ENGINE_KEEP_BYTES)
        buf_free(&p->out);
    return status;
}

enum status engine_peer_flush_some(struct engine_peer *p, struct error *err)
{
    return p->out.len >= ENGINE_FLUSH_BYTES ? engine_peer_flush(p, err) : OK;
}
