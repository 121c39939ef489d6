#include "pg/inval.h"

#include "base/bytes.h"

#include <string.h>

struct inval_message inval_list_get(const struct inval_list *list, uint32_t i)
{
    const uint8_t *at = list->messages + (size_t)i * INVAL_MESSAGE_SIZE;
    int8_t id = (int8_t)at[0];
    struct inval_message m = {.kind = INVAL_OTHER, .db_oid = u32_at(at + 4)};
    if (id >= 0) {
        m.kind = INVAL_CATCACHE;
        m.cache_id = (uint8_t)id;
        return m;
    }
    switch (id) {
    case -1:
        m.kind = INVAL_CATALOG;
        m.rel_oid = u32_at(at + 8);
        break;
    case -2:
        m.kind = INVAL_RELCACHE;
        m.rel_oid = u32_at(at + 8);
        break;
    case -3: /* the locator takes the place of database and relation */
        m.kind = INVAL_SMGR;
        m.locator = (struct rel_file_locator){u32_at(at + 4), u32_at(at + 8), u32_at(at + 12)};
        m.db_oid = m.locator.db_oid;
        break;
    case -4:
        m.kind = INVAL_RELMAP;
        break;
    case -5:
        m.kind = INVAL_SNAPSHOT;
        m.rel_oid = u32_at(at + 8);
        break;
    default: /* -6 (18) names a relation too, but only pgoutput's own cache hears it */
        break;
    }
    return m;
}
