/* Reads one archive of a BASE_BACKUP and splits it: what belongs to the shadow lands in its data
 * directory, the pages of tables that are loaded go to a sink, nothing else is kept. */
#pragma once
#include "load/tar_path.h"

#include <stddef.h>

struct tar_split {
    struct tar_rules rules;
    const char *shadow_dir; /* NULL: nothing lands */
    void *ctx;
    /* The next bytes of the archive: *ret_len 0 at its end. They stay valid until the next call. */
    enum status (*read)(void *ctx, const uint8_t **ret, size_t *ret_len, struct error *err);
    /* One file of a wanted relation: begin, data in order, end. */
    enum status (*heap_begin)(void *ctx, struct rel_file_locator locator, uint32_t segment,
                              uint64_t size, struct error *err);
    enum status (*heap_data)(void *ctx, const uint8_t *bytes, size_t len, struct error *err);
    enum status (*heap_end)(void *ctx, struct error *err);
};

/* Reads the archive to its end. ERR_DATA for a damaged or cut one; a failure of a callback is
 * returned. */
enum status tar_split_run(const struct tar_split *split, Oid tablespace_oid,
                          struct error *err) CHECKED;
