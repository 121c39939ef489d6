/* Packets a client sends: written and parsed. */
#include "native/packet.h"

#include <stdlib.h>

#define NAME_MAX_BYTES 4096u
#define VALUE_MAX_BYTES ((size_t)1 << 20)
#define SETTINGS_MAX 4096u
#define TABLES_MAX 65536u

static void put_str(struct buf *out, struct str s)
{
    buf_put_varint(out, s.len);
    buf_put(out, s.data, s.len);
}

void packet_put_client_hello(struct buf *out, const struct packet_client_hello *hello)
{
    buf_put_varint(out, CLIENT_HELLO);
    put_str(out, hello->name);
    buf_put_varint(out, hello->major);
    buf_put_varint(out, hello->minor);
    buf_put_varint(out, hello->revision);
    put_str(out, hello->database);
    put_str(out, hello->user);
    put_str(out, hello->password);
}

void packet_put_addendum(struct buf *out, uint64_t revision, struct str quota_key)
{
    if (revision >= REVISION_ADDENDUM)
        put_str(out, quota_key);
}

static void put_client_info(struct buf *out, uint64_t revision,
                            const struct packet_client_info *info)
{
    buf_put_u8(out, info->query_kind);
    if (info->query_kind == 0)
        return;
    put_str(out, info->initial_user);
    put_str(out, info->initial_query_id);
    /* newer servers parse this as an address and refuse an empty one */
    put_str(out, info->initial_address.len > 0 ? info->initial_address : str_of("0.0.0.0:0"));
    if (revision >= REVISION_START_TIME)
        buf_put_i64(out, info->start_time_us);
    buf_put_u8(out, 1); /* TCP */
    put_str(out, info->os_user);
    put_str(out, info->hostname);
    put_str(out, info->name);
    buf_put_varint(out, info->major);
    buf_put_varint(out, info->minor);
    buf_put_varint(out, info->revision);
    put_str(out, info->quota_key);
    if (revision >= REVISION_DISTRIBUTED_DEPTH)
        buf_put_varint(out, 0);
    buf_put_varint(out, info->patch);
    if (revision >= REVISION_TRACE)
        buf_put_u8(out, 0);
    if (revision >= REVISION_PARALLEL_REPLICAS)
        buf_put_zeros(out, 3);
}

static void put_settings(struct buf *out, const struct packet_settings *settings)
{
    for (size_t i = 0; i < settings->n; i++) {
        put_str(out, settings->items[i].name);
        buf_put_varint(out, settings->items[i].flags);
        put_str(out, settings->items[i].value);
    }
    buf_put_u8(out, 0); /* an empty name ends the list */
}

void packet_put_query(struct buf *out, uint64_t revision, const struct packet_query *query)
{
    buf_put_varint(out, CLIENT_QUERY);
    put_str(out, query->query_id);
    put_client_info(out, revision, &query->info);
    /* older servers want values in binary form and fail on a name they do not know: they get none
     */
    if (revision >= REVISION_SETTINGS_AS_STRINGS)
        put_settings(out, &query->settings);
    else
        buf_put_u8(out, 0);
    if (revision >= REVISION_INTERSERVER_SECRET)
        buf_put_u8(out, 0);
    buf_put_varint(out, query->stage);
    buf_put_varint(out, query->compression);
    put_str(out, query->sql);
    if (revision >= REVISION_PARAMETERS)
        put_settings(out, &query->parameters);
}

void packet_put_client_data(struct buf *out, enum client_packet_type type, struct str table_name)
{
    buf_put_varint(out, type);
    put_str(out, table_name);
}

void packet_put_cancel(struct buf *out)
{
    buf_put_varint(out, CLIENT_CANCEL);
}

void packet_put_ping(struct buf *out)
{
    buf_put_varint(out, CLIENT_PING);
}

void packet_put_tables_request(struct buf *out, const struct packet_table_name *tables, size_t n)
{
    buf_put_varint(out, CLIENT_TABLES_STATUS);
    buf_put_varint(out, n);
    for (size_t i = 0; i < n; i++) {
        put_str(out, tables[i].database);
        put_str(out, tables[i].table);
    }
}

static void parse_hello(struct wire *w, struct packet_client_hello *hello)
{
    hello->name = wire_str(w, NAME_MAX_BYTES, "the client's name");
    hello->major = wire_varint(w);
    hello->minor = wire_varint(w);
    hello->revision = wire_varint(w);
    if (w->state == PARSE_DONE && hello->revision < PACKET_REVISION_MIN)
        wire_bad(w, "the client's protocol revision %llu is older than %u",
                 (unsigned long long)hello->revision, PACKET_REVISION_MIN);
    hello->database = wire_str(w, NAME_MAX_BYTES, "the database name");
    hello->user = wire_str(w, NAME_MAX_BYTES, "the user name");
    hello->password = wire_str(w, NAME_MAX_BYTES, "the password");
}

static void parse_origin(struct wire *w, uint64_t revision, struct packet_client_info *info)
{
    if (info->interface == 1) {
        info->os_user = wire_str(w, NAME_MAX_BYTES, "the client's OS user");
        info->hostname = wire_str(w, NAME_MAX_BYTES, "the client's host name");
        info->name = wire_str(w, NAME_MAX_BYTES, "the client's name");
        info->major = wire_varint(w);
        info->minor = wire_varint(w);
        info->revision = wire_varint(w);
    } else if (info->interface == 2) {
        wire_u8(w); /* method */
        wire_str(w, VALUE_MAX_BYTES, "the HTTP user agent");
        if (revision >= REVISION_FORWARDED_FOR)
            wire_str(w, VALUE_MAX_BYTES, "X-Forwarded-For");
        if (revision >= REVISION_REFERER)
            wire_str(w, VALUE_MAX_BYTES, "the HTTP referer");
    }
}

static void parse_client_info(struct wire *w, uint64_t revision, struct packet_client_info *info)
{
    info->query_kind = wire_u8(w);
    if (w->state != PARSE_DONE || info->query_kind == 0)
        return;
    if (info->query_kind > 2) {
        wire_bad(w, "the query kind %u is unknown", info->query_kind);
        return;
    }
    info->initial_user = wire_str(w, NAME_MAX_BYTES, "the initial user");
    info->initial_query_id = wire_str(w, NAME_MAX_BYTES, "the initial query id");
    info->initial_address = wire_str(w, NAME_MAX_BYTES, "the initial address");
    if (revision >= REVISION_START_TIME)
        info->start_time_us = wire_i64(w);
    info->interface = wire_u8(w);
    parse_origin(w, revision, info);
    info->quota_key = wire_str(w, NAME_MAX_BYTES, "the quota key");
    if (revision >= REVISION_DISTRIBUTED_DEPTH)
        wire_varint(w);
    if (info->interface == 1)
        info->patch = wire_varint(w);
    if (revision >= REVISION_TRACE && wire_u8(w) != 0) {
        wire_skip(w, 16 + 8);
        wire_str(w, VALUE_MAX_BYTES, "the trace state");
        wire_u8(w);
    }
    if (revision >= REVISION_PARALLEL_REPLICAS) {
        wire_varint(w);
        wire_varint(w);
        wire_varint(w);
    }
}

static void parse_settings(struct wire *w, struct packet_settings *ret, const char *what)
{
    for (;;) {
        struct str name = wire_str(w, NAME_MAX_BYTES, "a setting's name");
        if (w->state != PARSE_DONE || name.len == 0)
            return;
        uint64_t flags = wire_varint(w);
        struct str value = wire_str(w, VALUE_MAX_BYTES, "a setting's value");
        if (w->state != PARSE_DONE)
            return;
        if (ret->n == SETTINGS_MAX) {
            wire_bad(w, "a query has more than %u %s", SETTINGS_MAX, what);
            return;
        }
        if ((ret->n & (ret->n - 1)) == 0) /* 0, 1, 2, 4, 8 …: doubles */
            ret->items = xrealloc(ret->items, MAX(ret->n * 2, 1) * sizeof *ret->items);
        ret->items[ret->n++] = (struct packet_setting){name, value, flags};
    }
}

static void parse_query(struct wire *w, uint64_t revision, size_t sql_max,
                        struct packet_query *query)
{
    query->query_id = wire_str(w, NAME_MAX_BYTES, "the query id");
    parse_client_info(w, revision, &query->info);
    if (revision >= REVISION_SETTINGS_AS_STRINGS) {
        parse_settings(w, &query->settings, "settings");
    } else {
        struct str name = wire_str(w, NAME_MAX_BYTES, "a setting's name");
        if (name.len > 0)
            wire_bad(w, "setting %.*s: a client older than revision %u cannot send settings",
                     (int)name.len, name.data, REVISION_SETTINGS_AS_STRINGS);
    }
    if (revision >= REVISION_INTERSERVER_SECRET)
        wire_str(w, NAME_MAX_BYTES, "the interserver hash");
    query->stage = wire_varint(w);
    uint64_t compression = wire_varint(w);
    if (compression > 1)
        wire_bad(w, "the compression flag is %llu", (unsigned long long)compression);
    query->compression = compression == 1;
    query->sql = wire_str(w, sql_max, "the statement");
    if (revision >= REVISION_PARAMETERS)
        parse_settings(w, &query->parameters, "parameters");
}

static void parse_tables(struct wire *w, struct packet_client *p)
{
    uint64_t n = wire_varint(w);
    if (n > TABLES_MAX)
        wire_bad(w, "the status of %llu tables is asked for", (unsigned long long)n);
    for (uint64_t i = 0; i < n && w->state == PARSE_DONE; i++) {
        struct packet_table_name name = {wire_str(w, NAME_MAX_BYTES, "a database name"),
                                         wire_str(w, NAME_MAX_BYTES, "a table name")};
        if (w->state != PARSE_DONE)
            return;
        if ((i & (i - 1)) == 0)
            p->tables.items = xrealloc(p->tables.items, MAX(i * 2, 1) * sizeof *p->tables.items);
        p->tables.items[p->tables.n++] = name;
    }
}

enum parse_result packet_client_parse(struct cursor *in, uint64_t revision, size_t sql_max,
                                      struct packet_client *ret, struct error *err)
{
    struct wire w = wire_begin(in, err);
    struct packet_client p = {0};
    uint64_t type = wire_varint(&w);
    p.type = (enum client_packet_type)type;
    switch (type) {
    case CLIENT_HELLO:
        parse_hello(&w, &p.hello);
        break;
    case CLIENT_QUERY:
        parse_query(&w, revision, sql_max, &p.query);
        break;
    case CLIENT_DATA:
    case CLIENT_SCALAR:
        p.table_name = wire_str(&w, NAME_MAX_BYTES, "a table name");
        break;
    case CLIENT_CANCEL:
    case CLIENT_PING:
        break;
    case CLIENT_TABLES_STATUS:
        parse_tables(&w, &p);
        break;
    default:
        wire_bad(&w, "unknown packet %llu from a client", (unsigned long long)type);
    }
    if (wire_end(&w) == PARSE_DONE)
        *ret = p;
    else
        packet_client_fini(&p);
    return w.state;
}

void packet_client_fini(struct packet_client *p)
{
    if (p->type == CLIENT_QUERY) {
        free(p->query.settings.items);
        free(p->query.parameters.items);
        p->query.settings = p->query.parameters = (struct packet_settings){0};
    } else if (p->type == CLIENT_TABLES_STATUS) {
        free(p->tables.items);
        p->tables.items = NULL;
        p->tables.n = 0;
    }
}

enum parse_result packet_addendum_parse(struct cursor *in, uint64_t revision,
                                        struct str *ret_quota_key, struct error *err)
{
    struct wire w = wire_begin(in, err);
    struct str key = {"", 0};
    if (revision >= REVISION_ADDENDUM)
        key = wire_str(&w, NAME_MAX_BYTES, "the quota key");
    if (wire_end(&w) == PARSE_DONE)
        *ret_quota_key = key;
    return w.state;
}
