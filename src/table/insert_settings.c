#include "table/insert_settings.h"

#include "base/error.h"

/* Synchronous (1), one part per INSERT up to 1,048,449 rows or 256 MiB (19), no work at insert that
 * a merge does anyway (20), nothing converted in silence (7), quiet connection (22). */
const struct ch_setting insert_settings[] = {
    {"async_insert", "0"},
    {"wait_for_async_insert", "1"},
    {"distributed_foreground_insert", "1"},
    {"insert_distributed_sync", "1"},
    {"optimize_on_insert", "0"},
    {"min_insert_block_size_rows", "1048449"},
    {"min_insert_block_size_bytes", "268402944"},
    {"max_partitions_per_insert_block", "0"},
    {"input_format_native_allow_types_conversion", "0"},
    {"send_profile_events", "0"},
    {"send_logs_level", "none"},
    {NULL, NULL},
};
const size_t insert_settings_count = LENGTH(insert_settings) - 1;

const struct ch_setting ddl_settings[] = {
    {"alter_sync", "2"},          {"mutations_sync", "2"},     {"enable_time_time64_type", "1"},
    {"send_profile_events", "0"}, {"send_logs_level", "none"}, {NULL, NULL},
};
const size_t ddl_settings_count = LENGTH(ddl_settings) - 1;
