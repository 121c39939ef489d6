/* The thread of one standby's connection: commands, the stream. */
#include "shadow/walsender_conn.h"

#include "base/cursor.h"
#include "base/log.h"
#include "base/queue.h"
#include "shadow/priority.h"
#include "shadow/walsender_query.h"
#include "shadow/wire.h"
#include "wal/archive.h"

#include <endian.h>
#include <stdlib.h>

#define PIECE_MAX (128u << 10)
#define NUDGE_AGAIN_NS 20000000u
/* How much is kept back at most while rows go first, and how often to see whether they still do:
 * the second is what a hold in that time costs. */
#define KEPT_BACK_MAX ((uint64_t)1 << 30)
#define KEPT_BACK_NS 5000000u

enum status walsender_flush(struct walsender_conn *c, struct buf *b, struct error *err)
{
    enum status st = stream_write(&c->out, b->data, b->len, STREAM_NO_DEADLINE, err);
    buf_reset(b);
    return st;
}

enum status walsender_refuse(struct walsender_conn *c, const char *sqlstate, struct error *err)
{
    CLEANUP_BUF struct buf b = {0};
    struct error ignored;
    wire_error(&b, "FATAL", sqlstate, err->message);
    enum status st = walsender_flush(c, &b, &ignored);
    (void)st; /* the peer may be gone; either way this connection ends */
    return err->kind;
}

/* ---- the stream: what the standby says ---- */

/* Makes a sender that sleeps in the archive look around. */
static void nudge(struct walsender_conn *c)
{
    wal_archive_wake(c->ws->options.archive);
}

static enum status standby_message(struct walsender_conn *c, const struct buf *body,
                                   struct error *err)
{
    struct cursor m = cursor_of(body->data, body->len);
    uint8_t kind = cursor_u8(&m);
    if (kind == 'h') /* hot standby feedback: it does not matter to an archive */
        return OK;
    if (kind != 'r')
        return error_set(err, ERR_DATA, "a message of unknown kind 0x%02x in the stream", kind);
    cursor_u64(&m); /* written */
    XLogRecPtr flushed = be64toh(cursor_u64(&m));
    XLogRecPtr applied = be64toh(cursor_u64(&m));
    cursor_u64(&m); /* its clock */
    bool asked = cursor_u8(&m) != 0;
    if (!cursor_ok(&m) || cursor_left(&m) != 0)
        return error_set(err, ERR_DATA, "a status update of %zu bytes", body->len);
    shadow_walsender_note(c->ws, flushed, applied);
    if (asked) {
        atomic_store(&c->asked, true);
        nudge(c);
    }
    return OK;
}

static enum status receive_all(struct walsender_conn *c, struct error *err)
{
    CLEANUP_BUF struct buf body = {0};
    enum priority_step lowered = PRIORITY_WALRECEIVER;
    for (;;) {
        char type;
        if (lowered != PRIORITY_DONE)
            shadow_priority_lower(c->peer, &lowered);
        TRY(wire_read_message(&c->in, STREAM_NO_DEADLINE, &type, &body, err));
        switch (type) {
        case 'd':
            TRY(standby_message(c, &body, err));
            break;
        case 'c':
            c->copy_done = true;
            return OK;
        case 'X':
            return error_set(err, ERR_RETRY, "the client closed the connection");
        case 'H': /* Flush, Sync: allowed in COPY, say nothing */
        case 'S':
            break;
        default:
            return error_set(err, ERR_DATA, "a message of type 0x%02x in the stream", type);
        }
    }
}

/* A wake is lost on a sender that is only about to sleep: repeated until it has left its loop. */
static void nudge_until_left(struct walsender_conn *c)
{
    pthread_mutex_lock(&c->ws->lock);
    while (c->streaming) {
        nudge(c);
        uint64_t until = clock_now_ns() + NUDGE_AGAIN_NS;
        struct timespec t = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
        pthread_cond_timedwait(&c->ws->moved, &c->ws->lock, &t);
    }
    pthread_mutex_unlock(&c->ws->lock);
}

static void *receiver_main(void *arg)
{
    struct walsender_conn *c = arg;
    struct error err = {0};
    enum status st = receive_all(c, &err);
    if (st == ERR_DATA)
        log_warn("msg=\"walsender connection ended\" standby=%s err=%s", LOG_Q(c->application),
                 LOG_Q(err.message));
    if (st != OK)
        stream_cancel(&c->out); /* a sender inside a write leaves it */
    atomic_store(&c->copy_end, true);
    nudge_until_left(c);
    return NULL;
}

/* ---- the stream: what we say ---- */

static void put_keepalive(struct walsender_conn *c, bool reply, struct buf *b)
{
    size_t at = pgwire_begin(b, 'd');
    buf_put_u8(b, 'k');
    wire_put_be64(b, MAX(wal_archive_visible_lsn(c->ws->options.archive), c->sent));
    wire_put_be64(b, (uint64_t)wire_now_us());
    buf_put_u8(b, reply);
    pgwire_end(b, at);
}

/* One piece of WAL if there is any: *ret_got bytes. */
static enum status put_wal(struct walsender_conn *c, struct wal_archive_cursor *cursor,
                           XLogRecPtr lsn, struct buf *b, size_t *ret_got, struct error *err)
{
    size_t before = b->len;
    size_t at = pgwire_begin(b, 'd');
    buf_put_u8(b, 'w');
    wire_put_be64(b, lsn);
    wire_put_be64(b, MAX(wal_archive_visible_lsn(c->ws->options.archive), lsn));
    wire_put_be64(b, (uint64_t)wire_now_us());
    /* a record may be split between two messages at a page boundary only */
    size_t len = PIECE_MAX;
    if (wal_archive_visible_lsn(c->ws->options.archive) - lsn > PIECE_MAX)
        len -= (lsn + PIECE_MAX) % PG_XLOG_BLCKSZ;
    TRY(wal_archive_read(cursor, lsn, buf_reserve(b, PIECE_MAX), len, ret_got, err));
    b->len += *ret_got;
    if (*ret_got > 0)
        pgwire_end(b, at);
    else
        b->len = before;
    return OK;
}

static void note_sent(struct walsender_conn *c, XLogRecPtr lsn)
{
    pthread_mutex_lock(&c->ws->lock);
    c->sent = lsn;
    pthread_mutex_unlock(&c->ws->lock);
}

static bool kept_back(const struct walsender_conn *c, XLogRecPtr lsn)
{
    struct shadow_walsender *ws = c->ws;
    return clock_now_ns() < atomic_load(&ws->rows_first_until) && atomic_load(&ws->wanted) == 0 &&
           wal_archive_visible_lsn(ws->options.archive) < lsn + KEPT_BACK_MAX;
}

/* Sends until the receiver has ended. A reply is asked for once per position that someone waits
 * for, as soon as it was sent. */
static enum status send_all(struct walsender_conn *c, struct wal_archive_cursor *cursor,
                            XLogRecPtr lsn, struct buf *b, struct error *err)
{
    uint64_t keepalive_ns = (uint64_t)c->ws->options.keepalive_ms * 1000000u;
    uint64_t last = clock_now_ns();
    XLogRecPtr answered = 0;
    while (!atomic_load(&c->copy_end)) {
        size_t got = 0;
        bool back = kept_back(c, lsn);
        if (!back && put_wal(c, cursor, lsn, b, &got, err) != OK)
            return walsender_refuse(c, "58P01", err);
        lsn += got;
        XLogRecPtr wanted = atomic_load(&c->ws->wanted);
        bool ask = wanted != 0 && lsn >= wanted && wanted != answered;
        if (ask)
            answered = wanted;
        if (atomic_exchange(&c->asked, false) || ask || clock_now_ns() - last >= keepalive_ns)
            put_keepalive(c, ask, b);
        if (b->len > 0) {
            TRY(walsender_flush(c, b, err));
            last = clock_now_ns();
            note_sent(c, lsn);
        } else if (back) {
            nanosleep(&(struct timespec){.tv_nsec = KEPT_BACK_NS}, NULL);
        } else if (!atomic_load(&c->copy_end)) {
            wal_archive_wait(c->ws->options.archive, lsn, last + keepalive_ns);
        }
    }
    return OK;
}

static void set_streaming(struct walsender_conn *c, bool streaming, XLogRecPtr lsn)
{
    pthread_mutex_lock(&c->ws->lock);
    if (c->streaming != streaming)
        c->ws->nstreaming += streaming ? 1u : -1u;
    c->streaming = streaming;
    c->sent = lsn;
    pthread_cond_broadcast(&c->ws->moved);
    pthread_mutex_unlock(&c->ws->lock);
}

static enum status stream_from(struct walsender_conn *c, XLogRecPtr lsn, struct error *err)
{
    CLEANUP_BUF struct buf b = {0};
    pthread_t receiver;
    size_t at = pgwire_begin(&b, 'W'); /* CopyBothResponse: text, no columns */
    buf_put_u8(&b, 0);
    wire_put_be16(&b, 0);
    pgwire_end(&b, at);
    TRY(walsender_flush(c, &b, err));
    atomic_store(&c->copy_end, false);
    c->copy_done = false;
    if (pthread_create(&receiver, NULL, receiver_main, c) != 0)
        return error_set(err, ERR_RETRY, "cannot start a thread");
    log_info("msg=\"standby connected\" standby=%s lsn=" LSN_FMT, LOG_Q(c->application),
             LSN_ARGS(lsn));
    set_streaming(c, true, lsn);
    struct wal_archive_cursor *cursor = wal_archive_cursor_new(c->ws->options.archive);
    enum status st = send_all(c, cursor, lsn, &b, err);
    wal_archive_cursor_free(cursor);
    set_streaming(c, false, 0);
    if (st != OK)
        stream_cancel(&c->in); /* the receiver leaves its read */
    pthread_join(receiver, NULL);
    if (st != OK || !c->copy_done)
        return st != OK ? st : error_set(err, ERR_RETRY, "the client closed the connection");
    buf_reset(&b);
    pgwire_end(&b, pgwire_begin(&b, 'c'));
    wire_complete(&b, "START_STREAMING");
    wire_ready(&b);
    return walsender_flush(c, &b, err);
}

/* ---- commands ---- */

/* True if the stream may start; else an error is in b. */
static bool may_start(struct walsender_conn *c, const struct walsender_query *q, struct buf *b)
{
    char text[160];
    XLogRecPtr oldest = wal_archive_oldest_lsn(c->ws->options.archive);
    if (q->timeline != 0 && q->timeline != c->ws->options.timeline) {
        snprintf(text, sizeof text, "timeline %u was asked for, timeline %u is served", q->timeline,
                 c->ws->options.timeline);
        wire_error(b, "ERROR", "55000", text);
        return false;
    }
    if (q->lsn < oldest) {
        snprintf(text, sizeof text,
                 "WAL at " LSN_FMT " has already been removed; the archive begins at " LSN_FMT,
                 LSN_ARGS(q->lsn), LSN_ARGS(oldest));
        wire_error(b, "ERROR", "58P01", text);
        return false;
    }
    return true;
}

static enum status run_query(struct walsender_conn *c, const struct buf *body, struct error *err)
{
    CLEANUP_BUF struct buf b = {0};
    struct walsender_query q = {0};
    struct error bad = {0};
    size_t len = strnlen((const char *)body->data, body->len);
    if (walsender_query_parse((const char *)body->data, len, &q, &bad) != OK) {
        wire_error(&b, "ERROR", "42601", bad.message);
    } else {
        switch (q.command) {
        case WALSENDER_IDENTIFY_SYSTEM:
            walsender_identify_system(c, &b);
            break;
        case WALSENDER_SHOW:
            walsender_show(c, q.name, &b);
            break;
        case WALSENDER_TIMELINE_HISTORY:
            walsender_timeline_history(c, q.timeline, &b);
            break;
        case WALSENDER_READ_SLOT:
            walsender_read_slot(&b);
            break;
        case WALSENDER_START_PHYSICAL:
            if (may_start(c, &q, &b))
                return stream_from(c, q.lsn, err);
            break;
        }
    }
    wire_ready(&b);
    return walsender_flush(c, &b, err);
}

static enum status serve(struct walsender_conn *c, struct error *err)
{
    CLEANUP_BUF struct buf body = {0};
    TRY(walsender_log_in(c, err));
    for (;;) {
        char type;
        TRY(wire_read_message(&c->out, STREAM_NO_DEADLINE, &type, &body, err));
        if (type == 'X')
            return OK;
        if (type != 'Q') {
            error_set(err, ERR_DATA,
                      "a message of type 0x%02x; only simple queries are served here",
                      (unsigned char)type);
            return walsender_refuse(c, "08P01", err);
        }
        TRY(run_query(c, &body, err));
    }
}

void *walsender_conn_main(void *arg)
{
    struct walsender_conn *c = arg;
    struct error err = {0};
    enum status st = serve(c, &err);
    if (st == ERR_DATA || st == ERR_CONFIG || st == ERR_BUG)
        log_warn("msg=\"walsender connection ended\" standby=%s err=%s", LOG_Q(c->application),
                 LOG_Q(err.message));
    else
        log_debug("msg=\"walsender connection ended\" standby=%s reason=%s", LOG_Q(c->application),
                  LOG_Q(err.message));
    stream_cancel(&c->in);
    stream_cancel(&c->out);
    pthread_mutex_lock(&c->ws->lock);
    c->finished = true;
    pthread_mutex_unlock(&c->ws->lock);
    return NULL;
}
