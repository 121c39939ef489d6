#include "pg/control_file.h"

#include "base/buf.h"
#include "base/crc32c.h"
#include "base/cursor.h"
#include "base/file.h"

#include <time.h>

/* Offsets within ControlFileData on a 64-bit little-endian build. */
#define AT_CHECKPOINT_COPY 40
#define AT_MIN_RECOVERY_POINT 136
#define AT_CRC_TO_17 288
#define AT_CRC_18 292 /* default_char_signedness precedes the nonce */
#define FLOATFORMAT_VALUE 1234567.0

#define READ_ATTEMPTS 5

static const struct {
    unsigned major;
    uint32_t control_version;
    uint32_t catalog_version;
    size_t crc_at;
} versions[] = {
    {15, 1300, 202209061, AT_CRC_TO_17},
    {16, 1300, 202307071, AT_CRC_TO_17},
    {17, 1700, 202406281, AT_CRC_TO_17},
    {18, 1800, 202506291, AT_CRC_18},
};

const char *wal_level_name(int level)
{
    static const char *const names[] = {"minimal", "replica", "logical"};
    return level >= 0 && level < (int)LENGTH(names) ? names[level] : "?";
}

enum status checkpoint_parse(const uint8_t *bytes, size_t len, unsigned major,
                             struct checkpoint *ret, struct error *err)
{
    struct cursor c = cursor_of(bytes, len);
    struct checkpoint p = {0};
    p.redo = cursor_u64(&c);
    p.timeline = cursor_u32(&c);
    p.prev_timeline = cursor_u32(&c);
    p.full_page_writes = cursor_u8(&c) != 0;
    cursor_skip(&c, 3);
    int level = cursor_i32(&c); /* padding before 17 */
    p.wal_level = major >= 17 ? level : -1;
    p.next_xid = cursor_u64(&c);
    p.next_oid = cursor_u32(&c);
    p.next_multi = cursor_u32(&c);
    p.next_multi_offset = cursor_u32(&c);
    p.oldest_xid = cursor_u32(&c);
    p.oldest_xid_db = cursor_u32(&c);
    p.oldest_multi = cursor_u32(&c);
    p.oldest_multi_db = cursor_u32(&c);
    cursor_skip(&c, 4);
    p.time = cursor_i64(&c);
    cursor_skip(&c, 8); /* oldestCommitTsXid, newestCommitTsXid */
    p.oldest_active_xid = cursor_u32(&c);
    if (!cursor_ok(&c))
        return error_set(err, ERR_DATA, "checkpoint of %zu bytes is shorter than %u", len,
                         CHECKPOINT_SIZE);
    *ret = p;
    return OK;
}

/* From minRecoveryPoint to data_checksum_version: the same in all four majors. */
static enum status settings_parse(struct cursor *c, struct control_file *f, struct error *err)
{
    f->min_recovery_point = cursor_u64(c);
    f->min_recovery_timeline = cursor_u32(c);
    cursor_skip(c, 4);
    f->backup_start = cursor_u64(c);
    f->backup_end = cursor_u64(c);
    f->backup_end_required = cursor_u8(c) != 0;
    cursor_skip(c, 3);
    f->wal_level = cursor_i32(c);
    f->wal_log_hints = cursor_u8(c) != 0;
    cursor_skip(c, 3);
    f->max_connections = cursor_i32(c);
    f->max_worker_processes = cursor_i32(c);
    f->max_wal_senders = cursor_i32(c);
    f->max_prepared_xacts = cursor_i32(c);
    f->max_locks_per_xact = cursor_i32(c);
    f->track_commit_timestamp = cursor_u8(c) != 0;
    cursor_skip(c, 3);
    uint32_t max_align = cursor_u32(c);
    uint64_t float_bits = cursor_u64(c);
    f->block_bytes = cursor_u32(c);
    f->segment_blocks = cursor_u32(c);
    f->wal_block_bytes = cursor_u32(c);
    f->wal_segment_bytes = cursor_u32(c);
    cursor_skip(c, 20); /* name and key limits, chunk sizes, float8ByVal */
    f->data_checksum_version = cursor_u32(c);
    double float_format;
    memcpy(&float_format, &float_bits, sizeof float_format);
    if (max_align != 8 || float_format < FLOATFORMAT_VALUE || float_format > FLOATFORMAT_VALUE)
        return error_set(err, ERR_CONFIG,
                         "pg_control is of another architecture (alignment %u, float %g)",
                         max_align, float_format);
    if (f->block_bytes != PG_BLCKSZ || f->wal_block_bytes != PG_XLOG_BLCKSZ)
        return error_set(err, ERR_CONFIG,
                         "block sizes %u (data) and %u (WAL) are not supported, only %u is",
                         f->block_bytes, f->wal_block_bytes, PG_BLCKSZ);
    return OK;
}

enum status control_file_parse(const uint8_t *bytes, size_t len, struct control_file *ret,
                               struct error *err)
{
    struct cursor c = cursor_of(bytes, len);
    struct control_file f = {0};
    f.system_id = cursor_u64(&c);
    f.control_version = cursor_u32(&c);
    f.catalog_version = cursor_u32(&c);
    if (!cursor_ok(&c))
        return error_set(err, ERR_DATA, "pg_control has only %zu bytes", len);
    size_t crc_at = 0;
    for (size_t i = 0; i < LENGTH(versions); i++)
        if (versions[i].control_version == f.control_version) {
            crc_at = versions[i].crc_at;
            if (versions[i].catalog_version == f.catalog_version)
                f.major = versions[i].major;
        }
    if (crc_at == 0)
        return error_set(err, ERR_CONFIG,
                         "pg_control version %u is not supported (PostgreSQL 15 to 18 are)",
                         f.control_version);
    uint32_t crc = 0;
    if (len < crc_at + 4)
        return error_set(err, ERR_DATA, "pg_control has only %zu bytes", len);
    memcpy(&crc, bytes + crc_at, 4);
    if (crc != crc32c(bytes, crc_at))
        return error_set(err, ERR_DATA, "pg_control has a wrong CRC");
    if (f.major == 0)
        return error_set(
            err, ERR_CONFIG,
            "catalog version %u is not supported (releases of PostgreSQL 15 to 18 are)",
            f.catalog_version);
    uint32_t state = cursor_u32(&c);
    if (state > CONTROL_IN_PRODUCTION)
        return error_set(err, ERR_DATA, "pg_control has the unknown state %u", state);
    f.state = (enum control_state)state;
    cursor_skip(&c, 4);
    f.time = cursor_i64(&c);
    f.checkpoint_lsn = cursor_u64(&c);
    TRY(checkpoint_parse(bytes + AT_CHECKPOINT_COPY, CHECKPOINT_SIZE, f.major, &f.checkpoint, err));
    c.pos = AT_MIN_RECOVERY_POINT;
    TRY(settings_parse(&c, &f, err));
    *ret = f;
    return OK;
}

enum status control_file_read(const char *data_dir, struct control_file *ret, struct error *err)
{
    CLEANUP_FREE char *path = xasprintf("%s/global/pg_control", data_dir);
    enum status status = OK;
    for (int attempt = 0; attempt < READ_ATTEMPTS; attempt++) {
        struct buf CLEANUP_BUF b = {0};
        TRY(file_read_all(path, PG_CONTROL_FILE_SIZE, &b, err));
        status = control_file_parse(b.data, b.len, ret, err);
        if (status != ERR_DATA) /* a reader may see half of a write: some file systems tear it */
            break;
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    }
    if (status != OK)
        return error_prefix(err, "%s", path);
    return OK;
}
