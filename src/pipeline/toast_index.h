/* TOAST values written by a transaction, found again by value id: an index of chunk places made
 * while its frames are planned, never a copy of the chunks. */
#pragma once
#include "xact/buffer.h"

struct toast_index;

struct toast_index *toast_index_new(void);
void toast_index_free(struct toast_index *t);
void toast_index_clear(struct toast_index *t);
bool toast_index_is_empty(const struct toast_index *t);
/* Takes note of a chunk: an insert into a TOAST table (chunk_id oid, chunk_seq int4, chunk_data
 * bytea). ERR_DATA if the tuple is not one. owner: the oid of the table it belongs to. */
enum status toast_index_add(struct toast_index *t, Oid owner, const struct change_frame *f,
                            const struct xact_reader *reader, struct error *err) CHECKED;
/* True if all chunks of the value are there and add up to its size. */
bool toast_index_has(const struct toast_index *t, Oid owner, const struct toast_pointer *p);
/* Puts the value together: exactly p->extsize bytes to ret. */
enum status toast_index_fetch(const struct toast_index *t, Oid owner, const struct toast_pointer *p,
                              struct xact *x, uint8_t *ret, struct error *err) CHECKED;
