/* Room of free pages goes back to the file system: LMDB's file never gets shorter, but it does not
 * read a free page again before it has written it. */
#include "toast/lmdb_env.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>

/* A record of the free list: a count, then page numbers, largest first (lmdb.h, as mdb_stat -f). */
static enum status punch_record(struct lmdb_env *e, const MDB_val *value, unsigned *left,
                                struct error *err)
{
    size_t n, words = value->mv_size / sizeof(size_t);
    const uint8_t *at = value->mv_data;
    if (words == 0)
        return lmdb_env_damaged(e, "free list", err);
    memcpy(&n, at, sizeof n);
    if (n > words - 1)
        return lmdb_env_damaged(e, "free list", err);
    size_t first = 0, count = 0;
    for (size_t i = 1; i <= n + 1 && *left > 0; i++) {
        size_t page = 0;
        if (i <= n) {
            memcpy(&page, at + i * sizeof page, sizeof page);
            if (count > 0 && page + 1 == first) {
                first = page;
                count++;
                continue;
            }
        }
        if (count > 0) {
            (*left)--;
            if (first < 2) /* never the two meta pages */
                return lmdb_env_damaged(e, "free list", err);
            if (fallocate(e->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                          (off_t)(first * e->page_bytes), (off_t)(count * e->page_bytes)) != 0) {
                if (errno != EOPNOTSUPP)
                    return error_sys(err, ERR_RETRY, "TOAST store %s: cannot free room", e->dir);
                e->no_holes = true;
                *left = 0;
            }
        }
        first = page;
        count = 1;
    }
    return OK;
}

static enum status punch_all(struct lmdb_env *e, MDB_txn *txn, MDB_cursor *cursor, unsigned left,
                             struct error *err)
{
    size_t newest = mdb_txn_id(txn), id = e->punched_through + 1;
    MDB_val key = {sizeof id, &id}, value;
    int rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    for (; rc == 0 && left > 0; rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
        if (key.mv_size != sizeof id)
            return lmdb_env_damaged(e, "free list", err);
        memcpy(&id, key.mv_data, sizeof id);
        /* pages that the newest transaction freed belong to the state before it, which must stand
         * until the next one is on disk */
        if (id >= newest)
            break;
        TRY(punch_record(e, &value, &left, err));
        e->punched_through = id;
    }
    if (left > 0) /* all: LMDB moves pages between records, so begin again next time */
        e->punched_through = 0;
    return rc == 0 || rc == MDB_NOTFOUND ? OK : lmdb_env_error(e, rc, "cannot read", err);
}

enum status lmdb_env_punch(struct lmdb_env *e, unsigned max_holes, struct error *err)
{
    MDB_txn *txn;
    MDB_cursor *cursor;
    if (e->no_holes)
        return OK;
    TRY(lmdb_env_sync(e, err));
    int rc = mdb_txn_begin(e->env, NULL, MDB_RDONLY, &txn);
    if (rc != 0)
        return lmdb_env_error(e, rc, "cannot begin", err);
    enum status st;
    rc = mdb_cursor_open(txn, 0, &cursor);
    if (rc != 0) {
        st = lmdb_env_error(e, rc, "cannot read", err);
    } else {
        st = punch_all(e, txn, cursor, max_holes, err);
        mdb_cursor_close(cursor);
    }
    mdb_txn_abort(txn);
    return st;
}
