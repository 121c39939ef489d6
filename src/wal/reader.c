#include "wal/reader.h"

#include "pg/rmgr.h"
#include "pg/xlog_record.h"

#include <stdlib.h>

enum reader_state {
    BETWEEN,      /* a record (or zeros) comes next */
    IN_RECORD,    /* assembling one, or letting its body pass */
    SKIP_CONT,    /* the rest of a record that began before the start */
    SKIP_SEGMENT, /* what follows a switch record: pages of zeros without headers */
};

struct wal_reader {
    struct wal_reader_options o;
    enum reader_state state;
    bool ended;
    XLogRecPtr start, next, first_lsn;
    uint32_t timeline;

    uint8_t header[WAL_PAGE_LONG_HEADER]; /* a page header cut by the end of a piece */
    uint32_t header_have;

    XLogRecPtr last_start, last_end; /* of the last complete record; 0 before the first */
    uint64_t skip_left;              /* SKIP_CONT: bytes with padding */

    /* IN_RECORD */
    XLogRecPtr rec_start;
    uint64_t passed;  /* bytes of it, padding included */
    uint32_t total;   /* xl_tot_len, once `passed` ≥ 4 */
    uint8_t head[32]; /* its first bytes */
    struct buf body;  /* all bytes so far, while kept */
    bool kept, head_shown;
    uint32_t crc; /* running, over the body that was not kept */

    struct wal_record record;
};

struct wal_reader *wal_reader_new(const struct wal_reader_options *options, XLogRecPtr start)
{
    CHECK(wal_segment_bytes_valid(options->segment_bytes) && start % 8 == 0);
    CHECK(options->keep_max >= WAL_RECORD_HEAD_MAX);
    struct wal_reader *r = xcalloc(1, sizeof *r);
    r->o = *options;
    r->start = r->next = start;
    r->first_lsn = start;
    return r;
}

void wal_reader_free(struct wal_reader *r)
{
    if (r == NULL)
        return;
    buf_free(&r->body);
    free(r);
}

void wal_reader_resume(struct wal_reader *r, XLogRecPtr start, const uint8_t *head,
                       uint32_t head_len)
{
    CHECK(r->next == r->start && r->state == BETWEEN && head_len >= 8 && head_len <= 24);
    r->state = IN_RECORD;
    r->rec_start = start;
    r->passed = head_len;
    r->kept = true;
    r->total = wal_header_total_len(head);
    memcpy(r->head, head, head_len);
    buf_put(&r->body, head, head_len);
}

/* Length, resource manager and xl_prev: what can be told from the fixed header. */
static enum status header_check(const struct wal_reader *r, const uint8_t *bytes, XLogRecPtr lsn,
                                struct error *err)
{
    if (!rmgr_id_valid(wal_header_rmid(bytes)))
        return error_lsn(err, ERR_DATA, lsn, "WAL record has the unknown resource manager %u",
                         wal_header_rmid(bytes));
    XLogRecPtr prev = wal_header_prev(bytes);
    if (r->last_start != 0 ? prev != r->last_start : prev >= lsn)
        return error_lsn(err, ERR_DATA, lsn,
                         "WAL record says that the one before it is at " LSN_FMT
                         ", not at " LSN_FMT,
                         LSN_ARGS(prev), LSN_ARGS(r->last_start));
    return OK;
}

static enum status length_error(XLogRecPtr lsn, uint32_t total, struct error *err)
{
    return error_lsn(err, ERR_DATA, lsn, "WAL record has the impossible length %u", total);
}

static enum status crc_error(XLogRecPtr lsn, struct error *err)
{
    return error_lsn(err, ERR_DATA, lsn, "WAL record has a wrong CRC");
}

static enum status parse_failed(XLogRecPtr lsn, struct error *err)
{
    if (err != NULL)
        err->lsn = lsn;
    return error_prefix(err, "WAL record at " LSN_FMT, LSN_ARGS(lsn));
}

/* The record in r->record is complete and verified. */
static enum status record_done(struct wal_reader *r, XLogRecPtr start, XLogRecPtr end,
                               struct error *err)
{
    r->record.start = start;
    r->record.end = end;
    r->last_start = start;
    r->last_end = end;
    r->state = BETWEEN;
    if (wal_record_is_xlog(&r->record, XLOG_SWITCH) && end % r->o.segment_bytes != 0)
        r->state = SKIP_SEGMENT;
    return r->o.on_record(r->o.ctx, &r->record, err);
}

/* A whole record's bytes at once. */
static enum status record_whole(struct wal_reader *r, const uint8_t *bytes, uint32_t total,
                                XLogRecPtr start, XLogRecPtr end, struct error *err)
{
    TRY(header_check(r, bytes, start, err));
    if (!wal_record_crc_ok(bytes, total))
        return crc_error(start, err);
    if (wal_record_parse(bytes, total, &r->record, err) != OK)
        return parse_failed(start, err);
    return record_done(r, start, end, err);
}

/* How far before its turn a record's first byte is asked for: waiting for each of them, which the
 * kernel has written last, costs more than all that is done with them. */
#define AHEAD 512u

static inline void prefetch(const uint8_t *at, uint64_t len)
{
    for (uint64_t off = 0; off < len; off += 64)
        __builtin_prefetch(at + off);
}

/* Records that lie whole within the span (part of one page). */
static enum status records_in_place(struct wal_reader *r, const uint8_t *data, size_t span,
                                    size_t *ret_used, struct error *err)
{
    size_t used = 0;
    prefetch(data, MIN(span, AHEAD));
    while (r->state == BETWEEN && span - used >= SizeOfXLogRecord) {
        uint32_t total = wal_header_total_len(data + used);
        if (total < SizeOfXLogRecord) {
            if (total == 0 && r->o.zeros_end) {
                r->ended = true;
                break;
            }
            return length_error(r->next + used, total, err);
        }
        uint64_t aligned = MAXALIGN8(total);
        if (aligned > span - used)
            break;
        prefetch(data + used + AHEAD, aligned);
        XLogRecPtr start = r->next + used;
        TRY(record_whole(r, data + used, total, start, start + aligned, err));
        used += aligned;
    }
    *ret_used = used;
    return OK;
}

static void record_begin(struct wal_reader *r)
{
    r->state = IN_RECORD;
    r->rec_start = r->next;
    r->passed = 0;
    r->total = 0;
    r->kept = true;
    r->head_shown = false;
    buf_reset(&r->body);
}

/* A long record's header part is there: is the rest wanted? */
static enum status head_show(struct wal_reader *r, struct error *err)
{
    r->head_shown = true;
    if (r->o.on_head == NULL)
        return OK;
    TRY(header_check(r, r->body.data, r->rec_start, err));
    if (wal_record_parse_head(r->body.data, r->body.len, &r->record, err) != OK)
        return parse_failed(r->rec_start, err);
    r->record.start = r->rec_start;
    r->record.end = 0;
    TRY(r->o.on_head(r->o.ctx, &r->record, &r->kept, err));
    if (!r->kept) {
        r->crc = crc32c_update(0xffffffffu, r->body.data + SizeOfXLogRecord,
                               r->body.len - SizeOfXLogRecord);
        buf_reset(&r->body);
    }
    return OK;
}

/* All bytes and the padding have passed. */
static enum status record_finish(struct wal_reader *r, XLogRecPtr end, struct error *err)
{
    if (r->kept)
        return record_whole(r, r->body.data, r->total, r->rec_start, end, err);
    if (wal_header_crc_finish(r->crc, r->head) != wal_header_crc(r->head))
        return crc_error(r->rec_start, err);
    return record_done(r, r->rec_start, end, err);
}

/* Takes n bytes of the record's data. */
static void record_take(struct wal_reader *r, const uint8_t *data, size_t n)
{
    if (r->passed < sizeof r->head)
        memcpy(r->head + r->passed, data, MIN(n, sizeof r->head - (size_t)r->passed));
    if (r->kept)
        buf_put(&r->body, data, n);
    else
        r->crc = crc32c_update(r->crc, data, n);
    r->passed += n;
}

/* Data, then padding, of the record under way, from a part of one page. */
static enum status record_append(struct wal_reader *r, const uint8_t *data, size_t span,
                                 size_t *ret_used, struct error *err)
{
    size_t used = 0;
    if (r->passed < 4) { /* a piece can end anywhere, a page only at a multiple of 8 */
        used = MIN(span, 4 - (size_t)r->passed);
        record_take(r, data, used);
        if (r->passed < 4) {
            *ret_used = used;
            return OK;
        }
        r->total = wal_header_total_len(r->head);
        if (r->total == 0 && r->o.zeros_end) {
            r->ended = true;
            r->state = BETWEEN;
            *ret_used = 0;
            return OK;
        }
        if (r->total < SizeOfXLogRecord)
            return length_error(r->rec_start, r->total, err);
    }
    bool ask = r->total > r->o.keep_max && !r->head_shown;
    while (used < span && r->passed < r->total) {
        size_t n = MIN(span - used, r->total - r->passed);
        if (ask)
            n = MIN(n, WAL_RECORD_HEAD_MAX - (size_t)r->passed);
        record_take(r, data + used, n);
        used += n;
        if (ask && r->passed == WAL_RECORD_HEAD_MAX) {
            ask = false;
            TRY(head_show(r, err));
        }
    }
    uint64_t aligned = MAXALIGN8(r->total);
    if (r->passed >= r->total) {
        size_t n = MIN(span - used, aligned - r->passed);
        r->passed += n;
        used += n;
        if (r->passed == aligned)
            TRY(record_finish(r, r->next + used, err));
    }
    *ret_used = used;
    return OK;
}

static enum status record_abandoned(struct wal_reader *r, XLogRecPtr page, struct error *err)
{
    if (r->o.on_abandoned != NULL)
        TRY(r->o.on_abandoned(r->o.ctx, r->rec_start, page, err));
    r->state = BETWEEN;
    return OK;
}

/* What the page at r->next says about continuation must match what came before. */
static enum status page_begin(struct wal_reader *r, const struct wal_page_header *h,
                              struct error *err)
{
    XLogRecPtr page = r->next;
    bool continues = (h->info & XLP_FIRST_IS_CONTRECORD) != 0;
    bool overwrite = (h->info & XLP_FIRST_IS_OVERWRITE_CONTRECORD) != 0;
    uint64_t left = 0;
    switch (r->state) {
    case BETWEEN:
        if (!continues)
            return OK;
        if (page != r->start)
            return error_lsn(err, ERR_DATA, page,
                             "WAL page continues a record of which the page before has nothing");
        r->state = SKIP_CONT;
        r->skip_left = MAXALIGN8(h->rem_len);
        return OK;
    case IN_RECORD:
        if (overwrite && !continues)
            return record_abandoned(r, page, err);
        left = r->total - r->passed;
        if (continues && h->rem_len == left)
            return OK;
        break;
    case SKIP_CONT:
        if (overwrite && !continues) {
            r->state = BETWEEN;
            r->first_lsn = page;
            return OK;
        }
        left = r->skip_left;
        if (continues && MAXALIGN8(h->rem_len) == left)
            return OK;
        break;
    case SKIP_SEGMENT:
        return OK;
    }
    if (!continues)
        return error_lsn(err, ERR_DATA, page, "WAL page does not continue the record before it");
    return error_lsn(err, ERR_DATA, page,
                     "WAL page continues a record with %u bytes to come, expected %llu", h->rem_len,
                     (unsigned long long)left);
}

/* Takes (part of) the page header at r->next - header_have. */
static enum status page_header_take(struct wal_reader *r, const uint8_t *data, size_t len,
                                    size_t *ret_used, struct error *err)
{
    XLogRecPtr page = r->next - r->header_have;
    uint32_t need = wal_page_header_size(page, r->o.segment_bytes);
    size_t n = MIN(len, (size_t)(need - r->header_have));
    memcpy(r->header + r->header_have, data, n);
    r->header_have += (uint32_t)n;
    *ret_used = n;
    if (r->header_have < need)
        return OK;
    struct wal_page_header h;
    static const uint8_t zeros[WAL_PAGE_SHORT_HEADER];
    if (r->o.zeros_end && memcmp(r->header, zeros, sizeof zeros) == 0) {
        r->ended = true;
        *ret_used = 0;
        return OK;
    }
    if (wal_page_header_parse(r->header, need, &h, err) != OK) /* a long flag on a short one */
        h.info = XLP_LONG_HEADER, h.magic = 0;
    TRY(wal_page_header_check(&h, page, r->o.major, r->o.segment_bytes, r->o.system_id, err));
    r->timeline = h.timeline;
    r->header_have = 0;
    r->next = page;
    TRY(page_begin(r, &h, err));
    r->next = page + (need - n); /* the caller adds n */
    if (r->state == BETWEEN && page == r->start)
        r->first_lsn = page;
    return OK;
}

/* One step within a page, past its header. */
static enum status page_step(struct wal_reader *r, const uint8_t *data, size_t span,
                             size_t *ret_used, struct error *err)
{
    if (r->state == SKIP_CONT) {
        *ret_used = MIN(span, r->skip_left);
        r->skip_left -= *ret_used;
        if (r->skip_left == 0) {
            r->state = BETWEEN;
            r->first_lsn = r->next + *ret_used;
        }
        return OK;
    }
    if (r->state == BETWEEN) {
        TRY(records_in_place(r, data, span, ret_used, err));
        if (*ret_used > 0 || r->ended)
            return OK;
        record_begin(r);
    }
    return record_append(r, data, span, ret_used, err);
}

enum status wal_reader_push(struct wal_reader *r, XLogRecPtr lsn, const uint8_t *data, size_t len,
                            struct error *err)
{
    if (r->ended)
        return OK;
    if (lsn != r->next)
        return error_lsn(err, ERR_BUG, lsn, "WAL bytes pushed out of turn, expected " LSN_FMT,
                         LSN_ARGS(r->next));
    while (len > 0 && !r->ended) {
        size_t used = 0;
        uint64_t off = r->next % PG_XLOG_BLCKSZ;
        if (r->state == SKIP_SEGMENT) {
            uint64_t left = r->o.segment_bytes - r->next % r->o.segment_bytes;
            used = MIN(len, left);
            if (used == left)
                r->state = BETWEEN;
        } else if (off == 0 || r->header_have > 0) {
            TRY(page_header_take(r, data, len, &used, err));
        } else {
            TRY(page_step(r, data, MIN(len, PG_XLOG_BLCKSZ - off), &used, err));
        }
        data += used;
        len -= used;
        r->next += used;
    }
    return OK;
}

XLogRecPtr wal_reader_next_lsn(const struct wal_reader *r)
{
    return r->next;
}

bool wal_reader_in_record(const struct wal_reader *r)
{
    return r->state == IN_RECORD || r->state == SKIP_CONT;
}

XLogRecPtr wal_reader_pending_lsn(const struct wal_reader *r)
{
    switch (r->state) {
    case IN_RECORD:
        return r->rec_start;
    case SKIP_CONT:
        return r->start;
    case BETWEEN:
    case SKIP_SEGMENT:
        break;
    }
    return r->next;
}

bool wal_reader_ended(const struct wal_reader *r)
{
    return r->ended;
}

XLogRecPtr wal_reader_last_lsn(const struct wal_reader *r)
{
    return r->last_start;
}

XLogRecPtr wal_reader_last_end(const struct wal_reader *r)
{
    return r->last_end;
}

XLogRecPtr wal_reader_first_lsn(const struct wal_reader *r)
{
    return r->state == SKIP_CONT ? r->next : r->first_lsn;
}

uint32_t wal_reader_timeline(const struct wal_reader *r)
{
    return r->timeline;
}

bool wal_reader_pending(const struct wal_reader *r, struct wal_pending *ret)
{
    if (!wal_reader_in_record(r))
        return false;
    *ret = (struct wal_pending){0};
    if (r->state == SKIP_CONT) {
        ret->left = (uint32_t)r->skip_left;
        return true;
    }
    ret->start = r->rec_start;
    ret->passed = r->passed;
    ret->head_len = (uint32_t)MIN(r->passed, sizeof ret->head);
    memcpy(ret->head, r->head, ret->head_len);
    ret->left = r->passed < 4 || r->passed > r->total ? 0 : (uint32_t)(r->total - r->passed);
    return true;
}
