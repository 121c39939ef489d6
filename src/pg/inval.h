/* Shared invalidation messages, as they stand in commits, INVALIDATIONS and prepared transactions.
 * Source: storage/sinval.h; 16 bytes each in 15 to 18, id -6 from 18 on. */
#pragma once
#include "pg/pg.h"

#include <stddef.h>

#define INVAL_MESSAGE_SIZE 16u

enum inval_kind {
    INVAL_CATCACHE, /* one tuple of a catalog cache: cache_id (notes F5), db_oid */
    INVAL_CATALOG,  /* all caches of a catalog: rel_oid, db_oid */
    INVAL_RELCACHE, /* rel_oid, 0 = all; db_oid */
    INVAL_SNAPSHOT, /* rel_oid, db_oid */
    INVAL_RELMAP,   /* db_oid */
    INVAL_SMGR,     /* locator */
    INVAL_OTHER,    /* a kind that is not ours: RelationSyncCache (18) */
};

struct inval_message {
    uint8_t kind;     /* enum inval_kind */
    uint8_t cache_id; /* of INVAL_CATCACHE */
    Oid db_oid;       /* 0 = shared */
    Oid rel_oid;
    struct rel_file_locator locator; /* of INVAL_SMGR */
};

/* The messages of a record: count × 16 bytes, unaligned, in the record's memory. */
struct inval_list {
    const uint8_t *messages;
    uint32_t count;
};

/* i < count. */
struct inval_message inval_list_get(const struct inval_list *list, uint32_t i);
