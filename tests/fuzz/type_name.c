/* A type text up to a zero byte, then a row count and the payload of a column of that type. */
#include "native/column.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct type_node *type, *again;
    struct arena arena = {0};
    struct buf text CLEANUP_BUF = {0};
    struct column_text values[16];
    size_t len = strnlen((const char *)data, size);
    if (type_name_parse(&arena, (const char *)data, len, &type, NULL) == OK) {
        type_name_print(type, &text);
        CHECK(type_name_parse(&arena, (char *)text.data, text.len, &again, NULL) == OK);
        CHECK(type_name_accepts(type, again) && type_name_accepts(again, type));
        struct cursor c = cursor_of(data + len, size - len);
        uint64_t rows = cursor_u16(&c) >> 8;
        (void)(column_text_read(type, rows % 16, &c, &arena, values, NULL) == OK);
        (void)(column_walk(type, rows, &c, NULL) == OK);
    }
    arena_free(&arena);
    return 0;
}
