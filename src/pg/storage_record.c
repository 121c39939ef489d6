#include "pg/storage_record.h"

#include "base/cursor.h"

static enum status bad(const struct wal_record *record, const char *what, struct error *err)
{
    return error_lsn(err, ERR_DATA, record->start, "%s record %02X is not understood (%u bytes)",
                     what, record->info, record->main_len);
}

static struct rel_file_locator cursor_locator(struct cursor *c)
{
    struct rel_file_locator l;
    l.spc_oid = cursor_u32(c);
    l.db_oid = cursor_u32(c);
    l.rel_number = cursor_u32(c);
    return l;
}

enum status smgr_record_parse(const struct wal_record *record, struct smgr_record *ret,
                              struct error *err)
{
    struct cursor c = cursor_of(record->main_data, record->main_len);
    struct smgr_record r = {0};
    switch (record->info & 0xF0) {
    case XLOG_SMGR_CREATE: {
        r.locator = cursor_locator(&c);
        uint32_t fork = cursor_u32(&c);
        if (fork > INIT_FORKNUM)
            return bad(record, "storage", err);
        r.fork = (uint8_t)fork;
        break;
    }
    case XLOG_SMGR_TRUNCATE:
        r.is_truncate = true;
        r.blocks = cursor_u32(&c);
        r.locator = cursor_locator(&c);
        r.flags = cursor_u32(&c);
        break;
    default:
        return bad(record, "storage", err);
    }
    if (!cursor_ok(&c))
        return bad(record, "storage", err);
    *ret = r;
    return OK;
}

enum status dbase_record_parse(const struct wal_record *record, struct dbase_record *ret,
                               struct error *err)
{
    struct cursor c = cursor_of(record->main_data, record->main_len);
    struct dbase_record r = {0};
    r.db_oid = cursor_u32(&c);
    switch (record->info & 0xF0) {
    case XLOG_DBASE_CREATE_FILE_COPY:
        r.kind = DBASE_CREATE_FILE_COPY;
        r.spc_oid = cursor_u32(&c);
        r.src_db_oid = cursor_u32(&c);
        break;
    case XLOG_DBASE_CREATE_WAL_LOG:
        r.kind = DBASE_CREATE_WAL_LOG;
        r.spc_oid = cursor_u32(&c);
        break;
    case XLOG_DBASE_DROP:
        r.kind = DBASE_DROP;
        break;
    default:
        return bad(record, "database", err);
    }
    if (!cursor_ok(&c))
        return bad(record, "database", err);
    *ret = r;
    return OK;
}

enum status heap_new_cid_parse(const struct wal_record *record, TransactionId *ret_top_xid,
                               struct rel_file_locator *ret, struct error *err)
{
    struct cursor c = cursor_of(record->main_data, record->main_len);
    TransactionId top_xid = cursor_u32(&c);
    cursor_skip(&c, 12); /* cmin, cmax, combocid */
    struct rel_file_locator l = cursor_locator(&c);
    if (!cursor_ok(&c))
        return bad(record, "NEW_CID", err);
    *ret_top_xid = top_xid;
    *ret = l;
    return OK;
}

enum status heap_rewrite_parse(const struct wal_record *record, Oid *ret_db_oid, Oid *ret_rel_oid,
                               struct error *err)
{
    struct cursor c = cursor_of(record->main_data, record->main_len);
    cursor_skip(&c, 4); /* mapped_xid */
    Oid db_oid = cursor_u32(&c);
    Oid rel_oid = cursor_u32(&c);
    if (!cursor_ok(&c))
        return bad(record, "REWRITE", err);
    *ret_db_oid = db_oid;
    *ret_rel_oid = rel_oid;
    return OK;
}
