/* Compressed frames in a row. */
#include "native/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err;
    struct buf plain = {0};
    struct cursor in = cursor_of(data, size);
    while (plain.len < 4000000 && frame_parse(&in, 1000000, &plain, NULL, &err) == PARSE_DONE)
        continue;
    buf_free(&plain);
    return 0;
}
