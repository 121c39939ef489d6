/* Startup packets of a standby's connection. */
#include "base/queue.h"
#include "shadow/walsender_conn.h"
#include "shadow/wire.h"

#include <endian.h>
#include <strings.h>

#define STARTUP_MS 10000
#define STARTUP_MAX 10000u /* MAX_STARTUP_PACKET_LENGTH of libpq/pqcomm.h */

/* libpq/pqcomm.h */
#define CODE_CANCEL 80877102u
#define CODE_SSL 80877103u
#define CODE_GSS 80877104u

struct login {
    bool replication;
    unsigned minor;
    unsigned nunknown; /* _pq_ options */
};

/* key NUL value NUL … NUL */
static enum status parse_startup(struct walsender_conn *c, const uint8_t *data, size_t len,
                                 struct login *ret, struct error *err)
{
    const char *at = (const char *)data, *end = at + len;
    if (len == 0 || data[len - 1] != '\0')
        return error_set(err, ERR_DATA, "the startup packet does not end with a NUL byte");
    while (at < end && *at != '\0') {
        const char *key = at, *value = key + strlen(key) + 1;
        if (value >= end)
            return error_set(err, ERR_DATA, "the startup packet has an option without a value");
        if (strcmp(key, "replication") == 0)
            ret->replication = strcasecmp(value, "true") == 0 || strcmp(value, "1") == 0 ||
                               strcasecmp(value, "on") == 0 || strcasecmp(value, "yes") == 0;
        else if (strcmp(key, "application_name") == 0)
            snprintf(c->application, sizeof c->application, "%s", value);
        else if (strncmp(key, "_pq_.", 5) == 0)
            ret->nunknown++;
        at = value + strlen(value) + 1;
    }
    return OK;
}

/* Reads startup packets until one asks for a session; encryption is declined. *ret_body is it,
 * without length and code. */
static enum status read_startup(struct walsender_conn *c, uint64_t deadline, uint32_t *ret_code,
                                struct buf *body, struct error *err)
{
    for (unsigned tries = 0; tries < 4; tries++) {
        uint8_t head[8];
        uint32_t len, code;
        TRY(wire_read(&c->out, head, sizeof head, deadline, err));
        memcpy(&len, head, sizeof len);
        memcpy(&code, head + 4, sizeof code);
        len = be32toh(len);
        code = be32toh(code);
        if (len < 8 || len > STARTUP_MAX)
            return error_set(err, ERR_DATA, "a startup packet of %u bytes", len);
        buf_reset(body);
        TRY(wire_read(&c->out, buf_reserve(body, len - 8), len - 8, deadline, err));
        body->len = len - 8;
        if (code != CODE_SSL && code != CODE_GSS) {
            *ret_code = code;
            return OK;
        }
        TRY(stream_write(&c->out, "N", 1, deadline, err));
    }
    return error_set(err, ERR_DATA, "more requests for encryption than there are kinds");
}

static void put_greeting(struct walsender_conn *c, const struct login *login, struct buf *b)
{
    char version[16];
    snprintf(version, sizeof version, "%u.0", c->ws->options.major);
    if (login->minor > 0 || login->nunknown > 0) {
        /* NegotiateProtocolVersion: 3.0, none of the options */
        size_t at = pgwire_begin(b, 'v');
        wire_put_be32(b, 0);
        wire_put_be32(b, 0);
        pgwire_end(b, at);
    }
    wire_auth_ok(b);
    wire_parameter(b, "server_version", version);
    wire_parameter(b, "server_encoding", "UTF8");
    wire_parameter(b, "client_encoding", "UTF8");
    wire_parameter(b, "DateStyle", "ISO, MDY");
    wire_parameter(b, "IntervalStyle", "postgres");
    wire_parameter(b, "TimeZone", "UTC");
    wire_parameter(b, "integer_datetimes", "on");
    wire_parameter(b, "standard_conforming_strings", "on");
    wire_parameter(b, "in_hot_standby", "off");
    wire_ready(b);
}

enum status walsender_log_in(struct walsender_conn *c, struct error *err)
{
    CLEANUP_BUF struct buf body = {0};
    CLEANUP_BUF struct buf out = {0};
    struct login login = {0};
    uint32_t code = 0;
    uint64_t deadline = clock_now_ns() + (uint64_t)STARTUP_MS * 1000000u;
    TRY(read_startup(c, deadline, &code, &body, err));
    if (code == CODE_CANCEL)
        return error_set(err, ERR_CANCELLED, "nothing to cancel");
    if (code >> 16 != 3) {
        error_set(err, ERR_DATA, "protocol %u.%u is not supported", code >> 16, code & 0xffff);
        return walsender_refuse(c, "0A000", err);
    }
    login.minor = code & 0xffff;
    enum status st = parse_startup(c, body.data, body.len, &login, err);
    if (st != OK) {
        walsender_refuse(c, "08P01", err);
        return st;
    }
    if (!login.replication) {
        error_set(err, ERR_DATA, "only physical replication connections are served here");
        return walsender_refuse(c, "0A000", err);
    }
    put_greeting(c, &login, &out);
    return walsender_flush(c, &out, err);
}
