/* The bytes of a no-op record (notes C10), written over a record's place in the stream, which may
 * be interrupted by page headers and may come in pieces. */
#pragma once
#include "pg/wal_record.h"

/* Running CRC of a no-op's body by xl_tot_len, filled as lengths occur. Zero-initialised is empty.
 */
struct noop_cache {
    uint32_t *body_crc;
};
void noop_cache_fini(struct noop_cache *cache);

struct noop_writer {
    uint8_t image[32]; /* header and chunk header; all after it is zero */
    uint32_t image_len;
    uint64_t size; /* with padding */
    uint64_t off;  /* bytes of the record written or passed */
    XLogRecPtr lsn;
    uint64_t segment_bytes;
};

/* ≥ 24, and not 25: no record has that length, it would end in a chunk id without its length. */
bool noop_has_length(uint32_t total_len);
/* A no-op of this length, xid and xl_prev. */
void noop_writer_init(struct noop_writer *w, struct noop_cache *cache, uint32_t total_len,
                      TransactionId xid, XLogRecPtr prev, uint64_t segment_bytes);
/* The same at once, for a record that lies whole in memory and in one page: its length, xid and
 * xl_prev are where they were. MAXALIGN8(total_len) bytes are written. */
void noop_in_place(struct noop_cache *cache, uint8_t *record, uint32_t total_len);
/* Are these MAXALIGN8(total_len) bytes in one page what noop_in_place would write there? */
bool noop_matches(struct noop_cache *cache, const uint8_t *record, uint32_t total_len);
/* Where whole no-ops have just been written in place, in order: who packs their pages need not look
 * at their bytes once more. Bounded: what is not marked is looked at. Zero-initialised is empty. */
#define NOOP_MARKS 8192u
struct noop_marks {
    XLogRecPtr at[NOOP_MARKS]; /* a ring */
    uint32_t taken, added;
};
static inline void noop_mark(struct noop_marks *m, XLogRecPtr lsn)
{
    if (m->added - m->taken < NOOP_MARKS)
        m->at[m->added++ % NOOP_MARKS] = lsn;
}
/* Is there a mark for the record? Those before it are dropped. */
static inline bool noop_take_mark(struct noop_marks *m, XLogRecPtr lsn)
{
    while (m->taken != m->added && m->at[m->taken % NOOP_MARKS] < lsn)
        m->taken++;
    return m->taken != m->added && m->at[m->taken % NOOP_MARKS] == lsn;
}

/* Zeros without end: for a record of which nothing is known. */
void noop_writer_zeros(struct noop_writer *w, uint64_t segment_bytes);
/* The next byte to write is record byte `off`, at lsn. */
void noop_writer_seek(struct noop_writer *w, XLogRecPtr lsn, uint64_t off);
/* Writes the record's bytes that lie before upto; data[0] is at data_lsn ≤ the writer's lsn. Page
 * headers are left alone. */
void noop_writer_run(struct noop_writer *w, uint8_t *data, XLogRecPtr data_lsn, XLogRecPtr upto);
