#include "load/copy_value.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const Oid types[] = {16, 23, 1700, 1186, 1266, 25, 2950, 99999};
    struct cursor c = cursor_of(data, size);
    struct buf room = {0};
    const uint8_t *field, *value;
    uint32_t len, value_len;
    bool end = copy_header_skip(&c, NULL) != OK;
    while (!end && copy_row_begin(&c, LENGTH(types), &end, NULL) == OK && !end)
        for (size_t i = 0; i < LENGTH(types) && !end; i++)
            if (copy_field_next(&c, &field, &len, NULL) != OK)
                end = true;
            else if (field != NULL &&
                     copy_value_get(types[i], field, len, &room, &value, &value_len, NULL) == OK)
                CHECK(value_len <= len);
    return buf_free(&room), 0;
}
