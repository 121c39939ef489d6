#include "pg/xlog_record.h"

#include "base/cursor.h"

static void parameter_change_parse(struct cursor *c, struct xlog_record *r)
{
    r->max_connections = cursor_i32(c);
    r->max_worker_processes = cursor_i32(c);
    r->max_wal_senders = cursor_i32(c);
    r->max_prepared_xacts = cursor_i32(c);
    r->max_locks_per_xact = cursor_i32(c);
    r->wal_level = cursor_i32(c);
    r->wal_log_hints = cursor_u8(c) != 0;
    r->track_commit_timestamp = cursor_u8(c) != 0;
}

static void end_of_recovery_parse(struct cursor *c, unsigned major, struct xlog_record *r)
{
    cursor_skip(c, 8); /* end_time */
    r->timeline = cursor_u32(c);
    r->prev_timeline = cursor_u32(c);
    if (major >= 17)
        r->wal_level = cursor_i32(c);
}

enum status xlog_record_parse(const struct wal_record *record, unsigned major,
                              struct xlog_record *ret, struct error *err)
{
    if (record->rmid != RM_XLOG_ID || record->body_skipped)
        return error_lsn(err, ERR_BUG, record->start, "not a whole XLOG record");
    struct xlog_record r = {.op = record->info & 0xF0, .wal_level = -1};
    struct cursor c = cursor_of(record->main_data, record->main_len);
    switch (r.op) {
    case XLOG_CHECKPOINT_SHUTDOWN:
    case XLOG_CHECKPOINT_ONLINE:
        if (checkpoint_parse(record->main_data, record->main_len, major, &r.checkpoint, err) != OK)
            c.failed = true;
        r.wal_level = r.checkpoint.wal_level;
        r.timeline = r.checkpoint.timeline;
        r.prev_timeline = r.checkpoint.prev_timeline;
        break;
    case XLOG_NEXTOID:
        r.next_oid = cursor_u32(&c);
        break;
    case XLOG_BACKUP_END:
    case XLOG_OVERWRITE_CONTRECORD:
        r.lsn = cursor_u64(&c);
        break;
    case XLOG_PARAMETER_CHANGE:
        parameter_change_parse(&c, &r);
        break;
    case XLOG_FPW_CHANGE:
        r.full_page_writes = cursor_u8(&c) != 0;
        break;
    case XLOG_END_OF_RECOVERY:
        end_of_recovery_parse(&c, major, &r);
        break;
    case XLOG_CHECKPOINT_REDO:
        if (major < 17)
            return error_lsn(err, ERR_DATA, record->start, "unknown XLOG record %02X",
                             record->info);
        r.wal_level = cursor_i32(&c);
        break;
    case XLOG_NOOP:
    case XLOG_SWITCH:
    case XLOG_RESTORE_POINT:
    case XLOG_FPI_FOR_HINT:
    case XLOG_FPI:
        break;
    default:
        return error_lsn(err, ERR_DATA, record->start, "unknown XLOG record %02X", record->info);
    }
    if (!cursor_ok(&c))
        return error_lsn(err, ERR_DATA, record->start, "XLOG record %02X has only %u bytes",
                         record->info, record->main_len);
    *ret = r;
    return OK;
}
