#include "source/base_backup.h"

#include "base/cursor.h"
#include "source/conn.h"
#include "source/pg_error.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TABLESPACES 4096

struct backup {
    PGconn *conn;
    int wake_fd;
    const struct source_backup_callbacks *cb;
    uint64_t total_bytes;
    bool in_archive;
};

static enum status check_label(const char *label, struct error *err)
{
    size_t n = strlen(label);
    if (n == 0 || n > 200 ||
        strspn(label, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != n)
        return error_set(err, ERR_BUG, "backup label \"%s\"", label);
    return OK;
}

/* The next result, which must have the status wanted. */
static enum status next_result(struct backup *b, ExecStatusType want, PGresult **ret,
                               struct error *err)
{
    PGresult *result = NULL;
    TRY(source_conn_result(b->conn, b->wake_fd, &result, err));
    if (result != NULL && PQresultStatus(result) == want) {
        *ret = result;
        return OK;
    }
    enum status st = source_error_result(err, b->conn, result, "BASE_BACKUP");
    PQclear(result);
    return st;
}

static bool parse_oid(const char *text, Oid *ret)
{
    char *end;
    if (text[0] < '0' || text[0] > '9')
        return false;
    unsigned long v = strtoul(text, &end, 10);
    if (v > UINT32_MAX)
        return false;
    *ret = (Oid)v;
    return *end == '\0' || strcmp(end, ".tar") == 0;
}

/* One row: position text, timeline. */
static enum status read_position(struct backup *b, XLogRecPtr *ret_lsn, uint32_t *ret_timeline,
                                 struct error *err)
{
    PGresult *result = NULL;
    Oid timeline = 0; /* the same unsigned 32-bit text form */
    TRY(next_result(b, PGRES_TUPLES_OK, &result, err));
    bool ok = PQntuples(result) == 1 && PQnfields(result) >= 2 &&
              lsn_parse(PQgetvalue(result, 0, 0), ret_lsn) &&
              parse_oid(PQgetvalue(result, 0, 1), &timeline);
    PQclear(result);
    *ret_timeline = timeline;
    return ok ? OK : error_set(err, ERR_DATA, "BASE_BACKUP: a position has another form");
}

static enum status fill_tablespaces(struct backup *b, const PGresult *result,
                                    struct source_tablespace *spaces, int n, struct error *err)
{
    for (int i = 0; i < n; i++) {
        const char *size = PQgetvalue(result, i, 2);
        bool base = PQgetisnull(result, i, 0);
        if (!base && !parse_oid(PQgetvalue(result, i, 0), &spaces[i].oid))
            return error_set(err, ERR_DATA, "BASE_BACKUP: tablespace oid \"%.40s\"",
                             PQgetvalue(result, i, 0));
        spaces[i].path = base ? "" : PQgetvalue(result, i, 1);
        spaces[i].bytes = PQgetisnull(result, i, 2) ? 0 : strtoull(size, NULL, 10) << 10;
        b->total_bytes += spaces[i].bytes;
    }
    return OK;
}

static enum status read_header(struct backup *b, struct error *err)
{
    XLogRecPtr start_lsn = 0;
    uint32_t timeline = 0;
    PGresult *result = NULL;
    TRY(read_position(b, &start_lsn, &timeline, err));
    TRY(next_result(b, PGRES_TUPLES_OK, &result, err));
    int n = PQntuples(result);
    if (PQnfields(result) < 3 || n < 1 || n > MAX_TABLESPACES) {
        PQclear(result);
        return error_set(err, ERR_DATA, "BASE_BACKUP: the list of tablespaces has another form");
    }
    CLEANUP_FREE struct source_tablespace *spaces = xcalloc((size_t)n, sizeof *spaces);
    enum status st = fill_tablespaces(b, result, spaces, n, err);
    if (st == OK && b->cb->begin != NULL)
        st = b->cb->begin(b->cb->ctx, start_lsn, timeline, spaces, (size_t)n, err);
    PQclear(result);
    return st;
}

/* 'n': archive name, tablespace path, both NUL-terminated. */
static enum status begin_archive(struct backup *b, struct cursor *c, struct error *err)
{
    const char *name = (const char *)c->data + c->pos;
    size_t left = cursor_left(c);
    size_t n = strnlen(name, left);
    Oid oid = 0;
    if (n == left)
        return error_set(err, ERR_DATA, "BASE_BACKUP: archive name without an end");
    if (strcmp(name, "base.tar") != 0 && (!parse_oid(name, &oid) || oid == 0))
        return error_set(err, ERR_DATA, "BASE_BACKUP: archive \"%.60s\" has an unknown name", name);
    b->in_archive = true;
    return b->cb->archive == NULL ? OK : b->cb->archive(b->cb->ctx, name, oid, err);
}

static enum status one_message(struct backup *b, const uint8_t *bytes, size_t len,
                               struct error *err)
{
    struct cursor c = cursor_of(bytes, len);
    uint8_t kind = cursor_u8(&c);
    if (kind == 'n')
        return begin_archive(b, &c, err);
    if (kind == 'd')
        return b->in_archive ? OK
                             : error_set(err, ERR_DATA, "BASE_BACKUP: data outside of an archive");
    if (kind == 'p') {
        uint64_t done = be64toh(cursor_u64(&c));
        if (!cursor_ok(&c))
            return error_set(err, ERR_DATA, "BASE_BACKUP: progress message of %zu bytes", len);
        return b->cb->progress == NULL ? OK
                                       : b->cb->progress(b->cb->ctx, done, b->total_bytes, err);
    }
    if (kind == 'm') { /* a manifest follows; none was asked for */
        b->in_archive = false;
        return OK;
    }
    return error_set(err, ERR_DATA, "BASE_BACKUP: message of unknown kind 0x%02x", kind);
}

void source_backup_memory_free(void *memory)
{
    PQfreemem(memory);
}

/* Data goes on in libpq's own memory: it is most of the backup. */
static enum status take_message(struct backup *b, char *message, size_t len, struct error *err)
{
    const uint8_t *bytes = (const uint8_t *)message;
    enum status st = one_message(b, bytes, len, err);
    if (st == OK && bytes[0] == 'd' && b->cb->data != NULL)
        return b->cb->data(b->cb->ctx, message, bytes + 1, len - 1, err);
    PQfreemem(message);
    return st;
}

static enum status copy_stream(struct backup *b, struct error *err)
{
    for (bool looked = false;;) { /* whether there is more: waiting comes after that */
        char *bytes = NULL;
        int n = PQgetCopyData(b->conn, &bytes, 1);
        if (n == -1)
            return OK;
        if (n == -2)
            return source_error_conn(err, b->conn, "BASE_BACKUP broke");
        if (n > 0) {
            TRY(take_message(b, bytes, (size_t)n, err));
            looked = false;
            continue;
        }
        if (looked && source_conn_poll(b->conn, false, b->wake_fd, UINT64_MAX) & SOURCE_READY_WAKE)
            return error_set(err, ERR_CANCELLED, "stopping");
        looked = true;
        if (!PQconsumeInput(b->conn))
            return source_error_conn(err, b->conn, "the connection broke during BASE_BACKUP");
    }
}

/* After the copy: end position, then the command's completion, then nothing. An error of the server
 * (a checksum failure, for one) comes here too. */
static enum status read_trailer(struct backup *b, struct error *err)
{
    XLogRecPtr end_lsn = 0;
    uint32_t timeline = 0;
    PGresult *result = NULL;
    TRY(read_position(b, &end_lsn, &timeline, err));
    TRY(next_result(b, PGRES_COMMAND_OK, &result, err));
    PQclear(result);
    TRY(source_conn_result(b->conn, b->wake_fd, &result, err));
    if (result != NULL) {
        PQclear(result);
        return error_set(err, ERR_DATA, "BASE_BACKUP: more results than expected");
    }
    return b->cb->end == NULL ? OK : b->cb->end(b->cb->ctx, end_lsn, err);
}

enum status source_base_backup_run(struct source_repl *r, const char *label,
                                   const struct source_backup_callbacks *callbacks,
                                   struct error *err)
{
    struct backup b = {
        .conn = source_repl_conn(r), .wake_fd = source_repl_wake_fd(r), .cb = callbacks};
    PGresult *result = NULL;
    TRY(check_label(label, err));
    CLEANUP_FREE char *sql =
        xasprintf("BASE_BACKUP (LABEL '%s', PROGRESS true, CHECKPOINT 'fast', WAIT false, "
                  "MANIFEST 'no', TABLESPACE_MAP false)",
                  label);
    if (!PQsendQuery(b.conn, sql))
        return source_error_conn(err, b.conn, "cannot send BASE_BACKUP");
    TRY(read_header(&b, err));
    TRY(next_result(&b, PGRES_COPY_OUT, &result, err));
    PQclear(result);
    TRY(copy_stream(&b, err));
    return read_trailer(&b, err);
}
