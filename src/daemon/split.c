/* Partitioned tables whose leaves have targets of their own (partitions = "leaf"). */
#include "daemon/state.h"

#include <stdlib.h>
#include <string.h>

static bool is_split(void *ctx, const char *schema, const char *table)
{
    const struct daemon *d = ctx;
    return config_splits(d->config, schema, table);
}

const struct catalog_split *daemon_split(struct daemon *d)
{
    CLEANUP_BUF struct buf names = {0};
    config_split_names(d->config, &names);
    d->split = (struct catalog_split){is_split, d};
    return names.len == 0 ? NULL : &d->split;
}

void daemon_split_save(struct daemon *d)
{
    CLEANUP_BUF struct buf names = {0};
    config_split_names(d->config, &names);
    free(d->manifest.split);
    d->manifest.split = names.len == 0 ? NULL : xstrdup(buf_cstr(&names));
}

/* One of the lines is this. */
static bool has_line(const char *lines, const char *line)
{
    size_t n = strlen(line);
    for (const char *at = lines; at != NULL && *at != 0; at = strchr(at, '\n') + 1)
        if (strncmp(at, line, n) == 0 && at[n] == '\n')
            return true;
    return false;
}

enum status daemon_split_check(struct daemon *d, struct error *err)
{
    struct rel_desc **all;
    size_t n;
    enum status st = OK;
    history_all(d->history, UINT64_MAX, &all, &n);
    for (size_t i = 0; i < n; i++) {
        CLEANUP_FREE char *name = xasprintf("%s.%s", all[i]->schema, all[i]->name);
        bool now = config_splits(d->config, all[i]->schema, all[i]->name);
        bool was = has_line(d->manifest.split, name);
        if (st == OK && all[i]->relkind == 'p' && now != was)
            st = error_set(err, ERR_CONFIG,
                           "[table.%s] partitions: it was \"%s\" when the table was loaded: set it "
                           "so again, or remove the state directory and load again",
                           name, was ? "leaf" : "root");
        rel_desc_unref(all[i]);
    }
    free(all);
    if (st == OK)
        daemon_split_save(d);
    return st;
}
