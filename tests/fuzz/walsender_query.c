/* Commands of a replication connection. */
#include "shadow/walsender_query.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct walsender_query query = {0};
    struct error err;
    enum status st = walsender_query_parse((const char *)data, size, &query, &err);
    CHECK(st == OK || st == ERR_DATA);
    CHECK(memchr(query.name, 0, sizeof query.name) != NULL);
    return 0;
}
