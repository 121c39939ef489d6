/* What a server sends: the revision in the first two bytes, then packets, and blocks behind Data.
 */
#include "native/block_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cursor in = cursor_of(data, size);
    struct packet_server p;
    struct block_reader b = {.revision = cursor_u16(&in), .max_bytes = 1000000};
    size_t n;
    while (packet_server_parse(&in, b.revision, &p, NULL) == PARSE_DONE) {
        n = 0;
        bool whole = p.type != SERVER_DATA ||
                     block_reader_parse(&b, data + in.pos, size - in.pos, &n, NULL) == PARSE_DONE;
        block_reader_reset(&b);
        if (!whole)
            break;
        in.pos += n;
    }
    block_reader_fini(&b);
    return 0;
}
