/* The TOAST chunk store: chunks of out-of-line values by the position in the WAL that wrote them,
 * so that a row which refers to a value of an earlier transaction can be put together.
 *
 * Everything that happens to chunks is an event at an LSN. A chunk is alive at L if born <= L and
 * neither a death of its TID nor a reset of its owner lies in (born, L].
 * Events are facts and only added: the order in which they come and how often does not matter, so
 * those after the floor are simply put again after a restart, and a seed may come after the death
 * of its chunk.
 *
 * Only events of committed transactions are put. Threads: every function but close may be called by
 * any thread at any time. */
#pragma once
#include "base/lsn.h"
#include "pg/tuple.h"

enum toast_event_kind {
    TOAST_BIRTH = 1, /* INSERT into a TOAST table; or a chunk found by the load or a copy */
    TOAST_DEATH,     /* DELETE from a TOAST table: by TID, its record has no key */
    TOAST_RESET,     /* all chunks of the owner born before lsn are gone */
};

/* owner: the table whose TOAST table it is (not the TOAST table, whose oid a rewrite may change).
 * lsn: start of the record. Of a chunk found by the load: backup start - 1; by a copy: the copy's
 * LSN (after a reset at that LSN if the table's chunks were not followed until then). Of a reset:
 * TRUNCATE, the start of its record; DROP, the commit's; a rewrite, the record of the first chunk
 * in the new file, the commit's if there is none: what was written to the old file is older, what
 * is in the new one is not. SET TABLESPACE keeps TIDs: no event. */
struct toast_event {
    uint8_t kind; /* enum toast_event_kind */
    bool seed;    /* a birth that the load or a copy found: its death may have been put before */
    Oid owner;
    XLogRecPtr lsn;
    uint64_t tid; /* of the chunk's row, tid_make; births and deaths */
    /* births */
    Oid value_id;
    uint32_t seq;
    uint32_t len; /* at most TOAST_CHUNK_BYTES_MAX */
    const uint8_t *data;
};

#define TOAST_CHUNK_BYTES_MAX 32768u /* a chunk is a row of a page, whatever BLCKSZ is */

enum toast_found {
    TOAST_UNANSWERED, /* the call failed before it came to this value */
    TOAST_FOUND,
    TOAST_MISSING,    /* the value's first chunk is not alive there */
    TOAST_INCOMPLETE, /* chunks are missing, or they do not add up to the pointer's size */
};

/* A value that is wanted: its stored bytes (compressed ones as they are) as of lsn, the start of
 * the record that carries the pointer, or the load's or copy's LSN. lsn must not lie before the LSN
 * last given to toast_store_reclaim. */
struct toast_request {
    Oid owner, value_id;
    uint32_t extsize; /* the pointer's */
    XLogRecPtr lsn;
    uint8_t *ret; /* extsize bytes, or NULL to only look whether the value is there; its content is
                     defined only if found is TOAST_FOUND */
    enum toast_found found; /* the answer */
};

struct toast_stats {
    uint64_t chunks;        /* stored, dead ones included, without pending ones */
    uint64_t deaths;        /* stored and not yet reclaimed */
    uint64_t used_bytes;    /* of pages in use; 0 if the store has no files */
    uint64_t disk_bytes;    /* what the files occupy */
    uint64_t pending_bytes; /* in memory, not yet written */
    uint64_t put_chunks, fetched_chunks, reclaimed_chunks; /* since open */
};

struct toast_store;

struct toast_local_options {
    const char *dir;          /* made if it does not exist */
    size_t pending_bytes_max; /* events held in memory until they are written; 0: 8 MiB. While they
                                 are written as much again may gather. */
    uint64_t first_map_bytes; /* address space to begin with, grows by itself; 0: 256 MiB */
    unsigned
        reclaim_rows_max; /* rows taken away in one transaction, which bounds its memory; 0: 2048 */
};

struct ch_endpoint;
struct toast_clickhouse_options {
    const struct ch_endpoint *endpoint; /* its strings outlive the store */
    const char *database;               /* made if it does not exist */
    const char *comment; /* of its tables: whose they are. A table of another comment is refused */
    bool empty;          /* what an earlier load left is dropped */
    size_t pending_bytes_max;  /* as of toast_local_options */
    uint64_t reclaim_pause_ns; /* between two looks at what of a table died; 0: 30 s */
    void *ctx;
    bool (*stopping)(void *ctx); /* waits for a server that cannot be reached end; NULL: never */
};

/* Fills nothing, forgets everything: every fetch is TOAST_MISSING. */
struct toast_store *toast_store_open_disabled(void);
/* LMDB in o->dir. *ret_created (may be NULL): it was not there before. ERR_CONFIG: the directory
 * cannot be used or is of a newer format; ERR_DATA: it is damaged. Both name the directory. */
enum status toast_store_open_local(const struct toast_local_options *o,
                                   struct toast_store **ret_store, bool *ret_created,
                                   struct error *err) CHECKED;
/* Tables in ClickHouse. Calls wait while the server cannot be reached. ERR_CONFIG: the database has
 * tables of another source under these names. */
enum status toast_store_open_clickhouse(const struct toast_clickhouse_options *o,
                                        struct toast_store **ret_store, struct error *err) CHECKED;
/* The comment of the tables of one source's database; malloc'd. */
char *toast_clickhouse_comment(uint64_t system_id, Oid database);
/* Drops the chunk tables with this comment, in whatever database they are. No store uses them. */
enum status toast_clickhouse_remove(const struct ch_endpoint *endpoint, const char *comment,
                                    unsigned *ret_dropped, struct error *err) CHECKED;
/* Does not write what is pending: what depends on it was synced. NULL is safe; returns NULL. */
struct toast_store *toast_store_close(struct toast_store *store);

/* Takes the events (copies them); visible to fetches at once. Writes when enough are pending, so it
 * may wait for the disk; after an error nothing is lost that was put, a later call tries again. */
enum status toast_store_put(struct toast_store *store, const struct toast_event *events, size_t n,
                            struct error *err) CHECKED;

/* Answers the requests, best many at once: in ClickHouse the values of one table and a MiB are one
 * query. ERR_DATA: a stored chunk is damaged; requests that were answered before stay so. */
enum status toast_store_fetch(struct toast_store *store, struct toast_request *requests, size_t n,
                              struct error *err) CHECKED;

/* Returns when all events before floor that were put before the call survive a loss of power. To be
 * called before floor is saved. Costs nothing if there is nothing to write. */
enum status toast_store_sync(struct toast_store *store, XLogRecPtr floor,
                             struct error *err) CHECKED;

/* Gives up what died before floor, a saved one, and returns its room. While a load or a copy puts
 * seeds floor must not lie after their LSN (a death must still be known when its seed comes).
 * Works in short transactions between which other threads get their turn. */
enum status toast_store_reclaim(struct toast_store *store, XLogRecPtr floor,
                                struct error *err) CHECKED;

enum status toast_store_stats(struct toast_store *store, struct toast_stats *ret,
                              struct error *err) CHECKED;
