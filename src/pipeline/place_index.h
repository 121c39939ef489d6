/* Where the chunks of TOAST values lie in a transaction, by owner and value id, in the order in
 * which they were added: in memory up to a limit, beyond it in a file of the spill directory. The
 * file has no name (it goes away with its descriptor, also after a kill) and a checksum for every
 * block, which is looked at whenever one is read. */
#pragma once
#include "xact/buffer.h"

#define PLACE_INDEX_MAX_BYTES ((size_t)1 << 20)

struct place_key {
    Oid owner;
    Oid value_id;
};

struct place_entry {
    struct place_key key;
    uint32_t seq;  /* chunk_seq */
    uint32_t next; /* in memory: the entry before it in its bucket, + 1; 0 = none */
    struct xact_place place;
};

struct place_index;
struct place_index *place_index_new(const char *spill_dir, size_t max_bytes);
void place_index_free(struct place_index *p); /* NULL is fine */
void place_index_clear(struct place_index *p);
bool place_index_is_empty(const struct place_index *p);
/* May write to the file. */
enum status place_index_add(struct place_index *p, struct place_key key, uint32_t seq,
                            struct xact_place place, struct error *err) CHECKED;
/* All entries of the key in order; valid until the next call. */
enum status place_index_find(struct place_index *p, struct place_key key,
                             const struct place_entry **ret, size_t *ret_n,
                             struct error *err) CHECKED;
