/* Settings the daemon sends with its statements (clickhouse-notes B3): with flag 0, so that a
 * server which does not know one ignores it. */
#pragma once
#include "clickhouse/client.h"

#include <stddef.h>

/* Ends with a {NULL, NULL} entry; `insert_settings_count` entries before it. */
extern const struct ch_setting insert_settings[];
extern const size_t insert_settings_count;

extern const struct ch_setting ddl_settings[];
extern const size_t ddl_settings_count;
