/* Taking away what died before the floor: first the chunks, then the facts that ended them; a kill
 * in between leaves facts without chunks, which the next turn finds. */
#include "toast/clickhouse.h"

#include "base/queue.h"
#include "clickhouse/sql_quote.h"

#include <inttypes.h>
#include <stdlib.h>

struct ends {
    uint64_t before, all, reset; /* deaths and resets before the floor, of any time; newest reset */
    uint64_t chunks;
};

static enum status take_ends(void *ctx, const char *const *fields, const size_t *lengths,
                             unsigned nfields, struct error *err)
{
    struct ends *e = ctx;
    (void)lengths;
    for (unsigned i = 0; i < nfields; i++)
        if (fields[i] == NULL)
            return error_set(err, ERR_DATA, "unexpected answer of the chunk store");
    if (nfields != 4)
        return error_set(err, ERR_DATA, "unexpected answer of the chunk store");
    *e = (struct ends){strtoull(fields[0], NULL, 10), strtoull(fields[1], NULL, 10),
                       strtoull(fields[2], NULL, 10), strtoull(fields[3], NULL, 10)};
    return OK;
}

static enum status count_ends(struct clickhouse_store *s, Oid owner, XLogRecPtr floor,
                              struct ends *ret, struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    buf_printf(&sql,
               "SELECT countIf(value_id = 0 AND born < %" PRIu64 "), countIf(value_id = 0), "
               "maxIf(born, value_id = 0 AND seq = %u AND born < %" PRIu64
               "), countIf(value_id <> 0) FROM ",
               floor, SEQ_RESET, floor);
    clickhouse_put_table(s, owner, &sql);
    *ret = (struct ends){0};
    return clickhouse_select(s, buf_cstr(&sql), take_ends, ret, err);
}

static enum status delete_rows(struct clickhouse_store *s, Oid owner, const char *where,
                               struct error *err)
{
    CLEANUP_BUF struct buf sql = {0};
    buf_printf(&sql, "ALTER TABLE ");
    clickhouse_put_table(s, owner, &sql);
    buf_printf(&sql, " DELETE WHERE %s", where);
    return clickhouse_execute(s, buf_cstr(&sql), err);
}

/* Chunks before the reset, and those with a death between birth and floor. */
static enum status delete_chunks(struct clickhouse_store *s, Oid owner, XLogRecPtr floor,
                                 XLogRecPtr reset, struct error *err)
{
    CLEANUP_BUF struct buf where = {0};
    buf_printf(&where,
               "value_id <> 0 AND (born < %" PRIu64
               " OR (tid, born) IN (SELECT c.tid, c.born FROM ",
               reset);
    clickhouse_put_table(s, owner, &where);
    buf_printf(&where, " AS c INNER JOIN (SELECT tid, max(born) AS lsn FROM ");
    clickhouse_put_table(s, owner, &where);
    buf_printf(&where,
               " WHERE value_id = 0 AND seq = %u AND born < %" PRIu64
               " GROUP BY tid) AS d ON c.tid = d.tid WHERE c.value_id <> 0 AND c.born < d.lsn))",
               SEQ_DEATH, floor);
    return delete_rows(s, owner, buf_cstr(&where), err);
}

/* Under write_lock: nothing is added meanwhile. */
static enum status reclaim_owner(struct clickhouse_store *s, struct clickhouse_owner *o,
                                 XLogRecPtr floor, struct error *err)
{
    struct ends ends, left;
    char where[80];
    TRY(count_ends(s, o->oid, floor, &ends, err));
    o->ends = ends.all;
    if (ends.before == 0)
        return OK;
    TRY(delete_chunks(s, o->oid, floor, ends.reset, err));
    snprintf(where, sizeof where, "value_id = 0 AND born < %" PRIu64, floor);
    TRY(delete_rows(s, o->oid, where, err));
    TRY(count_ends(s, o->oid, floor, &left, err));
    o->ends = left.all;
    atomic_fetch_add(&s->reclaimed_chunks, ends.chunks - MIN(left.chunks, ends.chunks));
    if (left.all > 0 || left.chunks > 0)
        return OK;
    return clickhouse_owner_drop(s, o, err);
}

enum status clickhouse_reclaim(struct toast_store *store, XLogRecPtr floor, struct error *err)
{
    struct clickhouse_store *s = (struct clickhouse_store *)store;
    struct clickhouse_owner *o, *next;
    uint64_t now = clock_now_ns();
    enum status st = OK;
    pthread_mutex_lock(&s->events.write_lock);
    HASH_ITER (hh, s->owners, o, next) {
        if (st != OK || o->ends == 0 || o->look_ns > now)
            continue;
        o->look_ns = now + s->reclaim_pause_ns;
        st = reclaim_owner(s, o, floor, err);
    }
    pthread_mutex_unlock(&s->events.write_lock);
    return st;
}

static enum status take_stats(void *ctx, const char *const *fields, const size_t *lengths,
                              unsigned nfields, struct error *err)
{
    struct toast_stats *stats = ctx;
    (void)lengths;
    if (nfields != 2 || fields[0] == NULL || fields[1] == NULL)
        return error_set(err, ERR_DATA, "unexpected answer of the chunk store");
    stats->chunks = strtoull(fields[0], NULL, 10);
    stats->disk_bytes = stats->used_bytes = strtoull(fields[1], NULL, 10);
    return OK;
}

enum status clickhouse_stats(struct toast_store *store, struct toast_stats *ret, struct error *err)
{
    struct clickhouse_store *s = (struct clickhouse_store *)store;
    CLEANUP_BUF struct buf sql = {0};
    struct toast_stats stats = {
        .put_chunks = atomic_load(&s->events.put_chunks),
        .fetched_chunks = atomic_load(&s->fetched_chunks),
        .reclaimed_chunks = atomic_load(&s->reclaimed_chunks),
    };
    stats.pending_bytes = toast_pending_bytes(&s->events);
    buf_printf(&sql,
               "SELECT ifNull(sum(total_rows), 0), ifNull(sum(total_bytes), 0) FROM "
               "system.tables WHERE startsWith(name, '" TOAST_TABLE_PREFIX "') AND comment = ");
    sql_quote_string(&sql, s->comment);
    TRY(clickhouse_select(s, buf_cstr(&sql), take_stats, &stats, err));
    *ret = stats;
    return OK;
}
