/* INSERT with data from a client: the sample block, then its Data packets into the engine. */
#pragma once
#include "engine/chdb.h"
#include "engine/peer.h"
#include "engine/result.h"
#include "engine/sql.h"
#include "native/block_wire.h"

/* The columns an INSERT takes, in the order of its column list. */
struct engine_sample {
    struct str *names, *types; /* point into text */
    size_t n;
    struct buf text;
};
void engine_sample_free(struct engine_sample *sample); /* NULL is fine */

/* Samples by INSERT text, so that repeated inserts ask nothing. Emptied when `generation` (counted
 * up by every statement that may change a table, on any session) has moved. Owned by one session.
 */
struct engine_sample_cache {
    struct engine_sample_entry *entries; /* uthash */
    unsigned long generation;
};
void engine_sample_cache_fini(struct engine_sample_cache *cache);

/* Columns of an INSERT's target, from DESCRIBE TABLE. Owned by the cache, valid until its next use.
 */
enum status engine_sample_get(struct engine_sample_cache *cache, unsigned long generation,
                              struct chdb_session *session, const char *sql,
                              const struct sql_shape *shape,
                              const struct engine_sample **ret_sample, struct error *err) CHECKED;

/* An INSERT under way. */
struct engine_insert {
    struct chdb_writer *writer;
    const struct engine_sample *sample;
    struct buf stage; /* bytes for the next piece */
    uint64_t rows;
};
enum status engine_insert_open(struct engine_insert *insert, struct chdb_session *session,
                               const char *sql, const struct sql_shape *shape,
                               const struct engine_sample *sample, struct error *err) CHECKED;
/* Passes one block on: the reader has found its parts at data. ERR_DATA with code 7, 16, 10 or 53
 * when its columns are not those of the sample. */
enum status engine_insert_block(struct engine_insert *insert, const struct block_reader *block,
                                const uint8_t *data, struct error *err) CHECKED;
/* Commits. */
enum status engine_insert_finish(struct engine_insert *insert, struct error *err) CHECKED;
/* Always; without a finish nothing more is committed. */
void engine_insert_fini(struct engine_insert *insert);
