#include "clickhouse/client.h"
#include "base/queue.h"
#include "base/socket.h"
#include "clickhouse/connection.h"

#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_CONNECT_MS 10000u
#define DEFAULT_TIMEOUT_MS 300000u

static void copy_str(char *to, size_t cap, struct str from)
{
    size_t n = MIN(from.len, cap - 1);
    memcpy(to, from.data, n);
    to[n] = '\0';
}

static enum status check_word(const char *what, const char *value, struct error *err)
{
    for (const char *p = value; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20)
            return error_set(err, ERR_CONFIG, "the %s has a control character", what);
    return OK;
}

static enum status send_hello(struct ch_client *c, const struct ch_endpoint *ep, struct error *err)
{
    const char *user = ep->user != NULL ? ep->user : "default";
    const char *database = ep->database != NULL ? ep->database : "default";
    const char *password = ep->password != NULL ? ep->password : "";
    if (user[0] == '\0')
        return error_set(err, ERR_CONFIG, "the user of a ClickHouse endpoint is empty");
    TRY(check_word("user name", user, err));
    TRY(check_word("database name", database, err));
    TRY(check_word("password", password, err));
    struct packet_client_hello hello = {
        .name = str_of("walshadow"),
        .major = 1,
        .revision = PACKET_REVISION,
        .database = str_of(database),
        .user = str_of(user),
        .password = str_of(password),
    };
    packet_put_client_hello(&c->out, &hello);
    enum status status = connection_send_out(c, err);
    if (c->out.data != NULL) /* the password does not stay in memory that is used again */
        explicit_bzero(c->out.data, c->out.cap);
    return status;
}

static enum status receive_hello(struct ch_client *c, struct error *err)
{
    enum server_packet_type type;
    TRY(connection_next(c, &type, err));
    if (type != SERVER_HELLO)
        return error_set(err, ERR_DATA, "%s: packet %d instead of a hello", c->stream.name,
                         (int)type);
    const struct packet_server_hello *hello = &c->packet.hello;
    struct ch_server_info *s = &c->server;
    copy_str(s->name, sizeof s->name, hello->name);
    copy_str(s->timezone, sizeof s->timezone, hello->timezone);
    copy_str(s->display_name, sizeof s->display_name, hello->display_name);
    s->major = (unsigned)MIN(hello->major, 1000000u);
    s->minor = (unsigned)MIN(hello->minor, 1000000u);
    s->patch = (unsigned)MIN(hello->patch, 1000000u);
    s->revision = MIN(hello->revision, PACKET_REVISION);
    c->block.revision = s->revision;
    packet_put_addendum(&c->out, s->revision, str_of(""));
    return connection_send_out(c, err);
}

static enum status connect_endpoint(struct ch_client *c, const struct ch_endpoint *ep,
                                    struct error *err)
{
    unsigned ms = ep->connect_ms > 0 ? ep->connect_ms : DEFAULT_CONNECT_MS;
    uint64_t until = clock_now_ns() + ms * UINT64_C(1000000);
    if (ep->unix_path != NULL)
        return socket_connect_unix(ep->unix_path, until, &c->stream, err);
    if (ep->host == NULL || ep->host[0] == '\0')
        return error_set(err, ERR_CONFIG, "a ClickHouse endpoint has neither a host nor a socket");
    return socket_connect_tcp(ep->host, ep->port, until, &c->stream, err);
}

enum status ch_client_open(const struct ch_endpoint *ep, struct ch_client **ret, struct error *err)
{
    struct ch_client *c = xcalloc(1, sizeof *c);
    unsigned receive_ms = ep->receive_ms > 0 ? ep->receive_ms : DEFAULT_TIMEOUT_MS;
    c->compression = ep->compression;
    c->server.revision = PACKET_REVISION;
    c->block.max_bytes = CONNECTION_BLOCK_MAX;
    enum status status = connect_endpoint(c, ep, err);
    /* the greeting belongs to connecting: a peer that accepts and says nothing is found as fast */
    c->send_ms = c->receive_ms = ep->connect_ms > 0 ? ep->connect_ms : DEFAULT_CONNECT_MS;
    if (status == OK)
        status = send_hello(c, ep, err);
    if (status == OK)
        status = receive_hello(c, err);
    if (status != OK) {
        ch_client_close(c);
        return status;
    }
    c->send_ms = ep->send_ms > 0 ? ep->send_ms : DEFAULT_TIMEOUT_MS;
    c->receive_ms = receive_ms;
    *ret = c;
    return OK;
}

void ch_client_close(struct ch_client *c)
{
    if (c == NULL)
        return;
    stream_close(&c->stream);
    buf_free(&c->in);
    buf_free(&c->plain);
    buf_free(&c->out);
    block_reader_fini(&c->block);
    free(c);
}

void ch_client_interrupt(struct ch_client *c)
{
    stream_cancel(&c->stream);
}

bool ch_client_broken(const struct ch_client *c)
{
    return c->broken;
}

const struct ch_server_info *ch_client_server(const struct ch_client *c)
{
    return &c->server;
}

bool ch_client_server_is(const struct ch_client *c, unsigned major, unsigned minor)
{
    return c->server.major > major || (c->server.major == major && c->server.minor >= minor);
}

uint64_t ch_client_idle_ms(const struct ch_client *c)
{
    return (clock_now_ns() - c->used_ns) / 1000000;
}

enum status ch_client_ping(struct ch_client *c, struct error *err)
{
    enum server_packet_type type;
    if (c->broken)
        return error_set(err, ERR_RETRY, "%s: the connection is broken", c->stream.name);
    buf_reset(&c->out);
    packet_put_ping(&c->out);
    TRY(connection_send_out(c, err));
    TRY(connection_break(c, connection_next(c, &type, err)));
    if (type != SERVER_PONG)
        return connection_break(c, error_set(err, ERR_DATA, "%s: packet %d instead of a pong",
                                             c->stream.name, (int)type));
    return OK;
}

enum status ch_client_execute(struct ch_client *c, const char *sql,
                              const struct ch_setting *settings, size_t n, struct error *err)
{
    enum server_packet_type type;
    TRY(connection_send_query(c, sql, settings, n, err));
    do
        TRY(connection_next(c, &type, err));
    while (type == SERVER_DATA || type == SERVER_TOTALS || type == SERVER_EXTREMES);
    if (type != SERVER_END_OF_STREAM)
        return connection_break(c, error_set(err, ERR_DATA,
                                             "%s: packet %d in the answer to a statement",
                                             c->stream.name, (int)type));
    return OK;
}
