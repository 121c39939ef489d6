#include "engine/query.h"

#include "engine/guard.h"

#include <stdlib.h>

enum { /* ClickHouse's exception codes */
       CODE_NOT_IMPLEMENTED = 48,
       CODE_SYNTAX_ERROR = 62,
       CODE_READONLY = 164,
       CODE_ABORTED = 236,
       CODE_QUERY_WAS_CANCELLED = 394,
};

/* One statement under way. */
struct query {
    struct engine_session *s;
    struct buf sql;         /* the text that runs, NUL-terminated */
    struct sql_shape shape; /* of sql, for an INSERT */
    struct engine_result_options result;
    struct chdb_session *db; /* the session's, or one of its own: guarded */
    bool guarded;
    bool cancelled;
    enum status gone; /* the client left while the query ran */
};

static enum status query_fail(struct error *err, int code, const char *text)
{
    error_set(err, ERR_DATA, "%s", text);
    err->ch_code = code;
    return ERR_DATA;
}

/* Decides what runs, while the packet's strings are valid. */
static enum status query_prepare(struct query *q, const struct packet_query *p, struct error *err)
{
    struct engine_session *s = q->s;
    const struct packet_setting *readonly = engine_settings_find(&p->settings, "readonly");
    q->guarded = s->read_only || (readonly != NULL && !str_is(readonly->value, "0"));
    if (atomic_load(&s->shared->stopping))
        return query_fail(err, CODE_ABORTED, "The engine is stopping");
    if (p->stage != 2 && p->stage != 0)
        return query_fail(
            err, CODE_NOT_IMPLEMENTED,
            "Queries are served to their complete stage only: use one address in remote()");
    sql_shape_read(p->sql.data, p->sql.len, &q->shape);
    if (q->shape.kind == SQL_OTHER)
        sql_strip_put(p->sql.data, p->sql.len, &q->shape, &q->sql);
    else
        buf_put(&q->sql, p->sql.data, p->sql.len);
    buf_cstr(&q->sql);
    if (!q->guarded) {
        q->db = s->db;
        TRY(engine_settings_apply(&s->settings, s->db, &s->shared->settings, &p->settings, err));
        return engine_parameters_apply(s->db, &p->parameters, true, err);
    }
    if (q->shape.kind == SQL_INSERT || q->shape.outfile.len > 0)
        return query_fail(err, CODE_READONLY,
                          "This connection only reads: the statement would change "
                          "something");
    struct engine_reader_request request = {
        .database = {(char *)s->database.data, s->database.len},
        .sql = {(char *)q->sql.data, q->sql.len},
        .settings = &p->settings,
        .parameters = &p->parameters,
        .parameters_quoted = true,
        .streamed = true,
    };
    return engine_guard_open(s->shared->chdb, &request, &q->db, err);
}

static enum frame_method result_method(const struct packet_query *p)
{
    const struct packet_setting *m =
        engine_settings_find(&p->settings, "network_compression_method");
    if (m != NULL && (str_is(m->value, "ZSTD") || str_is(m->value, "zstd")))
        return FRAME_ZSTD;
    if (m != NULL && (str_is(m->value, "NONE") || str_is(m->value, "none")))
        return FRAME_NONE;
    return FRAME_LZ4;
}

void engine_session_block_release(struct engine_session *s)
{
    if (s->plain.len > 0) {
        buf_reset(&s->plain);
        if (s->plain.cap > ENGINE_KEEP_BYTES)
            buf_free(&s->plain);
    } else {
        engine_peer_consume(&s->peer, s->reader.pos);
    }
    block_reader_reset(&s->reader);
}

/* One more frame into s->plain. */
static enum status frame_read(struct engine_session *s, struct error *err)
{
    for (;;) {
        struct cursor in = engine_peer_cursor(&s->peer);
        size_t need = 0;
        enum parse_result p =
            frame_parse(&in, ENGINE_BLOCK_MAX - s->plain.len, &s->plain, &need, err);
        if (p == PARSE_BAD)
            return ERR_DATA;
        if (p == PARSE_DONE) {
            engine_peer_consume(&s->peer, in.pos);
            return OK;
        }
        TRY(engine_peer_fill(&s->peer, ENGINE_TRANSFER_TIMEOUT_S, err));
    }
}

enum status engine_session_block(struct engine_session *s, bool compressed,
                                 const uint8_t **ret_data, struct error *err)
{
    s->reader.revision = s->revision;
    s->reader.max_bytes = ENGINE_BLOCK_MAX;
    for (;;) {
        size_t len = 0;
        struct cursor in = engine_peer_cursor(&s->peer);
        if (compressed)
            in = cursor_of(s->plain.data, s->plain.len);
        enum parse_result p = PARSE_MORE;
        if (in.len > 0)
            p = block_reader_parse(&s->reader, in.data, in.len, &len, err);
        if (p == PARSE_DONE && compressed && len != s->plain.len) {
            error_set(err, ERR_DATA, "a compressed block is followed by other bytes");
            return ERR_DATA;
        }
        if (p == PARSE_DONE) {
            *ret_data = in.data;
            return OK;
        }
        if (p == PARSE_BAD)
            return ERR_DATA;
        if (compressed)
            TRY(frame_read(s, err));
        else
            TRY(engine_peer_fill(&s->peer, ENGINE_TRANSFER_TIMEOUT_S, err));
    }
}

enum status engine_session_block_skip(struct engine_session *s, struct error *err)
{
    const uint8_t *data;
    TRY(engine_session_block(s, s->compressed, &data, err));
    engine_session_block_release(s);
    return OK;
}

/* What follows a Query packet: scalars (of remote()), external tables, and the empty block. */
static enum status externals_read(struct engine_session *s, bool *ret_had_tables, struct error *err)
{
    for (;;) {
        struct packet_client p;
        const uint8_t *data;
        size_t bytes;
        TRY(engine_session_packet(s, ENGINE_TRANSFER_TIMEOUT_S, &p, &bytes, err));
        enum client_packet_type type = p.type;
        packet_client_fini(&p);
        if (type != CLIENT_DATA && type != CLIENT_SCALAR && type != CLIENT_CANCEL)
            return error_set(err, ERR_DATA, "packet %d makes no sense after a query", (int)type);
        engine_peer_consume(&s->peer, bytes);
        if (type == CLIENT_CANCEL)
            continue;
        TRY(engine_session_block(s, s->compressed, &data, err));
        bool end = type == CLIENT_DATA && block_reader_is_empty(&s->reader);
        *ret_had_tables |= type == CLIENT_DATA && !end;
        engine_session_block_release(s);
        if (end)
            return OK;
    }
}

/* Asked between chunks of a result: has the client cancelled, or gone? */
static bool query_stop(void *ctx)
{
    struct query *q = ctx;
    struct engine_peer *peer = &q->s->peer;
    struct error ignored;
    struct cursor in = engine_peer_cursor(peer);
    if (q->cancelled || q->gone != OK || atomic_load(&q->s->shared->stopping))
        return true;
    if (cursor_left(&in) == 0) {
        if (!stream_is_readable(&peer->stream))
            return false;
        q->gone = engine_peer_fill(peer, 1, &ignored);
        if (q->gone != OK)
            return true;
        in = engine_peer_cursor(peer);
    }
    if (cursor_left(&in) == 0 || in.data[in.pos] != CLIENT_CANCEL)
        return false;
    engine_peer_consume(peer, 1);
    q->cancelled = true;
    return true;
}

/* A statement without data of the client's. */
static enum status statement_run(struct query *q, struct error *err)
{
    struct engine_session *s = q->s;
    struct str sql = {(char *)q->sql.data, q->sql.len};
    enum chdb_class class = CHDB_CLASS_READ;
    unsigned statements = 1;
    if (!q->guarded)
        TRY(chdb_session_classify(q->db, sql.data, sql.len, &class, &statements, err));
    if (statements > 1)
        return query_fail(err, CODE_SYNTAX_ERROR,
                          "Syntax error: Multi-statements are not allowed. (SYNTAX_ERROR)");
    enum status status = engine_result_send(q->db, sql, class == CHDB_CLASS_READ, &q->result,
                                            &s->peer, query_stop, q, err);
    /* it may have changed a table or the current database: samples are asked for again */
    if (class != CHDB_CLASS_READ)
        atomic_fetch_add(&s->shared->generation, 1);
    if (q->gone != OK)
        return error_set(err, ERR_RETRY, "%s: gone while its query ran", s->peer.stream.name);
    if (status == OK && atomic_load(&s->shared->stopping) && class == CHDB_CLASS_READ)
        return query_fail(err, CODE_ABORTED, "The engine is stopping");
    return status;
}

/* The client's packets up to the empty block. After a failure of the statement, *ret_failed, they
 * are answered at once with the exception and read on without effect. */
static enum status insert_feed(struct query *q, struct engine_insert *insert, bool *ret_failed,
                               struct error *err)
{
    struct engine_session *s = q->s;
    for (;;) {
        struct packet_client p;
        const uint8_t *data;
        size_t bytes;
        TRY(engine_session_packet(s, ENGINE_TRANSFER_TIMEOUT_S, &p, &bytes, err));
        enum client_packet_type type = p.type;
        packet_client_fini(&p);
        if (type != CLIENT_DATA && type != CLIENT_CANCEL && type != CLIENT_PING)
            return error_set(err, ERR_DATA, "packet %d makes no sense within an INSERT", (int)type);
        engine_peer_consume(&s->peer, bytes);
        if (type == CLIENT_CANCEL) {
            q->cancelled = true;
            return OK;
        }
        if (type == CLIENT_PING) {
            packet_put_pong(&s->peer.out);
            TRY(engine_peer_flush(&s->peer, err));
            continue;
        }
        TRY(engine_session_block(s, s->compressed, &data, err));
        if (block_reader_is_empty(&s->reader)) {
            engine_session_block_release(s);
            return OK;
        }
        if (!*ret_failed && engine_insert_block(insert, &s->reader, data, err) != OK) {
            *ret_failed = true;
            engine_session_exception(s, q->db, err);
            TRY(engine_peer_flush(&s->peer, err));
        }
        engine_session_block_release(s);
    }
}

static enum status insert_end(struct query *q, struct engine_insert *insert, uint64_t number,
                              int fault_code, struct error *err)
{
    struct engine_fault *fault = q->s->shared->fault;
    if (q->cancelled)
        return query_fail(err, CODE_QUERY_WAS_CANCELLED, "Query was cancelled");
    if (fault_code != 0)
        return query_fail(err, fault_code, "failed on demand (--fault)");
    engine_fault_before_commit(fault, number);
    TRY(engine_insert_finish(insert, err));
    if (engine_fault_before_eos(fault, number)) /* its rows are stored, the client does not know */
        return error_set(err, ERR_RETRY, "cut by a fault on demand");
    return OK;
}

/* INSERT with data: OK with *ret_answered when the exception has been sent. */
static enum status insert_run(struct query *q, bool *ret_answered, struct error *err)
{
    struct engine_session *s = q->s;
    const struct engine_sample *sample;
    struct engine_insert insert = {0};
    const char *sql = (char *)q->sql.data;
    TRY(engine_sample_get(&s->samples, atomic_load(&s->shared->generation), q->db, sql, &q->shape,
                          &sample, err));
    int fault_code;
    uint64_t number = engine_fault_insert(s->shared->fault, &fault_code);
    enum status status = engine_insert_open(&insert, q->db, sql, &q->shape, sample, err);
    if (status == OK) {
        engine_result_put_header(&s->peer.out, &q->result, sample->names, sample->types, sample->n);
        status = engine_peer_flush(&s->peer, err);
    }
    bool failed = false;
    if (status == OK) {
        status = insert_feed(q, &insert, &failed, err);
        if (status == OK && !failed)
            status = insert_end(q, &insert, number, fault_code, err);
        else if (status == ERR_DATA)
            q->gone = ERR_DATA; /* the protocol is broken: no answer can follow in order */
    }
    engine_insert_fini(&insert);
    *ret_answered = failed;
    return status;
}

static enum status query_execute(struct query *q, bool had_tables, struct error *err)
{
    struct engine_session *s = q->s;
    bool answered = false;
    if (had_tables)
        return query_fail(err, CODE_NOT_IMPLEMENTED, "External tables are not supported");
    atomic_store(&s->state,
                 q->shape.kind == SQL_INSERT ? ENGINE_SESSION_INSERT : ENGINE_SESSION_BUSY);
    enum status status =
        q->shape.kind == SQL_INSERT ? insert_run(q, &answered, err) : statement_run(q, err);
    if (status == OK && !answered)
        packet_put_end_of_stream(&s->peer.out);
    return status;
}

enum status engine_query_run(struct engine_session *s, const struct packet_query *p, size_t bytes,
                             struct error *err)
{
    struct query q = {.s = s};
    struct error failure = {0};
    bool had_tables = false;
    s->compressed = p->compression;
    q.result = (struct engine_result_options){s->revision, p->compression, result_method(p)};
    enum status prepared = query_prepare(&q, p, &failure);
    engine_peer_consume(&s->peer, bytes);
    enum status status = externals_read(s, &had_tables, err);
    if (status == OK && prepared == OK)
        prepared = query_execute(&q, had_tables, &failure);
    atomic_store(&s->state, ENGINE_SESSION_IDLE);
    if (status == OK && prepared != OK) {
        if (q.gone != OK || failure.kind == ERR_RETRY || failure.kind == ERR_CANCELLED) {
            *err = failure; /* the client is gone, or broke the protocol */
            status = failure.kind;
        } else {
            engine_session_exception(s, q.db, &failure);
        }
    }
    if (q.guarded)
        chdb_session_close(q.db);
    buf_free(&q.sql);
    return status;
}
