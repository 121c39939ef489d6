/* Records about files and databases: RM_SMGR_ID, RM_DBASE_ID, and those of RM_HEAP2_ID that name
 * their relation in the main data.
 * Source: catalog/storage_xlog.h, commands/dbcommands_xlog.h, access/heapam_xlog.h; same in 15–18.
 */
#pragma once
#include "base/error.h"
#include "pg/wal_record.h"

#define XLOG_SMGR_CREATE 0x10
#define XLOG_SMGR_TRUNCATE 0x20
#define XLOG_DBASE_CREATE_FILE_COPY 0x00
#define XLOG_DBASE_CREATE_WAL_LOG 0x10
#define XLOG_DBASE_DROP 0x20
#define XLOG_HEAP2_REWRITE 0x00
#define XLOG_HEAP2_NEW_CID 0x70
#define XLOG_HEAP_OPMASK 0x70

struct smgr_record {
    bool is_truncate; /* else a create */
    struct rel_file_locator locator;
    uint8_t fork;       /* of a create: enum fork_number */
    BlockNumber blocks; /* of a truncate: the new length */
    uint32_t flags;     /* of a truncate: 1 heap, 2 VM, 4 FSM */
};
enum status smgr_record_parse(const struct wal_record *record, struct smgr_record *ret,
                              struct error *err) CHECKED;

enum dbase_kind { DBASE_CREATE_FILE_COPY, DBASE_CREATE_WAL_LOG, DBASE_DROP };
struct dbase_record {
    uint8_t kind; /* enum dbase_kind */
    Oid db_oid;   /* created or dropped */
    /* of a create: where; equal to the copied database's oid, a FILE_COPY is a move to another
     * tablespace */
    Oid spc_oid;
    Oid src_db_oid;
};
enum status dbase_record_parse(const struct wal_record *record, struct dbase_record *ret,
                               struct error *err) CHECKED;

/* XLOG_HEAP2_NEW_CID: the catalog row it is about. */
enum status heap_new_cid_parse(const struct wal_record *record, TransactionId *ret_top_xid,
                               struct rel_file_locator *ret, struct error *err) CHECKED;
/* XLOG_HEAP2_REWRITE: database (0 = shared) and oid of the rewritten relation. */
enum status heap_rewrite_parse(const struct wal_record *record, Oid *ret_db_oid, Oid *ret_rel_oid,
                               struct error *err) CHECKED;
