#include "cmd/filter.h"

#include "base/buf.h"
#include "base/file.h"
#include "pg/rmgr.h"
#include "wal/filter.h"
#include "wal/segment_file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES ((size_t)256 << 10)
#define HOLE_BYTES 4096u

static const char usage[] =
    "usage: walshadow filter --in SEGMENT… --out-dir DIR [--database OID]\n"
    "                        [--catalog-filenode DB/N]… [--state-dir DIR]\n"
    "\n"
    "Writes each segment as the shadow server would get it, and SEGMENT.manifest.json.\n"
    "  --in SEGMENT…            segment files; consecutive ones are read as one stream\n"
    "  --out-dir DIR            where to write them, under their own names\n"
    "  --database OID           keep only this database's catalogs (default: those of all)\n"
    "  --catalog-filenode DB/N  filenode N of database DB is a catalog's\n"
    "  --state-dir DIR          take the catalog filenodes of this state directory\n";

/* One segment of the input and what became of it. */
struct segment {
    struct wal_segment_file file;
    uint64_t records, cut;
    uint64_t by_rmgr[256], forwarded[256];
};

struct filter_command {
    const char *out_dir, *state_dir;
    Oid database;
    struct catalog_filenodes *filenodes;
    const char **in;
    size_t in_count;
    struct segment *segments; /* in_count of them */
    size_t opened;
    struct wal_filter *filter;
    size_t first;  /* segment where the filter began */
    size_t output; /* segment being written */
    int fd;        /* its file, -1 = none */
    uint8_t *chunk;
};

static char *out_path(const struct filter_command *c, size_t i, const char *suffix)
{
    return xasprintf("%s/%s%s", c->out_dir, c->segments[i].file.name, suffix);
}

/* No file is synced: what a power loss takes is made again from the input. A name is given to
 * complete files only. */
static enum status output_close(struct filter_command *c, struct error *err)
{
    if (c->fd < 0)
        return OK;
    CLEANUP_FREE char *aside = out_path(c, c->output, ".tmp");
    CLEANUP_FREE char *path = out_path(c, c->output, "");
    /* behind the end of the WAL the segment is zeros up to its full size */
    if (ftruncate(c->fd, (off_t)c->segments[c->output].file.segment_bytes) != 0 ||
        rename(aside, path) != 0)
        return error_sys(err, ERR_CONFIG, "cannot write %s", path);
    close(c->fd);
    c->fd = -1;
    return OK;
}

static enum status output_open(struct filter_command *c, size_t i, struct error *err)
{
    CLEANUP_FREE char *aside = out_path(c, i, ".tmp");
    c->output = i;
    c->fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    return c->fd >= 0 ? OK : error_sys(err, ERR_CONFIG, "cannot create %s", aside);
}

static bool is_zeros(const uint8_t *data, size_t len)
{
    return data[0] == 0 && memcmp(data, data + 1, len - 1) == 0;
}

/* Whole blocks of zeros stay holes: of page images nothing else is left. */
static enum status write_sparse(int fd, const uint8_t *data, size_t len, uint64_t at,
                                const char *name, struct error *err)
{
    size_t from = 0; /* [from, to) is to be written */
    for (size_t to = 0; to < len;) {
        size_t n = MIN(len - to, HOLE_BYTES - (at + to) % HOLE_BYTES);
        if (n == HOLE_BYTES && is_zeros(data + to, n)) {
            TRY(file_pwrite_all(fd, data + from, to - from, (off_t)(at + from), name, err));
            from = to + n;
        }
        to += n;
    }
    return file_pwrite_all(fd, data + from, len - from, (off_t)(at + from), name, err);
}

static enum status on_output(void *ctx, XLogRecPtr lsn, const uint8_t *data, size_t len,
                             struct error *err)
{
    struct filter_command *c = ctx;
    while (len > 0) {
        const struct wal_segment_file *s = &c->segments[c->output].file;
        if (c->fd >= 0 && lsn == s->start + s->segment_bytes) {
            TRY(output_close(c, err));
            s = &c->segments[++c->output].file;
        }
        if (c->fd < 0)
            TRY(output_open(c, c->output, err));
        size_t n = MIN(len, s->start + s->segment_bytes - lsn);
        TRY(write_sparse(c->fd, data, n, lsn - s->start, s->name, err));
        lsn += n;
        data += n;
        len -= n;
    }
    return OK;
}

/* A record counts for the segment in which it begins. */
static enum status on_record(void *ctx, const struct wal_record *r, bool forwarded,
                             struct error *err)
{
    struct filter_command *c = ctx;
    (void)err;
    const struct wal_segment_file *first = &c->segments[c->first].file;
    struct segment *s = &c->segments[c->first + (r->start - first->start) / first->segment_bytes];
    s->records++;
    s->by_rmgr[r->rmid]++;
    s->forwarded[r->rmid] += forwarded;
    return OK;
}

static enum status text_write(const char *path, const char *text, struct error *err)
{
    CLEANUP_FREE char *aside = xasprintf("%s.tmp", path);
    CLEANUP_FD int fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_sys(err, ERR_CONFIG, "cannot create %s", aside);
    TRY(file_write_all(fd, text, strlen(text), aside, err));
    return rename(aside, path) == 0 ? OK : error_sys(err, ERR_CONFIG, "cannot write %s", path);
}

static enum status manifest_write(const struct filter_command *c, const struct segment *s,
                                  struct error *err)
{
    uint64_t forwarded = 0;
    json_t *by_rmgr = json_object();
    for (unsigned i = 0; i < 256; i++) {
        forwarded += s->forwarded[i];
        if (s->by_rmgr[i] > 0)
            json_object_set_new(by_rmgr, rmgr_name((uint8_t)i),
                                json_pack("{s:I,s:I,s:I}", "records", (json_int_t)s->by_rmgr[i],
                                          "forwarded", (json_int_t)s->forwarded[i], "noop",
                                          (json_int_t)(s->by_rmgr[i] - s->forwarded[i])));
    }
    char start[LSN_TEXT_MAX], end[LSN_TEXT_MAX];
    snprintf(start, sizeof start, LSN_FMT, LSN_ARGS(s->file.start));
    snprintf(end, sizeof end, LSN_FMT, LSN_ARGS(s->file.start + s->file.segment_bytes));
    json_t *root = json_pack(
        "{s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:o}", "segment", s->file.name, "start_lsn", start, "end_lsn",
        end, "records", (json_int_t)s->records, "forwarded", (json_int_t)forwarded, "noop",
        (json_int_t)(s->records - forwarded), "cut", (json_int_t)s->cut, "by_rmgr", by_rmgr);
    char *text = json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    CHECK(text != NULL);
    CLEANUP_FREE char *path = xasprintf("%s/%s.manifest.json", c->out_dir, s->file.name);
    enum status status = text_write(path, text, err);
    free(text);
    return status;
}

/* Ends the run of consecutive segments c->first .. last. */
static enum status run_end(struct filter_command *c, size_t last, struct error *err)
{
    if (c->filter == NULL)
        return OK;
    TRY(wal_filter_finish(c->filter, err));
    if (c->fd < 0 && c->output <= last) /* nothing of it was WAL */
        TRY(output_open(c, c->output, err));
    TRY(output_close(c, err));
    c->segments[last].cut += wal_filter_counters(c->filter)->cut;
    wal_filter_free(c->filter);
    c->filter = NULL;
    return OK;
}

static enum status run_begin(struct filter_command *c, size_t i, struct error *err)
{
    const struct wal_segment_file *s = &c->segments[i].file;
    if (c->filter != NULL && wal_filter_next_lsn(c->filter) == s->start &&
        s[0].major == c->segments[i - 1].file.major && !wal_filter_ended(c->filter))
        return OK;
    if (i > 0)
        TRY(run_end(c, i - 1, err));
    struct wal_filter_options o = {
        .major = s->major,
        .segment_bytes = s->segment_bytes,
        .system_id = s->system_id,
        .database = c->database,
        .filenodes = c->filenodes,
        .zeros_end = true,
        .ctx = c,
        .on_record = on_record,
        .on_output = on_output,
    };
    c->filter = wal_filter_new(&o, s->start);
    c->first = c->output = i;
    return OK;
}

/* Does the first page say that a record of the segment before goes on here? */
static bool begins_inside_record(const uint8_t *chunk, size_t len)
{
    return len >= 4 && (chunk[2] & 1 /* XLP_FIRST_IS_CONTRECORD */);
}

static enum status segment_run(struct filter_command *c, size_t i, struct error *err)
{
    struct segment *s = &c->segments[i];
    TRY(wal_segment_file_open(c->in[i], &s->file, err));
    c->opened = i + 1;
    TRY(run_begin(c, i, err));
    size_t got = READ_BYTES;
    for (uint64_t at = 0; got == READ_BYTES && at < s->file.segment_bytes; at += got) {
        TRY(wal_segment_file_read(&s->file, at, c->chunk, READ_BYTES, &got, err));
        if (at == 0 && i == c->first)
            s->cut += begins_inside_record(c->chunk, got);
        if (wal_filter_feed(c->filter, s->file.start + at, c->chunk, got, err) != OK)
            return error_prefix(err, "%s", c->in[i]);
        if (got < READ_BYTES && wal_segment_file_short(&s->file, at + got, err) != OK)
            return error_prefix(err, "%s", c->in[i]);
    }
    return OK;
}

static enum status filter_all(struct filter_command *c, struct error *err)
{
    TRY(file_mkdir_p(c->out_dir, 0700, err));
    if (c->state_dir != NULL) {
        CLEANUP_FREE char *path = xasprintf("%s/%s", c->state_dir, CATALOG_FILENODES_FILE);
        TRY(catalog_filenodes_load(c->filenodes, path, err));
    }
    for (size_t i = 0; i < c->in_count; i++)
        TRY(segment_run(c, i, err));
    TRY(run_end(c, c->in_count - 1, err));
    for (size_t i = 0; i < c->in_count; i++)
        TRY(manifest_write(c, &c->segments[i], err));
    return OK;
}

static bool parse_oid(const char *text, char end, Oid *ret, const char **ret_rest)
{
    char *rest;
    errno = 0;
    unsigned long v = strtoul(text, &rest, 10);
    if (rest == text || *rest != end || errno != 0 || v > UINT32_MAX || text[0] == '-')
        return false;
    *ret = (Oid)v;
    *ret_rest = rest;
    return true;
}

/* An option with a value. False if the option is not known or the value is wrong. */
static bool parse_option(struct filter_command *c, const char *name, const char *value)
{
    const char *rest;
    Oid db_oid, filenode;
    if (value == NULL)
        return false;
    if (strcmp(name, "--out-dir") == 0) {
        c->out_dir = value;
        return true;
    }
    if (strcmp(name, "--state-dir") == 0) {
        c->state_dir = value;
        return true;
    }
    if (strcmp(name, "--database") == 0)
        return parse_oid(value, '\0', &c->database, &rest);
    if (strcmp(name, "--catalog-filenode") == 0 && parse_oid(value, '/', &db_oid, &rest) &&
        parse_oid(rest + 1, '\0', &filenode, &rest)) {
        catalog_filenodes_add(c->filenodes, db_oid, filenode);
        return true;
    }
    return false;
}

static bool parse_args(struct filter_command *c, int argc, char **argv)
{
    bool in = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--in") == 0) {
            in = true;
        } else if (in && argv[i][0] != '-') {
            c->in[c->in_count++] = argv[i];
        } else if (parse_option(c, argv[i], i + 1 < argc ? argv[i + 1] : NULL)) {
            in = false;
            i++;
        } else {
            fprintf(stderr, "walshadow filter: unexpected or incomplete argument %s\n", argv[i]);
            return false;
        }
    }
    if (c->in_count == 0 || c->out_dir == NULL)
        fprintf(stderr, "walshadow filter: --in and --out-dir are required\n");
    return c->in_count > 0 && c->out_dir != NULL;
}

static void command_fini(struct filter_command *c)
{
    if (c->fd >= 0) { /* what an error left half written */
        CLEANUP_FREE char *aside = out_path(c, c->output, ".tmp");
        unlink(aside);
        close(c->fd);
    }
    wal_filter_free(c->filter);
    catalog_filenodes_free(c->filenodes);
    for (size_t i = 0; i < c->opened; i++)
        wal_segment_file_close(&c->segments[i].file);
    free(c->segments);
    free(c->chunk);
    free(c->in);
}

int cmd_filter(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0) {
            fputs(usage, stdout);
            return 0;
        }
    struct filter_command c = {.in = xcalloc((size_t)argc + 1, sizeof *c.in),
                               .filenodes = catalog_filenodes_new(),
                               .fd = -1};
    int code = 2;
    if (parse_args(&c, argc, argv)) {
        struct error err = {0};
        c.segments = xcalloc(c.in_count, sizeof *c.segments);
        c.chunk = xmalloc(READ_BYTES);
        enum status status = filter_all(&c, &err);
        if (status != OK)
            fprintf(stderr, "walshadow filter: %s\n", err.message);
        code = status == OK ? 0 : 1;
    } else {
        fputs(usage, stderr);
    }
    command_fini(&c);
    return code;
}
