/* What every relation looked like at every LSN that can still be asked for.
 *
 * An append-only log (catalog.log) holds the descriptors captured at boundaries; it is loaded whole
 * at start. A boundary at or below history_captured_lsn is answered from here and never captured
 * again, so a replay sees the same shapes as the first run. Thread-safe; returned descriptors are
 * references that the caller drops with rel_desc_unref. */
#pragma once
#include "base/error.h"
#include "catalog/descriptor.h"

#include <stdbool.h>

struct history;

/* Opens or creates the log at path. A torn tail is cut; damage before the tail is ERR_DATA. */
enum status history_open(const char *path, struct history **ret, struct error *err) CHECKED;
void history_free(struct history *h);

/* Adds descriptors (each with its valid_from; `dropped` ones end a relation's life) and the LSN
 * through which the catalog has now been captured, durably. References are taken. */
enum status history_append(struct history *h, struct rel_desc *const *descs, size_t n,
                           XLogRecPtr captured_through, struct error *err) CHECKED;
XLogRecPtr history_captured_lsn(struct history *h);

/* The boundary at lsn is passed without its shapes, durably: what it changed is not known from
 * there on, until history_append_seen. oids: changed in any way; all: any relation may be named
 * otherwise now. */
enum status history_pass_unseen(struct history *h, XLogRecPtr lsn, const Oid *oids, size_t n,
                                bool all, struct error *err) CHECKED;
/* As history_append, and everything that was not known is from lsn on. */
enum status history_append_seen(struct history *h, struct rel_desc *const *descs, size_t n,
                                XLogRecPtr lsn, struct error *err) CHECKED;
/* A commit at lsn finds the relation changed in a way that is not known: its rows are no use. */
bool history_is_unseen(struct history *h, Oid oid, XLogRecPtr lsn);
bool history_any_unseen(struct history *h, XLogRecPtr lsn);
/* The relations that are not known from lsn on, appended to oids (NULL: only asks); *ret_all is set
 * if it may be any. False: there are none. */
bool history_unseen_from(struct history *h, XLogRecPtr lsn, struct buf *oids, bool *ret_all);
/* Those that are known again from lsn on; of UINT64_MAX: those that are not known yet. */
bool history_unseen_until(struct history *h, XLogRecPtr lsn, struct buf *oids, bool *ret_all);
/* The first LSN behind lsn from which something is known again, of those behind `from` and those
 * for which history_seen_done was not called; UINT64_MAX: there is none. */
XLogRecPtr history_next_seen(struct history *h, XLogRecPtr lsn, XLogRecPtr from);
/* What was seen at lsn has had its effect on tables and targets, durably. */
enum status history_seen_done(struct history *h, XLogRecPtr lsn, struct error *err) CHECKED;
/* What the chunk store has of the relation from before belongs to another file, which it lost while
 * that could not be seen: nothing of the present file is older. 0: that is not so. */
XLogRecPtr history_unseen_file_lsn(struct history *h, Oid oid);

/* The shape a committed row of this file has: PostgreSQL reads every tuple of a file with any later
 * shape of that same file, so the newest shape at or below lsn serves, else the oldest known one.
 * *ret_toast: the file is the TOAST table of the relation returned. NULL: not known. */
struct rel_desc *history_by_locator(struct history *h, struct rel_file_locator locator,
                                    XLogRecPtr lsn, bool *ret_toast);
/* The shape of a relation at lsn; NULL if it did not exist (or was dropped) then. */
struct rel_desc *history_by_oid(struct history *h, Oid oid, XLogRecPtr lsn);

/* True if the first thing known of the relation is later than lsn: it was created after that. */
bool history_begins_after(struct history *h, Oid oid, XLogRecPtr lsn);

/* Every relation that exists at lsn: a malloc'd array of references. */
void history_all(struct history *h, XLogRecPtr lsn, struct rel_desc ***ret, size_t *ret_n);

/* What stands about a table, durably. */
enum history_state {
    HISTORY_FOLLOWED,
    HISTORY_STOPPED, /* by name: it cannot be replicated exactly, no row of it is shipped */
    HISTORY_RESYNC,  /* it must be copied again */
};
/* The first reason is kept. */
enum status history_stop(struct history *h, Oid oid, XLogRecPtr lsn, const char *reason,
                         struct error *err) CHECKED;
/* The newest reason counts. */
enum status history_resync(struct history *h, Oid oid, XLogRecPtr lsn, const char *reason,
                           struct error *err) CHECKED;
/* It was copied with everything that had committed at lsn. */
enum status history_resynced(struct history *h, Oid oid, XLogRecPtr lsn, struct error *err) CHECKED;
/* Copies the reason into buf ("" if there is none). */
enum history_state history_state(struct history *h, Oid oid, char *buf, size_t cap);
/* What committed at or below it is in the table by a copy; 0 if it never was copied again. */
XLogRecPtr history_resynced_lsn(struct history *h, Oid oid);
/* Changes whenever something is appended: lets callers cache lookups. */
uint64_t history_generation(struct history *h);
