#include "pg/wal_parse.h"

#define BKPBLOCK_FORK_MASK 0x0F
#define BKPBLOCK_HAS_IMAGE 0x10
#define BKPBLOCK_HAS_DATA 0x20
#define BKPBLOCK_WILL_INIT 0x40
#define BKPBLOCK_SAME_REL 0x80

#define BKPIMAGE_HAS_HOLE 0x01
#define BKPIMAGE_APPLY 0x02
#define BKPIMAGE_COMPRESSED (0x04 | 0x08 | 0x10) /* pglz, lz4, zstd */

/* Where the header part is being read; `end` is the end of what is there. */
struct head {
    const uint8_t *at;
    const uint8_t *end;
    const struct rel_file_locator *last_rel; /* for BKPBLOCK_SAME_REL */
    uint64_t body_len;                       /* announced so far: images, block data, main data */
};

static inline bool head_get(struct head *h, void *to, size_t n)
{
    if ((size_t)(h->end - h->at) < n)
        return false;
    memcpy(to, h->at, n);
    h->at += n;
    return true;
}

static enum status head_cut(struct error *err)
{
    return error_set(err, ERR_DATA, "WAL record's headers do not fit into it");
}

/* XLogRecordBlockImageHeader and, for a compressed image with a hole, its length. */
static enum status image_header_parse(struct head *h, struct wal_block *b, struct error *err)
{
    struct __attribute__((packed)) {
        uint16_t len, hole_offset;
        uint8_t info;
    } image;
    if (!head_get(h, &image, sizeof image))
        return head_cut(err);
    b->image_len = image.len;
    b->hole_offset = image.hole_offset;
    b->image_flags = image.info;
    b->apply_image = (image.info & BKPIMAGE_APPLY) != 0;
    bool hole = (image.info & BKPIMAGE_HAS_HOLE) != 0;
    bool compressed = (image.info & BKPIMAGE_COMPRESSED) != 0;
    b->hole_len = 0;
    if (compressed && hole) {
        if (!head_get(h, &b->hole_len, 2))
            return head_cut(err);
    } else if (!compressed) {
        if (image.len > PG_BLCKSZ)
            return error_set(err, ERR_DATA, "block %u has an image of %u bytes", b->id, image.len);
        b->hole_len = (uint16_t)(PG_BLCKSZ - image.len);
    }
    bool sound = hole ? b->hole_offset > 0 && b->hole_len > 0 && image.len > 0
                      : b->hole_offset == 0 && b->hole_len == 0;
    if (compressed ? image.len >= PG_BLCKSZ : !hole && image.len != PG_BLCKSZ)
        sound = false;
    if ((uint32_t)b->hole_offset + b->hole_len > PG_BLCKSZ || !sound)
        return error_set(err, ERR_DATA,
                         "block %u has an impossible image: length %u, hole %u+%u, flags %02X",
                         b->id, image.len, b->hole_offset, b->hole_len, image.info);
    h->body_len += image.len;
    return OK;
}

/* XLogRecordBlockHeader and what follows it. */
static enum status block_header_parse(struct head *h, uint8_t id, struct wal_record *r,
                                      struct error *err)
{
    if (r->nblocks > 0 && id <= r->blocks[r->nblocks - 1].id)
        return error_set(err, ERR_DATA, "WAL record has block id %u after %u", id,
                         r->blocks[r->nblocks - 1].id);
    struct wal_block *b = &r->blocks[r->nblocks];
    uint8_t flags;
    if (!head_get(h, &flags, 1) || !head_get(h, &b->data_len, 2))
        return head_cut(err);
    b->id = id;
    b->fork = flags & BKPBLOCK_FORK_MASK;
    b->will_init = (flags & BKPBLOCK_WILL_INIT) != 0;
    b->has_image = (flags & BKPBLOCK_HAS_IMAGE) != 0;
    b->has_data = (flags & BKPBLOCK_HAS_DATA) != 0;
    b->image = b->data = NULL;
    if (b->fork > INIT_FORKNUM)
        return error_set(err, ERR_DATA, "block %u has fork %u", id, b->fork);
    if (b->has_data != (b->data_len > 0))
        return error_set(err, ERR_DATA, "block %u has data length %u against its flags %02X", id,
                         b->data_len, flags);
    h->body_len += b->data_len;
    if (b->has_image) {
        TRY(image_header_parse(h, b, err));
    } else {
        b->apply_image = false;
        b->image_flags = 0;
        b->image_len = b->hole_offset = b->hole_len = 0;
    }
    if (flags & BKPBLOCK_SAME_REL) {
        if (h->last_rel == NULL)
            return error_set(err, ERR_DATA, "block %u refers to a relation before it", id);
        b->locator = *h->last_rel;
    } else if (!head_get(h, &b->locator, sizeof b->locator)) {
        return head_cut(err);
    }
    h->last_rel = &b->locator;
    if (!head_get(h, &b->block, 4))
        return head_cut(err);
    r->nblocks++;
    return OK;
}

/* Walks the chunk headers. Stops where only announced bytes are left, as PostgreSQL does. */
static enum status chunks_parse(struct head *h, uint64_t body, const uint8_t *body_start,
                                struct wal_record *r, struct error *err)
{
    while (body - (uint64_t)(h->at - body_start) > h->body_len) {
        uint8_t id;
        if (!head_get(h, &id, 1))
            return head_cut(err);
        if (id <= XLR_MAX_BLOCK_ID) {
            TRY(block_header_parse(h, id, r, err));
        } else if (id == XLR_BLOCK_ID_DATA_SHORT) {
            uint8_t n;
            if (!head_get(h, &n, 1))
                return head_cut(err);
            r->main_len = n;
            h->body_len += n;
            break; /* main data is always last */
        } else if (id == XLR_BLOCK_ID_DATA_LONG) {
            if (!head_get(h, &r->main_len, 4))
                return head_cut(err);
            h->body_len += r->main_len;
            break;
        } else if (id == XLR_BLOCK_ID_ORIGIN) {
            uint16_t origin;
            if (!head_get(h, &origin, 2))
                return head_cut(err);
        } else if (id == XLR_BLOCK_ID_TOPLEVEL_XID) {
            if (!head_get(h, &r->toplevel_xid, 4))
                return head_cut(err);
        } else {
            return error_set(err, ERR_DATA, "WAL record has the unknown chunk id %u", id);
        }
        if ((uint64_t)(h->at - body_start) > body)
            return head_cut(err);
    }
    if (body - (uint64_t)(h->at - body_start) != h->body_len)
        return error_set(err, ERR_DATA, "WAL record announces %llu bytes of data and has %llu",
                         (unsigned long long)h->body_len,
                         (unsigned long long)(body - (uint64_t)(h->at - body_start)));
    return OK;
}

static enum status head_parse(const uint8_t *bytes, size_t have, struct wal_record *ret,
                              const uint8_t **ret_data, struct error *err)
{
    if (have < SizeOfXLogRecord)
        return error_set(err, ERR_DATA, "WAL record of %zu bytes is shorter than its header", have);
    ret->total_len = wal_header_total_len(bytes);
    memcpy(&ret->xid, bytes + 4, 4);
    ret->prev = wal_header_prev(bytes);
    ret->info = wal_header_info(bytes);
    ret->rmid = wal_header_rmid(bytes);
    ret->toplevel_xid = 0;
    ret->nblocks = 0;
    ret->main_data = NULL;
    ret->main_len = 0;
    if (ret->total_len < SizeOfXLogRecord || have > ret->total_len)
        return error_set(err, ERR_DATA, "WAL record has length %u where %zu bytes are given",
                         ret->total_len, have);
    struct head h = {bytes + SizeOfXLogRecord, bytes + have, NULL, 0};
    TRY(chunks_parse(&h, ret->total_len - SizeOfXLogRecord, bytes + SizeOfXLogRecord, ret, err));
    *ret_data = h.at;
    return OK;
}

enum status wal_record_parse(const uint8_t *bytes, uint32_t len, struct wal_record *ret,
                             struct error *err)
{
    const uint8_t *data;
    TRY(head_parse(bytes, len, ret, &data, err));
    if (ret->total_len != len)
        return error_set(err, ERR_DATA, "WAL record has length %u where %u bytes are given",
                         ret->total_len, len);
    ret->body_skipped = false;
    for (unsigned i = 0; i < ret->nblocks; i++) { /* lengths were summed up by chunks_parse */
        struct wal_block *b = &ret->blocks[i];
        if (b->has_image) {
            b->image = data;
            data += b->image_len;
        }
        if (b->has_data) {
            b->data = data;
            data += b->data_len;
        }
    }
    if (ret->main_len > 0)
        ret->main_data = data;
    return OK;
}

enum status wal_record_parse_head(const uint8_t *bytes, size_t have, struct wal_record *ret,
                                  struct error *err)
{
    const uint8_t *data;
    TRY(head_parse(bytes, have, ret, &data, err));
    ret->body_skipped = true;
    return OK;
}
