/* Inside of the transaction buffer: one transaction. Only files of this folder include it. */
#pragma once
#include "xact/buffer.h"

#include <uthash.h>

struct xid_array {
    TransactionId *xids;
    uint32_t n, cap;
};

struct spill {
    int fd; /* -1: nothing spilled */
    uint64_t bytes;
};

struct xact {
    TransactionId xid;
    XLogRecPtr first_lsn;
    struct buf mem;           /* frames behind those spilled */
    struct spill spill;       /* blocks: u32 length, u32 CRC-32C, frames */
    struct buf spec;          /* a speculative insert that waits for its confirmation */
    struct xid_array subs;    /* subtransactions known to be its own */
    struct xid_array aborted; /* of these, rolled back (children included) */
    bool aborted_sorted;
    bool prepared;        /* then it is in the list of prepared ones too */
    struct xact **joined; /* subtransactions buffered alone, joined by the commit */
    uint32_t njoined;
    struct xact *prev, *next;   /* all transactions by first_lsn */
    atomic_ullong *blocks_read; /* of the buffer */
    UT_hash_handle hh;
};

void xid_array_add(struct xid_array *list, TransactionId xid);
bool xact_is_aborted(struct xact *x, TransactionId xid);

#define SPILL_BLOCK ((size_t)1 << 20)
#define SPILL_BLOCK_HEAD 8u
/* Writes the frames in memory behind what is spilled and empties the memory. */
enum status spill_write(struct xact *x, const char *dir, struct error *err) CHECKED;
/* Reads the block at `at` into block (checked); *ret_next is where the following one begins. */
enum status spill_read_block(const struct xact *x, uint64_t at, struct buf *block,
                             uint64_t *ret_next, struct error *err) CHECKED;
