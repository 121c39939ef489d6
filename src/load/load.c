#include "load/load.h"

#include "base/file.h"
#include "base/log.h"
#include "load/byte_pipe.h"
#include "load/load_internal.h"
#include "load/undecided_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#define WAITING_MAX_DEFAULT ((size_t)64 << 20)
#define UNDECIDED_MAX_DEFAULT ((size_t)16 << 20)
#define TOASTED_MAX ((size_t)8 << 20)
#define PIPE_BYTES ((size_t)2 << 20)

static uint32_t locator_hash(struct rel_file_locator l)
{
    return (l.rel_number * 0x9e3779b1u) ^ (l.spc_oid * 0x85ebca6bu) ^ (l.db_oid * 0xc2b2ae35u);
}

static void rels_index(struct load *l)
{
    size_t size = 16;
    while (size < 2 * l->nrels)
        size *= 2;
    l->by_locator = xcalloc(size, sizeof(struct load_rel *));
    l->by_locator_mask = size - 1;
    for (size_t i = 0; i < l->nrels; i++) {
        size_t at = locator_hash(l->rels[i].locator) & l->by_locator_mask;
        while (l->by_locator[at] != NULL)
            at = (at + 1) & l->by_locator_mask;
        l->by_locator[at] = &l->rels[i];
    }
}

struct load_rel *load_rel_find(const struct load *l, struct rel_file_locator locator)
{
    size_t at = locator_hash(locator) & l->by_locator_mask;
    for (; l->by_locator[at] != NULL; at = (at + 1) & l->by_locator_mask)
        if (rel_file_locator_equal(l->by_locator[at]->locator, locator))
            return l->by_locator[at];
    return NULL;
}

/* Ends every wait of the load; under no lock of it. */
static void wake_all(void *ctx)
{
    struct load *l = ctx;
    atomic_store(&l->cancelled, true);
    byte_pipe_cancel(l->pipe);
    release_cancel(l->release);
    pthread_mutex_lock(&l->window.lock);
    pthread_cond_broadcast(&l->window.moved);
    pthread_mutex_unlock(&l->window.lock);
}

static void rels_free(struct load *l)
{
    for (size_t i = 0; i < l->nrels; i++) {
        page_batch_free(l->rels[i].images);
        block_set_free(&l->rels[i].covered);
        free(l->rels[i].accepted);
        buf_free(&l->rels[i].toasted_rows);
        rel_desc_unref(l->rels[i].desc);
    }
    free(l->rels);
    free(l->by_locator);
}

void load_set_relations(struct load *l, struct rel_desc *const *rels, size_t n)
{
    rels_free(l);
    l->rels = xcalloc(2 * n + 1, sizeof *l->rels);
    l->nrels = 0;
    for (size_t i = 0; i < n; i++) {
        struct load_rel *rel = &l->rels[l->nrels++];
        rel->desc = rel_desc_ref(rels[i]);
        rel->locator = rels[i]->locator;
        if (!l->options.chunks || rels[i]->toast_locator.rel_number == 0)
            continue;
        struct load_rel *toast = &l->rels[l->nrels++];
        toast->desc = rel_desc_ref(rels[i]);
        toast->locator = rels[i]->toast_locator;
        toast->chunks = true;
    }
    rels_index(l);
}

struct load *load_new(const struct load_options *options)
{
    struct load *l = xcalloc(1, sizeof *l);
    l->options = *options;
    l->options.rels = NULL;
    l->shadow_dir = xstrdup(options->shadow_dir);
    load_set_relations(l, options->rels, options->nrels);
    l->fates = fates_new();
    l->undecided = undecided_new(l->fates, options->spill_dir,
                                 options->undecided_max_bytes > 0 ? options->undecided_max_bytes
                                                                  : UNDECIDED_MAX_DEFAULT);
    l->toasted = toasted_new(options->spill_dir, TOASTED_MAX);
    window_init(&l->window, l);
    l->release = release_new(l, options->waiting_max_bytes > 0 ? options->waiting_max_bytes
                                                               : WAITING_MAX_DEFAULT);
    l->pipe = byte_pipe_new(PIPE_BYTES, source_backup_memory_free);
    l->sink = heap_sink_new(l);
    fatal_init(&l->failure, wake_all, l);
    l->options.shadow_dir = l->options.spill_dir = NULL; /* the caller's; copied where needed */
    return l;
}

void load_free(struct load *l)
{
    if (l == NULL)
        return;
    heap_sink_free(l->sink);
    byte_pipe_free(l->pipe);
    release_free(l->release);
    window_fini(&l->window);
    undecided_free(l->undecided);
    toasted_free(l->toasted);
    fates_free(l->fates);
    rels_free(l);
    fatal_fini(&l->failure);
    free(l->shadow_dir);
    free(l);
}

struct load_window *load_window(struct load *l)
{
    return &l->window;
}

void load_cancel(struct load *l)
{
    wake_all(l);
}

void load_fail(struct load *l, const struct error *err)
{
    fatal_raise(&l->failure, err);
}

void load_rel_stop(struct load *l, struct load_rel *rel, const char *fmt, ...)
{
    if (atomic_exchange(&rel->stopped, true))
        return;
    char reason[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(reason, sizeof reason, fmt, args);
    va_end(args);
    l->options.table_stopped(l->options.ctx, rel->desc, reason);
}

enum status load_submit(struct load *l, struct page_batch *batch, struct error *err)
{
    if (load_check(l, err) != OK) {
        page_batch_free(batch);
        return ERR_CANCELLED;
    }
    return l->options.submit(l->options.ctx, batch, err);
}

void load_progress_get(struct load *l, struct load_progress *ret)
{
    *ret = (struct load_progress){
        .bytes_done = atomic_load(&l->bytes_done),
        .bytes_total = atomic_load(&l->bytes_total),
        .pages = atomic_load(&l->pages),
        .rows = atomic_load(&l->rows),
        .start_lsn = atomic_load(&l->start_lsn),
        .end_lsn = atomic_load(&l->end_lsn),
    };
}

/* Callbacks of the backup, in its thread. */

static enum status backup_begin(void *ctx, XLogRecPtr start_lsn, uint32_t timeline,
                                const struct source_tablespace *tablespaces, size_t n,
                                struct error *err)
{
    struct load *l = ctx;
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += tablespaces[i].bytes;
    atomic_store(&l->bytes_total, total);
    atomic_store(&l->start_lsn, start_lsn);
    TRY(l->options.sample_next_xid(l->options.ctx, &l->next_xid, err));
    if (l->next_xid < FirstNormalTransactionId)
        return error_set(err, ERR_DATA, "the source's next transaction id is said to be %u",
                         l->next_xid);
    return l->options.started(l->options.ctx, start_lsn, timeline, err);
}

static enum status backup_archive(void *ctx, const char *name, Oid tablespace_oid,
                                  struct error *err)
{
    struct load *l = ctx;
    (void)name;
    return byte_pipe_begin(l->pipe, tablespace_oid, err);
}

static enum status backup_data(void *ctx, void *memory, const uint8_t *bytes, size_t len,
                               struct error *err)
{
    struct load *l = ctx;
    return byte_pipe_write(l->pipe, (struct byte_piece){memory, bytes, len}, err);
}

static enum status backup_progress(void *ctx, uint64_t done, uint64_t total, struct error *err)
{
    struct load *l = ctx;
    atomic_store(&l->bytes_done, done);
    atomic_store(&l->bytes_total, total);
    return load_check(l, err);
}

static enum status backup_end(void *ctx, XLogRecPtr end_lsn, struct error *err)
{
    struct load *l = ctx;
    (void)err;
    atomic_store(&l->end_lsn, end_lsn);
    return OK;
}

static void *split_main(void *arg)
{
    struct load *l = arg;
    struct error err = {0};
    if (heap_sink_run(l->sink, &err) != OK)
        load_fail(l, &err);
    return NULL;
}

static enum status backup_stream(struct load *l, struct error *err)
{
    const struct source_backup_callbacks callbacks = {
        .ctx = l,
        .begin = backup_begin,
        .archive = backup_archive,
        .data = backup_data,
        .progress = backup_progress,
        .end = backup_end,
    };
    pthread_t split;
    int rc = pthread_create(&split, NULL, split_main, l);
    if (rc != 0)
        return error_set(err, ERR_RETRY, "cannot start a thread: error %d", rc);
    enum status status = l->options.run_backup(l->options.ctx, &callbacks, err);
    if (status == OK && atomic_load(&l->end_lsn) == 0)
        status = error_set(err, ERR_DATA, "the backup ended without an end position");
    if (status != OK && err != NULL)
        load_fail(l, err);
    byte_pipe_close(l->pipe);
    if (status != OK)
        wake_all(l); /* also if it was only cancelled */
    pthread_join(split, NULL);
    return status;
}

enum status load_backup_run(struct load *l, struct error *err)
{
    struct error local = {0};
    TRY(release_start(l->release, err));
    enum status status = backup_stream(l, &local);
    enum status released = release_join(l->release, status == OK ? &local : NULL);
    if (status == OK)
        status = released;
    if (status == OK)
        status = file_sync_tree(l->shadow_dir, &local);
    if (status == OK)
        status = window_images_finish(&l->window, &local);
    if (fatal_is_set(&l->failure)) { /* whose echo the others are */
        local = l->failure.first;
        status = local.kind;
    } else if (status == OK) {
        status = load_check(l, &local);
    }
    if (status != OK && err != NULL)
        *err = local;
    return status;
}

/* Fates. */

enum status load_ask(struct load *l, const TransactionId *xids, size_t n, struct error *err)
{
    CLEANUP_FREE uint8_t *fates = xcalloc(n + 1, 1);
    if (n == 0)
        return OK;
    TRY(l->options.ask_fates(l->options.ctx, xids, n, fates, err));
    for (size_t i = 0; i < n; i++)
        if (fates[i] == FATE_COMMITTED || fates[i] == FATE_ABORTED)
            fates_set(l->fates, xids[i], (enum xid_fate)fates[i]);
    return OK;
}

static enum status rows_take_and_submit(struct load *l, struct awaited awaited, struct error *err)
{
    for (;;) {
        struct load_rel *rel = NULL;
        uint8_t *rows;
        size_t len;
        uint64_t count;
        TRY(undecided_take(l->undecided, awaited, &rel, &rows, &len, &count, err));
        if (rows == NULL)
            return OK;
        struct page_batch *batch = page_batch_new(rel);
        batch->rows = rows;
        batch->rows_len = len;
        batch->nrows = count;
        TRY(load_submit(l, batch, err));
    }
}

/* Submits what waits for something that is known; the walk decides by it. */
static enum status rows_submit(struct load *l, struct awaited awaited, struct error *err)
{
    atomic_fetch_add(&l->submitting, 1);
    enum status st = rows_take_and_submit(l, awaited, err);
    atomic_fetch_sub(&l->submitting, 1);
    return st;
}

/* Asks for those of the waiting transactions that precede `before` (0 = all). What precedes an
 * oldest running transaction of the stream and is over has nothing more to come in the WAL. */
static enum status waiting_settle(struct load *l, TransactionId before, struct error *err)
{
    CLEANUP_FREE struct awaited *list = NULL;
    size_t n = undecided_awaited(l->undecided, &list), kept = 0;
    CLEANUP_FREE TransactionId *xids = xmalloc((n + 1) * sizeof *xids);
    for (size_t i = 0; i < n; i++)
        if (list[i].kind != AWAIT_MEMBERS && (before == 0 || xid_precedes(list[i].number, before)))
            xids[kept++] = list[i].number;
    TRY(load_ask(l, xids, kept, err));
    for (size_t i = 0; i < kept && before != 0; i++)
        if (fates_get(l->fates, xids[i]) != FATE_UNKNOWN)
            fates_end_set(l->fates, xids[i], fates_get(l->fates, xids[i]) == FATE_COMMITTED);
    for (size_t i = 0; i < n; i++)
        if (fates_settled(l->fates, list[i]))
            TRY(rows_submit(l, list[i], err));
    return OK;
}

/* Multixacts of before the window: their members have landed with the backup. */
static enum status members_settle(struct load *l, struct error *err)
{
    CLEANUP_FREE struct awaited *list = NULL;
    size_t n = undecided_awaited(l->undecided, &list);
    struct members *members =
        members_new(l->shadow_dir, l->window.next_multi, l->window.next_multi_offset);
    enum status st = OK;
    for (size_t i = 0; i < n && st == OK; i++) {
        enum updater_fact fact;
        TransactionId xid = InvalidTransactionId;
        if (list[i].kind != AWAIT_MEMBERS)
            continue;
        st = members_updater(members, list[i].number, &fact, &xid, err);
        if (st == OK)
            fates_updater_set(l->fates, list[i].number, fact, xid);
    }
    members_free(members);
    return st;
}

enum status load_finish(struct load *l, struct error *err)
{
    TRY(load_check(l, err));
    TRY(members_settle(l, err));
    atomic_store(&l->finishing, true);
    return waiting_settle(l, 0, err);
}

uint64_t load_undecided_count(struct load *l)
{
    /* in this order: what is taken is counted as being submitted before it is no longer undecided
     */
    uint64_t n = undecided_count(l->undecided) + toasted_count(l->toasted);
    return n + atomic_load(&l->submitting);
}

void load_settle_begin(struct load *l)
{
    atomic_fetch_add(&l->submitting, 1);
}

void load_settle_end(struct load *l)
{
    atomic_fetch_sub(&l->submitting, 1);
}

enum status load_fate(struct load *l, TransactionId xid, bool committed, struct error *err)
{
    const struct awaited fate = {AWAIT_FATE, xid}, end = {AWAIT_END, xid};
    if (xid < FirstNormalTransactionId || !xid_precedes(xid, l->next_xid))
        return OK;
    fates_end_set(l->fates, xid, committed);
    if (undecided_waits_for(l->undecided, fate))
        TRY(rows_submit(l, fate, err));
    return undecided_waits_for(l->undecided, end) ? rows_submit(l, end, err) : OK;
}

void load_super_delete(struct load *l, struct rel_file_locator locator, uint64_t tid,
                       TransactionId xid)
{
    const struct load_rel *rel = load_rel_find(l, locator);
    if (rel != NULL && xid_precedes(xid, l->next_xid))
        window_super_delete_note(&l->window, rel, tid, xid);
}

enum status load_running_xacts(struct load *l, TransactionId oldest, struct error *err)
{
    return undecided_count(l->undecided) > 0 ? waiting_settle(l, oldest, err) : OK;
}

/* A restart goes on with what is undecided. */

static enum status is_settled(struct load *l, load_durable_fn durable, void *ctx, bool *ret,
                              struct error *err)
{
    *ret = atomic_load(&l->submitting) == 0 && toasted_count(l->toasted) == 0;
    return *ret ? durable(ctx, ret, err) : OK;
}

enum status load_undecided_save(struct load *l, const char *path, load_durable_fn durable,
                                void *ctx, bool *ret_saved, struct error *err)
{
    CLEANUP_FREE char *aside = xasprintf("%s.new", path);
    uint64_t version = undecided_version(l->undecided) + 1; /* 0: never saved */
    bool settled;
    *ret_saved = version == l->saved_version;
    if (*ret_saved)
        return OK;
    TRY(is_settled(l, durable, ctx, &settled, err));
    if (!settled)
        return OK;
    TRY(undecided_file_write(l->undecided, aside, err));
    /* what was taken before it was written is durable by now, or was counted as under way before it
     * was taken */
    TRY(is_settled(l, durable, ctx, &settled, err));
    *ret_saved = settled && version == undecided_version(l->undecided) + 1;
    if (!*ret_saved)
        return OK;
    TRY(file_rename_durable(aside, path, err));
    l->saved_version = version;
    return OK;
}

static struct load_rel *rel_of_oid(void *ctx, Oid oid, bool chunks)
{
    struct load *l = ctx;
    for (size_t i = 0; i < l->nrels; i++)
        if (l->rels[i].desc->oid == oid && l->rels[i].chunks == chunks)
            return &l->rels[i];
    return NULL;
}

enum status load_resume(struct load *l, const char *path, TransactionId next_xid, struct error *err)
{
    uint64_t left_out = 0;
    l->next_xid = next_xid;
    TRY(undecided_file_read(l->undecided, path, rel_of_oid, l, &left_out, err));
    l->saved_version = undecided_version(l->undecided) + 1;
    if (left_out > 0)
        log_warn("msg=\"rows of the initial load are left out: their tables are not replicated "
                 "any more, or copied again\" rows=%llu",
                 (unsigned long long)left_out);
    return OK;
}
