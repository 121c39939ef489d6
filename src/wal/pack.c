#include "wal/pack.h"

#include "pg/wal_page.h"
#include "pg/wal_parse.h"

#define ITEM_HEAD 8u
#define ITEM_BYTES 0u
#define ITEM_ZEROS 1u
/* Fewer zeros stay among the bytes around them. */
#define ZEROS_MIN 64u
/* What of a no-op is not zero: its header and its chunk header, to the next multiple of 8. */
#define NOOP_HEAD 32u

static const uint8_t zero_page[PG_XLOG_BLCKSZ];

/* --- packing --------------------------------------------------------------------------------- */

struct packing {
    struct wal_packer *p;
    XLogRecPtr lsn; /* of the page */
    const uint8_t *page;
    uint8_t *out;     /* next free byte */
    uint32_t from;    /* bytes [from, …) of the page are not in an item yet */
    uint16_t run_len; /* the last item is a run of no-ops of this length, 0 = it is not */
    TransactionId run_xid;
    uint8_t *run;
};

static void put_item(struct packing *w, uint16_t kind, uint16_t n, uint32_t value)
{
    memcpy(w->out, &kind, 2);
    memcpy(w->out + 2, &n, 2);
    memcpy(w->out + 4, &value, 4);
    w->out += ITEM_HEAD;
}

/* What has been passed over becomes an item of bytes. */
static void put_bytes(struct packing *w, uint32_t upto)
{
    if (upto == w->from)
        return;
    XLogRecPtr from = w->lsn + w->from, last = w->p->last;
    uint32_t n = upto - w->from;
    w->run_len = 0;
    put_item(w, ITEM_BYTES, (uint16_t)n, last >= from ? (uint32_t)(w->lsn + upto - last) : 0);
    memcpy(w->out, w->page + w->from, n);
    w->out += n;
    w->from = upto;
}

/* [at, upto) becomes an item if it is nothing but zeros. */
static void put_zeros(struct packing *w, uint32_t at, uint32_t upto)
{
    if (upto < at + ZEROS_MIN || memcmp(w->page + at, zero_page, upto - at) != 0)
        return;
    put_bytes(w, at);
    put_item(w, ITEM_ZEROS, (uint16_t)(upto - at), 0);
    w->run_len = 0;
    w->from = upto;
}

static void put_noop(struct packing *w, uint32_t at, uint32_t total_len)
{
    TransactionId xid;
    memcpy(&xid, w->page + at + 4, 4);
    put_bytes(w, at);
    if (w->run_len == total_len && w->run_xid == xid) {
        uint16_t n;
        memcpy(&n, w->run + 2, 2);
        n++;
        memcpy(w->run + 2, &n, 2);
    } else {
        w->run = w->out;
        w->run_len = (uint16_t)total_len;
        w->run_xid = xid;
        put_item(w, (uint16_t)total_len, 1, xid);
    }
    w->from = at + (uint32_t)MAXALIGN8(total_len);
}

/* Offset of the first record that begins in the page, the page's end if none does. */
static uint32_t first_record(const struct packing *w)
{
    uint32_t rem, at = wal_page_header_size(w->lsn, w->p->segment_bytes);
    memcpy(&rem, w->page + 16, 4); /* xlp_rem_len */
    return rem < PG_XLOG_BLCKSZ - at ? at + (uint32_t)MAXALIGN8(rem) : PG_XLOG_BLCKSZ;
}

static bool is_noop(struct wal_packer *p, XLogRecPtr lsn, const uint8_t *record, uint32_t total_len)
{
    if (p->marks != NULL && noop_take_mark(p->marks, lsn))
        return noop_has_length(total_len);
    return noop_matches(&p->noops, record, total_len);
}

size_t wal_pack_page(struct wal_packer *p, XLogRecPtr lsn, const uint8_t *page, uint8_t *out)
{
    struct packing w = {.p = p, .lsn = lsn, .page = page, .out = out + 2};
    uint32_t at = first_record(&w);
    put_zeros(&w, wal_page_header_size(lsn, p->segment_bytes), at);
    while (at < PG_XLOG_BLCKSZ) {
        const uint8_t *record = page + at;
        uint32_t total_len = wal_header_total_len(record);
        if (total_len < SizeOfXLogRecord) { /* no more records: a switch went before, or damage */
            put_zeros(&w, at, PG_XLOG_BLCKSZ);
            break;
        }
        bool whole = total_len <= PG_XLOG_BLCKSZ - at;
        if (whole && p->last != 0 && wal_header_prev(record) == p->last &&
            is_noop(p, lsn + at, record, total_len))
            put_noop(&w, at, total_len);
        p->last = lsn + at;
        if (!whole) {
            put_zeros(&w, at + NOOP_HEAD, PG_XLOG_BLCKSZ);
            break;
        }
        at += (uint32_t)MAXALIGN8(total_len);
    }
    put_bytes(&w, PG_XLOG_BLCKSZ);
    uint16_t len = (uint16_t)(w.out - out - 2);
    memcpy(out, &len, 2);
    return len + 2u;
}

/* --- unpacking ------------------------------------------------------------------------------- */

static enum status damaged(XLogRecPtr lsn, struct error *err)
{
    return error_lsn(err, ERR_DATA, lsn, "a packed WAL page is damaged");
}

static enum status unpack_noops(struct wal_packer *p, XLogRecPtr page_lsn, uint8_t *page,
                                uint32_t *at, uint32_t total_len, uint32_t n, TransactionId xid,
                                struct error *err)
{
    uint32_t size = (uint32_t)MAXALIGN8(total_len);
    if (n == 0 || n > (PG_XLOG_BLCKSZ - *at) / size || !noop_has_length(total_len))
        return damaged(page_lsn + *at, err);
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *record = page + *at;
        memcpy(record, &total_len, 4);
        memcpy(record + 4, &xid, 4);
        memcpy(record + 8, &p->last, 8);
        noop_in_place(&p->noops, record, total_len);
        p->last = page_lsn + *at;
        *at += size;
    }
    return OK;
}

enum status wal_unpack_page(struct wal_packer *p, XLogRecPtr lsn, const uint8_t *items, size_t len,
                            uint8_t *page, struct error *err)
{
    uint32_t at = 0;
    while (len >= ITEM_HEAD) {
        uint16_t kind, n;
        uint32_t value;
        memcpy(&kind, items, 2);
        memcpy(&n, items + 2, 2);
        memcpy(&value, items + 4, 4);
        items += ITEM_HEAD;
        len -= ITEM_HEAD;
        if (kind > ITEM_ZEROS) {
            TRY(unpack_noops(p, lsn, page, &at, kind, n, value, err));
            continue;
        }
        if (n > PG_XLOG_BLCKSZ - at || (kind == ITEM_BYTES && (n > len || value > n)))
            return damaged(lsn + at, err);
        if (kind == ITEM_ZEROS) {
            memset(page + at, 0, n);
            at += n;
            continue;
        }
        memcpy(page + at, items, n);
        items += n;
        len -= n;
        at += n;
        if (value != 0)
            p->last = lsn + at - value;
    }
    return len == 0 && at == PG_XLOG_BLCKSZ ? OK : damaged(lsn + at, err);
}
