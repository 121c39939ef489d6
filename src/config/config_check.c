/* Computed defaults, and checks that concern more than one key. */
#include "config/config_assign.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <libpq-fe.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOT_NAME_MAX 63

static char *absolute_path(const char *path)
{
    char cwd[PATH_MAX];
    if (path[0] == '/' || getcwd(cwd, sizeof cwd) == NULL)
        return xstrdup(path);
    while (path[0] == '.' && path[1] == '/')
        path += 2;
    return xasprintf("%s/%s", strcmp(cwd, "/") == 0 ? "" : cwd, path);
}

static void replace(char **field, char *value)
{
    free(*field);
    *field = value;
}

/* The value libpq would use: from the text, else its own defaults (environment, service, user). */
static char *conninfo_get(const PQconninfoOption *parsed, const char *keyword)
{
    for (const PQconninfoOption *o = parsed; o != NULL && o->keyword != NULL; o++) {
        if (strcmp(o->keyword, keyword) == 0 && o->val != NULL && o->val[0] != '\0')
            return xstrdup(o->val);
    }
    return NULL;
}

static enum status finish_source(struct config *c, bool need_source, struct error *err)
{
    if (c->source.conninfo == NULL) {
        if (need_source)
            return error_set(
                err, ERR_CONFIG,
                "no source: give its URL (postgresql://user@host/database) or source.conninfo");
        if (c->source.slot == NULL)
            c->source.slot = xstrdup("walshadow");
        return OK;
    }
    char *why = NULL;
    PQconninfoOption *parsed = PQconninfoParse(c->source.conninfo, &why);
    if (parsed == NULL) {
        /* libpq quotes the text, which may hold a password: only the first words are repeated */
        enum status st = error_set(err, ERR_CONFIG, "source.conninfo: %.*s",
                                   why == NULL ? 0 : (int)strcspn(why, "\":\n"), why);
        PQfreemem(why);
        return st;
    }
    PQconninfoOption *defaults = PQconndefaults();
    c->source.database = conninfo_get(parsed, "dbname");
    if (c->source.database == NULL)
        c->source.database = conninfo_get(defaults, "dbname");
    if (c->source.database == NULL)
        c->source.database = conninfo_get(parsed, "user");
    if (c->source.database == NULL)
        c->source.database = conninfo_get(defaults, "user");
    PQconninfoFree(parsed);
    PQconninfoFree(defaults);
    if (c->source.database == NULL)
        return error_set(err, ERR_CONFIG, "source.conninfo names no database (dbname)");
    if (c->source.slot == NULL) {
        c->source.slot = xasprintf("walshadow_%s", c->source.database);
        for (char *s = c->source.slot; *s != '\0'; s++)
            *s = isalnum((unsigned char)*s) ? (char)tolower((unsigned char)*s) : '_';
        if (strlen(c->source.slot) > SLOT_NAME_MAX)
            c->source.slot[SLOT_NAME_MAX] = '\0';
    }
    size_t n = strspn(c->source.slot, "abcdefghijklmnopqrstuvwxyz0123456789_");
    if (c->source.slot[n] != '\0' || n > SLOT_NAME_MAX)
        return error_set(
            err, ERR_CONFIG,
            "source.slot \"%s\": a slot's name is up to 63 lower-case letters, digits and _",
            c->source.slot);
    return OK;
}

static bool is_loopback(const char *host)
{
    struct in_addr v4;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return strcmp(host, "::1") == 0 || strcmp(host, "localhost") == 0;
}

static enum status finish_http(struct config *c, struct error *err)
{
    const char *bind = c->http.bind, *colon = strrchr(bind, ':');
    char *end = NULL;
    long port =
        colon != NULL && isdigit((unsigned char)colon[1]) ? strtol(colon + 1, &end, 10) : -1;
    if (port < 0 || port > 65535 || *end != '\0' || colon == bind)
        return error_set(err, ERR_CONFIG, "http.bind \"%s\": must be HOST:PORT", bind);
    size_t n = (size_t)(colon - bind);
    bool bracket = n > 2 && bind[0] == '[' && bind[n - 1] == ']';
    c->http.host = xasprintf("%.*s", (int)(bracket ? n - 2 : n), bind + bracket);
    c->http.port = (uint16_t)port;
    if (!is_loopback(c->http.host) && c->http.password[0] == '\0')
        return error_set(err, ERR_CONFIG,
                         "http.bind \"%s\" is not loopback: set http.user and http.password", bind);
    if ((c->http.user[0] == '\0') != (c->http.password[0] == '\0'))
        return error_set(err, ERR_CONFIG, "http.user and http.password belong together");
    return OK;
}

static enum status finish_memory(struct config *c, struct error *err)
{
    bool given = c->origin[OPT_MEMORY_XACT_BUFFER_MAX] != ORIGIN_DEFAULT;
    if (c->memory.xact_buffer_max <= c->memory.resident_payload_max)
        return OK;
    if (given)
        return error_set(
            err, ERR_CONFIG,
            "memory.xact_buffer_max is a part of memory.resident_payload_max and must not "
            "be larger");
    c->memory.xact_buffer_max = c->memory.resident_payload_max / 2;
    return OK;
}

static enum status check_list(const struct config *c, const struct string_list *list,
                              const char *section, const char *name, struct error *err)
{
    for (size_t i = 0; i < list->len; i++) {
        bool known = false;
        for (size_t d = 0; d < c->ndestinations && !known; d++)
            known = strcmp(c->destinations[d].name, list->items[i]) == 0;
        if (!known)
            return error_set(err, ERR_CONFIG, "%s.%s.destinations: there is no [destination.%s]",
                             section, name, list->items[i]);
    }
    return OK;
}

static enum status check_destinations(const struct config *c, struct error *err)
{
    const char *chdb = NULL;
    for (size_t i = 0; i < c->ndestinations; i++) {
        if (c->destinations[i].kind != DESTINATION_CHDB)
            continue;
        if (chdb != NULL)
            return error_set(err, ERR_CONFIG,
                             "destination.%s.url: a daemon has one embedded engine, and "
                             "destination.%s is it: only one of them can be chdb:",
                             c->destinations[i].name, chdb);
        chdb = c->destinations[i].name;
    }
    if (c->ndestinations > 1)
        return error_set(err, ERR_CONFIG,
                         "more than one destination (%s, %s) is not supported by this version",
                         c->destinations[0].name, c->destinations[1].name);
    for (size_t i = 0; i < c->nnamespaces; i++)
        TRY(check_list(c, &c->namespaces[i].destinations, "namespace", c->namespaces[i].name, err));
    for (size_t i = 0; i < c->ntables; i++)
        TRY(check_list(c, &c->tables[i].destinations, "table", c->tables[i].name, err));
    return OK;
}

/* One source table per target. Only what is configured by name can clash here; the daemon checks
 * the tables that are really there. */
static enum status check_targets(const struct config *c, struct error *err)
{
    for (size_t i = 0; i < c->ntables; i++) {
        struct config_target a, b;
        config_table_resolve(c, &c->destinations[0], c->tables[i].schema, c->tables[i].name, &a);
        for (size_t j = 0; a.replicate && j < i; j++) {
            config_table_resolve(c, &c->destinations[0], c->tables[j].schema, c->tables[j].name,
                                 &b);
            if (b.replicate && strcmp(a.database, b.database) == 0 && strcmp(a.table, b.table) == 0)
                return error_set(err, ERR_CONFIG,
                                 "tables %s.%s and %s.%s have the same target %s.%s",
                                 c->tables[j].schema, c->tables[j].name, c->tables[i].schema,
                                 c->tables[i].name, a.database, a.table);
        }
    }
    return OK;
}

static enum status finish_initial_load(struct config *c, const char *text, struct error *err)
{
    bool supported = false;
    c->initial_load = LOAD_BASE_BACKUP;
    if (text != NULL) {
        const char *values = option_table[OPT_TABLE_INITIAL_LOAD].values;
        int index = option_enum_index(values, text, &supported);
        if (index < 0)
            return error_set(err, ERR_CONFIG,
                             "--initial-load %s: must be base_backup, copy or none", text);
        if (!supported)
            return error_set(err, ERR_CONFIG, "--initial-load %s is not supported by this version",
                             text);
        c->initial_load = (unsigned)index;
    }
    for (size_t i = 0; i < c->ntables; i++) {
        if (c->tables[i].origin[OPT_TABLE_INITIAL_LOAD] == ORIGIN_DEFAULT)
            c->tables[i].initial_load = c->initial_load;
    }
    return OK;
}

enum status config_finish(struct config *c, const struct config_args *args, struct error *err)
{
    replace(&c->state_dir, absolute_path(c->state_dir));
    size_t n = strlen(c->state_dir);
    while (n > 1 && c->state_dir[n - 1] == '/')
        c->state_dir[--n] = '\0';
    TRY(finish_source(c, args->need_source, err));
    config_destination_get(c, c->ndestinations == 0 ? "default" : c->destinations[0].name);
    for (size_t i = 0; i < c->ndestinations; i++)
        TRY(destination_finish(c, &c->destinations[i], err));
    for (size_t i = 0; i < c->nnamespaces; i++) {
        if (c->namespaces[i].origin[OPT_NS_DROP_TABLE_STRATEGY] == ORIGIN_DEFAULT)
            c->namespaces[i].drop_table_strategy = c->destinations[0].drop_table_strategy;
    }
    if (c->pipeline.decoder_pool_size == 0) {
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        c->pipeline.decoder_pool_size = MAX(1, MIN(cores, 8));
    }
    TRY(finish_initial_load(c, args->initial_load, err));
    TRY(finish_memory(c, err));
    TRY(finish_http(c, err));
    TRY(check_destinations(c, err));
    return check_targets(c, err);
}
