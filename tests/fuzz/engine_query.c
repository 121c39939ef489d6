/* Statement text from a client: taken apart, stripped, judged. */
#include "engine/sql_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ignore_name(void *ctx, const char *name, size_t len)
{
    CHECK(name[len] == 0 && ctx == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *sql = (const char *)data;
    struct sql_shape shape;
    struct sql_reader_facts facts;
    CLEANUP_BUF struct buf out = {0};
    sql_shape_read(sql, size, &shape);
    CHECK(shape.head.at + shape.head.len <= size && shape.target.at + shape.target.len <= size);
    if (shape.columns.len > 0 && !sql_columns_read(sql, shape.columns, ignore_name, NULL))
        CHECK(shape.kind != SQL_OTHER);
    sql_strip_put(sql, size, &shape, &out);
    CHECK(out.len <= size);
    sql_value_put(sql, size, &out);
    sql_reader_facts_read(sql, size, &facts);
    return 0;
}
