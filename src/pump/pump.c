#include "pump/pump.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/queue.h"
#include "pg/xlog_record.h"
#include "wal/filter.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A batch wakes the reorder stage, which costs more than a smaller one saves in cache. */
#define BATCH_BYTES ((size_t)512 << 10)
#define ROWS_FIRST_BYTES ((uint64_t)64 << 20)
#define ROWS_FIRST_NS 100000000u
#define BATCH_AGE_NS 20000000u /* rows of a source that is never idle wait no longer for more */
#define FLUSH_GAP_NS 4000000u  /* handing rows on wakes several threads: not for every commit */
#define BACKOFF_FIRST_MS 100u
#define BACKOFF_MAX_MS 10000u
#define IDLE_WAIT_NS 1000000000u
#define WINDOW_WAIT_NS 10000000u /* whoever stops a window waits for its end */
#define SLOT_BUSY_NS                                                                               \
    UINT64_C(60000000000) /* longer is not a connection of ours that was cut (A4) */
#define KEEP_MAX ((size_t)64 << 20)

struct pump {
    struct pump_options options;
    pthread_t thread;
    struct wal_filter *filter;
    struct records *records;
    struct feed_batch *batch;
    uint64_t flushed_ns;  /* when rows were told to leave last */
    bool rows_left;       /* the last batch told them to */
    pthread_mutex_t lock; /* guards repl (the pointer), waiting, stop wake-ups, paused */
    pthread_cond_t wake;
    struct source_repl *repl;
    bool repl_streams; /* else it is connecting: its calls may wait for the source */
    char waiting[300];
    bool paused;
    bool server_is_shutting_down; /* the last record is a shutdown checkpoint (A3) */
    atomic_bool stopping;
    atomic_ullong stop_at;
    atomic_ullong received, server_end;
    atomic_int backend_pid;
    atomic_bool parked;      /* paused, and nothing more is read */
    atomic_ullong looked_ns; /* when the stream was last listened to, 0 = there is none */
    XLogRecPtr sent_flush;
    XLogRecPtr last_end, ended_at; /* window mode */
    XLogRecPtr record_end;         /* of the last record */
    bool record_is_switch;         /* and for a standby it ends only with its segment */
    XLogRecPtr look_at;            /* from where on a look may be due */
    XLogRecPtr published;          /* the archive's limit */
    uint64_t saved_version;        /* of the filenodes */
    uint64_t released_version;
    uint64_t first_segment;
    bool filter_ended; /* after an error in a record or in what was done about it */
};

static enum status feed_batch(struct pump *p, XLogRecPtr end, bool idle, struct error *err)
{
    struct feed_batch *b = p->batch;
    b->end = end;
    b->idle = p->rows_left = idle;
    p->batch = xcalloc(1, sizeof *p->batch);
    p->batch->end = end;
    return p->options.feed(p->options.ctx, b, err);
}

static enum status flush_batch(struct pump *p, struct error *err)
{
    if (p->options.feed == NULL)
        return OK;
    XLogRecPtr end = atomic_load(&p->received);
    p->flushed_ns = clock_now_ns();
    if (p->batch->frames.len == 0 && p->batch->end == end && p->rows_left)
        return OK;
    return feed_batch(p, end, true, err);
}

static enum status save_filenodes(struct pump *p, struct error *err)
{
    uint64_t version = catalog_filenodes_version(p->options.filenodes);
    if (version == p->saved_version || p->options.filenodes_path == NULL)
        return OK;
    TRY(catalog_filenodes_save(p->options.filenodes, p->options.filenodes_path, err));
    p->saved_version = version;
    return OK;
}

static enum status on_output(void *ctx, XLogRecPtr lsn, const uint8_t *data, size_t len,
                             struct error *err)
{
    struct pump *p = ctx;
    XLogRecPtr written = wal_archive_written_lsn(p->options.archive);
    if (lsn + len <= written)
        return OK; /* read again after a restart: it is there */
    if (lsn < written) {
        data += written - lsn;
        len -= (size_t)(written - lsn);
        lsn = written;
    }
    return wal_archive_write(p->options.archive, lsn, data, len, wal_filter_marks(p->filter), err);
}

/* A standby takes for granted that a record is never split but at a page boundary (streaming
 * replication protocol): what it may see ends at a record's end or at a page's. */
static void publish(struct pump *p)
{
    XLogRecPtr output = wal_filter_output_lsn(p->filter);
    XLogRecPtr safe = output - output % PG_XLOG_BLCKSZ;
    if (p->record_end <= output)
        safe = MAX(safe, p->record_end);
    if (safe > p->published) {
        p->published = safe;
        wal_archive_set_limit(p->options.archive, safe);
    }
}

/* The window ends at a record's end, so that the shadow can be stopped exactly there. */
static enum status window_end_check(struct pump *p, struct error *err)
{
    if (p->last_end < atomic_load(&p->stop_at))
        return OK;
    if (p->options.window_may_end != NULL && !p->options.window_may_end(p->options.ctx))
        return OK;
    TRY(wal_filter_flush(p->filter, err));
    publish(p);
    p->ended_at = p->last_end;
    return error_set(err, ERR_CANCELLED, "the window ends");
}

static enum status window_record(struct pump *p, const struct wal_record *record, struct error *err)
{
    TRY(p->options.window_record(p->options.ctx, record, err));
    p->last_end = record->end;
    if (!wal_record_is_xlog(record, XLOG_SWITCH))
        return window_end_check(p, err);
    /* a standby counts the rest of the segment to it: the end is known once that has come */
    p->last_end =
        lsn_segment_start(record->end + p->options.segment_bytes - 1, p->options.segment_bytes);
    return OK;
}

static void user_file(void *ctx, Oid filenode)
{
    struct pump *p = ctx;
    catalog_filenodes_remove(p->options.filenodes, p->options.database, filenode);
}

/* A transaction with a lock on a catalog may have made new files of tables, too (notes C1). Now
 * that they are known to be these tables', they do not go to the shadow any more. */
static void release_user_files(struct pump *p, XLogRecPtr lsn)
{
    struct rel_desc **all;
    size_t n;
    if (catalog_filenodes_version(p->options.filenodes) == p->released_version)
        return;
    history_all(p->options.records.history, lsn, &all, &n);
    for (size_t i = 0; i < n; i++) {
        user_file(p, all[i]->locator.rel_number);
        user_file(p, all[i]->toast_locator.rel_number);
        rel_desc_unref(all[i]);
    }
    free(all);
    p->released_version = catalog_filenodes_version(p->options.filenodes);
}

/* At the end of a record: shapes that could not be seen at their boundary. */
static enum status look(struct pump *p, XLogRecPtr end, struct error *err)
{
    XLogRecPtr seen = 0;
    if (p->record_is_switch || !p->options.look_due(p->options.ctx, end, &p->look_at))
        return OK;
    TRY(wal_filter_flush(p->filter, err));
    publish(p);
    TRY(p->options.look(p->options.ctx, end, &seen, err));
    release_user_files(p, end);
    if (seen == 0)
        return OK;
    struct shapes_frame f = {.head = {.len = sizeof f, .type = FRAME_SHAPES, .lsn = end},
                             .end = seen};
    buf_put(&p->batch->frames, &f, sizeof f);
    return OK;
}

static enum status on_record(void *ctx, const struct wal_record *record, bool forwarded,
                             struct error *err)
{
    struct pump *p = ctx;
    p->record_end = record->end;
    p->server_is_shutting_down = wal_record_is_xlog(record, XLOG_CHECKPOINT_SHUTDOWN);
    if (p->options.feed == NULL)
        return window_record(p, record, err);
    p->record_is_switch = wal_record_is_xlog(record, XLOG_SWITCH);
    TRY(records_take(p->records, record, forwarded, &p->batch->frames, err));
    if (__builtin_expect(record->end >= p->look_at, 0))
        TRY(look(p, record->end, err));
    if (p->batch->frames.len >= BATCH_BYTES) {
        /* its end is that of this record, not of what was received */
        return feed_batch(p, record->end, false, err);
    }
    return OK;
}

static enum status on_boundary(void *ctx, XLogRecPtr commit_end, const Oid *oids, size_t n,
                               bool all, struct error *err)
{
    struct pump *p = ctx;
    TRY(wal_filter_flush(p->filter, err));
    publish(p);
    TRY(save_filenodes(p, err));
    p->look_at = 0; /* it may be passed unseen */
    TRY(p->options.records.boundary(p->options.records.ctx, commit_end, oids, n, all, err));
    release_user_files(p, commit_end);
    return OK;
}

static Oid catalog_oid(void *ctx, struct rel_file_locator locator)
{
    struct pump *p = ctx;
    return p->options.records.catalog_oid(p->options.records.ctx, locator);
}

static void set_waiting(struct pump *p, const char *text)
{
    pthread_mutex_lock(&p->lock);
    snprintf(p->waiting, sizeof p->waiting, "%.299s", text);
    pthread_mutex_unlock(&p->lock);
}

static void set_repl(struct pump *p, struct source_repl *repl)
{
    pthread_mutex_lock(&p->lock);
    struct source_repl *old = p->repl;
    p->repl = repl;
    p->repl_streams = false;
    atomic_store(&p->looked_ns, 0);
    atomic_store(&p->backend_pid, repl == NULL ? 0 : source_repl_backend_pid(repl));
    if (repl != NULL && atomic_load(&p->stopping))
        source_repl_wake(repl);
    pthread_mutex_unlock(&p->lock);
    source_repl_close(old);
}

/* A wait that stop ends. */
static void pump_sleep(struct pump *p, unsigned ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&p->lock);
    while (!atomic_load(&p->stopping) && pthread_cond_timedwait(&p->wake, &p->lock, &until) == 0)
        ;
    pthread_mutex_unlock(&p->lock);
}

static enum status check_identity(struct pump *p, struct source_repl *repl, struct error *err)
{
    struct source_identity id;
    TRY(source_repl_identify(repl, &id, err));
    if (id.system_id != p->options.system_id)
        return error_set(err, ERR_CONFIG,
                         "the source is another cluster now (system identifier %llu, was %llu): "
                         "connect to the old one, or remove the state directory",
                         (unsigned long long)id.system_id,
                         (unsigned long long)p->options.system_id);
    if (id.timeline != p->options.timeline)
        return error_set(err, ERR_CONFIG,
                         "the source's timeline is %u, was %u: it was promoted or restored. "
                         "Following it is not supported: remove the state directory and load again",
                         id.timeline, p->options.timeline);
    return OK;
}

static enum status connect_once(struct pump *p, struct error *err)
{
    struct source_repl *repl;
    TRY(source_repl_open(p->options.conninfo, p->options.application_name, &repl, err));
    set_repl(p, repl);
    TRY(check_identity(p, repl, err));
    TRY(source_repl_start(repl, p->options.slot, wal_filter_next_lsn(p->filter),
                          p->options.timeline, err));
    pthread_mutex_lock(&p->lock);
    p->repl_streams = true;
    pthread_mutex_unlock(&p->lock);
    return OK;
}

/* object_in_use, for so long that another client must be meant to read this slot. */
static enum status check_slot_busy(const struct pump *p, uint64_t *since_ns, struct error *err)
{
    char what[300];
    if (strcmp(err->sqlstate, "55006") != 0) {
        *since_ns = 0;
        return OK;
    }
    if (*since_ns == 0)
        *since_ns = clock_now_ns();
    if (clock_now_ns() - *since_ns < SLOT_BUSY_NS)
        return OK;
    snprintf(what, sizeof what, "%.299s", err->message);
    return error_set(err, ERR_CONFIG,
                     "slot %s is in use by another client (%s): stop it, or set source.slot",
                     p->options.slot, what);
}

static enum status connect_until_done(struct pump *p, struct error *err)
{
    unsigned backoff = BACKOFF_FIRST_MS;
    uint64_t busy_since_ns = 0;
    for (;;) {
        if (atomic_load(&p->stopping))
            return error_set(err, ERR_CANCELLED, "stopping");
        enum status st = connect_once(p, err);
        if (st == OK)
            break;
        set_repl(p, NULL);
        if (st != ERR_RETRY)
            return st;
        TRY(check_slot_busy(p, &busy_since_ns, err));
        char text[300];
        snprintf(text, sizeof text, "source: %.220s, retry in %u ms", err->message, backoff);
        set_waiting(p, text);
        log_warn("msg=\"cannot stream from the source\" retry_ms=%u error=%s", backoff,
                 LOG_Q(err->message));
        pump_sleep(p, backoff);
        backoff = MIN(2 * backoff, BACKOFF_MAX_MS);
    }
    set_waiting(p, "");
    log_info("msg=streaming lsn=" LSN_FMT, LSN_ARGS(wal_filter_next_lsn(p->filter)));
    return OK;
}

/* Far behind the source the rows go first: what the shadow needs is in the archive, and it is sent
 * as soon as a boundary waits for it. */
static void rows_first(struct pump *p, const struct source_chunk *c)
{
    if (p->options.walsender != NULL && c->server_end > c->lsn + c->len + ROWS_FIRST_BYTES)
        shadow_walsender_rows_first(p->options.walsender, clock_now_ns() + ROWS_FIRST_NS);
}

static enum status take_data(struct pump *p, const struct source_chunk *c, struct error *err)
{
    enum status st = wal_filter_feed(p->filter, c->lsn, c->data, c->len, err);
    if (st != OK) {
        p->filter_ended = true; /* whatever the reason: it cannot go on from here */
        return st;
    }
    publish(p);
    rows_first(p, c);
    atomic_store(&p->received, c->lsn + c->len);
    if (c->server_end > atomic_load(&p->server_end))
        atomic_store(&p->server_end, c->server_end);
    if (p->options.window_position != NULL)
        p->options.window_position(p->options.ctx, c->lsn + c->len);
    if (p->options.max_segments > 0 &&
        (c->lsn + c->len) / p->options.segment_bytes - p->first_segment >=
            p->options.max_segments) {
        p->options.segments_done(p->options.ctx);
        p->options.max_segments = 0;
    }
    return OK;
}

/* A3: a source in fast shutdown waits until its standbys have flushed everything, which we cannot
 * promise: leave, and come back when it is up again. */
static enum status keepalive(struct pump *p, const struct source_chunk *c, struct error *err)
{
    if (c->server_end > atomic_load(&p->server_end))
        atomic_store(&p->server_end, c->server_end);
    if (!c->reply_requested)
        return OK;
    if (p->server_is_shutting_down && atomic_load(&p->received) >= c->server_end)
        return error_set(err, ERR_RETRY, "the source is shutting down");
    return pump_send_status(p, 0, err);
}

static bool is_paused(struct pump *p)
{
    pthread_mutex_lock(&p->lock);
    bool paused = p->paused;
    pthread_mutex_unlock(&p->lock);
    return paused;
}

static enum status wait_while_paused(struct pump *p, struct error *err)
{
    if (is_paused(p)) /* what was read goes on its way: the pause ends when it has arrived */
        TRY(flush_batch(p, err));
    pthread_mutex_lock(&p->lock);
    while (p->paused && !atomic_load(&p->stopping)) {
        atomic_store(&p->parked, true);
        pthread_cond_wait(&p->wake, &p->lock);
    }
    atomic_store(&p->parked, false);
    pthread_mutex_unlock(&p->lock);
    return atomic_load(&p->stopping) ? error_set(err, ERR_CANCELLED, "stopping") : OK;
}

static uint64_t idle_wait_ns(const struct pump *p)
{
    return p->options.feed == NULL ? WINDOW_WAIT_NS : IDLE_WAIT_NS;
}

static enum status read_stream(struct pump *p, struct error *err)
{
    for (;;) {
        struct source_chunk c;
        atomic_store(&p->looked_ns, clock_now_ns());
        TRY(wait_while_paused(p, err));
        TRY(source_repl_receive(p->repl, 0, &c, err)); /* what is there already */
        if (c.kind == SOURCE_CHUNK_NONE && clock_now_ns() < p->flushed_ns + FLUSH_GAP_NS)
            TRY(source_repl_receive(p->repl, p->flushed_ns + FLUSH_GAP_NS, &c, err));
        if (c.kind == SOURCE_CHUNK_NONE) {
            if (p->options.feed != NULL && p->record_end != 0 && p->record_end >= p->look_at)
                TRY(look(p, p->record_end, err));
            TRY(flush_batch(p, err));
            TRY(save_filenodes(p, err));
            if (p->options.feed == NULL && atomic_load(&p->received) >= p->last_end)
                TRY(window_end_check(p, err));
            TRY(source_repl_receive(p->repl, clock_now_ns() + idle_wait_ns(p), &c, err));
        }
        switch (c.kind) {
        case SOURCE_CHUNK_NONE:
            break;
        case SOURCE_CHUNK_DATA:
            TRY(take_data(p, &c, err));
            if (clock_now_ns() - p->flushed_ns > BATCH_AGE_NS)
                TRY(flush_batch(p, err));
            break;
        case SOURCE_CHUNK_KEEPALIVE:
            TRY(keepalive(p, &c, err));
            break;
        case SOURCE_CHUNK_ENDED:
            return error_set(err, ERR_RETRY, "the source ended the stream");
        }
    }
}

static void *pump_main(void *arg)
{
    struct pump *p = arg;
    struct error err;
    enum status st;
    pthread_setname_np(pthread_self(), "pump");
    do {
        st = connect_until_done(p, &err);
        if (st == OK) {
            st = read_stream(p, &err);
            if (st == ERR_RETRY && !p->filter_ended)
                log_warn("msg=\"stream interrupted\" error=%s", LOG_Q(err.message));
        }
        set_repl(p, NULL);
    } while (st == ERR_RETRY && !p->filter_ended);
    if (st == ERR_CANCELLED && p->options.feed != NULL && !fatal_is_set(p->options.fatal))
        st = flush_batch(p, &err);
    if (st != OK && st != ERR_CANCELLED)
        fatal_raise(p->options.fatal, &err);
    return NULL;
}

static enum status filter_open(struct pump *p, struct error *err)
{
    struct wal_filter_options fo = {
        .major = p->options.major,
        .segment_bytes = p->options.segment_bytes,
        .system_id = p->options.system_id,
        .database = p->options.database,
        .filenodes = p->options.filenodes,
        .keep_max = KEEP_MAX,
        .ctx = p,
        .on_record = on_record,
        .on_output = on_output,
    };
    if (wal_archive_oldest_lsn(p->options.archive) < p->options.start &&
        p->options.start <= wal_archive_sealed_lsn(p->options.archive))
        TRY(wal_archive_straddle_head(p->options.archive, p->options.start, &fo.straddle,
                                      &fo.straddle_head, err));
    p->filter = wal_filter_new(&fo, p->options.start);
    return OK;
}

enum status pump_start(const struct pump_options *options, struct pump **ret, struct error *err)
{
    struct pump *p = xcalloc(1, sizeof *p);
    pthread_condattr_t attr;
    p->options = *options;
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->wake, &attr);
    pthread_condattr_destroy(&attr);
    atomic_store(&p->received, options->start);
    atomic_store(&p->stop_at, UINT64_MAX);
    p->saved_version = UINT64_MAX;
    p->published = wal_archive_visible_lsn(options->archive);
    wal_archive_set_limit(options->archive, p->published);
    p->first_segment = options->start / options->segment_bytes;
    p->batch = xcalloc(1, sizeof *p->batch);
    p->batch->end = options->start;
    struct records_options ro = options->records;
    ro.major = options->major;
    ro.database = options->database;
    ro.boundary = on_boundary;
    ro.catalog_oid = catalog_oid;
    ro.user_file = user_file;
    ro.ctx = p;
    p->records = records_new(&ro);
    enum status st = filter_open(p, err);
    if (st == OK && pthread_create(&p->thread, NULL, pump_main, p) != 0)
        st = error_sys(err, ERR_RETRY, "cannot start a thread");
    if (st != OK) {
        pump_free(p);
        return st;
    }
    *ret = p;
    return OK;
}

void pump_stop_at(struct pump *p, XLogRecPtr lsn)
{
    atomic_store(&p->stop_at, lsn); /* an idle source: seen within WINDOW_WAIT_NS */
}

void pump_stop(struct pump *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->stopping, true);
    if (p->repl != NULL)
        source_repl_wake(p->repl);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

XLogRecPtr pump_join(struct pump *p)
{
    pthread_join(p->thread, NULL);
    return p->ended_at;
}

void pump_free(struct pump *p)
{
    if (p == NULL)
        return;
    wal_filter_free(p->filter);
    records_free(p->records);
    feed_batch_free(p->batch);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->wake);
    free(p);
}

void pump_pause(struct pump *p, bool paused)
{
    pthread_mutex_lock(&p->lock);
    p->paused = paused;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

bool pump_is_parked(const struct pump *p)
{
    return atomic_load(&p->parked) || atomic_load(&p->backend_pid) == 0;
}

enum status pump_send_status(struct pump *p, XLogRecPtr flush, struct error *err)
{
    enum status st = OK;
    pthread_mutex_lock(&p->lock);
    p->sent_flush = MAX(p->sent_flush, flush);
    if (p->repl_streams)
        st = source_repl_status(p->repl, atomic_load(&p->received), p->sent_flush, p->sent_flush,
                                false, err);
    pthread_mutex_unlock(&p->lock);
    return st;
}

XLogRecPtr pump_received_lsn(const struct pump *p)
{
    return atomic_load(&p->received);
}

XLogRecPtr pump_server_lsn(const struct pump *p)
{
    return atomic_load(&p->server_end);
}

uint64_t pump_unheard_ns(const struct pump *p)
{
    uint64_t looked = atomic_load(&p->looked_ns), now = clock_now_ns();
    return looked == 0 || looked > now ? 0 : now - looked;
}

void pump_disconnect(struct pump *p)
{
    pthread_mutex_lock(&p->lock);
    if (p->repl_streams)
        source_repl_cut(p->repl);
    p->repl_streams = false;
    atomic_store(&p->looked_ns, 0);
    atomic_store(&p->backend_pid, 0);
    pthread_mutex_unlock(&p->lock);
}

bool pump_connected(const struct pump *p)
{
    return atomic_load(&p->backend_pid) != 0;
}

int pump_backend_pid(const struct pump *p)
{
    return atomic_load(&p->backend_pid);
}

void pump_waiting(struct pump *p, char *text, size_t cap)
{
    pthread_mutex_lock(&p->lock);
    snprintf(text, cap, "%s", p->waiting);
    pthread_mutex_unlock(&p->lock);
}
