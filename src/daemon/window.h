/* What the WAL of the load's window (backup start … shadow's first position) says about relations:
 * it is compared with the seed and with the catalog at the window's end, to tell which tables the
 * load and the stream together have whole. One writer (pump thread); read after it was joined. */
#pragma once
#include "pg/wal_record.h"

#include <stdbool.h>

struct window_facts;

struct window_facts *window_facts_new(unsigned major, Oid database);
void window_facts_free(struct window_facts *f);
/* The backup's start, before the first record: what ended before it is in the seed. */
void window_facts_set_start(struct window_facts *f, XLogRecPtr start_lsn);
/* Transactions before it were open (or over) when the backup began. */
void window_facts_set_next_xid(struct window_facts *f, TransactionId next_xid);
enum status window_facts_record(struct window_facts *f, const struct wal_record *record,
                                struct error *err) CHECKED;

/* TRUNCATE of the relation was seen. */
bool window_facts_truncated(const struct window_facts *f, Oid oid);
/* A commit removed files and touched the relation without a TRUNCATE of it: a rewrite. */
bool window_facts_rewritten(const struct window_facts *f, Oid oid);
/* The file was made within the window. */
bool window_facts_file_is_new(const struct window_facts *f, struct rel_file_locator locator);
/* A transaction that removed the file (TRUNCATE, DROP, a rewrite) committed within the window. */
bool window_facts_file_is_gone(const struct window_facts *f, struct rel_file_locator locator);
/* A standby that starts at the window's start accepts connections: a RUNNING_XACTS told it of every
 * open transaction and subtransaction, or what an incomplete one left out is over. */
bool window_facts_shadow_ready(const struct window_facts *f);
/* As of the last RUNNING_XACTS; 0 before the first. */
TransactionId window_facts_oldest_running(const struct window_facts *f);
/* A transaction older than the backup touched the relation's catalog entry. */
bool window_facts_old_xact(const struct window_facts *f, Oid oid);
