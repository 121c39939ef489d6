/* The load's questions to the source, over sessions of their own that a stop interrupts. */
#include "daemon/bootstrap.h"

#include <stdlib.h>

void load_sql_init(struct bootstrap *b, struct daemon *d)
{
    b->d = d;
    pthread_mutex_init(&b->fates_lock, NULL);
}

void load_sql_fini(struct bootstrap *b)
{
    source_sql_close(b->fates_sql);
    source_sql_close(b->flush_sql);
    pthread_mutex_destroy(&b->fates_lock);
}

/* Puts a new session into *slot, in place of what is there. */
static enum status session_open(struct bootstrap *b, struct source_sql **slot, struct error *err)
{
    struct source_sql *now = NULL;
    TRY(source_sql_open(b->d->config->source.conninfo, APPLICATION_NAME, &now, err));
    pthread_mutex_lock(&b->d->lock);
    struct source_sql *old = *slot;
    *slot = now;
    if (b->interrupted) /* the stop came before it was known */
        source_sql_interrupt(now);
    pthread_mutex_unlock(&b->d->lock);
    source_sql_close(old);
    return OK;
}

enum status load_sql_open(struct bootstrap *b, struct error *err)
{
    return session_open(b, &b->flush_sql, err);
}

void load_sql_interrupt(struct bootstrap *b)
{
    if (b->fates_sql != NULL)
        source_sql_interrupt(b->fates_sql);
    if (b->flush_sql != NULL)
        source_sql_interrupt(b->flush_sql);
}

enum status load_sql_next_xid(void *ctx, TransactionId *ret, struct error *err)
{
    struct bootstrap *b = ctx;
    struct sql_result *r = NULL;
    uint64_t full = 0;
    /* "epoch:xid" */
    TRY(source_sql_exec(
        b->d->sql,
        "SELECT split_part(next_xid, ':', 1)::int8 << 32 | "
        "split_part(next_xid, ':', 2)::int8 FROM pg_catalog.pg_control_checkpoint()",
        0, NULL, &r, err));
    enum status st = sql_result_u64(r, 0, 0, &full, err);
    sql_result_free(r);
    TRY(st);
    b->d->manifest.load.next_xid = full;
    window_facts_set_next_xid(b->facts, (TransactionId)full);
    *ret = (TransactionId)full;
    return OK;
}

enum status load_sql_flush_lsn(void *ctx, XLogRecPtr *ret, struct error *err)
{
    struct bootstrap *b = ctx;
    return source_sql_flush_lsn(b->flush_sql, ret, err);
}

static enum status ask(struct bootstrap *b, const TransactionId *xids, size_t n,
                       enum source_xact_status *ret, struct error *err)
{
    if (b->fates_sql == NULL || source_sql_broken(b->fates_sql))
        TRY(session_open(b, &b->fates_sql, err));
    return source_sql_xact_status(b->fates_sql, xids, n, ret, err);
}

enum status load_sql_fates(void *ctx, const TransactionId *xids, size_t n, uint8_t *ret,
                           struct error *err)
{
    struct bootstrap *b = ctx;
    enum source_xact_status *fates = xcalloc(n, sizeof *fates);
    pthread_mutex_lock(&b->fates_lock);
    enum status st = ask(b, xids, n, fates, err);
    pthread_mutex_unlock(&b->fates_lock);
    for (size_t i = 0; i < n && st == OK; i++) {
        if (fates[i] == SOURCE_XACT_UNKNOWN)
            st = error_set(err, ERR_CONFIG,
                           "the source no longer knows the fate of transaction %u: VACUUM the "
                           "tables whose hint bits are not set and load again",
                           xids[i]);
        ret[i] = fates[i] == SOURCE_XACT_COMMITTED ? FATE_COMMITTED
                 : fates[i] == SOURCE_XACT_ABORTED ? FATE_ABORTED
                                                   : FATE_UNKNOWN;
    }
    free(fates);
    return st;
}
