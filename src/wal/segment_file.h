/* A plain segment file on disk, for offline use: what its first page says, and its bytes. */
#pragma once
#include "base/error.h"
#include "pg/pg.h"

#include <stddef.h>

struct wal_segment_file {
    char *path;
    const char *name; /* last part of path */
    int fd;
    unsigned major;
    uint32_t timeline;
    uint64_t system_id;
    uint64_t segment_bytes;
    XLogRecPtr start;
};

/* ERR_DATA, naming the file and what is wrong, unless it begins with a sound long page header of
 * PostgreSQL 15 to 18 and is not longer than its segment size. A file name of 24 hex digits must
 * agree with the header. */
enum status wal_segment_file_open(const char *path, struct wal_segment_file *ret,
                                  struct error *err) CHECKED;
void wal_segment_file_close(struct wal_segment_file *s);
/* Up to len bytes at offset `at`; *ret_got < len at the end of the file. */
enum status wal_segment_file_read(const struct wal_segment_file *s, uint64_t at, void *buf,
                                  size_t len, size_t *ret_got, struct error *err) CHECKED;
/* The error of a file that ends at offset `at`, before its segment does. */
enum status wal_segment_file_short(const struct wal_segment_file *s, uint64_t at,
                                   struct error *err) CHECKED;
