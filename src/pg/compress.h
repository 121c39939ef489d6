/* PostgreSQL's compressed values and page images.
 * Source: common/pg_lzcompress.c (format), access/toast_compression.h (toast_compress_header),
 * access/xlogrecord.h (BKPIMAGE_COMPRESS_*). Same in 15 to 18. */
#pragma once
#include "base/buf.h"
#include "base/error.h"

enum compress_method { COMPRESS_PGLZ, COMPRESS_LZ4, COMPRESS_ZSTD };

/* Plain bytes of src into dst: exactly dst_len of them, or ERR_DATA. Never reads or writes outside.
 */
enum status compress_decode(enum compress_method method, const uint8_t *src, size_t src_len,
                            uint8_t *dst, size_t dst_len, struct error *err) CHECKED;

/* A compressed varlena without its own length word, inline or put together from TOAST chunks: a
 * word of raw size (30 bits) and method (2 bits), then the compressed bytes. Appends the plain
 * bytes to *ret. ERR_DATA if damaged, or if the plain size exceeds max_bytes or what so many bytes
 * can hold (both checked before anything is allocated). */
enum status varlena_decompress(const uint8_t *data, size_t len, size_t max_bytes, struct buf *ret,
                               struct error *err) CHECKED;
