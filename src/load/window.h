/* The WAL from the backup's start on, as far as the load needs it: which blocks have an image or
 * were initialised (then the tar copy is not used), the fates of transactions, the updaters of
 * multixacts, speculative rows that were taken back, and how far it has come. */
#pragma once
#include "pg/wal_record.h"

struct load_window;

/* One record, in order, with its bodies. Submits batches of page images. One thread. */
enum status load_window_record(struct load_window *w, const struct wal_record *record,
                               struct error *err) CHECKED;

/* Every record that ends at or below lsn has been handed over: the end of the bytes read, also in
 * the middle of a record or in padding. Call it when the reader has drained what it received;
 * without it an idle source could leave the load waiting for a record that never comes. */
void load_window_position(struct load_window *w, XLogRecPtr lsn);

XLogRecPtr load_window_passed(struct load_window *w);
