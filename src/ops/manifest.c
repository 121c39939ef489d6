#include "ops/manifest.h"

#include "base/fault.h"
#include "base/file.h"
#include "config/toml.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MANIFEST_MAX_BYTES (16u << 20)
#define END_MARK "end-of-manifest"

static const char *const load_states[] = {"none", "started", "waiting", "complete"};

/* The LSN fields of [lsn], by name. */
static const struct lsn_field {
    const char *key;
    size_t offset;
} lsn_fields[] = {
    {"source_received", offsetof(struct manifest, lsn.source_received)},
    {"filter_durable", offsetof(struct manifest, lsn.filter_durable)},
    {"shadow_replay", offsetof(struct manifest, lsn.shadow_replay)},
    {"drain", offsetof(struct manifest, lsn.drain)},
    {"emitter_ack", offsetof(struct manifest, lsn.emitter_ack)},
    {"shadow_flush", offsetof(struct manifest, lsn.shadow_flush)},
};

static char *strdup_or_null(const char *s)
{
    return s == NULL ? NULL : xstrdup(s);
}

void manifest_fini(struct manifest *m)
{
    for (size_t i = 0; i < m->nacks; i++)
        free(m->acks[i].destination);
    for (size_t i = 0; i < m->load.ntargets; i++) {
        free(m->load.targets[i].destination);
        free(m->load.targets[i].database);
        free(m->load.targets[i].table);
    }
    free(m->acks);
    free(m->load.targets);
    free(m->slot);
    free(m->split);
    memset(m, 0, sizeof *m);
}

void manifest_copy(const struct manifest *from, struct manifest *ret)
{
    *ret = *from;
    ret->slot = strdup_or_null(from->slot);
    ret->split = strdup_or_null(from->split);
    ret->acks = NULL;
    ret->nacks = 0;
    ret->load.targets = NULL;
    ret->load.ntargets = 0;
    for (size_t i = 0; i < from->nacks; i++)
        manifest_ack_set(ret, from->acks[i].destination, from->acks[i].lsn);
    for (size_t i = 0; i < from->load.ntargets; i++)
        manifest_target_add(ret, from->load.targets[i].destination, from->load.targets[i].database,
                            from->load.targets[i].table);
}

XLogRecPtr manifest_ack_get(const struct manifest *m, const char *destination)
{
    for (size_t i = 0; i < m->nacks; i++) {
        if (strcmp(m->acks[i].destination, destination) == 0)
            return m->acks[i].lsn;
    }
    return 0;
}

void manifest_ack_set(struct manifest *m, const char *destination, XLogRecPtr lsn)
{
    for (size_t i = 0; i < m->nacks; i++) {
        if (strcmp(m->acks[i].destination, destination) == 0) {
            m->acks[i].lsn = lsn;
            return;
        }
    }
    m->acks = xrealloc(m->acks, (m->nacks + 1) * sizeof *m->acks);
    m->acks[m->nacks++] = (struct manifest_ack){xstrdup(destination), lsn};
}

void manifest_target_add(struct manifest *m, const char *destination, const char *database,
                         const char *table)
{
    for (size_t i = 0; i < m->load.ntargets; i++) {
        const struct manifest_target *t = &m->load.targets[i];
        if (strcmp(t->destination, destination) == 0 && strcmp(t->database, database) == 0 &&
            strcmp(t->table, table) == 0)
            return;
    }
    m->load.targets = xrealloc(m->load.targets, (m->load.ntargets + 1) * sizeof *m->load.targets);
    m->load.targets[m->load.ntargets++] =
        (struct manifest_target){xstrdup(destination), xstrdup(database), xstrdup(table)};
}

/* ---- writing ---- */

/* A TOML basic string. Names that are not UTF-8 cannot come here: the configuration is TOML itself
 * and PostgreSQL's names are converted before they are used. */
static void put_quoted(struct buf *out, const char *text)
{
    buf_put_u8(out, '"');
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            buf_printf(out, "\\u%04X", c);
        else
            buf_put_u8(out, c);
    }
    buf_put_u8(out, '"');
}

static void put_lsn(struct buf *out, const char *key, XLogRecPtr lsn)
{
    buf_printf(out, "%s = \"" LSN_FMT "\"\n", key, LSN_ARGS(lsn));
}

static void manifest_render(const struct manifest *m, struct buf *out)
{
    buf_printf(out, "version = %d\n", MANIFEST_VERSION);
    put_lsn(out, "floor", m->floor);
    /* a text: a system identifier may be above TOML's signed 64 bits */
    buf_printf(out, "\n[source]\nsystem_id = \"%" PRIu64 "\"\ntimeline = %u\ndatabase_oid = %u\n",
               m->system_id, m->timeline, m->database_oid);
    if (m->slot != NULL) {
        buf_printf(out, "slot = ");
        put_quoted(out, m->slot);
        buf_printf(out, "\n");
    }
    if (m->split != NULL) {
        buf_printf(out, "split = ");
        put_quoted(out, m->split);
        buf_printf(out, "\n");
    }
    buf_printf(out, "\n[lsn]\n");
    for (size_t i = 0; i < LENGTH(lsn_fields); i++) {
        XLogRecPtr lsn;
        memcpy(&lsn, (const char *)m + lsn_fields[i].offset, sizeof lsn);
        put_lsn(out, lsn_fields[i].key, lsn);
    }
    buf_printf(out, "\n[ack]\n");
    for (size_t i = 0; i < m->nacks; i++) {
        put_quoted(out, m->acks[i].destination);
        put_lsn(out, "", m->acks[i].lsn);
    }
    buf_printf(out, "\n[load]\nstate = \"%s\"\n", load_states[m->load.state]);
    put_lsn(out, "start_lsn", m->load.start_lsn);
    put_lsn(out, "end_lsn", m->load.end_lsn);
    buf_printf(out, "next_xid = \"%" PRIu64 "\"\ntargets = [\n", m->load.next_xid);
    for (size_t i = 0; i < m->load.ntargets; i++) {
        const struct manifest_target *t = &m->load.targets[i];
        buf_printf(out, "  { destination = ");
        put_quoted(out, t->destination);
        buf_printf(out, ", database = ");
        put_quoted(out, t->database);
        buf_printf(out, ", table = ");
        put_quoted(out, t->table);
        buf_printf(out, " },\n");
    }
    /* the last key: a file cut short by a foreign hand does not pass for a smaller one */
    buf_printf(out, "]\n\n[end]\nmark = \"" END_MARK "\"\n");
}

enum status manifest_save(const struct manifest *m, const char *path, struct error *err)
{
    CLEANUP_BUF struct buf out = {0};
    manifest_render(m, &out);
    FAULT_POINT("manifest-before-write");
    return file_write_atomic(path, out.data, out.len, 0600, err);
}

/* ---- reading ---- */

struct reader {
    const char *path;
    struct error *err;
};

static enum status damaged(const struct reader *r, const char *what)
{
    return error_set(r->err, ERR_DATA,
                     "%s is damaged (%s): restore it, or start over with an empty state directory",
                     r->path, what);
}

static enum status read_lsn(const struct reader *r, const struct toml_value *table, const char *key,
                            XLogRecPtr *ret)
{
    const struct toml_value *v = toml_get(table, key);
    if (v == NULL || v->kind != TOML_STRING || !lsn_parse(v->string.data, ret))
        return damaged(r, key);
    return OK;
}

static enum status read_u64(const struct reader *r, const struct toml_value *table, const char *key,
                            uint64_t *ret)
{
    const struct toml_value *v = toml_get(table, key);
    char *end;
    if (v == NULL || v->kind != TOML_STRING || v->string.len == 0 ||
        strspn(v->string.data, "0123456789") != v->string.len)
        return damaged(r, key);
    errno = 0;
    *ret = strtoull(v->string.data, &end, 10);
    return errno == 0 ? OK : damaged(r, key);
}

static enum status read_u32(const struct reader *r, const struct toml_value *table, const char *key,
                            uint32_t *ret)
{
    const struct toml_value *v = toml_get(table, key);
    if (v == NULL || v->kind != TOML_INTEGER || v->integer < 0 || v->integer > UINT32_MAX)
        return damaged(r, key);
    *ret = (uint32_t)v->integer;
    return OK;
}

static enum status read_table(const struct reader *r, const struct toml_value *root,
                              const char *key, const struct toml_value **ret)
{
    *ret = toml_get(root, key);
    return *ret != NULL && (*ret)->kind == TOML_TABLE ? OK : damaged(r, key);
}

static enum status read_target(const struct reader *r, const struct toml_value *item,
                               struct manifest *m)
{
    static const char *const keys[] = {"destination", "database", "table"};
    const char *values[3];
    if (item->kind != TOML_TABLE)
        return damaged(r, "targets");
    for (size_t i = 0; i < 3; i++) {
        const struct toml_value *v = toml_get(item, keys[i]);
        if (v == NULL || v->kind != TOML_STRING)
            return damaged(r, "targets");
        values[i] = v->string.data;
    }
    manifest_target_add(m, values[0], values[1], values[2]);
    return OK;
}

static enum status read_load(const struct reader *r, const struct toml_value *root,
                             struct manifest *m)
{
    const struct toml_value *load, *state, *targets;
    TRY(read_table(r, root, "load", &load));
    state = toml_get(load, "state");
    bool known = false;
    for (size_t i = 0; state != NULL && state->kind == TOML_STRING && i < LENGTH(load_states);
         i++) {
        if (strcmp(state->string.data, load_states[i]) == 0) {
            m->load.state = (enum manifest_load_state)i;
            known = true;
        }
    }
    if (!known)
        return damaged(r, "load.state");
    TRY(read_lsn(r, load, "start_lsn", &m->load.start_lsn));
    TRY(read_lsn(r, load, "end_lsn", &m->load.end_lsn));
    TRY(read_u64(r, load, "next_xid", &m->load.next_xid));
    targets = toml_get(load, "targets");
    if (targets == NULL || targets->kind != TOML_ARRAY)
        return damaged(r, "targets");
    for (size_t i = 0; i < targets->array.len; i++)
        TRY(read_target(r, targets->array.items[i], m));
    return OK;
}

static enum status read_acks(const struct reader *r, const struct toml_value *root,
                             struct manifest *m)
{
    const struct toml_value *acks;
    TRY(read_table(r, root, "ack", &acks));
    for (const struct toml_entry *e = acks->table.first; e != NULL; e = e->next) {
        XLogRecPtr lsn;
        if (e->value->kind != TOML_STRING || !lsn_parse(e->value->string.data, &lsn))
            return damaged(r, "ack");
        manifest_ack_set(m, e->key.data, lsn);
    }
    return OK;
}

static enum status read_root(const struct reader *r, const struct toml_value *root,
                             struct manifest *m)
{
    const struct toml_value *version = toml_get(root, "version"), *source, *lsn, *end, *slot,
                            *split;
    if (version == NULL || version->kind != TOML_INTEGER || version->integer < 1)
        return damaged(r, "version");
    if (version->integer > MANIFEST_VERSION)
        return error_set(
            r->err, ERR_CONFIG,
            "%s has version %lld, this walshadow reads up to %d: use the newer program", r->path,
            (long long)version->integer, MANIFEST_VERSION);
    TRY(read_lsn(r, root, "floor", &m->floor));
    TRY(read_table(r, root, "source", &source));
    TRY(read_u64(r, source, "system_id", &m->system_id));
    TRY(read_u32(r, source, "timeline", &m->timeline));
    TRY(read_u32(r, source, "database_oid", &m->database_oid));
    slot = toml_get(source, "slot");
    if (slot != NULL && slot->kind != TOML_STRING)
        return damaged(r, "slot");
    m->slot = slot == NULL ? NULL : xstrdup(slot->string.data);
    split = toml_get(source, "split");
    if (split != NULL && (split->kind != TOML_STRING || split->string.len == 0 ||
                          split->string.data[split->string.len - 1] != '\n'))
        return damaged(r, "split");
    m->split = split == NULL ? NULL : xstrdup(split->string.data);
    TRY(read_table(r, root, "lsn", &lsn));
    for (size_t i = 0; i < LENGTH(lsn_fields); i++) {
        XLogRecPtr v;
        TRY(read_lsn(r, lsn, lsn_fields[i].key, &v));
        memcpy((char *)m + lsn_fields[i].offset, &v, sizeof v);
    }
    TRY(read_acks(r, root, m));
    TRY(read_load(r, root, m));
    TRY(read_table(r, root, "end", &end));
    end = toml_get(end, "mark");
    if (end == NULL || end->kind != TOML_STRING || strcmp(end->string.data, END_MARK) != 0)
        return damaged(r, "its end is missing");
    return OK;
}

enum status manifest_load(const char *path, struct manifest *ret, bool *ret_found,
                          struct error *err)
{
    CLEANUP_BUF struct buf text = {0};
    struct toml_doc *doc;
    struct manifest m = {0};
    struct reader r = {path, err};
    memset(ret, 0, sizeof *ret);
    *ret_found = false;
    if (!file_exists(path))
        return OK;
    TRY(file_read_all(path, MANIFEST_MAX_BYTES, &text, err));
    struct error syntax;
    if (toml_parse("manifest", (const char *)text.data, text.len, &doc, &syntax) != OK)
        return damaged(&r, syntax.message);
    enum status st = read_root(&r, doc->root, &m);
    toml_doc_free(doc);
    if (st != OK) {
        manifest_fini(&m);
        return st;
    }
    *ret = m;
    *ret_found = true;
    return OK;
}

enum status manifest_identity_check(const struct manifest *m, uint64_t system_id, uint32_t timeline,
                                    bool ignore_cursor, struct error *err)
{
    if (m->system_id != system_id)
        return error_set(
            err, ERR_CONFIG,
            "the state directory belongs to the cluster with system identifier %" PRIu64
            ", the source is %" PRIu64
            ": point source.conninfo at the former, or use another state directory",
            m->system_id, system_id);
    if (m->timeline != timeline && !ignore_cursor)
        return error_set(
            err, ERR_CONFIG,
            "the source is on timeline %u, the state directory on %u (a promoted standby?): "
            "--ignore-cursor takes the source's timeline and loads again",
            timeline, m->timeline);
    return OK;
}
