#include "wal/filter.h"

#include "pg/wal_page.h"
#include "pg/wal_parse.h"
#include "pg/xlog_record.h"
#include "wal/noop.h"
#include "wal/reader.h"

#include <stdlib.h>

#define KEEP_MAX_DEFAULT ((size_t)1 << 20)

struct wal_filter {
    struct wal_filter_options o;
    struct wal_reader *reader;
    struct wal_classifier *classifier;
    XLogRecPtr start;

    /* Received and not yet given out: data[0] is at base_lsn, everything before emitted_lsn is out.
     * Records are parsed in place in it, so it neither moves nor shrinks while the reader runs. */
    struct buf out;
    XLogRecPtr base_lsn, emitted_lsn;
    struct buf scratch; /* a no-op that must go out while its record is being looked at */

    const struct wal_record *current; /* inside on_record */
    enum wal_route current_route;

    /* A long record whose fate was decided by its header part. */
    bool decided;
    enum wal_route decided_route;
    struct noop_writer noop; /* where its rewriting has got to */
    struct noop_cache noop_cache;
    struct noop_marks marks;

    bool straddle_open; /* the rest of the record that straddles the start is being rewritten */
    struct noop_writer edge;
    XLogRecPtr zero_from, zero_to; /* rest of a segment after a switch record */
    struct wal_filter_counters counters;
};

/* --- giving out ------------------------------------------------------------------------------ */

static uint8_t *out_at(struct wal_filter *f, XLogRecPtr lsn)
{
    return f->out.data + (lsn - f->base_lsn);
}

/* Bytes that belong to no record of ours: the straddling one's rest, padding after a switch. */
static void rewrite_edges(struct wal_filter *f, XLogRecPtr upto)
{
    if (f->straddle_open) {
        XLogRecPtr end = wal_reader_first_lsn(f->reader);
        noop_writer_run(&f->edge, f->out.data, f->base_lsn, MIN(upto, end));
        f->straddle_open = end >= upto; /* later bytes may still belong to it */
    }
    if (f->zero_from < f->zero_to) {
        XLogRecPtr end = MIN(upto, f->zero_to);
        if (end > f->zero_from) {
            memset(out_at(f, f->zero_from), 0, end - f->zero_from);
            f->zero_from = end;
        }
    }
}

static enum status emit_bytes(struct wal_filter *f, const uint8_t *data, XLogRecPtr upto,
                              struct error *err)
{
    size_t len = upto - f->emitted_lsn;
    TRY(f->o.on_output(f->o.ctx, f->emitted_lsn, data, len, err));
    f->emitted_lsn = upto;
    f->counters.output_bytes += len;
    return OK;
}

static enum status emit(struct wal_filter *f, XLogRecPtr upto, struct error *err)
{
    if (upto <= f->emitted_lsn)
        return OK;
    rewrite_edges(f, upto);
    return emit_bytes(f, out_at(f, f->emitted_lsn), upto, err);
}

/* --- records --------------------------------------------------------------------------------- */

static void noop_begin(struct wal_filter *f, const struct wal_record *r)
{
    uint64_t passed = r->start < f->start ? f->o.straddle_head.passed : 0;
    noop_writer_init(&f->noop, &f->noop_cache, r->total_len, r->xid, r->prev, f->o.segment_bytes);
    noop_writer_seek(&f->noop, MAX(r->start, f->start), passed);
}

/* on_record wants everything up to the record's end while the record's bytes must stay readable. */
static enum status emit_current_noop(struct wal_filter *f, struct error *err)
{
    const struct wal_record *r = f->current;
    XLogRecPtr from = MAX(r->start, f->emitted_lsn);
    TRY(emit(f, from, err));
    if (r->end <= from)
        return OK;
    rewrite_edges(f, from);
    buf_reset(&f->scratch);
    buf_put(&f->scratch, out_at(f, from), r->end - from);
    struct noop_writer w;
    if (f->decided) {
        w = f->noop;
    } else {
        noop_begin(f, r);
        w = f->noop;
    }
    noop_writer_run(&w, f->scratch.data, from, r->end);
    return emit_bytes(f, f->scratch.data, r->end, err);
}

/* Are all its bytes side by side in `out`? */
static bool lies_in_page(const struct wal_filter *f, const struct wal_record *r)
{
    return r->start >= f->start && r->start >= f->base_lsn &&
           r->start % PG_XLOG_BLCKSZ + MAXALIGN8(r->total_len) <= PG_XLOG_BLCKSZ;
}

static void count_record(struct wal_filter *f, const struct wal_record *r, enum wal_route route)
{
    struct wal_filter_counters *n = &f->counters;
    n->records++;
    n->record_bytes += r->total_len;
    n->routes[route]++;
    n->route_bytes[route] += r->total_len;
    n->by_rmgr[r->rmid]++;
    n->by_rmgr_forwarded[r->rmid] += route == WAL_FORWARD;
}

static enum status on_record(void *ctx, const struct wal_record *r, struct error *err)
{
    struct wal_filter *f = ctx;
    enum wal_route route = f->decided_route;
    if (!f->decided || !r->body_skipped) {
        enum wal_route found;
        TRY(wal_classify(f->classifier, r, &found, err));
        if (!f->decided)
            route = found;
    } else {
        wal_classify_skipped(f->classifier, r);
    }
    if (r->start >= f->start) { /* else it straddles the start and was read before */
        count_record(f, r, route);
        f->current = r;
        f->current_route = route;
        enum status status = OK;
        if (f->o.on_record != NULL)
            status = f->o.on_record(f->o.ctx, r, route == WAL_FORWARD, err);
        f->current = NULL;
        TRY(status);
    }
    if (route != WAL_FORWARD && f->emitted_lsn < r->end) {
        if (!f->decided && lies_in_page(f, r)) {
            noop_in_place(&f->noop_cache, out_at(f, r->start), r->total_len);
            noop_mark(&f->marks, r->start);
        } else {
            if (!f->decided)
                noop_begin(f, r);
            noop_writer_run(&f->noop, f->out.data, f->base_lsn, r->end);
        }
    }
    f->decided = false;
    if (wal_record_is_xlog(r, XLOG_SWITCH)) {
        f->zero_from = r->end;
        f->zero_to = lsn_segment_start(r->end + f->o.segment_bytes - 1, f->o.segment_bytes);
    }
    return OK;
}

static enum status on_head(void *ctx, const struct wal_record *head, bool *ret_keep,
                           struct error *err)
{
    struct wal_filter *f = ctx;
    enum wal_route route;
    bool needed;
    (void)err;
    *ret_keep = true;
    if (!wal_classify_head(f->classifier, head, &route, &needed))
        return OK;
    *ret_keep = needed;
    f->decided = true;
    f->decided_route = route;
    if (route != WAL_FORWARD)
        noop_begin(f, head);
    return OK;
}

/* An unfinished record that will never be finished: its known bytes become a no-op's. */
static void fragment_to_noop(struct wal_filter *f, XLogRecPtr upto)
{
    struct wal_pending p;
    if (!wal_reader_pending(f->reader, &p) || p.start == 0)
        return;
    if (!f->decided) {
        if (p.head_len < 4) /* not even its length: nothing to rewrite but these bytes */
            return;
        struct wal_record r = {.start = p.start, .total_len = wal_header_total_len(p.head)};
        memcpy(&r.xid, p.head + 4, 4);
        memcpy(&r.prev, p.head + 8, 8);
        noop_begin(f, &r);
    } else if (f->decided_route == WAL_FORWARD) {
        return;
    }
    noop_writer_run(&f->noop, f->out.data, f->base_lsn, upto);
}

static enum status on_abandoned(void *ctx, XLogRecPtr start, XLogRecPtr end, struct error *err)
{
    struct wal_filter *f = ctx;
    (void)start, (void)err;
    fragment_to_noop(f, end);
    f->decided = false;
    f->counters.abandoned++;
    return OK;
}

/* --- interface ------------------------------------------------------------------------------- */

/* What the archive holds of the record that straddles the start decides how the rest is written. */
static void straddle_init(struct wal_filter *f)
{
    const struct wal_straddle_head *h = &f->o.straddle_head;
    if (f->o.straddle == WAL_STRADDLE_FORWARD)
        return;
    if (f->o.straddle == WAL_STRADDLE_UNKNOWN && h->start != 0 && h->head_len == h->passed &&
        h->passed >= 8 && h->passed < SizeOfXLogRecord) {
        wal_reader_resume(f->reader, h->start, h->head, h->head_len);
        return;
    }
    f->straddle_open = true;
    if (f->o.straddle == WAL_STRADDLE_NOOP && h->start != 0 && h->head_len >= SizeOfXLogRecord) {
        TransactionId xid;
        memcpy(&xid, h->head + 4, 4);
        noop_writer_init(&f->edge, &f->noop_cache, wal_header_total_len(h->head), xid,
                         wal_header_prev(h->head), f->o.segment_bytes);
        noop_writer_seek(&f->edge, f->start, h->passed);
        return;
    }
    noop_writer_zeros(&f->edge, f->o.segment_bytes);
    noop_writer_seek(&f->edge, f->start, 0);
}

struct wal_filter *wal_filter_new(const struct wal_filter_options *options, XLogRecPtr start)
{
    struct wal_filter *f = xcalloc(1, sizeof *f);
    f->o = *options;
    if (f->o.keep_max == 0)
        f->o.keep_max = KEEP_MAX_DEFAULT;
    struct wal_reader_options o = {
        .major = options->major,
        .segment_bytes = options->segment_bytes,
        .system_id = options->system_id,
        .keep_max = f->o.keep_max,
        .zeros_end = options->zeros_end,
        .ctx = f,
        .on_record = on_record,
        .on_head = on_head,
        .on_abandoned = on_abandoned,
    };
    f->reader = wal_reader_new(&o, start);
    f->classifier = wal_classifier_new(options->major, options->database, options->filenodes);
    f->start = f->base_lsn = f->emitted_lsn = start;
    straddle_init(f);
    return f;
}

void wal_filter_free(struct wal_filter *f)
{
    if (f == NULL)
        return;
    wal_reader_free(f->reader);
    wal_classifier_free(f->classifier);
    noop_cache_fini(&f->noop_cache);
    buf_free(&f->out);
    buf_free(&f->scratch);
    free(f);
}

/* Up to where the output is known. */
static XLogRecPtr decided_lsn(struct wal_filter *f)
{
    XLogRecPtr next = wal_reader_next_lsn(f->reader);
    XLogRecPtr pending = wal_reader_pending_lsn(f->reader);
    if (!wal_reader_in_record(f->reader))
        return next;
    struct wal_pending p;
    if (wal_reader_pending(f->reader, &p) && p.start == 0)
        return next; /* the straddling record: rewrite_edges or forwarded */
    if (!f->decided)
        return MAX(pending, f->base_lsn);
    if (f->decided_route != WAL_FORWARD)
        noop_writer_run(&f->noop, f->out.data, f->base_lsn, next);
    return next;
}

/* Forgets what has been given out. */
static void compact(struct wal_filter *f)
{
    size_t done = f->emitted_lsn - f->base_lsn;
    size_t left = f->out.len - done;
    if (left > 0 && done > 0)
        memmove(f->out.data, f->out.data + done, left);
    f->out.len = left;
    f->base_lsn = f->emitted_lsn;
}

enum status wal_filter_feed(struct wal_filter *f, XLogRecPtr lsn, const uint8_t *data, size_t len,
                            struct error *err)
{
    size_t had = f->out.len;
    if (lsn != f->base_lsn + had && !wal_reader_ended(f->reader))
        return error_lsn(err, ERR_BUG, lsn, "WAL bytes fed out of turn, expected " LSN_FMT,
                         LSN_ARGS(f->base_lsn + had));
    buf_put(&f->out, data, len);
    f->counters.fed_bytes += len;
    TRY(wal_reader_push(f->reader, lsn, f->out.data + had, len, err));
    if (wal_reader_ended(f->reader)) { /* what lies behind the end is no WAL */
        XLogRecPtr end = MAX(wal_reader_next_lsn(f->reader), f->base_lsn);
        f->out.len = MIN(f->out.len, end - f->base_lsn);
    }
    TRY(emit(f, decided_lsn(f), err));
    compact(f);
    return OK;
}

enum status wal_filter_flush(struct wal_filter *f, struct error *err)
{
    if (f->current == NULL)
        return emit(f, decided_lsn(f), err);
    if (f->current_route == WAL_FORWARD)
        return emit(f, f->current->end, err);
    return emit_current_noop(f, err);
}

enum status wal_filter_finish(struct wal_filter *f, struct error *err)
{
    XLogRecPtr next = f->base_lsn + f->out.len;
    if (wal_reader_in_record(f->reader)) {
        fragment_to_noop(f, next);
        f->counters.cut++;
    }
    TRY(emit(f, next, err));
    compact(f);
    return OK;
}

XLogRecPtr wal_filter_next_lsn(const struct wal_filter *f)
{
    return wal_reader_next_lsn(f->reader);
}

XLogRecPtr wal_filter_output_lsn(const struct wal_filter *f)
{
    return f->emitted_lsn;
}

struct noop_marks *wal_filter_marks(struct wal_filter *f)
{
    return &f->marks;
}

bool wal_filter_ended(const struct wal_filter *f)
{
    return wal_reader_ended(f->reader);
}

size_t wal_filter_held_bytes(const struct wal_filter *f)
{
    return f->out.cap + f->scratch.cap;
}

uint32_t wal_filter_timeline(const struct wal_filter *f)
{
    return wal_reader_timeline(f->reader);
}

const struct wal_filter_counters *wal_filter_counters(const struct wal_filter *f)
{
    return &f->counters;
}
