/* The types that columns' types are made of: one closure a relation. */
#include "catalog/query_internal.h"

#include <stdlib.h>
#include <string.h>

/* Stored as an array; int2vector and oidvector are too, but have a text form of their own. */
#define IS_ARRAY                                                                                   \
    "t.typlen = -1 AND t.typsubscript = "                                                          \
    "'pg_catalog.array_subscript_handler'::pg_catalog.regproc AND t.oid NOT IN (22, 30)"

/* The numbers are enum type_desc_kind. */
static const char types_sql[] =
    "WITH RECURSIVE c (oid) AS (SELECT u.oid FROM pg_catalog.unnest($1::pg_catalog.oid[]) u (oid) "
    "UNION SELECT p.part FROM c JOIN pg_catalog.pg_type t ON t.oid = c.oid JOIN LATERAL ("
    "SELECT t.typelem WHERE " IS_ARRAY " UNION ALL SELECT t.typbasetype WHERE t.typtype = 'd' "
    "UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE t.typtype = 'r' AND "
    "r.rngtypid = t.oid "
    "UNION ALL SELECT r.rngtypid FROM pg_catalog.pg_range r WHERE t.typtype = 'm' AND "
    "r.rngmultitypid = t.oid "
    "UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a WHERE t.typtype = 'c' AND "
    "a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped) p (part) ON true) "
    "SELECT t.oid, CASE t.typtype WHEN 'r' THEN 2 WHEN 'm' THEN 3 WHEN 'e' THEN 4 WHEN 'c' THEN 5 "
    "WHEN 'd' THEN 6 ELSE CASE WHEN " IS_ARRAY " THEN 1 ELSE 0 END END, "
    "t.typlen, t.typalign, t.typdelim, "
    "CASE t.typtype WHEN 'd' THEN t.typbasetype "
    "WHEN 'r' THEN (SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE r.rngtypid = t.oid) "
    "WHEN 'm' THEN (SELECT r.rngtypid FROM pg_catalog.pg_range r WHERE r.rngmultitypid = t.oid) "
    "ELSE CASE WHEN " IS_ARRAY " THEN t.typelem ELSE 0 END END, "
    "CASE t.typtype WHEN 'c' THEN t.typrelid ELSE 0 END, t.typname "
    "FROM c JOIN pg_catalog.pg_type t ON t.oid = c.oid ORDER BY t.oid";

static const char labels_sql[] =
    "SELECT enumtypid, oid, enumlabel FROM pg_catalog.pg_enum WHERE enumtypid = ANY "
    "($1::pg_catalog.oid[]) ORDER BY enumtypid, oid";

static const char composites_sql[] =
    "SELECT attrelid, atttypid, attlen, attalign, attisdropped FROM pg_catalog.pg_attribute WHERE "
    "attrelid = ANY ($1::pg_catalog.oid[]) AND attnum > 0 ORDER BY attrelid, attnum";

static void list_add(struct buf *list, Oid oid)
{
    buf_printf(list, "%c%u", list->len == 0 ? '{' : ',', oid);
}

static char *list_end(struct buf *list)
{
    if (list->len == 0)
        buf_put_u8(list, '{');
    buf_put_u8(list, '}');
    return buf_cstr(list);
}

/* Whether a column's type may be made of others: of a domain only the base type tells. */
static bool may_have_parts(const struct att_desc *a)
{
    return !a->dropped && (a->elem_typid != 0 || strchr("cdemr", a->typtype) != NULL);
}

static enum status take_type(const PGresult *r, int row, struct type_desc *t, struct error *err)
{
    t->oid = catalog_query_oid(r, row, 0);
    t->kind = (uint8_t)atoi(PQgetvalue(r, row, 1));
    t->typlen = (int16_t)atoi(PQgetvalue(r, row, 2));
    t->typalign = PQgetvalue(r, row, 3)[0];
    t->typdelim = PQgetvalue(r, row, 4)[0];
    t->part_oid = catalog_query_oid(r, row, 5);
    t->relid = catalog_query_oid(r, row, 6);
    snprintf(t->name, sizeof t->name, "%s", PQgetvalue(r, row, 7));
    if (t->typalign == '\0' || strchr("csid", t->typalign) == NULL ||
        (t->typlen <= 0 && t->typlen != -1 && t->typlen != -2))
        return error_set(err, ERR_DATA, "type %s: length %d, alignment \"%c\"", t->name, t->typlen,
                         t->typalign);
    return OK;
}

/* Rows whose first column is `oid`, from *at on, both in that order. */
static int rows_of(const PGresult *r, Oid oid, int *at)
{
    while (*at < PQntuples(r) && catalog_query_oid(r, *at, 0) < oid)
        (*at)++;
    int n = 0;
    while (*at + n < PQntuples(r) && catalog_query_oid(r, *at + n, 0) == oid)
        n++;
    return n;
}

static enum status fill_labels(PGconn *conn, struct type_closure *all, struct error *err)
{
    CLEANUP_BUF struct buf list = {0};
    PGresult *r = NULL;
    int at = 0;
    for (unsigned i = 0; i < all->n; i++)
        if (all->types[i].kind == TYPE_DESC_ENUM)
            list_add(&list, all->types[i].oid);
    if (list.len == 0)
        return OK;
    TRY(catalog_query_run(conn, labels_sql, list_end(&list), "pg_enum", 3, &r, err));
    for (unsigned i = 0; i < all->n; i++) {
        struct type_desc *t = &all->types[i];
        if (t->kind != TYPE_DESC_ENUM)
            continue;
        int n = rows_of(r, t->oid, &at);
        t->labels = xcalloc((size_t)n, sizeof *t->labels);
        for (; t->nlabels < (unsigned)n; t->nlabels++, at++) {
            struct enum_label *label = &t->labels[t->nlabels];
            label->oid = catalog_query_oid(r, at, 1);
            snprintf(label->text, sizeof label->text, "%s", PQgetvalue(r, at, 2));
        }
    }
    PQclear(r);
    return OK;
}

static enum status take_att(const PGresult *r, int row, struct composite_att *a, struct error *err)
{
    a->typid = catalog_query_oid(r, row, 1);
    a->attlen = (int16_t)atoi(PQgetvalue(r, row, 2));
    a->attalign = PQgetvalue(r, row, 3)[0];
    a->dropped = PQgetvalue(r, row, 4)[0] == 't';
    if (a->attalign == '\0' || strchr("csid", a->attalign) == NULL ||
        (a->attlen <= 0 && a->attlen != -1 && a->attlen != -2))
        return error_set(err, ERR_DATA, "attribute of relation %u: length %d, alignment \"%c\"",
                         catalog_query_oid(r, row, 0), a->attlen, a->attalign);
    return OK;
}

static int by_relid(const void *a, const void *b)
{
    Oid x = (*(struct type_desc *const *)a)->relid, y = (*(struct type_desc *const *)b)->relid;
    return x < y ? -1 : x > y;
}

static enum status fill_composites(PGconn *conn, struct type_closure *all, struct error *err)
{
    CLEANUP_BUF struct buf list = {0};
    CLEANUP_FREE struct type_desc **composites = xcalloc(all->n, sizeof(struct type_desc *));
    PGresult *r = NULL;
    size_t ncomposites = 0;
    int at = 0;
    for (unsigned i = 0; i < all->n; i++) {
        if (all->types[i].kind != TYPE_DESC_COMPOSITE)
            continue;
        composites[ncomposites++] = &all->types[i];
        list_add(&list, all->types[i].relid);
    }
    if (ncomposites == 0)
        return OK;
    qsort(composites, ncomposites, sizeof(struct type_desc *), by_relid);
    TRY(catalog_query_run(conn, composites_sql, list_end(&list), "pg_attribute", 5, &r, err));
    enum status st = OK;
    for (size_t i = 0; i < ncomposites && st == OK; i++) {
        struct type_desc *t = composites[i];
        int n = rows_of(r, t->relid, &at);
        t->atts = xcalloc((size_t)n, sizeof *t->atts);
        for (; t->natts < (unsigned)n && st == OK; t->natts++, at++)
            st = take_att(r, at, &t->atts[t->natts], err);
    }
    PQclear(r);
    return st;
}

static void type_copy(struct type_desc *to, const struct type_desc *from)
{
    *to = *from;
    to->shape = NULL;
    to->labels = xcalloc(from->nlabels, sizeof *from->labels);
    to->atts = xcalloc(from->natts, sizeof *from->atts);
    if (from->nlabels > 0)
        memcpy(to->labels, from->labels, from->nlabels * sizeof *from->labels);
    if (from->natts > 0)
        memcpy(to->atts, from->atts, from->natts * sizeof *from->atts);
}

/* A set of types that grows while it is walked. */
struct reach {
    const struct type_closure *all;
    const struct type_desc **types;
    unsigned n;
};

static void reach_add(struct reach *r, Oid oid)
{
    const struct type_desc *t = type_closure_find(r->all, oid);
    for (unsigned i = 0; t != NULL && i < r->n; i++)
        if (r->types[i] == t)
            t = NULL;
    if (t != NULL)
        r->types[r->n++] = t;
}

static struct type_closure *closure_of(const struct rel_desc *d, struct reach *r)
{
    r->n = 0;
    for (unsigned i = 0; i < d->natts; i++) {
        const struct type_desc *t =
            may_have_parts(&d->atts[i]) ? type_closure_find(r->all, d->atts[i].base_typid) : NULL;
        if (t != NULL && t->kind != TYPE_DESC_BASE)
            reach_add(r, t->oid);
    }
    for (unsigned i = 0; i < r->n; i++) {
        reach_add(r, r->types[i]->part_oid);
        for (unsigned a = 0; a < r->types[i]->natts; a++)
            reach_add(r, r->types[i]->atts[a].typid);
    }
    if (r->n == 0)
        return NULL;
    struct type_closure *c = type_closure_new(r->n);
    for (unsigned i = 0; i < r->n; i++)
        type_copy(&c->types[i], r->types[i]);
    return c;
}

static enum status read_all(PGconn *conn, char *list, struct type_closure **ret, struct error *err)
{
    PGresult *r = NULL;
    TRY(catalog_query_run(conn, types_sql, list, "pg_type", 8, &r, err));
    struct type_closure *all = type_closure_new((unsigned)PQntuples(r));
    enum status st = OK;
    for (unsigned i = 0; i < all->n && st == OK; i++)
        st = take_type(r, (int)i, &all->types[i], err);
    PQclear(r);
    if (st == OK)
        st = fill_labels(conn, all, err);
    if (st == OK)
        st = fill_composites(conn, all, err);
    if (st != OK) {
        type_closure_unref(all);
        return st;
    }
    *ret = all;
    return OK;
}

enum status catalog_query_types(PGconn *conn, struct rel_desc **descs, size_t n, struct error *err)
{
    CLEANUP_BUF struct buf list = {0};
    struct type_closure *all = NULL;
    for (size_t i = 0; i < n; i++)
        for (unsigned a = 0; a < descs[i]->natts; a++)
            if (may_have_parts(&descs[i]->atts[a]))
                list_add(&list, descs[i]->atts[a].base_typid);
    if (list.len == 0)
        return OK;
    TRY(read_all(conn, list_end(&list), &all, err));
    struct reach reach = {.all = all, .types = xcalloc(all->n, sizeof(struct type_desc *))};
    for (size_t i = 0; i < n; i++) {
        descs[i]->types = closure_of(descs[i], &reach);
        if (descs[i]->types != NULL)
            type_closure_seal(descs[i]->types);
    }
    free(reach.types);
    type_closure_unref(all);
    return OK;
}
