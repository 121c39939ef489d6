/* What the callbacks of the initial load share. Only bootstrap.c, load_sql.c and load_wait.c
 * include it. */
#pragma once
#include "daemon/state.h"
#include "daemon/window.h"

struct bootstrap {
    struct daemon *d;
    struct window_facts *facts;
    struct pump *window; /* set under the daemon's lock */
    bool told_waiting;   /* window's thread: that the window cannot end yet */
    struct rel_desc **seed;
    size_t nseed;
    /* The sessions are set, replaced and interrupted under the daemon's lock. */
    struct source_sql *fates_sql; /* asked from several threads, under fates_lock */
    struct source_sql *flush_sql; /* of the load's release thread */
    bool interrupted;             /* under the daemon's lock */
    pthread_mutex_t fates_lock;
    XLogRecPtr end; /* where the window ended */
};

/* The load as the daemon wires it, into d->load. backup: with a session for the positions of the
 * pages of one. */
enum status bootstrap_load_open(struct daemon *d, bool backup, struct error *err) CHECKED;
/* The relation's rows come from the load. */
bool bootstrap_is_loaded(struct daemon *d, const struct rel_desc *desc);

/* load_sql.c: what the load asks the source, as callbacks of load_options; ctx is the bootstrap. */
void load_sql_init(struct bootstrap *b, struct daemon *d);
void load_sql_fini(struct bootstrap *b);
void load_sql_interrupt(struct bootstrap *b); /* under the daemon's lock */
enum status load_sql_open(struct bootstrap *b, struct error *err) CHECKED;
enum status load_sql_next_xid(void *ctx, TransactionId *ret, struct error *err) CHECKED;
enum status load_sql_flush_lsn(void *ctx, XLogRecPtr *ret, struct error *err) CHECKED;
enum status load_sql_fates(void *ctx, const TransactionId *xids, size_t n, uint8_t *ret,
                           struct error *err) CHECKED;
