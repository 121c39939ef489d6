/* Frames for the tests of the transaction buffer, and what a transaction turns out to hold. */
#pragma once
#include "xact/buffer.h"
#include "test.h"

/* What one frame says, for comparing. */
struct seen {
    XLogRecPtr lsn;
    TransactionId xid;
    uint32_t kind; /* enum change_kind */
    uint16_t ordinal;
    uint8_t flags;
    uint32_t payload; /* fills the tuple */
    uint32_t len;     /* of the tuple */
};

struct seen_list {
    struct seen *items;
    size_t n, cap;
};

static inline void seen_add(struct seen_list *list, struct seen item)
{
    if (list->n == list->cap) {
        list->cap = list->cap == 0 ? 64 : 2 * list->cap;
        list->items = xrealloc(list->items, list->cap * sizeof *list->items);
    }
    list->items[list->n++] = item;
}

static inline void seen_free(struct seen_list *list)
{
    free(list->items);
    *list = (struct seen_list){0};
}
#define CLEANUP_SEEN __attribute__((cleanup(seen_free)))

/* A change whose tuple is `len` bytes made of `payload`. */
static inline void change_put(struct buf *out, struct seen what, TransactionId top)
{
    uint8_t *body = xmalloc(what.len);
    for (uint32_t i = 0; i < what.len; i++)
        body[i] = (uint8_t)(what.payload >> (i % 4 * 8));
    struct change c = {
        .kind = (uint8_t)what.kind,
        .flags = what.flags,
        .ordinal = what.ordinal,
        .lsn = what.lsn,
        .locator = {1663, 5, 20000 + what.payload % 7},
        .new_tid = what.payload,
        .has_new = what.len > 0,
        .new_tuple =
            {.infomask2 = 3, .infomask = 2, .hoff = 24, .body_len = what.len, .body = body},
    };
    frame_put_change(out, &c, what.xid, top);
    free(body);
}

static inline void change_add(struct xact_buffer *b, struct seen what, TransactionId top)
{
    struct error err = {0};
    CLEANUP_BUF struct buf frame = {0};
    change_put(&frame, what, top);
    assert_ok(xact_buffer_add(b, (struct frame_head *)frame.data, &err));
}

/* An insert of 60 bytes: the common case. */
static inline void insert_add(struct xact_buffer *b, TransactionId xid, TransactionId top,
                              XLogRecPtr lsn)
{
    change_add(
        b, (struct seen){.lsn = lsn, .xid = xid, .payload = (uint32_t)lsn * 2654435761u, .len = 60},
        top);
}

/* PREPARE TRANSACTION 'gid' of the transaction. */
static inline void prepare(struct xact_buffer *b, TransactionId xid, const char *gid)
{
    CLEANUP_BUF struct buf frame = {0};
    struct xact_frame f = {.head = {.type = FRAME_PREPARE, .xid = xid},
                           .commit_ts = 77,
                           .gid_len = (uint32_t)strlen(gid)};
    buf_put(&frame, &f, sizeof f);
    buf_put(&frame, gid, f.gid_len + 1u);
    xact_buffer_prepare(b, (const struct xact_frame *)frame.data);
}

/* Checks the frame's bytes and tells what it says. */
static inline struct seen frame_seen(const struct frame_head *head)
{
    const struct change_frame *f = (const struct change_frame *)head;
    struct seen s = {.lsn = head->lsn,
                     .xid = head->xid,
                     .kind = f->kind,
                     .ordinal = head->ordinal,
                     .flags = (uint8_t)(head->flags & ~(FRAME_HAS_NEW | FRAME_HAS_OLD)),
                     .payload = (uint32_t)f->new_tid,
                     .len = f->new_len};
    assert_int_equal(head->type, FRAME_CHANGE);
    assert_int_equal((head->flags & FRAME_HAS_NEW) != 0, f->new_len > 0);
    struct raw_tuple t = change_frame_new(f);
    for (uint32_t i = 0; i < t.body_len; i++)
        assert_int_equal(t.body[i], (uint8_t)(s.payload >> (i % 4 * 8)));
    assert_int_equal(f->locator.rel_number, 20000 + s.payload % 7);
    return s;
}

static inline void xact_list(struct xact *x, struct seen_list *ret)
{
    struct error err = {0};
    struct xact_reader *r = xact_reader_open(x);
    struct frame_head *head;
    for (;;) {
        assert_ok(xact_reader_next(r, &head, &err));
        if (head == NULL)
            break;
        seen_add(ret, frame_seen(head));
    }
    assert_ok(xact_reader_next(r, &head, &err)); /* the end stays the end */
    assert_null(head);
    /* the second pass, as planning and slicing read it, is the same */
    xact_reader_rewind(r);
    for (size_t i = 0; i < ret->n; i++) {
        assert_ok(xact_reader_next(r, &head, &err));
        assert_non_null(head);
        assert_true(head->lsn == ret->items[i].lsn);
    }
    assert_ok(xact_reader_next(r, &head, &err));
    assert_null(head);
    xact_reader_close(r);
}

static inline void assert_seen_equal(const struct seen_list *got, const struct seen_list *want)
{
    for (size_t i = 0; i < MIN(got->n, want->n); i++) {
        const struct seen *a = &got->items[i], *b = &want->items[i];
        if (a->lsn != b->lsn || a->xid != b->xid || a->kind != b->kind ||
            a->ordinal != b->ordinal || a->flags != b->flags || a->payload != b->payload ||
            a->len != b->len)
            fail_msg("frame %zu: lsn %llu xid %u kind %u flags %u len %u, expected lsn %llu xid %u "
                     "kind %u flags %u len %u",
                     i, (unsigned long long)a->lsn, a->xid, a->kind, a->flags, a->len,
                     (unsigned long long)b->lsn, b->xid, b->kind, b->flags, b->len);
    }
    assert_int_equal(got->n, want->n);
}

/* Commits xid and compares the LSNs of what it holds. n 0: it holds nothing, or is not known. */
static inline void assert_commits(struct xact_buffer *b, TransactionId xid,
                                  const TransactionId *subs, uint32_t nsub, const XLogRecPtr *lsns,
                                  size_t n)
{
    CLEANUP_SEEN struct seen_list got = {0};
    struct xact *x = xact_buffer_take(b, xid, subs, nsub);
    if (x != NULL)
        xact_list(x, &got);
    for (size_t i = 0; i < MIN(n, got.n); i++)
        assert_int_equal(got.items[i].lsn, lsns[i]);
    assert_int_equal(got.n, n);
    xact_buffer_release(b, x);
}
#define COMMITS(b, xid, subs, nsub, ...)                                                           \
    assert_commits(b, xid, subs, nsub, (const XLogRecPtr[]){__VA_ARGS__},                          \
                   sizeof((const XLogRecPtr[]){__VA_ARGS__}) / sizeof(XLogRecPtr))
