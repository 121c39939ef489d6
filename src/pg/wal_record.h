/* One WAL record, decoded to neutral form: the same for majors 15 to 18.
 * Source: access/xlogrecord.h, access/xlogreader.h. */
#pragma once
#include "base/error.h"
#include "pg/pg.h"

#include <stddef.h>

#define XLR_MAX_BLOCK_ID 32
#define SizeOfXLogRecord 24

/* access/rmgrlist.h: ids 0 to 21 are the same in 15 to 18; 128 and up are extensions' */
enum rmgr_id {
    RM_XLOG_ID,
    RM_XACT_ID,
    RM_SMGR_ID,
    RM_CLOG_ID,
    RM_DBASE_ID,
    RM_TBLSPC_ID,
    RM_MULTIXACT_ID,
    RM_RELMAP_ID,
    RM_STANDBY_ID,
    RM_HEAP2_ID,
    RM_HEAP_ID,
    RM_BTREE_ID,
    RM_HASH_ID,
    RM_GIN_ID,
    RM_GIST_ID,
    RM_SEQ_ID,
    RM_SPGIST_ID,
    RM_BRIN_ID,
    RM_COMMIT_TS_ID,
    RM_REPLORIGIN_ID,
    RM_GENERIC_ID,
    RM_LOGICALMSG_ID,
};

struct wal_block {
    struct rel_file_locator locator;
    BlockNumber block;
    uint8_t id;
    uint8_t fork; /* enum fork_number */
    bool will_init;
    bool has_image;
    bool apply_image;
    bool has_data;
    uint8_t image_flags; /* BKPIMAGE_*: 1 hole, 2 apply, 4 pglz, 8 lz4, 0x10 zstd */
    uint16_t image_len, hole_offset, hole_len;
    const uint8_t *image; /* image_len bytes as logged */
    const uint8_t *data;
    uint16_t data_len;
};

struct wal_record {
    XLogRecPtr start; /* position of the first byte of its header */
    XLogRecPtr end;   /* start + MAXALIGN(total_len) plus every page header crossed */
    XLogRecPtr prev;
    uint32_t total_len;
    TransactionId xid;
    TransactionId toplevel_xid; /* XLR_BLOCK_ID_TOPLEVEL_XID, 0 if absent */
    uint8_t rmid;
    uint8_t info; /* xl_info, all eight bits */
    uint8_t nblocks;
    /* Set when the body was longer than the reader was told to keep: then blocks are parsed without
     * image and data, main_data is NULL. */
    bool body_skipped;
    struct wal_block blocks[XLR_MAX_BLOCK_ID + 1];
    const uint8_t *main_data;
    uint32_t main_len;
};

/* The block of this id, or NULL. Never address blocks by position (notes F1). */
static inline const struct wal_block *wal_record_block(const struct wal_record *r, unsigned id)
{
    for (unsigned i = 0; i < r->nblocks; i++)
        if (r->blocks[i].id == id)
            return &r->blocks[i];
    return NULL;
}
