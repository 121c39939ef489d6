#include "wal/segment_file.h"

#include "pg/wal_page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status header_read(struct wal_segment_file *s, struct error *err)
{
    uint8_t bytes[WAL_PAGE_LONG_HEADER];
    size_t got;
    struct wal_page_header h;
    TRY(wal_segment_file_read(s, 0, bytes, sizeof bytes, &got, err));
    if (got < sizeof bytes)
        return error_set(err, ERR_DATA, "%s has only %zu bytes: not a WAL segment", s->path, got);
    unsigned major = wal_page_major((uint16_t)(bytes[0] | bytes[1] << 8));
    if (major == 0)
        return error_set(
            err, ERR_DATA,
            "%s begins with page magic %02X%02X: not a WAL segment of PostgreSQL %d to %d", s->path,
            bytes[1], bytes[0], PG_MAJOR_MIN, PG_MAJOR_MAX);
    TRY(wal_page_header_parse(bytes, sizeof bytes, &h, err));
    if (!(h.info & XLP_LONG_HEADER) || !wal_segment_bytes_valid(h.segment_bytes))
        return error_set(err, ERR_DATA, "%s does not begin with the first page of a WAL segment",
                         s->path);
    if (wal_page_header_check(&h, h.page_lsn, major, h.segment_bytes, 0, err) != OK)
        return error_prefix(err, "%s", s->path);
    s->major = major;
    s->timeline = h.timeline;
    s->system_id = h.system_id;
    s->segment_bytes = h.segment_bytes;
    s->start = h.page_lsn;
    return OK;
}

static enum status name_check(const struct wal_segment_file *s, struct error *err)
{
    uint32_t timeline;
    XLogRecPtr lsn;
    struct stat st;
    if (fstat(s->fd, &st) != 0)
        return error_sys(err, ERR_CONFIG, "cannot read %s", s->path);
    if ((uint64_t)st.st_size > s->segment_bytes)
        return error_set(err, ERR_DATA, "%s is longer than its segment size %llu", s->path,
                         (unsigned long long)s->segment_bytes);
    if (wal_segment_name_parse(s->name, s->segment_bytes, &timeline, &lsn) && lsn != s->start)
        return error_lsn(err, ERR_DATA, s->start, "%s is the segment of another position", s->path);
    return OK;
}

enum status wal_segment_file_open(const char *path, struct wal_segment_file *ret, struct error *err)
{
    struct wal_segment_file s = {.path = xstrdup(path), .fd = -1};
    const char *slash = strrchr(s.path, '/');
    s.name = slash != NULL ? slash + 1 : s.path;
    s.fd = open(path, O_RDONLY | O_CLOEXEC);
    enum status status =
        s.fd < 0 ? error_sys(err, ERR_CONFIG, "cannot open %s", path) : header_read(&s, err);
    if (status == OK)
        status = name_check(&s, err);
    if (status != OK) {
        wal_segment_file_close(&s);
        return status;
    }
    posix_fadvise(s.fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    *ret = s;
    return OK;
}

void wal_segment_file_close(struct wal_segment_file *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    free(s->path);
    s->path = NULL;
}

enum status wal_segment_file_read(const struct wal_segment_file *s, uint64_t at, void *buf,
                                  size_t len, size_t *ret_got, struct error *err)
{
    size_t got = 0;
    while (got < len) {
        ssize_t n = pread(s->fd, (uint8_t *)buf + got, len - got, (off_t)(at + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_sys(err, ERR_CONFIG, "cannot read %s", s->path);
        if (n == 0)
            break;
        got += (size_t)n;
    }
    *ret_got = got;
    return OK;
}

enum status wal_segment_file_short(const struct wal_segment_file *s, uint64_t at, struct error *err)
{
    return error_lsn(err, ERR_DATA, s->start + at,
                     "the file is cut: it has %llu bytes of a segment of %llu",
                     (unsigned long long)at, (unsigned long long)s->segment_bytes);
}
