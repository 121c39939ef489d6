#include "pipeline/toast_feed.h"
#include "base/metrics.h"
#include "toast/chunk.h"

#include <stdlib.h>

#define EVENTS_MAX 64u /* put at once: one lock for all of them */

struct new_chunks { /* of a file, in a transaction that changed files */
    struct rel_file_locator locator;
    XLogRecPtr first_lsn;
    uint64_t first_tid;
};

struct toast_feed {
    struct toast_store *store;
    struct history *history;
    const struct xact_frame *commit;
    bool partial;
    struct toast_event events[EVENTS_MAX];
    size_t data_at[EVENTS_MAX]; /* of a birth: where its bytes begin in data */
    unsigned n;
    struct buf data;
    struct new_chunks *files;
    size_t nfiles;
};

struct toast_feed *toast_feed_new(struct toast_store *store, struct history *history)
{
    struct toast_feed *t = xcalloc(1, sizeof *t);
    t->store = store;
    t->history = history;
    return t;
}

void toast_feed_free(struct toast_feed *t)
{
    if (t == NULL)
        return;
    buf_free(&t->data);
    free(t->files);
    free(t);
}

void toast_feed_begin(struct toast_feed *t, const struct xact_frame *commit, bool partial)
{
    t->commit = commit;
    t->partial = partial;
    t->n = 0;
    t->nfiles = 0;
    buf_reset(&t->data);
}

static enum status flush(struct toast_feed *t, struct error *err)
{
    unsigned births = 0;
    for (unsigned i = 0; i < t->n; i++)
        if (t->events[i].kind == TOAST_BIRTH) {
            t->events[i].data = t->data.data + t->data_at[i];
            births++;
        }
    metric_inc(METRIC_DECODER_TOAST_CHUNKS, births);
    enum status st = toast_store_put(t->store, t->events, t->n, err);
    t->n = 0;
    buf_reset(&t->data);
    return st;
}

static enum status add(struct toast_feed *t, const struct toast_event *e, struct error *err)
{
    t->data_at[t->n] = t->data.len;
    t->events[t->n++] = *e;
    if (e->kind == TOAST_BIRTH) /* the frame does not stay */
        buf_put(&t->data, e->data, e->len);
    return t->n == EVENTS_MAX ? flush(t, err) : OK;
}

/* Rows of one file come in runs. */
static void note_file(struct toast_feed *t, const struct change_frame *f)
{
    for (size_t i = t->nfiles; i > 0; i--)
        if (rel_file_locator_equal(t->files[i - 1].locator, f->locator))
            return;
    t->files = xrealloc(t->files, (t->nfiles + 1) * sizeof *t->files);
    t->files[t->nfiles++] = (struct new_chunks){f->locator, f->head.lsn, f->new_tid};
}

static enum status add_birth(struct toast_feed *t, Oid owner, const struct change_frame *f,
                             struct error *err)
{
    struct raw_tuple tuple = change_frame_new(f);
    struct toast_chunk chunk;
    if (toast_chunk_parse(&tuple, &chunk, err) != OK) {
        metric_inc(METRIC_DECODER_TOAST_MALFORMED, 1);
        return error_prefix(err, "record at " LSN_FMT, LSN_ARGS(f->head.lsn));
    }
    if (t->commit->head.flags & XACT_BOUNDARY)
        note_file(t, f);
    return add(t,
               &(struct toast_event){.kind = TOAST_BIRTH,
                                     .owner = owner,
                                     .lsn = f->head.lsn,
                                     .tid = f->new_tid,
                                     .value_id = chunk.value_id,
                                     .seq = chunk.seq,
                                     .len = chunk.len,
                                     .data = chunk.data},
               err);
}

enum status toast_feed_change(struct toast_feed *t, Oid owner, const struct change_frame *f,
                              struct error *err)
{
    if (f->kind == CHANGE_INSERT && (f->head.flags & FRAME_HAS_NEW))
        return add_birth(t, owner, f, err);
    /* a super-delete: the chunks of a speculative row that gave way */
    if (f->kind == CHANGE_DELETE || f->kind == CHANGE_SPEC_DELETE)
        return add(t,
                   &(struct toast_event){
                       .kind = TOAST_DEATH, .owner = owner, .lsn = f->head.lsn, .tid = f->old_tid},
                   err);
    return OK;
}

static enum status add_reset(struct toast_feed *t, Oid owner, XLogRecPtr lsn, struct error *err)
{
    return add(t, &(struct toast_event){.kind = TOAST_RESET, .owner = owner, .lsn = lsn}, err);
}

enum status toast_feed_truncate(struct toast_feed *t, const struct truncate_frame *f,
                                struct error *err)
{
    for (uint32_t i = 0; i < f->nrelids; i++)
        /* else its chunks are put again, perhaps as older than this */
        if (!history_is_unseen(t->history, f->relids[i], t->commit->end))
            TRY(add_reset(t, f->relids[i], f->head.lsn, err));
    return OK;
}

/* Where the chunks of a new file begin: those of the old one were written before. Of a transaction
 * that is read in part, 0 if this is not known: then the file's first chunk, in its first place,
 * lies before the floor, and so is the reset stored; or there is no chunk to be kept apart. */
static XLogRecPtr new_file_lsn(const struct toast_feed *t, struct rel_file_locator locator)
{
    for (size_t i = 0; i < t->nfiles; i++)
        if (rel_file_locator_equal(t->files[i].locator, locator))
            return t->partial && t->files[i].first_tid != tid_make(0, 1) ? 0
                                                                         : t->files[i].first_lsn;
    return t->partial ? 0 : t->commit->head.lsn;
}

/* SET TABLESPACE copies the file as it is; a rewrite (VACUUM FULL, CLUSTER) keeps the tablespace or
 * (ALTER TABLE) makes another TOAST table. */
static bool is_moved(const struct rel_desc *before, const struct rel_desc *now)
{
    return before->toast_oid == now->toast_oid &&
           before->toast_locator.spc_oid != now->toast_locator.spc_oid;
}

static enum status compare(struct toast_feed *t, Oid owner, struct error *err)
{
    struct rel_desc *before = history_by_oid(t->history, owner, t->commit->end - 1);
    struct rel_desc *now = history_by_oid(t->history, owner, t->commit->end);
    enum status st = OK;
    if (before == now || before == NULL || before->toast_oid == 0) {
        ;
    } else if (now == NULL) {
        st = add_reset(t, owner, t->commit->head.lsn, err);
    } else if (!rel_file_locator_equal(before->toast_locator, now->toast_locator) &&
               !is_moved(before, now)) {
        XLogRecPtr lsn = new_file_lsn(t, now->toast_locator);
        st = lsn == 0 ? OK : add_reset(t, owner, lsn, err);
    }
    rel_desc_unref(before);
    rel_desc_unref(now);
    return st;
}

static enum status compare_all(struct toast_feed *t, struct error *err)
{
    struct rel_desc **all;
    size_t n;
    enum status st = OK;
    history_all(t->history, t->commit->end - 1, &all, &n);
    for (size_t i = 0; i < n; i++) {
        if (st == OK)
            st = compare(t, all[i]->oid, err);
        rel_desc_unref(all[i]);
    }
    free(all);
    return st;
}

enum status toast_feed_end(struct toast_feed *t, struct error *err)
{
    const struct xact_frame *commit = t->commit;
    const Oid *rels = xact_frame_rels(commit);
    if (commit->head.flags & XACT_ALL_RELS)
        TRY(compare_all(t, err));
    else if (commit->head.flags & XACT_BOUNDARY)
        for (uint32_t i = 0; i < commit->nrels; i++)
            TRY(compare(t, rels[i], err));
    return flush(t, err);
}
