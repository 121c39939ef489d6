/* What a boundary changed: relations that came, went, moved to another file or changed their shape.
 */
#include "base/log.h"
#include "pg/oids.h"
#include "pipeline/ddl_internal.h"

#include <stdlib.h>
#include <string.h>

static enum status again(const struct boundary *b, const struct rel_desc *d,
                         enum resync_cause cause, const char *reason, struct error *err)
{
    /* a partition's rows are part of a table that is right otherwise */
    bool keep = cause == RESYNC_PARTITION;
    struct table_entry *e = tables_find(b->r->tables, root_of(d));
    if (ddl_is_covered(b->r->tables, root_of(d), b->commit->end))
        return OK;
    if (e != NULL && atomic_load(&e->life) == TABLE_LIFE_SKIPPED &&
        !tables_selects(b->r->tables, d))
        return OK;
    return tables_resync(b->r->tables, root_of(d), b->commit->end, cause, reason, keep, err);
}

static enum status relation_added(const struct boundary *b, const struct rel_desc *now,
                                  struct error *err)
{
    /* its target may take the name of a dropped table's, for which rows are on their way */
    if (root_of(now) == now->oid && relation_refused(now) == NULL)
        TRY(reorder_barrier(b->r, err));
    TRY(tables_add(b->r->tables, now, TABLES_KEEP, b->commit->end, err));
    if (ddl_began_before_load(b))
        return again(b, now, RESYNC_LOAD,
                     "created by a transaction that was open when the load began", err);
    if (now->locator.rel_number != 0 && (ddl_left_a_file(b) || ddl_has_pages(b, now->locator)))
        return again(b, now, RESYNC_REWRITE, "created and rewritten in one transaction", err);
    return OK;
}

static const char *shape_change(const struct rel_desc *before, const struct rel_desc *now)
{
    if (strcmp(before->schema, now->schema) != 0 || strcmp(before->name, now->name) != 0)
        return "the table was renamed or moved to another schema";
    if (before->relpersistence != now->relpersistence)
        return "SET LOGGED or SET UNLOGGED";
    if (before->root_oid != now->root_oid)
        return "the table was attached to or detached from a partitioned table";
    if (before->identity != now->identity || before->nkeys != now->nkeys ||
        memcmp(before->key_attnums, now->key_attnums, sizeof now->key_attnums[0] * now->nkeys) != 0)
        return "its key or replica identity changed";
    return "ALTER TABLE changed its columns";
}

/* Nothing to be done for the target; but a copy that began before reads the old file. */
static enum status void_copy(const struct boundary *b, const struct rel_desc *d)
{
    struct table_entry *e = tables_find(b->r->tables, root_of(d));
    if (e != NULL)
        tables_copy_void(e);
    return OK;
}

/* What its rows are decoded with, and its targets, become those of `now` with the rows in them.
 * *ret_done false: they cannot. */
static enum status reshape(const struct boundary *b, const struct rel_desc *before,
                           const struct rel_desc *now, bool *ret_done, struct error *err)
{
    CLEANUP_FREE char *reason = NULL;
    struct table_entry *e = tables_find(b->r->tables, now->oid);
    *ret_done = false;
    if (e == NULL)
        return OK;
    if (b->commit->end <= e->shaped || ddl_is_covered(b->r->tables, now->oid, b->commit->end)) {
        *ret_done = true; /* never back to an older shape */
        return OK;
    }
    const struct tables_reshape r = {
        e, before, now, b->commit->end, ddl_fence, (void *)(uintptr_t)b};
    TRY(tables_reshape(b->r->tables, &r, &reason, err));
    *ret_done = reason == NULL;
    if (reason != NULL)
        log_info("msg=\"not changed in place\" table=%s lsn=" LSN_FMT " reason=%s", LOG_Q(e->name),
                 LSN_ARGS(b->commit->end), LOG_Q(reason));
    return OK;
}

/* New labels of an enum: a target that can print them. Anything else shows in old rows as well. */
static enum status types_changed(const struct boundary *b, const struct rel_desc *before,
                                 const struct rel_desc *now, struct error *err)
{
    const char *reason = type_closure_text_change(before->types, now->types);
    struct table_entry *e = tables_find(b->r->tables, root_of(now));
    if (reason != NULL)
        return again(b, now, RESYNC_SHAPE, reason, err);
    if (e == NULL)
        return OK;
    if (e->fresh != NULL || atomic_load(&e->life) == TABLE_LIFE_RESYNCING)
        return again(b, now, RESYNC_SHAPE, "an enum got a value while the table was copied", err);
    if (atomic_load(&e->life) != TABLE_LIFE_STREAMING)
        return OK;
    bool done;
    TRY(reshape(b, before, now, &done, err));
    return done ? OK : again(b, now, RESYNC_SHAPE, "the type of one of its columns changed", err);
}

/* A table of its own goes. A kept target has every row committed before: those on their way are
 * discarded once the table is no longer streaming. */
static enum status leave(const struct boundary *b, const struct rel_desc *before, struct error *err)
{
    struct table_entry *e = tables_find(b->r->tables, before->oid);
    if (e != NULL && table_is_live(e))
        TRY(reorder_barrier(b->r, err));
    return tables_drop(b->r->tables, before, err);
}

static enum status shape_changed(const struct boundary *b, const struct rel_desc *before,
                                 const struct rel_desc *now, struct error *err)
{
    const char *reason = shape_change(before, now);
    Oid was = root_of(before), is = root_of(now);
    if (was == is)
        return again(b, now, RESYNC_SHAPE, reason, err);
    /* attached or detached: a table of its own comes or goes, and rows of the root with it */
    bool known = false;
    if (was == before->oid) {
        struct table_entry *e = tables_find(b->r->tables, was);
        known = e != NULL && atomic_load(&e->chunks_known);
        TRY(leave(b, before, err));
    } else {
        TRY(again(b, before, RESYNC_PARTITION, reason, err));
    }
    if (is != now->oid) {
        struct table_entry *root = tables_find(b->r->tables, is);
        if (root != NULL && !known)
            atomic_store(&root->chunks_known, false);
        return again(b, now, RESYNC_PARTITION, reason, err);
    }
    TRY(reorder_barrier(b->r, err)); /* its target may take the name of a dropped one's */
    TRY(tables_add(b->r->tables, now, TABLES_KEEP, b->commit->end, err));
    return again(b, now, RESYNC_SHAPE, reason, err);
}

/* A partition whose columns changed as its root's did, or that has another name: rows go to the
 * root's target, by the root's names of columns. */
static bool follows_root(const struct rel_desc *before, const struct rel_desc *now)
{
    return root_of(before) == root_of(now) && root_of(now) != now->oid &&
           before->relkind == now->relkind && before->relpersistence == now->relpersistence &&
           before->relam == now->relam && before->identity == now->identity &&
           before->nkeys == now->nkeys &&
           memcmp(before->key_attnums, now->key_attnums, now->nkeys * sizeof now->key_attnums[0]) ==
               0;
}

/* A table of its own whose rows are in the file they were in, or that has none. */
static bool may_stay(const struct boundary *b, const struct rel_desc *before,
                     const struct rel_desc *now)
{
    return root_of(before) == before->oid && root_of(now) == now->oid &&
           !ddl_began_before_load(b) &&
           (rel_file_locator_equal(before->locator, now->locator) || ddl_is_truncated(b, now->oid));
}

/* VACUUM FULL or CLUSTER of the TOAST table alone: the new file comes as whole pages. */
static bool toast_rewritten(const struct boundary *b, const struct rel_desc *before,
                            const struct rel_desc *now)
{
    return before->toast_oid != InvalidOid && before->toast_oid == now->toast_oid &&
           before->toast_locator.spc_oid == now->toast_locator.spc_oid &&
           !rel_file_locator_equal(before->toast_locator, now->toast_locator) &&
           !ddl_is_truncated(b, now->oid);
}

static enum status file_changed(const struct boundary *b, const struct rel_desc *before,
                                const struct rel_desc *now, struct error *err)
{
    bool truncated = ddl_is_truncated(b, now->oid), left = ddl_left_a_file(b), done = false;
    if (ddl_began_before_load(b))
        return again(b, now, RESYNC_LOAD,
                     "moved to another file by a transaction that was open when the load began",
                     err);
    /* a TRUNCATE alone has few rows to be sent, and is carried as what it is */
    if (!truncated || left)
        TRY(ddl_rewritten(b, now, false, &done, err));
    if (done)
        return OK;
    /* VACUUM FULL, CLUSTER and SET TABLESPACE log whole pages; an ALTER that rewrites logs every
     * row as an INSERT, perhaps with another key (notes B8) */
    if (!truncated && ddl_has_inserts(b, now->locator))
        return again(b, now, RESYNC_REWRITE, "rewritten by ALTER TABLE", err);
    /* what it wrote to the old file went with that file, and is in the new one only as pages */
    if (!truncated && ddl_has_inserts(b, before->locator))
        return again(b, now, RESYNC_REWRITE,
                     "rewritten or moved by a transaction that had changed it before", err);
    if (truncated && (left || ddl_has_pages(b, now->locator)))
        return again(b, now, RESYNC_REWRITE, "emptied and rewritten in one transaction", err);
    /* SET TABLESPACE keeps the row's TIDs, VACUUM FULL and CLUSTER do not */
    if (now->identity == IDENTITY_TID && !truncated &&
        (before->locator.spc_oid == now->locator.spc_oid || left))
        return again(b, now, RESYNC_REWRITE,
                     "rewritten (VACUUM FULL, CLUSTER): without a key its rows are known by their "
                     "place",
                     err);
    return void_copy(b, now);
}

static enum status relation_changed(const struct boundary *b, const struct rel_desc *before,
                                    const struct rel_desc *now, struct error *err)
{
    if (!rel_desc_equal_but_types(before, now) && !rel_desc_equal_rewritten(before, now)) {
        bool done = follows_root(before, now), generation = false;
        if (!done && may_stay(b, before, now))
            TRY(reshape(b, before, now, &done, err));
        if (!done)
            TRY(ddl_rewritten(b, now, true, &generation, err));
        if (generation)
            return OK;
        if (!done)
            return shape_changed(b, before, now, err);
    } else if (!type_closure_equal(before->types, now->types)) {
        TRY(types_changed(b, before, now, err));
    }
    if (!rel_file_locator_equal(before->locator, now->locator))
        return file_changed(b, before, now, err);
    return toast_rewritten(b, before, now)
               ? again(b, now, RESYNC_REWRITE,
                       "its TOAST table was rewritten (VACUUM FULL, CLUSTER)", err)
               : OK;
}

/* DROP of one partition takes its rows out of the root. */
static enum status relation_dropped(const struct boundary *b, const struct rel_desc *before,
                                    struct error *err)
{
    Oid root_oid = root_of(before);
    enum status st = OK;
    if (root_oid == before->oid)
        return leave(b, before, err);
    struct rel_desc *root = history_by_oid(b->r->history, root_oid, b->commit->end);
    if (root != NULL)
        st = again(b, before, RESYNC_PARTITION, "one of its partitions was dropped", err);
    rel_desc_unref(root);
    return st;
}

/* Names are given up before they are taken: first what is gone, then what has changed, then what is
 * new. */
enum phase { PHASE_DROPPED, PHASE_CHANGED, PHASE_ADDED, PHASES };

static enum status relation_compare(const struct boundary *b, Oid oid, enum phase phase,
                                    struct error *err)
{
    struct rel_desc *before = history_by_oid(b->r->history, oid, b->commit->end - 1);
    struct rel_desc *now = history_by_oid(b->r->history, oid, b->commit->end);
    enum status st = OK;
    if (phase == PHASE_ADDED && before == NULL && now != NULL)
        st = relation_added(b, now, err);
    else if (phase == PHASE_DROPPED && before != NULL && now == NULL)
        st = relation_dropped(b, before, err);
    else if (phase == PHASE_CHANGED && before != NULL && now != NULL && now != before)
        st = relation_changed(b, before, now, err);
    rel_desc_unref(before);
    rel_desc_unref(now);
    return st;
}

static enum status compare_all(const struct boundary *b, struct error *err)
{
    enum status st = OK;
    for (enum phase phase = 0; phase < PHASES; phase++) {
        struct rel_desc **all;
        size_t n;
        history_all(b->r->history, phase == PHASE_ADDED ? b->commit->end : b->commit->end - 1, &all,
                    &n);
        for (size_t i = 0; i < n; i++) {
            if (st == OK)
                st = relation_compare(b, all[i]->oid, phase, err);
            rel_desc_unref(all[i]);
        }
        free(all);
        TRY(st);
    }
    return OK;
}

/* Those of the relations that exist are copied again. */
static enum status again_unseen(const struct boundary *b, const Oid *oids, size_t n,
                                struct error *err)
{
    enum status st = OK;
    for (size_t i = 0; i < n && st == OK; i++) {
        struct rel_desc *d = history_by_oid(b->r->history, oids[i], b->commit->end);
        if (d != NULL && relation_refused(d) == NULL)
            st = again(
                b, d, RESYNC_UNSEEN,
                "it changed while the shadow accepted no connections: a transaction with more "
                "than 64 subtransactions was open when it started",
                err);
        rel_desc_unref(d);
    }
    return st;
}

/* What is gone has no chunks. */
static enum status drop_chunks(const struct boundary *b, Oid oid, struct error *err)
{
    struct rel_desc *before = history_by_oid(b->r->history, oid, b->commit->end - 1);
    struct rel_desc *now = history_by_oid(b->r->history, oid, b->commit->end);
    const struct toast_event reset = {.kind = TOAST_RESET, .owner = oid, .lsn = b->commit->end};
    bool gone = before != NULL && before->toast_oid != InvalidOid && now == NULL;
    rel_desc_unref(before);
    rel_desc_unref(now);
    return gone ? toast_store_put(b->r->toast_store, &reset, 1, err) : OK;
}

enum status ddl_shapes_known(struct reorder *r, XLogRecPtr lsn, struct error *err)
{
    const struct xact_frame here = {.end = lsn};
    const struct ddl_facts none = {0};
    bool fenced = false;
    const struct boundary b = {r, &here, &none, &fenced};
    CLEANUP_BUF struct buf oids = {0};
    bool all = false;
    if (!history_unseen_until(r->history, lsn, &oids, &all))
        return OK;
    size_t n = oids_unique(&oids);
    const Oid *rels = (const Oid *)oids.data;
    if (all)
        TRY(compare_all(&b, err));
    for (enum phase phase = 0; phase < PHASES && !all; phase++)
        for (size_t i = 0; i < n; i++)
            TRY(relation_compare(&b, rels[i], phase, err));
    for (size_t i = 0; i < n; i++)
        TRY(drop_chunks(&b, rels[i], err));
    return again_unseen(&b, rels, n, err);
}

enum status ddl_apply(struct reorder *r, const struct xact_frame *commit,
                      const struct ddl_facts *facts, struct error *err)
{
    bool fenced = false;
    struct boundary b = {r, commit, facts, &fenced};
    const Oid *rels = xact_frame_rels(commit);
    CLEANUP_BUF struct buf unseen = {0};
    if (history_unseen_from(r->history, commit->end, &unseen, NULL))
        TRY(again_unseen(&b, (const Oid *)unseen.data, oids_unique(&unseen), err));
    if (commit->head.flags & XACT_ALL_RELS)
        return compare_all(&b, err);
    for (enum phase phase = 0; phase < PHASES; phase++)
        for (uint32_t i = 0; i < commit->nrels; i++)
            TRY(relation_compare(&b, rels[i], phase, err));
    return OK;
}

static bool truncates(const struct truncate_frame *f, Oid oid)
{
    for (uint32_t i = 0; i < f->nrelids; i++)
        if (f->relids[i] == oid)
            return true;
    return false;
}

/* One partition alone: its rows cannot be told from those of others by a TRUNCATE of the target. */
static enum status truncate_leaf(struct reorder *r, const struct truncate_frame *f, Oid oid,
                                 XLogRecPtr lsn, struct error *err)
{
    struct rel_desc *d = history_by_oid(r->history, oid, lsn);
    enum status st = OK;
    /* a partitioned one below the root has no rows of its own, and its partitions are named, too */
    if (d != NULL && d->relkind == 'r' && root_of(d) != oid && !truncates(f, root_of(d)) &&
        !ddl_is_covered(r->tables, root_of(d), lsn))
        st = tables_resync(r->tables, root_of(d), lsn, RESYNC_PARTITION,
                           "TRUNCATE of one of its partitions", true, err);
    rel_desc_unref(d);
    return st;
}

enum status ddl_truncate(struct reorder *r, const struct truncate_frame *f, XLogRecPtr lsn,
                         struct error *err)
{
    bool fenced = false;
    for (uint32_t i = 0; i < f->nrelids; i++) {
        struct table_entry *e = tables_find(r->tables, f->relids[i]);
        if (e == NULL) {
            TRY(truncate_leaf(r, f, f->relids[i], lsn, err));
            continue;
        }
        if (!table_is_live(e) || lsn <= atomic_load(&e->covered))
            continue;
        tables_copy_void(e);
        if (!fenced)
            TRY(reorder_barrier(r, err));
        fenced = true;
        log_info("msg=truncate table=%s lsn=" LSN_FMT, LOG_Q(e->name), LSN_ARGS(f->head.lsn));
        TRY(tables_truncate(r->tables, e, err));
    }
    return OK;
}
