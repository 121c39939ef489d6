/* pg_control (global/pg_control) and the checkpoint it shares with the WAL.
 * Source: catalog/pg_control.h: versions 1300 (15, 16), 1700 (17), 1800 (18). */
#pragma once
#include "base/error.h"
#include "pg/pg.h"

#include <stddef.h>

#define PG_CONTROL_FILE_SIZE 8192u

enum wal_level { WAL_LEVEL_MINIMAL, WAL_LEVEL_REPLICA, WAL_LEVEL_LOGICAL };
const char *wal_level_name(int level); /* "?" if unknown */

enum control_state {
    CONTROL_STARTUP,
    CONTROL_SHUTDOWNED,
    CONTROL_SHUTDOWNED_IN_RECOVERY,
    CONTROL_SHUTDOWNING,
    CONTROL_IN_CRASH_RECOVERY,
    CONTROL_IN_ARCHIVE_RECOVERY,
    CONTROL_IN_PRODUCTION,
};

struct checkpoint {
    XLogRecPtr redo;
    uint32_t timeline, prev_timeline;
    bool full_page_writes;
    int wal_level;     /* enum wal_level from 17 on, -1 before */
    uint64_t next_xid; /* with its epoch */
    Oid next_oid;
    uint32_t next_multi, next_multi_offset;
    TransactionId oldest_xid;
    Oid oldest_xid_db;
    uint32_t oldest_multi;
    Oid oldest_multi_db;
    int64_t time; /* seconds since 1970 */
    TransactionId oldest_active_xid;
};

struct control_file {
    unsigned major; /* 15 to 18, from the catalog version */
    uint64_t system_id;
    uint32_t control_version;
    uint32_t catalog_version;
    enum control_state state;
    int64_t time; /* seconds since 1970 */
    XLogRecPtr checkpoint_lsn;
    struct checkpoint checkpoint;
    XLogRecPtr min_recovery_point;
    uint32_t min_recovery_timeline;
    XLogRecPtr backup_start, backup_end;
    bool backup_end_required;
    int wal_level;
    bool wal_log_hints;
    int max_connections, max_worker_processes, max_wal_senders, max_prepared_xacts,
        max_locks_per_xact;
    bool track_commit_timestamp;
    uint32_t block_bytes, segment_blocks; /* of a relation file */
    uint32_t wal_block_bytes, wal_segment_bytes;
    uint32_t data_checksum_version; /* 0 = off */
};

#define CHECKPOINT_SIZE 88u

/* The body of an XLOG_CHECKPOINT_* record or the copy in pg_control: CHECKPOINT_SIZE bytes. */
enum status checkpoint_parse(const uint8_t *bytes, size_t len, unsigned major,
                             struct checkpoint *ret, struct error *err) CHECKED;

/* Reads the file's bytes (at least the used part). ERR_DATA for a wrong CRC, ERR_CONFIG for a
 * version or build that is not supported, by name. */
enum status control_file_parse(const uint8_t *bytes, size_t len, struct control_file *ret,
                               struct error *err) CHECKED;
/* Reads <data_dir>/global/pg_control. A torn read while the server writes is tried again. */
enum status control_file_read(const char *data_dir, struct control_file *ret,
                              struct error *err) CHECKED;
