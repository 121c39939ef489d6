#include "pipeline/place_index.h"
#include "base/buf.h"
#include "base/crc32c.h"
#include "base/file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUCKETS 16384u
#define BLOCK_ENTRIES 128u
#define BLOCK_HEAD 8u /* u32 number of entries, u32 CRC-32C of them */
#define BLOCK_BYTES (BLOCK_HEAD + BLOCK_ENTRIES * sizeof(struct place_entry))
#define NO_BLOCK UINT32_MAX

/* What was in memory at once, sorted by key; all blocks but the last are full. */
struct run {
    uint32_t first_block, nblocks;
    struct place_key last;
};

struct place_index {
    char *spill_dir;
    uint32_t max_entries;
    struct place_entry *entries; /* in memory, in the order of adding */
    uint32_t n, cap;
    uint32_t *buckets; /* newest entry + 1 */
    int fd;            /* -1: nothing written */
    struct run *runs;
    uint32_t nruns, runs_cap;
    struct place_key *firsts; /* the first key of each block */
    uint32_t nblocks, firsts_cap;
    uint32_t cached; /* block in `block` */
    struct buf block;
    struct buf found; /* entries of the last find */
};

struct place_index *place_index_new(const char *spill_dir, size_t max_bytes)
{
    struct place_index *p = xcalloc(1, sizeof *p);
    p->spill_dir = xstrdup(spill_dir);
    p->max_entries = (uint32_t)MAX(max_bytes / sizeof(struct place_entry), (size_t)1);
    p->buckets = xcalloc(BUCKETS, sizeof *p->buckets);
    p->fd = -1;
    p->cached = NO_BLOCK;
    return p;
}

static void memory_clear(struct place_index *p)
{
    if (p->n > 0)
        memset(p->buckets, 0, BUCKETS * sizeof *p->buckets);
    p->n = 0;
}

void place_index_clear(struct place_index *p)
{
    memory_clear(p);
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
    p->nruns = p->nblocks = 0;
    p->cached = NO_BLOCK;
}

void place_index_free(struct place_index *p)
{
    if (p == NULL)
        return;
    place_index_clear(p);
    free(p->spill_dir);
    free(p->entries);
    free(p->buckets);
    free(p->runs);
    free(p->firsts);
    buf_free(&p->block);
    buf_free(&p->found);
    free(p);
}

bool place_index_is_empty(const struct place_index *p)
{
    return p->n == 0 && p->nruns == 0;
}

static int key_order(struct place_key a, struct place_key b)
{
    if (a.owner != b.owner)
        return a.owner < b.owner ? -1 : 1;
    return a.value_id < b.value_id ? -1 : a.value_id > b.value_id;
}

static uint32_t bucket_of(struct place_key key)
{
    uint32_t h = (key.value_id ^ key.owner * 0x9e3779b1u) * 0x85ebca6bu;
    return (h ^ h >> 15) % BUCKETS;
}

/* By key, entries of one key in the order of adding: `next` holds that order while sorting. */
static int entry_order(const void *a, const void *b)
{
    const struct place_entry *x = a, *y = b;
    int by_key = key_order(x->key, y->key);
    return by_key != 0 ? by_key : x->next < y->next ? -1 : x->next > y->next;
}

static enum status block_write(struct place_index *p, const struct place_entry *entries, uint32_t n,
                               struct error *err)
{
    size_t bytes = n * sizeof *entries;
    uint32_t head[2] = {n, crc32c(entries, bytes)};
    off_t at = (off_t)p->nblocks * (off_t)BLOCK_BYTES;
    TRY(file_pwrite_all(p->fd, head, sizeof head, at, p->spill_dir, err));
    TRY(file_pwrite_all(p->fd, entries, bytes, at + (off_t)BLOCK_HEAD, p->spill_dir, err));
    if (p->nblocks == p->firsts_cap) {
        p->firsts_cap = p->firsts_cap == 0 ? 256 : 2 * p->firsts_cap;
        p->firsts = xrealloc(p->firsts, p->firsts_cap * sizeof *p->firsts);
    }
    p->firsts[p->nblocks++] = entries[0].key;
    return OK;
}

static enum status run_write(struct place_index *p, struct error *err)
{
    if (p->fd < 0)
        p->fd = open(p->spill_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (p->fd < 0)
        return error_sys(err, ERR_CONFIG, "cannot create a file in %s", p->spill_dir);
    for (uint32_t i = 0; i < p->n; i++)
        p->entries[i].next = i;
    qsort(p->entries, p->n, sizeof *p->entries, entry_order);
    struct run run = {.first_block = p->nblocks, .last = p->entries[p->n - 1].key};
    for (uint32_t i = 0; i < p->n; i += BLOCK_ENTRIES)
        TRY(block_write(p, p->entries + i, MIN(BLOCK_ENTRIES, p->n - i), err));
    run.nblocks = p->nblocks - run.first_block;
    if (p->nruns == p->runs_cap) {
        p->runs_cap = p->runs_cap == 0 ? 16 : 2 * p->runs_cap;
        p->runs = xrealloc(p->runs, p->runs_cap * sizeof *p->runs);
    }
    p->runs[p->nruns++] = run;
    memory_clear(p);
    return OK;
}

enum status place_index_add(struct place_index *p, struct place_key key, uint32_t seq,
                            struct xact_place place, struct error *err)
{
    if (p->n == p->max_entries)
        TRY(run_write(p, err));
    if (p->n == p->cap) {
        p->cap = p->cap == 0 ? 64 : MIN(2 * p->cap, MAX(p->max_entries, 64u));
        p->entries = xrealloc(p->entries, p->cap * sizeof *p->entries);
    }
    uint32_t bucket = bucket_of(key);
    struct place_entry *e = &p->entries[p->n++];
    memset(e, 0, sizeof *e); /* written as it is: no byte undefined */
    e->key = key;
    e->seq = seq;
    e->next = p->buckets[bucket];
    e->place = place;
    p->buckets[bucket] = p->n;
    return OK;
}

static enum status block_read(struct place_index *p, uint32_t number, struct error *err)
{
    uint32_t head[2];
    off_t at = (off_t)number * (off_t)BLOCK_BYTES;
    if (p->cached == number)
        return OK;
    p->cached = NO_BLOCK;
    TRY(file_pread_all(p->fd, head, sizeof head, at, "index of TOAST chunks", err));
    if (head[0] == 0 || head[0] > BLOCK_ENTRIES)
        return error_set(err, ERR_DATA, "index of TOAST chunks: block %u has %u entries", number,
                         head[0]);
    buf_reset(&p->block);
    size_t bytes = head[0] * sizeof(struct place_entry);
    buf_reserve(&p->block, bytes);
    TRY(file_pread_all(p->fd, p->block.data, bytes, at + (off_t)BLOCK_HEAD, "index of TOAST chunks",
                       err));
    p->block.len = bytes;
    if (crc32c(p->block.data, bytes) != head[1])
        return error_set(err, ERR_DATA, "index of TOAST chunks: wrong checksum of block %u",
                         number);
    p->cached = number;
    return OK;
}

/* The last block of the run whose first key is below the key: where its first entry may be. */
static uint32_t block_search(const struct place_index *p, const struct run *run,
                             struct place_key key)
{
    uint32_t low = run->first_block, high = run->first_block + run->nblocks;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (key_order(p->firsts[middle], key) < 0)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static enum status run_find(struct place_index *p, const struct run *run, struct place_key key,
                            struct error *err)
{
    if (key_order(key, p->firsts[run->first_block]) < 0 || key_order(key, run->last) > 0)
        return OK;
    for (uint32_t number = block_search(p, run, key);
         number < run->first_block + run->nblocks && key_order(p->firsts[number], key) <= 0;
         number++) {
        TRY(block_read(p, number, err));
        const struct place_entry *e = (const struct place_entry *)p->block.data;
        for (size_t i = 0; i < p->block.len / sizeof *e; i++)
            if (key_order(e[i].key, key) == 0)
                buf_put(&p->found, &e[i], sizeof *e);
    }
    return OK;
}

static void memory_find(struct place_index *p, struct place_key key)
{
    size_t from = p->found.len / sizeof(struct place_entry);
    for (uint32_t i = p->buckets[bucket_of(key)]; i != 0; i = p->entries[i - 1].next)
        if (key_order(p->entries[i - 1].key, key) == 0)
            buf_put(&p->found, &p->entries[i - 1], sizeof p->entries[0]);
    /* the newest came first */
    struct place_entry *e = (struct place_entry *)p->found.data;
    size_t to = p->found.len / sizeof *e;
    for (; from + 1 < to; from++, to--) {
        struct place_entry swap = e[from];
        e[from] = e[to - 1];
        e[to - 1] = swap;
    }
}

enum status place_index_find(struct place_index *p, struct place_key key,
                             const struct place_entry **ret, size_t *ret_n, struct error *err)
{
    buf_reset(&p->found);
    for (uint32_t i = 0; i < p->nruns; i++)
        TRY(run_find(p, &p->runs[i], key, err));
    memory_find(p, key);
    *ret = (const struct place_entry *)p->found.data;
    *ret_n = p->found.len / sizeof(struct place_entry);
    return OK;
}
