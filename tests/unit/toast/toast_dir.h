/* A directory of its own for a store, and what tests of stores share. */
#pragma once
#include "test.h"
#include "base/file.h"
#include "toast/store.h"

#include <unistd.h>

static char toast_parent[64];
static char toast_dir[80];

static inline void toast_dir_make(void)
{
    struct error err = {0};
    strcpy(toast_parent,
           access("/dev/shm", W_OK) == 0 ? "/dev/shm/toast-XXXXXX" : "/tmp/toast-XXXXXX");
    assert_non_null(mkdtemp(toast_parent));
    snprintf(toast_dir, sizeof toast_dir, "%s/toast", toast_parent);
    assert_ok(file_remove_tree(toast_dir, true, &err));
}

static inline void toast_dir_remove(void)
{
    struct error err = {0};
    assert_ok(file_remove_tree(toast_parent, true, &err));
}

static inline struct toast_store *toast_open(size_t pending, unsigned reclaim_rows)
{
    struct error err = {0};
    struct toast_store *store;
    struct toast_local_options o = {toast_dir, pending, 64 << 10, reclaim_rows};
    assert_ok(toast_store_open_local(&o, &store, NULL, &err));
    return store;
}

/* Byte i of chunk seq of the value known to the test as uid. */
static inline uint8_t toast_byte(uint32_t uid, uint32_t seq, uint32_t i)
{
    uint32_t x = uid * 2654435761u + seq * 40503u + i * 97u;
    return (uint8_t)(x ^ x >> 15);
}

static inline void toast_fill(uint8_t *out, uint32_t uid, uint32_t seq, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        out[i] = toast_byte(uid, seq, i);
}

/* One value, ret NULL to only look. */
static inline enum status toast_fetch(struct toast_store *s, Oid owner, Oid value_id,
                                      uint32_t extsize, XLogRecPtr lsn, void *ret,
                                      enum toast_found *ret_found, struct error *e)
{
    struct toast_request r = {
        .owner = owner, .value_id = value_id, .extsize = extsize, .lsn = lsn, .ret = ret};
    enum status st = toast_store_fetch(s, &r, 1, e);
    *ret_found = r.found;
    return st;
}
