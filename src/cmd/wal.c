#include "cmd/wal.h"

#include "pg/rmgr.h"
#include "wal/reader.h"
#include "wal/segment_file.h"

#include <inttypes.h>
#include <stdlib.h>

#define READ_BYTES ((size_t)256 << 10)

static const char usage[] =
    "usage: walshadow wal --in SEGMENT… [--stats|--records]\n"
    "\n"
    "Reads WAL segments of PostgreSQL 15 to 18 in the order given and checks every record.\n"
    "  --in SEGMENT…  segment files; consecutive ones are read as one stream\n"
    "  --stats        records and bytes by resource manager (the default)\n"
    "  --records      one line a record, as pg_waldump prints them, without its descriptions\n";

struct totals {
    uint64_t records, record_bytes, image_bytes;
};

struct wal_command {
    bool records;
    const char **in;
    size_t in_count;
    unsigned major;
    struct wal_reader *reader;
    struct totals by_rmgr[256];
    uint8_t *chunk;
};

static uint32_t image_bytes(const struct wal_record *r)
{
    uint32_t n = 0;
    for (unsigned i = 0; i < r->nblocks; i++)
        if (r->blocks[i].has_image)
            n += r->blocks[i].image_len;
    return n;
}

static void print_record(const struct wal_record *r, unsigned major)
{
    static const char *const forks[] = {"main", "fsm", "vm", "init"};
    const char *op = rmgr_op_name(r->rmid, r->info, major);
    printf("rmgr: %-11s len (rec/tot): %6u/%6u, tx: %10u, lsn: %X/%08X, prev %X/%08X, desc: ",
           rmgr_name(r->rmid), r->total_len - image_bytes(r), r->total_len, r->xid,
           LSN_ARGS(r->start), LSN_ARGS(r->prev));
    if (op != NULL)
        printf("%s", op);
    else
        printf("UNKNOWN (%x)", r->info & XLR_RMGR_INFO_MASK);
    for (unsigned i = 0; i < r->nblocks; i++) {
        const struct wal_block *b = &r->blocks[i];
        printf(", blkref #%u: rel %u/%u/%u", b->id, b->locator.spc_oid, b->locator.db_oid,
               b->locator.rel_number);
        if (b->fork != MAIN_FORKNUM)
            printf(" fork %s", forks[b->fork]);
        printf(" blk %u", b->block);
        if (b->has_image)
            printf(b->apply_image ? " FPW" : " FPW for WAL verification");
    }
    putchar('\n');
}

static enum status on_record(void *ctx, const struct wal_record *r, struct error *err)
{
    struct wal_command *c = ctx;
    (void)err;
    if (c->records) {
        print_record(r, c->major);
        return OK;
    }
    struct totals *t = &c->by_rmgr[r->rmid];
    uint32_t images = image_bytes(r);
    t->records++;
    t->record_bytes += r->total_len - images;
    t->image_bytes += images;
    return OK;
}

static void print_stats(const struct wal_command *c)
{
    struct totals sum = {0};
    for (unsigned i = 0; i < 256; i++) {
        sum.records += c->by_rmgr[i].records;
        sum.record_bytes += c->by_rmgr[i].record_bytes;
        sum.image_bytes += c->by_rmgr[i].image_bytes;
    }
    printf("%-20s %14s %16s %16s %16s\n", "Type", "Records", "Record bytes", "Image bytes",
           "Total bytes");
    for (unsigned i = 0; i <= 256; i++) {
        const struct totals *t = i < 256 ? &c->by_rmgr[i] : &sum;
        if (t->records == 0 && i < 256)
            continue;
        printf("%-20s %14" PRIu64 " %16" PRIu64 " %16" PRIu64 " %16" PRIu64 "\n",
               i < 256 ? rmgr_name((uint8_t)i) : "Total", t->records, t->record_bytes,
               t->image_bytes, t->record_bytes + t->image_bytes);
    }
}

/* What the edges of the input left out is said, not hidden. */
static void note_edges(const struct wal_command *c)
{
    const struct wal_reader *r = c->reader;
    fflush(stdout);
    if (wal_reader_in_record(r))
        fprintf(stderr, "walshadow wal: the input ends inside the record at " LSN_FMT "\n",
                LSN_ARGS(wal_reader_pending_lsn(r)));
    else if (wal_reader_ended(r))
        fprintf(stderr, "walshadow wal: the WAL ends at " LSN_FMT "\n",
                LSN_ARGS(wal_reader_pending_lsn(r)));
}

/* Goes on with the reader of the segment before if this one continues it. */
static void reader_for(struct wal_command *c, const struct wal_segment_file *s)
{
    if (c->reader != NULL && c->major == s->major && !wal_reader_ended(c->reader) &&
        wal_reader_next_lsn(c->reader) == s->start)
        return;
    if (c->reader != NULL)
        note_edges(c);
    wal_reader_free(c->reader);
    struct wal_reader_options o = {
        .major = s->major,
        .segment_bytes = s->segment_bytes,
        .keep_max = SIZE_MAX,
        .zeros_end = true,
        .ctx = c,
        .on_record = on_record,
    };
    c->major = s->major;
    c->reader = wal_reader_new(&o, s->start);
}

static enum status read_segment(struct wal_command *c, const char *path, struct error *err)
{
    struct wal_segment_file s;
    TRY(wal_segment_file_open(path, &s, err));
    reader_for(c, &s);
    enum status status = OK;
    size_t got = READ_BYTES;
    for (uint64_t at = 0; status == OK && got == READ_BYTES && at < s.segment_bytes; at += got) {
        status = wal_segment_file_read(&s, at, c->chunk, READ_BYTES, &got, err);
        if (status == OK)
            status = wal_reader_push(c->reader, s.start + at, c->chunk, got, err);
        if (status == OK && got < READ_BYTES)
            status = wal_segment_file_short(&s, at + got, err);
    }
    if (status != OK)
        error_prefix(err, "%s", path);
    wal_segment_file_close(&s);
    return status;
}

static bool parse_args(struct wal_command *c, int argc, char **argv)
{
    bool in = false, stats = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--in") == 0) {
            in = true;
        } else if (strcmp(argv[i], "--records") == 0) {
            c->records = true;
            in = false;
        } else if (strcmp(argv[i], "--stats") == 0) {
            stats = true;
            in = false;
        } else if (in && argv[i][0] != '-') {
            c->in[c->in_count++] = argv[i];
        } else {
            fprintf(stderr, "walshadow wal: unexpected argument %s\n", argv[i]);
            return false;
        }
    }
    if (c->in_count == 0)
        fprintf(stderr, "walshadow wal: no segment given\n");
    else if (stats && c->records)
        fprintf(stderr, "walshadow wal: --stats and --records exclude each other\n");
    return c->in_count > 0 && !(stats && c->records);
}

int cmd_wal(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0) {
            fputs(usage, stdout);
            return 0;
        }
    struct wal_command c = {.in = xcalloc((size_t)argc + 1, sizeof *c.in)};
    if (!parse_args(&c, argc, argv)) {
        fputs(usage, stderr);
        free(c.in);
        return 2;
    }
    c.chunk = xmalloc(READ_BYTES);
    struct error err = {0};
    enum status status = OK;
    for (size_t i = 0; i < c.in_count && status == OK; i++)
        status = read_segment(&c, c.in[i], &err);
    if (!c.records)
        print_stats(&c);
    if (status != OK) {
        fflush(stdout);
        fprintf(stderr, "walshadow wal: %s\n", err.message);
    } else {
        note_edges(&c);
    }
    wal_reader_free(c.reader);
    free(c.chunk);
    free(c.in);
    return status == OK ? 0 : 1;
}
