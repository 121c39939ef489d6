#include "pg/standby_record.h"

#include "base/cursor.h"

static enum status cut(const struct wal_record *record, const char *what, struct error *err)
{
    return error_lsn(err, ERR_DATA, record->start, "%s record is shorter than it says", what);
}

enum status running_xacts_parse(const struct wal_record *record, struct running_xacts *ret,
                                struct error *err)
{
    struct cursor c = cursor_of(record->main_data, record->main_len);
    struct running_xacts r = {0};
    r.xact_count = cursor_u32(&c);
    r.subxact_count = cursor_u32(&c);
    r.subxid_overflow = cursor_u8(&c) != 0;
    cursor_skip(&c, 3);
    r.next_xid = cursor_u32(&c);
    r.oldest_running_xid = cursor_u32(&c);
    r.latest_completed_xid = cursor_u32(&c);
    r.xids = cursor_take(&c, ((size_t)r.xact_count + r.subxact_count) * 4);
    if (!cursor_ok(&c))
        return cut(record, "RUNNING_XACTS", err);
    *ret = r;
    return OK;
}

enum status standby_locks_parse(const struct wal_record *record, struct standby_lock_list *ret,
                                struct error *err)
{
    struct cursor c = cursor_of(record->main_data, record->main_len);
    struct standby_lock_list r = {0};
    r.count = cursor_u32(&c);
    r.locks = cursor_take(&c, (size_t)r.count * sizeof(struct standby_lock));
    if (!cursor_ok(&c))
        return cut(record, "STANDBY_LOCK", err);
    *ret = r;
    return OK;
}

enum status standby_invals_parse(const struct wal_record *record, Oid *ret_db_oid,
                                 struct inval_list *ret, struct error *err)
{
    struct cursor c = cursor_of(record->main_data, record->main_len);
    struct inval_list r = {0};
    Oid db_oid = cursor_u32(&c);
    cursor_skip(&c, 8); /* tablespace, init file flag and padding */
    r.count = cursor_u32(&c);
    r.messages = cursor_take(&c, (size_t)r.count * INVAL_MESSAGE_SIZE);
    if (!cursor_ok(&c))
        return cut(record, "INVALIDATIONS", err);
    *ret_db_oid = db_oid;
    *ret = r;
    return OK;
}
