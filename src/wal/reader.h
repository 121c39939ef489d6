/* Byte stream → WAL records, incrementally.
 *
 * Bytes are pushed contiguously, in pieces of any size. A record that lies within one page of one
 * piece is parsed where it is; others are assembled. Checked: page headers, lengths, xl_prev, CRC,
 * continuation. Followed: switch records (the rest of the segment is skipped), records abandoned by
 * a crash (page flag 0x0008, notes B11), a record that began before the start (skipped). Rules of
 * access/transam/xlogreader.c, majors 15 to 18. Not thread-safe; one thread feeds it. */
#pragma once
#include "base/buf.h"
#include "pg/wal_page.h"
#include "pg/wal_parse.h"

struct wal_reader_options {
    unsigned major;
    uint64_t segment_bytes;
    uint64_t system_id; /* 0: not checked */
    /* A record longer than this is shown to on_head when its header part is there, and not kept if
     * on_head says so. At least WAL_RECORD_HEAD_MAX; SIZE_MAX = keep all. */
    size_t keep_max;
    /* Offline use: zeros where a record or page should begin are the end of the WAL, not an error;
     * wal_reader_ended then tells, and pushing more is without effect. */
    bool zeros_end;
    void *ctx;
    /* A complete, verified record. Its pointers are valid only during the call. */
    enum status (*on_record)(void *ctx, const struct wal_record *record, struct error *err);
    /* May be NULL (all is kept). The record has body_skipped set and no end (0); it is not verified
     * yet. */
    enum status (*on_head)(void *ctx, const struct wal_record *head, bool *ret_keep,
                           struct error *err);
    /* May be NULL. The record that began at start ends unfinished at end, a page boundary. */
    enum status (*on_abandoned)(void *ctx, XLogRecPtr start, XLogRecPtr end, struct error *err);
};

struct wal_reader;

/* start must be a multiple of 8 within a page where a record begins, or a page start. At a page
 * start a record that continues from before is skipped. */
struct wal_reader *wal_reader_new(const struct wal_reader_options *options, XLogRecPtr start);
void wal_reader_free(struct wal_reader *r);

/* lsn must be wal_reader_next_lsn (ERR_BUG otherwise). Errors of a callback are returned as they
 * are; after any error the reader is good for nothing but queries and free. */
enum status wal_reader_push(struct wal_reader *r, XLogRecPtr lsn, const uint8_t *data, size_t len,
                            struct error *err) CHECKED;

XLogRecPtr wal_reader_next_lsn(const struct wal_reader *r); /* the next byte wanted */
/* Start of the record that is under way (or of its fragment's first known byte), or next_lsn when
 * between records. */
XLogRecPtr wal_reader_pending_lsn(const struct wal_reader *r);
bool wal_reader_in_record(const struct wal_reader *r);
bool wal_reader_ended(const struct wal_reader *r);
/* Start of the last complete record, 0 before the first. */
XLogRecPtr wal_reader_last_lsn(const struct wal_reader *r);
/* End of the last complete record, 0 before the first. */
XLogRecPtr wal_reader_last_end(const struct wal_reader *r);
/* Where the first record began that was not a continuation: end of what was skipped at the start.
 */
XLogRecPtr wal_reader_first_lsn(const struct wal_reader *r);
uint32_t wal_reader_timeline(const struct wal_reader *r); /* of the last page header, 0 before */

/* What is known of the record under way: how many of its bytes have passed, and the first of them
 * (up to 32; fewer if its start lies before the reader's). False when between records. */
struct wal_pending {
    XLogRecPtr start; /* 0 if before the reader's start */
    uint64_t passed;
    uint8_t head[32];
    uint32_t head_len;
    uint32_t left; /* bytes of it still to come; 0 if not known */
};
bool wal_reader_pending(const struct wal_reader *r, struct wal_pending *ret);

/* Before the first push, at a page start: the record that continues there began at `start` with
 * these head_len bytes, and all before the reader's start are among them. It is then read whole. */
void wal_reader_resume(struct wal_reader *r, XLogRecPtr start, const uint8_t *head,
                       uint32_t head_len);
