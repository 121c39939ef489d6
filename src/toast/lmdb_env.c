#include "toast/lmdb_env.h"
#include "base/crc32c.h"
#include "base/cursor.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_MAP_BYTES ((uint64_t)256 << 20)
#define MAX_READERS 512
#define FREE_DBI 0 /* LMDB's list of free pages by the transaction that freed them */
#define FORMAT_KEY ((MDB_val){6, (void *)(uintptr_t) "format"})

enum status lmdb_env_error(const struct lmdb_env *e, int rc, const char *what, struct error *err)
{
    if (rc > 0) {
        errno = rc;
        return error_sys(err, rc == EINTR || rc == EAGAIN ? ERR_RETRY : ERR_CONFIG,
                         "TOAST store %s: %s", e->dir, what);
    }
    if (rc == MDB_VERSION_MISMATCH)
        return error_set(err, ERR_CONFIG, "TOAST store %s: made by another version of LMDB",
                         e->dir);
    if (rc == MDB_CORRUPTED || rc == MDB_INVALID || rc == MDB_PAGE_NOTFOUND)
        return error_set(err, ERR_DATA, "TOAST store %s: data.mdb is damaged: %s: %s", e->dir, what,
                         mdb_strerror(rc));
    return error_set(err, ERR_BUG, "TOAST store %s: %s: %s", e->dir, what, mdb_strerror(rc));
}

enum status lmdb_env_damaged(const struct lmdb_env *e, const char *what, struct error *err)
{
    return error_set(err, ERR_DATA, "TOAST store %s: data.mdb is damaged: %s", e->dir, what);
}

/* LMDB reports a write that was cut short as EIO: what the system says to another one. */
static int write_errno(const struct lmdb_env *e)
{
    static const uint8_t zeros[65536];
    struct stat file;
    int found = EIO;
    if (fstat(e->fd, &file) != 0)
        return EIO;
    for (unsigned tries = 0; tries < 2 && found == EIO; tries++)
        if (pwrite(e->fd, zeros, sizeof zeros, file.st_size + tries * (off_t)sizeof zeros) < 0)
            found = errno;
    return ftruncate(e->fd, file.st_size) == 0 ? found : EIO;
}

enum status lmdb_env_write_error(const struct lmdb_env *e, int rc, struct error *err)
{
    return lmdb_env_error(e, rc == EIO ? write_errno(e) : rc, "cannot write data.mdb", err);
}

static enum status open_tables(struct lmdb_env *e, MDB_txn *txn, unsigned flags, struct error *err)
{
    const struct {
        const char *name;
        MDB_dbi *dbi;
    } tables[] = {
        {"meta", &e->meta},   {"chunk", &e->chunk}, {"row", &e->row},
        {"death", &e->death}, {"reset", &e->reset},
    };
    for (size_t i = 0; i < LENGTH(tables); i++) {
        int rc = mdb_dbi_open(txn, tables[i].name, flags, tables[i].dbi);
        if (rc == MDB_NOTFOUND || rc == MDB_INCOMPATIBLE)
            return lmdb_env_damaged(e, "a table is missing", err);
        if (rc != 0)
            return lmdb_env_error(e, rc, "cannot open a table", err);
    }
    return OK;
}

/* Environment only, no tables. */
static enum status open_env(struct lmdb_env *e, const char *dir, uint64_t map_bytes,
                            struct error *err)
{
    e->dir = xstrdup(dir);
    e->map_bytes = map_bytes == 0 ? FIRST_MAP_BYTES : map_bytes;
    int rc = mdb_env_create(&e->env);
    if (rc == 0)
        rc = mdb_env_set_maxdbs(e->env, 8);
    if (rc == 0)
        rc = mdb_env_set_maxreaders(e->env, MAX_READERS);
    if (rc == 0)
        rc = mdb_env_set_mapsize(e->env, e->map_bytes);
    /* NOMETASYNC: data is synced at each commit, the page that points to it by the next sync: a
     * loss of power may undo the last transaction, never tear one */
    if (rc == 0)
        rc = mdb_env_open(e->env, dir, MDB_NOTLS | MDB_NOMETASYNC, 0600);
    if (rc != 0)
        return lmdb_env_error(e, rc, "cannot open", err);
    MDB_envinfo info;
    MDB_stat stat;
    mdb_env_info(e->env, &info);
    mdb_env_stat(e->env, &stat);
    mdb_env_get_fd(e->env, &e->fd);
    e->map_bytes = info.me_mapsize;
    e->page_bytes = stat.ms_psize;
    return OK;
}

static void close_env(struct lmdb_env *e)
{
    if (e->env != NULL)
        mdb_env_close(e->env);
    e->env = NULL;
    free(e->dir);
    e->dir = NULL;
}

void lmdb_env_close(struct lmdb_env *e)
{
    close_env(e);
}

static enum status put_format(struct lmdb_env *e, struct error *err)
{
    uint32_t version = TOAST_FORMAT_VERSION;
    MDB_val key = FORMAT_KEY, value = {sizeof version, &version};
    MDB_txn *txn = NULL;
    int rc = mdb_txn_begin(e->env, NULL, 0, &txn);
    if (rc != 0)
        return lmdb_env_error(e, rc, "cannot begin", err);
    enum status st = open_tables(e, txn, MDB_CREATE, err);
    if (st == OK && (rc = mdb_put(txn, e->meta, &key, &value, 0)) != 0)
        st = lmdb_env_error(e, rc, "cannot write", err);
    if (st != OK) {
        mdb_txn_abort(txn);
        return st;
    }
    rc = mdb_txn_commit(txn);
    if (rc == 0)
        rc = mdb_env_sync(e->env, 1);
    return rc == 0 ? OK : lmdb_env_error(e, rc, "cannot write", err);
}

static enum status create(const char *dir, struct error *err)
{
    CLEANUP_FREE char *aside = xasprintf("%s.new", dir);
    CLEANUP_FREE char *parent = xasprintf("%s/..", dir);
    struct lmdb_env e = {0};
    TRY(file_remove_tree(aside, true, err));
    TRY(file_mkdir_p(aside, 0700, err));
    enum status st = open_env(&e, aside, 0, err);
    if (st == OK)
        st = put_format(&e, err);
    close_env(&e);
    if (st == OK)
        st = file_fsync_dir(aside, err);
    if (st == OK && rename(aside, dir) != 0)
        st = error_sys(err, ERR_CONFIG, "cannot rename %s", aside);
    return st == OK ? file_fsync_dir(parent, err) : st;
}

static enum status check_format(struct lmdb_env *e, struct error *err)
{
    MDB_val key = FORMAT_KEY, value;
    MDB_txn *txn = NULL;
    int rc = mdb_txn_begin(e->env, NULL, MDB_RDONLY, &txn);
    if (rc != 0)
        return lmdb_env_error(e, rc, "cannot begin", err);
    enum status st = open_tables(e, txn, 0, err);
    if (st == OK && (rc = mdb_get(txn, e->meta, &key, &value)) != 0)
        st = lmdb_env_damaged(e, "it has no format version", err);
    if (st == OK) {
        struct cursor c = cursor_of(value.mv_data, value.mv_size);
        uint32_t version = cursor_u32(&c);
        if (!cursor_ok(&c) || version == 0)
            st = lmdb_env_damaged(e, "its format version", err);
        else if (version > TOAST_FORMAT_VERSION)
            st = error_set(err, ERR_CONFIG,
                           "TOAST store %s has format %u, this version knows %u: use a newer one",
                           e->dir, version, TOAST_FORMAT_VERSION);
    }
    if (st == OK)
        mdb_txn_commit(txn); /* keeps the table handles */
    else
        mdb_txn_abort(txn);
    return st;
}

static enum status walk_table(struct lmdb_env *e, MDB_txn *txn, MDB_dbi dbi, struct error *err)
{
    MDB_cursor *cursor;
    MDB_val key, value;
    enum status st = OK;
    int rc = mdb_cursor_open(txn, dbi, &cursor);
    if (rc != 0)
        return lmdb_env_error(e, rc, "cannot read", err);
    while (st == OK && (rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
        uint32_t crc;
        if (dbi != e->chunk)
            continue;
        if (value.mv_size <= CHUNK_HEAD_BYTES)
            st = lmdb_env_damaged(e, "a chunk without data", err);
        else if (memcpy(&crc, value.mv_data, CHUNK_HEAD_BYTES),
                 crc != crc32c((uint8_t *)value.mv_data + CHUNK_HEAD_BYTES,
                               value.mv_size - CHUNK_HEAD_BYTES))
            st = lmdb_env_damaged(e, "checksum of a chunk", err);
    }
    mdb_cursor_close(cursor);
    return st == OK && rc != MDB_NOTFOUND ? lmdb_env_error(e, rc, "cannot read", err) : st;
}

static enum status walk_tables(struct lmdb_env *e, struct error *err)
{
    const MDB_dbi tables[] = {e->meta, e->chunk, e->row, e->death, e->reset};
    enum status st = OK;
    MDB_txn *txn;
    int rc = mdb_txn_begin(e->env, NULL, MDB_RDONLY, &txn);
    if (rc != 0)
        return lmdb_env_error(e, rc, "cannot begin", err);
    for (size_t i = 0; st == OK && i < LENGTH(tables); i++)
        st = walk_table(e, txn, tables[i], err);
    mdb_txn_abort(txn);
    return st;
}

/* The file may end before its last page only if the pages there are free (LMDB writes a page when
 * it is used). Such a file is made whole, so that no read of the map goes past its end, then read
 * in full; if it turns out to have been cut it is left as it was. */
static enum status open_checked(struct lmdb_env *e, struct error *err)
{
    MDB_envinfo info;
    struct stat file;
    mdb_env_info(e->env, &info);
    off_t want = (off_t)((info.me_last_pgno + 1) * e->page_bytes);
    if (fstat(e->fd, &file) != 0)
        return error_sys(err, ERR_CONFIG, "TOAST store %s: cannot look at data.mdb", e->dir);
    if (file.st_size >= want)
        return check_format(e, err);
    if (ftruncate(e->fd, want) != 0)
        return error_sys(err, ERR_CONFIG, "TOAST store %s: cannot extend data.mdb", e->dir);
    enum status st = check_format(e, err);
    if (st == OK)
        st = walk_tables(e, err);
    if (st != OK && ftruncate(e->fd, file.st_size) != 0)
        return error_sys(err, ERR_CONFIG, "TOAST store %s: cannot truncate data.mdb", e->dir);
    return st == OK ? OK
                    : error_prefix(err, "%lld of %lld bytes are there", (long long)file.st_size,
                                   (long long)want);
}

/* LMDB takes an empty file for a new one, and reads past the end of one that was cut. */
static enum status check_file(const char *dir, struct error *err)
{
    CLEANUP_FREE char *path = xasprintf("%s/data.mdb", dir);
    struct stat file;
    if (stat(path, &file) != 0)
        return error_sys(err, errno == ENOENT ? ERR_DATA : ERR_CONFIG, "TOAST store %s", path);
    if (file.st_size < 2 * (off_t)sysconf(_SC_PAGESIZE))
        return error_set(err, ERR_DATA, "TOAST store %s: data.mdb is damaged: cut to %lld bytes",
                         dir, (long long)file.st_size);
    return OK;
}

static bool is_absent(const char *dir)
{
    return rmdir(dir) == 0 || errno == ENOENT; /* an empty one is none */
}

enum status lmdb_env_open(struct lmdb_env *e, const char *dir, uint64_t first_map_bytes,
                          bool *ret_created, struct error *err)
{
    bool created = is_absent(dir);
    *e = (struct lmdb_env){.fd = -1};
    if (created)
        TRY(create(dir, err));
    TRY(check_file(dir, err));
    enum status st = open_env(e, dir, first_map_bytes, err);
    if (st == OK)
        st = open_checked(e, err);
    if (st != OK)
        close_env(e);
    else if (ret_created != NULL)
        *ret_created = created;
    return st;
}

enum status lmdb_env_grow(struct lmdb_env *e, struct error *err)
{
    uint64_t bytes = e->map_bytes * 2;
    int rc = mdb_env_set_mapsize(e->env, bytes);
    if (rc != 0)
        return lmdb_env_error(e, rc, "cannot map more address space", err);
    e->map_bytes = bytes;
    return OK;
}

enum status lmdb_env_sync(struct lmdb_env *e, struct error *err)
{
    if (!e->unsynced)
        return OK;
    int rc = mdb_env_sync(e->env, 1);
    if (rc != 0)
        return lmdb_env_error(e, rc, "cannot sync", err);
    e->unsynced = false;
    return OK;
}

enum status lmdb_env_usage(struct lmdb_env *e, uint64_t *ret_used_bytes, uint64_t *ret_disk_bytes,
                           struct error *err)
{
    const MDB_dbi tables[] = {
        FREE_DBI, 1 /* the list of tables */, e->meta, e->chunk, e->row, e->death, e->reset};
    struct stat file;
    MDB_txn *txn;
    uint64_t pages = 2;
    if (fstat(e->fd, &file) != 0)
        return error_sys(err, ERR_CONFIG, "TOAST store %s: cannot look at data.mdb", e->dir);
    int rc = mdb_txn_begin(e->env, NULL, MDB_RDONLY, &txn);
    if (rc != 0)
        return lmdb_env_error(e, rc, "cannot begin", err);
    for (size_t i = 0; rc == 0 && i < LENGTH(tables); i++) {
        MDB_stat s;
        if ((rc = mdb_stat(txn, tables[i], &s)) == 0)
            pages += s.ms_branch_pages + s.ms_leaf_pages + s.ms_overflow_pages;
    }
    mdb_txn_abort(txn);
    if (rc != 0)
        return lmdb_env_error(e, rc, "cannot read", err);
    *ret_used_bytes = pages * e->page_bytes;
    *ret_disk_bytes = (uint64_t)file.st_blocks * 512;
    return OK;
}
