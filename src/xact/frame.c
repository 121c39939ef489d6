#include "xact/frame.h"

#include <stdlib.h>

static void put_body(uint8_t **at, const struct raw_tuple *t)
{
    if (t->body_len > 0)
        memcpy(*at, t->body, t->body_len);
    *at += t->body_len;
}

void frame_put_change(struct buf *out, const struct change *change, TransactionId xid,
                      TransactionId top_xid)
{
    uint32_t new_len = change->has_new ? change->new_tuple.body_len : 0;
    uint32_t old_len = change->has_old ? change->old_tuple.body_len : 0;
    size_t len = frame_align(sizeof(struct change_frame) + new_len + old_len);
    /* in place: copying what was just stored in other widths would wait for those stores */
    struct change_frame *f = (struct change_frame *)buf_reserve(out, len);
    *f = (struct change_frame){
        .head.len = (uint32_t)len,
        .head.type = FRAME_CHANGE,
        .head.flags = (uint8_t)(change->flags | (change->has_new ? FRAME_HAS_NEW : 0) |
                                (change->has_old ? FRAME_HAS_OLD : 0)),
        .head.ordinal = change->ordinal,
        .head.xid = xid,
        .head.top_xid = top_xid,
        .head.lsn = change->lsn,
        .kind = change->kind,
        .locator = change->locator,
        .new_len = new_len,
        .old_len = old_len,
        .new_tid = change->new_tid,
        .old_tid = change->old_tid,
    };
    uint8_t *at = (uint8_t *)(f + 1), *end = (uint8_t *)f + len;
    if (change->has_new) {
        f->new_infomask2 = change->new_tuple.infomask2;
        f->new_infomask = change->new_tuple.infomask;
        f->new_hoff = change->new_tuple.hoff;
        put_body(&at, &change->new_tuple);
    }
    if (change->has_old) {
        f->old_infomask2 = change->old_tuple.infomask2;
        f->old_infomask = change->old_tuple.infomask;
        f->old_hoff = change->old_tuple.hoff;
        put_body(&at, &change->old_tuple);
    }
    memset(at, 0, (size_t)(end - at));
    out->len += len;
}

struct raw_tuple change_frame_new(const struct change_frame *f)
{
    return (struct raw_tuple){.infomask2 = f->new_infomask2,
                              .infomask = f->new_infomask,
                              .hoff = f->new_hoff,
                              .body_len = f->new_len,
                              .body = (const uint8_t *)(f + 1)};
}

struct raw_tuple change_frame_old(const struct change_frame *f)
{
    return (struct raw_tuple){.infomask2 = f->old_infomask2,
                              .infomask = f->old_infomask,
                              .hoff = f->old_hoff,
                              .body_len = f->old_len,
                              .body = (const uint8_t *)(f + 1) + f->new_len};
}

void feed_batch_free(struct feed_batch *b)
{
    if (b == NULL)
        return;
    buf_free(&b->frames);
    free(b);
}
