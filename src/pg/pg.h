/* PostgreSQL's basic types and constants, in its own names. Majors 15 to 18. */
#pragma once
#include "base/lsn.h"

#include <stdbool.h>
#include <stdint.h>

typedef uint32_t Oid;
typedef uint32_t TransactionId;
typedef uint32_t BlockNumber;
typedef uint16_t OffsetNumber;

/* Token for token, blanks too, as libpq's postgres_ext.h, so that both may be included. */
/* clang-format off */
#define InvalidOid ((Oid) 0)
/* clang-format on */
#define InvalidTransactionId 0u
#define FrozenTransactionId 2u
#define FirstNormalTransactionId 3u
#define FirstNormalObjectId 16384u
#define DEFAULTTABLESPACE_OID 1663u
#define GLOBALTABLESPACE_OID 1664u
#define PG_BLCKSZ 8192u
#define PG_XLOG_BLCKSZ 8192u

#define PG_MAJOR_MIN 15
#define PG_MAJOR_MAX 18

/* storage/relfilelocator.h (16+; RelFileNode in 15) */
struct rel_file_locator {
    Oid spc_oid;
    Oid db_oid;
    Oid rel_number;
};

static inline bool rel_file_locator_equal(struct rel_file_locator a, struct rel_file_locator b)
{
    return a.rel_number == b.rel_number && a.db_oid == b.db_oid && a.spc_oid == b.spc_oid;
}

/* common/relpath.h */
enum fork_number { MAIN_FORKNUM, FSM_FORKNUM, VISIBILITYMAP_FORKNUM, INIT_FORKNUM };

/* Where a row is: block << 16 | offset; the value of _ctid. */
static inline uint64_t tid_make(BlockNumber block, OffsetNumber offset)
{
    return (uint64_t)block << 16 | offset;
}

/* A position inside a WAL page's header is the page's start: nothing ends there, and nothing that
 * does would be sent before the next record. */
static inline XLogRecPtr lsn_before_page_header(XLogRecPtr lsn, uint64_t segment_bytes)
{
    XLogRecPtr in_page = lsn % PG_XLOG_BLCKSZ;
    XLogRecPtr header = lsn % segment_bytes < PG_XLOG_BLCKSZ ? 40 : 24;
    return in_page <= header ? lsn - in_page : lsn;
}

/* access/transam.h: modulo-2^32 comparison; special xids sort first */
static inline bool xid_precedes(TransactionId a, TransactionId b)
{
    if (a < FirstNormalTransactionId || b < FirstNormalTransactionId)
        return a < b;
    return (int32_t)(a - b) < 0;
}
