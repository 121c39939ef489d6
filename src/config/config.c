/* Loading: defaults, file, environment, command line, then the checks. */
#include "config/config_assign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct config_destination *config_destination_get(struct config *c, const char *name)
{
    for (size_t i = 0; i < c->ndestinations; i++) {
        if (strcmp(c->destinations[i].name, name) == 0)
            return &c->destinations[i];
    }
    c->destinations = xrealloc(c->destinations, (c->ndestinations + 1) * sizeof *c->destinations);
    struct config_destination *d = &c->destinations[c->ndestinations++];
    memset(d, 0, sizeof *d);
    d->name = xstrdup(name);
    options_assign_defaults(SCOPE_DESTINATION, d);
    return d;
}

struct config_namespace *config_namespace_get(struct config *c, const char *name)
{
    for (size_t i = 0; i < c->nnamespaces; i++) {
        if (strcmp(c->namespaces[i].name, name) == 0)
            return &c->namespaces[i];
    }
    c->namespaces = xrealloc(c->namespaces, (c->nnamespaces + 1) * sizeof *c->namespaces);
    struct config_namespace *n = &c->namespaces[c->nnamespaces++];
    memset(n, 0, sizeof *n);
    n->name = xstrdup(name);
    options_assign_defaults(SCOPE_NAMESPACE, n);
    return n;
}

struct config_table *config_table_get(struct config *c, const char *schema, const char *name)
{
    for (size_t i = 0; i < c->ntables; i++) {
        if (strcmp(c->tables[i].schema, schema) == 0 && strcmp(c->tables[i].name, name) == 0)
            return &c->tables[i];
    }
    c->tables = xrealloc(c->tables, (c->ntables + 1) * sizeof *c->tables);
    struct config_table *t = &c->tables[c->ntables++];
    memset(t, 0, sizeof *t);
    t->schema = xstrdup(schema);
    t->name = xstrdup(name);
    options_assign_defaults(SCOPE_TABLE, t);
    return t;
}

static enum status assign_flag(struct config *c, enum option_id id, const char *flag,
                               const char *text, struct error *err)
{
    struct config_place place = {ORIGIN_FLAG, flag, 0};
    if (text == NULL)
        return OK;
    return option_assign_text(&option_table[id], c, c->origin, text, &place, err);
}

static enum status read_sources(struct config *c, const struct config_args *args, struct error *err)
{
    if (args->file != NULL)
        TRY(config_read_file(c, args->file, err));
    if (c->ndestinations == 0)
        config_destination_get(c, "default"); /* so that the environment can name it */
    TRY(config_read_env(c, args->env, err));
    TRY(assign_flag(c, OPT_STATE_DIR, "--state-dir", args->state_dir, err));
    TRY(assign_flag(c, OPT_SOURCE_CONNINFO, "SOURCE_URL", args->source_url, err));
    for (size_t i = 0; i < args->nsets; i++)
        TRY(config_read_set(c, args->sets[i].key, args->sets[i].value, err));
    return OK;
}

enum status config_load(const struct config_args *args, struct config **ret, struct error *err)
{
    struct config *c = xcalloc(1, sizeof *c);
    options_assign_defaults(SCOPE_GLOBAL, c);
    enum status st = read_sources(c, args, err);
    if (st == OK)
        st = config_finish(c, args, err);
    if (st != OK) {
        config_free(c);
        return st;
    }
    *ret = c;
    return OK;
}

void config_free(struct config *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < c->ndestinations; i++) {
        free(c->destinations[i].name);
        free(c->destinations[i].path);
        options_release(SCOPE_DESTINATION, &c->destinations[i]);
    }
    for (size_t i = 0; i < c->nnamespaces; i++) {
        free(c->namespaces[i].name);
        options_release(SCOPE_NAMESPACE, &c->namespaces[i]);
    }
    for (size_t i = 0; i < c->ntables; i++) {
        free(c->tables[i].schema);
        free(c->tables[i].name);
        options_release(SCOPE_TABLE, &c->tables[i]);
    }
    free(c->destinations);
    free(c->namespaces);
    free(c->tables);
    free(c->source.database);
    free(c->http.host);
    options_release(SCOPE_GLOBAL, c);
    free(c);
}

static const struct config_namespace *find_namespace(const struct config *c, const char *schema)
{
    for (size_t i = 0; i < c->nnamespaces; i++) {
        if (strcmp(c->namespaces[i].name, schema) == 0)
            return &c->namespaces[i];
    }
    return NULL;
}

static const struct config_table *find_table(const struct config *c, const char *schema,
                                             const char *table)
{
    for (size_t i = 0; i < c->ntables; i++) {
        if (strcmp(c->tables[i].schema, schema) == 0 && strcmp(c->tables[i].name, table) == 0)
            return &c->tables[i];
    }
    return NULL;
}

bool config_splits(const struct config *c, const char *schema, const char *table)
{
    const struct config_table *t = find_table(c, schema, table);
    return t != NULL && t->partitions == PARTITIONS_LEAF;
}

void config_split_names(const struct config *c, struct buf *out)
{
    for (size_t i = 0; i < c->ntables; i++)
        if (c->tables[i].partitions == PARTITIONS_LEAF)
            buf_printf(out, "%s.%s\n", c->tables[i].schema, c->tables[i].name);
}

static bool list_holds(const struct string_list *list, const char *name)
{
    for (size_t i = 0; i < list->len; i++) {
        if (strcmp(list->items[i], name) == 0)
            return true;
    }
    return false;
}

/* The list that decides: the table's, else the namespace's, else all destinations. */
static bool routed_to(const struct config_table *t, const struct config_namespace *n,
                      const char *destination)
{
    const struct string_list *list = t != NULL && t->destinations.len > 0   ? &t->destinations
                                     : n != NULL && n->destinations.len > 0 ? &n->destinations
                                                                            : NULL;
    return list == NULL || list_holds(list, destination);
}

void config_table_resolve(const struct config *c, const struct config_destination *dest,
                          const char *schema, const char *table, struct config_target *ret)
{
    const struct config_namespace *n = find_namespace(c, schema);
    const struct config_table *t = find_table(c, schema, table);
    const char *base = dest->database != NULL ? dest->database : "";
    memset(ret, 0, sizeof *ret);
    ret->auto_create = n == NULL || n->auto_create;
    ret->initial_load = t != NULL ? t->initial_load : c->initial_load;
    ret->drop_table_strategy = n != NULL ? n->drop_table_strategy : dest->drop_table_strategy;
    if (t != NULL) {
        ret->on_bad_value = t->on_bad_value;
        ret->on_bad_value_set = t->origin[OPT_TABLE_ON_BAD_VALUE] != ORIGIN_DEFAULT;
        ret->columns = t->columns.items;
        ret->ncolumns = t->columns.len;
    }
    if (t != NULL && t->target_database != NULL)
        snprintf(ret->database, sizeof ret->database, "%s", t->target_database);
    else if (n != NULL && n->target_database != NULL)
        snprintf(ret->database, sizeof ret->database, "%s", n->target_database);
    else if (strcmp(schema, "public") == 0)
        snprintf(ret->database, sizeof ret->database, "%s", base);
    else
        snprintf(ret->database, sizeof ret->database, "%s_%s", base, schema);
    snprintf(ret->table, sizeof ret->table, "%s",
             t != NULL && t->target_table != NULL ? t->target_table : table);
    if (t != NULL && !t->replicate)
        ret->reason = "replicate = false";
    else if (c->source.tables == SOURCE_TABLES_LISTED && t == NULL && n == NULL)
        ret->reason = "source.tables = \"listed\" and there is no section for it";
    else if (!routed_to(t, n, dest->name))
        ret->reason = "not among its destinations";
    ret->replicate = ret->reason == NULL;
}
