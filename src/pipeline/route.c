#include "pipeline/route.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

struct cached {
    struct rel_file_locator locator;
    struct route *route; /* NULL: not known */
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

static struct route *route_build(struct tables *tables, struct rel_desc *desc,
                                 struct rel_desc *root, bool toast)
{
    const struct tables_options *o = tables_options_of(tables);
    struct route *r = xcalloc(1, sizeof *r + o->ndestinations * sizeof r->targets[0]);
    atomic_init(&r->refs, 1);
    r->desc = rel_desc_ref(desc);
    r->toast = toast;
    r->key_differs = root != NULL && root->oid != desc->oid && key_differs(desc, root);
    r->ndestinations = o->ndestinations;
    struct table_entry *e = root == NULL ? NULL : tables_find(tables, root->oid);
    if (e == NULL || atomic_load(&e->life) != TABLE_LIFE_STREAMING)
        return r;
    r->table = e;
    for (size_t i = 0; i < o->ndestinations && !toast; i++) {
        struct target *target = e->targets[i];
        if (target == NULL)
            continue;
        r->targets[i].att = xcalloc(target->ncols, sizeof(uint16_t));
        r->targets[i].target = target_ref(target);
        if (!map_columns(desc, root, target, r->targets[i].att))
            r->table = NULL;
    }
    return r;
}

static struct route *route_build_at(struct tables *tables, struct rel_desc *desc, bool toast,
                                    XLogRecPtr lsn)
{
    struct history *history = tables_options_of(tables)->history;
    struct rel_desc *root = NULL;
    if (desc->root_oid != 0 && desc->root_oid != desc->oid)
        root = history_by_oid(history, desc->root_oid, lsn);
    struct route *r = route_build(tables, desc, root == NULL ? desc : root, toast);
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

struct route *routes_get(struct routes *r, struct rel_file_locator locator, XLogRecPtr lsn)
{
    struct cached *c = r->last;
    if (c != NULL && rel_file_locator_equal(c->locator, locator))
        return c->route;
    HASH_FIND(hh, r->cache, &locator, sizeof locator, c);
    if (c == NULL) {
        bool toast = false;
        struct rel_desc *desc = history_by_locator(r->history, locator, lsn, &toast);
        if (desc == NULL)
            return NULL; /* not cached: it may become known with the next boundary */
        c = xcalloc(1, sizeof *c);
        c->locator = locator;
        c->route = route_build_at(r->tables, desc, toast, lsn);
        rel_desc_unref(desc);
        HASH_ADD(hh, r->cache, locator, sizeof c->locator, c);
    }
    r->last = c;
    return c->route;
}
