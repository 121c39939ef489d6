/* A row of a TOAST table: chunk_id oid, chunk_seq int4, chunk_data bytea (access/toast_internals.c,
 * the same in 15 to 18). */
#pragma once
#include "toast/store.h"

struct toast_chunk {
    Oid value_id;
    uint32_t seq;
    const uint8_t *data; /* points into the tuple */
    uint32_t len;        /* 1 … TOAST_CHUNK_BYTES_MAX */
};

/* ERR_DATA if the tuple is not one; *ret is then untouched. Any thread. */
enum status toast_chunk_parse(const struct raw_tuple *tuple, struct toast_chunk *ret,
                              struct error *err) CHECKED;
