/* The segment archive: the filtered WAL on disk, `<name>.packed` once sealed, `<name>.partial`
 * before.
 *
 * One thread (pump) writes and sets the limit; any thread reads through a cursor of its own, waits,
 * and asks for positions; trim may come from any thread. A lock inside guards the list of segments;
 * positions are atomics. */
#pragma once
#include "base/error.h"
#include "pg/pg.h"
#include "wal/noop.h"
#include "wal/straddle.h"

#include <stddef.h>

struct wal_archive;

/* Finds the sealed segments of that timeline and drops what an interrupted run left (unfinished
 * segment, spare file, files written aside, segments before a gap). dir is created if missing. */
enum status wal_archive_open(const char *dir, uint64_t segment_bytes, uint32_t timeline,
                             struct wal_archive **ret, struct error *err) CHECKED;
void wal_archive_close(struct wal_archive *a); /* no reader may be left; NULL is fine */

/* Appends at lsn = written; the first write of an empty archive starts anywhere at a segment start.
 * Below written: what is there from lsn on is dropped and written again (a sealed segment in the
 * middle of which lsn falls becomes unfinished again). Each segment it fills is sealed in the
 * background. marks: of no-ops among the bytes, NULL if nothing is known of them. ERR_CONFIG when
 * the disk is full, ERR_BUG for a gap. */
enum status wal_archive_write(struct wal_archive *a, XLogRecPtr lsn, const void *data, size_t len,
                              struct noop_marks *marks, struct error *err) CHECKED;

/* Full segments are sealed by a thread of the archive's own: waits until all are. The writer's. */
enum status wal_archive_settle(struct wal_archive *a, struct error *err) CHECKED;

XLogRecPtr wal_archive_written_lsn(const struct wal_archive *a); /* end of what is written */
XLogRecPtr wal_archive_sealed_lsn(const struct wal_archive *a);  /* end of what is durable */
XLogRecPtr wal_archive_oldest_lsn(const struct wal_archive *a);  /* start of what is kept */
uint64_t wal_archive_bytes(const struct wal_archive *a);         /* on disk, but for a spare file */
/* 0 when nothing has ever been written. */
XLogRecPtr wal_archive_visible_lsn(const struct wal_archive *a); /* MIN(written, limit) */

/* Readers and waiters see nothing at or beyond limit; UINT64_MAX = none (the default). */
void wal_archive_set_limit(struct wal_archive *a, XLogRecPtr limit);
/* Blocks until wal_archive_visible_lsn > lsn, wal_archive_wake, or the CLOCK_MONOTONIC deadline
 * (ns, UINT64_MAX = none). Returns the visible LSN. */
XLogRecPtr wal_archive_wait(struct wal_archive *a, XLogRecPtr lsn, uint64_t deadline_ns);
void wal_archive_wake(struct wal_archive *a); /* every waiter returns once */

/* One reader's place: caches the open segment and its decompression. One thread at a time. */
struct wal_archive_cursor;
struct wal_archive_cursor *wal_archive_cursor_new(struct wal_archive *a);
void wal_archive_cursor_free(struct wal_archive_cursor *c);
/* Up to len bytes at lsn, never beyond the visible LSN; *ret_got = 0 at or beyond it. Reads within
 * one segment at a time. ERR_DATA below the oldest LSN or for a damaged file, by name. */
enum status wal_archive_read(struct wal_archive_cursor *c, XLogRecPtr lsn, void *buf, size_t len,
                             size_t *ret_got, struct error *err) CHECKED;

/* Removes segments that end at or below lsn but keeps one sealed segment before it. */
enum status wal_archive_trim(struct wal_archive *a, XLogRecPtr below_lsn,
                             struct error *err) CHECKED;

/* How the record that crosses lsn (a segment start ≤ sealed) was written: the enum, and with _head
 * what of it the archive holds. UNKNOWN when none crosses, when its start is not in the archive, or
 * when the bytes there do not tell yet (then head has them and the filter decides). */
enum status wal_archive_straddle(struct wal_archive *a, XLogRecPtr lsn, enum wal_straddle *ret,
                                 struct error *err) CHECKED;
enum status wal_archive_straddle_head(struct wal_archive *a, XLogRecPtr lsn, enum wal_straddle *ret,
                                      struct wal_straddle_head *ret_head,
                                      struct error *err) CHECKED;
