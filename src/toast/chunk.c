#include "toast/chunk.h"

#include <pthread.h>
#include <string.h>

static struct tuple_shape *shape; /* lives as long as the program */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void shape_make(void)
{
    static const struct tuple_att atts[] = {{4, 'i', false}, {4, 'i', false}, {-1, 'i', false}};
    shape = tuple_shape_new(atts, LENGTH(atts));
}

enum status toast_chunk_parse(const struct raw_tuple *tuple, struct toast_chunk *ret,
                              struct error *err)
{
    struct datum d[3];
    struct toast_chunk chunk;
    pthread_once(&once, shape_make);
    TRY(tuple_deform(shape, tuple, d, err));
    if (d[0].state != DATUM_VALUE || d[1].state != DATUM_VALUE || d[2].state != DATUM_VALUE)
        return error_set(err, ERR_DATA, "a TOAST chunk is not of the form (oid, int4, bytea)");
    memcpy(&chunk.value_id, d[0].data, sizeof chunk.value_id);
    memcpy(&chunk.seq, d[1].data, sizeof chunk.seq);
    chunk.data = d[2].data;
    chunk.len = d[2].len;
    if (chunk.len == 0 || chunk.len > TOAST_CHUNK_BYTES_MAX)
        return error_set(err, ERR_DATA, "TOAST value %u: a chunk of %u bytes", chunk.value_id,
                         chunk.len);
    *ret = chunk;
    return OK;
}
