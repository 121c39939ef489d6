/* Rows of either side as text fields: PostgreSQL's COPY text and ClickHouse's TabSeparated have the
 * same shape (tabs, newlines, backslash escapes, \N). Not for other folders. */
#pragma once
#include "base/buf.h"
#include "base/error.h"

#include <libpq-fe.h>
#include <stdbool.h>

struct verify_field {
    size_t at; /* in row.text */
    size_t len;
    bool null;
};

struct verify_row {
    struct buf text; /* unescaped fields, each followed by a NUL */
    struct verify_field *fields;
    size_t nfields;
};

/* Splits one line without its newline. ERR_DATA if it has another number of fields. */
enum status verify_row_parse(struct verify_row *row, const char *line, size_t len, size_t nfields,
                             struct error *err) CHECKED;
void verify_row_copy(const struct verify_row *from, struct verify_row *ret); /* ret is zeroed */
void verify_row_fini(struct verify_row *row);
static inline const char *verify_row_text(const struct verify_row *row, size_t i)
{
    return row->fields[i].null ? NULL : (const char *)row->text.data + row->fields[i].at;
}
bool verify_field_equal(const struct verify_row *a, size_t i, const struct verify_row *b, size_t j);

struct verify_stream;

/* COPY (…) TO STDOUT on a session that does nothing else meanwhile. */
enum status verify_stream_open_source(PGconn *conn, const char *copy_sql, size_t nfields,
                                      struct verify_stream **ret, struct error *err) CHECKED;
/* A SELECT … FORMAT TSV at the engine's HTTP socket. block_rows: how many rows the engine holds at
 * once (max_block_size), 0 = as many as it likes. */
enum status verify_stream_open_engine(const char *socket_path, const char *sql, size_t nfields,
                                      unsigned block_rows, struct verify_stream **ret,
                                      struct error *err) CHECKED;
/* The next row, valid until the next call; *ret_row NULL behind the last one. */
enum status verify_stream_next(struct verify_stream *s, const struct verify_row **ret_row,
                               struct error *err) CHECKED;
void verify_stream_close(struct verify_stream *s); /* NULL is fine; ends an unfinished COPY */
