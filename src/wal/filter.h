/* The reader plus the filtered stream: every byte position of the source's WAL, with the records
 * that the shadow must not see turned into no-ops (notes C8 to C10).
 *
 * A no-op keeps xl_tot_len, xl_xid and xl_prev; its body is one chunk of zeros, so that its CRC is
 * known from the length. Page headers pass unchanged. Runs in the pump thread; not thread-safe. */
#pragma once
#include "pg/wal_record.h"
#include "wal/catalog_filenodes.h"
#include "wal/classify.h"
#include "wal/noop.h"
#include "wal/straddle.h"

struct wal_filter_options {
    unsigned major;
    uint64_t segment_bytes;
    uint64_t system_id;                  /* 0: not checked */
    Oid database;                        /* 0: every database is ours (offline use) */
    struct catalog_filenodes *filenodes; /* the caller's; grows */
    enum wal_straddle straddle;
    struct wal_straddle_head straddle_head; /* optional, from wal_archive_straddle_head */
    /* Records longer than this are not buffered where their body does not matter. At least 1 KiB;
     * 0 = 1 MiB. */
    size_t keep_max;
    bool zeros_end; /* offline use: zeros are the end of the WAL (see wal/reader.h) */
    void *ctx;
    /* R has been completely received and verified. Its pointers are valid only during the call. May
     * be NULL. */
    enum status (*on_record)(void *ctx, const struct wal_record *record, bool forwarded,
                             struct error *err);
    /* Contiguous bytes of the filtered stream. Up to and including on_record(R) it has not been
     * given any byte beyond R.end. */
    enum status (*on_output)(void *ctx, XLogRecPtr lsn, const uint8_t *data, size_t len,
                             struct error *err);
};

struct wal_filter_counters {
    uint64_t records, record_bytes; /* complete ones, total_len */
    uint64_t routes[WAL_ROUTES];    /* records by enum wal_route */
    uint64_t route_bytes[WAL_ROUTES];
    uint64_t by_rmgr[256], by_rmgr_forwarded[256];
    uint64_t abandoned; /* cut by a crash of the source */
    uint64_t cut;       /* records that began before the start or are unfinished at the end */
    uint64_t fed_bytes, output_bytes;
};

struct wal_filter;

/* start: a page start (as a rule a segment's), or a position where a record begins. */
struct wal_filter *wal_filter_new(const struct wal_filter_options *options, XLogRecPtr start);
void wal_filter_free(struct wal_filter *f);

/* lsn must be wal_filter_next_lsn. Everything decided is given to on_output before it returns; a
 * record cut by the end of data is withheld until its fate is known. After an error only queries
 * and free are allowed. */
enum status wal_filter_feed(struct wal_filter *f, XLogRecPtr lsn, const uint8_t *data, size_t len,
                            struct error *err) CHECKED;
/* Inside on_record(R): on_output gets everything up to R.end and nothing beyond. Elsewhere it gets
 * all that is decided (feed has done so already). */
enum status wal_filter_flush(struct wal_filter *f, struct error *err) CHECKED;
/* Offline use, after the last feed: the fragment of an unfinished record goes out as a no-op's. */
enum status wal_filter_finish(struct wal_filter *f, struct error *err) CHECKED;

XLogRecPtr wal_filter_next_lsn(const struct wal_filter *f);   /* the next byte wanted */
XLogRecPtr wal_filter_output_lsn(const struct wal_filter *f); /* the next byte of the output */
bool wal_filter_ended(const struct wal_filter *f);            /* zeros_end: the end was met */
/* Of the output's no-ops, for who takes it; the filter's. */
struct noop_marks *wal_filter_marks(struct wal_filter *f);
size_t wal_filter_held_bytes(const struct wal_filter *f); /* memory of buffers */
uint32_t wal_filter_timeline(const struct wal_filter *f);
const struct wal_filter_counters *wal_filter_counters(const struct wal_filter *f);
