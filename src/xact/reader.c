#include "xact/xact.h"
#include "base/file.h"

#include <stdlib.h>

/* One transaction's frames: the spilled blocks, then what is in memory. */
struct stream {
    struct xact *xact;
    struct buf block;      /* the spilled block being read */
    uint64_t block_at;     /* its place in the file (of its first frame) */
    uint64_t next_block;   /* the following one */
    const uint8_t *frames; /* block.data or mem.data */
    size_t len, at;
    bool in_memory;
    struct frame_head *head; /* next frame, NULL at the end */
};

struct xact_reader {
    struct xact *top;
    uint32_t nstreams;
    uint32_t last; /* stream of the frame given last */
    struct stream streams[];
};

static void stream_rewind(struct stream *s)
{
    s->next_block = 0;
    s->in_memory = false;
    s->frames = NULL;
    s->len = s->at = 0;
    s->head = NULL;
}

struct xact_reader *xact_reader_open(struct xact *x)
{
    uint32_t n = 1 + x->njoined;
    struct xact_reader *r = xcalloc(1, sizeof *r + n * sizeof r->streams[0]);
    r->top = x;
    r->nstreams = n;
    for (uint32_t i = 0; i < n; i++)
        r->streams[i].xact = i == 0 ? x : x->joined[i - 1];
    xact_reader_rewind(r);
    return r;
}

void xact_reader_rewind(struct xact_reader *r)
{
    for (uint32_t i = 0; i < r->nstreams; i++)
        stream_rewind(&r->streams[i]);
    r->last = UINT32_MAX;
}

void xact_reader_close(struct xact_reader *r)
{
    if (r == NULL)
        return;
    for (uint32_t i = 0; i < r->nstreams; i++)
        buf_free(&r->streams[i].block);
    free(r);
}

static enum status stream_refill(struct stream *s, struct error *err)
{
    struct xact *x = s->xact;
    if (s->next_block < x->spill.bytes) {
        s->block_at = s->next_block + SPILL_BLOCK_HEAD;
        TRY(spill_read_block(x, s->next_block, &s->block, &s->next_block, err));
        s->frames = s->block.data;
        s->len = s->block.len;
        atomic_fetch_add_explicit(x->blocks_read, 1, memory_order_relaxed);
    } else if (!s->in_memory) {
        s->in_memory = true;
        s->frames = x->mem.data;
        s->len = x->mem.len;
    } else {
        s->len = 0;
    }
    s->at = 0;
    return OK;
}

/* Moves head to the next frame that was not rolled back. */
static enum status stream_next(struct stream *s, struct xact *top, struct error *err)
{
    for (;;) {
        if (s->at == s->len) {
            TRY(stream_refill(s, err));
            if (s->len == 0) {
                if (s->in_memory) {
                    s->head = NULL;
                    return OK;
                }
                continue;
            }
        }
        struct frame_head *f = (struct frame_head *)(s->frames + s->at);
        if (f->len < sizeof *f || f->len > s->len - s->at)
            return error_set(err, ERR_BUG,
                             "transaction %u: frame of %u bytes does not fit its block",
                             s->xact->xid, f->len);
        s->at += f->len;
        s->head = f;
        if ((s->xact->aborted.n == 0 || !xact_is_aborted(s->xact, f->xid)) &&
            (top->aborted.n == 0 || !xact_is_aborted(top, f->xid)))
            return OK;
    }
}

enum status xact_reader_next(struct xact_reader *r, struct frame_head **ret, struct error *err)
{
    uint32_t best = UINT32_MAX;
    if (r->last == UINT32_MAX) { /* first call */
        for (uint32_t i = 0; i < r->nstreams; i++)
            TRY(stream_next(&r->streams[i], r->top, err));
    } else {
        TRY(stream_next(&r->streams[r->last], r->top, err));
        if (r->nstreams == 1) {
            *ret = r->streams[0].head;
            return OK;
        }
    }
    for (uint32_t i = 0; i < r->nstreams; i++) {
        struct frame_head *head = r->streams[i].head;
        if (head != NULL && (best == UINT32_MAX || head->lsn < r->streams[best].head->lsn))
            best = i;
    }
    r->last = best == UINT32_MAX ? 0 : best;
    *ret = best == UINT32_MAX ? NULL : r->streams[best].head;
    return OK;
}

struct xact_place xact_reader_place(const struct xact_reader *r, const void *at, uint32_t len)
{
    const struct stream *s = &r->streams[r->last];
    uint64_t offset = (uint64_t)((const uint8_t *)at - s->frames);
    offset += s->in_memory ? s->xact->spill.bytes : s->block_at;
    return (struct xact_place){.stream = r->last, .len = len, .offset = offset};
}

enum status xact_read_at(struct xact *x, struct xact_place place, uint8_t *ret, struct error *err)
{
    const struct xact *s = place.stream == 0 ? x : x->joined[place.stream - 1];
    if (place.offset < s->spill.bytes)
        return file_pread_all(s->spill.fd, ret, place.len, (off_t)place.offset, "spill file", err);
    uint64_t at = place.offset - s->spill.bytes;
    CHECK(at + place.len <= s->mem.len);
    memcpy(ret, s->mem.data + at, place.len);
    return OK;
}
