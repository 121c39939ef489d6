#include "pg/multixact.h"

#include "base/bytes.h"
#include "base/cursor.h"

#include <stdio.h>

#define PAGES_PER_SEGMENT 32u
#define OFFSETS_PER_PAGE (PG_BLCKSZ / 4)

/* Members lie in groups: four status bytes, then the four xids. A page holds as many whole groups
 * as fit; the rest of it is not used. */
#define GROUP_MEMBERS 4u
#define GROUP_BYTES (GROUP_MEMBERS + GROUP_MEMBERS * 4)
#define MEMBERS_PER_PAGE (PG_BLCKSZ / GROUP_BYTES * GROUP_MEMBERS)

#define CREATE_MEMBER_BYTES 8u

static struct slru_place place_of(uint32_t number, uint32_t per_page)
{
    uint32_t page = number / per_page;
    return (struct slru_place){page / PAGES_PER_SEGMENT, page % PAGES_PER_SEGMENT,
                               number % per_page};
}

void slru_segment_name(uint32_t segment, char ret[SLRU_SEGMENT_NAME_MAX])
{
    snprintf(ret, SLRU_SEGMENT_NAME_MAX, "%04X", segment);
}

struct slru_place multixact_offset_place(MultiXactId multi)
{
    return place_of(multi, OFFSETS_PER_PAGE);
}

MultiXactOffset multixact_offset_get(const uint8_t *page, struct slru_place place)
{
    CHECK(place.entry < OFFSETS_PER_PAGE);
    return u32_at(page + place.entry * 4);
}

struct slru_place multixact_member_place(MultiXactOffset member)
{
    return place_of(member, MEMBERS_PER_PAGE);
}

enum status multixact_member_get(const uint8_t *page, struct slru_place place,
                                 struct multixact_member *ret, struct error *err)
{
    CHECK(place.entry < MEMBERS_PER_PAGE);
    uint32_t in_group = place.entry % GROUP_MEMBERS;
    const uint8_t *group = page + place.entry / GROUP_MEMBERS * GROUP_BYTES;
    struct multixact_member m = {.xid = u32_at(group + GROUP_MEMBERS + in_group * 4),
                                 .status = group[in_group]};
    if (m.status > MULTIXACT_UPDATE)
        return error_set(err, ERR_DATA, "multixact member with status %u", m.status);
    *ret = m;
    return OK;
}

/* xl_multixact_create: mid, moff, nmembers, then (xid, status) of 4 bytes each. */
enum status multixact_create_parse(const struct wal_record *record, struct multixact_create *ret,
                                   struct error *err)
{
    struct cursor c = cursor_of(record->main_data, record->main_len);
    struct multixact_create create = {
        .multi = cursor_u32(&c), .first = cursor_u32(&c), .nmembers = cursor_u32(&c)};
    if (!cursor_ok(&c) || create.nmembers > cursor_left(&c) / CREATE_MEMBER_BYTES)
        return error_lsn(err, ERR_DATA, record->start, "damaged record: multixact is cut");
    create.members = cursor_take(&c, (size_t)create.nmembers * CREATE_MEMBER_BYTES);
    for (uint32_t i = 0; i < create.nmembers; i++)
        if (u32_at(create.members + (size_t)i * CREATE_MEMBER_BYTES + 4) > MULTIXACT_UPDATE)
            return error_lsn(err, ERR_DATA, record->start,
                             "damaged record: multixact %u has a member with an unknown status",
                             create.multi);
    *ret = create;
    return OK;
}

struct multixact_member multixact_create_member(const struct multixact_create *create, uint32_t i)
{
    const uint8_t *at = create->members + (size_t)i * CREATE_MEMBER_BYTES;
    return (struct multixact_member){.xid = u32_at(at), .status = (uint8_t)u32_at(at + 4)};
}
