#include "load/undecided.h"

#include "base/cursor.h"
#include "base/file.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

/* A group's buffer leaves for the file, or for a batch, in portions of about this size. */
#define PORTION_BYTES (256u * 1024)

struct extent {
    off_t at;
    size_t len;
    uint64_t count;
};

/* The tuples of one relation that wait for one thing: extents in the file, then `rows`. */
struct group {
    struct group *next;
    struct load_rel *rel;
    struct awaited awaited;
    struct extent *extents;
    size_t nextents, cap_extents, next_extent;
    struct buf rows;
    uint64_t rows_count;
};

#define BUCKETS 1024

struct undecided {
    pthread_mutex_t lock; /* guards all but count */
    struct group *buckets[BUCKETS];
    const struct fates *fates;
    char *spill_dir;
    int fd;
    off_t file_end;
    size_t max_bytes, bytes; /* of all groups' rows */
    atomic_uint_least64_t count, version;
};

struct undecided *undecided_new(const struct fates *fates, const char *spill_dir, size_t max_bytes)
{
    struct undecided *u = xcalloc(1, sizeof *u);
    pthread_mutex_init(&u->lock, NULL);
    u->spill_dir = xstrdup(spill_dir);
    u->fates = fates;
    u->fd = -1;
    u->max_bytes = max_bytes;
    return u;
}

static void group_free(struct group *g)
{
    buf_free(&g->rows);
    free(g->extents);
    free(g);
}

void undecided_free(struct undecided *u)
{
    if (u == NULL)
        return;
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct group *g = u->buckets[i], *next; g != NULL; g = next) {
            next = g->next;
            group_free(g);
        }
    if (u->fd >= 0)
        close(u->fd);
    pthread_mutex_destroy(&u->lock);
    free(u->spill_dir);
    free(u);
}

static bool awaited_equal(struct awaited a, struct awaited b)
{
    return a.number == b.number && a.kind == b.kind;
}

static struct group *group_of(struct undecided *u, struct load_rel *rel, struct awaited awaited)
{
    struct group **bucket = &u->buckets[awaited.number % BUCKETS];
    for (struct group *g = *bucket; g != NULL; g = g->next)
        if (awaited_equal(g->awaited, awaited) && g->rel == rel)
            return g;
    struct group *g = xcalloc(1, sizeof *g);
    g->rel = rel;
    g->awaited = awaited;
    g->next = *bucket;
    *bucket = g;
    return g;
}

static enum status spill_open(struct undecided *u, struct error *err)
{
    if (u->fd >= 0)
        return OK;
    CLEANUP_FREE char *path = xasprintf("%s/load-undecided", u->spill_dir);
    return file_create_unnamed(path, &u->fd, err);
}

static enum status group_spill(struct undecided *u, struct group *g, struct error *err)
{
    if (g->rows.len == 0)
        return OK;
    TRY(spill_open(u, err));
    TRY(file_pwrite_all(u->fd, g->rows.data, g->rows.len, u->file_end, "load-undecided", err));
    if (g->nextents == g->cap_extents) {
        g->cap_extents = MAX(2 * g->cap_extents, 4u);
        g->extents = xrealloc(g->extents, g->cap_extents * sizeof *g->extents);
    }
    g->extents[g->nextents++] = (struct extent){u->file_end, g->rows.len, g->rows_count};
    u->file_end += (off_t)g->rows.len;
    u->bytes -= g->rows.len;
    g->rows_count = 0;
    buf_free(&g->rows);
    return OK;
}

static enum status spill_all(struct undecided *u, struct error *err)
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct group *g = u->buckets[i]; g != NULL; g = g->next)
            TRY(group_spill(u, g, err));
    return OK;
}

/* tid, deleter, xmin, xmax, xvac, ctid, infomask2, infomask, hoff, body length, body */
static void tuple_put(struct buf *b, const struct undecided_tuple *u)
{
    const struct page_tuple *t = &u->tuple;
    buf_put_u64(b, u->tid);
    buf_put_u32(b, u->deleter);
    buf_put_u32(b, t->xmin);
    buf_put_u32(b, t->xmax);
    buf_put_u32(b, t->xvac);
    buf_put_u32(b, t->ctid_block);
    buf_put_u16(b, t->ctid_offset);
    buf_put_u16(b, t->raw.infomask2);
    buf_put_u16(b, t->raw.infomask);
    buf_put_u8(b, t->raw.hoff);
    buf_put_u32(b, t->raw.body_len);
    buf_put(b, t->raw.body, t->raw.body_len);
}

static enum status tuple_add(struct undecided *u, struct load_rel *rel, struct awaited awaited,
                             const struct undecided_tuple *t, struct error *err)
{
    struct group *g = group_of(u, rel, awaited);
    size_t before = g->rows.len;
    tuple_put(&g->rows, t);
    g->rows_count++;
    u->bytes += g->rows.len - before;
    atomic_fetch_add(&u->count, 1);
    atomic_fetch_add(&u->version, 1);
    if (u->bytes > u->max_bytes)
        return spill_all(u, err);
    /* once there is a file, full portions go there: many small extents would cost seeks */
    if (g->nextents > 0 && g->rows.len >= PORTION_BYTES)
        return group_spill(u, g, err);
    return OK;
}

enum status undecided_add(struct undecided *u, struct load_rel *rel, struct awaited awaited,
                          const struct undecided_tuple *tuple, bool *ret_added, struct error *err)
{
    enum status status = OK;
    pthread_mutex_lock(&u->lock);
    bool add = !fates_settled(u->fates, awaited);
    if (add)
        status = tuple_add(u, rel, awaited, tuple, err);
    pthread_mutex_unlock(&u->lock);
    if (status == OK)
        *ret_added = add;
    return status;
}

static enum status extent_read(struct undecided *u, const struct extent *e, uint8_t **ret,
                               struct error *err)
{
    uint8_t *rows = xmalloc(e->len);
    enum status status = file_pread_all(u->fd, rows, e->len, e->at, "load-undecided", err);
    if (status != OK) {
        free(rows);
        return status;
    }
    *ret = rows;
    return OK;
}

/* One extent, or what is in memory; frees the group when it is empty. */
static enum status group_take(struct undecided *u, struct group **link, uint8_t **ret_rows,
                              size_t *ret_len, uint64_t *ret_count, struct error *err)
{
    struct group *g = *link;
    if (g->next_extent < g->nextents) {
        const struct extent *e = &g->extents[g->next_extent];
        TRY(extent_read(u, e, ret_rows, err));
        *ret_len = e->len;
        *ret_count = e->count;
        g->next_extent++;
    } else {
        *ret_rows = g->rows.data;
        *ret_len = g->rows.len;
        *ret_count = g->rows_count;
        u->bytes -= g->rows.len;
        g->rows = (struct buf){0};
    }
    atomic_fetch_sub(&u->count, *ret_count);
    atomic_fetch_add(&u->version, 1);
    if (g->next_extent == g->nextents && g->rows.len == 0) {
        *link = g->next;
        group_free(g);
    }
    return OK;
}

enum status undecided_take(struct undecided *u, struct awaited awaited, struct load_rel **ret_rel,
                           uint8_t **ret_rows, size_t *ret_len, uint64_t *ret_count,
                           struct error *err)
{
    enum status status = OK;
    *ret_rows = NULL;
    pthread_mutex_lock(&u->lock);
    struct group **link = &u->buckets[awaited.number % BUCKETS];
    for (; *link != NULL; link = &(*link)->next) {
        if (!awaited_equal((*link)->awaited, awaited))
            continue;
        *ret_rel = (*link)->rel;
        status = group_take(u, link, ret_rows, ret_len, ret_count, err);
        break;
    }
    pthread_mutex_unlock(&u->lock);
    return status;
}

enum status undecided_next(const uint8_t *rows, size_t len, size_t *pos, bool *ret_more,
                           struct undecided_tuple *ret, struct error *err)
{
    if (*pos == len) {
        *ret_more = false;
        return OK;
    }
    struct cursor c = cursor_of(rows + *pos, len - *pos);
    struct undecided_tuple t = {.tid = cursor_u64(&c)};
    t.deleter = cursor_u32(&c);
    t.tuple.xmin = cursor_u32(&c);
    t.tuple.xmax = cursor_u32(&c);
    t.tuple.xvac = cursor_u32(&c);
    t.tuple.ctid_block = cursor_u32(&c);
    t.tuple.ctid_offset = cursor_u16(&c);
    t.tuple.raw.infomask2 = cursor_u16(&c);
    t.tuple.raw.infomask = cursor_u16(&c);
    t.tuple.raw.hoff = cursor_u8(&c);
    t.tuple.raw.body_len = cursor_u32(&c);
    t.tuple.raw.body = cursor_take(&c, t.tuple.raw.body_len);
    if (!cursor_ok(&c))
        return error_set(err, ERR_DATA, "undecided tuples are cut at byte %zu of %zu", *pos, len);
    *pos += c.pos;
    *ret = t;
    *ret_more = true;
    return OK;
}

size_t undecided_awaited(struct undecided *u, struct awaited **ret)
{
    size_t n = 0, cap = 16;
    struct awaited *list = xmalloc(cap * sizeof *list);
    pthread_mutex_lock(&u->lock);
    for (size_t i = 0; i < BUCKETS; i++) {
        size_t first = n; /* equal ones share a bucket */
        for (const struct group *g = u->buckets[i]; g != NULL; g = g->next) {
            bool seen = false;
            for (size_t k = first; k < n && !seen; k++)
                seen = awaited_equal(list[k], g->awaited);
            if (seen)
                continue;
            if (n == cap)
                list = xrealloc(list, (cap *= 2) * sizeof *list);
            list[n++] = g->awaited;
        }
    }
    pthread_mutex_unlock(&u->lock);
    *ret = list;
    return n;
}

bool undecided_waits_for(struct undecided *u, struct awaited awaited)
{
    bool found = false;
    pthread_mutex_lock(&u->lock);
    const struct group *g = u->buckets[awaited.number % BUCKETS];
    for (; g != NULL && !found; g = g->next)
        found = awaited_equal(g->awaited, awaited);
    pthread_mutex_unlock(&u->lock);
    return found;
}

uint64_t undecided_count(struct undecided *u)
{
    return atomic_load(&u->count);
}

size_t undecided_spilled_bytes(struct undecided *u)
{
    pthread_mutex_lock(&u->lock);
    size_t n = (size_t)u->file_end;
    pthread_mutex_unlock(&u->lock);
    return n;
}

uint64_t undecided_version(const struct undecided *u)
{
    return atomic_load(&u->version);
}

typedef enum status (*portion_fn)(void *ctx, const struct undecided_portion *p, struct error *err);

static enum status group_each(struct undecided *u, const struct group *g, portion_fn fn, void *ctx,
                              struct error *err)
{
    struct undecided_portion p = {.rel = g->rel, .awaited = g->awaited};
    for (size_t i = g->next_extent; i < g->nextents; i++) {
        uint8_t *rows = NULL;
        TRY(extent_read(u, &g->extents[i], &rows, err));
        p.rows = rows;
        p.len = g->extents[i].len;
        p.count = g->extents[i].count;
        enum status st = fn(ctx, &p, err);
        free(rows);
        TRY(st);
    }
    p.rows = g->rows.data;
    p.len = g->rows.len;
    p.count = g->rows_count;
    return p.len == 0 ? OK : fn(ctx, &p, err);
}

enum status undecided_each(struct undecided *u, portion_fn fn, void *ctx, struct error *err)
{
    enum status st = OK;
    pthread_mutex_lock(&u->lock);
    for (size_t i = 0; i < BUCKETS && st == OK; i++)
        for (const struct group *g = u->buckets[i]; g != NULL && st == OK; g = g->next)
            st = group_each(u, g, fn, ctx, err);
    pthread_mutex_unlock(&u->lock);
    return st;
}

enum status undecided_put(struct undecided *u, const struct undecided_portion *p, struct error *err)
{
    enum status st = OK;
    size_t pos = 0;
    pthread_mutex_lock(&u->lock);
    for (bool more = true; st == OK;) {
        struct undecided_tuple t;
        st = undecided_next(p->rows, p->len, &pos, &more, &t, err);
        if (st != OK || !more)
            break;
        st = tuple_add(u, p->rel, p->awaited, &t, err);
    }
    pthread_mutex_unlock(&u->lock);
    return st;
}
