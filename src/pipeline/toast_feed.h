/* From committed changes of TOAST tables, and of the tables they belong to, to events of the chunk
 * store. Belongs to the reorder thread. */
#pragma once
#include "catalog/history.h"
#include "toast/store.h"
#include "xact/frame.h"

struct toast_feed;

struct toast_feed *toast_feed_new(struct toast_store *store, struct history *history);
void toast_feed_free(struct toast_feed *t);

/* A transaction begins: commit is its end. What an unfinished one left is forgotten. partial: its
 * first records may be missing, having been seen before a restart. */
void toast_feed_begin(struct toast_feed *t, const struct xact_frame *commit, bool partial);
/* A change in the TOAST table of owner, of this transaction. ERR_DATA: a row that is no chunk. */
enum status toast_feed_change(struct toast_feed *t, Oid owner, const struct change_frame *f,
                              struct error *err) CHECKED;
/* Values in the tables it names are gone. */
enum status toast_feed_truncate(struct toast_feed *t, const struct truncate_frame *f,
                                struct error *err) CHECKED;
/* All changes were given: what the transaction did to files (DROP, rewrites) follows, and
 * everything is in the store. */
enum status toast_feed_end(struct toast_feed *t, struct error *err) CHECKED;
