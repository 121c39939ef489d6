#include "table/alter.h"
#include "clickhouse/sql_quote.h"
#include "native/type_name.h"

#include <stdlib.h>
#include <string.h>

#define COMMENT_PREFIX "walshadow "

struct plan {
    const struct target_alter *a;
    const struct found_columns *found;
    int16_t *attnums;  /* per found column, 0: not a mapped one */
    const char **hold; /* per mapped column of `to`: its name at the destination, or NULL */
    struct buf *out;
    size_t start;
};

void found_columns_add(struct found_columns *f, char *name, char *type, char *comment)
{
    if (f->n == f->cap) {
        f->cap = MAX(2 * f->cap, (size_t)16);
        f->items = xrealloc(f->items, f->cap * sizeof *f->items);
    }
    f->items[f->n++] = (struct found_column){name, type, comment};
}

void found_columns_fini(struct found_columns *f)
{
    for (size_t i = 0; i < f->n; i++) {
        free(f->items[i].name);
        free(f->items[i].type);
        free(f->items[i].comment);
    }
    free(f->items);
    *f = (struct found_columns){0};
}

static int16_t attnum_by_name(const struct target *t, const char *name)
{
    for (unsigned i = 0; i < t->ncols; i++)
        if (strcmp(t->header->cols[i].name, name) == 0)
            return t->cols[i].attnum;
    return 0;
}

static bool has_attnum(const struct target *t, int16_t attnum)
{
    for (unsigned i = 0; i < t->ncols; i++)
        if (t->cols[i].attnum == attnum)
            return true;
    return false;
}

static int16_t attnum_by_comment(const char *comment)
{
    char *end;
    size_t n = strlen(COMMENT_PREFIX);
    if (strncmp(comment, COMMENT_PREFIX, n) != 0)
        return 0;
    long attnum = strtol(comment + n, &end, 10);
    return *end == '\0' && end != comment + n && attnum > 0 && attnum <= INT16_MAX ? (int16_t)attnum
                                                                                   : 0;
}

/* `to` may be NULL. A column without comment that has a new name was renamed before a kill. */
static int16_t attnum_of(const struct target *from, const struct target *to,
                         const struct found_column *c)
{
    int16_t attnum = attnum_by_comment(c->comment);
    if (attnum == 0)
        attnum = attnum_by_name(from, c->name);
    if (attnum == 0 && to != NULL) {
        attnum = attnum_by_name(to, c->name);
        if (!has_attnum(from, attnum))
            attnum = 0;
    }
    return attnum;
}

void target_stored_types(const struct target *from, const struct found_columns *found,
                         const char **ret, size_t n)
{
    memset(ret, 0, n * sizeof *ret);
    for (size_t i = 0; i < found->n; i++) {
        int16_t attnum = attnum_of(from, NULL, &found->items[i]);
        if (attnum > 0 && (size_t)attnum <= n)
            ret[attnum - 1] = found->items[i].type;
    }
}

static const char *found_type(const struct plan *p, const char *name)
{
    for (size_t i = 0; i < p->found->n; i++)
        if (strcmp(p->found->items[i].name, name) == 0)
            return p->found->items[i].type;
    return NULL;
}

/* Begins the next action of the one statement. */
static void action(struct plan *p, const char *verb, const char *name)
{
    if (p->out->len == p->start) {
        buf_printf(p->out, "ALTER TABLE ");
        sql_quote_ident(p->out, p->a->to->database);
        buf_printf(p->out, ".");
        sql_quote_ident(p->out, p->a->to->table);
        buf_printf(p->out, " ");
    } else {
        buf_printf(p->out, ", ");
    }
    buf_printf(p->out, "%s ", verb);
    sql_quote_ident(p->out, name);
}

static bool is_planned(const struct plan *p)
{
    return p->out->len > p->start;
}

static void put_comment(struct plan *p, int16_t attnum)
{
    buf_printf(p->out, " '" COMMENT_PREFIX "%d'", attnum);
}

static enum status match(struct plan *p, struct error *err)
{
    const struct target *to = p->a->to;
    for (size_t i = 0; i < p->found->n; i++) {
        p->attnums[i] = attnum_of(p->a->from, to, &p->found->items[i]);
        for (unsigned c = 0; p->attnums[i] > 0 && c < to->ncols; c++) {
            if (to->cols[c].attnum != p->attnums[i])
                continue;
            if (p->hold[c] != NULL)
                return error_set(err, ERR_CONFIG,
                                 "its columns \"%s\" and \"%s\" both stand for one of the source",
                                 p->hold[c], p->found->items[i].name);
            p->hold[c] = p->found->items[i].name;
        }
    }
    for (unsigned c = 0; c < to->ncols; c++)
        if (p->hold[c] == NULL && has_attnum(p->a->from, to->cols[c].attnum))
            return error_set(err, ERR_CONFIG, "its column \"%s\" is not at the destination",
                             to->header->cols[c].name);
    return OK;
}

/* A name that another column gives up: who is who must show without names. */
static bool names_change_hands(const struct target *from, const struct target *to)
{
    for (unsigned c = 0; c < to->ncols; c++) {
        int16_t before = attnum_by_name(from, to->header->cols[c].name);
        if (before != 0 && before != to->cols[c].attnum)
            return true;
    }
    return false;
}

static void plan_comments(struct plan *p)
{
    if (!names_change_hands(p->a->from, p->a->to))
        return;
    for (size_t i = 0; i < p->found->n; i++) {
        const struct found_column *c = &p->found->items[i];
        if (p->attnums[i] == 0 || attnum_by_comment(c->comment) != 0)
            continue;
        action(p, "COMMENT COLUMN", c->name);
        put_comment(p, p->attnums[i]);
    }
}

/* Only what the source had until now and has no longer. */
static void plan_drops(struct plan *p)
{
    for (size_t i = 0; i < p->found->n; i++)
        if (p->attnums[i] != 0 && has_attnum(p->a->from, p->attnums[i]) &&
            !has_attnum(p->a->to, p->attnums[i]))
            action(p, "DROP COLUMN IF EXISTS", p->found->items[i].name);
}

static enum status plan_renames(struct plan *p, struct error *err)
{
    const struct target *to = p->a->to;
    bool taken = false;
    for (unsigned c = 0; c < to->ncols; c++) {
        const char *name = to->header->cols[c].name;
        if (p->hold[c] != NULL && strcmp(p->hold[c], name) == 0)
            continue;
        if (p->hold[c] != NULL && to->cols[c].key_index > 0)
            return error_set(err, ERR_CONFIG, "\"%s\" is in the key and cannot be renamed",
                             p->hold[c]);
        for (size_t i = 0; i < p->found->n; i++) {
            if (strcmp(p->found->items[i].name, name) != 0)
                continue;
            if (!has_attnum(to, p->attnums[i]))
                return error_set(err, ERR_CONFIG, "it has another column \"%s\"", name);
            taken = true;
        }
    }
    for (unsigned c = 0; c < to->ncols; c++) {
        char aside[32];
        const char *name = to->header->cols[c].name;
        if (p->hold[c] == NULL || strcmp(p->hold[c], name) == 0)
            continue;
        snprintf(aside, sizeof aside, "walshadow_%d", to->cols[c].attnum);
        if (taken && strcmp(p->hold[c], aside) == 0)
            continue;
        action(p, "RENAME COLUMN", p->hold[c]);
        buf_printf(p->out, " TO ");
        sql_quote_ident(p->out, taken ? aside : name);
    }
    return OK;
}

static const struct type_node *unwrap(const struct type_node *t, bool *ret_nullable)
{
    if (t->kind == TYPE_LOW_CARDINALITY)
        t = t->children[0];
    *ret_nullable = t->kind == TYPE_NULLABLE;
    return *ret_nullable ? t->children[0] : t;
}

/* Every value stays what it is. */
static bool widens(const char *from, const char *to)
{
    struct arena arena = {0};
    const struct type_node *f, *t;
    bool f_null, t_null, ok = false;
    if (type_name_parse(&arena, from, strlen(from), &f, NULL) == OK &&
        type_name_parse(&arena, to, strlen(to), &t, NULL) == OK) {
        f = unwrap(f, &f_null);
        t = unwrap(t, &t_null);
        ok = (t_null || !f_null) && f->kind == t->kind;
        if (ok && f->kind == TYPE_DECIMAL)
            ok = f->scale == t->scale && f->precision <= t->precision;
        else if (ok && f->kind == TYPE_DATETIME64)
            ok = f->precision <= t->precision;
        else
            ok = ok && type_name_accepts(f, t);
    }
    arena_free(&arena);
    return ok;
}

static enum status plan_types(struct plan *p, struct error *err)
{
    const struct target *to = p->a->to;
    for (unsigned c = 0; c < to->ncols; c++) {
        const char *name = to->header->cols[c].name;
        const char *is = p->hold[c] == NULL ? NULL : found_type(p, name);
        const char *due = target_column_type(to, c);
        if (is == NULL || type_text_accepts(is, to->header->cols[c].type))
            continue;
        if (to->cols[c].key_index > 0 || !widens(is, due))
            return error_set(err, ERR_CONFIG, "\"%s\" cannot be turned from %s into %s exactly",
                             name, is, due);
        action(p, "MODIFY COLUMN", name);
        buf_printf(p->out, " %s", due);
    }
    return OK;
}

static enum status plan_adds(struct plan *p, struct error *err)
{
    const struct target *to = p->a->to;
    for (unsigned c = 0; c < to->ncols; c++) {
        CLEANUP_BUF struct buf value = {0};
        const char *name = to->header->cols[c].name;
        if (p->hold[c] != NULL)
            continue;
        if (to->cols[c].key_index > 0)
            return error_set(err, ERR_CONFIG, "\"%s\" is new in the key", name);
        if (p->a->added[c] != NULL && !target_default_sql(&to->cols[c], p->a->added[c], &value))
            return error_set(err, ERR_CONFIG,
                             "the value of \"%s\" in rows written before it was added cannot be "
                             "given to its target exactly",
                             name);
        action(p, "ADD COLUMN IF NOT EXISTS", name);
        buf_printf(p->out, " %s", target_column_type(to, c));
        if (value.len > 0)
            buf_printf(p->out, " DEFAULT %s", buf_cstr(&value));
        buf_printf(p->out, " COMMENT");
        put_comment(p, to->cols[c].attnum);
        buf_printf(p->out, c == 0 ? " FIRST" : " AFTER ");
        if (c > 0)
            sql_quote_ident(p->out, to->header->cols[c - 1].name);
    }
    return OK;
}

/* One kind of action at a time, so that each is planned from what the one before has left. */
static enum status plan_next(struct plan *p, struct error *err)
{
    TRY(match(p, err));
    plan_comments(p);
    if (!is_planned(p))
        plan_drops(p);
    if (!is_planned(p))
        TRY(plan_renames(p, err));
    if (!is_planned(p))
        TRY(plan_types(p, err));
    if (!is_planned(p))
        TRY(plan_adds(p, err));
    return OK;
}

enum status target_alter_next(const struct target_alter *a, const struct found_columns *found,
                              struct buf *ret, struct error *err)
{
    struct plan p = {.a = a, .found = found, .out = ret, .start = ret->len};
    p.attnums = xcalloc(found->n, sizeof *p.attnums);
    p.hold = xcalloc(a->to->ncols, sizeof *p.hold);
    enum status st = plan_next(&p, err);
    if (st != OK)
        ret->len = p.start;
    free(p.attnums);
    free(p.hold);
    return st;
}
