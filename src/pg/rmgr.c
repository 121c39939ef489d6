#include "pg/rmgr.h"

#include <pthread.h>
#include <stddef.h>

#define OPS 16 /* the high four bits of xl_info */

static const char *const names[] = {
    "XLOG",       "Transaction",    "Storage", "CLOG",     "Database",
    "Tablespace", "MultiXact",      "RelMap",  "Standby",  "Heap2",
    "Heap",       "Btree",          "Hash",    "Gin",      "Gist",
    "Sequence",   "SPGist",         "BRIN",    "CommitTs", "ReplicationOrigin",
    "Generic",    "LogicalMessage",
};

static const char *const ops[][OPS] = {
    [RM_XLOG_ID] = {"CHECKPOINT_SHUTDOWN", "CHECKPOINT_ONLINE", "NOOP", "NEXTOID", "SWITCH",
                    "BACKUP_END", "PARAMETER_CHANGE", "RESTORE_POINT", "FPW_CHANGE",
                    "END_OF_RECOVERY", "FPI_FOR_HINT", "FPI", NULL, "OVERWRITE_CONTRECORD",
                    "CHECKPOINT_REDO"},
    [RM_XACT_ID] = {"COMMIT", "PREPARE", "ABORT", "COMMIT_PREPARED", "ABORT_PREPARED", "ASSIGNMENT",
                    "INVALIDATION"}, /* bit 0x80 is a flag there */
    [RM_SMGR_ID] = {NULL, "CREATE", "TRUNCATE"},
    [RM_CLOG_ID] = {"ZEROPAGE", "TRUNCATE"},
    [RM_DBASE_ID] = {"CREATE_FILE_COPY", "CREATE_WAL_LOG", "DROP"},
    [RM_TBLSPC_ID] = {"CREATE", "DROP"},
    [RM_MULTIXACT_ID] = {"ZERO_OFF_PAGE", "ZERO_MEM_PAGE", "CREATE_ID", "TRUNCATE_ID"},
    [RM_RELMAP_ID] = {"UPDATE"},
    [RM_STANDBY_ID] = {"LOCK", "RUNNING_XACTS", "INVALIDATIONS"},
    [RM_HEAP2_ID] = {"REWRITE", "PRUNE_ON_ACCESS", "PRUNE_VACUUM_SCAN", "PRUNE_VACUUM_CLEANUP",
                     "VISIBLE", "MULTI_INSERT", "LOCK_UPDATED", "NEW_CID", NULL, NULL, NULL, NULL,
                     NULL, "MULTI_INSERT+INIT"},
    [RM_HEAP_ID] = {"INSERT", "DELETE", "UPDATE", "TRUNCATE", "HOT_UPDATE", "HEAP_CONFIRM", "LOCK",
                    "INPLACE", "INSERT+INIT", NULL, "UPDATE+INIT", NULL, "HOT_UPDATE+INIT"},
    [RM_BTREE_ID] = {"INSERT_LEAF", "INSERT_UPPER", "INSERT_META", "SPLIT_L", "SPLIT_R",
                     "INSERT_POST", "DEDUP", "DELETE", "UNLINK_PAGE", "UNLINK_PAGE_META", "NEWROOT",
                     "MARK_PAGE_HALFDEAD", "VACUUM", "REUSE_PAGE", "META_CLEANUP"},
    [RM_HASH_ID] = {"INIT_META_PAGE", "INIT_BITMAP_PAGE", "INSERT", "ADD_OVFL_PAGE",
                    "SPLIT_ALLOCATE_PAGE", "SPLIT_PAGE", "SPLIT_COMPLETE", "MOVE_PAGE_CONTENTS",
                    "SQUEEZE_PAGE", "DELETE", "SPLIT_CLEANUP", "UPDATE_META_PAGE",
                    "VACUUM_ONE_PAGE"},
    [RM_GIN_ID] = {NULL, "CREATE_PTREE", "INSERT", "SPLIT", "VACUUM_PAGE", "DELETE_PAGE",
                   "UPDATE_META_PAGE", "INSERT_LISTPAGE", "DELETE_LISTPAGE",
                   "VACUUM_DATA_LEAF_PAGE"},
    [RM_GIST_ID] = {"PAGE_UPDATE", "DELETE", "PAGE_REUSE", "PAGE_SPLIT", NULL, NULL, "PAGE_DELETE",
                    "ASSIGN_LSN"},
    [RM_SEQ_ID] = {"LOG"},
    [RM_SPGIST_ID] = {NULL, "ADD_LEAF", "MOVE_LEAFS", "ADD_NODE", "SPLIT_TUPLE", "PICKSPLIT",
                      "VACUUM_LEAF", "VACUUM_ROOT", "VACUUM_REDIRECT"},
    [RM_BRIN_ID] = {"CREATE_INDEX", "INSERT", "UPDATE", "SAMEPAGE_UPDATE", "REVMAP_EXTEND",
                    "DESUMMARIZE", NULL, NULL, NULL, "INSERT+INIT", "UPDATE+INIT"},
    [RM_COMMIT_TS_ID] = {"ZEROPAGE", "TRUNCATE"},
    [RM_REPLORIGIN_ID] = {"SET", "DROP"},
    [RM_GENERIC_ID] = {"Generic"},
    [RM_LOGICALMSG_ID] = {"MESSAGE"},
};

static const char *const heap2_prune_to_16[] = {"PRUNE", "VACUUM", "FREEZE_PAGE"};

static char custom_names[128][10];
static pthread_once_t custom_once = PTHREAD_ONCE_INIT;

static void custom_fill(void)
{
    for (unsigned i = 0; i < 128; i++)
        snprintf(custom_names[i], sizeof custom_names[i], "custom%03u", i + 128);
}

bool rmgr_id_valid(uint8_t rmid)
{
    return rmid <= RM_LOGICALMSG_ID || rmid >= 128;
}

const char *rmgr_name(uint8_t rmid)
{
    if (rmid < LENGTH(names))
        return names[rmid];
    if (rmid < 128)
        return "unknown";
    pthread_once(&custom_once, custom_fill);
    return custom_names[rmid - 128];
}

const char *rmgr_op_name(uint8_t rmid, uint8_t info, unsigned major)
{
    unsigned op = info >> 4;
    if (rmid >= LENGTH(ops))
        return NULL;
    if (rmid == RM_XACT_ID)
        return ops[rmid][op & 7];
    if (rmid == RM_GENERIC_ID)
        return ops[rmid][0];
    if (rmid == RM_HEAP2_ID && op >= 1 && op <= 3 && major < 17)
        return heap2_prune_to_16[op - 1];
    if (rmid == RM_XLOG_ID && op == 0xE && major < 17)
        return NULL;
    return ops[rmid][op];
}
