#include "pg/change.h"
#include "pg/wal_parse.h"
#include "pump/class_row.h"

static enum status take(void *ctx, const struct change *c, struct error *err)
{
    (void)err;
    for (uint32_t i = 0; c->has_new && i < c->new_tuple.body_len; i++)
        *(unsigned *)ctx += c->new_tuple.body[i]; /* the sanitizer sees a pointer out of place */
    return OK;
}

static void take_class(void *ctx, const struct class_row *row)
{
    for (size_t i = 0; row->name[i] != 0; i++)
        *(unsigned *)ctx += (unsigned char)row->name[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct wal_record r;
    struct heap_truncate t;
    bool incomplete;
    unsigned sum = 0;
    if (size > UINT32_MAX || wal_record_parse(data, (uint32_t)size, &r, NULL) != OK)
        return 0;
    (void)class_rows_each(&r, data[0] % 2 == 0 ? 15 : 18, take_class, &sum);
    enum status got = heap_record_is_truncate(&r) ? heap_truncate_parse(&r, &t, NULL) : OK;
    return got == OK && heap_record_changes(&r, take, &sum, &incomplete, NULL) == OK ? 0 : 0;
}
