/* What a transaction's rows say about the files it made: which tables have a new generation in the
 * WAL (docs/ddl.md). */
#include "base/log.h"
#include "pipeline/ddl_internal.h"

#include <stdlib.h>
#include <string.h>

bool ddl_is_truncated(const struct boundary *b, Oid oid)
{
    for (size_t i = 0; i < b->facts->ntruncated; i++)
        if (b->facts->truncated[i] == oid)
            return true;
    return false;
}

static bool is_among(struct rel_file_locator locator, const struct rel_file_locator *files,
                     size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (rel_file_locator_equal(files[i], locator))
            return true;
    return false;
}

bool ddl_has_inserts(const struct boundary *b, struct rel_file_locator locator)
{
    return is_among(locator, b->facts->inserted, b->facts->ninserted);
}

bool ddl_has_pages(const struct boundary *b, struct rel_file_locator locator)
{
    return is_among(locator, b->facts->pages, b->facts->npages);
}

/* True if a copy already has what this commit did to the table. */
bool ddl_is_covered(struct tables *t, Oid root, XLogRecPtr lsn)
{
    struct table_entry *e = tables_find(t, root);
    return e != NULL && lsn <= atomic_load(&e->covered);
}

/* A transaction that was open when the load began may have written rows before it that are only in
 * pages which the load did not know of. */
bool ddl_began_before_load(const struct boundary *b)
{
    return atomic_load(&b->r->load_guard) && b->commit->head.xid != InvalidTransactionId &&
           xid_precedes(b->commit->head.xid, b->r->options.load_xid);
}

/* Rows were written to a file that the transaction itself made and left: where it was a CLUSTER
 * that left it, the file that took its place has them only as whole pages. Whose it was is not
 * known. */
bool ddl_left_a_file(const struct boundary *b)
{
    const struct rel_file_locator *dropped = xact_frame_dropped(b->commit);
    for (uint32_t i = 0; i < b->commit->ndropped; i++) {
        bool toast;
        if (!ddl_has_inserts(b, dropped[i]))
            continue;
        struct rel_desc *owner =
            history_by_locator(b->r->history, dropped[i], b->commit->end, &toast);
        rel_desc_unref(owner);
        if (owner == NULL)
            return true;
    }
    return false;
}

enum status ddl_fence(void *ctx, struct error *err)
{
    const struct boundary *b = ctx;
    if (!*b->fenced)
        TRY(reorder_fence(b->r, err));
    *b->fenced = true;
    return OK;
}

/* The transaction made its file and wrote every row in it to the WAL (notes B8): none, if it was
 * empty. */
static bool has_whole_file(const struct boundary *b, const struct rel_desc *now, bool may_be_empty)
{
    struct rel_desc *before = history_by_oid(b->r->history, now->oid, b->commit->end - 1);
    bool whole =
        before != NULL && root_of(before) == root_of(now) && before->relkind == now->relkind &&
        !rel_file_locator_equal(before->locator, now->locator) && !ddl_has_pages(b, now->locator) &&
        (may_be_empty || ddl_has_inserts(b, now->locator));
    rel_desc_unref(before);
    return whole;
}

/* So has each partition of root. */
static bool have_whole_files(const struct boundary *b, const struct rel_desc *root,
                             bool may_be_empty)
{
    struct rel_desc **all;
    size_t n, whole = 0, parts = 0;
    bool rows = false;
    history_all(b->r->history, b->commit->end, &all, &n);
    for (size_t i = 0; i < n; i++) {
        if (all[i]->relkind == 'r' && root_of(all[i]) == root->oid) {
            parts++;
            whole += has_whole_file(b, all[i], true) && !ddl_is_truncated(b, all[i]->oid);
            rows = rows || ddl_has_inserts(b, all[i]->locator);
        }
        rel_desc_unref(all[i]);
    }
    free(all);
    return (rows || may_be_empty) && whole == parts;
}

static bool is_new_generation(const struct boundary *b, const struct rel_desc *root,
                              bool may_be_empty)
{
    struct rel_desc *before = history_by_oid(b->r->history, root->oid, b->commit->end - 1);
    bool stays = before != NULL && before->relkind == root->relkind &&
                 strcmp(before->schema, root->schema) == 0 &&
                 strcmp(before->name, root->name) == 0 && !ddl_began_before_load(b) &&
                 b->commit->end > b->r->options.load_end &&
                 !ddl_is_covered(b->r->tables, root->oid, b->commit->end);
    rel_desc_unref(before);
    return stays &&
           (root->relkind == 'r' ? has_whole_file(b, root, may_be_empty)
                                 : root->relkind == 'p' && have_whole_files(b, root, may_be_empty));
}

enum status ddl_rewritten(const struct boundary *b, const struct rel_desc *now, bool may_be_empty,
                          bool *ret_done, struct error *err)
{
    CLEANUP_FREE char *reason = NULL;
    struct table_entry *e = tables_find(b->r->tables, root_of(now));
    *ret_done = e != NULL && generation_is_begun(b->r, e);
    if (e == NULL || *ret_done)
        return OK;
    struct rel_desc *root = history_by_oid(b->r->history, root_of(now), b->commit->end);
    enum status st = OK;
    if (root != NULL && is_new_generation(b, root, may_be_empty)) {
        st = ddl_fence((void *)(uintptr_t)b, err);
        if (st == OK)
            st = generation_begin(b->r, e, root, b->commit->end, &reason, err);
        *ret_done = st == OK && reason == NULL;
    }
    rel_desc_unref(root);
    if (st == OK && reason != NULL)
        log_info("msg=\"a rewrite's rows are not taken from the WAL\" table=%s lsn=" LSN_FMT
                 " reason=%s",
                 LOG_Q(e->name), LSN_ARGS(b->commit->end), LOG_Q(reason));
    return st;
}
