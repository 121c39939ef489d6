#include "engine/session.h"

#include "base/log.h"
#include "engine/guard.h"
#include "engine/query.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    CODE_UNEXPECTED_PACKET = 101,
    CODE_AUTHENTICATION_FAILED = 516,
};

static bool equals_constant_time(struct str given, const char *wanted)
{
    size_t n = strlen(wanted);
    unsigned diff = given.len != n;
    for (size_t i = 0; i < given.len; i++)
        diff |= (uint8_t)given.data[i] ^ (uint8_t)(n > 0 ? wanted[i % n] : 1);
    return diff == 0;
}

bool engine_auth_check(const struct engine_shared *shared, struct str user, struct str password)
{
    if (shared->user == NULL)
        return (user.len == 0 || str_is(user, "default")) && password.len == 0;
    bool user_ok = equals_constant_time(user, shared->user);
    bool password_ok = equals_constant_time(password, shared->password);
    return user_ok && password_ok;
}

void engine_session_exception(struct engine_session *s, const struct chdb_session *db,
                              const struct error *err)
{
    const char *text = err->message;
    if (db != NULL && err->ch_code != 0 &&
        strncmp(chdb_session_error(db), text, sizeof err->message - 1) == 0)
        text = chdb_session_error(db);
    const char *prefix = strncmp(text, "DB::Exception", 13) == 0 ? "" : "DB::Exception: ";
    CLEANUP_FREE char *message = xasprintf("%s%s", prefix, text);
    packet_put_exception(&s->peer.out, err->ch_code != 0 ? err->ch_code : CODE_UNEXPECTED_PACKET,
                         str_of("DB::Exception"), str_of(message), str_of(""));
}

enum status engine_session_packet(struct engine_session *s, unsigned timeout_s,
                                  struct packet_client *ret, size_t *ret_bytes, struct error *err)
{
    for (;;) {
        struct cursor in = engine_peer_cursor(&s->peer);
        enum parse_result p = cursor_left(&in) == 0
                                  ? PARSE_MORE
                                  : packet_client_parse(&in, s->revision, ENGINE_SQL_MAX, ret, err);
        if (p == PARSE_BAD)
            return ERR_DATA;
        if (p == PARSE_DONE) {
            *ret_bytes = in.pos;
            return OK;
        }
        TRY(engine_peer_fill(&s->peer, timeout_s, err));
    }
}

static enum status hello_answer(struct engine_session *s, const struct packet_client_hello *hello,
                                struct error *err)
{
    const struct chdb *chdb = s->shared->chdb;
    unsigned major = 0, minor = 0, patch = 0;
    if (hello->revision < PACKET_REVISION_MIN)
        return error_set(err, ERR_DATA, "clients older than revision %u are not served",
                         PACKET_REVISION_MIN);
    s->revision = MIN(hello->revision, PACKET_REVISION);
    if (!engine_auth_check(s->shared, hello->user, hello->password)) {
        error_set(err, ERR_DATA,
                  "%.*s: Authentication failed: password is incorrect, or there is no "
                  "user with such name. (AUTHENTICATION_FAILED)",
                  (int)MIN(hello->user.len, 100), hello->user.data);
        err->ch_code = CODE_AUTHENTICATION_FAILED;
        return ERR_DATA;
    }
    buf_put(&s->database, hello->database.data, hello->database.len);
    if (!s->read_only) {
        static const char *const settings[] = {"input_format_native_allow_types_conversion=0",
                                               "output_format_native_write_json_as_string=1", NULL};
        TRY(chdb_session_open(s->shared->chdb, settings, &s->db, err));
        TRY(engine_database_use(s->db, hello->database, err));
    }
    sscanf(chdb_engine_version(chdb), "%u.%u.%u", &major, &minor, &patch);
    struct packet_server_hello answer = {
        .name = str_of("ClickHouse"),
        .major = major,
        .minor = minor,
        .patch = patch,
        .revision = PACKET_REVISION,
        .timezone = str_of(chdb_timezone(chdb)),
        .display_name = str_of(chdb_host(chdb)),
    };
    packet_put_server_hello(&s->peer.out, s->revision, &answer);
    return engine_peer_flush(&s->peer, err);
}

static enum status addendum_read(struct engine_session *s, struct error *err)
{
    if (s->revision < REVISION_ADDENDUM)
        return OK;
    for (;;) {
        struct cursor in = engine_peer_cursor(&s->peer);
        struct str quota_key;
        enum parse_result p = packet_addendum_parse(&in, s->revision, &quota_key, err);
        if (p == PARSE_BAD)
            return ERR_DATA;
        if (p == PARSE_DONE) {
            engine_peer_consume(&s->peer, in.pos);
            return OK;
        }
        TRY(engine_peer_fill(&s->peer, ENGINE_TRANSFER_TIMEOUT_S, err));
    }
}

static enum status hello_read(struct engine_session *s, struct error *err)
{
    struct packet_client p;
    size_t bytes;
    TRY(engine_session_packet(s, ENGINE_HELLO_TIMEOUT_S, &p, &bytes, err));
    enum status status = p.type == CLIENT_HELLO
                             ? hello_answer(s, &p.hello, err)
                             : error_set(err, ERR_DATA, "the first packet is not a hello");
    packet_client_fini(&p);
    engine_peer_consume(&s->peer, bytes);
    TRY(status);
    return addendum_read(s, err);
}

/* One packet between queries. */
static enum status idle_packet(struct engine_session *s, struct error *err)
{
    struct packet_client p;
    size_t bytes;
    TRY(engine_session_packet(s, ENGINE_IDLE_TIMEOUT_S, &p, &bytes, err));
    enum status status = OK;
    switch (p.type) {
    case CLIENT_QUERY:
        status = engine_query_run(s, &p.query, bytes, err);
        break;
    case CLIENT_PING:
        engine_peer_consume(&s->peer, bytes);
        packet_put_pong(&s->peer.out);
        break;
    case CLIENT_CANCEL: /* of a query that has ended */
        engine_peer_consume(&s->peer, bytes);
        break;
    case CLIENT_TABLES_STATUS:
        packet_put_tables_status(&s->peer.out, p.tables.items, p.tables.n);
        engine_peer_consume(&s->peer, bytes);
        break;
    case CLIENT_DATA:
        engine_peer_consume(&s->peer, bytes);
        status = engine_session_block_skip(s, err); /* rest of an INSERT that was refused */
        break;
    case CLIENT_HELLO:
    case CLIENT_SCALAR:
        status = error_set(err, ERR_DATA, "packet %d makes no sense between queries", (int)p.type);
        break;
    }
    packet_client_fini(&p);
    TRY(status);
    return engine_peer_flush(&s->peer, err);
}

void engine_session_run(struct engine_session *s)
{
    struct error err = {0};
    enum status status = hello_read(s, &err);
    while (status == OK && !atomic_load(&s->shared->stopping))
        status = idle_packet(s, &err);
    if (status == ERR_DATA) {
        /* bad bytes, a refused login: say why, then hang up */
        struct error ignored;
        log_info("msg=\"client refused\" client=%s error=%s", LOG_Q(s->peer.stream.name),
                 LOG_Q(err.message));
        engine_session_exception(s, s->db, &err);
        if (engine_peer_flush(&s->peer, &ignored) != OK)
            log_debug("msg=\"client gone\" error=%s", LOG_Q(ignored.message));
    }
}

void engine_session_fini(struct engine_session *s)
{
    engine_sample_cache_fini(&s->samples);
    engine_settings_fini(&s->settings);
    chdb_session_close(s->db);
    block_reader_fini(&s->reader);
    buf_free(&s->plain);
    buf_free(&s->database);
    engine_peer_fini(&s->peer);
}
