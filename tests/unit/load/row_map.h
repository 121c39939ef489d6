/* The destination of the load tests: per TID the change with the highest LSN wins, as
 * ReplacingMergeTree does it. Rows are (id int4, v int8, s text), kept as a hash. */
#pragma once
#include "pg/change.h"
#include "test.h"

#include <pthread.h>

struct row {
    uint64_t tid;
    XLogRecPtr lsn;
    uint64_t hash; /* 0 = deleted */
};

struct row_map {
    pthread_mutex_t lock; /* guards all */
    struct row *rows;     /* by tid, open addressing */
    size_t mask, count;
    struct tuple_shape *shape;
};

static inline void row_map_init(struct row_map *m)
{
    static const struct tuple_att atts[] = {{4, 'i', false}, {8, 'd', false}, {-1, 'i', false}};
    pthread_mutex_init(&m->lock, NULL);
    m->mask = (1u << 21) - 1;
    m->rows = xcalloc(m->mask + 1, sizeof *m->rows);
    m->count = 0;
    m->shape = tuple_shape_new(atts, 3);
}

static inline void row_map_fini(struct row_map *m)
{
    free(m->rows);
    tuple_shape_free(m->shape);
    pthread_mutex_destroy(&m->lock);
}

static inline uint64_t row_hash(int32_t id, int64_t v, const char *s, size_t len)
{
    uint64_t h = 0xcbf29ce484222325u ^ (uint32_t)id;
    h = h * 0x100000001b3u ^ (uint64_t)v;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (uint8_t)s[i]) * 0x100000001b3u;
    return h | 1;
}

static inline uint64_t row_tuple_hash(const struct row_map *m, const struct raw_tuple *t)
{
    struct error err;
    struct datum d[3];
    int32_t id;
    int64_t v;
    assert_ok(tuple_deform(m->shape, t, d, &err));
    memcpy(&id, d[0].data, 4);
    memcpy(&v, d[1].data, 8);
    return row_hash(id, v, (const char *)d[2].data, d[2].len);
}

static inline void row_map_put(struct row_map *m, uint64_t tid, XLogRecPtr lsn, uint64_t hash)
{
    pthread_mutex_lock(&m->lock);
    size_t at = (tid * 0x9e3779b97f4a7c15u >> 20) & m->mask;
    while (m->rows[at].tid != 0 && m->rows[at].tid != tid)
        at = (at + 1) & m->mask;
    m->count += m->rows[at].tid == 0;
    CHECK(m->count < m->mask / 2);
    if (m->rows[at].tid == 0 || lsn > m->rows[at].lsn)
        m->rows[at] = (struct row){tid, lsn, hash};
    pthread_mutex_unlock(&m->lock);
}

static inline const struct row *row_map_get(const struct row_map *m, uint64_t tid)
{
    size_t at = (tid * 0x9e3779b97f4a7c15u >> 20) & m->mask;
    while (m->rows[at].tid != 0 && m->rows[at].tid != tid)
        at = (at + 1) & m->mask;
    return m->rows[at].tid == 0 ? NULL : &m->rows[at];
}
