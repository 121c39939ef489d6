/* A SQL session on the source. One thread at a time; source_sql_interrupt from any other.
 *
 * The session is pinned against what ALTER ROLE / ALTER DATABASE may have set (notes C4):
 * search_path
 * '', DateStyle ISO, IntervalStyle postgres, TimeZone UTC, extra_float_digits 1, bytea_output hex,
 * no statement, lock or idle timeouts, read only by default, client encoding = server encoding. */
#pragma once
#include "base/error.h"
#include "pg/pg.h"

#include <libpq-fe.h>

struct source_sql;
struct sql_result;

enum status source_sql_open(const char *conninfo, const char *application_name,
                            struct source_sql **ret, struct error *err) CHECKED;
void source_sql_close(struct source_sql *s); /* NULL is fine */
/* From another thread: cancels the running statement; it and all later ones return ERR_CANCELLED.
 */
void source_sql_interrupt(struct source_sql *s);
/* True once the connection is lost: reconnecting is the caller's. */
bool source_sql_broken(const struct source_sql *s);
unsigned source_sql_major(const struct source_sql *s);
const char *source_sql_database(const struct source_sql *s);
/* For catalog_query_* and preflight, by the thread that owns s. */
PGconn *source_sql_conn(struct source_sql *s);
/* Readable from source_sql_interrupt on. */
int source_sql_wake_fd(const struct source_sql *s);

/* One statement with text parameters ($1 …; NULL pointer = NULL). ret may be NULL. */
enum status source_sql_exec(struct source_sql *s, const char *sql, int nparams,
                            const char *const *params, struct sql_result **ret,
                            struct error *err) CHECKED;
void sql_result_free(struct sql_result *r); /* NULL is fine */
unsigned sql_result_rows(const struct sql_result *r);
unsigned sql_result_columns(const struct sql_result *r);
/* Text of a field, valid as long as the result; NULL for SQL NULL. */
const char *sql_result_get(const struct sql_result *r, unsigned row, unsigned column);
size_t sql_result_len(const struct sql_result *r, unsigned row, unsigned column);
/* Parsed fields; SQL NULL or other text is ERR_DATA. */
enum status sql_result_u64(const struct sql_result *r, unsigned row, unsigned column, uint64_t *ret,
                           struct error *err) CHECKED;
enum status sql_result_lsn(const struct sql_result *r, unsigned row, unsigned column,
                           XLogRecPtr *ret, struct error *err) CHECKED;
bool sql_result_bool(const struct sql_result *r, unsigned row, unsigned column); /* NULL = false */

/* pg_current_wal_flush_lsn / pg_current_wal_insert_lsn */
enum status source_sql_flush_lsn(struct source_sql *s, XLogRecPtr *ret, struct error *err) CHECKED;
enum status source_sql_insert_lsn(struct source_sql *s, XLogRecPtr *ret, struct error *err) CHECKED;

struct source_slot_info {
    bool exists;
    bool physical;
    bool temporary;
    int active_pid;          /* 0: not in use */
    XLogRecPtr restart_lsn;  /* 0: reserves nothing */
    char wal_status[16];     /* reserved, extended, unreserved, lost; "" if restart_lsn is 0 */
    char invalidation[32];   /* 17+: pg_replication_slots.invalidation_reason, else "" */
    uint64_t retained_bytes; /* flush position - restart_lsn */
    char holder[64];         /* application_name of who uses it, "" = not known (pg_monitor) */
    int64_t holder_reply_us; /* time of its last reply, 0 = not known */
};
enum status source_sql_slot_info(struct source_sql *s, const char *name,
                                 struct source_slot_info *ret, struct error *err) CHECKED;

/* sync_priority of the walsender with that pid (A2). *ret_priority is -1 if its row is gone or this
 * role may not see it (pg_monitor). */
enum status source_sql_sync_priority(struct source_sql *s, int walsender_pid, int *ret_priority,
                                     struct error *err) CHECKED;

enum source_xact_status {
    SOURCE_XACT_UNKNOWN, /* too old: the server no longer knows */
    SOURCE_XACT_COMMITTED,
    SOURCE_XACT_ABORTED,
    SOURCE_XACT_IN_PROGRESS,
};
/* The fate of n xids (each within 2^31 of the current one), one round trip. */
enum status source_sql_xact_status(struct source_sql *s, const TransactionId *xids, size_t n,
                                   enum source_xact_status *ret, struct error *err) CHECKED;

/* C1: how many AccessExclusiveLocks are held on system catalogs (oid < 16384) of our database or
 * shared ones. ret_text (may be NULL) names the first: "pid 123 holds pg_class", malloc'd, NULL if
 * none. */
enum status source_sql_catalog_locks(struct source_sql *s, unsigned *ret_n, char **ret_text,
                                     struct error *err) CHECKED;

/* A role the shadow's session can log in as (C4): the bootstrap superuser if it may log in, else
 * another superuser, else the session's own role. */
struct source_login {
    char name[64]; /* NAMEDATALEN */
    bool superuser;
};
enum status source_sql_login_role(struct source_sql *s, struct source_login *ret,
                                  struct error *err) CHECKED;
