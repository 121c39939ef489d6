/* The golden segments of tests/fixtures/wal, unpacked into memory. */
#pragma once
#include "base/buf.h"
#include "pg/pg.h"
#include "pg/wal_page.h"
#include "test.h"

#include <archive.h>
#include <archive_entry.h>

#define GOLDEN_SEGMENT ((uint64_t)1 << 20)

struct golden_record { /* a line of records.tsv: what pg_walinspect says */
    XLogRecPtr start, end, prev;
    uint32_t xid, len, fpi_len;
    char rmgr[24], op[32];
};

struct golden {
    unsigned major;
    XLogRecPtr start;   /* of the first segment */
    struct buf wal;     /* all segments, one after the other */
    struct buf control; /* pg_control after a clean stop */
    struct golden_record *records;
    size_t count;
    Oid database;
    uint64_t system_id;
    struct {
        Oid db_oid, filenode;
    } filenodes[64]; /* of catalogs, ≥ 16384 */
    size_t filenode_count;
};

static inline XLogRecPtr golden_lsn(const char *text)
{
    XLogRecPtr lsn = 0;
    assert_true(lsn_parse(text, &lsn));
    return lsn;
}

static inline void golden_line(struct golden *g, const char *file, char *line)
{
    char a[24], b[24], c[24];
    unsigned long long x, y;
    if (strcmp(file, "records.tsv") == 0) {
        g->records = xrealloc(g->records, (g->count + 1) * sizeof *g->records);
        struct golden_record *r = &g->records[g->count++];
        assert_int_equal(sscanf(line, "%23s %23s %23s %u %23s %31s %u %u", a, b, c, &r->xid,
                                r->rmgr, r->op, &r->len, &r->fpi_len),
                         8);
        r->start = golden_lsn(a);
        r->end = golden_lsn(b);
        r->prev = golden_lsn(c);
    } else if (sscanf(line, "database %llu", &x) == 1) {
        g->database = (Oid)x;
    } else if (sscanf(line, "system_id %llu", &x) == 1) {
        g->system_id = x;
    } else if (sscanf(line, "%llu %llu", &x, &y) == 2) {
        assert_true(g->filenode_count < LENGTH(g->filenodes));
        g->filenodes[g->filenode_count].db_oid = (Oid)x;
        g->filenodes[g->filenode_count++].filenode = (Oid)y;
    }
}

static inline void golden_file(struct golden *g, const char *name, struct buf *b)
{
    uint32_t timeline;
    XLogRecPtr lsn;
    if (wal_segment_name_parse(name, GOLDEN_SEGMENT, &timeline, &lsn)) {
        if (g->wal.len == 0)
            g->start = lsn;
        assert_int_equal(lsn, g->start + g->wal.len);
        assert_int_equal(b->len, GOLDEN_SEGMENT);
        buf_put(&g->wal, b->data, b->len);
    } else if (strcmp(name, "pg_control") == 0) {
        buf_put(&g->control, b->data, b->len);
    } else {
        char *save, *text = buf_cstr(b);
        for (char *line = strtok_r(text, "\n", &save); line != NULL;
             line = strtok_r(NULL, "\n", &save))
            golden_line(g, name, line);
    }
}

static inline void golden_load(struct golden *g, unsigned major)
{
    char path[1000];
    snprintf(path, sizeof path, "%s/tests/fixtures/wal/%u.tar.zst", getenv("SOURCE_ROOT"), major);
    *g = (struct golden){.major = major};
    struct archive *a = archive_read_new();
    archive_read_support_format_tar(a);
    archive_read_support_filter_zstd(a);
    assert_int_equal(archive_read_open_filename(a, path, 1 << 16), ARCHIVE_OK);
    struct archive_entry *entry;
    while (archive_read_next_header(a, &entry) == ARCHIVE_OK) {
        const char *slash = strrchr(archive_entry_pathname(entry), '/');
        struct buf b = {0};
        size_t size = (size_t)archive_entry_size(entry);
        if (slash == NULL || slash[1] == '\0')
            continue;
        assert_int_equal(archive_read_data(a, buf_reserve(&b, size), size), size);
        b.len = size;
        golden_file(g, slash + 1, &b);
        buf_free(&b);
    }
    archive_read_free(a);
    /* the oracle read on into a segment that is not kept */
    while (g->count > 0 && g->records[g->count - 1].start >= g->start + g->wal.len)
        g->count--;
    assert_true(g->wal.len > 0 && g->count > 1000 && g->database != 0);
}

static inline void golden_free(struct golden *g)
{
    buf_free(&g->wal);
    buf_free(&g->control);
    free(g->records);
}
