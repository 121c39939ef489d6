/* Packets a server sends: written and parsed. */
#include "native/packet.h"

#define NAME_MAX_BYTES 4096u
#define TEXT_MAX_BYTES ((size_t)16 << 20)
#define EXCEPTIONS_MAX 16u
#define TABLES_MAX 65536u

static void put_str(struct buf *out, struct str s)
{
    buf_put_varint(out, s.len);
    buf_put(out, s.data, s.len);
}

void packet_put_server_hello(struct buf *out, uint64_t revision,
                             const struct packet_server_hello *hello)
{
    (void)
        revision; /* every revision from PACKET_REVISION_MIN to PACKET_REVISION has these fields */
    buf_put_varint(out, SERVER_HELLO);
    put_str(out, hello->name);
    buf_put_varint(out, hello->major);
    buf_put_varint(out, hello->minor);
    buf_put_varint(out, hello->revision);
    put_str(out, hello->timezone);
    put_str(out, hello->display_name);
    buf_put_varint(out, hello->patch);
}

void packet_put_exception(struct buf *out, int32_t code, struct str name, struct str message,
                          struct str stack_trace)
{
    buf_put_varint(out, SERVER_EXCEPTION);
    buf_put_i32(out, code);
    put_str(out, name);
    put_str(out, message);
    put_str(out, stack_trace);
    buf_put_u8(out, 0); /* no nested one */
}

void packet_put_progress(struct buf *out, uint64_t revision, const struct packet_progress *progress)
{
    buf_put_varint(out, SERVER_PROGRESS);
    buf_put_varint(out, progress->rows);
    buf_put_varint(out, progress->bytes);
    buf_put_varint(out, progress->total_rows);
    if (revision >= REVISION_PROGRESS_WRITES) {
        buf_put_varint(out, progress->written_rows);
        buf_put_varint(out, progress->written_bytes);
    }
}

void packet_put_profile_info(struct buf *out, const struct packet_profile_info *info)
{
    buf_put_varint(out, SERVER_PROFILE_INFO);
    buf_put_varint(out, info->rows);
    buf_put_varint(out, info->blocks);
    buf_put_varint(out, info->bytes);
    buf_put_u8(out, info->applied_limit);
    buf_put_varint(out, info->rows_before_limit);
    buf_put_u8(out, info->calculated);
}

void packet_put_server_data(struct buf *out, enum server_packet_type type, struct str table_name)
{
    buf_put_varint(out, type);
    put_str(out, table_name);
}

void packet_put_table_columns(struct buf *out, struct str table, struct str text)
{
    buf_put_varint(out, SERVER_TABLE_COLUMNS);
    put_str(out, table);
    put_str(out, text);
}

void packet_put_pong(struct buf *out)
{
    buf_put_varint(out, SERVER_PONG);
}

void packet_put_end_of_stream(struct buf *out)
{
    buf_put_varint(out, SERVER_END_OF_STREAM);
}

void packet_put_tables_status(struct buf *out, const struct packet_table_name *tables, size_t n)
{
    buf_put_varint(out, SERVER_TABLES_STATUS);
    buf_put_varint(out, n);
    for (size_t i = 0; i < n; i++) {
        put_str(out, tables[i].database);
        put_str(out, tables[i].table);
        buf_put_u8(out, 0);
    }
}

void packet_put_timezone_update(struct buf *out, struct str timezone)
{
    buf_put_varint(out, SERVER_TIMEZONE_UPDATE);
    put_str(out, timezone);
}

static void parse_hello(struct wire *w, struct packet_server_hello *hello)
{
    hello->name = wire_str(w, NAME_MAX_BYTES, "the server's name");
    hello->major = wire_varint(w);
    hello->minor = wire_varint(w);
    hello->revision = wire_varint(w);
    if (w->state == PARSE_DONE && hello->revision < PACKET_REVISION_MIN)
        wire_bad(w, "the server's protocol revision %llu is older than %u",
                 (unsigned long long)hello->revision, PACKET_REVISION_MIN);
    hello->timezone = wire_str(w, NAME_MAX_BYTES, "the server's time zone");
    hello->display_name = wire_str(w, NAME_MAX_BYTES, "the server's display name");
    hello->patch = wire_varint(w);
}

static void parse_exception(struct wire *w, struct packet_exception *ret)
{
    for (unsigned depth = 0; depth < EXCEPTIONS_MAX; depth++) {
        struct packet_exception e;
        e.code = wire_i32(w);
        e.name = wire_str(w, NAME_MAX_BYTES, "an exception's name");
        e.message = wire_str(w, TEXT_MAX_BYTES, "an exception's message");
        e.stack_trace = wire_str(w, TEXT_MAX_BYTES, "a stack trace");
        if (depth == 0)
            *ret = e;
        uint8_t nested = wire_u8(w);
        if (nested > 1)
            wire_bad(w, "an exception's flag of a nested one is %u", nested);
        if (w->state != PARSE_DONE || nested == 0)
            return;
    }
    wire_bad(w, "exceptions are nested more than %u deep", EXCEPTIONS_MAX);
}

static void parse_progress(struct wire *w, uint64_t revision, struct packet_progress *p)
{
    p->rows = wire_varint(w);
    p->bytes = wire_varint(w);
    p->total_rows = wire_varint(w);
    if (revision >= REVISION_PROGRESS_WRITES) {
        p->written_rows = wire_varint(w);
        p->written_bytes = wire_varint(w);
    }
}

static void parse_profile_info(struct wire *w, struct packet_profile_info *p)
{
    p->rows = wire_varint(w);
    p->blocks = wire_varint(w);
    p->bytes = wire_varint(w);
    p->applied_limit = wire_u8(w) != 0;
    p->rows_before_limit = wire_varint(w);
    p->calculated = wire_u8(w) != 0;
}

static void parse_tables_status(struct wire *w, uint64_t *ret_n)
{
    *ret_n = wire_varint(w);
    if (*ret_n > TABLES_MAX)
        wire_bad(w, "the status of %llu tables is given", (unsigned long long)*ret_n);
    for (uint64_t i = 0; i < *ret_n && w->state == PARSE_DONE; i++) {
        wire_str(w, NAME_MAX_BYTES, "a database name");
        wire_str(w, NAME_MAX_BYTES, "a table name");
        if (wire_u8(w) != 0)
            wire_varint(w); /* delay of the replica */
    }
}

static void parse_body(struct wire *w, uint64_t type, uint64_t revision, struct packet_server *p)
{
    switch (type) {
    case SERVER_HELLO:
        parse_hello(w, &p->hello);
        break;
    case SERVER_EXCEPTION:
        parse_exception(w, &p->exception);
        break;
    case SERVER_PROGRESS:
        parse_progress(w, revision, &p->progress);
        break;
    case SERVER_PONG:
    case SERVER_END_OF_STREAM:
        break;
    case SERVER_PROFILE_INFO:
        parse_profile_info(w, &p->profile);
        break;
    case SERVER_DATA:
    case SERVER_TOTALS:
    case SERVER_EXTREMES:
    case SERVER_LOG:
    case SERVER_PROFILE_EVENTS:
        p->table_name = wire_str(w, NAME_MAX_BYTES, "a table name");
        break;
    case SERVER_TABLES_STATUS:
        parse_tables_status(w, &p->tables);
        break;
    case SERVER_TABLE_COLUMNS:
        p->columns.table = wire_str(w, NAME_MAX_BYTES, "a table name");
        p->columns.text = wire_str(w, TEXT_MAX_BYTES, "a table's columns");
        break;
    case SERVER_TIMEZONE_UPDATE:
        p->timezone = wire_str(w, NAME_MAX_BYTES, "a time zone");
        break;
    default:
        wire_bad(w, "unknown packet %llu from the server", (unsigned long long)type);
    }
}

enum parse_result packet_server_parse(struct cursor *in, uint64_t revision,
                                      struct packet_server *ret, struct error *err)
{
    struct wire w = wire_begin(in, err);
    struct packet_server p = {0};
    uint64_t type = wire_varint(&w);
    p.type = (enum server_packet_type)type;
    if (w.state == PARSE_DONE)
        parse_body(&w, type, revision, &p);
    if (wire_end(&w) == PARSE_DONE)
        *ret = p;
    return w.state;
}
