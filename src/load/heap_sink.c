/* From tar bytes to batches of whole pages. */
#include "load/byte_pipe.h"
#include "load/load_internal.h"
#include "load/tar_split.h"

#include <stdlib.h>

struct heap_sink {
    struct load *load;
    struct load_rel *rel; /* of the file at hand; NULL: its bytes are not needed */
    struct page_batch *batch;
    BlockNumber next_block;
    uint8_t *page;    /* that has begun */
    uint32_t in_page; /* bytes of it */
    uint64_t left;    /* whole pages of the file still to come */
};

struct heap_sink *heap_sink_new(struct load *l)
{
    struct heap_sink *s = xcalloc(1, sizeof *s);
    s->load = l;
    return s;
}

void heap_sink_free(struct heap_sink *s)
{
    if (s == NULL)
        return;
    page_batch_free(s->batch);
    free(s);
}

static enum status sink_read(void *ctx, const uint8_t **ret, size_t *ret_len, struct error *err)
{
    struct heap_sink *s = ctx;
    return byte_pipe_read(s->load->pipe, ret, ret_len, err);
}

static enum status batch_push(struct heap_sink *s, struct error *err)
{
    struct page_batch *batch = s->batch;
    s->batch = NULL;
    if (batch == NULL)
        return OK;
    if (batch->npages == 0) {
        page_batch_free(batch);
        return OK;
    }
    return release_push(s->load->release, batch, err);
}

static enum status sink_begin(void *ctx, struct rel_file_locator locator, uint32_t segment,
                              uint64_t size, struct error *err)
{
    struct heap_sink *s = ctx;
    s->rel = load_rel_find(s->load, locator);
    CHECK(s->rel != NULL); /* is_wanted said so */
    if (segment > UINT32_MAX / LOAD_SEGMENT_BLOCKS ||
        size > (uint64_t)LOAD_SEGMENT_BLOCKS * PG_BLCKSZ)
        return error_set(err, ERR_DATA,
                         "backup of %s.%s: segment file %u of %llu bytes; only segments of 1 GiB "
                         "are supported",
                         s->rel->desc->schema, s->rel->desc->name, segment,
                         (unsigned long long)size);
    s->next_block = segment * LOAD_SEGMENT_BLOCKS;
    s->in_page = 0;
    s->left = size / PG_BLCKSZ; /* half a page at the end: the file was just growing, and what the
                                   new page holds is in the WAL */
    return OK;
}

/* A page whose bytes came in one piece stays where it is. */
static bool page_lend(struct heap_sink *s, const uint8_t *bytes, size_t len)
{
    struct byte_memory *m =
        len < PG_BLCKSZ ? NULL : byte_pipe_lent(s->load->pipe, bytes, PG_BLCKSZ);
    if (m == NULL)
        return false;
    page_batch_lend(s->batch, s->next_block, (uint8_t *)(uintptr_t)bytes, m);
    return true;
}

static enum status sink_data(void *ctx, const uint8_t *bytes, size_t len, struct error *err)
{
    struct heap_sink *s = ctx;
    if (atomic_load_explicit(&s->rel->stopped, memory_order_relaxed))
        return OK;
    while (len > 0 && (s->in_page > 0 || s->left > 0)) {
        uint32_t n = (uint32_t)MIN(len, (size_t)(PG_BLCKSZ - s->in_page));
        bool begins = s->in_page == 0;
        if (s->batch == NULL)
            s->batch = page_batch_new(s->rel);
        if (!begins || !page_lend(s, bytes, len)) {
            if (begins)
                s->page = page_batch_add(s->batch, s->next_block);
            memcpy(s->page + s->in_page, bytes, n);
            s->in_page = (s->in_page + n) % PG_BLCKSZ;
        }
        s->next_block += begins;
        s->left -= begins;
        bytes += n;
        len -= n;
        if (s->in_page == 0 && s->batch->npages == PAGE_BATCH_PAGES)
            TRY(batch_push(s, err));
    }
    return OK;
}

static enum status sink_end(void *ctx, struct error *err)
{
    struct heap_sink *s = ctx;
    if (s->in_page != 0) { /* the table stopped in the middle of a page */
        page_batch_free(s->batch);
        s->batch = NULL;
        return OK;
    }
    return batch_push(s, err);
}

static bool sink_is_wanted(void *ctx, struct rel_file_locator locator)
{
    struct heap_sink *s = ctx;
    const struct load_rel *rel = load_rel_find(s->load, locator);
    return rel != NULL && !atomic_load(&rel->stopped);
}

static bool sink_is_catalog(void *ctx, struct rel_file_locator locator)
{
    const struct heap_sink *s = ctx;
    return s->load->options.is_catalog(s->load->options.ctx, locator);
}

enum status heap_sink_run(struct heap_sink *s, struct error *err)
{
    const struct tar_split split = {
        .rules = {.db_oid = s->load->options.db_oid,
                  .db_tablespace = s->load->options.db_tablespace,
                  .ctx = s,
                  .is_catalog = sink_is_catalog,
                  .is_wanted = sink_is_wanted},
        .shadow_dir = s->load->shadow_dir,
        .ctx = s,
        .read = sink_read,
        .heap_begin = sink_begin,
        .heap_data = sink_data,
        .heap_end = sink_end,
    };
    for (;;) {
        bool more;
        Oid oid;
        TRY(byte_pipe_next(s->load->pipe, &more, &oid, err));
        if (!more)
            return OK;
        TRY(tar_split_run(&split, oid, err));
    }
}
