/* Multixacts: several transactions that hold a row locked, at most one of which updates or deletes
 * it. Where the servers keep their members (pg_multixact/offsets, pg_multixact/members) and the WAL
 * record that makes one.
 * Source: access/multixact.h, access/transam/multixact.c, access/slru.h; same in 15 to 18 (the
 * servers count in 32 bits and name segment files with at least four digits in all of them). */
#pragma once
#include "base/error.h"
#include "pg/wal_record.h"

typedef uint32_t MultiXactId;
typedef uint32_t MultiXactOffset; /* a member's number */

#define FirstMultiXactId 1u

#define XLOG_MULTIXACT_CREATE_ID 0x20

enum multixact_status {
    MULTIXACT_FOR_KEY_SHARE,
    MULTIXACT_FOR_SHARE,
    MULTIXACT_FOR_NO_KEY_UPDATE,
    MULTIXACT_FOR_UPDATE,
    MULTIXACT_NO_KEY_UPDATE, /* from here on: an update or delete, not only a lock */
    MULTIXACT_UPDATE,
};

struct multixact_member {
    TransactionId xid; /* 0: not a member (the hole that a wrap around leaves) */
    uint8_t status;    /* enum multixact_status */
};

static inline bool multixact_member_updates(struct multixact_member m)
{
    return m.xid >= FirstNormalTransactionId && m.status >= MULTIXACT_NO_KEY_UPDATE;
}

/* The one after it: 0 is never used. */
static inline MultiXactId multixact_next(MultiXactId multi)
{
    return multi == UINT32_MAX ? FirstMultiXactId : multi + 1;
}

/* A page (PG_BLCKSZ bytes) of a segment file and an entry of that page. */
struct slru_place {
    uint32_t segment;
    uint32_t page; /* of the segment */
    uint32_t entry;
};
#define SLRU_SEGMENT_NAME_MAX 16
void slru_segment_name(uint32_t segment, char ret[SLRU_SEGMENT_NAME_MAX]);

/* In offsets/: the number of the multixact's first member, 0 = never written. Its last member is
 * the one before the first of the next multixact. */
struct slru_place multixact_offset_place(MultiXactId multi);
MultiXactOffset multixact_offset_get(const uint8_t *page, struct slru_place place);

/* In members/. ERR_DATA for a status there is not. */
struct slru_place multixact_member_place(MultiXactOffset member);
enum status multixact_member_get(const uint8_t *page, struct slru_place place,
                                 struct multixact_member *ret, struct error *err) CHECKED;

struct multixact_create {
    MultiXactId multi;
    MultiXactOffset first;
    uint32_t nmembers;
    const uint8_t *members; /* in the record, unaligned; their statuses have been checked */
};
static inline bool wal_record_is_multixact_create(const struct wal_record *record)
{
    return record->rmid == RM_MULTIXACT_ID && (record->info & 0xF0) == XLOG_MULTIXACT_CREATE_ID;
}
enum status multixact_create_parse(const struct wal_record *record, struct multixact_create *ret,
                                   struct error *err) CHECKED;
struct multixact_member multixact_create_member(const struct multixact_create *create, uint32_t i);
