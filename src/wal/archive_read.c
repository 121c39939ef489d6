#include "base/file.h"
#include "pg/wal_page.h"
#include "pg/xlog_record.h"
#include "wal/archive_internal.h"
#include "wal/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IN_BYTES ((size_t)64 << 10)
#define SKIP_BYTES ((size_t)64 << 10)
#define OPEN_ATTEMPTS 4

struct wal_archive_cursor {
    struct wal_archive *a;
    uint64_t generation;
    XLogRecPtr segment; /* of the open file */
    int fd;             /* -1 = none */
    bool sealed;        /* the file is packed and compressed */
    ZSTD_DCtx *zstd;
    uint8_t *in; /* IN_BYTES of compressed bytes */
    size_t in_len, in_pos;
    struct wal_packer packer;
    uint8_t *packed;     /* WAL_PACKED_PAGE_MAX */
    uint8_t *page;       /* the page last unpacked: the one that ends at page_end */
    XLogRecPtr page_end; /* = segment before the first */
};

struct wal_archive_cursor *wal_archive_cursor_new(struct wal_archive *a)
{
    struct wal_archive_cursor *c = xcalloc(1, sizeof *c);
    c->a = a;
    c->fd = -1;
    c->packed = xmalloc(WAL_PACKED_PAGE_MAX);
    c->page = xmalloc(PG_XLOG_BLCKSZ);
    return c;
}

static void file_close(struct wal_archive_cursor *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

void wal_archive_cursor_free(struct wal_archive_cursor *c)
{
    if (c == NULL)
        return;
    file_close(c);
    ZSTD_freeDCtx(c->zstd);
    noop_cache_fini(&c->packer.noops);
    free(c->in);
    free(c->packed);
    free(c->page);
    free(c);
}

static enum status segment_damaged(const struct wal_archive_cursor *c, const char *why,
                                   struct error *err)
{
    char path[PATH_MAX];
    archive_path(c->a, c->segment, SUFFIX_SEALED, path, sizeof path);
    return error_lsn(err, ERR_DATA, c->page_end, "archived WAL segment %s is damaged (%s)", path,
                     why);
}

static enum status input_fill(struct wal_archive_cursor *c, struct error *err)
{
    ssize_t n;
    do
        n = read(c->fd, c->in, IN_BYTES);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return error_sys(err, ERR_CONFIG, "cannot read the WAL archive %s", c->a->dir);
    if (n == 0)
        return segment_damaged(c, "it ends early", err);
    c->in_len = (size_t)n;
    c->in_pos = 0;
    return OK;
}

/* The next len bytes of the frame. */
static enum status decompress(struct wal_archive_cursor *c, uint8_t *to, size_t len,
                              struct error *err)
{
    ZSTD_outBuffer dst = {to, len, 0};
    while (dst.pos < len) {
        if (c->in_pos == c->in_len)
            TRY(input_fill(c, err));
        ZSTD_inBuffer src = {c->in, c->in_len, c->in_pos};
        size_t left = ZSTD_decompressStream(c->zstd, &dst, &src);
        if (ZSTD_isError(left))
            return segment_damaged(c, ZSTD_getErrorName(left), err);
        if (left == 0 && dst.pos < len)
            return segment_damaged(c, "it holds too little", err);
        c->in_pos = src.pos;
    }
    return OK;
}

/* The file is open: its first bytes say what it is. */
static enum status sealed_begin(struct wal_archive_cursor *c, struct error *err)
{
    if (c->zstd == NULL) {
        c->zstd = ZSTD_createDCtx();
        CHECK(c->zstd != NULL);
        c->in = xmalloc(IN_BYTES);
    }
    c->in_len = c->in_pos = 0;
    ZSTD_DCtx_reset(c->zstd, ZSTD_reset_session_only);
    wal_packer_begin(&c->packer, c->a->segment_bytes);
    uint8_t format[sizeof ARCHIVE_FORMAT - 1];
    TRY(decompress(c, format, sizeof format, err));
    if (memcmp(format, ARCHIVE_FORMAT, sizeof format) != 0)
        return segment_damaged(c, "its format is not known", err);
    return OK;
}

/* A segment can be sealed, or taken back, while we look for its file: look again then. */
static enum status file_open(struct wal_archive_cursor *c, XLogRecPtr segment, struct error *err)
{
    struct wal_archive *a = c->a;
    char path[PATH_MAX];
    file_close(c);
    for (int attempt = 0; attempt < OPEN_ATTEMPTS; attempt++) {
        c->generation = a->generation;
        c->sealed = segment < a->sealed;
        archive_path(a, segment, c->sealed ? SUFFIX_SEALED : SUFFIX_PARTIAL, path, sizeof path);
        c->fd = open(path, O_RDONLY | O_CLOEXEC);
        if (c->fd >= 0 || errno != ENOENT)
            break;
    }
    if (c->fd < 0)
        return error_sys(err, errno == ENOENT ? ERR_DATA : ERR_CONFIG, "cannot open %s", path);
    c->segment = c->page_end = segment;
    return c->sealed ? sealed_begin(c, err) : OK;
}

static enum status page_next(struct wal_archive_cursor *c, struct error *err)
{
    uint16_t len;
    TRY(decompress(c, (uint8_t *)&len, sizeof len, err));
    if (len > WAL_PACKED_PAGE_MAX)
        return segment_damaged(c, "a page is too long", err);
    TRY(decompress(c, c->packed, len, err));
    if (wal_unpack_page(&c->packer, c->page_end, c->packed, len, c->page, err) != OK)
        return segment_damaged(c, "a page cannot be unpacked", err);
    c->page_end += PG_XLOG_BLCKSZ;
    return OK;
}

static enum status read_sealed(struct wal_archive_cursor *c, XLogRecPtr lsn, uint8_t *to,
                               size_t len, struct error *err)
{
    if (lsn + PG_XLOG_BLCKSZ < c->page_end)
        TRY(file_open(c, c->segment, err));
    while (len > 0) {
        while (c->page_end <= lsn)
            TRY(page_next(c, err));
        size_t n = MIN(len, c->page_end - lsn);
        memcpy(to, c->page + (PG_XLOG_BLCKSZ - (c->page_end - lsn)), n);
        to += n;
        lsn += n;
        len -= n;
    }
    return OK;
}

/* Where the bytes at lsn of the growing segment are. */
struct found {
    enum {
        GONE, /* sealed, or taken back */
        IN_FILE,
        IN_MEMORY
    } where;
    uint64_t offset;
    size_t len; /* of the packed page, or of the bytes that were copied to the caller */
    XLogRecPtr last;
};

static struct found growing_find(struct wal_archive_cursor *c, XLogRecPtr lsn, uint8_t *to,
                                 size_t len)
{
    struct wal_archive *a = c->a;
    struct found f = {GONE, 0, 0, 0};
    pthread_mutex_lock(&a->lock);
    const struct growing *g = archive_growing(a, c->segment);
    if (g != NULL && c->segment >= a->sealed && c->generation == a->generation && lsn < g->end) {
        uint32_t page = (uint32_t)((lsn - g->start) / PG_XLOG_BLCKSZ);
        const struct growing_place *place = &g->places[page];
        if (page < g->npages) {
            f = (struct found){IN_FILE, place[0].offset, place[1].offset - place[0].offset,
                               place[0].last};
        } else {
            f = (struct found){IN_MEMORY, 0, MIN(len, g->end - lsn), 0};
            memcpy(to, g->tail + lsn % PG_XLOG_BLCKSZ, f.len);
        }
    }
    pthread_mutex_unlock(&a->lock);
    return f;
}

/* Is what has just been read from the growing file still that segment's? */
static bool still_growing(struct wal_archive_cursor *c)
{
    struct wal_archive *a = c->a;
    pthread_mutex_lock(&a->lock);
    bool is = c->generation == a->generation;
    pthread_mutex_unlock(&a->lock);
    return is;
}

static enum status growing_page(struct wal_archive_cursor *c, XLogRecPtr page,
                                const struct found *f, struct error *err)
{
    TRY(file_pread_all(c->fd, c->packed, f->len, (off_t)f->offset, "the unfinished segment", err));
    wal_packer_begin(&c->packer, c->a->segment_bytes);
    c->packer.last = f->last;
    return wal_unpack_page(&c->packer, page, c->packed + 2, f->len - 2, c->page, err);
}

/* Fewer bytes than asked only if they were sealed or taken back meanwhile. */
static enum status read_growing(struct wal_archive_cursor *c, XLogRecPtr lsn, uint8_t *to,
                                size_t len, size_t *ret_got, struct error *err)
{
    size_t got = 0;
    while (got < len) {
        XLogRecPtr at = lsn + got, page = at - at % PG_XLOG_BLCKSZ;
        struct found f = growing_find(c, at, to + got, len - got);
        if (f.where == GONE)
            break;
        if (f.where == IN_FILE) {
            enum status status = growing_page(c, page, &f, err);
            if (!still_growing(c))
                break;
            if (status != OK)
                return error_prefix(err, "WAL archive %s", c->a->dir);
            f.len = MIN(len - got, page + PG_XLOG_BLCKSZ - at);
            memcpy(to + got, c->page + at % PG_XLOG_BLCKSZ, f.len);
        }
        got += f.len;
    }
    *ret_got = got;
    return OK;
}

enum status archive_cursor_read(struct wal_archive_cursor *c, XLogRecPtr visible, XLogRecPtr lsn,
                                void *buf, size_t len, size_t *ret_got, struct error *err)
{
    struct wal_archive *a = c->a;
    XLogRecPtr segment = lsn_segment_start(lsn, a->segment_bytes);
    *ret_got = 0;
    if (lsn >= visible || len == 0)
        return OK;
    if (lsn < a->oldest)
        return error_lsn(err, ERR_DATA, lsn, "WAL archive %s begins at " LSN_FMT, a->dir,
                         LSN_ARGS(a->oldest));
    len = MIN(len, visible - lsn);
    len = MIN(len, segment + a->segment_bytes - lsn);
    if (c->fd < 0 || c->segment != segment || c->generation != a->generation)
        TRY(file_open(c, segment, err));
    if (!c->sealed) {
        TRY(read_growing(c, lsn, buf, len, ret_got, err));
        if (*ret_got > 0)
            return OK;
        TRY(file_open(c, segment, err));
        if (!c->sealed)
            return OK; /* taken back meanwhile */
    }
    enum status status = read_sealed(c, lsn, buf, len, err);
    if (status == OK)
        *ret_got = len;
    else
        file_close(c); /* where it stands is not known */
    return status;
}

enum status wal_archive_read(struct wal_archive_cursor *c, XLogRecPtr lsn, void *buf, size_t len,
                             size_t *ret_got, struct error *err)
{
    return archive_cursor_read(c, wal_archive_visible_lsn(c->a), lsn, buf, len, ret_got, err);
}

/* --- the record across a segment boundary ---------------------------------------------------- */

static enum status ignore_record(void *ctx, const struct wal_record *record, struct error *err)
{
    (void)ctx, (void)record, (void)err;
    return OK;
}

static enum status ignore_body(void *ctx, const struct wal_record *head, bool *ret_keep,
                               struct error *err)
{
    (void)ctx, (void)head, (void)err;
    *ret_keep = false;
    return OK;
}

/* Walks the archived WAL [from, to) and tells what is pending at its end. */
static enum status walk(struct wal_archive_cursor *c, unsigned major, XLogRecPtr from,
                        XLogRecPtr to, bool *ret_crosses, struct wal_pending *ret,
                        struct error *err)
{
    CLEANUP_FREE uint8_t *chunk = xmalloc(SKIP_BYTES);
    struct wal_reader_options o = {
        .major = major,
        .segment_bytes = c->a->segment_bytes,
        .keep_max = WAL_RECORD_HEAD_MAX,
        .on_record = ignore_record,
        .on_head = ignore_body,
    };
    struct wal_reader *r = wal_reader_new(&o, from);
    enum status status = OK;
    while (status == OK && from < to) {
        size_t got = 0;
        status = archive_cursor_read(c, to, from, chunk, MIN(SKIP_BYTES, to - from), &got, err);
        if (status == OK)
            status = wal_reader_push(r, from, chunk, got, err);
        from += got;
    }
    if (status == OK)
        *ret_crosses = wal_reader_pending(r, ret);
    else
        error_prefix(err, "WAL archive %s", c->a->dir);
    wal_reader_free(r);
    return status;
}

static enum status archived_major(struct wal_archive_cursor *c, XLogRecPtr segment,
                                  unsigned *ret_major, struct error *err)
{
    uint8_t magic[2];
    size_t got = 0;
    TRY(archive_cursor_read(c, segment + 2, segment, magic, 2, &got, err));
    *ret_major = got == 2 ? wal_page_major((uint16_t)(magic[0] | magic[1] << 8)) : 0;
    if (*ret_major == 0)
        return error_lsn(err, ERR_DATA, segment, "archived WAL segment begins with no page header");
    return OK;
}

static enum status straddle_find(struct wal_archive_cursor *c, XLogRecPtr lsn,
                                 enum wal_straddle *ret, struct wal_straddle_head *ret_head,
                                 struct error *err)
{
    struct wal_archive *a = c->a;
    unsigned major;
    TRY(archived_major(c, lsn - a->segment_bytes, &major, err));
    for (XLogRecPtr from = lsn; from > a->oldest;) {
        from -= a->segment_bytes;
        bool crosses;
        struct wal_pending p;
        TRY(walk(c, major, from, lsn, &crosses, &p, err));
        if (!crosses)
            return OK;
        if (p.start == 0) /* it began in an earlier segment still */
            continue;
        *ret_head = (struct wal_straddle_head){
            .start = p.start, .passed = p.passed, .head_len = p.head_len};
        memcpy(ret_head->head, p.head, p.head_len);
        if (p.head_len >= SizeOfXLogRecord)
            *ret = wal_header_rmid(p.head) == RM_XLOG_ID && wal_header_info(p.head) == XLOG_NOOP
                       ? WAL_STRADDLE_NOOP
                       : WAL_STRADDLE_FORWARD;
        return OK;
    }
    return OK;
}

enum status wal_archive_straddle_head(struct wal_archive *a, XLogRecPtr lsn, enum wal_straddle *ret,
                                      struct wal_straddle_head *ret_head, struct error *err)
{
    *ret = WAL_STRADDLE_UNKNOWN;
    *ret_head = (struct wal_straddle_head){0};
    if (lsn % a->segment_bytes != 0 || lsn <= a->oldest || lsn > a->sealed)
        return OK;
    struct wal_archive_cursor *c = wal_archive_cursor_new(a);
    enum status status = straddle_find(c, lsn, ret, ret_head, err);
    wal_archive_cursor_free(c);
    return status;
}

enum status wal_archive_straddle(struct wal_archive *a, XLogRecPtr lsn, enum wal_straddle *ret,
                                 struct error *err)
{
    struct wal_straddle_head head;
    return wal_archive_straddle_head(a, lsn, ret, &head, err);
}
