/* Full-page images in WAL records. Source: access/xlogrecord.h (BKPIMAGE_*), the same in 15 to 18.
 */
#pragma once
#include "pg/wal_record.h"

/* The page as it was right after the record's change (pd_lsn is still the one before). page is
 * untouched on failure. ERR_DATA if the image's hole or compressed bytes are damaged. */
enum status wal_block_image_restore(const struct wal_block *b, uint8_t page[PG_BLCKSZ],
                                    struct error *err) CHECKED;
