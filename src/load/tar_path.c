#include "load/tar_path.h"

#include <stdio.h>
#include <string.h>

#define MAX_PARTS 6

/* pg_largeobject and its index: data, not catalog (kept out under their first filenodes here, under
 * later ones by is_catalog) */
#define LargeObjectRelationId 2613u
#define LargeObjectLOidPNIndexId 2683u

struct parts {
    unsigned n;
    char text[TAR_PATH_MAX];
    const char *part[MAX_PARTS];
};

static bool in_list(const char *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}
#define IN_LIST(list, name) in_list((list), LENGTH(list), (name))

/* Splits at '/'; an archive of a tablespace goes below pg_tblspc/<oid>. "./" in front and '/' at
 * the end are dropped. ret->n = MAX_PARTS + 1: deeper than anything we know. */
static enum status path_split(Oid tablespace_oid, const char *path, struct parts *ret,
                              struct error *err)
{
    if (path[0] == '/')
        return error_set(err, ERR_DATA, "backup entry with an absolute path: %.200s", path);
    while (path[0] == '.' && path[1] == '/')
        path += 2;
    int len = tablespace_oid == 0
                  ? snprintf(ret->text, sizeof ret->text, "%s", path)
                  : snprintf(ret->text, sizeof ret->text, "pg_tblspc/%u/%s", tablespace_oid, path);
    if (len <= 0 || (size_t)len >= sizeof ret->text)
        return error_set(err, ERR_DATA, "backup entry with a path of %d bytes: %.200s", len, path);
    if (ret->text[len - 1] == '/')
        ret->text[len - 1] = '\0';
    ret->n = 0;
    for (char *at = ret->text, *next; at != NULL; at = next) {
        next = strchr(at, '/');
        if (next != NULL)
            *next++ = '\0';
        if (strcmp(at, "..") == 0 || (ret->n > 0 && at[0] == '\0'))
            return error_set(err, ERR_DATA, "backup entry with a path that is not plain: %.200s",
                             path);
        if (ret->n < MAX_PARTS)
            ret->part[ret->n] = at;
        if (ret->n <= MAX_PARTS)
            ret->n++;
    }
    return OK;
}

/* Decimal, without sign or leading zero, that fits; NULL if there is none at `text`. */
static const char *number_take(const char *text, uint32_t *ret)
{
    uint64_t v = 0;
    const char *at = text;
    if (*at < '1' || *at > '9')
        return NULL;
    for (; *at >= '0' && *at <= '9'; at++) {
        v = v * 10 + (unsigned)(*at - '0');
        if (v > UINT32_MAX)
            return NULL;
    }
    *ret = (uint32_t)v;
    return at;
}

static bool is_oid(const char *text, Oid *ret)
{
    const char *end = number_take(text, ret);
    return end != NULL && *end == '\0';
}

struct rel_file_name {
    Oid rel_number;
    enum fork_number fork;
    uint32_t segment;
};

/* FILENODE[_fsm|_vm|_init][.SEGMENT]; temporary relations (tBACKEND_FILENODE) do not match. */
static bool rel_file_name_parse(const char *name, struct rel_file_name *ret)
{
    static const struct {
        const char *suffix;
        enum fork_number fork;
    } forks[] = {{"_fsm", FSM_FORKNUM}, {"_vm", VISIBILITYMAP_FORKNUM}, {"_init", INIT_FORKNUM}};
    *ret = (struct rel_file_name){.fork = MAIN_FORKNUM};
    const char *at = number_take(name, &ret->rel_number);
    if (at == NULL)
        return false;
    for (size_t i = 0; i < LENGTH(forks); i++) {
        size_t n = strlen(forks[i].suffix);
        if (strncmp(at, forks[i].suffix, n) == 0) {
            ret->fork = forks[i].fork;
            at += n;
            break;
        }
    }
    if (*at == '.')
        at = number_take(at + 1, &ret->segment);
    return at != NULL && *at == '\0';
}

/* PG_<major>_<catalog version> */
static bool is_version_dir(const char *name)
{
    uint32_t major, version;
    if (strncmp(name, "PG_", 3) != 0 || (name = number_take(name + 3, &major)) == NULL)
        return false;
    return *name == '_' && (name = number_take(name + 1, &version)) != NULL && *name == '\0';
}

static enum tar_action rel_file_action(const struct tar_rules *r, struct rel_file_locator locator,
                                       const struct rel_file_name *f)
{
    bool system = f->rel_number < FirstNormalObjectId;
    if (f->fork == INIT_FORKNUM || locator.rel_number == LargeObjectRelationId ||
        locator.rel_number == LargeObjectLOidPNIndexId)
        return TAR_SKIP;
    if (system || locator.spc_oid == GLOBALTABLESPACE_OID || r->is_catalog(r->ctx, locator))
        return TAR_LAND;
    return f->fork == MAIN_FORKNUM && r->is_wanted(r->ctx, locator) ? TAR_HEAP : TAR_SKIP;
}

/* A file in a database's directory of tablespace spc, or in global (db 0). */
static enum tar_action database_file(const struct tar_rules *r, Oid spc, Oid db, const char *name,
                                     struct tar_target *ret)
{
    struct rel_file_name f;
    bool home = db == 0 || spc == r->db_tablespace; /* where PG_VERSION and the map belong */
    if (home && (strcmp(name, "pg_filenode.map") == 0 ||
                 strcmp(name, db == 0 ? "pg_control" : "PG_VERSION") == 0))
        return TAR_LAND;
    if (!rel_file_name_parse(name, &f))
        return TAR_SKIP;
    ret->locator = (struct rel_file_locator){spc, db, f.rel_number};
    ret->segment = f.segment;
    return rel_file_action(r, ret->locator, &f);
}

static enum tar_action file_action(const struct tar_rules *r, const struct parts *p,
                                   struct tar_target *ret)
{
    static const char *const root[] = {"PG_VERSION", "backup_label"};
    static const char *const flat[] = {"pg_xact", "pg_commit_ts", "pg_twophase"};
    static const char *const deep[] = {"pg_multixact/members", "pg_multixact/offsets",
                                       "pg_logical/mappings", "pg_logical/snapshots"};
    const char *top = p->part[0];
    Oid spc, db;
    if (p->n == 1)
        return IN_LIST(root, top) ? TAR_LAND : TAR_SKIP;
    if (p->n == 2 && strcmp(top, "global") == 0)
        return database_file(r, GLOBALTABLESPACE_OID, 0, p->part[1], ret);
    if (p->n == 2)
        return IN_LIST(flat, top) || (strcmp(top, "pg_logical") == 0 &&
                                      strcmp(p->part[1], "replorigin_checkpoint") == 0)
                   ? TAR_LAND
                   : TAR_SKIP;
    if (p->n == 3 && strcmp(top, "base") == 0)
        return is_oid(p->part[1], &db) && db == r->db_oid
                   ? database_file(r, DEFAULTTABLESPACE_OID, db, p->part[2], ret)
                   : TAR_SKIP;
    if (p->n == 3) {
        char dir[64];
        snprintf(dir, sizeof dir, "%.20s/%.20s", top, p->part[1]);
        return IN_LIST(deep, dir) ? TAR_LAND : TAR_SKIP;
    }
    if (p->n == 5 && strcmp(top, "pg_tblspc") == 0 && is_oid(p->part[1], &spc) &&
        is_version_dir(p->part[2]) && is_oid(p->part[3], &db) && db == r->db_oid)
        return database_file(r, spc, db, p->part[4], ret);
    return TAR_SKIP;
}

static enum tar_action dir_action(const struct tar_rules *r, const struct parts *p)
{
    static const char *const root[] = {
        "base",        "global",      "pg_commit_ts", "pg_dynshmem",  "pg_logical", "pg_multixact",
        "pg_notify",   "pg_replslot", "pg_serial",    "pg_snapshots", "pg_stat",    "pg_stat_tmp",
        "pg_subtrans", "pg_tblspc",   "pg_twophase",  "pg_wal",       "pg_xact"};
    static const char *const below[] = {"pg_multixact/members",  "pg_multixact/offsets",
                                        "pg_logical/mappings",   "pg_logical/snapshots",
                                        "pg_wal/archive_status", "pg_wal/summaries"};
    Oid oid;
    if (p->n == 1)
        return IN_LIST(root, p->part[0]) ? TAR_DIR : TAR_SKIP;
    if (strcmp(p->part[0], "pg_tblspc") == 0) {
        /* only the tablespace that holds our catalogs, as a real directory (never a link) */
        bool ours = p->n <= 4 && is_oid(p->part[1], &oid) && oid == r->db_tablespace;
        ours = ours && (p->n < 3 || is_version_dir(p->part[2]));
        ours = ours && (p->n < 4 || (is_oid(p->part[3], &oid) && oid == r->db_oid));
        return ours ? TAR_DIR : TAR_SKIP;
    }
    if (p->n != 2)
        return TAR_SKIP;
    if (strcmp(p->part[0], "base") == 0)
        return is_oid(p->part[1], &oid) && oid == r->db_oid ? TAR_DIR : TAR_SKIP;
    char dir[64];
    snprintf(dir, sizeof dir, "%.20s/%.20s", p->part[0], p->part[1]);
    return IN_LIST(below, dir) ? TAR_DIR : TAR_SKIP;
}

static void path_join(const struct parts *p, char *ret)
{
    size_t at = 0;
    for (unsigned i = 0; i < p->n; i++) {
        size_t n = strlen(p->part[i]);
        if (i > 0)
            ret[at++] = '/';
        memcpy(ret + at, p->part[i], n);
        at += n;
    }
    ret[at] = '\0';
}

enum status tar_path_classify(const struct tar_rules *rules, Oid tablespace_oid, const char *path,
                              enum tar_kind kind, struct tar_target *ret, struct error *err)
{
    struct parts parts;
    TRY(path_split(tablespace_oid, path, &parts, err));
    ret->action = TAR_SKIP;
    if (parts.n > MAX_PARTS || kind == TAR_KIND_OTHER)
        return OK;
    ret->action =
        kind == TAR_KIND_DIR ? dir_action(rules, &parts) : file_action(rules, &parts, ret);
    if (ret->action == TAR_DIR || ret->action == TAR_LAND)
        path_join(&parts, ret->path);
    return OK;
}
