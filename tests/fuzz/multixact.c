#include "pg/multixact.h"

/* A CREATE_ID record's main data, and the same bytes as the beginning of a page of members. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err;
    struct multixact_create c;
    struct multixact_member m = {0};
    uint8_t page[PG_BLCKSZ] = {0};
    struct wal_record r = {.rmid = RM_MULTIXACT_ID, .main_data = data, .main_len = (uint32_t)size};
    if (multixact_create_parse(&r, &c, &err) == OK)
        for (uint32_t i = 0; i < c.nmembers; i++)
            CHECK(multixact_create_member(&c, i).status <= MULTIXACT_UPDATE);
    memcpy(page, data, MIN(size, sizeof page));
    for (MultiXactOffset i = 0; i < 1636; i++)
        if (multixact_member_get(page, multixact_member_place(i), &m, &err) == OK)
            CHECK(m.status <= MULTIXACT_UPDATE);
    return 0;
}
