#include "pipeline/route.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

struct cached {
    struct rel_file_locator locator;
    struct route *route;
    XLogRecPtr covered_until; /* route discards rows that a copy has, those of commits up to here; 0
                                 = it does not */
    UT_hash_handle hh;
};

struct routes {
    struct tables *tables;
    struct history *history;
    struct cached *cache;
    struct cached *last; /* rows of one table come in runs */
};

struct route *route_ref(struct route *r)
{
    atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
    return r;
}

void route_unref(struct route *r)
{
    if (r == NULL || atomic_fetch_sub(&r->refs, 1) != 1)
        return;
    for (size_t i = 0; i < r->ndestinations; i++) {
        target_unref(r->targets[i].target);
        free(r->targets[i].att);
    }
    route_unref(r->fresh);
    rel_desc_unref(r->desc);
    free(r);
}

/* A leaf may have its columns in another order than the root: by name. */
static bool map_columns(const struct rel_desc *leaf, const struct rel_desc *root,
                        const struct target *target, uint16_t *att)
{
    for (unsigned c = 0; c < target->ncols; c++) {
        int16_t attnum = target->cols[c].attnum;
        if (attnum < 1 || attnum > root->natts)
            return false;
        if (leaf->oid == root->oid) {
            att[c] = (uint16_t)(attnum - 1);
            continue;
        }
        const char *name = root->atts[attnum - 1].name;
        unsigned i = 0;
        while (i < leaf->natts && (leaf->atts[i].dropped || strcmp(leaf->atts[i].name, name) != 0))
            i++;
        if (i == leaf->natts)
            return false;
        att[c] = (uint16_t)i;
    }
    return true;
}

static bool has_key_column(const struct rel_desc *d, const char *name)
{
    for (unsigned k = 0; k < d->nkeys; k++)
        if (strcmp(d->atts[d->key_attnums[k] - 1].name, name) == 0)
            return true;
    return false;
}

/* REPLICA IDENTITY is set for each partition by itself (notes B6). */
static bool key_differs(const struct rel_desc *leaf, const struct rel_desc *root)
{
    if (root->identity != IDENTITY_KEY)
        return false;
    if (leaf->identity != IDENTITY_KEY || leaf->nkeys != root->nkeys)
        return true;
    for (unsigned k = 0; k < leaf->nkeys; k++)
        if (!has_key_column(root, leaf->atts[leaf->key_attnums[k] - 1].name))
            return true;
    return false;
}

static struct route *route_alloc(struct tables *tables, struct rel_desc *desc)
{
    size_t n = tables_options_of(tables)->ndestinations;
    struct route *r = xcalloc(1, sizeof *r + n * sizeof r->targets[0]);
    atomic_init(&r->refs, 1);
    r->desc = rel_desc_ref(desc);
    r->ndestinations = n;
    return r;
}

/* False if a column of a target is not in desc. */
static bool add_targets(struct route *r, const struct rel_desc *root, struct target *const *targets,
                        bool *ret_any)
{
    bool mapped = true;
    *ret_any = false;
    for (size_t i = 0; i < r->ndestinations; i++) {
        struct target *target = targets[i];
        if (target == NULL || !target_is_open(target))
            continue;
        r->targets[i].att = xcalloc(target->ncols, sizeof(uint16_t));
        r->targets[i].target = target_ref(target);
        mapped = map_columns(r->desc, root, target, r->targets[i].att) && mapped;
        *ret_any = true;
    }
    return mapped;
}

struct route *route_new_fresh(struct tables *tables, struct table_entry *e, struct rel_desc *desc,
                              struct rel_desc *root, struct target *const *fresh)
{
    bool any;
    struct route *r = route_alloc(tables, desc);
    r->table = e;
    if (add_targets(r, root, fresh, &any) && any)
        return r;
    route_unref(r);
    return NULL;
}

/* unseen: desc is not the relation's present shape, which is not known. */
static struct route *route_build(struct tables *tables, struct rel_desc *desc,
                                 struct rel_desc *root, bool toast, bool unseen)
{
    struct route *r = route_alloc(tables, desc);
    bool any = false, mapped = true;
    r->toast = toast;
    r->key_differs = root->oid != desc->oid && key_differs(desc, root);
    struct table_entry *e = tables_find(tables, root->oid);
    if (e == NULL || !table_is_live(e) || unseen)
        return r;
    if (toast) {
        r->table = e;
        return r;
    }
    mapped = add_targets(r, root, e->targets, &any);
    if (e->fresh != NULL)
        r->fresh = route_new_fresh(tables, e, desc, root, e->fresh);
    if (mapped && (any || r->fresh != NULL))
        r->table = e;
    return r;
}

static struct route *route_build_at(struct tables *tables, struct rel_desc *desc, bool toast,
                                    XLogRecPtr lsn)
{
    struct history *history = tables_options_of(tables)->history;
    struct rel_desc *root = NULL;
    if (desc->root_oid != 0 && desc->root_oid != desc->oid)
        root = history_by_oid(history, desc->root_oid, lsn);
    struct route *r = route_build(tables, desc, root == NULL ? desc : root, toast,
                                  history_is_unseen(history, desc->oid, lsn));
    rel_desc_unref(root);
    return r;
}

struct route *route_new(struct tables *tables, struct rel_desc *desc, bool toast)
{
    return route_build_at(tables, desc, toast, UINT64_MAX);
}

struct routes *routes_new(struct tables *tables, struct history *history)
{
    struct routes *r = xcalloc(1, sizeof *r);
    r->tables = tables;
    r->history = history;
    return r;
}

void routes_forget(struct routes *r)
{
    struct cached *c, *next;
    HASH_ITER (hh, r->cache, c, next) {
        HASH_DEL(r->cache, c);
        route_unref(c->route);
        free(c);
    }
    r->last = NULL;
}

void routes_free(struct routes *r)
{
    if (r == NULL)
        return;
    routes_forget(r);
    free(r);
}

/* Up to which commit rows of desc are in their table by a copy. */
static XLogRecPtr covered_lsn(const struct routes *r, const struct rel_desc *desc)
{
    Oid root = desc->root_oid == 0 ? desc->oid : desc->root_oid;
    struct table_entry *e = tables_find(r->tables, root);
    return e == NULL ? 0 : atomic_load(&e->covered);
}

/* The target may have a later shape than rows that come again: the file's newest shape up to that
 * one reads them as well. */
static struct rel_desc *desc_for(const struct routes *r, struct rel_file_locator locator,
                                 XLogRecPtr lsn, bool *ret_toast)
{
    struct rel_desc *desc = history_by_locator(r->history, locator, lsn, ret_toast);
    const struct table_entry *e = NULL;
    if (desc != NULL)
        e = tables_find(r->tables, desc->root_oid == 0 ? desc->oid : desc->root_oid);
    if (e == NULL || e->shaped <= lsn)
        return desc;
    rel_desc_unref(desc);
    return history_by_locator(r->history, locator, e->shaped, ret_toast);
}

static struct cached *cache_fill(struct routes *r, struct rel_file_locator locator, XLogRecPtr lsn)
{
    bool toast = false;
    struct rel_desc *desc = desc_for(r, locator, lsn, &toast);
    if (desc == NULL)
        return NULL; /* it may become known with the next boundary */
    struct cached *c = xcalloc(1, sizeof *c);
    c->locator = locator;
    c->covered_until = toast ? 0 : covered_lsn(r, desc);
    if (lsn > c->covered_until)
        c->covered_until = 0;
    c->route = c->covered_until > 0 ? route_alloc(r->tables, desc)
                                    : route_build_at(r->tables, desc, toast, lsn);
    rel_desc_unref(desc);
    HASH_ADD(hh, r->cache, locator, sizeof c->locator, c);
    return c;
}

static void cached_free(struct routes *r, struct cached *c)
{
    HASH_DEL(r->cache, c);
    route_unref(c->route);
    free(c);
}

struct route *routes_get(struct routes *r, struct rel_file_locator locator, XLogRecPtr lsn)
{
    struct cached *c = r->last;
    if (c == NULL || !rel_file_locator_equal(c->locator, locator))
        HASH_FIND(hh, r->cache, &locator, sizeof locator, c);
    if (c != NULL && __builtin_expect(c->covered_until > 0 && lsn > c->covered_until, 0)) {
        cached_free(r, c);
        c = NULL;
    }
    if (c == NULL)
        c = cache_fill(r, locator, lsn);
    r->last = c;
    return c == NULL ? NULL : c->route;
}
