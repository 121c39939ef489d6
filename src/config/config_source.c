/* Where values come from: file, environment, --set. */
#include "base/file.h"
#include "config/config_assign.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX_BYTES (4u << 20)
#define ENV_PREFIX "WALSHADOW_"

/* A struct of a scope and its origins. */
struct target_struct {
    void *base;
    uint8_t *origins;
};

static bool is_global_section(const char *name)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (option_table[i].scope == SCOPE_GLOBAL && option_table[i].section[0] != '\0' &&
            strcmp(option_table[i].section, name) == 0)
            return true;
    }
    return false;
}

static enum status unknown_key(const struct config_place *place, struct error *err,
                               const char *section, const char *key)
{
    return config_fail(place, err, "unknown key \"%s%s%s\"", section, section[0] != '\0' ? "." : "",
                       key);
}

static enum status check_destination_name(const char *name, const struct config_place *place,
                                          struct error *err)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
    if (n == 0 || name[n] != '\0' || n > 60)
        return config_fail(place, err,
                           "destination \"%s\": a name is up to 60 letters, digits, _ and -", name);
    return OK;
}

/* One section's table of keys. shown is its name in messages. */
static enum status read_section(enum option_scope scope, const char *section, const char *shown,
                                struct target_struct into, const struct toml_value *table,
                                const struct config_place *place, struct error *err)
{
    for (const struct toml_entry *e = table->table.first; e != NULL; e = e->next) {
        struct config_place here = *place;
        here.line = e->line;
        const struct option *o = option_find(scope, section, e->key.data);
        if (o == NULL || memchr(e->key.data, 0, e->key.len) != NULL)
            return unknown_key(&here, err, shown, e->key.data);
        TRY(option_assign_toml(o, into.base, into.origins, e->value, &here, err));
    }
    return OK;
}

static enum status read_destination(struct config *c, const char *name, const char *shown,
                                    const struct toml_value *v, const struct config_place *place,
                                    struct error *err)
{
    if (v->kind != TOML_TABLE)
        return config_fail(place, err, "%s must be a table: [destination.NAME]", shown);
    TRY(check_destination_name(name, place, err));
    struct config_destination *d = config_destination_get(c, name);
    return read_section(SCOPE_DESTINATION, "destination", shown,
                        (struct target_struct){d, d->origin}, v, place, err);
}

static enum status read_table_schema(struct config *c, const struct toml_entry *schema,
                                     const struct config_place *place, struct error *err)
{
    struct config_place here = *place;
    here.line = schema->line;
    if (schema->value->kind != TOML_TABLE)
        return config_fail(&here, err, "table.%s: tables are named [table.SCHEMA.TABLE]",
                           schema->key.data);
    for (const struct toml_entry *e = schema->value->table.first; e != NULL; e = e->next) {
        CLEANUP_FREE char *shown = xasprintf("table.%s.%s", schema->key.data, e->key.data);
        here.line = e->line;
        if (e->value->kind != TOML_TABLE)
            return config_fail(&here, err, "%s: tables are named [table.SCHEMA.TABLE]", shown);
        struct config_table *t = config_table_get(c, schema->key.data, e->key.data);
        TRY(read_section(SCOPE_TABLE, "table", shown, (struct target_struct){t, t->origin},
                         e->value, &here, err));
    }
    return OK;
}

/* [destination.*], [namespace.*], [table.*.*] */
static enum status read_named(struct config *c, const struct toml_entry *section,
                              const struct config_place *place, struct error *err)
{
    if (section->value->kind != TOML_TABLE)
        return config_fail(place, err, "%s must be a table", section->key.data);
    for (const struct toml_entry *e = section->value->table.first; e != NULL; e = e->next) {
        CLEANUP_FREE char *shown = xasprintf("%s.%s", section->key.data, e->key.data);
        struct config_place here = *place;
        here.line = e->line;
        if (strcmp(section->key.data, "destination") == 0) {
            TRY(read_destination(c, e->key.data, shown, e->value, &here, err));
        } else if (strcmp(section->key.data, "table") == 0) {
            TRY(read_table_schema(c, e, &here, err));
        } else {
            if (e->value->kind != TOML_TABLE)
                return config_fail(&here, err, "%s must be a table: [namespace.SCHEMA]", shown);
            struct config_namespace *n = config_namespace_get(c, e->key.data);
            TRY(read_section(SCOPE_NAMESPACE, "namespace", shown,
                             (struct target_struct){n, n->origin}, e->value, &here, err));
        }
    }
    return OK;
}

static enum status read_entry(struct config *c, const struct toml_value *root,
                              const struct toml_entry *e, const struct config_place *place,
                              struct error *err)
{
    const char *key = e->key.data;
    const struct option *o = option_find(SCOPE_GLOBAL, "", key);
    struct target_struct global = {c, c->origin};
    if (o != NULL)
        return option_assign_toml(o, c, c->origin, e->value, place, err);
    if (strcmp(key, "ch") == 0) {
        const struct toml_value *other = toml_get(root, "destination");
        if (other != NULL && other->kind == TOML_TABLE && toml_get(other, "default") != NULL)
            return config_fail(place, err,
                               "[ch] is another name of [destination.default]: give one");
        return read_destination(c, "default", "ch", e->value, place, err);
    }
    if (strcmp(key, "destination") == 0 || strcmp(key, "namespace") == 0 ||
        strcmp(key, "table") == 0)
        return read_named(c, e, place, err);
    if (!is_global_section(key))
        return unknown_key(place, err, "", key);
    if (e->value->kind != TOML_TABLE)
        return config_fail(place, err, "%s must be a table: [%s]", key, key);
    return read_section(SCOPE_GLOBAL, key, key, global, e->value, place, err);
}

enum status config_read_file(struct config *c, const char *path, struct error *err)
{
    CLEANUP_BUF struct buf text = {0};
    struct toml_doc *doc;
    enum status st = file_read_all(path, FILE_MAX_BYTES, &text, err);
    if (st != OK)
        return error_set(err, ERR_CONFIG, "cannot read the configuration file: %s",
                         ((struct error) * err).message);
    TRY(toml_parse(path, (const char *)text.data, text.len, &doc, err));
    for (const struct toml_entry *e = doc->root->table.first; e != NULL && st == OK; e = e->next) {
        struct config_place place = {ORIGIN_FILE, path, e->line};
        st = read_entry(c, doc->root, e, &place, err);
    }
    toml_doc_free(doc);
    return st;
}

/* ---- environment ---- */

/* Appends upper-cased, what cannot be in a variable's name as _. */
static void put_upper(char *out, size_t cap, const char *text)
{
    size_t n = strlen(out);
    for (; *text != '\0' && n + 1 < cap; text++)
        out[n++] = isalnum((unsigned char)*text) ? (char)toupper((unsigned char)*text) : '_';
    out[n] = '\0';
}

/* name (behind WALSHADOW_) = PREFIX_KEY of a scope's option? */
static const struct option *env_option(enum option_scope scope, const char *name,
                                       const char *const *prefix)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        char want[300] = "";
        const struct option *o = &option_table[i];
        if (o->scope != scope)
            continue;
        if (prefix == NULL && o->section[0] != '\0') {
            put_upper(want, sizeof want, o->section);
            put_upper(want, sizeof want, "_");
        }
        for (size_t p = 0; prefix != NULL && prefix[p] != NULL; p++) {
            put_upper(want, sizeof want, prefix[p]);
            put_upper(want, sizeof want, "_");
        }
        put_upper(want, sizeof want, o->key);
        if (strcmp(want, name) == 0)
            return o;
    }
    return NULL;
}

/* The option a variable names, and the struct it goes into. */
static const struct option *env_find(struct config *c, const char *name, struct target_struct *into)
{
    const struct option *o = env_option(SCOPE_GLOBAL, name, NULL);
    *into = (struct target_struct){c, c->origin};
    if (o != NULL)
        return o;
    for (size_t i = 0; i < c->ndestinations; i++) {
        struct config_destination *d = &c->destinations[i];
        *into = (struct target_struct){d, d->origin};
        o = env_option(SCOPE_DESTINATION, name, (const char *[]){"destination", d->name, NULL});
        if (o == NULL && strcmp(d->name, "default") == 0)
            o = env_option(SCOPE_DESTINATION, name, (const char *[]){"ch", NULL});
        if (o != NULL)
            return o;
    }
    for (size_t i = 0; i < c->nnamespaces; i++) {
        struct config_namespace *n = &c->namespaces[i];
        *into = (struct target_struct){n, n->origin};
        o = env_option(SCOPE_NAMESPACE, name, (const char *[]){"namespace", n->name, NULL});
        if (o != NULL)
            return o;
    }
    for (size_t i = 0; i < c->ntables; i++) {
        struct config_table *t = &c->tables[i];
        *into = (struct target_struct){t, t->origin};
        o = env_option(SCOPE_TABLE, name, (const char *[]){"table", t->schema, t->name, NULL});
        if (o != NULL)
            return o;
    }
    return NULL;
}

enum status config_read_env(struct config *c, char *const *env, struct error *err)
{
    for (; env != NULL && *env != NULL; env++) {
        const char *eq = strchr(*env, '=');
        if (eq == NULL || strncmp(*env, ENV_PREFIX, strlen(ENV_PREFIX)) != 0 ||
            strncmp(*env, ENV_PREFIX "TEST_", strlen(ENV_PREFIX "TEST_")) == 0)
            continue;
        CLEANUP_FREE char *variable = xasprintf("%.*s", (int)(eq - *env), *env);
        struct config_place place = {ORIGIN_ENV, variable, 0};
        struct target_struct into;
        const struct option *o = env_find(c, variable + strlen(ENV_PREFIX), &into);
        if (o == NULL) {
            log_warn("msg=\"unknown environment variable\" name=%s", variable);
            continue;
        }
        TRY(option_assign_text(o, into.base, into.origins, eq + 1, &place, err));
    }
    return OK;
}

/* ---- --set ---- */

/* Splits section.key by TOML's rules for dotted keys; parts stay in doc. */
static enum status split_key(const char *key, struct toml_doc **ret_doc, const char **parts,
                             size_t *nparts, const struct config_place *place, struct error *err)
{
    CLEANUP_FREE char *text = xasprintf("%s = 0", key);
    struct error ignored;
    if (strchr(key, '\n') != NULL || toml_parse("key", text, strlen(text), ret_doc, &ignored) != OK)
        return config_fail(place, err, "\"%s\" is not SECTION.KEY", key);
    const struct toml_value *v = (*ret_doc)->root;
    for (*nparts = 0; v->kind == TOML_TABLE && v->table.first != NULL && *nparts < 5; (*nparts)++) {
        parts[*nparts] = v->table.first->key.data;
        v = v->table.first->value;
    }
    return OK;
}

static enum status set_parts(struct config *c, const char *const *parts, size_t n,
                             const char *value, const struct config_place *place, struct error *err)
{
    struct target_struct into = {c, c->origin};
    const struct option *o = NULL;
    if (n == 1) {
        o = option_find(SCOPE_GLOBAL, "", parts[0]);
    } else if (n == 2 && strcmp(parts[0], "ch") != 0) {
        o = option_find(SCOPE_GLOBAL, parts[0], parts[1]);
    } else if ((n == 2 || n == 3) &&
               (o = option_find(SCOPE_DESTINATION, n == 2 ? "destination" : parts[0],
                                parts[n - 1])) != NULL) {
        TRY(check_destination_name(n == 2 ? "default" : parts[1], place, err));
        struct config_destination *d = config_destination_get(c, n == 2 ? "default" : parts[1]);
        into = (struct target_struct){d, d->origin};
    } else if (n == 3 && (o = option_find(SCOPE_NAMESPACE, parts[0], parts[2])) != NULL) {
        struct config_namespace *ns = config_namespace_get(c, parts[1]);
        into = (struct target_struct){ns, ns->origin};
    } else if (n == 4 && (o = option_find(SCOPE_TABLE, parts[0], parts[3])) != NULL) {
        struct config_table *t = config_table_get(c, parts[1], parts[2]);
        into = (struct target_struct){t, t->origin};
    }
    if (o == NULL)
        return config_fail(place, err, "unknown key");
    return option_assign_text(o, into.base, into.origins, value, place, err);
}

enum status config_read_set(struct config *c, const char *key, const char *value, struct error *err)
{
    const char *parts[5];
    size_t nparts = 0;
    struct toml_doc *doc = NULL;
    CLEANUP_FREE char *shown = xasprintf("--set %s", key);
    /* a value may be quoted as in a file */
    size_t len = strlen(value);
    bool quoted = len >= 2 && value[0] == '"' && value[len - 1] == '"';
    CLEANUP_FREE char *plain = xasprintf("%.*s", (int)(quoted ? len - 2 : len), value + quoted);
    struct config_place place = {ORIGIN_FLAG, shown, 0};
    TRY(split_key(key, &doc, parts, &nparts, &place, err));
    enum status st = set_parts(c, parts, nparts, plain, &place, err);
    toml_doc_free(doc);
    return st;
}
