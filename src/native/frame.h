/* Compressed frames: how ClickHouse's native protocol carries blocks when a query asked for
 * compression (ClickHouse, src/Compression/CompressedReadBufferBase.cpp).
 *
 * 16 bytes CityHash128 over the rest, u8 method, u32 size of the compressed bytes plus these 9
 * header bytes, u32 plain size, compressed bytes. One block may span frames; a packet ends with a
 * frame. */
#pragma once
#include "base/buf.h"
#include "native/parse.h"

enum frame_method {
    FRAME_NONE = 0x02,
    FRAME_LZ4 = 0x82,
    FRAME_ZSTD = 0x90,
};

#define FRAME_CHECKSUM_BYTES 16
#define FRAME_HEADER_BYTES 9
#define FRAME_COMPRESSED_MAX ((size_t)1 << 30)
#define FRAME_PLAIN_BYTES ((size_t)1 << 20) /* plain bytes of each frame we write, at most */

/* Reads one frame at the cursor and appends its plain bytes; any method is taken. A plain size
 * above plain_max, or one that the compressed bytes cannot hold, is PARSE_BAD before anything is
 * allocated. Unless PARSE_DONE, the cursor stays and nothing is appended. ret_need (may be NULL):
 * on PARSE_MORE, how many bytes from the cursor on the frame has as far as known. */
enum parse_result frame_parse(struct cursor *in, size_t plain_max, struct buf *plain,
                              size_t *ret_need, struct error *err);

/* Appends data as frames of at most FRAME_PLAIN_BYTES each. */
void frame_put(enum frame_method method, const void *data, size_t n, struct buf *out);

/* Collects pieces into full frames. `out` grows by whole frames; the caller sends and resets it
 * between calls as it likes. Zero-initialise with method and out set; free with frame_writer_fini.
 */
struct frame_writer {
    enum frame_method method;
    struct buf *out;
    struct buf stage; /* plain bytes of the frame under construction */
};
void frame_writer_put(struct frame_writer *w, const void *data, size_t n);
void frame_writer_flush(struct frame_writer *w); /* ends the frame under construction, if any */
void frame_writer_fini(struct frame_writer *w);
