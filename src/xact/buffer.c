#include "base/log.h"
#include "xact/xact.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TELL_STEP ((size_t)64 << 10)
#define SUBS_KNOWN_MAX 64u /* PGPROC_MAX_CACHED_SUBXIDS, storage/proc.h */

#define ADD_RUN_MAX ((size_t)64 << 10) /* how far the memory may be exceeded */

struct sub_entry {
    TransactionId xid;
    struct xact *top;
    UT_hash_handle hh;
};

struct xact_buffer {
    char *spill_dir;
    size_t max_bytes;
    struct xact *xacts;     /* by xid */
    struct sub_entry *subs; /* subtransaction → its top-level transaction */
    struct xact *oldest, *newest;
    TransactionId last_xid; /* cache: frames of one transaction come in runs */
    struct xact *last;
    atomic_ullong oldest_lsn;
    atomic_size_t count, bytes;
    atomic_ulong spills;
    struct budget *budget;
    size_t told_bytes; /* to the budget, in steps */
    atomic_size_t spilled_count, many_subs;
    atomic_ullong spilled_bytes, blocks_read;
    pthread_mutex_t prepared_lock; /* guards the two below: written here, read for the status */
    struct xact_prepared *prepared;
    size_t nprepared;
};

void xid_array_add(struct xid_array *list, TransactionId xid)
{
    if (list->n == list->cap) {
        list->cap = list->cap == 0 ? 8 : 2 * list->cap;
        list->xids = xrealloc(list->xids, list->cap * sizeof *list->xids);
    }
    list->xids[list->n++] = xid;
}

static int xid_order(const void *a, const void *b)
{
    TransactionId x = *(const TransactionId *)a, y = *(const TransactionId *)b;
    return x < y ? -1 : x > y;
}

bool xact_is_aborted(struct xact *x, TransactionId xid)
{
    if (x->aborted.n == 0 || xid == x->xid)
        return false;
    if (!x->aborted_sorted) {
        qsort(x->aborted.xids, x->aborted.n, sizeof *x->aborted.xids, xid_order);
        x->aborted_sorted = true;
    }
    return bsearch(&xid, x->aborted.xids, x->aborted.n, sizeof xid, xid_order) != NULL;
}

struct xact_buffer *xact_buffer_new(const char *spill_dir, size_t max_bytes, struct budget *budget)
{
    struct xact_buffer *b = xcalloc(1, sizeof *b);
    b->spill_dir = xstrdup(spill_dir);
    b->max_bytes = max_bytes;
    b->budget = budget;
    atomic_store(&b->oldest_lsn, UINT64_MAX);
    pthread_mutex_init(&b->prepared_lock, NULL);
    return b;
}

static void pin_update(struct xact_buffer *b)
{
    atomic_store(&b->oldest_lsn, b->oldest == NULL ? UINT64_MAX : b->oldest->first_lsn);
}

/* The bytes in memory changed. */
static void bytes_tell(struct xact_buffer *b)
{
    size_t now = atomic_load_explicit(&b->bytes, memory_order_relaxed);
    if (b->budget == NULL)
        return;
    if (now >= b->told_bytes + TELL_STEP) {
        budget_buffered_add(b->budget, now - b->told_bytes);
        b->told_bytes = now;
    } else if (now + TELL_STEP <= b->told_bytes || (now == 0 && b->told_bytes > 0)) {
        budget_buffered_sub(b->budget, b->told_bytes - now);
        b->told_bytes = now;
    }
}

static struct xact *xact_new(struct xact_buffer *b, TransactionId xid, XLogRecPtr lsn)
{
    struct xact *x = xcalloc(1, sizeof *x);
    x->xid = xid;
    x->first_lsn = lsn;
    x->spill.fd = -1;
    x->blocks_read = &b->blocks_read;
    HASH_ADD(hh, b->xacts, xid, sizeof x->xid, x);
    x->prev = b->newest;
    if (b->newest != NULL)
        b->newest->next = x;
    else
        b->oldest = x;
    b->newest = x;
    atomic_fetch_add(&b->count, 1);
    if (b->oldest == x)
        pin_update(b);
    return x;
}

static struct xact *xact_find(struct xact_buffer *b, TransactionId xid)
{
    struct xact *x;
    struct sub_entry *s;
    if (b->last != NULL && b->last_xid == xid)
        return b->last;
    HASH_FIND(hh, b->xacts, &xid, sizeof xid, x);
    if (x == NULL) {
        HASH_FIND(hh, b->subs, &xid, sizeof xid, s);
        x = s == NULL ? NULL : s->top;
    }
    if (x != NULL) {
        b->last_xid = xid;
        b->last = x;
    }
    return x;
}

static void sub_add(struct xact_buffer *b, TransactionId xid, struct xact *top)
{
    struct sub_entry *s = xcalloc(1, sizeof *s);
    s->xid = xid;
    s->top = top;
    HASH_ADD(hh, b->subs, xid, sizeof s->xid, s);
    xid_array_add(&top->subs, xid);
    if (top->subs.n == SUBS_KNOWN_MAX + 1)
        atomic_fetch_add(&b->many_subs, 1);
}

static struct xact *xact_get(struct xact_buffer *b, TransactionId xid, TransactionId top,
                             XLogRecPtr lsn)
{
    struct xact *x = xact_find(b, xid);
    if (x != NULL)
        return x;
    if (top == InvalidTransactionId || top == xid)
        return xact_new(b, xid, lsn);
    x = xact_find(b, top);
    if (x == NULL)
        x = xact_new(b, top, lsn);
    sub_add(b, xid, x);
    return x;
}

void xact_buffer_seen(struct xact_buffer *b, TransactionId xid, TransactionId top, XLogRecPtr lsn)
{
    xact_get(b, xid, top, lsn);
}

static void prepared_remove(struct xact_buffer *b, TransactionId xid)
{
    pthread_mutex_lock(&b->prepared_lock);
    for (size_t i = 0; i < b->nprepared; i++) {
        if (b->prepared[i].xid != xid)
            continue;
        free(b->prepared[i].gid);
        b->nprepared--;
        memmove(b->prepared + i, b->prepared + i + 1, (b->nprepared - i) * sizeof *b->prepared);
        break;
    }
    pthread_mutex_unlock(&b->prepared_lock);
}

/* Out of the tables, but still in the list that pins the floor. */
static void xact_forget(struct xact_buffer *b, struct xact *x)
{
    HASH_DEL(b->xacts, x);
    if (x->prepared)
        prepared_remove(b, x->xid);
    for (uint32_t i = 0; i < x->subs.n; i++) {
        struct sub_entry *s;
        HASH_FIND(hh, b->subs, &x->subs.xids[i], sizeof x->subs.xids[i], s);
        if (s != NULL) {
            HASH_DEL(b->subs, s);
            free(s);
        }
    }
    b->last = NULL;
}

static void xact_release_one(struct xact_buffer *b, struct xact *x)
{
    if (x->prev != NULL)
        x->prev->next = x->next;
    else
        b->oldest = x->next;
    if (x->next != NULL)
        x->next->prev = x->prev;
    else
        b->newest = x->prev;
    pin_update(b);
    atomic_fetch_sub(&b->count, 1);
    atomic_fetch_sub(&b->bytes, x->mem.len);
    bytes_tell(b);
    buf_free(&x->mem);
    buf_free(&x->spec);
    if (x->spill.fd >= 0) {
        close(x->spill.fd);
        atomic_fetch_sub(&b->spilled_count, 1);
        atomic_fetch_sub(&b->spilled_bytes, x->spill.bytes);
    }
    if (x->subs.n > SUBS_KNOWN_MAX)
        atomic_fetch_sub(&b->many_subs, 1);
    free(x->subs.xids);
    free(x->aborted.xids);
    free(x->joined);
    free(x);
}

void xact_buffer_release(struct xact_buffer *b, struct xact *x)
{
    if (x == NULL)
        return;
    for (uint32_t i = 0; i < x->njoined; i++)
        xact_release_one(b, x->joined[i]);
    xact_release_one(b, x);
}

void xact_buffer_free(struct xact_buffer *b)
{
    if (b == NULL)
        return;
    while (b->oldest != NULL) {
        struct xact *x = b->oldest, *known;
        HASH_FIND(hh, b->xacts, &x->xid, sizeof x->xid, known);
        if (known == x)
            xact_forget(b, x);
        xact_release_one(b, x);
    }
    pthread_mutex_destroy(&b->prepared_lock);
    free(b->prepared);
    free(b->spill_dir);
    free(b);
}

static enum status spill_one(struct xact_buffer *b, struct xact *x, struct error *err)
{
    size_t bytes = x->mem.len;
    uint64_t before = x->spill.bytes;
    bool first = x->spill.fd < 0;
    enum status st = spill_write(x, b->spill_dir, err);
    if (first && x->spill.fd >= 0)
        atomic_fetch_add(&b->spilled_count, 1);
    atomic_fetch_add(&b->spilled_bytes, x->spill.bytes - before);
    TRY(st);
    atomic_fetch_sub(&b->bytes, bytes);
    bytes_tell(b);
    return OK;
}

/* The largest goes to disk first, until a quarter is free: the list is not walked for every row. */
static enum status spill_largest(struct xact_buffer *b, struct error *err)
{
    while (atomic_load(&b->bytes) > b->max_bytes - b->max_bytes / 4) {
        struct xact *largest = NULL;
        for (struct xact *x = b->oldest; x != NULL; x = x->next)
            if (largest == NULL || x->mem.len > largest->mem.len)
                largest = x;
        if (largest == NULL || largest->mem.len == 0)
            return OK;
        TRY(spill_one(b, largest, err));
        atomic_fetch_add(&b->spills, 1);
    }
    return OK;
}

static void append(struct xact_buffer *b, struct xact *x, const void *frames, size_t len)
{
    buf_put(&x->mem, frames, len);
    atomic_fetch_add_explicit(&b->bytes, len, memory_order_relaxed);
    bytes_tell(b);
}

/* True if the frame is about a speculative insert and has been dealt with. */
static bool speculative(struct xact_buffer *b, struct xact *x, const struct change_frame *f)
{
    switch ((enum change_kind)f->kind) {
    case CHANGE_INSERT:
        if (!(f->head.flags & CHANGE_SPECULATIVE))
            return false;
        buf_reset(&x->spec);
        buf_put(&x->spec, f, f->head.len);
        return true;
    case CHANGE_SPEC_CONFIRM:
    case CHANGE_SPEC_DELETE:
        /* a super-delete without one: of a chunk of the row that has just been taken back */
        if (f->kind == CHANGE_SPEC_DELETE && x->spec.len == 0)
            return false;
        if (x->spec.len > 0) {
            struct change_frame *waiting = (struct change_frame *)x->spec.data;
            if (f->kind == CHANGE_SPEC_CONFIRM) {
                waiting->head.flags &= (uint8_t)~CHANGE_SPECULATIVE;
                append(b, x, waiting, waiting->head.len);
            }
            buf_reset(&x->spec);
        }
        return true;
    case CHANGE_UPDATE:
    case CHANGE_DELETE:
        return false;
    }
    return false;
}

/* What it takes up in memory may have become too much. */
static enum status spill_check(struct xact_buffer *b, struct xact *x, struct error *err)
{
    /* one that is on disk already follows in portions that are still in the processor's cache */
    if (x->spill.fd >= 0 && x->mem.len >= SPILL_BLOCK)
        return spill_one(b, x, err);
    if (atomic_load_explicit(&b->bytes, memory_order_relaxed) > b->max_bytes)
        return spill_largest(b, err);
    return OK;
}

enum status xact_buffer_add(struct xact_buffer *b, const struct frame_head *frame,
                            struct error *err)
{
    struct xact *x = xact_get(b, frame->xid, frame->top_xid, frame->lsn);
    if (frame->type == FRAME_CHANGE && speculative(b, x, (const struct change_frame *)frame))
        return OK;
    append(b, x, frame, frame->len);
    return spill_check(b, x, err);
}

/* A change that goes to the end of its transaction's frames, whatever came before it. */
static bool is_simple(const struct frame_head *f)
{
    if (f->type != FRAME_CHANGE || (f->flags & CHANGE_SPECULATIVE))
        return false;
    uint32_t kind = ((const struct change_frame *)f)->kind;
    return kind == CHANGE_INSERT || kind == CHANGE_UPDATE || kind == CHANGE_DELETE;
}

enum status xact_buffer_add_run(struct xact_buffer *b, const struct frame_head *frames, size_t len,
                                size_t *ret_len, struct error *err)
{
    const struct frame_head *f = frames;
    size_t n = 0;
    while (n < len && n < ADD_RUN_MAX && is_simple(f) && f->xid == frames->xid &&
           (n == 0 || f->top_xid == InvalidTransactionId || f->top_xid == frames->top_xid)) {
        n += f->len;
        f = (const struct frame_head *)((const uint8_t *)f + f->len);
    }
    if (n == 0) {
        *ret_len = frames->len;
        return xact_buffer_add(b, frames, err);
    }
    struct xact *x = xact_get(b, frames->xid, frames->top_xid, frames->lsn);
    append(b, x, frames, n);
    *ret_len = n;
    return spill_check(b, x, err);
}

static void sub_abort(struct xact *x, TransactionId xid)
{
    struct change_frame *waiting = (struct change_frame *)x->spec.data;
    xid_array_add(&x->aborted, xid);
    x->aborted_sorted = false;
    if (x->spec.len > 0 && waiting->head.xid == xid)
        buf_reset(&x->spec);
}

void xact_buffer_abort(struct xact_buffer *b, TransactionId xid, const TransactionId *subs,
                       uint32_t nsub)
{
    struct xact *x = xact_find(b, xid);
    for (uint32_t i = 0; i < nsub; i++) {
        struct xact *s = xact_find(b, subs[i]);
        if (s != NULL && s->xid == subs[i]) { /* buffered alone */
            xact_forget(b, s);
            xact_release_one(b, s);
        } else if (s != NULL) {
            sub_abort(s, subs[i]);
        }
    }
    if (x == NULL)
        return;
    if (x->xid == xid) {
        xact_forget(b, x);
        xact_release_one(b, x);
    } else {
        sub_abort(x, xid);
    }
}

void xact_buffer_prepare(struct xact_buffer *b, const struct xact_frame *frame)
{
    struct xact *x = xact_find(b, frame->head.xid);
    if (x == NULL || x->prepared || x->xid != frame->head.xid)
        return;
    x->prepared = true;
    pthread_mutex_lock(&b->prepared_lock);
    b->prepared = xrealloc(b->prepared, (b->nprepared + 1) * sizeof *b->prepared);
    b->prepared[b->nprepared++] = (struct xact_prepared){
        .xid = x->xid,
        .first_lsn = x->first_lsn,
        .prepared_at = frame->commit_ts,
        .gid = xstrdup(xact_frame_gid(frame)),
    };
    pthread_mutex_unlock(&b->prepared_lock);
}

void xact_buffer_prepared_each(struct xact_buffer *b,
                               void (*each)(void *ctx, const struct xact_prepared *p), void *ctx)
{
    pthread_mutex_lock(&b->prepared_lock);
    for (size_t i = 0; i < b->nprepared; i++)
        each(ctx, &b->prepared[i]);
    pthread_mutex_unlock(&b->prepared_lock);
}

void xact_buffer_running(struct xact_buffer *b, TransactionId oldest_running)
{
    for (struct xact *x = b->oldest, *next; x != NULL; x = next) {
        struct xact *known;
        next = x->next;
        HASH_FIND(hh, b->xacts, &x->xid, sizeof x->xid, known);
        /* prepared ones count as running; one taken for its commit is not in the table any more */
        if (known != x || x->prepared || !xid_precedes(x->xid, oldest_running))
            continue;
        log_info("msg=\"transaction died with the server\" xid=%u first_lsn=" LSN_FMT, x->xid,
                 LSN_ARGS(x->first_lsn));
        xact_forget(b, x);
        xact_release_one(b, x);
    }
}

size_t xact_buffer_xids(const struct xact_buffer *b, TransactionId **ret)
{
    size_t n = 0;
    *ret = xcalloc(HASH_COUNT(b->xacts) + 1, sizeof **ret);
    for (const struct xact *x = b->oldest; x != NULL; x = x->next)
        (*ret)[n++] = x->xid;
    return n;
}

struct xact *xact_buffer_take(struct xact_buffer *b, TransactionId xid, const TransactionId *subs,
                              uint32_t nsub)
{
    struct xact *x = xact_find(b, xid);
    if (x != NULL && x->xid == xid)
        xact_forget(b, x);
    else
        x = NULL;
    for (uint32_t i = 0; i < nsub; i++) {
        struct xact *s = xact_find(b, subs[i]);
        if (s == NULL || s->xid != subs[i])
            continue;
        xact_forget(b, s);
        if (x == NULL) {
            x = s;
            continue;
        }
        x->joined = xrealloc(x->joined, (x->njoined + 1) * sizeof(struct xact *));
        x->joined[x->njoined++] = s;
    }
    return x;
}

XLogRecPtr xact_first_lsn(const struct xact *x)
{
    XLogRecPtr lsn = x->first_lsn;
    for (uint32_t i = 0; i < x->njoined; i++)
        lsn = MIN(lsn, x->joined[i]->first_lsn);
    return lsn;
}

uint64_t xact_bytes(const struct xact *x)
{
    uint64_t bytes = x->mem.len + x->spill.bytes;
    for (uint32_t i = 0; i < x->njoined; i++)
        bytes += x->joined[i]->mem.len + x->joined[i]->spill.bytes;
    return bytes;
}

TransactionId xact_xid(const struct xact *x)
{
    return x->xid;
}

XLogRecPtr xact_buffer_oldest_lsn(const struct xact_buffer *b)
{
    return atomic_load(&b->oldest_lsn);
}

size_t xact_buffer_count(const struct xact_buffer *b)
{
    return atomic_load(&b->count);
}

size_t xact_buffer_bytes(const struct xact_buffer *b)
{
    return atomic_load(&b->bytes);
}

uint64_t xact_buffer_spills(const struct xact_buffer *b)
{
    return atomic_load(&b->spills);
}

size_t xact_buffer_spilled_count(const struct xact_buffer *b)
{
    return atomic_load(&b->spilled_count);
}

uint64_t xact_buffer_spilled_bytes(const struct xact_buffer *b)
{
    return atomic_load(&b->spilled_bytes);
}

bool xact_buffer_has_many_subs(const struct xact_buffer *b)
{
    return atomic_load(&b->many_subs) > 0;
}

uint64_t xact_buffer_blocks_read(const struct xact_buffer *b)
{
    return atomic_load(&b->blocks_read);
}
