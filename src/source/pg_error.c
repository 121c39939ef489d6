#include "source/pg_error.h"

#include <string.h>

/* SQLSTATEs whose kind and remedy differ from their class's. Source: PostgreSQL errcodes.txt. */
static const struct {
    const char *sqlstate;
    enum status kind;
    const char *remedy;
} known[] = {
    {"55006", ERR_RETRY, "another process uses the slot; it is retried"},
    {"58P01", ERR_CONFIG,
     "the source has removed WAL that is still needed (does max_slot_wal_keep_size limit the "
     "slot?): the copy cannot go on from here; run `walshadow remove` and load again"},
    {"42704", ERR_CONFIG,
     "correct source.slot; if it was dropped, the WAL since may be removed: run `walshadow remove` "
     "and load again"},
    {"42710", ERR_CONFIG, "choose another name, or drop it if nothing else uses it"},
    {"28P01", ERR_CONFIG, "check user and password of source.conninfo"},
    {"28000", ERR_CONFIG,
     "check source.conninfo, pg_hba.conf of the source (a `replication` line is needed) and that "
     "the "
     "role has LOGIN and REPLICATION"},
    {"42501", ERR_CONFIG, "grant the role REPLICATION and the privileges named in the README"},
    {"3D000", ERR_CONFIG, "check dbname of source.conninfo"},
    {"53400", ERR_CONFIG, "raise max_replication_slots or max_wal_senders of the source"},
    {"55000", ERR_CONFIG,
     "check the slot with pg_replication_slots (wal_status lost: it has to be "
     "dropped and the load done again) and wal_level of the source"},
    {"57014", ERR_CANCELLED, NULL},
    {"40001", ERR_RETRY, NULL},
    {"40P01", ERR_RETRY, NULL},
    {"25006", ERR_CONFIG, "the server is read-only: is it a standby?"},
};

enum status source_sqlstate_kind(const char *sqlstate)
{
    if (sqlstate == NULL || sqlstate[0] == '\0')
        return ERR_RETRY;
    for (size_t i = 0; i < LENGTH(known); i++)
        if (strcmp(known[i].sqlstate, sqlstate) == 0)
            return known[i].kind;
    if (strncmp(sqlstate, "08", 2) == 0 || /* connection exception */
        strncmp(sqlstate, "53", 2) == 0 || /* insufficient resources */
        strncmp(sqlstate, "57", 2) == 0 || /* operator intervention: shutdown, cannot connect now */
        strncmp(sqlstate, "58", 2) == 0)   /* system error */
        return ERR_RETRY;
    if (strncmp(sqlstate, "28", 2) == 0)
        return ERR_CONFIG;
    return ERR_DATA;
}

static const char *remedy_of(const char *sqlstate)
{
    for (size_t i = 0; i < LENGTH(known); i++)
        if (strcmp(known[i].sqlstate, sqlstate) == 0)
            return known[i].remedy;
    return NULL;
}

/* One line out of libpq's several: newlines become blanks, "LOCATION:" lines and the SQLSTATE that
 * verbose messages carry are dropped; the last severity-coded SQLSTATE is given back. */
static void flatten(const char *text, char *out, size_t cap, char sqlstate[6])
{
    size_t n = 0;
    while (*text != '\0' && n + 1 < cap) {
        const char *end = strchrnul(text, '\n');
        const char *code = strstr(text, ":  ");
        if (strncmp(text, "LOCATION:", 9) == 0) {
            text = *end == '\0' ? end : end + 1;
            continue;
        }
        /* "…FATAL:  28P01: password authentication failed" */
        if (code != NULL && code + 9 < end &&
            strspn(code + 3, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5 && code[8] == ':') {
            memcpy(sqlstate, code + 3, 5);
            sqlstate[5] = '\0';
            for (const char *p = text; p < code + 2 && n + 1 < cap; p++)
                out[n++] = *p;
            text = code + 9;
        }
        for (; text < end && n + 1 < cap; text++)
            out[n++] = *text == '\t' ? ' ' : *text;
        if (*text == '\n') {
            text++;
            if (*text != '\0' && n + 1 < cap)
                out[n++] = ' ';
        }
    }
    while (n > 0 && (out[n - 1] == ' ' || out[n - 1] == '\n'))
        n--;
    out[n] = '\0';
}

static enum status fill(struct error *err, const char *what, const char *text, const char *detail,
                        const char *sqlstate)
{
    const char *remedy = remedy_of(sqlstate);
    enum status kind = source_sqlstate_kind(sqlstate);
    error_set(err, kind, "%s: %s%s%s%s%s%s", what, text, detail[0] != '\0' ? " (" : "", detail,
              detail[0] != '\0' ? ")" : "", remedy != NULL ? "; " : "",
              remedy != NULL ? remedy : "");
    if (err != NULL)
        memcpy(err->sqlstate, sqlstate, strlen(sqlstate) + 1);
    return kind;
}

enum status source_error_conn(struct error *err, const PGconn *conn, const char *what)
{
    char text[400], sqlstate[6] = "";
    flatten(PQerrorMessage(conn), text, sizeof text, sqlstate);
    return fill(err, what, text[0] != '\0' ? text : "the connection was lost", "", sqlstate);
}

enum status source_error_result(struct error *err, const PGconn *conn, const PGresult *result,
                                const char *what)
{
    const char *state = result == NULL ? NULL : PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *primary =
        result == NULL ? NULL : PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const char *detail = result == NULL ? NULL : PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
    char text[300], more[160], sqlstate[6] = "", ignored[6];
    if (result == NULL)
        return source_error_conn(err, conn, what);
    if (primary == NULL) {
        if (PQresultStatus(result) == PGRES_FATAL_ERROR || PQstatus(conn) != CONNECTION_OK)
            return source_error_conn(err, conn, what);
        return error_set(err, ERR_DATA, "%s: unexpected answer (%s)", what,
                         PQresStatus(PQresultStatus(result)));
    }
    flatten(primary, text, sizeof text, ignored);
    flatten(detail != NULL ? detail : "", more, sizeof more, ignored);
    if (state != NULL && strlen(state) == 5)
        memcpy(sqlstate, state, 6);
    /* the walsender tells a broken slot by its text only */
    if (strcmp(sqlstate, "XX000") == 0 && strstr(text, "slot") != NULL)
        memcpy(sqlstate, "55000", 6);
    return fill(err, what, text, more, sqlstate);
}
