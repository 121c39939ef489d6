/* What an entry of a BASE_BACKUP archive is, told by its name alone.
 * Source of the names: PostgreSQL documentation, "Database File Layout";
 * backend/backup/basebackup.c. */
#pragma once
#include "base/error.h"
#include "pg/pg.h"

#define TAR_PATH_MAX 1024

enum tar_action {
    TAR_SKIP, /* nothing of it is kept */
    TAR_DIR,  /* a directory of the shadow; `path` */
    TAR_LAND, /* a file of the shadow; `path` */
    TAR_HEAP, /* pages of a relation that is loaded; `locator`, `segment` */
};

enum tar_kind { TAR_KIND_FILE, TAR_KIND_DIR, TAR_KIND_OTHER /* links, devices … */ };

struct tar_rules {
    Oid db_oid;
    Oid db_tablespace; /* where our database's catalogs are: dattablespace */
    void *ctx;
    bool (*is_catalog)(void *ctx, struct rel_file_locator locator); /* filenodes ≥ 16384 */
    bool (*is_wanted)(void *ctx, struct rel_file_locator locator); /* user tables that are loaded */
};

struct tar_target {
    enum tar_action action;
    char path[TAR_PATH_MAX]; /* below the shadow's data directory */
    struct rel_file_locator locator;
    uint32_t segment; /* N of a file FILENODE.N */
};

/* tablespace_oid 0: the archive of the data directory. Whatever is not known by name is skipped.
 * ERR_DATA for a path that leaves its directory (absolute, "..") or is too long. */
enum status tar_path_classify(const struct tar_rules *rules, Oid tablespace_oid, const char *path,
                              enum tar_kind kind, struct tar_target *ret,
                              struct error *err) CHECKED;
