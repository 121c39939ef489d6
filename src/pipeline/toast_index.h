/* TOAST values written by a transaction, found again by value id: an index of chunk places made
 * while its frames are planned, never a copy of the chunks. Past 1 MiB it lies in a file. */
#pragma once
#include "xact/buffer.h"

struct toast_index;

struct toast_index *toast_index_new(const char *spill_dir);
void toast_index_free(struct toast_index *t);
void toast_index_clear(struct toast_index *t);
bool toast_index_is_empty(const struct toast_index *t);
/* Takes note of a chunk: an insert into a TOAST table (chunk_id oid, chunk_seq int4, chunk_data
 * bytea). ERR_DATA if the tuple is not one. owner: the oid of the table it belongs to. Of a value
 * whose first chunks are not in the transaction (it began before the load did) nothing is found. */
enum status toast_index_add(struct toast_index *t, Oid owner, const struct change_frame *f,
                            const struct xact_reader *reader, struct error *err) CHECKED;
/* True if all chunks of the value are there and add up to its size, or if the index is damaged. */
bool toast_index_has(const struct toast_index *t, Oid owner, const struct toast_pointer *p);
/* Puts the value together: exactly p->extsize bytes to ret. */
enum status toast_index_fetch(const struct toast_index *t, Oid owner, const struct toast_pointer *p,
                              struct xact *x, uint8_t *ret, struct error *err) CHECKED;
