/* Tuples that wait for a transaction or a multixact's members, by relation and what they wait for:
 * in memory up to a limit, beyond it in one spill file, which has no name once it is open.
 * Thread-safe. */
#pragma once
#include "load/fates.h"
#include "load/page_batch.h"

#include <stdbool.h>

struct undecided;

/* A tuple as it is kept: what visibility needs, and the tuple. */
struct undecided_tuple {
    struct page_tuple tuple;
    uint64_t tid;
    TransactionId deleter; /* it was sent, as LOAD_ROW_DELETING by this one; else 0 */
};

struct undecided *undecided_new(const struct fates *fates, const char *spill_dir, size_t max_bytes);
void undecided_free(struct undecided *u);

/* Copies the tuple, unless what it waits for is known by now: then *ret_added is false and the
 * caller decides again. So whoever sets a fate and then takes what waits for it misses nothing.
 * ERR_RETRY if the spill file cannot be written. */
enum status undecided_add(struct undecided *u, struct load_rel *rel, struct awaited awaited,
                          const struct undecided_tuple *tuple, bool *ret_added,
                          struct error *err) CHECKED;

/* Takes one portion of what waits for it out of the store: malloc'd bytes for undecided_next, the
 * relation they belong to. *ret_rows NULL: nothing (more) waits for it. */
enum status undecided_take(struct undecided *u, struct awaited awaited, struct load_rel **ret_rel,
                           uint8_t **ret_rows, size_t *ret_len, uint64_t *ret_count,
                           struct error *err) CHECKED;

/* Walks taken bytes: false at the end. ERR_DATA is not possible but for damaged bytes. */
enum status undecided_next(const uint8_t *rows, size_t len, size_t *pos, bool *ret_more,
                           struct undecided_tuple *ret, struct error *err) CHECKED;

/* All that something waits for; *ret is malloc'd, each once. */
size_t undecided_awaited(struct undecided *u, struct awaited **ret);
/* Some of what waits for one thing, of one relation: rows for undecided_next. */
struct undecided_portion {
    struct load_rel *rel;
    struct awaited awaited;
    const uint8_t *rows;
    size_t len;
    uint64_t count;
};
/* Calls fn for all there is, under the lock. fn's failure is returned. */
enum status undecided_each(struct undecided *u,
                           enum status (*fn)(void *ctx, const struct undecided_portion *p,
                                             struct error *err),
                           void *ctx, struct error *err) CHECKED;
/* Adds what undecided_each gave. ERR_DATA if the rows are damaged. */
enum status undecided_put(struct undecided *u, const struct undecided_portion *p,
                          struct error *err) CHECKED;
/* Another one after every change. */
uint64_t undecided_version(const struct undecided *u);
bool undecided_waits_for(struct undecided *u, struct awaited awaited);
uint64_t undecided_count(struct undecided *u);
size_t undecided_spilled_bytes(struct undecided *u);
