/* Records of RM_XLOG_ID that walshadow reads.
 * Source: catalog/pg_control.h, access/xlog_internal.h; 17 added wal_level and CHECKPOINT_REDO. */
#pragma once
#include "pg/control_file.h"
#include "pg/wal_record.h"

#define XLOG_CHECKPOINT_SHUTDOWN 0x00
#define XLOG_CHECKPOINT_ONLINE 0x10
#define XLOG_NOOP 0x20
#define XLOG_NEXTOID 0x30
#define XLOG_SWITCH 0x40
#define XLOG_BACKUP_END 0x50
#define XLOG_PARAMETER_CHANGE 0x60
#define XLOG_RESTORE_POINT 0x70
#define XLOG_FPW_CHANGE 0x80
#define XLOG_END_OF_RECOVERY 0x90
#define XLOG_FPI_FOR_HINT 0xA0
#define XLOG_FPI 0xB0
#define XLOG_OVERWRITE_CONTRECORD 0xD0
#define XLOG_CHECKPOINT_REDO 0xE0 /* 17+ */

struct xlog_record {
    uint8_t op; /* XLOG_* */
    /* -1 unless the record tells it: PARAMETER_CHANGE, and from 17 on CHECKPOINT_*,
     * CHECKPOINT_REDO, END_OF_RECOVERY */
    int wal_level;
    struct checkpoint checkpoint;     /* of CHECKPOINT_SHUTDOWN, CHECKPOINT_ONLINE */
    uint32_t timeline, prev_timeline; /* of those and END_OF_RECOVERY */
    XLogRecPtr lsn; /* OVERWRITE_CONTRECORD: start of the abandoned record; BACKUP_END: its start */
    bool full_page_writes; /* of FPW_CHANGE */
    Oid next_oid;          /* of NEXTOID */
    int max_connections, max_worker_processes, max_wal_senders, max_prepared_xacts,
        max_locks_per_xact; /* of PARAMETER_CHANGE */
    bool wal_log_hints, track_commit_timestamp;
};

/* ERR_DATA for an unknown opcode or a short record; the record must be of RM_XLOG_ID and whole. */
enum status xlog_record_parse(const struct wal_record *record, unsigned major,
                              struct xlog_record *ret, struct error *err) CHECKED;

static inline bool wal_record_is_xlog(const struct wal_record *record, uint8_t op)
{
    return record->rmid == RM_XLOG_ID && (record->info & 0xF0) == op;
}
