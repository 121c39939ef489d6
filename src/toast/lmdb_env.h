/* The LMDB environment of the local store: opening, errors, growth, durability, holes. */
#pragma once
#include "toast/key.h"

#include <pthread.h>

#define TOAST_FORMAT_VERSION 1u

struct lmdb_env {
    MDB_env *env;
    char *dir;
    int fd; /* data.mdb, LMDB's own descriptor */
    size_t page_bytes;
    uint64_t map_bytes;
    MDB_dbi meta, chunk, row, death, reset;
    bool unsynced;            /* transactions whose meta page may not be on disk */
    bool no_holes;            /* the file system does not know how to punch them */
    uint64_t punched_through; /* newest free-list record (by transaction) given back */
};

/* Opens dir, or makes it: aside, then renamed, so that what stands under the name is complete. */
enum status lmdb_env_open(struct lmdb_env *e, const char *dir, uint64_t first_map_bytes,
                          bool *ret_created, struct error *err) CHECKED;
void lmdb_env_close(struct lmdb_env *e);

/* The error of an LMDB return code other than 0; names the directory. */
enum status lmdb_env_error(const struct lmdb_env *e, int rc, const char *what, struct error *err);
/* As lmdb_env_error, of a failed write; the caller keeps other writers out. */
enum status lmdb_env_write_error(const struct lmdb_env *e, int rc, struct error *err);
/* A stored key or value that cannot be one of ours. */
enum status lmdb_env_damaged(const struct lmdb_env *e, const char *what, struct error *err);

/* Doubles the address space. No transaction may be open in this process. */
enum status lmdb_env_grow(struct lmdb_env *e, struct error *err) CHECKED;
enum status lmdb_env_sync(struct lmdb_env *e, struct error *err) CHECKED;

/* Pages in use and bytes on disk. Opens a read transaction. */
enum status lmdb_env_usage(struct lmdb_env *e, uint64_t *ret_used_bytes, uint64_t *ret_disk_bytes,
                           struct error *err) CHECKED;
/* Gives the room of free pages back to the file system, at most max_holes runs of them. The caller
 * keeps writers out, and saw to it that no reader is older than the last transaction. */
enum status lmdb_env_punch(struct lmdb_env *e, unsigned max_holes, struct error *err) CHECKED;
