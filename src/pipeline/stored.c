/* Values of the chunk store, asked for at once for all rows of a job: where the store is a server a
 * question costs more than its answer. */
#include "pipeline/worker.h"

#include <stdlib.h>

#define BYTES_KEEP ((size_t)1 << 20)

void stored_clear(struct stored *s)
{
    s->n = s->next = 0;
    if (s->bytes.cap > BYTES_KEEP)
        buf_free(&s->bytes);
    if (s->alone.cap > BYTES_KEEP)
        buf_free(&s->alone);
}

void stored_fini(struct stored *s)
{
    free(s->requests);
    buf_free(&s->bytes);
    buf_free(&s->alone);
}

static void note(struct stored *s, Oid owner, const struct toast_pointer *p, XLogRecPtr lsn)
{
    if (s->n == s->cap) {
        s->cap = s->cap == 0 ? 64 : 2 * s->cap;
        s->requests = xrealloc(s->requests, s->cap * sizeof *s->requests);
    }
    s->requests[s->n++] = (struct toast_request){
        .owner = owner, .value_id = p->value_id, .extsize = p->extsize, .lsn = lsn};
}

void stored_note(struct worker *w, const struct route *route, const struct raw_tuple *tuple,
                 const struct aux_frame *aux, unsigned naux, XLogRecPtr lsn)
{
    const struct rel_desc *desc = route->desc;
    size_t max_bytes = w->shared->inline_value_max;
    struct buf *room;
    if (!(tuple->infomask & HEAP_HASEXTERNAL))
        return;
    struct datum *datums = worker_datums(w, desc->natts, &room);
    if (tuple_deform(desc->shape, tuple, datums, NULL) != OK)
        return; /* its error is found again, and told, when its row is added */
    for (unsigned i = 0; i < desc->natts; i++) {
        struct toast_pointer p;
        if (datums[i].state != DATUM_EXTERNAL || aux_find(aux, naux, (int16_t)(i + 1)) != NULL)
            continue;
        if (toast_pointer_parse(&datums[i], &p, NULL) == OK && p.extsize <= max_bytes &&
            p.rawsize <= max_bytes)
            note(&w->stored, desc->oid, &p, lsn);
    }
}

void stored_note_slice(struct worker *w, const struct slice *s)
{
    for (size_t at = 0; s->value_bytes > 0 && at < s->frames.len;) {
        const struct change_frame *f = (const struct change_frame *)(s->frames.data + at);
        const struct aux_frame *aux = (const struct aux_frame *)((const uint8_t *)f + f->head.len);
        at += f->head.len;
        for (unsigned i = 0; i < f->naux; i++)
            at += ((const struct frame_head *)(s->frames.data + at))->len;
        if (f->kind == CHANGE_DELETE || !change_frame_has_external(f))
            continue;
        struct raw_tuple tuple = change_frame_new(f);
        stored_note(w, s->routes[f->route], &tuple, aux, f->naux, f->head.lsn);
    }
}

enum status stored_ask(struct worker *w, struct error *err)
{
    struct stored *s = &w->stored;
    size_t bytes = 0;
    for (size_t i = 0; i < s->n; i++)
        bytes += s->requests[i].extsize;
    buf_reset(&s->bytes);
    uint8_t *at = buf_reserve(&s->bytes, bytes);
    for (size_t i = 0; i < s->n; i++) {
        s->requests[i].ret = at;
        at += s->requests[i].extsize;
    }
    enum status st = toast_store_fetch(w->shared->toast, s->requests, s->n, err);
    /* which table has the damaged chunk shows when its row comes */
    return st == ERR_DATA ? OK : st;
}

enum status stored_take(struct worker *w, const struct route *route, const struct toast_pointer *p,
                        XLogRecPtr lsn, struct buf *room, struct toast_request *ret,
                        struct error *err)
{
    struct stored *s = &w->stored;
    Oid owner = route->desc->oid;
    while (s->next < s->n) { /* a row that failed leaves some behind */
        const struct toast_request *q = &s->requests[s->next++];
        if (q->owner != owner || q->value_id != p->value_id || q->lsn != lsn ||
            q->extsize != p->extsize)
            continue;
        *ret = *q;
        if (q->found != TOAST_UNANSWERED)
            return OK;
        break;
    }
    struct buf *to = p->compressed ? &s->alone : room;
    buf_reset(to);
    *ret = (struct toast_request){.owner = owner,
                                  .value_id = p->value_id,
                                  .extsize = p->extsize,
                                  .lsn = lsn,
                                  .ret = buf_reserve(to, p->extsize)};
    return toast_store_fetch(w->shared->toast, ret, 1, err);
}
