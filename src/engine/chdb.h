/* libchdb, the ClickHouse engine as a C library, loaded at run time (chdb-core,
 * programs/local/chdb.h, 26.7). One engine per process; a session is one connection to it and runs
 * one statement at a time. Calls on one session must come from one thread at a time; different
 * sessions run in parallel. */
#pragma once
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chdb;         /* the loaded library and the connection that keeps the engine up */
struct chdb_session; /* one connection: its own current database and settings */
struct chdb_reader;  /* a running query whose result comes in chunks */
struct chdb_writer;  /* a running INSERT that is fed with Native blocks */

struct chdb_options {
    const char *library; /* libchdb.so, or NULL: environment, library path, .deps of the checkout */
    const char *path;    /* data directory, created if missing; one engine per directory */
    uint64_t memory_max; /* bytes for the whole engine, 0 = 512 MiB */
    unsigned lock_wait_s; /* how long to wait for another engine to leave the directory */
};

/* Loads the library, locks the directory and starts the engine. ERR_CONFIG: library missing or too
 * old, directory unusable or taken. After success the process must leave with _exit: exit() while
 * merges run crashes. */
enum status chdb_start(const struct chdb_options *options, struct chdb **ret_chdb,
                       struct error *err) CHECKED;
/* Closes the connection that keeps the engine up. Every session must be closed before. */
void chdb_stop(struct chdb *chdb);

const char *chdb_engine_version(const struct chdb *chdb); /* "26.7.2.1" */
const char *chdb_timezone(const struct chdb *chdb);
const char *chdb_host(const struct chdb *chdb);
uint64_t chdb_memory_max(const struct chdb *chdb);

/* settings: pairs "name=value", NULL-terminated list, in force for this session; an unknown name or
 * a bad value fails. */
enum status chdb_session_open(struct chdb *chdb, const char *const *settings,
                              struct chdb_session **ret_session, struct error *err) CHECKED;
void chdb_session_close(struct chdb_session *session); /* NULL is fine */
/* Whole text of the last failure on this session, without "Code: N. ": "DB::Exception: …". Valid
 * until the next call on the session. err->message holds its beginning, err->ch_code the code. */
const char *chdb_session_error(const struct chdb_session *session);

enum chdb_class {
    CHDB_CLASS_READ = 0,
    CHDB_CLASS_MUTATING = 1,
    CHDB_CLASS_MUTATING_GLOBAL = 2,
    CHDB_CLASS_CONTROL = 3,
    CHDB_CLASS_UNKNOWN = 4, /* does not parse */
};
/* What a statement would do, by ClickHouse's own parser. Runs nothing. */
enum status chdb_session_classify(struct chdb_session *session, const char *sql, size_t len,
                                  enum chdb_class *ret_class, unsigned *ret_statements,
                                  struct error *err) CHECKED;

/* A result held by the library until freed. */
struct chdb_answer {
    const struct chdb *chdb;
    void *handle;
    const uint8_t *data;
    size_t len;
    uint64_t rows_read, bytes_read, rows_written, bytes_written;
};
void chdb_answer_free(struct chdb_answer *answer); /* zeroes it; twice is fine */

/* Runs one statement to its end. ERR_DATA with err->ch_code: the engine's exception. */
enum status chdb_session_run(struct chdb_session *session, const char *sql, size_t len,
                             const char *format, struct chdb_answer *ret_answer,
                             struct error *err) CHECKED;
/* The same without a result: for SET, USE and the like. */
enum status chdb_session_do(struct chdb_session *session, const char *sql,
                            struct error *err) CHECKED;

/* Starts a SELECT whose result is read in chunks, each whole Native blocks (or whole rows of the
 * format). *ret_reader stays NULL, with OK, when the statement has a result that only
 * chdb_session_run gives (SHOW, DESCRIBE, DDL …). */
enum status chdb_reader_open(struct chdb_session *session, const char *sql, size_t len,
                             const char *format, struct chdb_reader **ret_reader,
                             struct error *err) CHECKED;
/* Waits for the next chunk; len 0 = the end. Free each answer. */
enum status chdb_reader_next(struct chdb_reader *reader, struct chdb_answer *ret_answer,
                             struct error *err) CHECKED;
/* Ends the query if it still runs, and frees. NULL is fine. */
void chdb_reader_close(struct chdb_reader *reader);

/* sql: the INSERT up to its column list, without FORMAT and data. format: what the data is in. */
enum status chdb_writer_open(struct chdb_session *session, const char *sql, size_t len,
                             const char *format, struct chdb_writer **ret_writer,
                             struct error *err) CHECKED;
/* Copies; waits when the engine is behind. Pieces of 1 to 4 MiB are quickest. */
enum status chdb_writer_append(struct chdb_writer *writer, const void *data, size_t len,
                               struct error *err) CHECKED;
/* Commits. Frees nothing: close follows in every case. */
enum status chdb_writer_finish(struct chdb_writer *writer, uint64_t *ret_rows,
                               struct error *err) CHECKED;
/* Cancels if not finished, and frees. NULL is fine. */
void chdb_writer_close(struct chdb_writer *writer);

/* Splits the library's error text "Code: N. DB::Exception: …" (also doubled, as some paths give
 * it). Returns the code, 1001 (STD_EXCEPTION) without one; *ret_text points at "DB::Exception: …".
 */
int chdb_error_parse(const char *text, const char **ret_text);
