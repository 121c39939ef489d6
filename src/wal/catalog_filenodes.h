/* Which (database, filenode) are catalog files, so that their pages go to the shadow.
 *
 * Filenodes below 16384 are initdb's and count without an entry, except those of pg_largeobject and
 * its index, which hold user data (notes C11). Database 0 (shared catalogs) always counts.
 * Owned by one thread at a time: filled before the stream starts, then the pump's. */
#pragma once
#include "base/error.h"
#include "pg/pg.h"

#include <stddef.h>

#define LARGEOBJECT_OID 2613u
#define LARGEOBJECT_INDEX_OID 2683u

/* Its name in the state directory. */
#define CATALOG_FILENODES_FILE "catalog_filenodes"

struct catalog_filenodes;

struct catalog_filenodes *catalog_filenodes_new(void);
void catalog_filenodes_free(struct catalog_filenodes *set);
/* Adding what is there is fine. True if it was new. */
bool catalog_filenodes_add(struct catalog_filenodes *set, Oid db_oid, Oid filenode);
void catalog_filenodes_remove(struct catalog_filenodes *set, Oid db_oid, Oid filenode);
bool catalog_filenodes_contains(const struct catalog_filenodes *set, Oid db_oid, Oid filenode);
size_t catalog_filenodes_count(const struct catalog_filenodes *set);
/* Grows with every add or remove: save when it differs from the one last saved. */
uint64_t catalog_filenodes_version(const struct catalog_filenodes *set);

/* File: magic, format version, count, sorted (db, filenode) pairs, CRC32C. Written aside and
 * renamed. */
enum status catalog_filenodes_save(const struct catalog_filenodes *set, const char *path,
                                   struct error *err) CHECKED;
/* Adds the file's entries to set. A missing file is an error with ENOENT in sys_errno. */
enum status catalog_filenodes_load(struct catalog_filenodes *set, const char *path,
                                   struct error *err) CHECKED;
