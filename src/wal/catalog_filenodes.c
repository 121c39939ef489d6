#include "wal/catalog_filenodes.h"

#include "base/buf.h"
#include "base/crc32c.h"
#include "base/cursor.h"
#include "base/file.h"

#include <stdlib.h>

#define FILE_MAGIC "WSCATFN1"
#define FILE_VERSION 1u
#define FILE_MAX_BYTES (256u << 20)
#define SLOTS_MIN 1024u

/* Open addressing with linear probing, power-of-two size, at most half full. 0 is an empty slot:
 * no filenode is 0. */
struct catalog_filenodes {
    uint64_t *slots;
    size_t mask;
    size_t count;
    uint64_t version;
};

static inline uint64_t key_of(Oid db_oid, Oid filenode)
{
    return (uint64_t)db_oid << 32 | filenode;
}

static inline size_t slot_of(const struct catalog_filenodes *set, uint64_t key)
{
    return (size_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & set->mask;
}

struct catalog_filenodes *catalog_filenodes_new(void)
{
    struct catalog_filenodes *set = xcalloc(1, sizeof *set);
    set->slots = xcalloc(SLOTS_MIN, sizeof *set->slots);
    set->mask = SLOTS_MIN - 1;
    return set;
}

void catalog_filenodes_free(struct catalog_filenodes *set)
{
    if (set == NULL)
        return;
    free(set->slots);
    free(set);
}

/* The key's slot, or the empty one where it would go. */
static size_t find(const struct catalog_filenodes *set, uint64_t key)
{
    size_t i = slot_of(set, key);
    while (set->slots[i] != 0 && set->slots[i] != key)
        i = (i + 1) & set->mask;
    return i;
}

static void grow(struct catalog_filenodes *set)
{
    uint64_t *old = set->slots;
    size_t old_size = set->mask + 1;
    set->mask = old_size * 2 - 1;
    set->slots = xcalloc(old_size * 2, sizeof *set->slots);
    for (size_t i = 0; i < old_size; i++)
        if (old[i] != 0)
            set->slots[find(set, old[i])] = old[i];
    free(old);
}

bool catalog_filenodes_add(struct catalog_filenodes *set, Oid db_oid, Oid filenode)
{
    if (filenode == InvalidOid)
        return false;
    uint64_t key = key_of(db_oid, filenode);
    size_t i = find(set, key);
    if (set->slots[i] == key)
        return false;
    set->slots[i] = key;
    set->version++;
    if (++set->count * 2 > set->mask)
        grow(set);
    return true;
}

void catalog_filenodes_remove(struct catalog_filenodes *set, Oid db_oid, Oid filenode)
{
    uint64_t key = key_of(db_oid, filenode);
    size_t hole = find(set, key);
    if (set->slots[hole] != key || filenode == InvalidOid)
        return;
    /* entries behind the hole move up unless that would put them before their home slot */
    for (size_t i = (hole + 1) & set->mask; set->slots[i] != 0; i = (i + 1) & set->mask) {
        size_t home = slot_of(set, set->slots[i]);
        if (((i - home) & set->mask) >= ((i - hole) & set->mask)) {
            set->slots[hole] = set->slots[i];
            hole = i;
        }
    }
    set->slots[hole] = 0;
    set->count--;
    set->version++;
}

bool catalog_filenodes_contains(const struct catalog_filenodes *set, Oid db_oid, Oid filenode)
{
    if (db_oid == InvalidOid)
        return true;
    if (filenode < FirstNormalObjectId)
        return filenode != LARGEOBJECT_OID && filenode != LARGEOBJECT_INDEX_OID;
    uint64_t key = key_of(db_oid, filenode);
    return set->slots[find(set, key)] == key;
}

size_t catalog_filenodes_count(const struct catalog_filenodes *set)
{
    return set->count;
}

uint64_t catalog_filenodes_version(const struct catalog_filenodes *set)
{
    return set->version;
}

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

enum status catalog_filenodes_save(const struct catalog_filenodes *set, const char *path,
                                   struct error *err)
{
    CLEANUP_FREE uint64_t *keys = xmalloc((set->count + 1) * sizeof *keys);
    size_t n = 0;
    for (size_t i = 0; i <= set->mask; i++)
        if (set->slots[i] != 0)
            keys[n++] = set->slots[i];
    qsort(keys, n, sizeof *keys, compare_keys);
    struct buf CLEANUP_BUF b = {0};
    buf_put(&b, FILE_MAGIC, 8);
    buf_put_u32(&b, FILE_VERSION);
    buf_put_u32(&b, (uint32_t)n);
    buf_put(&b, keys, n * sizeof *keys);
    buf_put_u32(&b, crc32c(b.data, b.len));
    return file_write_atomic(path, b.data, b.len, 0600, err);
}

enum status catalog_filenodes_load(struct catalog_filenodes *set, const char *path,
                                   struct error *err)
{
    struct buf CLEANUP_BUF b = {0};
    TRY(file_read_all(path, FILE_MAX_BYTES, &b, err));
    struct cursor c = cursor_of(b.data, b.len);
    const uint8_t *magic = cursor_take(&c, 8);
    if (magic == NULL || memcmp(magic, FILE_MAGIC, 8) != 0)
        return error_set(err, ERR_DATA, "%s is not a list of catalog filenodes", path);
    uint32_t version = cursor_u32(&c);
    if (version != FILE_VERSION)
        return error_set(err, ERR_CONFIG, "%s has format version %u, this program knows %u", path,
                         version, FILE_VERSION);
    uint32_t n = cursor_u32(&c);
    const uint8_t *keys = cursor_take(&c, (size_t)n * 8);
    uint32_t crc = cursor_u32(&c);
    if (!cursor_ok(&c) || cursor_left(&c) != 0 || crc != crc32c(b.data, b.len - 4))
        return error_set(err, ERR_DATA, "%s is damaged (%zu bytes, %u entries)", path, b.len, n);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t key;
        memcpy(&key, keys + (size_t)i * 8, 8);
        catalog_filenodes_add(set, (Oid)(key >> 32), (Oid)key);
    }
    return OK;
}
